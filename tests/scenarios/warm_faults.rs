//! Faults of machines that are kept ahead of demand: while they are being stopped or suspended, while they
//! wait, or while they are woken.

use std::time::Duration;

use pve_autoscaler::model::machine::WarmState;
use pve_autoscaler::observability::Order;
use world::proxmox::{Effect, Fault, TaskFault};

use crate::stage::{ONE_POOL, Stage};
use crate::warm::{SOON, STATES, keeping, rests, tokens, waiting};
use pve_autoscaler::model::Vmid;

/// Longer than the back-off of a pool after one of its machines is given up.
const LATE: Duration = Duration::from_mins(30);

/// A stage with one waiting machine.
async fn with_one_waiting(state: WarmState) -> Stage {
    let stage = Stage::running(&keeping(1, state));
    stage.until("one waits", SOON, |stage| waiting(stage) == 1).await;
    stage
}

/// Waits until the pod runs on one node, another machine waits, and nothing else exists.
async fn ends_well(stage: &Stage, what: &str) {
    stage.until(&format!("{what}: the pod runs"), LATE, |stage| stage.running_pods() == 1).await;
    let calm = |stage: &Stage| {
        waiting(stage) == 1
            && stage.ready_nodes("workers").len() == 1
            && stage.vms(9100..=9109).len() == 2
            && tokens(stage) == 0
    };
    stage.until(&format!("{what}: another waits"), LATE, calm).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_costs_a_moment() {
    for (state, fault) in [
        (WarmState::Stopped, TaskFault::Fails("start failed: QEMU exited with code 1".into())),
        (WarmState::Suspended, TaskFault::Fails("cannot read the state".into())),
        (WarmState::Suspended, TaskFault::Dies(Duration::from_secs(1))),
        (WarmState::Stopped, TaskFault::Forgotten),
    ] {
        let stage = with_one_waiting(state).await;
        stage.pve.inject_task("qmstart", fault.clone());
        stage.deploy("web", 1, "1", "1Gi");
        ends_well(&stage, &format!("{state:?}, {fault:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_memory_cannot_be_written_is_suspended_later_or_made_again() {
    for fault in [TaskFault::Fails("no space left on device".into()), TaskFault::Forgotten] {
        let mut stage = Stage::new(&keeping(1, WarmState::Suspended));
        stage.pve.inject_task("qmsuspend", fault.clone());
        stage.start();
        stage.until(&format!("{fault:?}: one waits"), LATE, |stage| waiting(stage) == 1).await;
        stage.deploy("web", 1, "1", "1Gi");
        ends_well(&stage, &format!("{fault:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspension_that_is_killed_leaves_a_lock_that_an_administrator_is_told_of() {
    let mut stage = Stage::new(&keeping(1, WarmState::Suspended));
    stage.pve.inject_task("qmsuspend", TaskFault::Dies(Duration::from_secs(1)));
    stage.start();
    stage.until("another waits", LATE, |stage| waiting(stage) == 1).await;
    let told = |stage: &Stage| stage.status().machines.iter().any(|one| one.why.contains("qm unlock 9100"));
    stage.until("the command for unlocking the VM is reported", LATE, told).await;
    // The removal is retried again and again, and the report stays visible.
    for _ in 0..3 {
        tokio::time::sleep(SOON * 2).await;
        stage.until("the command is still reported", SOON, told).await;
    }
    stage.pve.set_config_by_hand(9100, "lock", None);
    stage.until("the unlocked VM is gone", LATE, |stage| stage.vms(9100..=9109) == [9101]).await;
    assert_eq!(stage.pve.volumes_of(9100), Vec::<String>::new());
    stage.deploy("web", 1, "1", "1Gi");
    ends_well(&stage, "unlocked").await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_loses_its_power_takes_no_turn() {
    for state in [WarmState::Booted, WarmState::Suspended] {
        // The template is on another host, which keeps running.
        let elsewhere = keeping(1, state).replacen("max = 5", "max = 5\nhosts = [\"pve2\", \"pve3\"]", 1);
        let stage = Stage::running(&elsewhere);
        stage.until("one waits", SOON, |stage| waiting(stage) == 1).await;
        let host = stage.pve.vm(9100).unwrap().node;
        stage.pve.power_off_host(&host);
        stage.deploy("web", 1, "1", "1Gi");
        stage.until(&format!("{state:?}: the pod runs"), LATE, |stage| stage.running_pods() == 1).await;
        stage.pve.power_on_host(&host);
        ends_well(&stage, &format!("{state:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn those_that_rest_are_not_started_with_their_host_before_they_are_woken() {
    for state in [WarmState::Stopped, WarmState::Suspended] {
        let stage = with_one_waiting(state).await;
        let (name, host) = (stage.status().machines[0].name.clone(), stage.pve.vm(9100).unwrap().node);
        stage.pve.power_off_host(&host);
        tokio::time::sleep(Duration::from_mins(1)).await;
        stage.pve.power_on_host(&host);
        tokio::time::sleep(SOON).await;
        let machines: Vec<String> = stage.status().machines.into_iter().map(|one| one.name).collect();
        assert_eq!((machines, waiting(&stage)), (vec![name], 1), "{state:?}");
        assert!(rests(&stage, Vmid(9100), state), "{state:?}");
        stage.deploy("web", 1, "1", "1Gi");
        ends_well(&stage, &format!("{state:?}")).await;
        assert_eq!(stage.pve.config_of(9100, "onboot").as_deref(), Some("1"), "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_says_nothing_once_it_is_woken_is_made_again() {
    for state in [WarmState::Booted, WarmState::Suspended] {
        let stage = with_one_waiting(state).await;
        stage.deploy("web", 1, "1", "1Gi");
        let asked = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running);
        stage.until("it runs", SOON, asked).await;
        stage.pve.silence_agent(9100, Duration::from_hours(2));
        ends_well(&stage, &format!("{state:?}")).await;
    }
}

/// Waits until the pod runs, and asserts that another client's changes to the machine cause no back-off of a
/// minute or longer.
async fn runs_without_blame(stage: &Stage) {
    stage.deploy("web", 1, "1", "1Gi");
    let runs = |stage: &Stage| {
        let blamed = stage.status().pools.into_iter().filter_map(|pool| pool.backoff);
        let long: Vec<String> = blamed.filter(|why| why.contains(" min: ")).collect();
        assert!(long.is_empty(), "{long:?}");
        stage.running_pods() == 1
    };
    stage.until("the pod runs", SOON, runs).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_was_removed_before_it_is_woken_costs_a_moment() {
    let stage = with_one_waiting(WarmState::Stopped).await;
    stage.pve.delete_by_hand(9100);
    runs_without_blame(&stage).await;
    ends_well(&stage, "removed").await;
}

#[tokio::test(start_paused = true)]
async fn one_that_was_moved_is_woken_where_it_is() {
    let stage = with_one_waiting(WarmState::Stopped).await;
    let to = if stage.pve.vm(9100).unwrap().node == "pve3" { "pve2" } else { "pve3" };
    stage.pve.migrate_by_hand(9100, to);
    runs_without_blame(&stage).await;
    let vm = stage.pve.vm(9100).unwrap();
    assert!(vm.running && vm.node == to);
    ends_well(&stage, "moved").await;
}

#[tokio::test(start_paused = true)]
async fn another_leader_wakes_what_the_last_one_kept() {
    for (state, after) in STATES.into_iter().zip([0, 2, 5]) {
        let mut stage = Stage::new(&keeping(1, state));
        for host in ["pve1", "pve2"] {
            stage.start_on(host);
        }
        stage
            .until("one waits", SOON, |stage| {
                ["pve1", "pve2"].iter().any(|host| {
                    let machines = stage.status_of(host).machines;
                    stage.leaders() == [*host] && machines.iter().any(|machine| machine.phase == "Warm")
                })
            })
            .await;
        let leader = stage.leaders()[0].to_owned();
        stage.deploy("web", 1, "1", "1Gi");
        tokio::time::sleep(Duration::from_secs(after)).await;
        stage.kill_on(&leader);
        let what = format!("{state:?}, killed after {after} s");
        stage.until(&format!("{what}: the pod runs"), LATE, |stage| stage.running_pods() == 1).await;
        assert_eq!(stage.pve.vm(9100).map(|vm| vm.running), Some(true), "{what}");
        let calm = |stage: &Stage| stage.vms(9100..=9109).len() == 2 && tokens(stage) == 0;
        stage.until(&format!("{what}: another machine is kept"), LATE, calm).await;
        assert_eq!(stage.ready_nodes("workers").len(), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_all_is_paused_none_is_made_and_none_is_woken() {
    for state in [WarmState::Stopped, WarmState::Booted] {
        let stage = with_one_waiting(state).await;
        let was = stage.pve.vm(9100).unwrap().running;
        stage.order("pve1", Order::Pause { reason: "storage is moved".to_owned() }).await;
        stage.deploy("web", 1, "1", "1Gi");
        stage
            .throughout("nothing is woken", SOON, |stage| {
                stage.vms(9100..=9109) == [9100]
                    && stage.pve.vm(9100).is_some_and(|vm| vm.running == was)
                    && tokens(stage) == 0
            })
            .await;
        stage.order("pve1", Order::Resume).await;
        ends_well(&stage, &format!("{state:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn those_that_go_at_the_same_time_wait_for_no_place_that_another_one_has() {
    let stage = Stage::running(&keeping(3, WarmState::Stopped));
    stage.until("three wait", SOON, |stage| waiting(stage) == 3).await;
    let host = |vmid| stage.pve.vm(vmid).map(|vm| vm.node);
    assert!([9101, 9102].iter().all(|vmid| host(*vmid) == host(9100)), "they share a host");
    // No earlier answer is recent enough, so each configuration is read once more before a VM is destroyed.
    stage.pve.inject(Fault {
        method: "GET".to_owned(),
        path: "/nodes/*/qemu/*/config".to_owned(),
        times: usize::MAX,
        effect: Effect::Delay(Duration::from_secs(5)),
    });
    stage.reload(ONE_POOL);
    stage.until("all are gone", SOON * 3, |stage| stage.vms(9100..=9109).is_empty()).await;
}
