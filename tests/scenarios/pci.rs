//! PCI devices from resource mappings: a machine gets a device if its host has a free one, and pods that
//! request the device get such machines.

use std::time::Duration;

use pve_autoscaler::model::machine::WarmState;
use serde_json::json;
use world::kubernetes::samples;
use world::proxmox::spec::{AccessSpec, ClusterSpec, Grant, VmSpec};
use world::proxmox::{Effect, Fault};

use crate::out_of_sight::rights;
use crate::stage::{ONE_POOL, Stage, name};
use crate::warm::{keeping, waiting};

const SOON: Duration = Duration::from_mins(4);

/// The pool with a GPU for each of its machines.
fn with_gpus(settings: &str) -> String {
    format!(
        "{settings}placement = \"pack\"\n[[pool.pci]]\nmapping = \"gpu\"\nresource = \"nvidia.com/gpu\"\n"
    )
}

/// One GPU on pve1, and two on pve2. An unmanaged VM has one of the GPUs on pve2. The token may use all
/// GPUs, and can see that VM.
fn stage() -> Stage {
    stage_of(&with_gpus(ONE_POOL))
}

/// Like [`stage`], with these settings.
fn stage_of(settings: &str) -> Stage {
    let stage = unseeing(settings);
    stage.pve.change_access(|access| {
        access.roles.insert("Look".to_owned(), vec!["VM.Audit".to_owned()]);
        permit(access, "/vms/700", "Look");
    });
    stage
}

/// Like [`stage_of`], but the token cannot see the unmanaged VM.
fn unseeing(settings: &str) -> Stage {
    let stage = Stage::new(settings);
    stage.pve.map_pci("gpu", &[("pve1", "0000:01:00"), ("pve2", "0000:01:00"), ("pve2", "0000:41:00")]);
    let mut other = VmSpec::machine(700, "pve2", "games");
    other.config.insert("hostpci0".to_owned(), "0000:41:00.0,pcie=1".to_owned());
    assert!(stage.pve.create_by_hand(other));
    stage.pve.start_by_hand(700);
    stage.pve.change_access(|access| {
        let worker = access.roles.get_mut("KasWorker").unwrap();
        worker.push("VM.Config.HWType".to_owned());
        access.roles.insert("Gpu".to_owned(), vec!["Mapping.Use".to_owned()]);
        permit(access, "/mapping/pci/gpu", "Gpu");
    });
    stage
}

fn permit(access: &mut AccessSpec, path: &str, role: &str) {
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        let (path, who, role) = (path.to_owned(), who.to_owned(), role.to_owned());
        access.grants.push(Grant { path, who, role, propagate: false });
    }
}

fn deploy(stage: &Stage, replicas: u32) {
    let mut train = samples::deployment("train", replicas, "500m", "1Gi");
    for amounts in ["requests", "limits"] {
        train["spec"]["template"]["spec"]["containers"][0]["resources"][amounts]["nvidia.com/gpu"] =
            json!("1");
    }
    stage.kube.apply(&train).unwrap();
}

