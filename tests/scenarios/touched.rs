//! Administrators or tools change a machine's VM. In every phase, the daemon reports the change, and the user
//! who made it, within half a minute. In the end, the pods run.

use std::time::Duration;

use jiff::SignedDuration;
use model::Vmid;
use serde_json::json;
use world::guest::GuestFaults;
use world::kubernetes::{Effect, Fault};
use world::proxmox::Touch;

use crate::stage::{ONE_POOL, Stage};

/// The time within which a change must be reported.
const NOTICED: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_mins(5);
/// Longer than the time for which a kubelet may be silent, and longer than a pool's back-off.
const LATE: Duration = Duration::from_mins(30);
const WHO: &str = "root@pam";

/// The phase that the machine has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Booting,
    Joining,
    Registered,
    Ready,
}

const PHASES: [At; 4] = [At::Booting, At::Joining, At::Registered, At::Ready];

/// A stage whose only machine is in this phase, and stays in it for longer than the daemon may take to notice
/// a change.
async fn at(phase: At) -> Stage {
    at_with(phase, SignedDuration::ZERO).await
}

/// Like [`at`], but the clock of the daemon's host is ahead by this much.
async fn at_with(phase: At, ahead: SignedDuration) -> Stage {
    let mut stage = Stage::new(ONE_POOL);
    stage.ahead = ahead;
    let slow = Duration::from_secs(90);
    let faults = match phase {
        At::Booting => GuestFaults { agent_late: slow, ..GuestFaults::default() },
        At::Joining => GuestFaults { starting_for: slow, ..GuestFaults::default() },
        At::Registered | At::Ready => GuestFaults::default(),
    };
    stage.pve.set_guest_faults(9000, faults);
    stage.kube.set_nodes_never_ready(phase == At::Registered);
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    let reached = |stage: &Stage| {
        let machines = stage.status().machines;
        machines.iter().any(|one| one.vmid == Vmid(9100) && one.phase == format!("{phase:?}"))
    };
    stage.until(&format!("the machine is {phase:?}"), SOON, reached).await;
    // After this time, the list shows the VM's current state.
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(reached(&stage), "{}", stage.scene());
    stage
}

fn said(stage: &Stage, words: &str) -> bool {
    stage.status().decisions.iter().any(|one| one.what.contains(words))
}

fn machine(stage: &Stage, vmid: Vmid) -> bool {
    stage.status().machines.iter().any(|one| one.vmid == vmid)
}

fn elsewhere(stage: &Stage) -> String {
    let host = stage.pve.vm(9100).unwrap().node;
    ["pve1", "pve2", "pve3"].iter().find(|one| **one != host).unwrap().to_string()
}

