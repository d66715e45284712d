//! In a large cluster, objects change all the time. No pod may wait longer for a node because of that.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use world::kubernetes::{Effect, Fault, KubeEvent, samples};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
/// The maximum time between the scheduler's verdict and the clone request: one batch window, and the calls
/// that follow it.
const AT_ONCE: Duration = Duration::from_millis(150);

async fn unschedulable(events: &mut tokio::sync::broadcast::Receiver<KubeEvent>) -> Timestamp {
    loop {
        if let KubeEvent::PodUnschedulable { at, .. } = events.recv().await.unwrap() {
            return at;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_asked_for_at_once_while_other_pods_change_all_the_time() {
    let stage = Stage::running(ONE_POOL);
    let mut other = samples::deployment("other", 1, "10m", "16Mi")["spec"]["template"].clone();
    other["kind"] = json!("Pod");
    other["metadata"]["name"] = json!("other");
    other["spec"]["nodeName"] = json!("cp1");
    stage.kube.apply(&other).unwrap();
    let kube = stage.kube.clone();
    let storm = tokio::spawn(async move {
        for beat in 0_u64.. {
            let patch = json!({ "metadata": { "labels": { "beat": beat.to_string() } } });
            kube.patch_by_hand("Pod", "default", "other", &patch);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    for (trial, pause) in [2_000, 2_370, 2_810].into_iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let known = stage.pve.calls().len();
        let mut events = stage.kube.events();
        stage.deploy(&format!("web-{trial}"), 1, "1500m", "1Gi");
        let since = unschedulable(&mut events).await;
        let asked = |stage: &Stage| {
            let calls = stage.pve.calls();
            calls.iter().skip(known).find(|call| call.path.ends_with("/clone")).map(|call| call.time)
        };
        stage.until("a clone is requested", SOON, |stage| asked(stage).is_some()).await;
        let took = asked(&stage).unwrap().duration_since(since);
        assert!(Duration::try_from(took).unwrap() <= AT_ONCE, "after {took:#}");
    }
    storm.abort();
}

/// The names of the pods that have an event with this reason, once for each event.
fn told(stage: &Stage, reason: &str) -> Vec<String> {
    let events = stage.kube.list("Event");
    let ours = |event: &&std::sync::Arc<Value>| {
        event["reportingComponent"] == "pve-autoscaler" && event["reason"] == reason
    };
    let names = events.iter().filter(ours).filter_map(|event| event["involvedObject"]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Creates a namespace, and in it a Deployment of the same name.
fn deploy_in(stage: &Stage, namespace: &str, replicas: u32, cpu: &str) {
    let object = json!({ "kind": "Namespace", "metadata": { "name": namespace } });
    stage.kube.apply(&object).unwrap();
    let mut deployment = samples::deployment(namespace, replicas, cpu, "1Gi");
    deployment["metadata"]["namespace"] = json!(namespace);
    stage.kube.apply(&deployment).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_is_told_once_in_ten_minutes_whatever_the_memory_of_hosts_does() {
    let mut stage = Stage::new(ONE_POOL);
    let fill = |stage: &Stage, tick: u64| {
        for host in ["pve1", "pve2", "pve3"] {
            stage.pve.set_memory_used(host, (125 << 30) + tick * (4 << 10));
        }
    };
    fill(&stage, 0);
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    for tick in 1..=54 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        fill(&stage, tick);
    }
    assert_eq!(told(&stage, "NotTriggerScaleUp").len(), 1, "{:?}", stage.kube.list("Event"));
}

#[tokio::test(start_paused = true)]
async fn every_pod_that_waits_is_told_however_many_there_are() {
    let stage = Stage::running(ONE_POOL);
    deploy_in(&stage, "a-huge", 60, "100");
    deploy_in(&stage, "web", 1, "1500m");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(told(&stage, "TriggeredScaleUp").len(), 1);
    tokio::time::sleep(SOON).await;
    let mut hopeless = told(&stage, "NotTriggerScaleUp");
    hopeless.sort_unstable();
    hopeless.dedup();
    assert_eq!((hopeless.len(), told(&stage, "NotTriggerScaleUp").len()), (60, 60));
}

#[tokio::test(start_paused = true)]
async fn events_that_one_namespace_refuses_hold_up_no_others() {
    let mut stage = Stage::new(ONE_POOL);
    for (namespace, status, reason) in [("a-huge", 403, "Forbidden"), ("a-limited", 429, "TooManyRequests")] {
        let body = json!({ "kind": "Status", "code": status, "reason": reason });
        stage.kube.inject(Fault {
            method: "POST".to_owned(),
            path: format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"),
            times: usize::MAX,
            effect: Effect::Answer { status, body },
        });
        deploy_in(&stage, namespace, 60, "100");
    }
    stage.start();
    deploy_in(&stage, "b-huge", 1, "100");
    deploy_in(&stage, "web", 1, "1500m");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(told(&stage, "TriggeredScaleUp").len(), 1);
    assert_eq!(told(&stage, "NotTriggerScaleUp").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn machines_that_wait_long_for_their_turn_to_be_cloned_are_not_given_up() {
    let limit = "[scale_up]\nmax_node_provision_time = \"4m\"\n[[pool]]";
    let stage = Stage::running(&format!("{}clone = \"full\"\n", ONE_POOL.replace("[[pool]]", limit)));
    // Two clones run at a time and take two minutes, so the fifth clone begins after four minutes.
    let size = 10 << 30;
    stage.pve.set_storage_rate("shared", Some(size / 120));
    stage.deploy("web", 5, "1500m", "1Gi");
    stage.until("all run", Duration::from_mins(15), |stage| stage.running_pods() == 5).await;
    let status = stage.status();
    assert!(status.decisions.iter().all(|one| !one.what.contains("failed")), "{:#?}", status.decisions);
    let exits = stage.pve.task_exits();
    let clones: Vec<_> = exits.iter().filter(|(upid, _)| upid.contains(":qmclone:")).collect();
    assert!(clones.len() == 5 && clones.iter().all(|(_, exit)| exit.as_deref() == Some("OK")), "{clones:?}");
}
