//! Pools that grow.

use world::proxmox::spec::VmSpec;

use crate::lab_kubernetes::{Bench, LARGE};
use crate::shared::bench::{POOL, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn several_pools_grow_at_once() {
    let mut bench = Bench::new(cluster(), &format!("{POOL}{LARGE}")).await.unwrap();
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.deploy("db", 1, "7", "12Gi").await;
    bench.until("both pods run", |bench| bench.running() == 2).await;
    assert_eq!((bench.nodes("workers").len(), bench.nodes("large").len()), (1, 1));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_vm_on_a_vmid_of_the_pool_is_left_alone() {
    let mut bench = Bench::new(cluster(), POOL).await.unwrap();
    assert!(bench.proxmox.pve.create_by_hand(VmSpec::machine(9100, "pve2", "unmanaged-vm")));
    let before = bench.proxmox.pve.vm(9100);
    bench.deploy("web", 2, "1500m", "1Gi").await;
    bench.until("both pods run", |bench| bench.running() == 2).await;
    assert_eq!(bench.proxmox.pve.vm(9100), before);
    assert_eq!(bench.vms().len(), 3);
    bench.stop().await;
}
