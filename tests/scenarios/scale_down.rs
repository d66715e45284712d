//! Unneeded nodes are removed, and no workload suffers from it.

use std::time::Duration;

use serde_json::json;
use world::kubernetes::{Effect, Fault, samples};

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
async fn a_vm_that_an_administrator_starts_while_it_is_shut_down_is_stopped_before_its_node_goes() {
    let stage = with_one_node().await;
    let vmid = stage.vms(9100..=9109)[0];
    let runs = |stage: &Stage| stage.pve.vm(vmid).is_some_and(|vm| vm.running);
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_secs(9 * 60 + 55)).await;
    while runs(&stage) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.pve.start_by_hand(vmid);
    assert!(runs(&stage));
    let node = |stage: &Stage| stage.kube.list("Node").len() > 1;
    while node(&stage) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!runs(&stage), "the Node was deleted while the VM was running");
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
    stage.kube.apply(&samples::budget("small", 2)).unwrap();
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
    // No budget forbade the evictions when the daemon decided on the drain. Now every eviction is refused for
    // a while.
    let refusal = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "TooManyRequests",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.", "code": 429,
        "details": { "causes": [{ "reason": "DisruptionBudget", "message": "needs 2 healthy pods and has 2 currently" }] },
    });
    stage.kube.inject(Fault {
        method: "POST".to_owned(),
        path: "/api/v1/namespaces/default/pods/*/eviction".to_owned(),
        times: 10,
        effect: Effect::Answer { status: 429, body: refusal },
    });
    stage.kube.scale("default", "big", 1);
    let refused = |stage: &Stage| {
        stage
            .kube
            .calls()
            .iter()
            .filter(|call| call.path.ends_with("/eviction") && call.status == 429)
            .count()
    };
    stage.until("evictions are refused", UNNEEDED + SOON, |stage| refused(stage) >= 3).await;
    assert_eq!((stage.running_pods(), stage.vms(9100..=9109).len()), (3, 2));
    stage.until("one node is left", Duration::from_mins(15), |stage| stage.vms(9100..=9109).len() == 1).await;
    stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
    let evictions = stage.kube.calls().iter().filter(|call| call.path.ends_with("/eviction")).count();
    assert!(evictions < 20, "{evictions}");
}

#[tokio::test(start_paused = true)]
async fn the_minimum_is_kept() {
    let text = ONE_POOL.replace("max = 5", "max = 5\nmin = 1");
    let stage = Stage::running(&text);
    stage.until("the first node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    stage.throughout("it stays", UNNEEDED * 2, |stage| stage.vms(9100..=9109).len() == 1).await;
}
