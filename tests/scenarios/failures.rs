//! The daemon classifies failures by Proxmox VE's message. After a temporary failure, it tries again. After
//! any other failure, it leaves the host or pool that caused the failure alone for a while.

use std::time::Duration;

use model::Vmid;
use serde_json::json;
use world::proxmox::TaskFault;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(4);
const UNSEEN: &str = "volume 'shared:9000/base-9000-disk-0.qcow2/9100/vm-9100-disk-0.qcow2' does not exist";
const FULL: &str = "clone failed: unable to create image: qemu-img: vm-9100-disk-0: No space left on device";

fn fail(stage: &Stage, kind: &str, text: &str, times: usize) {
    for _ in 0..times {
        stage.pve.inject_task(kind, TaskFault::Fails(text.to_owned()));
    }
}

fn decided(stage: &Stage, words: &str) -> bool {
    stage.status().decisions.iter().any(|one| one.what.contains(words))
}

fn host_of(stage: &Stage, vmid: Vmid) -> Option<String> {
    stage.pve.vm(vmid.0).map(|vm| vm.node)
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_another_host_does_not_see_yet_is_waited_for() {
    for (kind, settings) in [("resize", "disk = \"20GiB\"\n"), ("qmstart", "")] {
        let stage = Stage::running(&format!("{ONE_POOL}{settings}"));
        fail(&stage, kind, UNSEEN, 5);
        stage.deploy("web", 1, "1", "1Gi");
        stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        assert_eq!(stage.vms(9100..=9109), [9100], "{kind}: the first machine serves");
        assert!(!decided(&stage, "failed"), "{kind}: {:#?}", stage.status().decisions);
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_a_host_never_sees_is_the_hosts_fault_alone() {
    for (kind, settings) in [("resize", "disk = \"20GiB\"\n"), ("qmstart", "")] {
        let stage = Stage::running(&format!("{ONE_POOL}{settings}"));
        fail(&stage, kind, UNSEEN, 40);
        stage.deploy("web", 1, "1", "1Gi");
        stage.until("the VM exists", SOON, |stage| host_of(stage, Vmid(9100)).is_some()).await;
        let first = host_of(&stage, Vmid(9100));
        stage.until("the machine is given up", SOON, |stage| decided(stage, "failed: ")).await;
        stage.pve.forget_faults();
        stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        let second = stage.vms(9100..=9109).first().and_then(|vmid| host_of(&stage, Vmid(*vmid)));
        assert_ne!(first, second, "{kind}: the next machine is on another host");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_storage_of_one_host_is_no_fault_of_the_pool() {
    let stage = Stage::running(&ONE_POOL.replace("template = 9000", "template = \"k8s-worker-local\""));
    fail(&stage, "qmclone", FULL, 1);
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the first machine fails", SOON, |stage| decided(stage, "No space left on device")).await;
    let took = stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert!(took < Duration::from_mins(2), "the pod soon runs on another host: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_storage_that_all_hosts_share_holds_the_pool() {
    let stage = Stage::running(ONE_POOL);
    fail(&stage, "qmclone", FULL, 1);
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the first machine fails", SOON, |stage| decided(stage, "No space left on device")).await;
    let held = |stage: &Stage| stage.vms(9100..=9109).is_empty();
    stage.throughout("no other host is tried", Duration::from_mins(4), held).await;
    stage.until("the pod runs", Duration::from_mins(10), |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_pool_asks_for_in_vain_on_two_hosts_holds_it_and_no_other_pool() {
    let other = ONE_POOL.split_once("[[pool]]").unwrap().1;
    let other = other
        .replace("\"workers\"", "\"large\"")
        .replace("9100-9109", "9200-9209")
        .replace("10.10.10.11-10.10.10.20", "10.10.10.111-10.10.10.120");
    let stage = Stage::running(&format!("{ONE_POOL}[[pool]]{other}mtu = 1400\n"));
    fail(&stage, "qmstart", "MTU 1400 is bigger than the bridge MTU 1280", 3);
    let on = |pool: &str| json!({ "nodeSelector": { "pve-autoscaler/pool": pool } });
    stage.deploy_with("large", 1, "1", "1Gi", &on("large"));
    let failures = |stage: &Stage| {
        let status = stage.status();
        status.decisions.iter().filter(|one| one.what.contains(" failed: the start")).count()
    };
    let held = |stage: &Stage| stage.status().pools.iter().any(|pool| pool.backoff_until.is_some());
    stage.until("enough starts have failed", SOON, |stage| failures(stage) == 3 || held(stage)).await;
    stage.pve.forget_faults();
    stage.deploy_with("web", 3, "1500m", "1Gi", &on("workers"));
    let took = stage.until("the pods run", SOON, |stage| stage.running_pods() >= 3).await;
    assert!(took < Duration::from_mins(2), "no host is held: {took:?}");
    assert_eq!(failures(&stage), 2, "the third host is not tried: {}", stage.scene());
    let hosts = stage.status().hosts;
    assert!(hosts.iter().all(|host| host.backoff_until.is_none()), "{hosts:#?}");
    stage.until("the pool is tried again", SOON * 3, |stage| stage.running_pods() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn what_passes_is_tried_again_with_the_same_machine() {
    for text in
        ["can't lock file '/var/lock/qemu-server/lock-9100.conf' - got timeout", "lock changed unexpectedly"]
    {
        let stage = Stage::running(ONE_POOL);
        fail(&stage, "qmstart", text, 3);
        stage.deploy("web", 1, "1", "1Gi");
        stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        assert_eq!(stage.vms(9100..=9109), [9100], "{text}");
    }
}
