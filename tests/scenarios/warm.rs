//! Machines that are kept ahead of demand: stopped, booted, or suspended with their memory.

use std::time::Duration;

use model::Vmid;
use pve_autoscaler::model::machine::WarmState;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::{ClusterSpec, Grant, VmSpec};
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

pub const SOON: Duration = Duration::from_mins(3);
pub const STATES: [WarmState; 3] = [WarmState::Stopped, WarmState::Booted, WarmState::Suspended];

/// A configuration with one pool that keeps this many machines warm in this state.
pub fn keeping(count: u32, state: WarmState) -> String {
    format!("{ONE_POOL}warm = {{ count = {count}, state = \"{}\" }}\n", state.name())
}

/// The number of waiting machines, as the daemon reports it.
pub fn waiting(stage: &Stage) -> usize {
    stage.status().machines.iter().filter(|machine| machine.phase == "Warm").count()
}

/// The number of Secrets with bootstrap tokens.
pub fn tokens(stage: &Stage) -> usize {
    stage.leftovers().iter().filter(|name| name.starts_with("bootstrap-token-")).count()
}

/// Whether a VM is in the state in which it should wait.
pub fn rests(stage: &Stage, vmid: Vmid, state: WarmState) -> bool {
    let vm = stage.pve.vm(vmid.0).unwrap();
    let lock = vm.config.get("lock").map(String::as_str);
    match state {
        WarmState::Stopped => !vm.running && lock.is_none(),
        WarmState::Booted => vm.running && lock.is_none(),
        WarmState::Suspended => !vm.running && lock == Some("suspended") && vm.config.contains_key("vmstate"),
    }
}

