//! Nodes that are off while pods and volumes are still on them. The tests show when the daemon releases the
//! pods and volumes, and when it does not.

use std::time::Duration;

use pve_autoscaler::observability::Order;
use serde_json::{Value, json};
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
const LATER: Duration = Duration::from_mins(15);

/// A pool whose silent nodes are removed after two minutes.
fn impatient() -> String {
    let table = "[scale_down]\nunready_time = \"2m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    ONE_POOL.replace("[[pool]]", table).replace("template = 9000", "template = \"k8s-worker-local\"")
}

/// A pool whose nodes are out of service once their host has been off for five minutes.
fn says_when_off() -> String {
    let text = ONE_POOL.replace("template = 9000", "template = \"k8s-worker-local\"");
    format!("{text}\n[health]\nout_of_service_after = \"5m\"\n")
}

/// A node with a pod and an attached volume.
async fn node_with_a_volume(text: &str) -> (Stage, String) {
    let stage = Stage::running(text);
    stage.deploy("db", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let name = stage.ready_nodes("workers").remove(0);
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "csi-1" },
        "spec": { "attacher": "csi.example.com", "nodeName": name, "source": { "persistentVolumeName": "data" } },
        "status": { "attached": true },
    });
    stage.kube.apply(&attachment).unwrap();
    (stage, name)
}

fn is_attached(stage: &Stage) -> bool {
    stage.kube.get("VolumeAttachment", "", "csi-1").is_some()
}

