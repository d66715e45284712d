//! An administrator deletes a machine's VM and creates another with its VMID during an operation: the daemon
//! requests nothing for the new VM.

use std::time::Duration;

use jiff::Timestamp;
use world::guest::GuestFaults;
use world::proxmox::spec::VmSpec;
use world::proxmox::{CallRecord, Effect, Fault};

use crate::stage::{ONE_POOL, Stage};
use pve_autoscaler::model::Vmid;

const SOON: Duration = Duration::from_mins(5);
/// How long the test watches for requests for the new VM.
const AFTER: Duration = Duration::from_mins(1);

/// How long a late answer takes.
const LATE: Duration = Duration::from_secs(6);

/// How long a call takes at most.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// Puts a running unmanaged VM in place of the machine's VM. The token has the same rights on both VMs.
fn take_over(stage: &Stage) -> Timestamp {
    let host = stage.pve.vm(9100).unwrap().node;
    stage.pve.delete_by_hand(9100);
    let mut other = VmSpec::machine(9100, &host, "taken");
    other.pool = Some("k8s-workers".to_owned());
    other.config.insert("agent".to_owned(), "enabled=1".to_owned());
    other.running = true;
    assert!(stage.pve.create_by_hand(other));
    stage.now()
}

/// The requests for the VM since this time, except reads and calls that may have been sent before this time.
fn asked_since(stage: &Stage, since: Timestamp) -> Vec<String> {
    let since = since + ON_ITS_WAY;
    let calls = stage.pve.calls().into_iter().filter(|call| call.time > since && call.method != "GET");
    let of_it = calls.filter(|call| call.path.contains("/qemu/9100"));
    of_it.map(|call| format!("{} {}", call.method, call.path)).collect()
}

async fn is_left_alone(stage: &Stage, since: Timestamp, when: &str) {
    tokio::time::sleep(AFTER).await;
    assert_eq!(asked_since(stage, since), Vec::<String>::new(), "{when}");
    let other = stage.pve.vm(9100).unwrap();
    assert!(other.running && other.config["name"] == "taken", "{when}");
}

fn failing(method: &str, path: &str, times: usize) -> Fault {
    let effect = Effect::Answer { status: 596, reason: "Broken pipe".into(), body: String::new() };
    Fault { method: method.into(), path: path.into(), times, effect }
}

fn answered_late(method: &str, path: &str) -> Fault {
    let effect = Effect::WorkThenDelay(LATE);
    Fault { method: method.into(), path: path.into(), times: 1, effect }
}

#[tokio::test(start_paused = true)]
async fn no_guest_is_told_to_join_that_is_not_ours() {
    let mut taken = 0;
    for wait in 0.. {
        let stage = Stage::running(ONE_POOL);
        stage.deploy("web", 1, "1", "1Gi");
        let is_there = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running);
        stage.until("it boots", SOON, is_there).await;
        tokio::time::sleep(Duration::from_millis(700 * wait)).await;
        let comes_up = |phase: &str| ["Starting", "Booting"].contains(&phase);
        if !stage.status().machines.iter().any(|one| comes_up(&one.phase)) {
            break;
        }
        // The agent of the other VM answers immediately.
        let since = take_over(&stage);
        is_left_alone(&stage, since, &format!("taken over {} ms after its start", 700 * wait)).await;
        stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        taken += 1;
    }
    assert!(taken > 3, "the booting VM was taken over only {taken} times");
}

