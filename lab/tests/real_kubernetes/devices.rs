//! Scales a pool with DRA devices from zero nodes and back. Kubernetes' own driver helper publishes
//! ResourceSlices, the real scheduler allocates devices, and the kubelet's own manager lets the driver
//! prepare each claim before its pod starts. Containers are imitated: the driver's process is started once
//! the kubelet reports that the container of its DaemonSet pod runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rig::Driver;
use serde_json::{Value, json};
use tokio::time::Instant;
use world::kubernetes::samples;

use crate::real::Real;
use crate::shared::bench::{Bench, Kubernetes as _, POOL, cluster, name};

const DRIVER: &str = "gpu.example.com";
/// The extended resource that pods can request instead of a claim for a device of the class.
const RESOURCE: &str = "example.com/gpu";
/// The number of devices that the pool declares for each node.
const DEVICES: usize = 2;
const DECLARED: &str = r#"
[[pool.device]]
driver = "gpu.example.com"
name = "gpu-{{ number }}"
count = 2
attributes = { model = "a", version = { version = "2.1.0" } }
capacity = { memory = "80Gi" }
"#;
/// The objects that are created besides the pods: namespace, kind and name.
const MADE: [[&str; 3]; 6] = [
    ["kube-system", "daemonset", "gpu-driver"],
    ["kube-system", "serviceaccount", "gpu-driver"],
    ["kube-system", "clusterrolebinding", "gpu-driver"],
    ["kube-system", "clusterrole", "gpu-driver"],
    ["default", "resourceclaimtemplate", "gpu"],
    ["kube-system", "deviceclass", "gpu"],
];

/// The objects that the driver's chart installs, and a claim template with selectors of every kind.
fn installed() -> Vec<Value> {
    let rights = json!([
        { "apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"],
          "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
        { "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
    ]);
    let role =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpu-driver" });
    let account = json!([{ "kind": "ServiceAccount", "name": "gpu-driver", "namespace": "kube-system" }]);
    let set = json!({ "app": "gpu-driver" });
    let selector = format!(
        r#"device.attributes["{DRIVER}"].model == "a" && device.attributes["{DRIVER}"].version.isGreaterThan(semver("2.0.0")) &&
           device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0"#
    );
    let request = json!({ "name": "gpu", "exactly": {
        "deviceClassName": "gpu", "selectors": [{ "cel": { "expression": selector } }],
    }});
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "gpu-driver", "namespace": "kube-system" } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "gpu-driver" }, "rules": rights }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "gpu-driver" }, "roleRef": role, "subjects": account }),
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": "gpu-driver", "namespace": "kube-system" },
            "spec": { "selector": { "matchLabels": set }, "template": {
                "metadata": { "labels": set },
                "spec": {
                    "nodeSelector": { "pve-autoscaler/pool": "workers" },
                    "containers": [{ "name": "driver", "image": "registry.k8s.io/pause:3.10" }],
                },
            }} }),
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" },
            "spec": { "extendedResourceName": RESOURCE,
                "selectors": [{ "cel": { "expression": format!("device.driver == \"{DRIVER}\"") } }] } }),
        json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": "gpu", "namespace": "default" },
            "spec": { "spec": { "devices": { "requests": [request] } } } }),
    ]
}

/// Pods with a claim for one device each.
fn train(replicas: u32) -> Value {
    let mut all = samples::deployment("train", replicas, "100m", "64Mi");
    let spec = &mut all["spec"]["template"]["spec"];
    spec["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimTemplateName": "gpu" }]);
    spec["containers"][0]["resources"]["claims"] = json!([{ "name": "gpu" }]);
    all
}

