//! How a drain proceeds: in groups, within a limit, and only as long as the pods have somewhere to go.

use std::time::Duration;

use jiff::SignedDuration;
use pve_autoscaler::observability::Order;
use serde_json::{Value, json};
use world::kubernetes::spec::{KubeSpec, KubeTimings};
use world::kubernetes::{Effect, Fault, samples};
use world::proxmox;
use world::proxmox::spec::ClusterSpec;

use crate::stage::{ONE_POOL, Stage, is_ready, name};

const SOON: Duration = Duration::from_mins(3);
const LATER: Duration = Duration::from_mins(10);

/// Unneeded nodes are removed after two minutes; `more` is added to the pool.
fn quick(more: &str) -> String {
    let table = "[scale_down]\nunneeded_time = \"2m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    format!("{}{more}\n", ONE_POOL.replace("[[pool]]", table))
}

/// Two nodes, one of them unneeded.
async fn two_nodes_too_many_by_one(text: &str) -> Stage {
    let stage = Stage::running(text);
    too_many_by_one(&stage).await;
    stage
}

async fn too_many_by_one(stage: &Stage) {
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    stage.deploy("small", 2, "100m", "128Mi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    stage.kube.scale("default", "web", 1);
}

/// Refuses evictions, like a disruption budget that never allows any.
fn refuse_evictions(stage: &Stage) {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
        "reason": "TooManyRequests", "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    });
    stage.kube.inject(Fault {
        method: "POST".to_owned(),
        path: "/api/v1/namespaces/*/pods/*/eviction".to_owned(),
        times: usize::MAX,
        effect: Effect::Answer { status: 429, body },
    });
}

fn closed(stage: &Stage) -> bool {
    let nodes = stage.kube.list("Node");
    let ours = nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers");
    ours.into_iter().any(|node| node["spec"]["unschedulable"] == true)
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_pods_have_lost_their_place_is_given_up() {
    let stage = two_nodes_too_many_by_one(&quick("")).await;
    refuse_evictions(&stage);
    stage.until("a node is closed", LATER, closed).await;
    stage.throughout("the drain waits", Duration::from_secs(20), closed).await;
    // The new pod takes the room left on the other node, so the pods of the drained node no longer have a
    // place.
    stage.deploy("burst", 1, "400m", "1Gi");
    let took = stage.until("the node serves again", SOON, |stage| !closed(stage)).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    stage.throughout("no new machine is made", SOON, |stage| stage.vms(9100..=9109).len() == 2).await;
}

/// Two nodes, one of them unneeded, each with a pod that tolerates all taints.
async fn with_stubborn_pods(spec: &Value) -> Stage {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    let mut stubborn = json!({
        "tolerations": [{ "operator": "Exists" }], "nodeSelector": { "pve-autoscaler/pool": "workers" },
    });
    stubborn.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    stage.deploy_with("stubborn", 2, "100m", "128Mi", &stubborn);
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    stage.kube.scale("default", "web", 1);
    stage
}

fn evictions(stage: &Stage) -> usize {
    stage.kube.calls().into_iter().filter(|call| call.path.ends_with("/eviction")).count()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_as_soon_as_it_is_evicted_keeps_no_node() {
    for budget in [false, true] {
        let stage = with_stubborn_pods(&json!({})).await;
        if budget {
            stage.kube.apply(&samples::budget("stubborn", 1)).unwrap();
        }
        stage.until("a node is closed", LATER, closed).await;
        stage.until("the node is gone", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
        assert_eq!(evictions(&stage), 1, "budget: {budget}");
        stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_to_a_closed_node_from_elsewhere_is_not_evicted_again_and_again() {
    let stage = with_stubborn_pods(&json!({ "terminationGracePeriodSeconds": 60 })).await;
    stage.until("a node is closed", LATER, closed).await;
    let nodes = stage.kube.list("Node");
    let node = nodes.iter().find(|node| node["spec"]["unschedulable"] == true).unwrap();
    let spec = json!({ "nodeName": node["metadata"]["name"], "tolerations": [{ "operator": "Exists" }] });
    stage.deploy_with("debug", 1, "50m", "64Mi", &spec);
    let took = stage.until("the node serves again", LATER, |stage| !closed(stage)).await;
    assert!(took < Duration::from_mins(2), "{took:?}");
    assert!(evictions(&stage) <= 2, "{} evictions", evictions(&stage));
    let is_told = |stage: &Stage| {
        stage.status().decisions.iter().any(|one| one.what.contains("tolerates all its taints"))
    };
    stage.until("the reason is reported", SOON, is_told).await;
}

/// The API server sets the time by which a pod has to end, and the clock of the daemon's host may differ by
/// hours.
#[tokio::test(start_paused = true)]
async fn a_pod_has_its_time_to_end_however_wrong_the_clock_is() {
    for minutes in [-10, 0, 10, 120] {
        let kube = KubeSpec::demo();
        let timings = KubeTimings { pod_stop: Duration::from_secs(25), ..kube.timings };
        let mut stage = Stage::of(&quick(""), ClusterSpec::demo(), KubeSpec { timings, ..kube });
        stage.ahead = SignedDuration::from_mins(minutes);
        stage.start();
        too_many_by_one(&stage).await;
        stage.until("a node is closed", LATER, closed).await;
        let stops = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
        let took = stage.until("the VM is shut down", SOON, stops).await;
        assert!((24..40).contains(&took.as_secs()), "{minutes} min wrong: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pools_own_limit_ends_a_drain() {
    for (line, limit) in [("drain = \"1m\"", 60), ("drain = \"4m\"", 240)] {
        let stage = two_nodes_too_many_by_one(&quick(line)).await;
        refuse_evictions(&stage);
        stage.until("a node is closed", LATER, closed).await;
        let took = stage.until("the node serves again", LATER, |stage| !closed(stage)).await;
        assert!(took.as_secs().abs_diff(limit) < 5, "{line}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_critical_leaves_once_the_other_pods_are_gone() {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 2, "1400m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    let spec = |class: &str| json!({ "priorityClassName": class });
    // The scheduler places the two pods of each Deployment on different nodes. So one of them is on the node
    // that is removed.
    for (name, class) in [("dns", "system-cluster-critical"), ("shop", "")] {
        stage.deploy_with(name, 2, "50m", "64Mi", &spec(class));
    }
    stage.until("all run", SOON, |stage| stage.running_pods() == 6).await;
    stage.kube.scale("default", "web", 1);
    stage.until("one node is left", LATER, |stage| stage.vms(9100..=9109).len() == 1).await;
    let asked: Vec<(jiff::Timestamp, bool)> = stage
        .kube
        .calls()
        .iter()
        .filter(|call| call.path.ends_with("/eviction") && call.status < 300)
        .map(|call| (call.time, call.path.contains("/pods/dns-")))
        .collect();
    let last_ordinary = asked.iter().filter(|(_, critical)| !critical).map(|(time, _)| *time).max();
    let first_critical = asked.iter().filter(|(_, critical)| *critical).map(|(time, _)| *time).min();
    let (Some(last), Some(first)) = (last_ordinary, first_critical) else { panic!("{asked:?}") };
    // If all of these pods were in one group, they would be evicted within milliseconds of each other.
    assert!(first.duration_since(last).as_millis() >= 300, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_drain_takes_nothing_from_the_time_for_volumes() {
    let text = format!("{}[limits]\ndetach = \"1m\"\n", quick(""));
    let stage = two_nodes_too_many_by_one(&text).await;
    refuse_evictions(&stage);
    stage.until("a node is closed", LATER, closed).await;
    tokio::time::sleep(Duration::from_mins(4)).await;
    stage.kube.forget_faults();
    stage.until("the node is gone", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
}

/// Creates a VolumeAttachment for each Node, as a CSI driver's attacher reports an attached volume.
fn attach_volumes(stage: &Stage) {
    for node in stage.kube.list("Node") {
        let name = node["metadata"]["name"].as_str().unwrap();
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": format!("csi-{name}") },
            "spec": { "attacher": "csi.example.com", "nodeName": name, "source": { "persistentVolumeName": "data" } },
            "status": { "attached": true },
        });
        stage.kube.apply(&attachment).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_runs_on_until_its_volumes_are_detached() {
    let stage = two_nodes_too_many_by_one(&quick("")).await;
    attach_volumes(&stage);
    stage.until("a node is closed", LATER, closed).await;
    stage
        .throughout("no VM is removed", SOON, |stage| closed(stage) && stage.vms(9100..=9109).len() == 2)
        .await;
    detach_volumes(&stage);
    stage.until("the VM is gone", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
}

fn detach_volumes(stage: &Stage) {
    for attachment in stage.kube.list("VolumeAttachment") {
        stage.kube.remove("VolumeAttachment", "", attachment["metadata"]["name"].as_str().unwrap());
    }
}

/// A shutdown may have to be requested again, for example if the host was unreachable at the first request.
/// Volumes may have been attached in the meantime.
#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_asked_for_again_waits_for_volumes_that_came_meanwhile() {
    let stage = two_nodes_too_many_by_one(&quick("")).await;
    stage.pve.inject(proxmox::Fault {
        method: "POST".to_owned(),
        path: "/nodes/*/qemu/*/status/shutdown".to_owned(),
        times: usize::MAX,
        effect: proxmox::Effect::Answer {
            status: 595,
            reason: "No route to host".to_owned(),
            body: String::new(),
        },
    });
    let stops = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
    stage.until("the VM is being shut down", LATER, stops).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    attach_volumes(&stage);
    stage.pve.forget_faults();
    let minute = Duration::from_mins(1);
    let run =
        |stage: &Stage| stage.vms(9100..=9109).into_iter().all(|vmid| stage.pve.vm(vmid).unwrap().running);
    stage.throughout("both VMs run", minute, |stage| stage.vms(9100..=9109).len() == 2 && run(stage)).await;
    detach_volumes(&stage);
    stage.until("the VM is gone", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_volumes_are_waited_for_keeps_its_node() {
    let stage = two_nodes_too_many_by_one(&quick("")).await;
    attach_volumes(&stage);
    stage.until("a node is closed", LATER, closed).await;
    let empty = |stage: &Stage| stage.status().machines.iter().any(|one| one.why.contains("detached"));
    stage.until("the daemon waits for volumes", SOON, empty).await;
    let nodes = stage.kube.list("Node");
    let node = nodes.iter().find(|node| node["spec"]["unschedulable"] == true).unwrap();
    // The pod tolerates all taints, and its spec names the node.
    let spec = json!({ "nodeName": node["metadata"]["name"], "tolerations": [{ "operator": "Exists" }] });
    stage.deploy_with("debug", 1, "50m", "64Mi", &spec);
    stage.until("the pod runs on the node", SOON, |stage| stage.running_pods() == 4).await;
    detach_volumes(&stage);
    stage.until("the node serves again", SOON, |stage| !closed(stage)).await;
    assert_eq!((stage.vms(9100..=9109).len(), stage.running_pods()), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_stays_attached_ends_the_removal_and_the_node_serves_again() {
    let stage = two_nodes_too_many_by_one(&format!("{}[limits]\ndetach = \"1m\"\n", quick(""))).await;
    attach_volumes(&stage);
    stage.until("a node is closed", LATER, closed).await;
    stage.until("the node serves again", SOON, |stage| !closed(stage)).await;
    assert_eq!(stage.vms(9100..=9109).len(), 2);
}

/// Creates a DaemonSet, and a pod with its own volume on each node of the pool.
fn claim_volumes_for_daemons(stage: &Stage) {
    let template = json!({
        "metadata": { "labels": { "app": "logs" } },
        "spec": { "nodeSelector": { "by": "hand" }, "containers": [{ "name": "c", "image": "i" }] },
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "namespace": "default", "name": "logs" },
        "spec": { "selector": { "matchLabels": { "app": "logs" } }, "template": template },
    });
    stage.kube.apply(&set).unwrap();
    let nodes = stage.kube.list("Node");
    let ours = nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers");
    for (at, node) in ours.enumerate() {
        let (name, volume) = (node["metadata"]["name"].as_str().unwrap(), format!("logs-{at}"));
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "namespace": "default", "name": volume },
            "spec": { "volumeName": volume, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            "status": { "phase": "Bound" },
        });
        let owner = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "logs", "controller": true });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "default", "name": volume, "ownerReferences": [owner] },
            "spec": {
                "nodeName": name, "tolerations": [{ "operator": "Exists" }], "containers": [{ "name": "c", "image": "i" }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": volume } }],
            },
        });
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": format!("csi-{volume}") },
            "spec": { "attacher": "csi.example.com", "nodeName": name, "source": { "persistentVolumeName": volume } },
            "status": { "attached": true },
        });
        for object in [claim, pod, attachment] {
            stage.kube.apply(&object).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_pods_volume_goes_with_the_machine() {
    let stage = two_nodes_too_many_by_one(&quick("")).await;
    claim_volumes_for_daemons(&stage);
    stage.until("a node is closed", LATER, closed).await;
    stage.until("the VM is gone", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
}

/// Two pods that return to the same node as soon as they are evicted, and another node with room for both.
async fn with_two_that_come_back() -> (Stage, String) {
    let stage = Stage::running(ONE_POOL);
    let spec = json!({ "tolerations": [{ "operator": "Exists" }], "nodeSelector": { "pve-autoscaler/pool": "workers" } });
    stage.deploy_with("stubborn", 2, "100m", "128Mi", &spec);
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    let node = stage.ready_nodes("workers").remove(0);
    let elsewhere = json!({ "key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node] });
    let terms = json!([{ "matchExpressions": [elsewhere] }]);
    let affinity = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
    } });
    stage.deploy_with("web", 1, "1500m", "1Gi", &json!({ "affinity": affinity }));
    stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
    (stage, node)
}

/// Whether a pod of this Deployment runs.
fn some_run(stage: &Stage, of: &str) -> bool {
    let pods = stage.kube.list("Pod");
    let mut ours = pods.iter().filter(|pod| name(pod).starts_with(of));
    ours.any(|pod| pod["status"]["phase"] == "Running" && is_ready(pod))
}

fn retire(node: &str) -> Order {
    Order::Retire { node: node.to_owned(), reason: "its host gets new memory".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn pods_that_go_with_their_machine_count_together_for_their_budget() {
    let (stage, node) = with_two_that_come_back().await;
    stage.kube.apply(&samples::budget("stubborn", 1)).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.order("pve1", retire(&node)).await;
    stage.until("the node is being drained", SOON, closed).await;
    stage.throughout("a pod always runs", Duration::from_mins(20), |stage| some_run(stage, "stubborn")).await;
    assert!(!closed(&stage), "the node serves again: {}", stage.scene());
}

/// A disruption budget covers the pods on both machines' nodes together.
#[tokio::test(start_paused = true)]
async fn pods_that_go_with_two_machines_count_together_for_their_budget() {
    let stage = Stage::running(ONE_POOL);
    let apart = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "stubborn" } } },
    ] } });
    let spec = json!({
        "affinity": apart, "tolerations": [{ "operator": "Exists" }],
        "nodeSelector": { "pve-autoscaler/pool": "workers" },
    });
    stage.deploy_with("stubborn", 2, "100m", "128Mi", &spec);
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    let nodes = stage.ready_nodes("workers");
    let elsewhere = json!({ "key": "kubernetes.io/hostname", "operator": "NotIn", "values": nodes });
    let terms = json!([{ "matchExpressions": [elsewhere] }]);
    let affinity = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
    } });
    stage.deploy_with("web", 2, "1500m", "1Gi", &json!({ "affinity": affinity }));
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    stage.kube.apply(&samples::budget("stubborn", 1)).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    for node in &nodes {
        stage.order("pve1", retire(node)).await;
    }
    stage.throughout("a pod always runs", Duration::from_mins(10), |stage| some_run(stage, "stubborn")).await;
    assert!(stage.ready_nodes("workers").iter().all(|node| !nodes.contains(node)), "{}", stage.scene());
}

/// A node that is being drained but whose pods cannot be evicted. Returns the node's name.
async fn drained_in_vain() -> (Stage, String) {
    let stage = two_nodes_too_many_by_one(&quick("")).await;
    refuse_evictions(&stage);
    stage.until("a node is closed", LATER, closed).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let nodes = stage.kube.list("Node");
    let node = nodes.iter().find(|node| node["spec"]["unschedulable"] == true).unwrap();
    (stage, name(node))
}

fn serves(stage: &Stage, node: &str) -> bool {
    stage.status().machines.iter().any(|one| one.name == node && one.phase == "Ready")
}

/// The number of evictions requested for pods of a Deployment.
fn evictions_of(stage: &Stage, name: &str) -> usize {
    let of_it = format!("/pods/{name}-");
    let calls = stage.kube.calls();
    calls.iter().filter(|call| call.path.ends_with("/eviction") && call.path.contains(&of_it)).count()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_opened_while_it_is_drained_keeps_what_comes_to_it() {
    let (stage, node) = drained_in_vain().await;
    let open = json!({ "spec": { "unschedulable": null, "taints": null } });
    assert!(stage.kube.patch_by_hand("Node", "", &node, &open));
    stage.deploy("late", 2, "50m", "64Mi");
    stage.until("the node serves", Duration::from_secs(10), |stage| serves(stage, &node)).await;
    stage.until("all run", SOON, |stage| stage.running_pods() == 5).await;
    assert_eq!(evictions_of(&stage, "late"), 0);
    let why = "its Node was uncordoned in the meantime";
    assert!(stage.status().decisions.iter().any(|one| one.what.contains(why)), "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_registers_again_while_it_is_drained_keeps_what_comes_to_it() {
    let (stage, node) = drained_in_vain().await;
    stage.kube.remove("Node", "", &node);
    stage.kube.restart_kubelet(&node);
    stage.deploy("late", 2, "50m", "64Mi");
    stage.until("the node serves", Duration::from_secs(20), |stage| serves(stage, &node)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(evictions_of(&stage, "late"), 0);
    assert_eq!((stage.running_pods(), stage.vms(9100..=9109).len()), (5, 2), "{}", stage.scene());
}
