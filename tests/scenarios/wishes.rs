//! Operators' orders to remove or keep single nodes, and how these orders are reported afterwards.

use std::time::Duration;

use pve_autoscaler::observability::Order;
use serde_json::json;
use world::guest::GuestFaults;
use world::kubernetes::{Effect, Fault, samples};

use crate::stage::log::Arrived;
use crate::stage::{ONE_POOL, Stage, name};

const SOON: Duration = Duration::from_mins(3);

/// Unneeded nodes are removed after two minutes; `more` is added to the pool.
fn quick(more: &str) -> String {
    let table =
        "[scale_down]\nunneeded_time = \"2m\"\ndelay_after_add = \"0s\"\n[[pool]]\n".to_owned() + more;
    ONE_POOL.replace("[[pool]]\n", &table)
}

fn retire(node: &str) -> Order {
    Order::Retire { node: node.to_owned(), reason: "its host gets new memory".to_owned() }
}

/// The annotations, taints and `unschedulable` of a Node.
fn marks(stage: &Stage, node: &str) -> String {
    let nodes = stage.kube.list("Node");
    let node = nodes.iter().find(|one| name(one) == node);
    node.map(|node| format!("{} {}", node["metadata"]["annotations"], node["spec"])).unwrap_or_default()
}

fn is_closed(stage: &Stage, node: &str) -> bool {
    marks(stage, node).contains("being-deleted")
}

fn runs(stage: &Stage) -> bool {
    stage.pve.vm(9100).is_some_and(|vm| vm.running)
}

fn pin(node: &str) -> Order {
    Order::Pin { node: node.to_owned(), reason: String::new() }
}

