//! kube-scheduler does not do what the planner predicted: it has a filter that no other component knows, or
//! does nothing for a while.

use std::time::Duration;

use serde_json::json;
use world::kubernetes::Plugin;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
const MINUTE: Duration = Duration::from_mins(1);

fn plugin(app: &str) -> Plugin {
    Plugin {
        label: ("app".to_owned(), app.to_owned()),
        nodes: "workers-".to_owned(),
        reason: "node(s) were refused by a plugin".to_owned(),
    }
}

/// Decisions that begin with this text, the latest first.
fn decided(stage: &Stage, begin: &str) -> Vec<String> {
    let all = stage.status().decisions;
    all.into_iter().map(|one| one.what).filter(|what| what.starts_with(begin)).collect()
}

fn missed(stage: &Stage) -> Vec<String> {
    decided(stage, "! ")
}

fn is_missed(stage: &Stage) -> bool {
    stage.status().pods.iter().any(|pod| pod.verdict == "PredictionMissed")
}

/// The scheduler refuses the pod on every machine that is created for it.
async fn with_a_wrong_simulation() -> Stage {
    let stage = Stage::running(ONE_POOL);
    stage.kube.set_plugin(Some(plugin("web")));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("a machine is made", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    stage.until("the pod's verdict is PredictionMissed", 20 * MINUTE, is_missed).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn of_machines_that_the_scheduler_does_not_use_there_are_two_an_hour_and_fewer_later() {
    let stage = with_a_wrong_simulation().await;
    let said = missed(&stage);
    assert_eq!(said.len(), 1, "{said:?}");
    for part in
        ["that the pod would fit node workers-", "kube-scheduler reports: 0/2 nodes", "refused by a plugin"]
    {
        assert!(said[0].contains(part), "{part} is not in {said:?}");
    }
    let status = stage.status();
    assert!(status.pods[0].why.contains("refused by a plugin"), "{:?}", status.pods);
    assert!(status.pools[0].next.contains("no machine for pods like default/web-"), "{:?}", status.pools);
    let events = stage.kube.list("Event");
    let event = events.iter().find(|event| event["reason"] == "PredictionMissed").unwrap();
    assert_eq!((&event["type"], &event["involvedObject"]["kind"]), (&json!("Warning"), &json!("Pod")));
    assert!(event["message"].as_str().unwrap().contains("refused by a plugin"), "{event}");
    stage.until("the idle node is removed", 20 * MINUTE, |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.throughout("none is made", 15 * MINUTE, |stage| stage.vms(9100..=9109).is_empty()).await;
    tokio::time::sleep(Duration::from_hours(6)).await;
    // The first machine is created at once. The waits before the next ones are 30 minutes, one hour, two
    // hours and four hours.
    let made = decided(&stage, "+ ").len();
    assert!((2..=4).contains(&made), "{made}: {:?}", stage.status().decisions);
    assert_eq!(missed(&stage).len(), made);
}

#[tokio::test(start_paused = true)]
async fn machines_are_made_again_once_the_scheduler_uses_them() {
    let stage = with_a_wrong_simulation().await;
    stage.kube.set_plugin(None);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;

    let stage = with_a_wrong_simulation().await;
    stage.until("the idle node is removed", 20 * MINUTE, |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.kube.set_plugin(None);
    stage.until("the pod runs", 30 * MINUTE, |stage| stage.running_pods() == 1).await;
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_after_a_crash_knows_what_was_missed() {
    let mut stage = with_a_wrong_simulation().await;
    stage.until("the idle node is removed", 20 * MINUTE, |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.kill();
    stage.start();
    stage.until("rounds run", SOON, is_missed).await;
    stage.throughout("none is made", 10 * MINUTE, |stage| stage.vms(9100..=9109).is_empty()).await;
    assert_eq!(missed(&stage).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_scheduler_holds_back_no_machine() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the machine comes", SOON, |stage| !stage.vms(9100..=9109).is_empty()).await;
    stage.kube.set_scheduler_rests(true);
    stage.until("it is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    tokio::time::sleep(10 * MINUTE).await;
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("the others come", SOON, |stage| stage.ready_nodes("workers").len() == 3).await;
    stage.throughout("nothing is missed", 30 * MINUTE, |stage| missed(stage).is_empty()).await;
    stage.kube.set_scheduler_rests(false);
    stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
    assert_eq!(decided(&stage, "+ ").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn room_that_others_take_holds_back_no_machine() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the machine comes", SOON, |stage| !stage.vms(9100..=9109).is_empty()).await;
    stage.kube.set_scheduler_rests(true);
    stage.until("it is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.deploy_with("other", 1, "1500m", "1Gi", &json!({ "nodeName": node }));
    stage.kube.set_scheduler_rests(false);
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    assert!(missed(&stage).is_empty(), "{:?}", missed(&stage));
}

#[tokio::test(start_paused = true)]
async fn no_further_node_goes_while_the_pods_of_one_that_went_do_not_run() {
    // The scheduler has enough time to refuse the pods of one node before another node is removed.
    let one_at_a_time = "[scale_down]\nmax_parallel_drains = 1\ndelay_after_delete = \"2m\"\n[bootstrap]";
    let stage = Stage::running(&ONE_POOL.replace("[bootstrap]", one_at_a_time));
    stage.deploy("big", 4, "1500m", "1Gi");
    stage.until("four nodes run", 2 * SOON, |stage| stage.running_pods() == 4).await;
    stage.deploy("small", 4, "100m", "64Mi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 8).await;
    stage.kube.scale("default", "big", 1);
    tokio::time::sleep(5 * MINUTE).await;
    stage.kube.set_plugin(Some(plugin("small")));
    let no_further = |stage: &Stage| {
        missed(stage)
            .iter()
            .any(|what| what.contains("removing no more nodes of workers for now: pod default/small-"))
    };
    stage.until("no further node is to be removed", 10 * MINUTE, no_further).await;
    let left = stage.ready_nodes("workers");
    assert!(left.len() > 1, "{:?}", stage.status().decisions);
    // A new node may appear when the daemon tries again to create a machine for the pods.
    let all_there = |stage: &Stage| {
        let ready = stage.ready_nodes("workers");
        left.iter().all(|node| ready.contains(node))
    };
    stage.throughout("no other goes", 40 * MINUTE, all_there).await;
    let waits = |stage: &Stage| stage.status().nodes.iter().any(|node| node.verdict == "CoolingDown");
    assert!(waits(&stage), "{:?}", stage.status().nodes);
    stage.kube.set_plugin(None);
    stage.until("the others go", 30 * MINUTE, |stage| stage.ready_nodes("workers").len() == 1).await;
    stage.until("all run", SOON, |stage| stage.running_pods() == 5).await;
}
