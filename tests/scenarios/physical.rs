//! Bare-metal machines: they are switched on for pods, drained and switched off when no pod needs them, and
//! left alone if another client uses them.

use std::time::Duration;

use pve_autoscaler::observability::Order;
use serde_json::json;
use stage::without_pools;
use world::kubernetes::metal::MetalSpec;
use world::kubernetes::samples;
use world::kubernetes::spec::KubeSpec;
use world::kubernetes::{Effect, Fault};
use world::proxmox::spec::ClusterSpec;

use crate::stage::Stage;

/// A machine takes two minutes to boot.
const SOON: Duration = Duration::from_mins(6);
const LATER: Duration = Duration::from_mins(40);

/// A pool of these machines, each with its own controller.
fn pool(machines: &[&str], more: &str) -> String {
    let one = |name: &&str| {
        format!(
            "[[pool.machine]]\nname = \"{name}\"\n[pool.machine.redfish]\nendpoint = \"https://{name}\"\n\
             user = \"power\"\npassword_file = \"/unused\"\nca = \"system\"\n"
        )
    };
    let all: String = machines.iter().map(one).collect();
    let max = machines.len();
    format!(
        "{}[scale_down]\nunneeded_time = \"5m\"\ndelay_after_add = \"1m\"\n\
         [[pool]]\nname = \"metal\"\nmax = {max}\ncores = 8\nmemory = \"32GiB\"\nlabels = {{ kind = \"metal\" }}\n{more}{all}",
        without_pools()
    )
}

/// A cluster with these machines, all off.
fn stage(machines: &[&str], more: &str) -> Stage {
    let stage = Stage::of(&pool(machines, more), ClusterSpec::demo(), KubeSpec::demo());
    for name in machines {
        stage.kube.add_metal(MetalSpec::worker(name, 8, 32));
    }
    stage
}

