//! Disks, storages and options of machines.

use std::time::Duration;

use model::Vmid;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::{ClusterSpec, GIB};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(5);

const FULL: &str = r#"
clone = "full"
storage = ["local-lvm", "shared"]
disk = "20GiB"
hosts = ["pve1"]
extra_disks = [{ device = "scsi1", size = "30GiB", storage = "local-lvm" }]
vm_options = { cpu = "host", numa = true, cpuunits = 200 }
"#;

#[tokio::test(start_paused = true)]
async fn a_full_clone_is_where_there_is_room_and_has_its_disks_and_options() {
    let mut stage = Stage::new(&format!("{ONE_POOL}{FULL}"));
    stage.start();
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("two pods run", SOON, |stage| stage.running_pods() == 2).await;
    let configs: Vec<_> = [9100, 9101].map(|vmid| stage.pve.vm(vmid).unwrap().config).into();
    for config in &configs {
        assert!(config["scsi1"].starts_with("local-lvm:"), "{}", config["scsi1"]);
        for part in ["size=30G", "backup=0", "discard=on"] {
            assert!(config["scsi1"].contains(part), "no {part} in {}", config["scsi1"]);
        }
        assert!(config["scsi0"].contains("size=20G"), "{}", config["scsi0"]);
        assert_eq!((config["cpu"].as_str(), config["numa"].as_str()), ("host", "1"));
        assert_eq!(config["cpuunits"], "200");
    }
    // Both storages are equally empty at first; the first machine's extra disk then makes the other storage
    // the emptier one.
    let storage = |at: usize| configs[at]["scsi0"].split(':').next().unwrap().to_owned();
    assert_eq!((storage(0), storage(1)), ("local-lvm".to_owned(), "shared".to_owned()));
    // Everything is removed with the machine.
    stage.kube.scale("default", "web", 0);
    stage.until("the VMs are gone", Duration::from_hours(1), |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.until("nothing is left over", SOON, |stage| stage.leftovers().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_has_just_grown_is_counted_before_its_storage_says_so() {
    let mut spec = ClusterSpec::demo();
    let storage = spec.storages.iter_mut().find(|one| one.id == "local-lvm").unwrap();
    // Besides the templates' disks, there is room for one machine, whose disk has the template's size until
    // the machine is configured.
    storage.size = storage.used + 90 * GIB;
    let pool = "clone = \"full\"\nstorage = \"local-lvm\"\ndisk = \"40GiB\"\nhosts = [\"pve1\"]\n";
    let mut stage = Stage::of(&format!("{ONE_POOL}{pool}"), spec, KubeSpec::demo());
    stage.start();
    stage.deploy("first", 1, "1500m", "1Gi");
    let is_started = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Starting");
    stage.until("the machine is configured", SOON, is_started).await;
    stage.deploy("second", 1, "1500m", "1Gi");
    stage.throughout("there is no other machine", SOON, |stage| stage.status().machines.len() == 1).await;
    assert_eq!(stage.running_pods(), 1);
}

/// Whether the status of a machine in this phase names the command that frees its disk.
fn told(stage: &Stage, phase: &str) -> bool {
    let machines = stage.status().machines;
    machines.iter().any(|one| one.phase == phase && one.why.contains("pvesm free shared:"))
}

/// Removes a node whose disk remains because the storage cannot free it.
async fn leaves_its_disk(stage: &Stage, vmid: Vmid) {
    stage.pve.set_storage_busy("shared", true);
    stage.kube.scale("default", "first", 0);
    stage.until("the command is reported", SOON * 3, |stage| told(stage, "Clearing")).await;
    assert!(stage.pve.vm(vmid.0).is_none());
    stage.pve.set_storage_busy("shared", false);
}

/// Unneeded nodes are removed after two minutes.
fn quick(max: u32) -> String {
    let table = "[scale_down]\nunneeded_time = \"2m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    ONE_POOL.replace("[[pool]]", table).replace("max = 5", &format!("max = {max}"))
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_left_behind_keeps_no_other_node() {
    for restarts in [false, true] {
        let mut stage = Stage::running(&quick(5));
        stage.deploy("first", 1, "1500m", "1Gi");
        stage.until("a pod runs", SOON, |stage| stage.running_pods() == 1).await;
        stage.deploy("second", 1, "1500m", "1Gi");
        stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
        leaves_its_disk(&stage, Vmid(9100)).await;
        if restarts {
            stage.kill();
            stage.start();
            stage.until("the command is reported again", SOON, |stage| told(stage, "Clearing")).await;
            let goes = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Deleting");
            stage.throughout("nothing is removed again", Duration::from_mins(2), |stage| !goes(stage)).await;
        }
        stage.kube.scale("default", "second", 0);
        stage.until("the other machine is gone", SOON * 2, |stage| stage.vms(9100..=9109).is_empty()).await;
        // The machine's slot stays closed, and the status says why.
        let left = |stage: &Stage| stage.leftovers() == ["machine-workers-9100"];
        stage.until("nothing else is left", SOON, left).await;
        stage.until("the command is reported", SOON, |stage| told(stage, "Clearing")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_left_behind_is_no_machine_of_a_full_pool() {
    let stage = Stage::running(&quick(1));
    stage.deploy("first", 1, "1500m", "1Gi");
    stage.until("a pod runs", SOON, |stage| stage.running_pods() == 1).await;
    leaves_its_disk(&stage, Vmid(9100)).await;
    stage.deploy("second", 1, "1500m", "1Gi");
    stage.until("the next pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9101]);
}
