//! Machines whose Nodes get only a part of the resources that were plugged in. The tests show what such a
//! Node reports, and in which cases the growth is tried again.

use std::time::Duration;

use model::Vmid;
use world::guest::GuestFaults;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;
use world::proxmox::{Effect, Fault};

use crate::grow::{capacity_of, config, decided, growing, is_closed, permit, record, with_one};
use crate::stage::Stage;

const SOON: Duration = Duration::from_mins(4);
const LATE: Duration = Duration::from_mins(20);
/// Longer than all back-offs.
const LONG: Duration = Duration::from_mins(90);

/// One machine that serves one pod. The machine's guest accepts memory but no CPUs, and no other machine may
/// be created.
async fn deaf_to_cpus(kube: KubeSpec) -> Stage {
    let mut stage = Stage::of(&growing(6, "12GiB"), ClusterSpec::demo(), kube);
    permit(&stage);
    stage.pve.set_guest_faults(9000, GuestFaults { deaf_to_cpus: true, ..GuestFaults::default() });
    stage.start();
    stage.deploy("first", 1, "1", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.reload(&growing(6, "12GiB").replace("max = 5", "max = 1"));
    stage
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

/// The memory that the first Node reports, and that of its VM, in MiB.
fn memory(stage: &Stage) -> (u64, u64) {
    let said = capacity_of(stage, 0).1;
    (number(said.trim_end_matches("Ki")) >> 10, number(&config(stage, "memory")))
}

/// Returns the number of growths that were decided on, and the number of growths that have ended.
fn growths(stage: &Stage) -> (usize, usize) {
    let decisions = stage.status().decisions;
    let count = |what: &str| decisions.iter().filter(|one| one.what.contains(what)).count();
    (count("~ "), count("could not grow") + count("has grown"))
}

#[tokio::test(start_paused = true)]
async fn memory_that_came_stays_where_cpus_do_not() {
    let stage = deaf_to_cpus(KubeSpec::demo()).await;
    let before = memory(&stage);
    stage.deploy("large", 1, "1500m", "5Gi");
    stage.until("the growth is given up", SOON, |stage| decided(stage, "it has 2 of 3 CPUs")).await;
    let honest = |stage: &Stage| memory(stage).0 <= memory(stage).1;
    stage.throughout("the Node reports no more than the VM has", SOON, honest).await;
    let after = memory(&stage);
    assert!(after.1 > before.1 && after.0 > before.0, "the added memory stays: {before:?}, {after:?}");
    assert_eq!((config(&stage, "vcpus"), capacity_of(&stage, 0).0), ("2".to_owned(), "2".to_owned()));
    let record = record(&stage);
    assert!(record.contains("\"takesNoCpus\":true") && !record.contains("takesNoMemory"), "{record}");
    assert!(!record.contains("growing") && !is_closed(&stage), "{record}");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_says_late_what_was_taken_back_is_asked_again() {
    let mut kube = KubeSpec::demo();
    // The kubelet reports its new size only after the growth was given up.
    kube.timings.kubelet_restart = Duration::from_secs(50);
    let stage = deaf_to_cpus(kube).await;
    let before = memory(&stage);
    stage.deploy("large", 1, "1500m", "5Gi");
    stage.until("the growth is given up", LATE, |stage| decided(stage, "could not grow")).await;
    stage.throughout("memory is as before", LATE, |stage| memory(stage) == before && !is_closed(stage)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_reports_more_than_its_vm_has_stays_closed_until_it_does_not() {
    let mut kube = KubeSpec::demo();
    kube.timings.kubelet_restart = Duration::from_secs(70);
    let stage = deaf_to_cpus(kube).await;
    let before = memory(&stage);
    stage.deploy("large", 1, "1500m", "5Gi");
    stage.until("the Node is closed", SOON, is_closed).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The guest agent no longer answers, so the kubelet cannot be restarted after memory was unplugged again.
    stage.pve.inject(Fault {
        method: "POST".to_owned(),
        path: "/nodes/*/qemu/9100/agent/exec".to_owned(),
        times: usize::MAX,
        effect: Effect::Answer {
            status: 500,
            reason: "QEMU guest agent is not running".to_owned(),
            body: "{\"data\":null}".to_owned(),
        },
    });
    stage.until("the Node reports too much", SOON, |stage| memory(stage).0 > memory(stage).1).await;
    stage.throughout("the Node stays closed", LATE, is_closed).await;
    let told = |stage: &Stage| decided(stage, "but its Node still reports more");
    stage.until("the reason is reported", LATE, told).await;
    stage.pve.forget_faults();
    stage.until("memory is as before", LATE, |stage| memory(stage) == before && !is_closed(stage)).await;
    stage.until("the growth is over", SOON, |stage| growths(stage) == (1, 1)).await;
    assert!(!record(&stage).contains("growing"), "{}", record(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_killed_while_it_takes_back_goes_on_with_that() {
    let mut last = 0;
    for cut in 0_u64.. {
        let mut kube = KubeSpec::demo();
        // The kubelet does not report a new size before the daemon gives up the growth.
        kube.timings.kubelet_restart = Duration::from_secs(50);
        let mut stage = deaf_to_cpus(kube).await;
        let before = memory(&stage);
        stage.deploy("large", 1, "1500m", "5Gi");
        let given_up = |stage: &Stage| record(stage).contains("\"failed\"");
        stage.until("the growth is given up", SOON, given_up).await;
        let calls = stage.calls.load(std::sync::atomic::Ordering::Relaxed);
        stage.wire("pve1").cut_after(calls + cut * 3);
        let over = |stage: &Stage| stage.is_cut() || decided(stage, "could not grow");
        stage.until("the daemon is cut off, or the growth is over", SOON, over).await;
        let was_over = !stage.is_cut();
        stage.kill();
        stage.start();
        let is_over = |stage: &Stage| !record(stage).contains("growing") && !is_closed(stage);
        stage.until(&format!("cut {cut}: the growth is over"), LATE, is_over).await;
        assert_eq!(memory(&stage), before, "cut {cut}");
        assert_eq!((config(&stage, "vcpus"), capacity_of(&stage, 0).0), ("2".to_owned(), "2".to_owned()));
        assert_eq!(stage.pve.waits_for_start(9100), Vec::<String>::new(), "cut {cut}");
        if was_over {
            break;
        }
        last = cut;
    }
    assert!(last > 1, "the daemon was cut off during the growth only {last} times");
}

#[tokio::test(start_paused = true)]
async fn a_growth_that_proxmox_refuses_says_nothing_of_the_guests_of_the_pool() {
    let mut stage = Stage::new(&growing(6, "12GiB"));
    permit(&stage);
    stage.start();
    stage.deploy("first", 2, "1", "3Gi");
    stage.until("two machines serve", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(stage.vms(9100..=9109), [9100, 9101]);
    stage.reload(&growing(6, "12GiB").replace("max = 5", "max = 2"));
    // An administrator has removed `memory` from the first machine's `hotplug` option.
    stage.pve.set_config_by_hand(9100, "hotplug", Some("network,disk,usb,cpu"));
    let full = |vmid: Vmid| stage.pve.config_of(vmid.0, "name").unwrap_or_default();
    let on = |vmid: Vmid| serde_json::json!({ "nodeSelector": { "kubernetes.io/hostname": full(vmid) } });
    stage.deploy_with("both", 1, "1500m", "3Gi", &on(Vmid(9100)));
    stage.until("the growth is given up", SOON, |stage| decided(stage, "for its next start")).await;
    let record = record(&stage);
    assert!(!record.contains("takesNo"), "the guest is not recorded as refusing: {record}");
    stage.deploy_with("cpu", 1, "1500m", "100Mi", &on(Vmid(9101)));
    stage.until("the other machine grows", SOON, |stage| stage.running_pods() == 3).await;
    assert_eq!(stage.pve.config_of(9101, "vcpus").as_deref(), Some("3"));
    assert_eq!(config(&stage, "vcpus"), "2", "the first machine loses the CPUs that were plugged in");
}

#[tokio::test(start_paused = true)]
async fn memory_that_comes_says_nothing_of_cpus_that_did_not() {
    let stage = deaf_to_cpus(KubeSpec::demo()).await;
    stage.deploy("cpus", 1, "1500m", "100Mi");
    stage.until("the machine gets no CPUs", SOON, |stage| growths(stage) == (1, 1)).await;
    stage.deploy("memory", 1, "100m", "5Gi");
    stage.until("the machine gets memory", LATE, |stage| growths(stage) == (2, 2)).await;
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 2).await;
    stage.throughout("no growth of CPUs is tried again", LONG, |stage| growths(stage).0 == 2).await;
    assert!(record(&stage).contains("\"takesNoCpus\":true"), "{}", record(&stage));
    stage
        .order("pve1", pve_autoscaler::observability::Order::Retry { name: Some("workers".to_owned()) })
        .await;
    stage.until("an operator can have the growth tried again", SOON, |stage| growths(stage).0 == 3).await;
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_set_for_the_next_start_does_not_concern_a_growth_of_cpus() {
    let stage = with_one().await;
    stage.pve.set_for_next_start_by_hand(9100, "memory", "8192");
    stage.deploy("large", 1, "1500m", "100Mi");
    stage.until("the growth is over", LATE, |stage| growths(stage) == (1, 1)).await;
    assert!(decided(&stage, "has grown"), "{:#?}", stage.status().decisions);
    assert_eq!(config(&stage, "vcpus"), "3");
    assert_eq!(stage.pve.waits_for_start(9100), ["memory"], "an administrator's change stays");
    stage.deploy("larger", 1, "100m", "6Gi");
    stage
        .until("the pending memory is reported", LATE, |stage| {
            decided(stage, "another client has set `memory`")
        })
        .await;
    assert_eq!(stage.pve.waits_for_start(9100), ["memory"], "the administrator's change still stays");
}