/// Changes the VM in each phase, and asserts that this is reported in time and in these words, and that the
/// pod runs in the end.
async fn in_every_phase(touch: impl Fn(&Stage) -> (Touch, String)) {
    for phase in PHASES {
        let stage = at(phase).await;
        let (touch, words) = touch(&stage);
        stage.pve.touch(9100, WHO, &touch);
        let what = format!("reported in phase {phase:?}: {words}");
        stage.until(&what, NOTICED, |stage| said(stage, &words)).await;
        stage.pve.set_guest_faults(9000, GuestFaults::default());
        stage.kube.set_nodes_never_ready(false);
        if touch == Touch::LeftPool {
            stage.pve.move_to_pool_by_hand(9100, Some("k8s-workers"));
        }
        stage
            .until(&format!("touched in {phase:?}: the pod runs"), LATE, |stage| stage.running_pods() == 1)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_destroyed_is_noticed_in_every_phase() {
    in_every_phase(|_| (Touch::Destroyed, "root@pam destroyed its VM".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_stopped_is_started_again_in_every_phase() {
    in_every_phase(|_| (Touch::Stopped, "root@pam stopped its VM: starting the VM again".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_rolled_back_is_started_again_in_every_phase() {
    in_every_phase(|_| (Touch::RolledBack, "root@pam rolled its VM back to a snapshot".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_reset_is_told_of_in_every_phase() {
    in_every_phase(|_| (Touch::Reset, "root@pam reset its VM: its guest restarts".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_moved_is_followed_in_every_phase() {
    in_every_phase(|stage| {
        let host = elsewhere(stage);
        (Touch::Migrated(host.clone()), format!("root@pam moved its VM from {} to {host}", here(stage)))
    })
    .await;
}

fn here(stage: &Stage) -> String {
    stage.pve.vm(9100).unwrap().node
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_made_a_template_is_left_alone_in_every_phase() {
    in_every_phase(|_| (Touch::Template, "root@pam made its VM a template".to_owned())).await;
    let stage = at(At::Registered).await;
    stage.pve.touch(9100, WHO, &Touch::Template);
    stage.kube.set_nodes_never_ready(false);
    stage.until("the machine is forgotten", LATE, |stage| !machine(stage, Vmid(9100))).await;
    tokio::time::sleep(SOON).await;
    let template = stage.pve.vm(9100).expect("the administrator who made it a template wants to keep it");
    assert_eq!(template.config.get("template").map(String::as_str), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_renamed_or_protected_serves_on_and_is_a_problem_until_that_is_over() {
    for (touch, words, command) in [
        (Touch::Renamed("web".to_owned()), "was renamed to `web`", "--name workers-"),
        (Touch::Protected, "is protected", "qm set 9100 --protection 0"),
    ] {
        in_every_phase(|_| (touch.clone(), words.to_owned())).await;
        let stage = at(At::Ready).await;
        let name = stage.pve.config_of(9100, "name");
        stage.pve.touch(9100, WHO, &touch);
        let shown = |stage: &Stage| stage.status().problems.values().any(|one| one.contains(command));
        stage.until("the command is shown", NOTICED, shown).await;
        stage.reload(&ONE_POOL.replacen("cluster", "mode = \"observe\"\ncluster", 1));
        stage.until("a daemon that only observes does not report it", NOTICED, |stage| !shown(stage)).await;
        stage.reload(ONE_POOL);
        stage.until("the command is shown again", NOTICED, shown).await;
        stage.pve.set_config_by_hand(9100, "name", name.as_deref());
        stage.pve.set_config_by_hand(9100, "protection", None);
        stage.until("the problem is gone", NOTICED, |stage| !shown(stage)).await;
        assert_eq!(stage.vms(9100..=9109), [9100]);
    }
}

/// Until the new uuid is recorded, only the VM's mark shows that the VM belongs to the machine.
#[tokio::test(start_paused = true)]
async fn the_node_of_a_protected_vm_whose_uuid_was_changed_is_not_drained() {
    let stage = at(At::Ready).await;
    stage.pve.set_config_by_hand(9100, "smbios1", Some("uuid=0b0c9b2c-7a0e-4f3e-9a55-6a6f0d1c2b3a"));
    stage.pve.touch(9100, WHO, &Touch::Protected);
    let shown = |stage: &Stage| {
        let problems = stage.status().problems;
        problems.values().any(|one| one.contains("qm set 9100 --protection 0"))
    };
    stage.until("the protection is shown", NOTICED, shown).await;
    stage.kube.scale("default", "web", 0);
    let serves = |stage: &Stage| stage.status().machines.iter().all(|one| one.phase == "Ready");
    stage.throughout("the machine stays ready", LATE, serves).await;
    assert_eq!(stage.vms(9100..=9109), [9100]);
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_leaves_the_pool_is_noticed_in_every_phase() {
    in_every_phase(|_| (Touch::LeftPool, "took it out of the resource pool `k8s-workers`".to_owned())).await;
}

#[tokio::test(start_paused = true)]
async fn the_node_of_a_vm_that_is_hidden_stays_for_a_while_though_its_kubelet_is_silent() {
    for minutes in [-10, 0, 10] {
        let stage = at_with(At::Ready, SignedDuration::from_mins(minutes)).await;
        let node = stage.ready_nodes("workers").remove(0);
        stage.kube.set_kubelet_silent(&node, true);
        stage.pve.touch(9100, WHO, &Touch::LeftPool);
        stage.until("it is silent", SOON, |stage| stage.ready_nodes("workers").is_empty()).await;
        // The VM keeps running, so its pods may be running, too.
        let is_there = |stage: &Stage| stage.kube.get("Node", "", &node).is_some();
        stage.throughout("the Node stays", Duration::from_secs(290), is_there).await;
        let words = "reported within the last five minutes: put the VM back into its resource pool";
        assert!(serde_json::to_string(&stage.status()).unwrap().contains(words), "{}", stage.scene());
        stage.until("the Node goes", LATE, |stage| !is_there(stage)).await;
        assert!(stage.pve.vm(9100).is_some_and(|vm| vm.running));
    }
}

/// A node that is being drained but whose pods cannot be evicted. Also returns the VMID of its machine.
async fn drained_in_vain() -> (Stage, u32) {
    let quick = "[scale_down]\nunneeded_time = \"2m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let stage = Stage::running(&ONE_POOL.replace("[[pool]]", quick));
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    stage.deploy("small", 2, "100m", "128Mi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 4).await;
    stage.kube.scale("default", "web", 1);
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
        "reason": "TooManyRequests", "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    });
    let (method, path) = ("POST".to_owned(), "/api/v1/namespaces/*/pods/*/eviction".to_owned());
    stage.kube.inject(Fault {
        method,
        path,
        times: usize::MAX,
        effect: Effect::Answer { status: 429, body },
    });
    let draining = |stage: &Stage| {
        let machines = stage.status().machines;
        machines.iter().find(|one| one.phase == "Draining").map(|one| one.vmid)
    };
    stage.until("a node is drained", LATE, |stage| draining(stage).is_some()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let vmid = draining(&stage).unwrap();
    (stage, vmid.0)
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_vm_that_an_administrator_has_ended() {
    for touch in [Touch::Destroyed, Touch::Stopped] {
        let (stage, vmid) = drained_in_vain().await;
        stage.pve.touch(vmid, WHO, &touch);
        let words = "the drain ends, and the node is removed";
        stage.until("that is said", NOTICED, |stage| said(stage, words) && said(stage, WHO)).await;
        stage.until("the machine is gone", SOON, |stage| !machine(stage, Vmid(vmid))).await;
        stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
    }
}

fn runs(stage: &Stage, vmid: Vmid) -> bool {
    stage.pve.vm(vmid.0).is_some_and(|vm| vm.running)
}

/// Whether a machine's record says that the machine is being stopped or deleted.
fn ends(stage: &Stage, vmid: Vmid) -> bool {
    let map = stage.kube.get("ConfigMap", "pve-autoscaler", &format!("machine-workers-{vmid}"));
    let text = map.and_then(|map| map["data"]["record"].as_str().map(ToOwned::to_owned)).unwrap_or_default();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let entered = record["entered"].as_object().cloned().unwrap_or_default();
    entered.keys().any(|phase| ["stopping", "deleting"].contains(&phase.to_lowercase().as_str()))
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_started_again_before_its_node_is_gone_is_drained_first() {
    for killed in [false, true] {
        let (mut stage, vmid) = drained_in_vain().await;
        // The daemon reads the machine's Node both before and after it records that the machine is being
        // stopped.
        stage.kube.inject(Fault {
            method: "GET".to_owned(),
            path: "/api/v1/nodes/*".to_owned(),
            times: usize::MAX,
            effect: Effect::Delay(Duration::from_secs(5)),
        });
        stage.pve.touch(vmid, WHO, &Touch::Stopped);
        stage.until("the machine is being stopped", SOON, |stage| ends(stage, Vmid(vmid))).await;
        if killed {
            stage.kill();
        }
        stage.pve.start_by_hand(vmid);
        if killed {
            stage.start();
        }
        stage.throughout("the VM runs on", Duration::from_mins(3), |stage| runs(stage, Vmid(vmid))).await;
        stage
            .until("the node is drained again", SOON, |stage| {
                stage.status().machines.iter().any(|one| one.vmid == Vmid(vmid) && one.phase == "Draining")
            })
            .await;
        stage.kube.forget_faults();
        stage.until("the machine is gone", LATE, |stage| !machine(stage, Vmid(vmid))).await;
        stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_protected_vm_keeps_its_power_though_its_node_was_deleted() {
    let stage = at(At::Ready).await;
    let node = stage.ready_nodes("workers").remove(0);
    stage.pve.touch(9100, WHO, &Touch::Protected);
    stage.kube.remove("Node", "", &node);
    let given_up = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Failed");
    stage.until("the machine is given up", LATE, given_up).await;
    stays_as_it_is(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_protected_vm_that_an_administrator_starts_to_look_at_keeps_its_power() {
    let stage = at(At::Ready).await;
    // The machine's Node is being removed, and its VM is not destroyed yet.
    stage.kube.scale("default", "web", 0);
    let stops = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
    stage.until("the machine is shut down", LATE, stops).await;
    stage.pve.set_quorum(false);
    stage.until("the Node is gone", LATE, |stage| stage.ready_nodes("workers").is_empty()).await;
    stage.until("it is off", SOON, |stage| !runs(stage, Vmid(9100))).await;
    stage.pve.touch(9100, WHO, &Touch::Protected);
    stage.pve.set_quorum(true);
    let shown = |stage: &Stage| said(stage, "is stuck: VM 9100 is protected");
    stage.until("the removal is stuck", SOON * 2, shown).await;
    stage.kube.set_nodes_never_ready(true);
    stage.pve.start_by_hand(9100);
    stays_as_it_is(&stage).await;
}

/// A machine that is to be removed keeps running while its VM is protected, and the status reports a problem
/// that names the command for unprotecting the VM. Once the protection ends, the machine is removed.
async fn stays_as_it_is(stage: &Stage) {
    stage.throughout("it runs on", LATE, |stage| runs(stage, Vmid(9100))).await;
    let problems = stage.status().problems;
    let told = |one: &String| {
        one.contains("neither stopped nor destroyed") && one.contains("qm set 9100 --protection 0")
    };
    assert!(problems.values().any(told), "{problems:#?} {}", stage.scene());
    stage.pve.set_config_by_hand(9100, "protection", None);
    stage.until("the VM is gone", LATE, |stage| stage.pve.vm(9100).is_none()).await;
    stage.until("the problem is gone", SOON, |stage| !stage.status().problems.values().any(told)).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ends_again_and_again_is_given_up() {
    let stage = at(At::Registered).await;
    for _ in 0..3 {
        stage.until("it runs", SOON, |stage| stage.pve.vm(9100).is_some_and(|vm| vm.running)).await;
        tokio::time::sleep(Duration::from_secs(25)).await;
        stage.pve.stop_by_hand(9100);
        stage
            .until("that is noticed", NOTICED * 2, |stage| {
                stage.pve.vm(9100).is_none_or(|vm| vm.running)
                    || said(stage, "its guest has shut down or crashed")
            })
            .await;
    }
    let given_up = |stage: &Stage| {
        stage.status().decisions.iter().any(|one| one.what.contains("already started again 2 times"))
    };
    stage.until("the machine is given up", SOON, given_up).await;
    stage.kube.set_nodes_never_ready(false);
    stage.until("another one serves", LATE, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_started_on_a_host_that_is_being_shut_down() {
    let stage = at(At::Ready).await;
    let host = stage.pve.vm(9100).unwrap().node;
    let runs = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running);
    stage.pve.stop_all_by_hand(&host, Duration::from_secs(150));
    stage.throughout("it stays off", Duration::from_secs(170), |stage| !runs(stage)).await;
    stage.pve.power_off_host(&host);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.pve.power_on_host(&host);
    stage.until("its pod runs", LATE, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn guests_that_are_stopped_all_together_are_started_once_that_is_over() {
    for (phase, minutes) in [(At::Booting, 0), (At::Ready, -10), (At::Ready, 0), (At::Ready, 10)] {
        let stage = at_with(phase, SignedDuration::from_mins(minutes)).await;
        let host = stage.pve.vm(9100).unwrap().node;
        let runs = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running);
        stage.pve.stop_all_by_hand(&host, Duration::from_secs(100));
        let off = Duration::from_mins(3);
        stage.throughout(&format!("{phase:?} {minutes}: the VM stays off"), off, |stage| !runs(stage)).await;
        stage.until(&format!("{phase:?} {minutes}: the VM runs again"), SOON, runs).await;
        let what = format!("{phase:?} {minutes}: its pod runs");
        stage.until(&what, LATE, |stage| stage.running_pods() == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_changed_a_vm_is_told_though_the_hosts_clock_differs() {
    for minutes in [-15, 15] {
        let stage = at_with(At::Ready, SignedDuration::from_mins(minutes)).await;
        stage.pve.touch(9100, WHO, &Touch::Stopped);
        let words = "root@pam stopped its VM: starting the VM again";
        stage.until(&format!("stop reported, {minutes} min"), NOTICED, |stage| said(stage, words)).await;
        stage.pve.touch(9100, WHO, &Touch::Reset);
        let words = "root@pam reset its VM";
        stage.until(&format!("reset reported, {minutes} min"), SOON, |stage| said(stage, words)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_vm_gets_another_uuid_serves_on() {
    let stage = at(At::Ready).await;
    let node = stage.ready_nodes("workers");
    stage.pve.touch(9100, WHO, &Touch::Renumbered("0a0b0c0d-0000-4000-8000-00000000beef".to_owned()));
    stage.until("it is followed", SOON, |stage| said(stage, "its VM has a new SMBIOS uuid")).await;
    stage.until("its pod runs again", SOON, |stage| stage.running_pods() == 1).await;
    let serves = |stage: &Stage| stage.ready_nodes("workers") == node && stage.vms(9100..=9109) == [9100];
    stage.throughout("it serves on", Duration::from_mins(20), serves).await;
    assert!(stage.status().problems.is_empty(), "{}", stage.scene());
}
