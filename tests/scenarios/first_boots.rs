//! First boots of a template's clones: quick ones, slow ones, and ones that end degraded.

use std::time::Duration;

use world::guest::GuestFaults;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

/// The demo cluster, with these faults in its template's clones.
fn coming_up(faults: &GuestFaults) -> ClusterSpec {
    let mut cluster = ClusterSpec::demo();
    cluster.vms.iter_mut().for_each(|vm| vm.faults = faults.clone());
    cluster
}

/// Clones of a template with a unit that always fails.
fn degraded(text: &str) -> Stage {
    let faults = GuestFaults { degraded: true, ..GuestFaults::default() };
    let mut stage = Stage::of(text, coming_up(&faults), KubeSpec::demo());
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_degraded_for_good_makes_nodes_where_that_is_accepted() {
    let stage = degraded(ONE_POOL);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_degraded_for_good_is_given_up_at_once_where_that_is_refused() {
    let refused = ONE_POOL.replace("method = \"kubeadm\"", "method = \"kubeadm\"\naccept_degraded = false");
    let stage = degraded(&refused);
    stage.until("a VM is there", SOON, |stage| !stage.vms(9100..=9109).is_empty()).await;
    // `SOON` is shorter than the time limits for systemd and for the machine. If the machine is given up
    // within `SOON`, the reason can only be that it is degraded.
    let gone = |stage: &Stage| stage.vms(9100..=9109).is_empty() && stage.leftovers().is_empty();
    stage.until("the machine is gone", SOON, gone).await;
    let told =
        |stage: &Stage| stage.status().decisions.iter().any(|one| format!("{one:?}").contains("degraded"));
    stage.until("the reason is reported", SOON, told).await;
    assert!(stage.ready_nodes("workers").is_empty());
}

/// By default, Proxmox VE tells cloud-init to upgrade packages at first boot. Without package mirrors, such
/// an upgrade takes minutes.
#[tokio::test(start_paused = true)]
async fn a_machine_does_not_upgrade_its_packages_at_first_boot_whatever_its_template_says() {
    let mut cluster = ClusterSpec::demo();
    for vm in &mut cluster.vms {
        vm.config.remove("ciupgrade");
    }
    let mut stage = Stage::of(ONE_POOL, cluster, KubeSpec::demo());
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.pve.vm(9100).unwrap().config["ciupgrade"], "0");
}