/// One machine, with a pod on it.
async fn serving() -> Stage {
    let mut stage = stage(&["metal-1"], "");
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("its pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage
}

fn on(stage: &Stage, name: &str) -> bool {
    stage.kube.metal_is_on(name).unwrap()
}

/// Makes the controller report the machine's uuid in the other byte order.
fn turn_round(stage: &Stage) {
    stage.kube.change_metal("metal-1", |metal| {
        "4c4c4544-0052-3510-8052-b4c04f4d3332".clone_into(&mut metal.node.system_uuid);
        metal.uuid = Some("44454c4c-5200-1035-8052-b4c04f4d3332".to_owned());
    });
}

/// The requests to controllers, each as the machine and the action: `metal-1 On`.
fn asked(stage: &Stage) -> Vec<String> {
    stage.kube.resets().iter().map(|reset| format!("{} {}", reset.machine, reset.what)).collect()
}

/// Whether the machine is to be shut down, and has not been found to be off yet.
fn is_stopping(stage: &Stage) -> bool {
    stage.status().machines.iter().any(|machine| machine.phase == "Stopping")
}

/// Asserts that no machine was ever switched off with pods on it.
fn only_empty_ones_went(stage: &Stage) {
    let lost: Vec<_> =
        stage.kube.resets().into_iter().filter(|reset| reset.what != "On" && reset.pods > 0).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_switched_on_for_pods_and_off_after_them() {
    let mut stage = stage(&["metal-1"], "");
    stage.start();
    stage.deploy("web", 2, "2", "2Gi");
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(stage.ready_nodes("metal"), ["metal-1"]);
    let node = stage.kube.get("Node", "", "metal-1").unwrap();
    assert_eq!(node["metadata"]["labels"]["kind"], "metal");
    assert_eq!(asked(&stage), ["metal-1 On"]);
    stage.kube.scale("default", "web", 0);
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    stage
        .until("no Node and no machine is left", SOON, |stage| {
            stage.kube.get("Node", "", "metal-1").is_none() && stage.status().machines.is_empty()
        })
        .await;
    assert_eq!(asked(&stage), ["metal-1 On", "metal-1 GracefulShutdown"]);
    only_empty_ones_went(&stage);
    // The machine is switched on again, and its Node is the same as before.
    stage.kube.scale("default", "web", 1);
    stage.until("its pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.ready_nodes("metal"), ["metal-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_another_cluster_switches_on_in_the_same_moment_is_left_to_it() {
    let mut stage = stage(&["metal-1"], "");
    stage.kube.change_metal("metal-1", |metal| metal.joins = false);
    // Writing the record that claims the machine takes a while. Meanwhile, the other cluster switches the
    // machine on.
    let path = "/api/v1/namespaces/*/configmaps/*".to_owned();
    stage.kube.inject(Fault {
        method: "PUT".to_owned(),
        path,
        times: 1,
        effect: Effect::Delay(Duration::from_secs(5)),
    });
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("metal-1 is claimed", SOON, |stage| !stage.status().machines.is_empty()).await;
    stage.kube.reset_metal("metal-1", "On");
    stage.until("metal-1 is given up", SOON, |stage| stage.status().machines.is_empty()).await;
    stage.throughout("metal-1 runs", LATER, |stage| on(stage, "metal-1")).await;
    assert_eq!(asked(&stage), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_refused_to_us_and_runs_for_another_client_is_left_on() {
    let mut stage = stage(&["metal-1"], "");
    // The machine's controller is busy with the other client's request.
    stage.kube.change_metal("metal-1", |metal| (metal.joins, metal.refuses) = (false, 1));
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("metal-1 is claimed", SOON, |stage| !stage.status().machines.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.kube.reset_metal("metal-1", "On");
    stage.until("metal-1 is given up", SOON, |stage| stage.status().machines.is_empty()).await;
    stage.throughout("metal-1 runs", LATER, |stage| on(stage, "metal-1")).await;
    assert_eq!(asked(&stage), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_refused_to_us_and_runs_for_another_client_is_left_on_by_the_next_run_too() {
    let mut stage = stage(&["metal-1"], "");
    stage.kube.change_metal("metal-1", |metal| (metal.joins, metal.refuses) = (false, 1));
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("metal-1 is claimed", SOON, |stage| !stage.status().machines.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.kill();
    stage.kube.reset_metal("metal-1", "On");
    stage.start();
    stage.throughout("metal-1 runs", LATER, |stage| on(stage, "metal-1")).await;
    assert!(stage.leftovers().is_empty());
    assert_eq!(asked(&stage), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_busy_when_a_machine_is_to_be_switched_on_is_asked_again() {
    let mut stage = stage(&["metal-1"], "");
    stage.kube.change_metal("metal-1", |metal| metal.refuses = 2);
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("its pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(asked(&stage), ["metal-1 On"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_pin_no_watch_shows_yet_stays_on() {
    let mut stage = stage(&["metal-1"], "");
    stage.start();
    stage.deploy("web", 1, "2", "2Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_mins(4)).await;
    stage.stall.set(true);
    stage.order("pve1", Order::Pin { node: "metal-1".to_owned(), reason: String::new() }).await;
    stage.throughout("metal-1 is on", SOON, |stage| on(stage, "metal-1")).await;
    stage.stall.set(false);
    stage.throughout("metal-1 stays on", SOON, |stage| on(stage, "metal-1")).await;
    assert_eq!(asked(&stage), ["metal-1 On"]);
    let node = stage.kube.get("Node", "", "metal-1").unwrap();
    assert!(node["spec"]["unschedulable"] != true, "{node}");
}

#[tokio::test(start_paused = true)]
async fn pods_are_evicted_within_their_budget_before_a_machine_goes_off() {
    let mut stage = stage(&["metal-1", "metal-2"], "");
    stage.start();
    stage.deploy("web", 2, "5", "2Gi");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    stage.kube.apply(&samples::budget("web", 1)).unwrap();
    // Both pods now fit one machine.
    stage.kube.apply(&samples::deployment("web", 2, "3", "2Gi")).unwrap();
    stage.until("one machine is off", LATER, |stage| stage.ready_nodes("metal").len() == 1).await;
    stage.until("both run again", SOON, |stage| stage.running_pods() == 2).await;
    only_empty_ones_went(&stage);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_another_client_switched_on_is_left_alone_and_said_so() {
    let mut stage = stage(&["metal-1", "metal-2"], "");
    stage.kube.change_metal("metal-1", |metal| metal.joins = false);
    stage.kube.reset_metal("metal-1", "On");
    stage.start();
    stage.deploy("web", 2, "5", "2Gi");
    stage.until("metal-2 serves", SOON, |stage| stage.running_pods() == 1).await;
    let said = "metal-1 was not switched on by the daemon, and is left alone";
    assert!(stage.status().problems.iter().any(|problem| format!("{problem:?}").contains(said)));
    assert!(stage.status().pods.iter().any(|pod| pod.why.contains(said)), "{:?}", stage.status().pods);
    stage.throughout("metal-1 stays on", LATER, |stage| on(stage, "metal-1")).await;
    assert_eq!(asked(&stage), ["metal-2 On"]);
    // Once its owner has switched it off, the machine is used.
    stage.kube.change_metal("metal-1", |metal| metal.joins = true);
    stage.kube.reset_metal("metal-1", "ForceOff");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_node_is_there_without_a_record_is_not_switched_on() {
    let mut stage = stage(&["metal-1"], "");
    stage.kube.reset_metal("metal-1", "On");
    stage
        .until("the unmanaged node is ready", SOON, |stage| stage.kube.get("Node", "", "metal-1").is_some())
        .await;
    stage.kube.reset_metal("metal-1", "ForceOff");
    stage.start();
    stage.deploy_with("web", 1, "1", "1Gi", &json!({ "nodeSelector": { "kind": "metal" } }));
    stage.throughout("metal-1 stays off", SOON, |stage| !on(stage, "metal-1")).await;
    assert!(stage.status().pods[0].why.contains("a Node with its name belongs to no managed machine"));
    stage.kube.remove("Node", "", "metal-1");
    stage.until("metal-1 is used", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_come_up_is_switched_off_and_left_alone_while_another_serves() {
    let mut stage = stage(&["metal-1", "metal-2"], "");
    for name in ["metal-1", "metal-2"] {
        stage.kube.change_metal(name, |metal| metal.joins = false);
    }
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    let first = |stage: &Stage| stage.kube.resets().first().map(|reset| reset.machine.clone());
    stage.until("a machine is switched on", SOON, |stage| first(stage).is_some()).await;
    let broken = first(&stage).unwrap();
    let other = if broken == "metal-1" { "metal-2" } else { "metal-1" };
    stage.kube.change_metal(other, |metal| metal.joins = true);
    stage.until("the other machine serves", LATER, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.ready_nodes("metal"), [other]);
    assert!(!on(&stage, &broken));
    let said = "its Node did not register within 15 min: it is on, but its kubelet has not registered";
    assert!(
        stage.status().decisions.iter().any(|one| one.what.contains(said)),
        "{:?}",
        stage.status().decisions
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_listen_is_cut_off_once_it_is_drained() {
    let mut stage = stage(&["metal-1"], "");
    stage.kube.change_metal("metal-1", |metal| metal.shutdown = None);
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("its pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    assert_eq!(asked(&stage), ["metal-1 On", "metal-1 GracefulShutdown", "metal-1 ForceOff"]);
    only_empty_ones_went(&stage);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_falls_silent_leaves_the_node_closed_until_it_answers() {
    let stage = serving().await;
    stage.kube.change_metal("metal-1", |metal| metal.answers = false);
    stage.kube.scale("default", "web", 0);
    stage.until("metal-1 is to be shut down", LATER, is_stopping).await;
    let node = stage.kube.get("Node", "", "metal-1").unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    stage.throughout("metal-1 stays on", SOON, |stage| on(stage, "metal-1")).await;
    stage.kube.change_metal("metal-1", |metal| metal.answers = true);
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    stage.until("the Node is gone", SOON, |stage| stage.kube.get("Node", "", "metal-1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_was_silent_for_long_leaves_the_machine_its_time_to_shut_down() {
    let mut stage = stage(&["metal-1"], "");
    // `limits.shutdown` is three minutes.
    stage.kube.change_metal("metal-1", |metal| metal.shutdown = Some(Duration::from_mins(2)));
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("its pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.change_metal("metal-1", |metal| metal.answers = false);
    stage.kube.scale("default", "web", 0);
    let is_stuck = |stage: &Stage| stage.status().decisions.iter().any(|one| one.what.contains("is stuck"));
    stage.until("metal-1 is stuck", LATER, is_stuck).await;
    stage.kube.change_metal("metal-1", |metal| metal.answers = true);
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    assert_eq!(asked(&stage), ["metal-1 On", "metal-1 GracefulShutdown"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_busy_for_a_moment_is_asked_again_and_no_power_is_cut() {
    let stage = serving().await;
    stage.kube.change_metal("metal-1", |metal| metal.refuses = 2);
    stage.kube.scale("default", "web", 0);
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    assert_eq!(asked(&stage), ["metal-1 On", "metal-1 GracefulShutdown"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_goes_on_whose_controller_refuses_to_begin_it_again() {
    let mut stage = serving().await;
    stage.kube.change_metal("metal-1", |metal| {
        (metal.shutdown, metal.refuses_repeats) = (Some(Duration::from_mins(2)), true);
    });
    stage.kube.scale("default", "web", 0);
    stage.until("the shutdown is requested", LATER, |stage| asked(stage).len() == 2).await;
    stage.kill();
    stage.start();
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    assert_eq!(asked(&stage), ["metal-1 On", "metal-1 GracefulShutdown"]);
    stage.until("the Node is gone", SOON, |stage| stage.kube.get("Node", "", "metal-1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn one_whose_controller_refuses_for_as_long_as_a_shutdown_may_take_is_cut_off() {
    let stage = serving().await;
    // The controller refuses every request that the daemon sends within `limits.shutdown`.
    stage.kube.change_metal("metal-1", |metal| metal.refuses = 5);
    stage.kube.scale("default", "web", 0);
    stage.until("metal-1 is to be shut down", LATER, is_stopping).await;
    let took = stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    assert!(took >= Duration::from_mins(3) - Duration::from_secs(1), "{took:?}");
    assert_eq!(asked(&stage), ["metal-1 On", "metal-1 ForceOff"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_the_controller_is_silent_keeps_its_machine_on() {
    let stage = serving().await;
    stage.kube.change_metal("metal-1", |metal| metal.answers = false);
    stage.kube.scale("default", "web", 0);
    stage.until("metal-1 is to be shut down", LATER, is_stopping).await;
    stage.kube.apply(&pod_that_must_stay()).unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.kube.change_metal("metal-1", |metal| metal.answers = true);
    let runs = |stage: &Stage| on(stage, "metal-1") && stage.running_pods() == 1;
    stage.throughout("its pod runs", Duration::from_mins(10), runs).await;
    assert_eq!(asked(&stage), ["metal-1 On"]);
    // Only this pod kept the machine on.
    stage.kube.remove("Pod", "default", "keeper");
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    only_empty_ones_went(&stage);
}

/// A pod on the machine's Node. No controller would create the pod again, and it tolerates all taints.
fn pod_that_must_stay() -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "keeper", "namespace": "default" },
        "spec": {
            "nodeName": "metal-1",
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "app", "image": "keeper" }],
        },
    })
}

/// Whether the machine's Node accepts pods and belongs to the pool.
fn is_open(stage: &Stage) -> bool {
    let node = stage.kube.get("Node", "", "metal-1");
    node.is_some_and(|node| node["spec"]["unschedulable"] != true && node["spec"]["taints"].is_null())
        && stage.ready_nodes("metal") == ["metal-1"]
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_ready_too_late_and_cannot_be_emptied_serves() {
    let mut stage = stage(&["metal-1"], "");
    stage.kube.set_nodes_never_ready(true);
    turn_round(&stage);
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the Node registers", SOON, |stage| stage.kube.get("Node", "", "metal-1").is_some()).await;
    stage.kube.apply(&pod_that_must_stay()).unwrap();
    let is_stuck = |stage: &Stage| stage.status().decisions.iter().any(|one| one.what.contains("is stuck"));
    stage.until("metal-1 is given up, but stays on for the pod", LATER, is_stuck).await;
    assert!(on(&stage, "metal-1") && !is_open(&stage), "{}", stage.scene());
    stage.kube.set_nodes_never_ready(false);
    stage.until("metal-1 serves", LATER, |stage| is_open(stage) && stage.running_pods() == 2).await;
    stage.throughout("metal-1 serves on", LATER, |stage| is_open(stage) && stage.running_pods() == 2).await;
    assert_eq!(asked(&stage), ["metal-1 On"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_given_up_and_is_a_node_again_serves() {
    let stage = serving().await;
    stage.kube.change_metal("metal-1", |metal| metal.answers = false);
    stage.kube.set_kubelet_silent("metal-1", true);
    stage.kube.remove("Node", "", "metal-1");
    let is_stuck = |stage: &Stage| stage.status().decisions.iter().any(|one| one.what.contains("is stuck"));
    stage.until("metal-1 is given up, but cannot be switched off", LATER, is_stuck).await;
    stage.kube.set_kubelet_silent("metal-1", false);
    stage.kube.restart_kubelet("metal-1");
    stage.until("metal-1 is a Node again", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.change_metal("metal-1", |metal| metal.answers = true);
    stage.throughout("the pod keeps running", LATER, |stage| stage.running_pods() == 1).await;
    assert!(is_open(&stage), "{}", stage.scene());
    assert_eq!(asked(&stage), ["metal-1 On"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_without_a_uuid_or_with_one_that_is_turned_round_will_do() {
    for uuid in
        [None, Some("00000000-0000-0000-0000-000000000000"), Some("44454c4c-5200-1035-8052-b4c04f4d3332")]
    {
        let mut stage = stage(&["metal-1"], "");
        turn_round(&stage);
        stage.kube.change_metal("metal-1", |metal| {
            metal.uuid = uuid.map(ToOwned::to_owned);
        });
        stage.start();
        stage.deploy("web", 1, "1", "1Gi");
        stage.until("its pod runs", SOON, |stage| stage.running_pods() == 1).await;
        stage.kube.scale("default", "web", 0);
        stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
        stage.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_machine_is_not_taken_for_its_own() {
    let mut stage = stage(&["metal-1"], "");
    stage.kube.change_metal("metal-1", |metal| {
        metal.uuid = Some("11111111-2222-4333-8444-555555555555".to_owned());
    });
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    let said = "its systemUUID (";
    stage
        .until("the mismatch is reported", LATER, |stage| {
            stage.status().decisions.iter().any(|one| one.what.contains(said))
        })
        .await;
    assert!(stage.ready_nodes("metal").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_restart_at_any_call_switches_each_machine_once_and_none_off_with_pods() {
    // The restarts are spread over the time until the first pod runs, and from then until the machine is off.
    for part in 0..14 {
        let mut stage = stage(&["metal-1"], "");
        turn_round(&stage);
        stage.start_until(20 + part * 19);
        stage.deploy("web", 1, "1", "1Gi");
        let end = stage.now().checked_add(jiff::SignedDuration::from_mins(9)).unwrap();
        stage
            .until("the daemon is cut off, or nine minutes have passed", LATER, move |stage| {
                stage.is_cut() || stage.now() > end
            })
            .await;
        if stage.is_cut() {
            stage.kill();
            stage.start();
        }
        stage.until("its pod runs", LATER, |stage| stage.running_pods() == 1).await;
        stage.kube.scale("default", "web", 0);
        stage
            .until("the daemon is cut off, or the machine is off", LATER, |stage| {
                stage.is_cut() || !on(stage, "metal-1")
            })
            .await;
        if stage.is_cut() {
            stage.kill();
            stage.start();
        }
        stage
            .until("nothing is left", LATER, |stage| {
                !on(stage, "metal-1")
                    && stage.kube.get("Node", "", "metal-1").is_none()
                    && stage.status().machines.is_empty()
            })
            .await;
        let ons = asked(&stage).iter().filter(|one| one.ends_with(" On")).count();
        assert_eq!(ons, 1, "part {part}: {:?}", asked(&stage));
        only_empty_ones_went(&stage);
        stage.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn another_leader_goes_on_with_a_machine_that_boots() {
    let mut stage = stage(&["metal-1"], "");
    stage.start();
    stage.start_on("pve2");
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("metal-1 is on", SOON, |stage| on(stage, "metal-1")).await;
    let first = stage.leaders().first().map(|&name| name.to_owned()).unwrap();
    stage.kill_on(&first);
    stage.until("its pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(asked(&stage), ["metal-1 On"]);
    let node = stage.kube.get("Node", "", "metal-1").unwrap();
    assert_eq!(node["metadata"]["labels"]["kind"], "metal", "the new leader has finished the Node");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_an_administrator_switches_off_goes_as_an_unready_node_and_is_not_switched_on_at_once()
{
    let stage = serving().await;
    stage.kube.reset_metal("metal-1", "ForceOff");
    stage.throughout("metal-1 stays off", Duration::from_mins(10), |stage| !on(stage, "metal-1")).await;
    stage.until("the Node is gone", LATER, |stage| stage.kube.get("Node", "", "metal-1").is_none()).await;
    stage.until("metal-1 is switched on for the pod", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_an_administrator_has_switched_off_and_on_again_is_left_on() {
    let stage = serving().await;
    stage.kube.reset_metal("metal-1", "ForceOff");
    tokio::time::sleep(Duration::from_mins(5)).await;
    // The machine boots into a rescue system.
    stage.kube.change_metal("metal-1", |metal| metal.joins = false);
    stage.kube.reset_metal("metal-1", "On");
    stage.throughout("metal-1 stays on", LATER, |stage| on(stage, "metal-1")).await;
    assert!(stage.kube.get("Node", "", "metal-1").is_none() && stage.leftovers().is_empty());
    let said = "metal-1 was not switched on by the daemon, and is left alone";
    assert!(stage.status().problems.iter().any(|problem| format!("{problem:?}").contains(said)));
    assert_eq!(asked(&stage), ["metal-1 On"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_switched_on_before_its_node_is_deleted_is_left_on() {
    let mut stage = serving().await;
    let body = json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden" });
    stage.kube.inject(Fault {
        method: "DELETE".to_owned(),
        path: "/api/v1/nodes/*".to_owned(),
        times: usize::MAX,
        effect: Effect::Answer { status: 403, body },
    });
    stage.kube.scale("default", "web", 0);
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
    // The machine is switched on again soon, while its Node still counts as ready. After its restart, the
    // daemon knows only what the record says.
    stage.kube.change_metal("metal-1", |metal| metal.joins = false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    stage.kube.reset_metal("metal-1", "On");
    stage.kill();
    stage.start();
    stage.throughout("metal-1 stays on", LATER, |stage| on(stage, "metal-1")).await;
    stage.kube.forget_faults();
    stage.throughout("metal-1 is left on", LATER, |stage| on(stage, "metal-1")).await;
    assert!(stage.kube.get("Node", "", "metal-1").is_none() && stage.leftovers().is_empty());
    assert_eq!(asked(&stage), ["metal-1 On", "metal-1 GracefulShutdown"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_off_and_has_served_again_is_switched_off_as_any_other() {
    let stage = serving().await;
    stage.kube.reset_metal("metal-1", "ForceOff");
    tokio::time::sleep(Duration::from_mins(2)).await;
    stage.kube.reset_metal("metal-1", "On");
    stage.until("metal-1 serves again", SOON, |stage| stage.ready_nodes("metal") == ["metal-1"]).await;
    tokio::time::sleep(SOON).await;
    stage.kube.set_kubelet_silent("metal-1", true);
    stage.until("metal-1 is off", LATER, |stage| !on(stage, "metal-1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_closed_is_not_switched_on() {
    let closed =
        pool(&["metal-1"], "").replace("name = \"metal-1\"\n[", "name = \"metal-1\"\nclosed = true\n[");
    let mut stage = Stage::of(&closed, ClusterSpec::demo(), KubeSpec::demo());
    stage.kube.add_metal(MetalSpec::worker("metal-1", 8, 32));
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.throughout("metal-1 stays off", SOON, |stage| !on(stage, "metal-1")).await;
    assert!(stage.status().pods[0].why.contains("metal-1 is closed"), "{:?}", stage.status().pods);
}

#[tokio::test(start_paused = true)]
async fn a_minimum_is_kept_without_any_pod_and_without_proxmox() {
    let mut stage = stage(&["metal-1"], "min = 1\n");
    stage.pve.set_away(true);
    stage.start();
    stage.until("metal-1 serves", SOON, |stage| stage.ready_nodes("metal") == ["metal-1"]).await;
}
