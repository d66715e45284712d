//! Growing.

use std::time::Duration;

use world::proxmox::spec::VmSpec;

use crate::bench::{Bench, LARGE, POOL, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_scales_from_zero() {
    let mut bench = Bench::new(cluster(), POOL).await;
    bench.deploy("web", 1, "1500m", "1Gi");
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    assert_eq!(bench.nodes("workers").len(), 1);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_pools_grow_at_once() {
    let mut bench = Bench::new(cluster(), &format!("{POOL}{LARGE}")).await;
    bench.deploy("web", 1, "1500m", "1Gi");
    bench.deploy("db", 1, "7", "12Gi");
    bench.until("both pods run", |bench| bench.running() == 2).await;
    assert_eq!((bench.nodes("workers").len(), bench.nodes("large").len()), (1, 1));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_at_its_maximum_grows_no_further() {
    let mut bench = Bench::new(cluster(), POOL).await;
    bench.deploy("web", 5, "1500m", "1Gi");
    bench.until("three pods run", |bench| bench.running() == 3).await;
    bench.throughout("there are three VMs", Duration::from_secs(4), |bench| bench.vms().len() == 3).await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_vm_on_a_vmid_of_the_pool_is_left_alone() {
    let mut bench = Bench::new(cluster(), POOL).await;
    assert!(bench.clusters.pve.create_by_hand(VmSpec::machine(9100, "pve2", "somebody-elses")));
    let before = bench.clusters.pve.vm(9100);
    bench.deploy("web", 2, "1500m", "1Gi");
    bench.until("both pods run", |bench| bench.running() == 2).await;
    assert_eq!(bench.clusters.pve.vm(9100), before);
    assert_eq!(bench.vms().len(), 3);
    bench.stop().await;
}
