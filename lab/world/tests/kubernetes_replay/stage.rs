//! Objects that existed in the recorded cluster, but that the recordings do not show: nodes, pods whose
//! status was written by hand, volumes, classes.

use std::time::Duration;

use serde_json::{Value, json};
use world::{
    guest::control_plane::{ControlPlane, JoinRequest},
    kubernetes::{
        Kube,
        spec::{KubeSpec, KubeTimings, NodeSpec, ServiceAccountSpec},
    },
};

use super::scene;

pub const ADMIN: &str = "admin-token";
pub const CA_HASH: &str = "sha256:ad8818936de1cb53a19d08227f7117a4407eaa1e3232df49fd58a83ce2daef7f";

/// Preempted pods that a finalizer keeps from being deleted.
pub const HELD: &[&str] = &["new-0", "new-1", "new-2", "new-3", "new-4", "new-5"];

/// The `Authorization` header of a recorded caller.
pub fn authorization(who: &str) -> Option<String> {
    let token = match who {
        "no-auth" => return None,
        "admin" => ADMIN.to_owned(),
        "limited" | "autoscaler" | "bad-token" => who.to_owned(),
        token => format!("{}.0123456789abcdef", token.strip_prefix("token-").unwrap_or(token)),
    };
    Some(format!("Bearer {token}"))
}

/// The spec of the cluster as it was before a scenario.
pub fn cluster(scenario: &str, ca_pem: Option<String>) -> KubeSpec {
    let account = |namespace: &str, name: &str| ServiceAccountSpec {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        token: name.into(),
        rules: Vec::new(),
    };
    KubeSpec {
        ca_hash: CA_HASH.into(),
        ca_pem: ca_pem.unwrap_or_default(),
        admin_token: ADMIN.into(),
        endpoint: "10.88.0.1:6443".into(),
        timings: timings(scenario),
        nodes: nodes(scenario),
        service_accounts: vec![account("demo", "limited"), account("kube-system", "autoscaler")],
        ..KubeSpec::demo()
    }
}

fn timings(scenario: &str) -> KubeTimings {
    let ms = Duration::from_millis;
    let plain = KubeTimings::default();
    match scenario.split('-').next().unwrap_or_default() {
        // The controllers were halted in this scenario.
        "01c" => KubeTimings { budget: ms(250), ..plain },
        "03" | "03b" => {
            KubeTimings { pod_start: ms(30), pod_ready: ms(0), register: ms(200), ready: ms(310), ..plain }
        }
        "04" => KubeTimings {
            kubelet_restart: ms(1000),
            pod_start: ms(6000),
            pod_ready: ms(1000),
            ready: ms(200),
            ..plain
        },
        "04b" => KubeTimings { monitor_grace: ms(50_300), pod_gc: ms(53_000), pod_stop: ms(9000), ..plain },
        "06" | "06b" => KubeTimings { pod_start: ms(3000), pod_ready: ms(300), pod_stop: ms(6000), ..plain },
        _ => plain,
    }
}

fn hollow(name: &str) -> NodeSpec {
    let mut node = NodeSpec::worker(name, 1, 4);
    node.memory = (3840 + 100) << 20;
    node.provider_id = Some(format!("kubemark://{name}"));
    node.address = "192.0.2.2".into();
    node
}

fn guest(name: &str) -> NodeSpec {
    let mut node = NodeSpec::worker(name, 2, 2);
    node.system_uuid = scene::machine(name);
    node.memory = (1_407_516 + 100 * 1024) << 10;
    node.provider_id = Some(format!("proxmox://lab/{name}"));
    node.address = address(name);
    node
}

/// The address of a guest.
pub fn address(name: &str) -> String {
    format!("10.88.0.2{}", name.trim_start_matches("worker-"))
}