fn is_out(stage: &Stage, name: &str) -> bool {
    let node = stage.kube.get("Node", "", name);
    let has = |taint: &Value| taint["key"] == "node.kubernetes.io/out-of-service";
    node.is_some_and(|node| node["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(has)))
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_goes_and_its_volume_is_let_go_of_once_its_vm_is_off() {
    let (stage, name) = node_with_a_volume(&impatient()).await;
    stage.kube.set_kubelet_silent(&name, true);
    let off = |stage: &Stage| stage.pve.vm(9100).is_none_or(|vm| !vm.running);
    stage.until("the VM is off", LATER, |stage| !is_attached(stage) || off(stage)).await;
    assert!(is_attached(&stage), "the volume is released while the VM runs");
    stage.until("the volume is released", SOON, |stage| !is_attached(stage)).await;
    let gone = |stage: &Stage| stage.kube.get("Node", "", &name).is_none();
    stage.until("the node is gone", SOON, gone).await;
    stage.until("the pod runs elsewhere", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_not_let_go_of_does_not_keep_a_node_that_is_off() {
    let text = format!("{}\n[limits]\ndetach = \"1m\"\n", impatient());
    let (stage, name) = node_with_a_volume(&text).await;
    let held = json!({ "metadata": { "finalizers": ["external-attacher/csi-example-com"] } });
    assert!(stage.kube.patch_by_hand("VolumeAttachment", "", "csi-1", &held));
    stage.kube.set_kubelet_silent(&name, true);
    let gone = |stage: &Stage| stage.kube.get("Node", "", &name).is_none();
    stage.until("the node is gone", LATER, gone).await;
    assert!(is_attached(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_off_for_long_enough_lets_go_of_pods_and_volumes_until_it_is_back() {
    let (stage, name) = node_with_a_volume(&says_when_off()).await;
    let host = stage.pve.vm(9100).unwrap().node;
    stage.pve.power_off_host(&host);
    let early = |stage: &Stage| !is_out(stage, &name) && is_attached(stage);
    stage.throughout("nothing is released", Duration::from_secs(290), early).await;
    stage.until("the node is out of service", Duration::from_mins(1), |stage| is_out(stage, &name)).await;
    stage.until("the volume is released", SOON, |stage| !is_attached(stage)).await;
    let told = stage.status().decisions.iter().any(|one| one.what.contains("is taken out of service"));
    assert!(told, "{:?}", stage.status().decisions);
    stage.pve.power_on_host(&host);
    let back = |stage: &Stage| stage.ready_nodes("workers").contains(&name) && !is_out(stage, &name);
    stage.until("the node serves again", SOON, back).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_off_keeps_pods_and_volumes_where_no_setting_says_otherwise() {
    let text = ONE_POOL.replace("template = 9000", "template = \"k8s-worker-local\"");
    let (stage, name) = node_with_a_volume(&text).await;
    stage.pve.power_off_host(&stage.pve.vm(9100).unwrap().node);
    let kept = |stage: &Stage| !is_out(stage, &name) && is_attached(stage);
    stage.throughout("nothing is released", Duration::from_hours(1), kept).await;
}

#[tokio::test(start_paused = true)]
async fn no_node_is_out_of_service_by_the_word_of_a_minority() {
    let (stage, name) = node_with_a_volume(&says_when_off()).await;
    let host = stage.pve.vm(9100).unwrap().node;
    let kept = |stage: &Stage| !is_out(stage, &name) && is_attached(stage);
    stage.pve.set_quorum(false);
    stage.pve.power_off_host(&host);
    stage.throughout("nothing is released without quorum", Duration::from_mins(20), kept).await;
    stage.pve.set_quorum(true);
    // The time without quorum does not count towards the five minutes.
    stage.throughout("the five minutes begin again", Duration::from_mins(4), kept).await;
    stage.until("the node is out of service", SOON, |stage| is_out(stage, &name)).await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_reports_keeps_its_node_in_service_whatever_its_host_is_said_to_be() {
    let (stage, name) = node_with_a_volume(&says_when_off()).await;
    let body = json!({ "data": [
        { "type": "cluster", "id": "cluster", "name": "lab", "nodes": 3, "version": 3, "quorate": 1 },
        { "type": "node", "id": "node/pve1", "name": "pve1", "nodeid": 1, "online": 0 },
        { "type": "node", "id": "node/pve2", "name": "pve2", "nodeid": 2, "online": 0 },
        { "type": "node", "id": "node/pve3", "name": "pve3", "nodeid": 3, "online": 0 },
    ] });
    stage.pve.inject(Fault {
        method: "GET".to_owned(),
        path: "/cluster/status".to_owned(),
        times: usize::MAX,
        effect: Effect::Answer { status: 200, reason: "OK".to_owned(), body: body.to_string() },
    });
    // Another host is switched off, to make the daemon read which hosts are off.
    let other = ["pve1", "pve2", "pve3"].into_iter().find(|host| *host != stage.pve.vm(9100).unwrap().node);
    stage.pve.power_off_host(other.unwrap());
    let kept = |stage: &Stage| !is_out(stage, &name) && is_attached(stage);
    stage.throughout("nothing is released", Duration::from_mins(20), kept).await;
    stage.kube.set_kubelet_silent(&name, true);
    stage.until("the node is out of service", SOON, |stage| is_out(stage, &name)).await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_taken_out_of_our_sight_keeps_its_node_and_volumes_while_it_is_heard_of() {
    let (stage, name) = node_with_a_volume(ONE_POOL).await;
    stage.pve.move_to_pool_by_hand(9100, None);
    let serves = |stage: &Stage| {
        let open = |node: &Value| node["spec"]["taints"].is_null() && node["spec"]["unschedulable"] != true;
        is_attached(stage)
            && stage.kube.get("Node", "", &name).is_some_and(|node| open(&node))
            && stage.ready_nodes("workers").contains(&name)
    };
    stage.throughout("the Node serves", Duration::from_mins(30), serves).await;
    let told = |stage: &Stage| stage.status().machines.iter().any(|one| one.why.contains("put the VM back"));
    assert!(told(&stage), "{}", stage.scene());
    stage.pve.move_to_pool_by_hand(9100, Some("k8s-workers"));
    let again = |stage: &Stage| stage.status().machines.iter().all(|one| one.phase == "Ready");
    stage.until("the machine is ready again", LATER, again).await;
    assert!(stage.pve.vm(9100).unwrap().running && serves(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_it_up() {
    let (stage, name) = node_with_a_volume(&says_when_off()).await;
    stage.order("pve1", Order::Pause { reason: "the rack is being rewired".to_owned() }).await;
    stage.pve.power_off_host(&stage.pve.vm(9100).unwrap().node);
    let kept = |stage: &Stage| !is_out(stage, &name) && is_attached(stage);
    stage.throughout("nothing is released", Duration::from_mins(20), kept).await;
    stage.order("pve1", Order::Resume).await;
    stage.until("the node is out of service", SOON, |stage| is_out(stage, &name)).await;
}