#[tokio::test(start_paused = true)]
async fn no_vm_is_stopped_that_is_not_ours() {
    for (how, join_fails) in [("shutdown", None), ("stop", Some("no such server".to_owned()))] {
        let mut stage = Stage::new(ONE_POOL);
        stage.pve.set_guest_faults(9000, GuestFaults { join_fails, ..GuestFaults::default() });
        stage.start();
        stage.pve.inject(failing("POST", &format!("/nodes/*/qemu/*/status/{how}"), 3));
        stage.deploy("web", 1, "1", "1Gi");
        let path = format!("/qemu/9100/status/{how}");
        let asked = |stage: &Stage| stage.pve.calls().iter().any(|call| call.path.ends_with(&path));
        if how == "shutdown" {
            stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
            stage.kube.scale("default", "web", 0);
        }
        stage.until("the VM's end is requested", Duration::from_mins(30), asked).await;
        let since = take_over(&stage);
        is_left_alone(&stage, since, how).await;
        let gone = |stage: &Stage| stage.status().machines.iter().all(|one| one.vmid != Vmid(9100));
        stage.until("the machine is forgotten", SOON, gone).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_vm_is_configured_or_started_that_is_not_ours() {
    for (method, call, settings) in [
        ("PUT", "resize", "disk = \"20GiB\"\n"),
        ("PUT", "firewall/options", "[pool.security]\npolicy_out = \"reject\"\n"),
        ("POST", "status/start", ""),
    ] {
        let path = format!("/qemu/9100/{call}");
        let is_it = |path: &str, one: &CallRecord| one.path.ends_with(path) && one.method == method;
        let fails = failing(method, &format!("/nodes/*/qemu/*/{call}"), 3);
        let asked = |stage: &Stage| stage.pve.calls().iter().any(|one| is_it(&path, one));
        is_left_as_it_is(settings, fails, asked, &format!("{call} is to be repeated")).await;
        // The previous call was carried out, but its answer arrives late.
        let late = answered_late("POST", "/nodes/*/qemu/9100/config");
        let done = |stage: &Stage| stage.pve.config_of(9100, "memory").is_some_and(|has| has == "4096");
        is_left_as_it_is(settings, late, done, &format!("{call} comes next")).await;
    }
}

/// Injects a fault, replaces the VM once `far_enough` is true, and asserts that the new VM is neither changed
/// nor started.
async fn is_left_as_it_is(settings: &str, fault: Fault, far_enough: impl Fn(&Stage) -> bool, when: &str) {
    let stage = Stage::running(&format!("{ONE_POOL}{settings}"));
    stage.pve.inject(fault);
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the operation has come far enough", SOON, far_enough).await;
    let since = take_over(&stage);
    stage.pve.stop_by_hand(9100);
    tokio::time::sleep(AFTER).await;
    // A call is logged when it is answered, so the configuration call that was already in progress is left
    // out here.
    let configured = |call: &String| call.ends_with("/qemu/9100/config");
    let asked: Vec<String> =
        asked_since(&stage, since).into_iter().filter(|call| !configured(call)).collect();
    assert_eq!(asked, Vec::<String>::new(), "{when}");
    assert!(!stage.pve.vm(9100).unwrap().running, "{when}");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

/// The disk's growth waits for its turn on the host until long after the VM's configuration was read.
#[tokio::test(start_paused = true)]
async fn no_disk_grows_for_what_its_vm_said_before_its_place_was_free() {
    let stage = Stage::running(&format!("{ONE_POOL}hosts = [\"pve1\"]\ndisk = \"20GiB\"\n"));
    for vmid in [9101, 9102] {
        let (method, path) = ("PUT".to_owned(), format!("/nodes/pve1/qemu/{vmid}/resize"));
        let effect = Effect::Delay(Duration::from_secs(20));
        stage.pve.inject(Fault { method, path, times: 1, effect });
    }
    let effect = Effect::WorkThenDelay(Duration::from_secs(1));
    let (method, path) = ("POST".to_owned(), "/nodes/pve1/qemu/9100/config".to_owned());
    stage.pve.inject(Fault { method, path, times: 1, effect });
    stage.deploy("web", 3, "1500m", "1Gi");
    let configured = |stage: &Stage| stage.pve.config_of(9100, "memory").is_some_and(|has| has == "4096");
    stage.until("it is configured", SOON, configured).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let since = take_over(&stage);
    stage.pve.stop_by_hand(9100);
    tokio::time::sleep(AFTER).await;
    assert_eq!(asked_since(&stage, since), Vec::<String>::new());
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 3).await;
}

/// The VM's suspension waits for its turn on the host until long after the VM's configuration was read.
#[tokio::test(start_paused = true)]
async fn no_vm_is_suspended_for_what_it_said_before_its_place_was_free() {
    let text = format!("{ONE_POOL}hosts = [\"pve1\"]\nwarm = {{ count = 3, state = \"suspended\" }}\n");
    let stage = Stage::running(&text);
    for vmid in [9101, 9102] {
        let (method, path) = ("POST".to_owned(), format!("/nodes/pve1/qemu/{vmid}/status/suspend"));
        let effect = Effect::Delay(Duration::from_secs(40));
        stage.pve.inject(Fault { method, path, times: 1, effect });
    }
    stage.until("it is there", SOON, |stage| stage.pve.vm(9100).is_some()).await;
    // This machine's guest starts slowly, so the other two machines are suspended first.
    let starting_for = Duration::from_secs(20);
    stage.pve.set_guest_faults(9100, GuestFaults { starting_for, ..GuestFaults::default() });
    let suspends = |stage: &Stage| {
        // At most two machines are suspended at a time on one host.
        let notes = ["its memory is being written to disk", "waiting for its turn to be suspended on pve1"];
        stage.status().machines.iter().filter(|one| notes.contains(&one.why.as_str())).count() == 3
    };
    stage.until("all three machines are to be suspended", SOON, suspends).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let since = take_over(&stage);
    tokio::time::sleep(AFTER).await;
    assert_eq!(asked_since(&stage, since), Vec::<String>::new());
    assert!(stage.pve.vm(9100).unwrap().running);
}

#[tokio::test(start_paused = true)]
async fn no_vm_is_started_for_what_it_said_long_ago() {
    let stage = Stage::running(ONE_POOL);
    stage.pve.inject(answered_late("POST", "/nodes/*/qemu/9100/config"));
    stage.deploy("web", 1, "1", "1Gi");
    let configured = |stage: &Stage| stage.pve.config_of(9100, "memory").is_some_and(|has| has == "4096");
    stage.until("it is configured", SOON, configured).await;
    stage.pve.inject(answered_late("GET", "/nodes/*/qemu/9100/config"));
    // The daemon reads the VM's configuration now, but the answer arrives after the other VM was created.
    tokio::time::sleep(LATE * 3 / 2).await;
    let since = take_over(&stage);
    stage.pve.stop_by_hand(9100);
    tokio::time::sleep(AFTER).await;
    assert_eq!(asked_since(&stage, since), Vec::<String>::new());
    assert!(!stage.pve.vm(9100).unwrap().running);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn no_vm_is_shut_down_that_was_ours_before_the_record_was_written() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    let path = "/api/v1/namespaces/pve-autoscaler/configmaps/machine-workers-9100".to_owned();
    let effect = world::kubernetes::Effect::WorkThenDelay(LATE);
    stage.kube.inject(world::kubernetes::Fault { method: "PUT".into(), path, times: 20, effect });
    let stops = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
    stage.until("its VM is about to be shut down", Duration::from_mins(30), stops).await;
    let since = take_over(&stage);
    is_left_alone(&stage, since, "a machine that is to be shut down").await;
}

#[tokio::test(start_paused = true)]
async fn no_guest_is_told_to_grow_that_is_not_ours() {
    let mut stage = Stage::new(&format!("{ONE_POOL}[pool.grow]\nmax_cores = 6\nmax_memory = \"12GiB\"\n"));
    stage.pve.change_access(|access| {
        access.roles.get_mut("KasWorker").unwrap().push("VM.Config.HWType".to_owned());
    });
    stage.start();
    stage.deploy("first", 1, "1", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let since = take_over(&stage);
    stage.deploy("large", 1, "1500m", "1Gi");
    let grows = |stage: &Stage| stage.status().decisions.iter().any(|one| one.what.contains("~ "));
    stage.until("the growth is decided on before the new VM is noticed", SOON, grows).await;
    is_left_alone(&stage, since, "a machine that is to grow").await;
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
}
