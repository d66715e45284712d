//! Locks that another client's work has left on a machine's VM: a token cannot remove them.

use std::time::Duration;

use pve_autoscaler::observability::Order;
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);
/// A time limit for tests with locks. The daemon waits for a lock as long as a clone may take.
const LOCKED: Duration = Duration::from_mins(12);

/// The reason that the status shows for the only machine.
fn why(stage: &Stage) -> String {
    stage.status().machines.first().map(|machine| machine.why.clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_off_and_stays_locked_is_reported_and_starts_once_it_is_unlocked() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.pve.set_config_by_hand(9100, "lock", Some("backup"));
    stage.pve.stop_by_hand(9100);
    let host = stage.pve.vm(9100).unwrap().node;
    let command = format!("to fix it: on {host}: qm unlock 9100");
    stage.until("the lock is reported", LOCKED, |stage| why(stage).ends_with(&command)).await;
    assert!(!stage.pve.vm(9100).unwrap().running);
    stage.pve.set_config_by_hand(9100, "lock", None);
    stage.until("the VM runs again", LOCKED, |stage| stage.pve.vm(9100).is_some_and(|vm| vm.running)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_goes_by_itself_is_nothing_to_report() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.pve.set_config_by_hand(9100, "lock", Some("backup"));
    stage.pve.stop_by_hand(9100);
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert!(!why(&stage).contains("qm unlock"), "{}", why(&stage));
    stage.pve.set_config_by_hand(9100, "lock", None);
    stage.until("the pod runs again", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_takes_longer_than_it_may_is_no_stale_lock() {
    let limit = "[limits]\nclone = \"10s\"\n[[pool]]";
    let text = ONE_POOL.replace("[[pool]]", limit).replace("max = 5", "max = 1\nclone = \"full\"");
    let stage = Stage::running(&text);
    stage.pve.inject(Fault {
        method: "POST".into(),
        path: "/nodes/*/qemu/9000/clone".into(),
        times: 1,
        effect: Effect::WorkThenTimeOut,
    });
    stage.deploy("web", 1, "1500m", "1Gi");
    let clones = |stage: &Stage| stage.pve.config_of(9100, "lock").is_some_and(|lock| lock == "clone");
    stage.until("the template is cloned", SOON, clones).await;
    while clones(&stage) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!why(&stage).contains("is still locked"), "{}", why(&stage));
    }
    stage.until("the failed clone is cleaned up", SOON, |stage| stage.leftovers().is_empty()).await;
}

/// Decisions that say that a machine could not be created.
fn failures(stage: &Stage) -> Vec<String> {
    let decisions = stage.status().decisions.into_iter().map(|one| one.what);
    decisions.filter(|what| what.contains("locked") || what.contains("failed")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_locked_for_a_backup_is_cloned_once_it_is_not() {
    for (locked, limit) in [(Duration::from_mins(1), SOON), (Duration::from_mins(20), SOON)] {
        let stage = Stage::running(ONE_POOL);
        stage.pve.set_config_by_hand(9000, "lock", Some("backup"));
        tokio::time::sleep(Duration::from_secs(15)).await;
        stage.deploy("web", 1, "1500m", "1Gi");
        let why = |stage: &Stage| stage.status().pools.iter().find_map(|pool| pool.backoff.clone());
        let told = |stage: &Stage| why(stage).is_some_and(|why| why.contains("it is locked (backup)"));
        stage.until("the lock is reported", SOON, told).await;
        stage.throughout("no clone is requested", locked, |stage| stage.vms(9100..=9109).is_empty()).await;
        assert_eq!(failures(&stage), [""; 0]);
        stage.pve.set_config_by_hand(9000, "lock", None);
        stage.until("the pod runs", limit, |stage| stage.running_pods() == 1).await;
        assert_eq!((failures(&stage), why(&stage)), (Vec::new(), None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_comes_just_before_a_clone_or_a_start_is_waited_for() {
    let stage = Stage::new(ONE_POOL);
    let said = "VM is locked (backup)".to_owned();
    let effect = Effect::Answer { status: 500, reason: said.clone(), body: "{\"data\":null}".to_owned() };
    for path in ["/nodes/*/qemu/9000/clone", "/nodes/*/qemu/*/status/start"] {
        let (method, path) = ("POST".to_owned(), path.to_owned());
        stage.pve.inject(Fault { method, path, times: 3, effect: effect.clone() });
    }
    let mut stage = stage;
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(failures(&stage), [""; 0]);
    assert_eq!(stage.vms(9100..=9109), [9100], "the first machine was not given up");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_vm_stays_locked_serves_on_and_goes_once_it_is_unlocked() {
    let quick = "[scale_down]\nunneeded_time = \"2m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let stage = Stage::running(&ONE_POOL.replace("[[pool]]", quick));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.pve.set_config_by_hand(9100, "lock", Some("backup"));
    stage.kube.scale("default", "web", 0);
    let serves = |stage: &Stage| {
        let seen = stage.kube.get("Node", "", &node);
        let open = seen.is_some_and(|node| !node["spec"]["taints"].is_array());
        open && stage.pve.vm(9100).is_some_and(|vm| vm.running)
    };
    stage.throughout("the node serves", Duration::from_mins(30), serves).await;
    let said = |stage: &Stage| stage.status().decisions.iter().any(|one| one.what.contains("qm unlock 9100"));
    assert!(said(&stage), "{}", stage.scene());
    stage.pve.set_config_by_hand(9100, "lock", None);
    stage.until("the VM is gone", Duration::from_mins(30), |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_a_node_whose_vm_is_locked_waits_and_is_followed_once_it_is_unlocked() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.pve.set_config_by_hand(9100, "lock", Some("backup"));
    stage.order("pve1", Order::Retire { node: node.clone(), reason: "new memory".to_owned() }).await;
    let serves = |stage: &Stage| {
        let seen = stage.kube.get("Node", "", &node);
        let open = seen.is_some_and(|node| !node["spec"]["taints"].is_array());
        open && stage.pve.vm(9100).is_some_and(|vm| vm.running)
    };
    stage.throughout("the node serves", Duration::from_mins(30), serves).await;
    let said = stage.status().decisions.into_iter().filter(|one| one.what.contains("qm unlock 9100"));
    assert!((2..=30).contains(&said.count()), "{}", stage.scene());
    stage.pve.set_config_by_hand(9100, "lock", None);
    stage
        .until("VM 9100 is gone", Duration::from_mins(10), |stage| !stage.vms(9100..=9109).contains(&9100))
        .await;
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}