fn nodes(scenario: &str) -> Vec<NodeSpec> {
    let mut nodes = vec![hollow("h1"), hollow("h2")];
    let guests: &[&str] = match scenario.split('-').next().unwrap_or_default() {
        "07" => &["worker-2"],
        "02" | "03" | "04c" | "05b" | "05c" | "06" => &["worker-2", "worker-3"],
        "04b" => &["worker-2", "worker-3", "worker-4"],
        _ => &[],
    };
    nodes.extend(guests.iter().map(|name| guest(name)));
    if scenario.starts_with("06-") || scenario.starts_with("04c") {
        for node in nodes.iter_mut().filter(|node| node.name.starts_with("worker")) {
            node.labels = vec![("drain".into(), "yes".into())];
        }
    }
    if scenario.starts_with("02-") {
        nodes[3].labels = vec![("example.com/pool".into(), "general".into())];
    }
    if scenario.starts_with("03") {
        nodes[1].taints = vec!["example.com/dedicated=x:NoSchedule".into()];
    }
    if scenario.starts_with("04b") {
        nodes[4].labels = vec![("b4".into(), "yes".into()), ("example.com/pool".into(), "general".into())];
        nodes.extend([hollow("h3"), hollow("h4")]);
    }
    nodes
}

fn pod(namespace: &str, name: &str, app: &str, status: Value) -> Value {
    let mut pod = json!({
        "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } },
        "spec": {
            "containers": [{ "name": "main", "image": "docker.io/library/pause:3.10" }],
            "automountServiceAccountToken": false,
            "nodeName": "held",
        },
    });
    pod["status"] = status;
    pod
}

fn ready(phase: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    let condition = |of: &str, status: &str| json!({ "type": of, "status": status, "lastProbeTime": null, "lastTransitionTime": "2026-11-21T01:12:39Z" });
    json!({
        "phase": phase,
        "conditions": [condition("PodScheduled", "True"), condition("Ready", ready), condition("ContainersReady", ready)],
        "startTime": "2026-11-21T01:12:39Z",
        "qosClass": "BestEffort",
    })
}

/// A node without a kubelet.
fn held() -> Value {
    json!({
        "kind": "Node",
        "metadata": { "name": "held" },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T01:00:00Z" }] },
    })
}

/// Objects whose initial state is not in any recorded answer, each with the second at which it was created.
pub fn extras(scenario: &str) -> Vec<(Option<f64>, Value)> {
    match scenario.split('-').next().unwrap_or_default() {
        "01" => {
            let running = |name: &str| {
                pod("demo", name, name.split('-').next().unwrap_or(name), ready("Running", true))
            };
            let mut objects = vec![(None, held())];
            let names = ["web-1", "web-2", "two-1", "free-1", "free-2", "free-3"];
            objects.extend(names.map(|name| (Some(3.36), running(name))));
            let mut pending = pod("demo", "pend-1", "pend", json!({ "phase": "Pending" }));
            pending["spec"]["nodeName"] = json!(null);
            pending["spec"]["nodeSelector"] = json!({ "no": "where" });
            objects.push((Some(3.36), pending));
            for app in ["ill", "sick"] {
                objects.push((Some(7.81), pod("demo", &format!("{app}-1"), app, ready("Running", false))));
            }
            objects
        }
        "01b" => {
            let mut objects = vec![(None, held())];
            for number in 1..6 {
                let mut web = pod("bud", &format!("web-{number}"), "web", ready("Running", true));
                if number == 2 {
                    // A precondition names this pod before any answer shows it.
                    web["metadata"]["uid"] = json!("6e5f05f6-a0db-415d-a99c-3cf67ba82706");
                    web["metadata"]["resourceVersion"] = json!("3558");
                }
                objects.push((None, web));
            }
            for number in 1..3 {
                objects.push((None, pod("bud", &format!("done-{number}"), "done", ready("Running", true))));
            }
            objects
        }
        "01c" => {
            let one = |number: u32| pod("bud2", &format!("a-{number}"), "a", ready("Running", true));
            vec![(None, held()), (None, one(1)), (None, one(2))]
        }
        "02" => {
            let mut pending =
                pod("lw", "p-pend", "p-pend", json!({ "phase": "Pending", "qosClass": "BestEffort" }));
            pending["spec"]["nodeSelector"] = json!({ "no": "where" });
            pending["spec"]["nodeName"] = json!(null);
            let mut here = pod("lw", "p-here", "p-here", json!({ "phase": "Pending" }));
            here["spec"]["nodeName"] = json!("h1");
            vec![(Some(3.93), pending), (Some(3.95), here)]
        }
        "03" | "03b" => volumes_and_classes(),
        "04b" => {
            let mut node = held();
            node["spec"]["taints"] =
                json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule" }]);
            node["status"]["conditions"][0]["status"] = json!("Unknown");
            vec![(None, node)]
        }
        _ => Vec::new(),
    }
}

