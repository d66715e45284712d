//! VMs that are no machines by any record: those that bear our mark all the same, and those that have a pool's address.

use std::time::Duration;

use world::proxmox::spec::VmSpec;
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);
/// Until all records were read anew, and a look and a round more.
const SURE: Duration = Duration::from_mins(8);

/// What the status says of them.
fn told(stage: &Stage) -> String {
    stage.status().problems.get("strangers").cloned().unwrap_or_default()
}

/// Somebody's VM with these settings, where the token sees it.
fn made_by_hand(stage: &Stage, vmid: u32, settings: &[(&str, &str)]) {
    made_on("pve2", stage, vmid, settings);
}

fn made_on(host: &str, stage: &Stage, vmid: u32, settings: &[(&str, &str)]) {
    let mut vm = VmSpec::machine(vmid, host, "somebodys");
    vm.pool = Some("k8s-workers".to_owned());
    vm.config.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    assert!(stage.pve.create_by_hand(vm));
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_record_was_deleted_is_told_with_the_command_and_left_alone() {
    let mut stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let vmid = stage.vms(9100..=9109)[0];
    let host = stage.pve.vm(vmid).unwrap().node;
    stage.kube.remove("ConfigMap", "pve-autoscaler", &format!("machine-workers-{vmid}"));
    stage.until("it is told", SURE * 2, |stage| told(stage).contains("has no record any more")).await;
    let words = told(&stage);
    assert!(words.contains(&format!("on {host}: qm stop {vmid} && qm destroy {vmid}")), "{words}");
    // Whoever comes after knows it as well.
    stage.stop().await;
    stage.start();
    stage.until("it is told again", SURE, |stage| told(stage).contains("has no record any more")).await;
    let vm = stage.pve.vm(vmid).unwrap();
    assert!(vm.running);
    // Without its mark it is somebody's, with an address of the pool's.
    let notes = vm.config["description"].lines().skip(1).collect::<Vec<_>>().join("\n");
    stage.pve.set_config_by_hand(vmid, "description", Some(&format!("mine now\n{notes}")));
    stage.until("it is somebody's", SURE * 2, |stage| !told(stage).contains("has no record any more")).await;
    assert!(told(&stage).contains("no machine is made there"), "{}", told(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_machine_is_told_and_neither_counts_nor_goes_with_it() {
    let stage =
        Stage::running(&ONE_POOL.replace("[[pool]]", "[scale_down]\nunneeded_time = \"1m\"\n[[pool]]"));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let vmid = stage.vms(9100..=9109)[0];
    let machine = stage.pve.vm(vmid).unwrap();
    let copied = ["description", "tags"].map(|key| (key, machine.config[key].as_str()));
    made_by_hand(&stage, 9108, &copied);
    let words = format!("which is VM {vmid}: it is a copy");
    stage.until("it is told", SURE * 2, |stage| told(stage).contains(&words)).await;
    stage.kube.scale("default", "web", 0);
    stage.until("the machine is gone", SURE * 2, |stage| stage.pve.vm(vmid).is_none()).await;
    tokio::time::sleep(SURE).await;
    assert!(stage.pve.vm(9108).is_some(), "the copy is somebody's");
    assert!(told(&stage).contains("VM 9108 `somebodys` on pve2"), "{}", told(&stage));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_set_in_somebody_elses_vm_closes_its_slot_and_both_are_named() {
    let mut stage = Stage::new(ONE_POOL);
    made_by_hand(&stage, 120, &[("ipconfig0", "ip=10.10.10.11/24,gw=10.10.10.1")]);
    stage.start();
    let words =
        "VM 120 `somebodys` on pve2 has 10.10.10.11, the address of the slot of VMID 9100 in pool `workers`";
    stage.until("it is told", SOON, |stage| told(stage).contains(words)).await;
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9101]);
    stage.pve.delete_by_hand(120);
    stage.until("the slot is free", SOON, |stage| told(stage).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_hangs_keeps_no_vm_of_another_from_being_asked() {
    let mut stage = Stage::new(ONE_POOL);
    (110..120).for_each(|vmid| made_on("pve3", &stage, vmid, &[]));
    made_by_hand(&stage, 120, &[("ipconfig0", "ip=10.10.10.11/24,gw=10.10.10.1")]);
    stage.pve.inject(Fault {
        method: "GET".into(),
        path: "/nodes/pve3/qemu/*/config".into(),
        times: 1000,
        effect: Effect::Delay(Duration::from_mins(1)),
    });
    stage.start();
    stage
        .until("it is told", Duration::from_secs(50), |stage| told(stage).contains("VM 120 `somebodys`"))
        .await;
}