fn decided(stage: &Stage, words: &str) -> bool {
    stage.status().decisions.iter().any(|one| one.what.contains(words))
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_retired_at_the_minimum_is_replaced_before_it_goes() {
    let stage = Stage::running(&quick("min = 1\n"));
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let old = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", retire(&old)).await;
    let mut seen = 0;
    while !marks(&stage, &old).is_empty() {
        let ready = stage.ready_nodes("workers").len();
        assert!(ready >= 1, "{}", stage.scene());
        seen = seen.max(ready);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(stage.now() < "2026-11-21T00:30:00Z".parse().unwrap(), "{}", stage.scene());
    }
    assert_eq!(seen, 2, "the new node was ready before the old one was removed");
    stage.until("only the new machine is left", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
    assert!(decided(&stage, &format!("- {old}: its host gets new memory")), "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_may_not_grow_keeps_a_node_that_is_to_be_retired_and_says_why() {
    let stage = Stage::running(&quick("min = 1\n").replace("max = 5", "max = 1"));
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let old = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", retire(&old)).await;
    stage.throughout("it stays", Duration::from_mins(20), |stage| !is_closed(stage, &old)).await;
    assert!(decided(&stage, "`max` allows no other node"), "{}", stage.scene());
    stage.reload(&quick("min = 0\n").replace("max = 5", "max = 1"));
    stage.until("it goes", SOON, |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_and_is_not_tainted_yet_is_none_that_is_left() {
    let stage = Stage::running(&quick("min = 1\n"));
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    stage.until("the tokens are gone", SOON, |stage| stage.leftovers().len() == 2).await;
    for vmid in [9100, 9101] {
        stage.kube.inject(Fault {
            method: "PUT".to_owned(),
            path: format!("/api/v1/namespaces/pve-autoscaler/configmaps/machine-workers-{vmid}"),
            times: 1,
            effect: Effect::Delay(Duration::from_secs(10)),
        });
    }
    stage.kube.scale("default", "web", 0);
    let going = |stage: &Stage| {
        let machines = stage.status().machines;
        machines.into_iter().find(|one| one.phase == "Draining").map(|one| one.name)
    };
    stage.until("one goes", Duration::from_mins(6), |stage| going(stage).is_some()).await;
    let one = going(&stage).unwrap();
    assert!(!is_closed(&stage, &one), "the Node is not tainted yet");
    let other = stage.ready_nodes("workers").into_iter().find(|node| *node != one).unwrap();
    stage.order("pve1", retire(&other)).await;
    let serves = |stage: &Stage| stage.ready_nodes("workers").iter().any(|node| !is_closed(stage, node));
    stage.throughout("one serves", SOON, serves).await;
    stage
        .until("both are gone", SOON, |stage| {
            format!("{}{}", marks(stage, &one), marks(stage, &other)).is_empty()
        })
        .await;
    assert!(serves(&stage), "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_node_that_is_retired_run_on_elsewhere() {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let old = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", retire(&old)).await;
    stage.until("the old Node is gone", Duration::from_mins(10), |stage| marks(stage, &old).is_empty()).await;
    stage.until("the pod runs again", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_a_budget_forbids_ends_the_wish_and_the_node_serves_again() {
    let stage = Stage::running(&format!("{}[limits]\ndrain = \"2m\"\n", quick("")));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.apply(&samples::budget("web", 1)).unwrap();
    let node = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", retire(&node)).await;
    stage.until("the node is being drained", SOON, |stage| is_closed(stage, &node)).await;
    stage.until("it serves again", SOON, |stage| !is_closed(stage, &node)).await;
    stage
        .throughout("the node is left alone", Duration::from_mins(20), |stage| {
            !is_closed(stage, &node) && stage.running_pods() == 1
        })
        .await;
    assert!(!marks(&stage, &node).contains("pve-autoscaler/retire"), "{}", marks(&stage, &node));
    assert!(decided(&stage, &format!("{node} stays: ")), "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_wish_outlives_a_pause_in_the_middle_of_its_drain() {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.apply(&samples::budget("web", 1)).unwrap();
    let node = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", retire(&node)).await;
    stage.until("the node is being drained", SOON, |stage| is_closed(stage, &node)).await;
    stage.order("pve1", Order::Pause { reason: String::new() }).await;
    stage.until("it serves again", SOON, |stage| !is_closed(stage, &node)).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    stage.order("pve1", Order::Resume).await;
    stage.until("the node is drained again", SOON, |stage| is_closed(stage, &node)).await;
    stage.kube.remove("PodDisruptionBudget", "default", "web");
    stage.until("it is gone", Duration::from_mins(10), |stage| marks(stage, &node).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_outlives_another_removal_of_its_node_that_is_given_up() {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    stage.deploy("small", 2, "100m", "128Mi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests" });
    stage.kube.inject(Fault {
        method: "POST".to_owned(),
        path: "/api/v1/namespaces/*/pods/*/eviction".to_owned(),
        times: usize::MAX,
        effect: Effect::Answer { status: 429, body },
    });
    stage.kube.scale("default", "web", 1);
    let drained =
        |stage: &Stage| stage.ready_nodes("workers").into_iter().find(|node| is_closed(stage, node));
    stage.until("one is drained", Duration::from_mins(10), |stage| drained(stage).is_some()).await;
    let node = drained(&stage).unwrap();
    stage.order("pve1", retire(&node)).await;
    // The pods of the drained node no longer fit elsewhere.
    stage.deploy("burst", 1, "400m", "1Gi");
    stage.until("it serves again", SOON, |stage| !is_closed(stage, &node)).await;
    stage.kube.forget_faults();
    stage.until("it is gone", Duration::from_mins(15), |stage| marks(stage, &node).is_empty()).await;
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_pinned_stays_until_it_is_unpinned() {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", Order::Pin { node: node.clone(), reason: String::new() }).await;
    stage.kube.scale("default", "web", 0);
    stage.throughout("it stays", Duration::from_mins(20), |stage| !is_closed(stage, &node)).await;
    let refused = stage.try_order("pve1", retire(&node)).await;
    assert!(refused.unwrap_err().contains("run `unpin` or remove the annotation first"));
    stage.order("pve1", Order::Unpin { node: node.clone() }).await;
    stage.until("it goes", Duration::from_mins(6), |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_given_up_for_a_node_that_is_pinned_meanwhile() {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.apply(&samples::budget("web", 1)).unwrap();
    let node = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", retire(&node)).await;
    stage.until("the node is being drained", SOON, |stage| is_closed(stage, &node)).await;
    stage.order("pve1", Order::Pin { node: node.clone(), reason: String::new() }).await;
    stage.until("it serves again", Duration::from_secs(30), |stage| !is_closed(stage, &node)).await;
    assert_eq!(stage.running_pods(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pin_that_no_watch_shows_yet_keeps_the_node() {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_secs(90)).await;
    stage.stall.set(true);
    stage.order("pve1", pin(&node)).await;
    stage.throughout("its VM runs", SOON, runs).await;
    stage.stall.set(false);
    stage.throughout("the VM runs on", SOON, runs).await;
    assert!(!is_closed(&stage, &node), "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_pin_while_it_is_being_recorded_that_the_vm_is_stopped_keeps_the_node() {
    let stage = Stage::running(&quick(""));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    let volume = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "csi-1" },
        "spec": { "attacher": "csi.example.com", "nodeName": node, "source": { "persistentVolumeName": "data" } },
        "status": { "attached": true },
    });
    stage.kube.apply(&volume).unwrap();
    stage.kube.scale("default", "web", 0);
    stage.order("pve1", retire(&node)).await;
    let waits = |stage: &Stage| stage.status().machines.iter().any(|one| one.why.contains("detached"));
    stage.until("the machine waits for its volume", SOON, waits).await;
    stage.kube.inject(Fault {
        method: "PUT".to_owned(),
        path: "/api/v1/namespaces/pve-autoscaler/configmaps/machine-workers-9100".to_owned(),
        times: usize::MAX,
        effect: Effect::Delay(Duration::from_secs(10)),
    });
    stage.kube.remove("VolumeAttachment", "", "csi-1");
    let stops = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
    stage.until("the machine is to be stopped", SOON, stops).await;
    stage.order("pve1", pin(&node)).await;
    stage.kube.forget_faults();
    stage.throughout("its VM runs", SOON, runs).await;
    assert!(!is_closed(&stage, &node), "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_pin_is_refused_at_any_instance_once_the_vm_is_being_stopped() {
    let mut stage = Stage::new(&quick(""));
    stage.pve.set_guest_faults(9000, GuestFaults { ignores_shutdown: true, ..GuestFaults::default() });
    for host in ["pve1", "pve2"] {
        stage.start_on(host);
    }
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.kube.scale("default", "web", 0);
    stage.order("pve1", retire(&node)).await;
    let stops = |stage: &Stage| {
        let maps = stage.kube.list("ConfigMap");
        maps.iter()
            .any(|map| name(map).starts_with("machine-") && map["data"].to_string().contains("Stopping"))
    };
    stage.until("its VM is being stopped", SOON, stops).await;
    for host in ["pve1", "pve2"] {
        let refused = stage.try_order(host, pin(&node)).await.unwrap_err();
        assert!(refused.contains("its machine is being stopped"), "{host}: {refused}");
        assert!(!marks(&stage, &node).contains("scale-down-disabled"), "{host}: {}", marks(&stage, &node));
    }
    stage.until("it is gone", Duration::from_mins(10), |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_outlives_the_daemon_that_took_it() {
    let mut stage = Stage::running(&quick("min = 1\n"));
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let old = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", retire(&old)).await;
    stage.kill();
    stage.start();
    stage.until("it is gone", Duration::from_mins(10), |stage| marks(stage, &old).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_meant_is_refused_with_the_reason() {
    let stage = Stage::running(&quick(""));
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    stage
        .kube
        .apply(&json!({ "kind": "Node", "metadata": { "name": "by-hand" }, "spec": {}, "status": {} }))
        .unwrap();
    for (node, words) in [("nowhere", "there is no node `nowhere`"), ("by-hand", "belongs to no pool")] {
        for order in [
            retire(node),
            Order::Pin { node: node.to_owned(), reason: String::new() },
            Order::Unpin { node: node.to_owned() },
        ] {
            let refused = stage.try_order("pve1", order.clone()).await.unwrap_err();
            assert!(refused.contains(words), "{order:?}: {refused}");
        }
    }
    stage.order("pve1", Order::Pause { reason: String::new() }).await;
    stage.until("it is paused", SOON, |stage| stage.status().paused.is_some()).await;
    stage.kube.apply(&json!({ "kind": "Node", "metadata": { "name": "ours", "labels": { "pve-autoscaler/pool": "workers" } }, "spec": {}, "status": {} })).unwrap();
    let refused = stage.try_order("pve1", retire("ours")).await.unwrap_err();
    assert!(refused.contains("`resume` first"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_is_known_after_a_restart_and_at_another_instance() {
    let mut stage = Stage::running(&quick(""));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.until("it is said", SOON, |stage| decided(stage, "is ready")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = stage.status().decisions;
    stage.kill();
    stage.start_on("pve2");
    stage.until("pve2 leads", SOON, |stage| stage.leaders() == ["pve2"]).await;
    stage
        .until("it knows", SOON, |stage| {
            let after = stage.status().decisions;
            before.iter().all(|one| after.iter().filter(|other| *other == one).count() == 1)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_orderly_end_forgets_nothing_of_the_last_second() {
    for wait in [0, 20, 100, 400, 900] {
        let mut stage = Stage::running(&quick(""));
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.until("it is said", SOON, |stage| decided(stage, "is ready")).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let before = stage.status().decisions;
        stage.stop().await;
        stage.start();
        stage.until("the daemon is ready again", SOON, |stage| stage.status().ready).await;
        let after = stage.status().decisions;
        assert!(before.iter().all(|one| after.contains(one)), "after {wait} ms: {before:#?}\n{after:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_orderly_end_does_not_wait_for_an_api_that_is_away() {
    let mut stage = Stage::running(&quick(""));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("it is said", SOON, |stage| decided(stage, "is ready")).await;
    stage.wire("pve1").cut();
    let began = tokio::time::Instant::now();
    stage.stop().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_pod_that_must_stay_is_not_retired_and_no_machine_is_made_for_it() {
    let mut stage = Stage::new(&quick("min = 1\n"));
    for host in ["pve1", "pve2"] {
        stage.start_on(host);
    }
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    let alone = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "cache", "namespace": "default" },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    });
    stage.kube.apply(&alone).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    for host in ["pve1", "pve2"] {
        let refused = stage.try_order(host, retire(&node)).await.unwrap_err();
        assert!(refused.contains("pod default/cache must stay (NotReplicated)"), "{host}: {refused}");
    }
    stage.throughout("nothing is made", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
    assert!(!marks(&stage, &node).contains("pve-autoscaler/retire"), "{}", marks(&stage, &node));
}

#[tokio::test(start_paused = true)]
async fn what_a_node_waits_for_that_is_to_be_retired_is_in_the_status() {
    let stage = Stage::running(&quick("min = 1\n").replace("max = 5", "max = 1"));
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.order("pve1", retire(&node)).await;
    let why =
        |stage: &Stage| stage.status().nodes.into_iter().find(|one| one.name == node).map(|one| one.why);
    stage
        .until("it is said", SOON, |stage| {
            why(stage).is_some_and(|why| {
                why.contains("to be retired: its host gets new memory")
                    && why.contains("`max` allows no other node")
            })
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_shown_at_once_and_back_offs_end_when_an_operator_says_so() {
    let mut stage = Stage::new(&quick(""));
    stage.start_on("pve1");
    stage.until("one leads", SOON, |stage| stage.leaders() == ["pve1"]).await;
    stage.order("pve1", Order::Pause { reason: "now".to_owned() }).await;
    assert_eq!(stage.status().paused.map(|pause| pause.reason).as_deref(), Some("now"));
    stage.order("pve1", Order::Resume).await;
    assert_eq!(stage.status().paused, None);
    stage.start_on("pve2");
    stage.pve.set_guest_faults(9000, GuestFaults { agent_never: true, ..GuestFaults::default() });
    stage.deploy("web", 1, "1500m", "1Gi");
    let left_alone = |stage: &Stage| {
        let status = stage.status();
        status.hosts.iter().any(|host| host.backoff_until.is_some())
            || status.pools.iter().any(|pool| pool.backoff_until.is_some())
    };
    stage.until("a back-off begins", Duration::from_mins(15), left_alone).await;
    stage.pve.set_guest_faults(9000, GuestFaults::default());
    let refused = stage.try_order("pve1", Order::Retry { name: Some("pve9".to_owned()) }).await;
    assert!(refused.unwrap_err().contains("no pool or host `pve9`"));
    // The leader carries out an order that was given to a standby.
    stage.order("pve2", Order::Retry { name: None }).await;
    stage.until("the back-off ends", Duration::from_secs(30), |stage| !left_alone(stage)).await;
    assert!(decided(&stage, "back-off ended; its cause was"), "{}", stage.scene());
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

/// A configuration with at most one machine, which may grow.
fn growing() -> String {
    format!("{ONE_POOL}[pool.grow]\nmax_cores = 6\nmax_memory = \"12GiB\"\n").replace("max = 5", "max = 1")
}

/// A stage with a machine that could not grow. For a while, the daemon does not try again.
async fn left_as_it_is() -> Stage {
    let mut stage = Stage::new(&growing());
    stage.pve.change_access(|access| {
        access.roles.get_mut("KasWorker").unwrap().push("VM.Config.HWType".to_owned());
    });
    stage.pve.set_guest_faults(9000, GuestFaults { deaf_to_plugs: true, ..GuestFaults::default() });
    stage.start();
    stage.deploy("first", 1, "1", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.deploy("large", 1, "1500m", "4Gi");
    stage.until("the growth is given up", SOON, |stage| decided(stage, "it has 2 of 3 CPUs")).await;
    stage
}

const GROWS_AGAIN: &str = "growing workers-";

#[tokio::test(start_paused = true)]
async fn a_growth_is_tried_again_where_no_instance_led_when_an_operator_said_so() {
    let mut stage = left_as_it_is().await;
    stage.start_on("pve2");
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.kill();
    stage.order("pve2", Order::Retry { name: None }).await;
    stage.until("pve2 leads", SOON, |stage| stage.leaders() == ["pve2"]).await;
    stage.until("the growth is retried", Duration::from_mins(1), |stage| decided(stage, GROWS_AGAIN)).await;
    let cores = |stage: &Stage| stage.pve.config_of(9100, "vcpus");
    assert_eq!(cores(&stage).as_deref(), Some("3"));
    stage.until("and it is", SOON, |stage| cores(stage).as_deref() == Some("4")).await;
}

#[tokio::test(start_paused = true)]
async fn the_growth_of_a_machine_that_is_busy_is_tried_again_once_it_is_not() {
    let stage = left_as_it_is().await;
    let node = stage.ready_nodes("workers").remove(0);
    // The machine's task tries to restore the label that its Node has lost; for the moment, this fails.
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503 });
    stage.kube.inject(Fault {
        method: "PATCH".to_owned(),
        path: "/api/v1/nodes/*".to_owned(),
        times: usize::MAX,
        effect: Effect::Answer { status: 503, body },
    });
    let without = json!({ "metadata": { "labels": { "pve-autoscaler/pool": null } } });
    assert!(stage.kube.patch_by_hand("Node", "", &node, &without));
    tokio::time::sleep(Duration::from_secs(15)).await;
    stage.order("pve1", Order::Retry { name: Some("workers".to_owned()) }).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(!decided(&stage, GROWS_AGAIN), "a task is still working on the machine: {}", stage.scene());
    stage.kube.forget_faults();
    stage.until("the growth is retried", Duration::from_mins(1), |stage| decided(stage, GROWS_AGAIN)).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_observes_ends_no_back_off_of_a_machine_that_was_busy() {
    let stage = left_as_it_is().await;
    let node = stage.ready_nodes("workers").remove(0);
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503 });
    stage.kube.inject(Fault {
        method: "PATCH".to_owned(),
        path: "/api/v1/nodes/*".to_owned(),
        times: usize::MAX,
        effect: Effect::Answer { status: 503, body },
    });
    let without = json!({ "metadata": { "labels": { "pve-autoscaler/pool": null } } });
    assert!(stage.kube.patch_by_hand("Node", "", &node, &without));
    tokio::time::sleep(Duration::from_secs(15)).await;
    stage.order("pve1", Order::Retry { name: Some("workers".to_owned()) }).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    stage.reload(&growing().replacen("cluster", "mode = \"observe\"\ncluster", 1));
    tokio::time::sleep(Duration::from_secs(15)).await;
    stage.kube.forget_faults();
    stage
        .until("the machine's task has ended", Duration::from_mins(10), |stage| {
            stage.ready_nodes("workers") == [node.clone()]
        })
        .await;
    let since = stage.now();
    let quiet = |stage: &Stage| {
        let written = |one: &Arrived| one.what.contains("/configmaps/machine-");
        stage.log("pve1").writes_after(since).iter().all(|one| !written(one)) && !decided(stage, GROWS_AGAIN)
    };
    stage.throughout("no record is written", Duration::from_mins(5), quiet).await;
}
