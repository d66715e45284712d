//! Machines whose VMs were moved to another zone.

use std::time::Duration;

use observability::OthersNames;
use serde_json::json;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
const ZONE: &str = "topology.kubernetes.io/zone";

fn zoned(more: &str) -> String {
    let hosts = "[[host]]\nname = \"pve1\"\nzone = \"a\"\n[[host]]\nname = \"pve2\"\nzone = \"a\"\n\
                 [[host]]\nname = \"pve3\"\nzone = \"b\"\n";
    let pool = format!("labels = {{ \"{ZONE}\" = \"{{{{ zone }}}}\" }}\n{more}\n");
    format!("{}{pool}", ONE_POOL.replace("[[pool]]", &format!("{hosts}[[pool]]")))
}

fn zone(stage: &Stage) -> String {
    let nodes = stage.kube.list("Node");
    let ours = nodes.iter().find(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers");
    ours.and_then(|node| node["metadata"]["labels"][ZONE].as_str()).unwrap_or_default().to_owned()
}

fn astray(stage: &Stage) -> bool {
    let text = stage.board().metrics().encode_beside(&stage.status(), OthersNames::default()).unwrap();
    text.contains("pve_autoscaler_nodes_astray{pool=\"workers\"} 1")
}

/// A stage with one machine, a host in the other zone, and the name of that zone.
async fn one_machine(more: &str) -> (Stage, &'static str, &'static str) {
    let stage = Stage::running(&zoned(more));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let host = stage.pve.vm(9100).unwrap().node;
    let (to, other) = if host == "pve3" { ("pve1", "a") } else { ("pve3", "b") };
    assert_ne!(zone(&stage), other);
    assert!(!astray(&stage) && !stage.status().warnings.contains_key("zones"));
    (stage, to, other)
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_moved_keeps_its_label_and_is_told() {
    let (stage, to, other) = one_machine("").await;
    let born = zone(&stage);
    stage.pve.migrate_by_hand(9100, to);
    let told = |stage: &Stage| {
        let words = stage.status().warnings.get("zones").cloned().unwrap_or_default();
        words.contains(&format!(
            "is on {to}, and its Node is labeled {ZONE}={born}, but the machine is in {other}"
        )) && astray(stage)
    };
    stage.until("it is reported", SOON, told).await;
    stage.throughout("the label stays", SOON, |stage| zone(stage) == born).await;
    // The Node loses the pool's label here. When this label is restored, the zone's label stays as it is.
    let node = stage.ready_nodes("workers").remove(0);
    let bare = json!({ "metadata": { "labels": { "pve-autoscaler/pool": null } } });
    stage.kube.patch_by_hand("Node", "", &node, &bare);
    stage.until("it is bare", SOON, |stage| stage.ready_nodes("workers").is_empty()).await;
    stage.until("it is back", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    stage.throughout("the label stays", SOON, |stage| zone(stage) == born).await;
}

#[tokio::test(start_paused = true)]
async fn the_label_of_a_machine_that_was_moved_follows_if_its_pool_says_so() {
    let (stage, to, other) = one_machine("zone_labels = \"follow\"").await;
    stage.pve.migrate_by_hand(9100, to);
    stage.until("the label follows", SOON, |stage| zone(stage) == other).await;
    stage.until("nothing is reported", SOON, |stage| !astray(stage)).await;
    assert!(!stage.status().warnings.contains_key("zones"), "{:?}", stage.status().warnings);
    assert_eq!(stage.running_pods(), 1);
}
