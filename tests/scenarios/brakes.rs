//! Limits on the damage of a mistake: the pause, the hourly limit on removals, the share of a pool that may
//! be removed at a time, and the quorum.

use std::time::Duration;

use pve_autoscaler::observability::Order;
use serde_json::json;
use world::kubernetes::spec::KubeSpec;
use world::kubernetes::{Effect, Fault};
use world::proxmox::spec::ClusterSpec;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);

fn pause() -> Order {
    Order::Pause { reason: "storage is moved".to_owned() }
}

/// Unneeded nodes are removed after two minutes; `more` is added to `[scale_down]`.
fn quick(more: &str) -> String {
    let table = format!("[scale_down]\nunneeded_time = \"2m\"\ndelay_after_add = \"0s\"\n{more}\n[[pool]]");
    ONE_POOL.replace("[[pool]]", &table)
}

/// Deploys pods until there are this many nodes, each with one pod.
async fn nodes(stage: &Stage, number: u32) {
    stage.deploy("web", number, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == number as usize).await;
    stage.until("the tokens are gone", SOON, |stage| stage.leftovers().len() == number as usize).await;
}

fn vms(stage: &Stage) -> usize {
    stage.vms(9100..=9109).len()
}

fn tainted(stage: &Stage) -> bool {
    let nodes = stage.kube.list("Node");
    let ours = nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers");
    ours.into_iter().any(|node| node["spec"]["unschedulable"] == true || node["spec"]["taints"].is_array())
}

#[tokio::test(start_paused = true)]
async fn while_paused_nothing_is_made_whichever_instance_leads_and_afterwards_it_is() {
    let mut stage = Stage::new(ONE_POOL);
    stage.start_on("pve1");
    stage.until("one leads", SOON, |stage| stage.leaders() == ["pve1"]).await;
    stage.start_on("pve2");
    // A pause that is requested from a standby applies to the leader immediately.
    stage.order("pve2", pause()).await;
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("the pause is shown", SOON, |stage| stage.status().paused.is_some()).await;
    stage.throughout("nothing is made", SOON, |stage| vms(stage) == 0).await;
    let shown = stage.status().paused.unwrap();
    assert_eq!((shown.by.as_str(), shown.reason.as_str()), ("pve2", "storage is moved"));
    stage.stop_on("pve1").await;
    stage.until("the other instance leads", SOON, |stage| stage.leaders() == ["pve2"]).await;
    stage.throughout("nothing is made", SOON, |stage| vms(stage) == 0).await;
    stage.kill_on("pve2");
    stage.start();
    stage.throughout("nothing is made", SOON, |stage| vms(stage) == 0 && stage.leftovers().is_empty()).await;
    assert_eq!(stage.status().paused, Some(shown));
    stage.order("pve1", Order::Resume).await;
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(stage.status().paused, None);
}

/// A stage whose daemon was killed right after it wrote the record of a machine, before anything else of the
/// machine existed.
async fn only_recorded() -> Stage {
    for last in 1..200 {
        let mut stage = Stage::new(ONE_POOL);
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.start_until(last);
        stage.until("the daemon is cut off", SOON, Stage::is_cut).await;
        stage.kill();
        let is_recorded = stage.kube.get("ConfigMap", "pve-autoscaler", "machine-workers-9100").is_some();
        if is_recorded && vms(&stage) == 0 {
            return stage;
        }
    }
    panic!("no record was written");
}

