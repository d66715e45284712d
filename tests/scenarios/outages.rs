//! Proxmox VE or Kubernetes is unreachable for minutes: nothing is lost, nothing is done twice, and work
//! continues by itself.

use std::time::Duration;

use model::Vmid;
use serde_json::json;
use world::proxmox::{Effect, Fault, TaskFault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

#[tokio::test(start_paused = true)]
async fn proxmox_is_away_for_minutes_before_pods_wait() {
    let stage = Stage::running(ONE_POOL);
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    stage.pve.set_away(true);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.deploy("web", 2, "1500m", "1Gi");
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert!(stage.status().problems.contains_key("proxmox"), "{:?}", stage.status().problems);
    stage.pve.set_away(false);
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(stage.vms(9100..=9109).len(), 2);
    stage.until("nothing is wrong", SOON, |stage| stage.status().problems.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_has_not_seen_proxmox_is_not_ready() {
    let mut stage = Stage::new(ONE_POOL);
    stage.pve.set_away(true);
    stage.start();
    stage.until("rounds run", SOON, |stage| stage.status().rounds >= 3).await;
    assert!(!stage.status().ready, "{}", stage.scene());
    stage.pve.set_away(false);
    stage.until("the daemon is ready", SOON, |stage| stage.status().ready).await;
}

#[tokio::test(start_paused = true)]
async fn proxmox_goes_away_while_a_machine_is_made() {
    away_while_a_machine_is_made(|stage, away| stage.pve.set_away(away)).await;
}

#[tokio::test(start_paused = true)]
async fn kubernetes_goes_away_while_a_machine_is_made() {
    away_while_a_machine_is_made(|stage, away| stage.kube.set_away(away)).await;
}

async fn away_while_a_machine_is_made(set_away: fn(&Stage, bool)) {
    for after in [1, 3, 5, 10, 14, 20, 25] {
        let stage = Stage::running(ONE_POOL);
        stage.deploy("web", 1, "1500m", "1Gi");
        tokio::time::sleep(Duration::from_secs(after)).await;
        set_away(&stage, true);
        tokio::time::sleep(Duration::from_mins(4)).await;
        set_away(&stage, false);
        let what = format!("the pod runs (outage after {after} s)");
        stage.until(&what, Duration::from_mins(10), |stage| stage.running_pods() == 1).await;
        stage
            .until("nothing is left over", SOON, |stage| {
                stage.vms(9100..=9109).len() == 1 && stage.leftovers().len() == 1
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn kubernetes_is_away_when_the_daemon_starts() {
    let mut stage = Stage::new(ONE_POOL);
    stage.kube.set_away(true);
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert!(stage.status().problems.contains_key("kubernetes"), "{:?}", stage.status().problems);
    stage.kube.set_away(false);
    stage.until("the pod runs", Duration::from_mins(3), |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn every_clone_answer_is_lost_and_still_each_vm_is_made_once() {
    let stage = Stage::running(ONE_POOL);
    let lost =
        |effect| Fault { method: "POST".into(), path: "/nodes/*/qemu/*/clone".into(), times: 1, effect };
    stage.pve.inject(lost(Effect::WorkThenLose));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", Duration::from_mins(4), |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_history_of_kubernetes_is_lost() {
    let stage = Stage::running(ONE_POOL);
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    stage.kube.expire_resource_versions();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_join_that_cannot_be_looked_at_for_a_while_goes_on() {
    let answer =
        |status, reason: &str| Effect::Answer { status, reason: reason.to_owned(), body: String::new() };
    let effects = [
        answer(503, "Service Unavailable"),
        answer(500, "unable to read tail (got 0 bytes)"),
        answer(401, "authentication failure"),
        Effect::Lose,
        Effect::WorkThenLose,
        Effect::WorkThenTimeOut,
    ];
    for what in ["exec", "exec-status"] {
        for effect in effects.clone() {
            let stage = Stage::running(ONE_POOL);
            let (path, words) = (format!("/nodes/*/qemu/*/agent/{what}"), format!("{what} meets {effect:?}"));
            let method = if what == "exec" { "POST" } else { "GET" }.to_owned();
            stage.pve.inject(Fault { method, path, times: 2, effect });
            stage.deploy("web", 1, "1500m", "1Gi");
            stage.until(&words, SOON, |stage| stage.running_pods() == 1).await;
            let clones = stage.pve.calls().iter().filter(|call| call.path.ends_with("/clone")).count();
            assert_eq!(clones, 1, "{words}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_begins_after_its_machine_was_given_up_is_removed_with_it() {
    let quick = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let stage = Stage::running(&ONE_POOL.replace("[[pool]]", quick));
    let fault = |method: &str, path: &str, effect| {
        let (method, path, times) = (method.to_owned(), path.to_owned(), 1);
        stage.pve.inject(Fault { method, path, times, effect });
    };
    fault("POST", "/nodes/*/qemu/9000/clone", Effect::WorkThenLose);
    let (reason, body) = ("unable to read tail (got 0 bytes)".to_owned(), "{\"data\":null}".to_owned());
    fault("GET", "/nodes/*/qemu/9100/config", Effect::Answer { status: 500, reason, body });
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", Duration::from_mins(30), |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    let gone = |stage: &Stage| stage.vms(9100..=9109).is_empty() && stage.leftovers().is_empty();
    stage.until("nothing is left over", Duration::from_mins(30), gone).await;
}

/// One pool, with a template on each host.
fn with_local_templates() -> String {
    ONE_POOL.replace("template = 9000", "template = \"k8s-worker-local\"")
}

/// Applies this effect to reads of this template.
fn unreadable(stage: &Stage, vmid: Vmid, effect: Effect) {
    let path = format!("/nodes/*/qemu/{vmid}/config");
    stage.pve.inject(Fault { method: "GET".into(), path, times: 1000, effect });
}

#[tokio::test(start_paused = true)]
async fn a_template_that_cannot_be_read_keeps_no_other_from_being_used() {
    let (reason, body) = ("unable to read tail (got 0 bytes)".to_owned(), "{\"data\":null}".to_owned());
    for effect in [Effect::Delay(Duration::from_hours(1)), Effect::Answer { status: 500, reason, body }] {
        let mut stage = Stage::new(&with_local_templates());
        unreadable(&stage, Vmid(9001), effect.clone());
        stage.start();
        stage.deploy("web", 1, "1500m", "1Gi");
        let what = format!("the pod runs despite {effect:?}");
        stage.until(&what, SOON, |stage| stage.running_pods() == 1).await;
        assert_ne!(stage.pve.vm(9100).unwrap().node, "pve1", "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_templates_outlasts_that_they_cannot_be_read() {
    let stage = Stage::running(&with_local_templates());
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    for vmid in 9001..=9003 {
        unreadable(&stage, Vmid(vmid), Effect::Delay(Duration::from_hours(1)));
    }
    // During these twelve minutes, the daemon reads the templates again.
    tokio::time::sleep(Duration::from_mins(12)).await;
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

/// A node that has been unneeded for two of the ten minutes after which it is removed. Also returns the
/// node's name.
async fn with_an_idle_node() -> (Stage, String) {
    let none = "[scale_down]\ndelay_after_add = \"0s\"\ndelay_after_failure = \"0s\"\n[[pool]]";
    let (_, pool) = ONE_POOL.split_once("[[pool]]").unwrap();
    let further = pool
        .replace("workers", "further")
        .replace("91", "92")
        .replace("10.10.10.11-10.10.10.20", "10.10.10.31-10.10.10.40");
    let stage = Stage::running(&format!("{}\n[[pool]]{further}", ONE_POOL.replace("[[pool]]", none)));
    deploy_on(&stage, "workers", "web");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_mins(2)).await;
    let node = stage.ready_nodes("workers").remove(0);
    (stage, node)
}

/// Deploys a pod that needs a machine of this pool.
fn deploy_on(stage: &Stage, pool: &str, name: &str) {
    let there = json!({ "nodeSelector": { "pve-autoscaler/pool": pool } });
    stage.deploy_with(name, 1, "1500m", "1Gi", &there);
}

/// Makes the API unreachable for this long, and asserts that the time left until the idle node's removal does
/// not change.
async fn its_time_stood_still(stage: &Stage, node: &str, away: Duration, when_back: impl FnOnce()) {
    stage.kube.set_away(true);
    tokio::time::sleep(away).await;
    when_back();
    stage.kube.set_away(false);
    let is_there = |stage: &Stage| stage.ready_nodes("workers") == [node];
    stage.throughout("the idle node stays", Duration::from_mins(7), is_there).await;
    stage.until("the idle node goes", Duration::from_mins(5), |stage| !is_there(stage)).await;
}

#[tokio::test(start_paused = true)]
async fn time_without_the_api_is_not_counted_where_a_machine_fails_before_anything_is_decided() {
    let (stage, node) = with_an_idle_node().await;
    deploy_on(&stage, "further", "more");
    stage.until("a machine is made", SOON, |stage| stage.vms(9200..=9209).len() == 1).await;
    let no_pod_asks = || assert!(stage.kube.scale("default", "more", 0));
    its_time_stood_still(&stage, &node, Duration::from_hours(2), no_pod_asks).await;
}

#[tokio::test(start_paused = true)]
async fn time_without_the_api_is_not_counted_where_a_nodes_timer_cannot_be_written_at_first() {
    use world::kubernetes::{Effect, Fault};
    let (stage, node) = with_an_idle_node().await;
    let refused = || {
        let effect = Effect::Answer { status: 500, body: json!({ "kind": "Status", "code": 500 }) };
        let path = format!("/api/v1/nodes/{node}");
        stage.kube.inject(Fault { method: "PATCH".into(), path, times: 1, effect });
    };
    its_time_stood_still(&stage, &node, Duration::from_hours(1), refused).await;
    let calls = stage.kube.calls();
    assert!(calls.iter().any(|call| call.method == "PATCH" && call.status == 500));
}

#[tokio::test(start_paused = true)]
async fn time_without_the_api_is_not_counted_where_nothing_may_be_begun_at_first() {
    use world::kubernetes::{Effect, Fault};
    let (stage, node) = with_an_idle_node().await;
    let kube = stage.kube.clone();
    let no_switch = || {
        deploy_on(&stage, "further", "more");
        tokio::spawn(async move {
            // The object contains both the daemon's stored state and the pause. Reads of it fail only after
            // the daemon has read the state and its watches have resumed.
            tokio::time::sleep(Duration::from_secs(20)).await;
            let effect = Effect::Answer { status: 500, body: json!({ "kind": "Status", "code": 500 }) };
            let path = "/api/v1/namespaces/pve-autoscaler/configmaps/autoscaler-state".to_owned();
            kube.inject(Fault { method: "GET".into(), path, times: usize::MAX, effect });
            tokio::time::sleep(Duration::from_secs(45)).await;
            kube.forget_faults();
        });
    };
    its_time_stood_still(&stage, &node, Duration::from_hours(1), no_switch).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_machines_get_no_token_is_left_alone_longer_each_time() {
    use world::kubernetes::{Effect, Fault};
    let stage = Stage::running(ONE_POOL);
    let body =
        json!({ "kind": "Status", "code": 422, "reason": "Invalid", "message": "a policy refuses it" });
    let effect = Effect::Answer { status: 422, body };
    let path = "/api/v1/namespaces/kube-system/secrets".to_owned();
    stage.kube.inject(Fault { method: "POST".into(), path, times: usize::MAX, effect });
    stage.deploy("web", 1, "1500m", "1Gi");
    tokio::time::sleep(Duration::from_hours(3)).await;
    let clones = |stage: &Stage| {
        stage.pve.task_exits().into_iter().filter(|(upid, _)| upid.contains(":qmclone:")).count()
    };
    let made = clones(&stage);
    assert!((5..=14).contains(&made), "{made} machines were made");
    stage.kube.forget_faults();
    stage.until("the pod runs", Duration::from_mins(35), |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_on_which_a_clone_failed_is_not_chosen_again_at_once() {
    let stage = Stage::running(ONE_POOL);
    stage.pve.inject_task("qmclone", TaskFault::Fails("the storage is broken".into()));
    let host = |stage: &Stage| stage.status().machines.first().map(|one| one.host.clone());
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("a machine is begun", SOON, |stage| host(stage).is_some()).await;
    let first = host(&stage);
    stage.until("the clone has failed", SOON, |stage| host(stage).is_none()).await;
    stage.until("the pod runs", Duration::from_mins(15), |stage| stage.running_pods() == 1).await;
    assert_ne!(host(&stage), first);
}

/// A node that is about to be removed because no pod needs it. Also returns the node's name.
async fn with_a_node_that_is_about_to_go() -> (Stage, String) {
    let quick = "[scale_down]\nunneeded_time = \"2m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let stage = Stage::running(&ONE_POOL.replace("[[pool]]", quick));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.until("the token is gone", SOON, |stage| stage.leftovers().len() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_mins(1)).await;
    (stage, node)
}

/// Whether new pods may be placed on the node.
fn is_open(stage: &Stage, node: &str) -> bool {
    let seen = stage.kube.get("Node", "", node);
    seen.is_some_and(|node| node["spec"]["unschedulable"] != true && !node["spec"]["taints"].is_array())
}

#[tokio::test(start_paused = true)]
async fn no_node_is_drained_while_the_only_proxmox_cluster_is_away() {
    let (stage, node) = with_a_node_that_is_about_to_go().await;
    stage.pve.set_away(true);
    stage.throughout("the node stays open", Duration::from_mins(30), |stage| is_open(stage, &node)).await;
    let begun = stage.status().decisions.into_iter().filter(|one| one.what.starts_with("- ")).count();
    assert_eq!(begun, 0, "{}", stage.scene());
    stage.pve.set_away(false);
    stage.until("the node is gone", Duration::from_mins(10), |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn no_node_is_drained_while_its_vm_cannot_be_read() {
    let (stage, node) = with_a_node_that_is_about_to_go().await;
    let (reason, body) = ("unable to read tail (got 0 bytes)".to_owned(), String::new());
    unreadable(&stage, Vmid(9100), Effect::Answer { status: 500, reason, body });
    stage.throughout("the node stays open", Duration::from_mins(30), |stage| is_open(stage, &node)).await;
    let why = "it is not known whether VM 9100 could be destroyed after the drain";
    let said = stage.status().decisions.iter().any(|one| one.what.contains(why));
    assert!(said, "{}", stage.scene());
    stage.pve.forget_faults();
    stage.until("the node is gone", Duration::from_mins(30), |stage| stage.vms(9100..=9109).is_empty()).await;
}