#[tokio::test(start_paused = true)]
async fn machines_wait_without_a_token_and_join_sooner_the_warmer_they_are() {
    let mut took = Vec::new();
    for cold in ["clone = \"full\"\n", ""] {
        let cold = Stage::running(&format!("{ONE_POOL}{cold}"));
        cold.deploy("web", 1, "1", "1Gi");
        took.push(cold.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await);
    }
    for state in STATES {
        let stage = Stage::running(&keeping(1, state));
        stage.until("one waits", SOON, |stage| waiting(stage) == 1).await;
        assert!(rests(&stage, Vmid(9100), state), "{state:?}");
        assert_eq!((tokens(&stage), stage.ready_nodes("workers").len()), (0, 0), "{state:?}");
        // The clock of a suspended guest stands still. If it has fallen too far behind for certificates, the
        // daemon sets it before the join.
        let rest = if state == WarmState::Suspended { 6 } else { 1 };
        tokio::time::sleep(Duration::from_mins(rest)).await;
        assert_eq!(stage.vms(9100..=9109), [9100], "{state:?}");
        stage.deploy("web", 1, "1", "1Gi");
        took.push(stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await);
        assert_eq!(stage.ready_nodes("workers").len(), 1);
        // The number of warm machines is restored.
        stage.until("another waits", SOON, |stage| waiting(stage) == 1).await;
        assert_eq!(stage.vms(9100..=9109), [9100, 9101], "{state:?}");
        stage.until("the token is gone", SOON, |stage| tokens(stage) == 0).await;
    }
    let [full, linked, stopped, booted, suspended] = took[..] else { panic!("{took:?}") };
    // A linked clone is so quick that the variation of boot times may hide the time it takes. A full clone, a
    // boot, or reading memory takes longer.
    let stopped_at_best = stopped.saturating_sub(Duration::from_secs(4));
    assert!(linked < full && stopped_at_best < linked && stopped < full, "{took:?}");
    assert!(suspended < stopped && booted < suspended, "{took:?}");
    assert!(booted < Duration::from_secs(12), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_where_it_was_put_though_the_last_look_saw_it_with_its_template() {
    let text = keeping(1, WarmState::Stopped).replace("bridge =", "hosts = [\"pve2\"]\nbridge =");
    let mut stage = Stage::new(&format!("{text}clone = \"full\"\n"));
    // The token can see VMs outside the resource pool, and therefore sees a clone as soon as it exists.
    stage.pve.change_access(|access| {
        access.roles.insert("See".into(), vec!["VM.Audit".into()]);
        for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
            let (path, role, who) = ("/vms".into(), "See".into(), who.into());
            access.grants.push(Grant { path, who, role, propagate: true });
        }
    });
    stage.start();
    let there = |stage: &Stage| stage.status().machines.iter().all(|machine| machine.host == "pve2");
    for second in 0..90 {
        // Each deployment triggers a round, which may use an older read of the hosts.
        stage.deploy(&format!("big-{second}"), 1, "64", "1Gi");
        stage.throughout("the machine is on pve2", Duration::from_secs(1), there).await;
    }
    assert_eq!(waiting(&stage), 1);
    // If a machine is moved, the daemon follows it, and replaces it with a machine on a host that its pool
    // may use.
    stage.pve.migrate_by_hand(9100, "pve3");
    stage.until("the move is noticed", Duration::from_mins(2), |stage| !there(stage)).await;
    let replaced = |stage: &Stage| waiting(stage) == 1 && there(stage) && stage.vms(9100..=9109) == [9101];
    stage.until("another one waits", Duration::from_mins(5), replaced).await;
}

#[tokio::test(start_paused = true)]
async fn machines_go_when_fewer_are_kept_and_leave_nothing() {
    for state in STATES {
        let stage = Stage::running(&keeping(2, state));
        stage.until("two wait", SOON, |stage| waiting(stage) == 2).await;
        stage.reload(&keeping(1, state));
        stage.until("one is left", SOON, |stage| stage.vms(9100..=9109) == [9100]).await;
        stage.reload(ONE_POOL);
        stage.until("none is left", SOON, |stage| stage.vms(9100..=9109).is_empty()).await;
        stage.until("no record is left", SOON, |stage| stage.leftovers().is_empty()).await;
        let left = [9100, 9101].map(|vmid| stage.pve.volumes_of(vmid)).concat();
        assert_eq!(left, Vec::<String>::new(), "{state:?}");
        assert!(stage.status().problems.is_empty(), "{:?}", stage.status().problems);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_go_than_are_too_many_though_their_hosts_are_slow() {
    let stage = Stage::running(&keeping(3, WarmState::Stopped));
    stage.until("three wait", SOON, |stage| waiting(stage) == 3).await;
    stage.pve.inject(Fault {
        method: "GET".to_owned(),
        path: "/nodes/*/qemu/*/config".to_owned(),
        times: usize::MAX,
        effect: Effect::Delay(Duration::from_secs(5)),
    });
    stage.reload(&keeping(1, WarmState::Stopped));
    let one_waits = |stage: &Stage| waiting(stage) >= 1;
    stage.throughout("one waits", Duration::from_secs(30), one_waits).await;
    stage.pve.forget_faults();
    stage.until("one is left", SOON, |stage| one_waits(stage) && stage.vms(9100..=9109) == [9100]).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_killed_while_it_makes_a_warm_machine_goes_on() {
    for state in STATES {
        // After its start, the daemon needs about twenty calls to read everything once.
        for calls in [26, 42, 58] {
            let mut stage = Stage::new(&keeping(1, state));
            stage.start_until(calls);
            tokio::time::sleep(Duration::from_mins(1)).await;
            stage.kill();
            stage.start();
            stage.until("one waits", SOON, |stage| waiting(stage) == 1).await;
            assert_eq!(stage.vms(9100..=9109).len(), 1, "killed after {calls} calls, {state:?}");
            stage.deploy("web", 1, "1", "1Gi");
            stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_killed_while_it_wakes_a_machine_goes_on() {
    for state in STATES {
        for more in [3, 9] {
            let mut stage = Stage::running(&keeping(1, state));
            stage.until("one waits", SOON, |stage| waiting(stage) == 1).await;
            stage.kill();
            let before = stage.calls.load(std::sync::atomic::Ordering::Relaxed);
            stage.deploy("web", 1, "1", "1Gi");
            stage.start_until(before + 20 + more);
            tokio::time::sleep(Duration::from_secs(30)).await;
            stage.kill();
            stage.start();
            stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
            stage.until("another waits", SOON, |stage| waiting(stage) == 1).await;
            assert_eq!(stage.ready_nodes("workers").len(), 1, "{state:?} after {more}");
            stage.until("two are there", SOON, |stage| stage.vms(9100..=9109).len() == 2).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_killed_once_a_suspended_guest_goes_on_knows_that_its_clock_is_old() {
    let mut stage = Stage::running(&keeping(1, WarmState::Suspended));
    stage.until("one waits", SOON, |stage| waiting(stage) == 1).await;
    let name = stage.status().machines[0].name.clone();
    tokio::time::sleep(Duration::from_mins(6)).await;
    // The daemon calls the guest only after this call is answered.
    let (method, path) = ("POST".to_owned(), "/nodes/*/qemu/9100/config".to_owned());
    let effect = Effect::Delay(Duration::from_mins(1));
    stage.pve.inject(Fault { method, path, times: usize::MAX, effect });
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("it goes on", SOON, |stage| stage.pve.vm(9100).unwrap().running).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.kill();
    stage.pve.forget_faults();
    stage.start();
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.ready_nodes("workers"), [name], "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_other_settings_is_made_again() {
    let stage = Stage::running(&keeping(2, WarmState::Stopped));
    stage.until("two wait", SOON, |stage| waiting(stage) == 2).await;
    let larger = keeping(2, WarmState::Stopped).replace("max = 5", "max = 5\ndisk = \"40GiB\"");
    stage.reload(&larger);
    let names: Vec<String> = stage.status().machines.into_iter().map(|machine| machine.name).collect();
    let others = |stage: &Stage| {
        let machines = stage.status().machines;
        waiting(stage) == 2 && machines.iter().all(|machine| !names.contains(&machine.name))
    };
    stage.until("both are others", SOON * 2, others).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_an_administrator_stopped_started_or_removed_is_made_again() {
    for (state, what) in [
        (WarmState::Booted, "stopped"),
        (WarmState::Stopped, "started"),
        (WarmState::Stopped, "removed"),
        (WarmState::Suspended, "removed"),
        (WarmState::Stopped, "replaced"),
    ] {
        let stage = Stage::running(&keeping(1, state));
        stage.until("one waits", SOON, |stage| waiting(stage) == 1).await;
        let name = stage.status().machines[0].name.clone();
        match what {
            "stopped" => stage.pve.stop_by_hand(9100),
            "started" => stage.pve.start_by_hand(9100),
            "removed" => {
                stage.pve.delete_by_hand(9100);
                assert_eq!(stage.pve.volumes_of(9100), Vec::<String>::new(), "the memory is deleted, too");
            }
            _ => {
                let host = stage.pve.vm(9100).unwrap().node;
                stage.pve.delete_by_hand(9100);
                let mut other = VmSpec::machine(9100, &host, "taken");
                other.pool = Some("k8s-workers".to_owned());
                assert!(stage.pve.create_by_hand(other));
            }
        }
        let other = |stage: &Stage| waiting(stage) == 1 && stage.status().machines[0].name != name;
        stage.until("another waits", SOON, other).await;
        stage.deploy("web", 1, "1", "1Gi");
        stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        if what == "replaced" {
            assert_eq!(stage.pve.vm(9100).unwrap().config["name"], "taken", "the unmanaged VM is left alone");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn observing_makes_no_warm_machine() {
    let text = keeping(1, WarmState::Booted).replacen("cluster", "mode = \"observe\"\ncluster", 1);
    let stage = Stage::running(&text);
    stage.throughout("nothing is made", SOON, |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_pool_goes_while_it_boots_is_not_suspended_first() {
    let settings = keeping(1, WarmState::Suspended);
    let stage = Stage::running(&settings);
    let boots = |stage: &Stage| {
        stage.status().machines.iter().any(|one| one.vmid == Vmid(9100) && one.phase == "Booting")
    };
    stage.until("it boots", SOON, boots).await;
    let (_, pool) = ONE_POOL.split_once("[[pool]]").unwrap();
    let other = pool.replace("workers", "others").replace("91", "92").replace("10.10.10.", "10.10.20.");
    stage.reload(&ONE_POOL.replace(pool, &other));
    stage.until("it is gone", Duration::from_mins(20), |stage| stage.vms(9100..=9109).is_empty()).await;
    let tasks = stage.pve.task_exits();
    let suspended = tasks.iter().any(|(upid, _)| upid.contains(":qmsuspend:"));
    assert!(!suspended, "{tasks:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_warm_machine_that_boots_or_is_suspended_holds_up_no_other() {
    let text = format!("{}[limits]\nmax_parallel_creates = 1\n", keeping(2, WarmState::Suspended));
    let mut spec = ClusterSpec::demo();
    // Writing a machine's memory takes more than a minute.
    spec.timings.full_clone_rate = 20 << 20;
    let mut stage = Stage::of(&text, spec, KubeSpec::demo());
    stage.start();
    stage.until("both are there", SOON, |stage| stage.vms(9100..=9109).len() == 2).await;
    assert_eq!(waiting(&stage), 0, "the first machine is not suspended yet: {}", stage.scene());
    stage.until("both wait", SOON * 2, |stage| waiting(stage) == 2).await;
}