fn volumes_and_classes() -> Vec<(Option<f64>, Value)> {
    let class = |name: &str, mode: &str| {
        json!({
            "kind": "StorageClass",
            "metadata": { "name": name },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": mode,
        })
    };
    let claim = |name: &str, class: &str, volume: &str| {
        json!({
            "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": "s3" },
            "spec": { "storageClassName": class, "volumeName": volume },
        })
    };
    let priority = |name: &str, value: i64, preemption: &str| {
        json!({
            "kind": "PriorityClass",
            "metadata": { "name": name },
            "value": value,
            "preemptionPolicy": preemption,
        })
    };
    let terms = json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["z9"] }] }]);
    let volume = json!({
        "kind": "PersistentVolume",
        "metadata": { "name": "far" },
        "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } },
    });
    let cordon =
        json!({ "kind": "Node", "metadata": { "name": "worker-3" }, "spec": { "unschedulable": true } });
    [
        class("wait", "WaitForFirstConsumer"),
        class("now", "Immediate"),
        claim("wait", "wait", ""),
        claim("now", "now", ""),
        volume,
        claim("far", "now", "far"),
        priority("high", 1000, "PreemptLowerPriority"),
        priority("high-never", 900, "Never"),
        cordon,
    ]
    .into_iter()
    .map(|object| (None, object))
    .collect()
}

/// The changes that were made outside of the recorded calls, each as second, kind, namespace, name and merge
/// patch. A null patch deletes the object.
pub fn changes(scenario: &str) -> Vec<(f64, &'static str, &'static str, &'static str, Value)> {
    match scenario.split('-').next().unwrap_or_default() {
        "01b" => vec![(3.6, "Pod", "bud", "done-1", json!({ "status": { "phase": "Succeeded" } }))],
        "03" => [(24.83, false), (25.955, true), (48.115, false), (52.16, true)]
            .map(|(at, cordon)| (at, "Node", "", "worker-3", json!({ "spec": { "unschedulable": cordon } })))
            .to_vec(),
        "04b" => vec![(66.0, "Node", "", "held", Value::Null)],
        "06" => vec![
            (0.1, "Node", "", "worker-2", json!({ "spec": { "unschedulable": true } })),
            (22.28, "Node", "", "worker-2", json!({ "spec": { "unschedulable": null } })),
            (26.31, "Node", "", "worker-3", json!({ "spec": { "unschedulable": true } })),
        ],
        "02" => vec![(13.6, "ConfigMap", "lw", "c1", json!({ "data": { "k": "3" } }))],
        _ => Vec::new(),
    }
}

/// Whether a recorded object is skipped when the recorded objects are created, because [`extras`] or the
/// cluster itself creates it.
pub fn replaces(scenario: &str, object: &Value) -> bool {
    let extra = extras(scenario).into_iter().any(|(_, extra)| {
        extra["kind"] == object["kind"] && extra["metadata"]["name"] == object["metadata"]["name"]
    });
    let parts = scenario.starts_with("06b") || scenario.starts_with("03b");
    extra || (parts && object["kind"] == "Lease")
}

/// Starts a hollow kubelet.
pub async fn join_hollow(kube: &Kube, name: &str) {
    let secret = json!({
        "kind": "Secret",
        "metadata": { "name": "bootstrap-token-hollow", "namespace": "kube-system" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "hollow",
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-signing": "true",
            "usage-bootstrap-authentication": "true",
        },
    });
    kube.apply(&secret).expect("a token");
    tokio::time::sleep(Duration::from_millis(11)).await;
    let machine = hollow(name);
    let request = JoinRequest {
        system_uuid: scene::machine(name),
        api_server: "10.88.0.1:6443".into(),
        token: "hollow.0123456789abcdef".into(),
        ca_cert_hashes: Vec::new(),
        node_name: name.into(),
        addresses: vec![machine.address],
        cpus: machine.cpus,
        memory: machine.memory,
        disk: machine.disk,
        node_labels: vec![("pool".into(), "new".into())],
        taints: if name == "h4" { vec!["example.com/startup=true:NoSchedule".into()] } else { Vec::new() },
        provider_id: machine.provider_id,
        max_pods: None,
        kubelet_patch: None,
        configuration: String::new(),
    };
    kube.join(request).await.expect("joined");
}
