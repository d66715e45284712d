//! Nodes that have lost their labels or taints. Their machines still count towards the pool's limits, and the
//! daemon restores what is missing.

use std::time::Duration;

use serde_json::json;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);

/// A pool of one machine, whose Node has labels.
async fn one_node() -> (Stage, String) {
    let labels = "labels = { size = \"small\", \"node-role.kubernetes.io/worker\" = \"\" }";
    let text = ONE_POOL.replace("max = 5", &format!("min = 1\nmax = 1\n{labels}"));
    let mut stage = Stage::of(&text, ClusterSpec::demo(), KubeSpec::demo());
    stage.start();
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    (stage, node)
}

fn take_labels_off(stage: &Stage, node: &str) {
    let bare = json!({ "metadata": { "labels": { "pve-autoscaler/pool": null, "size": null } } });
    stage.kube.patch_by_hand("Node", "", node, &bare);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_its_pools_label_gets_all_labels_back() {
    let (stage, node) = one_node().await;
    let role = |stage: &Stage| {
        stage.kube.get("Node", "", &node).unwrap()["metadata"]["labels"]["node-role.kubernetes.io/worker"]
            == ""
    };
    assert!(role(&stage), "the daemon sets the role label, which no kubelet may set");
    take_labels_off(&stage, &node);
    assert!(stage.ready_nodes("workers").is_empty());
    let labelled = |stage: &Stage| {
        let node = stage.kube.get("Node", "", &node).unwrap();
        node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers"
            && node["metadata"]["labels"]["size"] == "small"
    };
    stage.until("the labels are back", SOON, labelled).await;
    assert_eq!(stage.vms(9100..=9109), [9100], "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_node_without_its_pools_label_counts_for_its_pools_maximum() {
    let (stage, node) = one_node().await;
    // At the moment when the Node loses its labels, pods arrive that need one more machine than the pool may
    // have.
    take_labels_off(&stage, &node);
    stage.deploy("web", 4, "1500m", "1Gi");
    stage.throughout("no second machine is made", SOON, |stage| stage.vms(9100..=9109) == [9100]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_registers_again_has_the_time_of_any_other_to_be_ready() {
    let text = ONE_POOL.replace("template = 9000", "template = \"k8s-worker-local\"");
    let stage = Stage::running(&text);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let (name, host) = (stage.ready_nodes("workers").remove(0), stage.pve.vm(9100).unwrap().node);
    stage.kube.set_nodes_never_ready(true);
    stage.pve.power_off_host(&host);
    stage.kube.remove("Node", "", &name);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.pve.power_on_host(&host);
    // All records are read every five minutes; `limits.ready` is five minutes, and `scale_down.unready_time`
    // is twenty minutes.
    let runs = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running);
    stage.until("the VM runs again", SOON, runs).await;
    stage.throughout("the VM is not stopped", Duration::from_mins(14), runs).await;
    stage.kube.set_nodes_never_ready(false);
    let open = |stage: &Stage| {
        let node = stage.kube.get("Node", "", &name);
        node.is_some_and(|node| node["spec"]["taints"].is_null())
            && stage.ready_nodes("workers").contains(&name)
    };
    stage.until("the Node is ready and has no taints", SOON, open).await;
}
