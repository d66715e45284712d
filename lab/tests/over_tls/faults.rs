//! Tests faults inside a guest, on a host, and in either API.

use std::time::Duration;

use world::guest::GuestFaults;

use crate::lab_kubernetes::{Bench, faulty};
use crate::shared::bench::{POOL, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_whose_agent_never_answers_is_destroyed() {
    let faults = GuestFaults { agent_never: true, ..GuestFaults::default() };
    let mut bench = Bench::new(faulty(&faults), POOL).await.unwrap();
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("a VM exists", |bench| !bench.vms().is_empty()).await;
    let took = bench.until("nothing of the machine is left", Bench::is_clean).await;
    assert!(took > Duration::from_secs(4), "the agent is given enough time to answer: {took:?}");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn proxmox_is_away_for_a_while() {
    let mut bench = Bench::new(cluster(), POOL).await.unwrap();
    bench.deploy("web", 2, "1500m", "1Gi").await;
    bench.until("a VM is being created", |bench| !bench.vms().is_empty()).await;
    bench.proxmox.pve.set_away(true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.proxmox.pve.set_away(false);
    bench.until("both pods run", |bench| bench.running() == 2).await;
    bench.until("two records are left", |bench| bench.vms().len() == 2 && bench.leftovers().len() == 2).await;
    bench.stop().await;
}
