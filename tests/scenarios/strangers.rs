//! VMs without a record: those that bear the cluster's mark, and those that have one of a pool's addresses.

use std::time::Duration;

use model::Vmid;
use stage::Side;
use world::proxmox::spec::VmSpec;
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);
/// Long enough to read all records again, then to read the VMs once more and plan one round.
const SURE: Duration = Duration::from_mins(8);

/// The address of the first slot, that of VMID 9100.
const ITS_ADDRESS: (&str, &str) = ("ipconfig0", "ip=10.10.10.11/24,gw=10.10.10.1");

/// The problem that the status reports about VMs without a record.
fn told(stage: &Stage) -> String {
    stage.status().problems.get("strangers").cloned().unwrap_or_default()
}

/// Creates an unmanaged VM with these settings where the token can see it.
fn made_by_hand(stage: &Stage, vmid: Vmid, settings: &[(&str, &str)]) {
    made_on("pve2", stage, vmid, settings);
}

fn made_on(host: &str, stage: &Stage, vmid: Vmid, settings: &[(&str, &str)]) {
    let mut vm = VmSpec::machine(vmid.0, host, "somebodys");
    vm.pool = Some("k8s-workers".to_owned());
    vm.config.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    assert!(stage.pve.create_by_hand(vm));
}

/// Delays all reads of VMs on this host.
fn hangs(stage: &Stage, host: &str) {
    stage.pve.inject(Fault {
        method: "GET".into(),
        path: format!("/nodes/{host}/qemu/*/config"),
        times: 1000,
        effect: Effect::Delay(Duration::from_mins(1)),
    });
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_record_was_deleted_is_told_with_the_command_and_left_alone() {
    let mut stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let vmid = stage.vms(9100..=9109)[0];
    let host = stage.pve.vm(vmid).unwrap().node;
    stage.kube.remove("ConfigMap", "pve-autoscaler", &format!("machine-workers-{vmid}"));
    stage.until("it is reported", SURE * 2, |stage| told(stage).contains("no longer has a record")).await;
    let words = told(&stage);
    assert!(words.contains(&format!("on {host}: qm stop {vmid} && qm destroy {vmid}")), "{words}");
    // The next leader reports the VM as well.
    stage.stop().await;
    stage.start();
    stage.until("it is reported again", SURE, |stage| told(stage).contains("no longer has a record")).await;
    let vm = stage.pve.vm(vmid).unwrap();
    assert!(vm.running);
    // Without its mark, the VM is unmanaged. It still has one of the pool's addresses.
    let notes = vm.config["description"].lines().skip(1).collect::<Vec<_>>().join("\n");
    stage.pve.set_config_by_hand(vmid, "description", Some(&format!("mine now\n{notes}")));
    stage.until("it is unmanaged", SURE * 2, |stage| !told(stage).contains("no longer has a record")).await;
    assert!(told(&stage).contains("no machine is created in that slot"), "{}", told(&stage));
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
    made_by_hand(&stage, Vmid(9108), &copied);
    let name = machine.config["name"].as_str();
    let words = format!("is a copy: it bears the mark of machine {name}, which is VM {vmid}");
    stage.until("it is reported", SURE * 2, |stage| told(stage).contains(&words)).await;
    stage.kube.scale("default", "web", 0);
    stage.until("the machine is gone", SURE * 2, |stage| stage.pve.vm(vmid).is_none()).await;
    tokio::time::sleep(SURE).await;
    assert!(stage.pve.vm(9108).is_some(), "the copy is left alone");
    assert!(told(&stage).contains("VM 9108 `somebodys` on pve2"), "{}", told(&stage));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_set_in_an_unmanaged_vm_closes_its_slot_and_both_are_named() {
    let mut stage = Stage::new(ONE_POOL);
    made_by_hand(&stage, Vmid(120), &[ITS_ADDRESS]);
    stage.start();
    let words =
        "VM 120 `somebodys` on pve2 has 10.10.10.11, the address of the slot of VMID 9100 in pool `workers`";
    stage.until("it is reported", SOON, |stage| told(stage).contains(words)).await;
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9101]);
    stage.pve.delete_by_hand(120);
    stage.until("the slot is free", SOON, |stage| told(stage).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_hangs_keeps_no_vm_of_another_from_being_asked() {
    let mut stage = Stage::new(ONE_POOL);
    (110..120).for_each(|vmid| made_on("pve3", &stage, Vmid(vmid), &[]));
    made_by_hand(&stage, Vmid(120), &[ITS_ADDRESS]);
    hangs(&stage, "pve3");
    stage.start();
    stage
        .until("it is reported", Duration::from_secs(50), |stage| told(stage).contains("VM 120 `somebodys`"))
        .await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_at_the_start_get_no_address_that_an_unmanaged_vm_has() {
    for others in [0, 40] {
        let mut stage = Stage::new(ONE_POOL);
        (110..110 + others).for_each(|vmid| made_on("pve1", &stage, Vmid(vmid), &[]));
        made_by_hand(&stage, Vmid(199), &[ITS_ADDRESS]);
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.start();
        stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        assert_eq!(stage.vms(9100..=9109), [9101], "{others} others");
        // The next leader does not use the address either.
        stage.stop().await;
        stage.deploy("more", 1, "1500m", "1Gi");
        stage.start();
        stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
        assert_eq!(stage.vms(9100..=9109), [9101, 9102], "{others} others");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_seen_late_is_asked_before_a_machine_is_made_there() {
    let mut stage = Stage::new(ONE_POOL);
    (110..150).for_each(|vmid| made_on("pve1", &stage, Vmid(vmid), &[]));
    made_by_hand(&stage, Vmid(199), &[ITS_ADDRESS]);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.start();
    stage.wire("pve1").hold(Side::Proxmox, true);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.wire("pve1").hold(Side::Proxmox, false);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9101]);
}

#[tokio::test(start_paused = true)]
async fn an_address_stays_its_vms_while_the_host_of_that_is_off() {
    let mut stage = Stage::new(ONE_POOL);
    made_by_hand(&stage, Vmid(120), &[ITS_ADDRESS]);
    stage.start();
    stage.until("it is reported", SOON, |stage| told(stage).contains("VM 120 `somebodys` on pve2")).await;
    stage.pve.power_off_host("pve2");
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9101]);
    assert!(told(&stage).contains("VM 120 `somebodys` on pve2"), "{}", told(&stage));
    // Once the VM's host is switched on, the daemon reads the VM again.
    stage.pve.set_config_by_hand(120, "ipconfig0", None);
    stage.pve.power_on_host("pve2");
    stage.until("the slot is free", SURE * 2, |stage| told(stage).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn an_address_stays_its_vms_that_moves_and_that_is_asked_again_there() {
    let mut stage = Stage::new(ONE_POOL);
    made_by_hand(&stage, Vmid(120), &[ITS_ADDRESS]);
    stage.start();
    stage.until("it is reported", SOON, |stage| told(stage).contains("VM 120 `somebodys` on pve2")).await;
    hangs(&stage, "pve3");
    stage.pve.migrate_by_hand(120, "pve3");
    let closed = |stage: &Stage| told(stage).contains("10.10.10.11");
    stage.throughout("the slot is closed", Duration::from_mins(2), closed).await;
    stage.pve.migrate_by_hand(120, "pve1");
    stage.until("its new host is reported", SOON, |stage| told(stage).contains("`somebodys` on pve1")).await;
    stage.pve.set_config_by_hand(120, "ipconfig0", None);
    stage.pve.migrate_by_hand(120, "pve2");
    stage.until("the VM is read again", SOON, |stage| told(stage).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_hangs_delays_neither_a_hand_over_nor_a_machine_for_long() {
    let mut stage = Stage::new(ONE_POOL);
    (110..150).for_each(|vmid| made_on("pve3", &stage, Vmid(vmid), &[]));
    made_by_hand(&stage, Vmid(199), &[ITS_ADDRESS]);
    for host in ["pve1", "pve2"] {
        stage.start_on(host);
    }
    stage.until("one leads", SOON, |stage| stage.leaders().len() == 1).await;
    let leader = stage.leaders()[0].to_owned();
    stage.deploy("web", 1, "1500m", "1Gi");
    hangs(&stage, "pve3");
    stage.kill_on(&leader);
    let took = stage.until("another leads", SOON, |stage| stage.leaders().len() == 1).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    let made = stage.until("a machine", SOON, |stage| !stage.vms(9100..=9109).is_empty()).await;
    assert!(made < Duration::from_secs(5), "{made:?}");
    println!("another leads {took:?} later, and makes a machine {made:?} after that");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9101]);
}