/// Reports the GPUs, as the device plugin does minutes after the node is ready.
fn announce(stage: &Stage) {
    for node in stage.ready_nodes("workers") {
        let gpu = json!({ "nvidia.com/gpu": "1" });
        let status = json!({ "status": { "allocatable": gpu, "capacity": gpu } });
        assert!(stage.kube.patch_by_hand("Node", "", &node, &status));
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_machines_are_made_as_hosts_have_free_gpus() {
    let mut stage = stage();
    stage.start();
    deploy(&stage, 3);
    stage.until("two nodes are ready", SOON, |stage| stage.ready_nodes("workers").len() == 2).await;
    // The nodes' device plugins have not reported yet. The daemon still creates no other machines in place of
    // these nodes.
    let two = |stage: &Stage| stage.vms(9100..=9109).len() == 2;
    stage.throughout("no third machine is made", Duration::from_mins(3), two).await;
    announce(&stage);
    stage.until("two pods run", SOON, |stage| stage.running_pods() == 2).await;
    let mut held = stage.pve.held_pci();
    held.sort();
    let held: Vec<(&str, &str)> = held.iter().map(|(host, path, _)| (host.as_str(), path.as_str())).collect();
    assert_eq!(held, [("pve1", "0000:01:00"), ("pve2", "0000:01:00"), ("pve2", "0000:41:00.0")]);
    let why = |stage: &Stage| {
        let pods = stage.status().pods;
        pods.into_iter().map(|pod| pod.why).collect::<Vec<_>>().join("; ")
    };
    stage
        .until("the third pod's reason names the hosts", SOON, |stage| {
            let why = why(stage);
            why.contains("pve1 has 0 of 1 devices of `gpu` left") && why.contains("pve2 has 0 of 1 devices")
        })
        .await;
    assert!(why(&stage).contains("pve3 has no device of the mapping `gpu`"), "{}", why(&stage));
    // The unmanaged VM stops, and releases its device.
    stage.pve.stop_by_hand(700);
    stage.until("there is a third machine", SOON, |stage| stage.ready_nodes("workers").len() == 3).await;
    announce(&stage);
    stage.until("three pods run", SOON, |stage| stage.running_pods() == 3).await;
    assert_eq!(stage.pve.config_of(9102, "hostpci0").as_deref(), Some("mapping=gpu"));
    let failed =
        stage.pve.task_exits().into_iter().filter(|(_, exit)| exit.as_ref().is_some_and(|exit| exit != "OK"));
    assert_eq!(failed.count(), 0, "no start lacked a device");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_has_changed_costs_no_clone() {
    let mut stage = stage();
    stage.pve.change_pci_hardware("pve1", "0000:01:00");
    stage.start();
    deploy(&stage, 1);
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let records = stage.kube.list("ConfigMap");
    let record = records.iter().find(|map| name(map).starts_with("machine-")).unwrap();
    assert!(record["data"]["record"].as_str().unwrap().contains("\"host\":\"pve2\""), "{record}");
}

/// Asserts that no machine is created if an unmanaged VM has the only device, and the VM's configuration
/// cannot be read after this many seconds.
async fn nothing_is_made_where_a_vm_cannot_be_read(from: u64, expected: &str) {
    let mut stage = stage();
    stage.pve.map_pci("gpu", &[("pve2", "0000:41:00")]);
    let fault = Fault {
        method: "GET".into(),
        path: "/nodes/*/qemu/700/config".into(),
        times: 1000,
        effect: Effect::Answer { status: 401, reason: "authentication failure".into(), body: String::new() },
    };
    if from == 0 {
        stage.pve.inject(fault.clone());
    }
    stage.start();
    tokio::time::sleep(Duration::from_secs(from)).await;
    if from > 0 {
        stage.pve.inject(fault);
    }
    deploy(&stage, 1);
    let none = |stage: &Stage| stage.status().machines.is_empty();
    stage.throughout("no machine is made", Duration::from_mins(12), none).await;
    let why: Vec<String> = stage.status().pods.into_iter().map(|pod| pod.why).collect();
    assert!(why.iter().any(|why| why.contains(expected)), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_device_stays_taken_while_its_vm_cannot_be_read_again() {
    nothing_is_made_where_a_vm_cannot_be_read(30, "pve2 has 0 of 0 devices of `gpu` left").await;
}

#[tokio::test(start_paused = true)]
async fn no_device_is_given_of_a_host_with_a_vm_that_was_never_read() {
    nothing_is_made_where_a_vm_cannot_be_read(0, "the devices of VM 700 cannot be read").await;
}

/// Asserts that no machine is created if a VM with the only device is started while reads of VMs or mappings
/// fail in this way.
async fn nothing_is_made_where_a_look_is_not_finished(path: &str, effect: Effect, expected: &str) {
    let mut stage = stage();
    stage.pve.map_pci("gpu", &[("pve2", "0000:41:00")]);
    stage.pve.stop_by_hand(700);
    stage.start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    stage.pve.inject(Fault { method: "GET".into(), path: path.to_owned(), times: 1000, effect });
    // Mappings are read once a minute.
    tokio::time::sleep(Duration::from_secs(90)).await;
    stage.pve.start_by_hand(700);
    tokio::time::sleep(Duration::from_secs(45)).await;
    deploy(&stage, 1);
    let none = |stage: &Stage| stage.status().machines.is_empty();
    stage.throughout("no machine is made", Duration::from_mins(8), none).await;
    let why: Vec<String> = stage.status().pods.into_iter().map(|pod| pod.why).collect();
    assert!(why.iter().any(|why| why.contains(expected)), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_starts_while_mappings_cannot_be_read_has_its_device() {
    let (reason, body) = ("authentication failure".to_owned(), String::new());
    let effect = Effect::Answer { status: 401, reason, body };
    let expected = "pve2 has 0 of 0 devices of `gpu` left";
    nothing_is_made_where_a_look_is_not_finished("/cluster/mapping/pci", effect, expected).await;
}

#[tokio::test(start_paused = true)]
async fn no_device_is_given_of_a_host_with_a_vm_that_takes_long_to_read() {
    let effect = Effect::Delay(Duration::from_mins(1));
    let expected = "the devices of VM 700 cannot be read";
    nothing_is_made_where_a_look_is_not_finished("/nodes/*/qemu/700/config", effect, expected).await;
}

/// The VMs of the host that hangs are read before the VM that holds a device.
#[tokio::test(start_paused = true)]
async fn a_host_that_hangs_takes_no_devices_from_the_others() {
    let mut stage = stage();
    stage.pve.map_pci("gpu", &[("pve1", "0000:01:00"), ("pve2", "0000:01:00"), ("pve2", "0000:41:00")]);
    for vmid in [600, 601, 602] {
        assert!(stage.pve.create_by_hand(VmSpec::machine(vmid, "pve1", "other")));
        stage.pve.start_by_hand(vmid);
        stage.pve.change_access(|access| permit(access, &format!("/vms/{vmid}"), "Look"));
        let path = format!("/nodes/*/qemu/{vmid}/config");
        let effect = Effect::Delay(Duration::from_mins(1));
        stage.pve.inject(Fault { method: "GET".into(), path, times: 1000, effect });
    }
    stage.start();
    deploy(&stage, 1);
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    assert_eq!(stage.pve.vm(9100).unwrap().node, "pve2");
}

/// The VM was last read while it was stopped, and has been given other devices since then.
#[tokio::test(start_paused = true)]
async fn a_vm_that_starts_holds_what_it_was_given_meanwhile() {
    let counted = ONE_POOL.replace("resource_pool", "count_stopped = true\nresource_pool");
    let mut stage = stage_of(&with_gpus(&counted));
    stage.pve.map_pci("gpu", &[("pve2", "0000:41:00")]);
    stage.pve.stop_by_hand(700);
    stage.pve.set_config_by_hand(700, "hostpci0", None);
    stage.start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    stage.pve.set_config_by_hand(700, "hostpci0", Some("mapping=gpu"));
    stage.pve.start_by_hand(700);
    tokio::time::sleep(Duration::from_secs(30)).await;
    deploy(&stage, 1);
    let none = |stage: &Stage| stage.status().machines.is_empty();
    stage.throughout("no machine is made", Duration::from_mins(2), none).await;
    let why: Vec<String> = stage.status().pods.into_iter().map(|pod| pod.why).collect();
    assert!(why.iter().any(|why| why.contains("pve2 has 0 of 1 devices of `gpu` left")), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_given_up_and_cannot_be_seen_keeps_its_device() {
    let mut stage = stage();
    stage.pve.map_pci("gpu", &[("pve1", "0000:01:00")]);
    stage.start();
    deploy(&stage, 1);
    let phase = |stage: &Stage, phase: &str| stage.status().machines.iter().any(|one| one.phase == phase);
    stage.until("the machine boots", SOON, |stage| phase(stage, "Booting")).await;
    rights(&stage, false);
    stage.until("the machine is given up", SOON, |stage| phase(stage, "Failed")).await;
    let alone = |stage: &Stage| stage.status().machines.len() == 1;
    stage.throughout("no other machine is made", Duration::from_mins(5), alone).await;
    rights(&stage, true);
    stage.until("another machine is made", SOON * 5, |stage| stage.ready_nodes("workers").len() == 1).await;
}

/// A renamed VM is read repeatedly, so the daemon finds it running before the list shows that it runs.
#[tokio::test(start_paused = true)]
async fn a_warm_machine_that_an_administrator_started_keeps_its_device_before_the_list_shows_it() {
    for instant in 0..30 {
        let mut stage = stage_of(&with_gpus(&keeping(1, WarmState::Stopped)));
        stage.pve.map_pci("gpu", &[("pve1", "0000:01:00")]);
        stage.start();
        stage.until("a machine waits", SOON, |stage| waiting(stage) == 1).await;
        stage.pve.set_config_by_hand(9100, "name", Some("renamed"));
        let path = "/nodes/*/qemu/9100/config".to_owned();
        let effect = Effect::Delay(Duration::from_secs(2));
        stage.pve.inject(Fault { method: "GET".into(), path, times: 1000, effect });
        // By this time after the VM was first found, its host has started every VM that starts with the host.
        tokio::time::sleep(Duration::from_secs(150 + instant)).await;
        stage.pve.start_by_hand(9100);
        stage.until("the machine is given up", SOON, |stage| waiting(stage) == 0).await;
        deploy(&stage, 1);
        let runs = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| vm.running);
        let alone = |stage: &Stage| !runs(stage) || stage.status().machines.len() == 1;
        stage.throughout("no other machine is made meanwhile", Duration::from_secs(30), alone).await;
        stage.until("another machine is made", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_another_vm_has_unseen_costs_one_machine() {
    let mut stage = unseeing(&with_gpus(ONE_POOL));
    // A VM that the token cannot see has the only device of pve1.
    stage.pve.set_config_by_hand(700, "hostpci0", Some("mapping=gpu"));
    stage.pve.stop_by_hand(700);
    stage.pve.migrate_by_hand(700, "pve1");
    stage.pve.start_by_hand(700);
    assert_eq!(stage.pve.held_pci(), [("pve1".to_owned(), "0000:01:00".to_owned(), 700)]);
    stage.start();
    deploy(&stage, 1);
    stage.until("a node is ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let exits = stage.pve.task_exits();
    let failed: Vec<&String> =
        exits.iter().filter_map(|(_, exit)| exit.as_ref()).filter(|exit| *exit != "OK").collect();
    assert_eq!(failed, ["could not find a free device for 'hostpci0'"]);
    stage.until("the failed machine is gone", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
    assert!(stage.pve.vm(700).is_some_and(|vm| vm.running), "the other VM still runs");
}
