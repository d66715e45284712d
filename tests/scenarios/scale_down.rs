//! Nodes that nobody needs go, and nothing is hurt by it.

use std::time::Duration;

use serde_json::json;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);
/// `unneeded_time` of the default configuration.
const UNNEEDED: Duration = Duration::from_mins(10);

/// One pool with one node and one pod.
async fn with_one_node() -> Stage {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_goes_after_the_unneeded_time_and_not_before() {
    let stage = with_one_node().await;
    stage.kube.scale("default", "web", 0);
    stage
        .throughout("the node stays", Duration::from_secs(9 * 60 + 55), |stage| {
            stage.ready_nodes("workers").len() == 1
        })
        .await;
    stage.until("the VM is gone", Duration::from_mins(1), |stage| stage.vms(9100..=9109).is_empty()).await;
    assert!(stage.kube.list("Node").iter().all(|node| node["metadata"]["name"] == "cp1"));
    stage.until("nothing is left", SOON, |stage| stage.leftovers().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_needed_again_stays() {
    let stage = with_one_node().await;
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_secs(9 * 60 + 30)).await;
    stage.kube.scale("default", "web", 1);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.throughout("the node stays", UNNEEDED, |stage| stage.vms(9100..=9109).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_underused_node_move_to_others_one_budget_at_a_time() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("big", 2, "1500m", "1Gi");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    stage.deploy("small", 2, "200m", "256Mi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    stage.kube.scale("default", "big", 1);
    stage.until("one node is left", UNNEEDED + SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
    stage.until("all run again", SOON, |stage| stage.running_pods() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_refuses_holds_the_drain_until_it_allows() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("big", 2, "1500m", "1Gi");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    stage.deploy("small", 2, "200m", "256Mi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    stage
        .kube
        .apply(&json!({
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "small", "namespace": "default" },
            "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "small" } } },
        }))
        .unwrap();
    stage.kube.scale("default", "big", 1);
    stage.throughout("both nodes stay", UNNEEDED * 2, |stage| stage.vms(9100..=9109).len() == 2).await;
    assert_eq!(stage.running_pods(), 3);
    stage.kube.patch_by_hand(
        "PodDisruptionBudget",
        "default",
        "small",
        &json!({ "spec": { "minAvailable": 1 } }),
    );
    stage.until("one node is left", UNNEEDED + SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
    stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_closes_during_the_drain_is_waited_for() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("big", 2, "1500m", "1Gi");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    stage.deploy("small", 2, "200m", "256Mi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    let budget = |least: u32| {
        json!({
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "small", "namespace": "default" },
            "spec": { "minAvailable": least, "selector": { "matchLabels": { "app": "small" } } },
        })
    };
    stage.kube.apply(&budget(1)).unwrap();
    stage.kube.scale("default", "big", 1);
    stage
        .until("a node is drained", UNNEEDED + SOON, |stage| {
            stage.kube.list("Node").iter().any(|node| node["spec"]["unschedulable"] == true)
        })
        .await;
    stage.kube.set_pods_never_ready(true);
    stage
        .throughout("at least one small pod is ready", Duration::from_mins(5), |stage| {
            stage
                .kube
                .list("Pod")
                .iter()
                .any(|pod| pod["metadata"]["labels"]["app"] == "small" && crate::stage::is_ready(pod))
        })
        .await;
    stage.kube.set_pods_never_ready(false);
}

#[tokio::test(start_paused = true)]
async fn the_minimum_is_kept() {
    let text = ONE_POOL.replace("max = 5", "max = 5\nmin = 1");
    let stage = Stage::running(&text);
    stage.until("the first node is there", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    stage.throughout("it stays", UNNEEDED * 2, |stage| stage.vms(9100..=9109).len() == 1).await;
}