#[tokio::test(start_paused = true)]
async fn who_begins_to_lead_while_the_switch_cannot_be_read_goes_on_with_nothing() {
    let mut stage = only_recorded().await;
    let (name, namespace) = ("autoscaler-state", "pve-autoscaler");
    let paused = json!({ "data": { "paused": "storage is moved" } });
    if !stage.kube.patch_by_hand("ConfigMap", namespace, name, &paused) {
        let meta = json!({ "name": name, "namespace": namespace });
        let map =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": paused["data"] });
        stage.kube.apply(&map).unwrap();
    }
    // This object contains the daemon's stored state and the pause. The first read, of the state, succeeds;
    // the next reads, of the pause, fail.
    let effects = [
        (1, Effect::Delay(Duration::from_millis(1))),
        (3, Effect::Answer { status: 500, body: json!({ "kind": "Status", "code": 500 }) }),
    ];
    for (times, effect) in effects {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        stage.kube.inject(Fault { method: "GET".into(), path, times, effect });
    }
    stage.start();
    stage.throughout("nothing is made", SOON, |stage| vms(stage) == 0).await;
    assert!(stage.kube.calls().iter().any(|call| call.method == "GET" && call.status == 500));
    stage.order("pve1", Order::Resume).await;
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_moved_while_paused_is_known_where_it_is() {
    let stage = Stage::running(ONE_POOL);
    nodes(&stage, 1).await;
    stage.order("pve1", pause()).await;
    stage.pve.migrate_by_hand(9100, "pve3");
    let there = |stage: &Stage| stage.status().machines[0].host == "pve3";
    stage.until("the new host is known", SOON, there).await;
    assert!(stage.status().paused.is_some());
}

#[tokio::test(start_paused = true)]
async fn machines_under_way_are_finished_while_paused() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("a clone is there", SOON, |stage| vms(stage) == 1).await;
    stage.order("pve1", pause()).await;
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.deploy("more", 1, "1500m", "1Gi");
    stage.throughout("nothing more is made", SOON, |stage| vms(stage) == 1).await;
}

