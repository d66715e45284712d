//! Disks, storages and options of machines.

use std::time::Duration;

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
    // Both storages are equally empty: the further disk of the first machine makes the other the emptier one.
    let storage = |at: usize| configs[at]["scsi0"].split(':').next().unwrap().to_owned();
    assert_eq!((storage(0), storage(1)), ("local-lvm".to_owned(), "shared".to_owned()));
    // Everything goes with the machine.
    stage.kube.scale("default", "web", 0);
    stage.until("the VMs are gone", Duration::from_hours(1), |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.until("nothing is left over", SOON, |stage| stage.leftovers().is_empty()).await;
}
