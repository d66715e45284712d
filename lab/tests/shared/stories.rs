//! What is played on the embedded Kubernetes and on a real one.

use std::time::Duration;

use serde_json::Value;
use world::guest::GuestFaults;
use world::kubernetes::samples;

use super::bench::{Bench, Kubernetes, POOL, cluster};

/// A pool has a Node for one pod; the Node is as the machine is, and nothing is left over of making it.
pub async fn a_pool_scales_from_zero<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    assert_eq!(bench.nodes("workers").len(), 1);
    let node = &bench.kube.list("Node").into_iter().find(is_ours).unwrap();
    let vm = bench.proxmox.pve.vm(bench.vms()[0]).unwrap();
    let smbios = vm.config["smbios1"].clone();
    let uuid = node["status"]["nodeInfo"]["systemUUID"].as_str().unwrap();
    assert!(smbios.contains(&format!("uuid={uuid}")), "{smbios} {uuid}");
    assert_eq!(node["metadata"]["name"], vm.config["name"].as_str());
    assert_eq!(node["status"]["capacity"]["cpu"], "2");
    bench.until("only its record is left over", |bench| bench.leftovers() == ["machine-workers-9100"]).await;
    bench.stop().await;
}

/// Ten pods that fill a node each get ten nodes in one go.
pub async fn ten_nodes_come_at_once<K: Kubernetes>() {
    let pool =
        POOL.replace("max = 3", "max = 12").replace("9109", "9119").replace("127.11.10.20", "127.11.10.30");
    let Some(mut bench) = Bench::<K>::new(cluster(), &pool).await else { return };
    bench.deploy("web", 10, "1500m", "1Gi").await;
    bench.until("all pods run", |bench| bench.running() == 10).await;
    bench.until("only records are left over", |bench| bench.leftovers().len() == 10).await;
    assert_eq!((bench.nodes("workers").len(), bench.vms().len()), (10, 10));
    bench.stop().await;
}

/// A pool keeps to its maximum.
pub async fn a_pool_at_its_maximum_grows_no_further<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 5, "1500m", "1Gi").await;
    bench.until("three pods run", |bench| bench.running() == 3).await;
    bench.throughout("there are three VMs", Duration::from_secs(4), |bench| bench.vms().len() == 3).await;
    bench.stop().await;
}

/// kubeadm's words reach the log, and the machine, its record and its token go.
pub async fn a_join_that_fails_leaves_nothing_behind<K: Kubernetes>() {
    let said = "error execution phase preflight: the container runtime is not running";
    let faults = GuestFaults { join_fails: Some(said.to_owned()), ..GuestFaults::default() };
    let mut cluster = cluster();
    cluster.vms.iter_mut().for_each(|vm| vm.faults = faults.clone());
    let Some(mut bench) = Bench::<K>::new(cluster, POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("it is told", |bench| bench.log().contains(said)).await;
    bench.until("nothing is left of it", Bench::is_clean).await;
    bench.stop().await;
}

/// A pool goes back to zero, in its time.
pub async fn a_node_goes_after_the_unneeded_time_and_not_before<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    bench.kube.scale("web", 0).await;
    bench
        .throughout("the node stays", Duration::from_millis(1900), |bench| bench.nodes("workers").len() == 1)
        .await;
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
}

/// A disruption budget holds two half empty nodes apart for as long as it has to.
pub async fn a_budget_refuses_for_a_while_and_then_allows<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("big", 2, "1500m", "1Gi").await;
    bench.until("both run", |bench| bench.running() == 2).await;
    bench.deploy("small", 2, "200m", "256Mi").await;
    bench.until("all run", |bench| bench.running() == 4).await;
    bench.kube.apply(&samples::budget("small", 2)).await;
    bench.kube.scale("big", 1).await;
    bench.throughout("both nodes stay", Duration::from_secs(6), |bench| bench.vms().len() == 2).await;
    bench.kube.apply(&samples::budget("small", 1)).await;
    bench.until("one node is left", |bench| bench.vms().len() == 1).await;
    bench.until("all run", |bench| bench.running() == 3).await;
    bench.stop().await;
}

/// SIGKILL in the middle of growth and of removal.
pub async fn a_daemon_that_was_killed_goes_on_where_it_was<K: Kubernetes>() {
    let Some(mut bench) = Bench::<K>::new(cluster(), POOL).await else { return };
    bench.deploy("web", 2, "1500m", "1Gi").await;
    bench.until("VMs are there", |bench| bench.vms().len() == 2).await;
    bench.kill().await;
    bench.launch();
    bench.until("both pods run", |bench| bench.running() == 2).await;
    bench.kube.scale("web", 0).await;
    bench.until("a VM is gone", |bench| bench.vms().len() < 2).await;
    bench.kill().await;
    bench.launch();
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
}

fn is_ours(node: &Value) -> bool {
    node["metadata"]["labels"]["pve-autoscaler/pool"].is_string()
}