/// A pod that requests the extended resource of the class.
fn infer() -> Value {
    let mut all = samples::deployment("infer", 1, "100m", "64Mi");
    all["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = json!({ RESOURCE: "1" });
    all
}

/// The driver's processes, by node name.
struct Drivers {
    kubeconfig: String,
    running: BTreeMap<String, Driver>,
}

impl Drivers {
    /// Starts the driver on each node whose kubelet reports that the driver's container runs, and stops it
    /// when the node is gone.
    async fn step(&mut self, bench: &Bench<Real>) {
        let nodes: BTreeMap<String, Value> =
            bench.kube.list("Node").into_iter().map(|node| (name(&node), node)).collect();
        self.running.retain(|node, _| nodes.contains_key(node));
        let pods = "/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dgpu-driver";
        for pod in bench.kube.admin.list(pods).await.unwrap() {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let Some(object) = nodes.get(node).filter(|_| pod["status"]["phase"] == "Running") else {
                continue;
            };
            if self.running.contains_key(node) {
                continue;
            }
            let uuid = object["status"]["nodeInfo"]["systemUUID"].as_str().unwrap_or_default();
            let Some(root) = bench.kube.guests.kubelet_root(uuid) else { continue };
            let own = (DRIVER, Path::new(&self.kubeconfig));
            let driver = Driver::start(bench.kube.plane.programs(), own, (node, &root), DEVICES).await;
            self.running.insert(node.to_owned(), driver.unwrap());
        }
    }

    /// Runs the drivers until the condition is met.
    async fn until(&mut self, what: &str, bench: &Bench<Real>, is_so: impl Fn(&Bench<Real>, &Self) -> bool) {
        let started = Instant::now();
        while !is_so(bench, self) {
            assert!(started.elapsed() < Real::LONG, "never true: {what}; the daemon said:\n{}", bench.log());
            self.step(bench).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The number of claims that kubelets have let the drivers prepare.
    fn prepared(&self) -> usize {
        self.running.values().map(Driver::prepared).sum()
    }
}

async fn slices(bench: &Bench<Real>) -> Vec<Value> {
    bench.kube.admin.list("/apis/resource.k8s.io/v1/resourceslices").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_claims_get_nodes_whose_driver_publishes_what_is_declared() {
    let Some(mut bench) = Bench::<Real>::idle(cluster(), &format!("{POOL}{DECLARED}")).await else { return };
    for object in installed() {
        bench.kube.admin.apply(&object.to_string()).await.unwrap();
    }
    let kubeconfig = bench.kube.admin.kubeconfig_for("kube-system", "gpu-driver").await.unwrap();
    let mut drivers = Drivers { kubeconfig: bench.file("driver.conf"), running: BTreeMap::new() };
    std::fs::write(&drivers.kubeconfig, kubeconfig).unwrap();
    bench.kube.apply(&train(2)).await;
    bench.kube.apply(&infer()).await;
    bench.start().await;
    bench.until("two nodes are ready", |bench| bench.nodes("workers").len() == 2).await;
    // No slices are published yet, but the pool declares its devices, so the daemon creates no third machine.
    let waits = |bench: &Bench<Real>| bench.vms().len() == 2 && bench.running() == 0;
    bench.throughout("two machines exist and no pod runs", Duration::from_secs(3), waits).await;
    assert!(slices(&bench).await.is_empty());
    drivers.until("three pods run", &bench, |bench, _| bench.running() == 3).await;
    assert_eq!((bench.vms().len(), drivers.running.len(), drivers.prepared()), (2, 2, 3));
    let published = slices(&bench).await;
    assert_eq!(published.len(), 2);
    assert!(published.iter().all(|slice| slice["spec"]["devices"].as_array().unwrap().len() == DEVICES));
    let claims = bench.kube.admin.list("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims").await;
    let mut given: Vec<String> = claims
        .unwrap()
        .iter()
        .flat_map(|claim| claim["status"]["allocation"]["devices"]["results"].as_array().unwrap().clone())
        .map(|one| format!("{} {}", one["pool"], one["device"]))
        .collect();
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 3, "each pod has its own device: {given:?}");
    // One node's two devices are enough for two pods, so one pod moves to the other node together with its
    // claim.
    bench.kube.scale("train", 1).await;
    let moved = |bench: &Bench<Real>, drivers: &Drivers| {
        bench.vms().len() == 1 && bench.running() == 2 && drivers.prepared() == 2
    };
    drivers.until("both pods run on one node", &bench, moved).await;
    for name in ["train", "infer"] {
        bench.kube.scale(name, 0).await;
    }
    drivers.until("nothing is left", &bench, |bench, _| bench.is_clean()).await;
    drop(drivers);
    let warnings: Vec<String> = bench.warnings().into_iter().filter(|line| line.contains("evice")).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    bench.stop().await;
    bench.kube.admin.kubectl(&["-n", "default", "delete", "deployment", "train", "infer"], "").await.unwrap();
    for [namespace, kind, name] in MADE {
        bench.kube.admin.kubectl(&["-n", namespace, "delete", kind, name], "").await.unwrap();
    }
    bench.kube.admin.kubectl(&["delete", "resourceslices", "--all"], "").await.unwrap();
}