/// Copying disks takes minutes, so most machines are still waiting for their turn when the pause begins.
#[tokio::test(start_paused = true)]
async fn time_in_which_everything_is_paused_is_not_counted_against_machines_that_are_not_begun() {
    for killed in [false, true] {
        let mut cluster = ClusterSpec::demo();
        cluster.timings.full_clone_rate = 100 << 20;
        let text = ONE_POOL.replace("max = 5", "max = 6\nclone = \"full\"");
        let mut stage = Stage::of(&text, cluster, KubeSpec::demo());
        stage.start();
        stage.deploy("web", 6, "1500m", "1Gi");
        let begun = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Cloning");
        stage.until("the first clones are being made", SOON, begun).await;
        stage.order("pve1", pause()).await;
        tokio::time::sleep(Duration::from_mins(7)).await;
        if killed {
            stage.kill();
            stage.start();
        }
        // Work on the finished machines began before the pause.
        let running = stage.running_pods();
        assert!((1..6).contains(&running), "{}", stage.scene());
        let stands_still = |stage: &Stage| stage.running_pods() == running && vms(stage) == running;
        stage.throughout("the others wait", Duration::from_mins(10), stands_still).await;
        let waiting = |stage: &Stage| {
            let machines = stage.status().machines;
            machines.iter().filter(|one| one.why.contains("everything is paused")).count()
        };
        assert_eq!(waiting(&stage), 6 - running, "{}", stage.scene());
        stage.order("pve1", Order::Resume).await;
        stage.until("all pods run", Duration::from_mins(14), |stage| stage.running_pods() == 6).await;
        let status = stage.status();
        assert_eq!(status.pools[0].backoff, None);
        let failed = status.decisions.iter().filter(|one| one.what.contains("took longer"));
        assert_eq!(failed.count(), 0, "{}", stage.scene());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_by_hand_in_the_config_map_holds() {
    let stage = Stage::running(ONE_POOL);
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let maps = stage.kube.list("ConfigMap");
    let map = maps.iter().find(|map| map["metadata"]["name"] == "autoscaler-state").unwrap();
    let mut map = serde_json::Value::clone(map);
    map["kind"] = json!("ConfigMap");
    map["data"]["paused"] = json!("by hand");
    stage.kube.apply(&map).unwrap();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.throughout("nothing is made", SOON, |stage| vms(stage) == 0).await;
    assert_eq!(stage.status().paused.unwrap().reason, "by hand");
    stage.order("pve1", Order::Resume).await;
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

/// Settings with which the wait after a failed removal is longer than any test.
fn patient() -> String {
    quick("delay_after_failure = \"1h\"")
}

/// A node that is being drained, whose last pod cannot be evicted.
async fn draining_in_vain(settings: &str) -> Stage {
    let stage = Stage::running(settings);
    nodes(&stage, 2).await;
    stage.deploy("small", 2, "100m", "128Mi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    stage.kube.scale("default", "web", 1);
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
    stage.until("a node is closed", Duration::from_mins(10), tainted).await;
    stage.throughout("the drain waits", Duration::from_secs(20), tainted).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_given_up_by_a_pause_and_its_node_serves_again() {
    let stage = draining_in_vain(&patient()).await;
    stage.order("pve1", pause()).await;
    let took = stage.until("the node serves again", SOON, |stage| !tainted(stage)).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    stage.throughout("both serve", Duration::from_mins(10), |stage| !tainted(stage) && vms(stage) == 2).await;
    stage.order("pve1", Order::Resume).await;
    stage.until("the node is closed again", Duration::from_mins(10), tainted).await;
}

/// Settings with which the daemon only reports what it would do.
fn observing() -> String {
    patient().replacen("cluster", "mode = \"observe\"\ncluster", 1)
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_given_up_by_settings_that_only_observe_and_its_node_serves_again() {
    let stage = draining_in_vain(&patient()).await;
    stage.reload(&observing());
    let took = stage.until("the node serves again", SOON, |stage| !tainted(stage)).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    let evictions = |stage: &Stage| {
        stage.kube.calls().into_iter().filter(|call| call.path.ends_with("/eviction")).count()
    };
    let before = evictions(&stage);
    let stays = |stage: &Stage| !tainted(stage) && vms(stage) == 2 && evictions(stage) == before;
    stage.throughout("the node stays", Duration::from_mins(10), stays).await;
    stage.reload(&patient());
    stage.until("the node is closed again", Duration::from_mins(10), tainted).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_making_has_not_begun_waits_while_the_settings_only_observe() {
    let text = format!("{}[limits]\nmax_parallel_creates = 1\n", quick(""));
    let stage = Stage::running(&text);
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("one machine is made", SOON, |stage| vms(stage) == 1).await;
    stage.reload(&text.replacen("cluster", "mode = \"observe\"\ncluster", 1));
    stage.until("the machine is finished", SOON, |stage| stage.running_pods() == 1).await;
    stage.throughout("no other machine is made", Duration::from_mins(10), |stage| vms(stage) == 1).await;
    stage.reload(&text);
    stage.until("all run", Duration::from_mins(15), |stage| stage.running_pods() == 3).await;
}

/// After a crash, the next run of the daemon relies on the machine's record.
#[tokio::test(start_paused = true)]
async fn a_node_whose_drain_is_given_up_leaves_for_everybody_until_its_record_is_written() {
    let stage = draining_in_vain(&quick("")).await;
    for vmid in [9100, 9101] {
        stage.kube.inject(Fault {
            method: "PUT".to_owned(),
            path: format!("/api/v1/namespaces/pve-autoscaler/configmaps/machine-workers-{vmid}"),
            times: usize::MAX,
            effect: Effect::Answer { status: 500, body: json!({}) },
        });
    }
    stage.order("pve1", pause()).await;
    stage.until("the node serves again", SOON, |stage| !tainted(stage)).await;
    let leaves = |stage: &Stage| {
        let leaving = stage.status().machines.into_iter().filter(|machine| machine.phase == "Draining");
        (retired(stage), leaving.count())
    };
    stage
        .throughout("the machine counts as leaving", Duration::from_secs(20), |stage| leaves(stage) == (1, 1))
        .await;
}

/// A decision is valid only for a moment. By the time it can be written, the node may be needed again, or
/// removals may have been forbidden.
#[tokio::test(start_paused = true)]
async fn a_removal_that_cannot_be_written_is_not_made_up_for_later() {
    let stage = Stage::running(&quick(""));
    nodes(&stage, 1).await;
    stage.kube.inject(Fault {
        method: "PUT".to_owned(),
        path: "/api/v1/namespaces/pve-autoscaler/configmaps/machine-workers-9100".to_owned(),
        times: usize::MAX,
        effect: Effect::Answer { status: 500, body: json!({ "kind": "Status", "code": 500 }) },
    });
    stage.kube.scale("default", "web", 0);
    let node = stage.ready_nodes("workers").remove(0);
    let goes = |stage: &Stage| {
        let machines = stage.status().machines;
        machines.iter().any(|machine| machine.name == node && machine.phase == "Draining")
    };
    stage.until("the node is being drained", Duration::from_mins(10), goes).await;
    stage.kube.scale("default", "web", 1);
    stage.until("the node is needed again", SOON, |stage| stage.running_pods() == 1).await;
    stage.until("the drain is given up", Duration::from_mins(1), |stage| !goes(stage)).await;
    stage.kube.forget_faults();
    // Another machine was created for the pod before the pod was placed on this node. That machine is
    // removed.
    let closed = |stage: &Stage| {
        stage.kube.get("Node", "", &node).is_none_or(|node| node["spec"]["taints"].is_array())
    };
    stage.throughout("the node serves", Duration::from_mins(5), |stage| !closed(stage) && !goes(stage)).await;
}

#[tokio::test(start_paused = true)]
async fn the_time_of_unneeded_nodes_stands_still_while_paused() {
    let stage = Stage::running(&quick(""));
    nodes(&stage, 1).await;
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.order("pve1", pause()).await;
    stage.throughout("the node stays", Duration::from_mins(20), |stage| vms(stage) == 1).await;
    stage.order("pve1", Order::Resume).await;
    // One of the two minutes had passed before the pause, so one minute is left.
    stage
        .throughout("the node stays", Duration::from_secs(45), |stage| !tainted(stage) && vms(stage) == 1)
        .await;
    stage.until("the node goes", Duration::from_secs(45), |stage| tainted(stage) || vms(stage) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_needed_during_a_pause_begins_again() {
    let stage = Stage::running(&quick(""));
    nodes(&stage, 1).await;
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.order("pve1", pause()).await;
    stage.kube.scale("default", "web", 1);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(SOON).await;
    stage.order("pve1", Order::Resume).await;
    stage
        .throughout("the node stays", Duration::from_secs(105), |stage| !tainted(stage) && vms(stage) == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_hourly_brake_holds_over_a_restart() {
    let mut stage = Stage::running(&quick("max_removals_per_hour = 2"));
    nodes(&stage, 4).await;
    stage.kube.scale("default", "web", 0);
    stage.until("two are gone", Duration::from_mins(10), |stage| vms(stage) == 2).await;
    for _ in 0..3 {
        stage.throughout("two stay", Duration::from_mins(10), |stage| vms(stage) == 2).await;
        stage.kill();
        stage.start();
    }
    stage.until("the others go", Duration::from_mins(40), |stage| vms(stage) == 0).await;
}

/// The number of records that say that their machine is to be removed.
fn retired(stage: &Stage) -> usize {
    let maps = stage.kube.list("ConfigMap");
    maps.iter().filter(|map| map["data"]["record"].to_string().contains(r#"\"kind\":\"retire\""#)).count()
}

#[tokio::test(start_paused = true)]
async fn the_hourly_brake_counts_what_began_in_the_moment_before_a_crash() {
    let mut stage = Stage::running(&quick("max_removals_per_hour = 2\nmax_removal_percentage = 100"));
    nodes(&stage, 4).await;
    stage.kube.scale("default", "web", 0);
    stage.until("two machines are to be removed", Duration::from_mins(10), |stage| retired(stage) == 2).await;
    stage.kill();
    stage.start();
    stage.throughout("two stay", Duration::from_mins(45), |stage| vms(stage) >= 2).await;
    assert_eq!(vms(&stage), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_while_the_hourly_brake_cannot_be_stored() {
    let stage = Stage::running(&quick("max_removals_per_hour = 2"));
    nodes(&stage, 2).await;
    for method in ["PUT", "POST"] {
        stage.kube.inject(Fault {
            method: method.to_owned(),
            path: "/api/v1/namespaces/pve-autoscaler/configmaps/autoscaler-state".to_owned(),
            times: usize::MAX,
            effect: Effect::Answer { status: 500, body: json!({}) },
        });
    }
    stage.kube.scale("default", "web", 0);
    stage.throughout("nothing goes", Duration::from_mins(10), |stage| retired(stage) == 0).await;
    let told = |stage: &Stage| stage.status().problems.values().any(|what| what.contains("removed"));
    stage.until("the failure is reported", SOON, told).await;
    stage.kube.forget_faults();
    stage.until("both go", Duration::from_mins(10), |stage| vms(stage) == 0).await;
    stage.until("the failure is no longer reported", SOON, |stage| !told(stage)).await;
}

#[tokio::test(start_paused = true)]
async fn only_a_share_of_a_pool_goes_at_a_time() {
    for (percentage, most) in [(50, 2), (25, 1), (100, 4)] {
        let stage = Stage::running(&quick(&format!("max_removal_percentage = {percentage}")));
        nodes(&stage, 4).await;
        stage.kube.scale("default", "web", 0);
        let mut seen = 0;
        while vms(&stage) > 0 {
            let going = stage.status().pools.first().map_or(0, |pool| pool.going);
            seen = seen.max(going);
            assert!(going <= most, "{percentage} %: {going}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(stage.now() < "2026-11-21T01:00:00Z".parse().unwrap(), "{}", stage.scene());
        }
        assert_eq!(seen, most, "{percentage} %");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_to_go_counts_while_its_host_is_slow() {
    let stage = Stage::running(&quick("max_removal_percentage = 25"));
    nodes(&stage, 4).await;
    stage.pve.inject(world::proxmox::Fault {
        method: "GET".to_owned(),
        path: "/nodes/*/qemu/*/config".to_owned(),
        times: usize::MAX,
        effect: world::proxmox::Effect::Delay(Duration::from_secs(5)),
    });
    stage.kube.scale("default", "web", 0);
    let mut seen = 0;
    while vms(&stage) > 0 {
        seen = seen.max(retired(&stage));
        assert!(seen <= 1, "{}", stage.scene());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(stage.now() < "2026-11-21T01:00:00Z".parse().unwrap(), "{}", stage.scene());
    }
    assert_eq!(seen, 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_failed_before_it_was_a_node_takes_no_nodes_turn() {
    let stage = Stage::running(&quick(""));
    nodes(&stage, 1).await;
    for (method, path) in [("POST", "/nodes/*/qemu/9101/status/start"), ("DELETE", "/nodes/*/qemu/9101")] {
        stage.pve.inject(world::proxmox::Fault {
            method: method.to_owned(),
            path: path.to_owned(),
            times: usize::MAX,
            effect: world::proxmox::Effect::Answer {
                status: 500,
                reason: "can't lock file - got timeout".to_owned(),
                body: String::new(),
            },
        });
    }
    stage.deploy("more", 1, "1500m", "1Gi");
    let stays = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Deleting");
    stage.until("the next machine cannot be destroyed", Duration::from_mins(20), stays).await;
    stage.kube.scale("default", "more", 0);
    stage.kube.scale("default", "web", 0);
    stage.until("the node goes", Duration::from_mins(4), |stage| stage.pve.vm(9100).is_none()).await;
    assert!(stage.pve.vm(9101).is_some());
}

#[tokio::test(start_paused = true)]
async fn only_so_many_machines_go_at_a_time_whatever_is_due_together() {
    for most in [1, 3] {
        let more = format!("max_removal_percentage = 100\n[limits]\nmax_parallel_retires = {most}\n");
        let stage = Stage::running(&quick(&more));
        nodes(&stage, 5).await;
        stage.kube.scale("default", "web", 0);
        let mut seen = 0;
        while vms(&stage) > 0 {
            let going = stage.status().pools.first().map_or(0, |pool| pool.going);
            seen = seen.max(going);
            assert!(going <= most, "{going} of {most}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(stage.now() < "2026-11-21T01:00:00Z".parse().unwrap(), "{}", stage.scene());
        }
        assert_eq!(seen, most);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_destroyed_without_quorum() {
    let stage = Stage::running(&quick(""));
    nodes(&stage, 1).await;
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_secs(30)).await;
    stage.pve.set_quorum(false);
    stage.throughout("the VM stays", Duration::from_mins(20), |stage| vms(stage) == 1).await;
    assert!(stage.pve.calls().iter().all(|call| call.method != "DELETE"));
    stage.pve.set_quorum(true);
    stage
        .until("a VM goes", Duration::from_mins(20), |stage| vms(stage) == 0 && stage.leftovers().is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_the_quorum_that_took_long_is_asked_for_again() {
    let stage = Stage::running(&quick(""));
    nodes(&stage, 1).await;
    stage.kube.scale("default", "web", 0);
    let stops = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
    stage.until("the VM is shut down", Duration::from_mins(20), stops).await;
    let late = world::proxmox::Effect::WorkThenDelay(Duration::from_secs(6));
    let (method, path) = ("GET".to_owned(), "/cluster/status".to_owned());
    stage.pve.inject(world::proxmox::Fault { method, path, times: usize::MAX, effect: late });
    let ends = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Deleting");
    stage.until("the VM is about to be destroyed", Duration::from_mins(20), ends).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.pve.set_quorum(false);
    // Without quorum, destroying the VM would delete its disks but leave its configuration.
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(stage.pve.calls().iter().all(|call| call.method != "DELETE"));
    stage.pve.forget_faults();
    stage.pve.set_quorum(true);
    stage.until("the VM is gone", Duration::from_mins(20), |stage| vms(stage) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_serves_on_while_its_cluster_is_not_quorate() {
    let stage = Stage::running(&quick(""));
    nodes(&stage, 1).await;
    stage.pve.set_quorum(false);
    stage.kube.scale("default", "web", 0);
    let serves = |stage: &Stage| !tainted(stage) && stage.pve.vm(9100).is_some_and(|vm| vm.running);
    stage.throughout("the node serves", Duration::from_mins(20), serves).await;
    let why = |stage: &Stage| stage.status().nodes.iter().any(|one| one.why.contains("not quorate"));
    assert!(why(&stage), "{}", stage.scene());
    // Without quorum, no machine can be cloned, so new pods have to run on the existing node.
    stage.deploy("more", 2, "1500m", "1Gi");
    stage.until("one pod runs on the node", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(vms(&stage), 1);
    stage.pve.set_quorum(true);
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_quorum_that_is_lost_while_a_node_is_drained_lets_it_serve_again() {
    let stage = draining_in_vain(&quick("")).await;
    stage.pve.set_quorum(false);
    stage.kube.forget_faults();
    stage.until("the node serves again", SOON, |stage| !tainted(stage)).await;
    let serve = |stage: &Stage| {
        let all = stage.vms(9100..=9109);
        !tainted(stage) && all.len() == 2 && all.iter().all(|vmid| stage.pve.vm(*vmid).unwrap().running)
    };
    stage.throughout("both serve", Duration::from_mins(20), serve).await;
    stage.pve.set_quorum(true);
    stage.until("one node is removed", Duration::from_mins(20), |stage| vms(stage) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_proxmox_that_goes_away_while_a_node_is_drained_lets_it_serve_again() {
    let stage = draining_in_vain(&quick("")).await;
    stage.pve.set_away(true);
    stage.kube.forget_faults();
    stage.until("the node serves again", Duration::from_mins(20), |stage| !tainted(stage)).await;
    stage.throughout("both serve", Duration::from_mins(20), |stage| !tainted(stage)).await;
    stage.pve.set_away(false);
    stage.until("one node is removed", Duration::from_mins(20), |stage| vms(stage) == 1).await;
}
