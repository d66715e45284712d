//! Machines of several sizes, including nodes that are replaced by smaller ones and nodes that are lost.

use std::time::Duration;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);

/// Machines of 2, 4 and 8 cores; unneeded nodes are removed quickly.
fn three_sizes(scale_down: &str) -> String {
    let sizes =
        "memory = \"4GiB\"\nsizes = [{ cores = 4, memory = \"8GiB\" }, { cores = 8, memory = \"16GiB\" }]";
    let quick =
        format!("[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n{scale_down}\n[[pool]]");
    ONE_POOL.replace("memory = \"4GiB\"", sizes).replace("[[pool]]", &quick)
}

/// Cores and MiB of the machines, smallest first.
fn shapes(stage: &Stage) -> Vec<(u32, u32)> {
    let vms = stage.vms(9100..=9109).into_iter().filter_map(|vmid| stage.pve.vm(vmid));
    let number = |text: Option<&String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut shapes: Vec<(u32, u32)> =
        vms.map(|vm| (number(vm.config.get("cores")), number(vm.config.get("memory")))).collect();
    shapes.sort_unstable();
    shapes
}

/// The CPUs that the Nodes of the pool report.
fn capacities(stage: &Stage) -> Vec<String> {
    let nodes = stage.kube.list("Node");
    let of_pool = nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers");
    of_pool.map(|node| node["status"]["capacity"]["cpu"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn machines_are_made_in_the_sizes_that_waste_least() {
    let stage = Stage::running(&three_sizes(""));
    stage.deploy("big", 1, "7", "4Gi");
    stage.until("it runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(shapes(&stage), [(8, 16384)]);
    assert_eq!(capacities(&stage), ["8"], "the guest has the planned CPUs");
    stage.deploy("small", 1, "1500m", "1Gi");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(shapes(&stage), [(2, 4096), (8, 16384)]);
    // What is learned about one size is not applied to another.
    stage.deploy("middle", 1, "3", "1Gi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
    assert_eq!(shapes(&stage), [(2, 4096), (4, 8192), (8, 16384)]);
}

#[tokio::test(start_paused = true)]
async fn a_size_survives_a_restart_of_the_daemon_while_its_machine_is_made() {
    let mut stage = Stage::running(&three_sizes(""));
    stage.deploy("big", 1, "7", "4Gi");
    stage.until("a clone runs", SOON, |stage| !stage.vms(9100..=9109).is_empty()).await;
    stage.kill();
    stage.start();
    stage.until("it runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(shapes(&stage), [(8, 16384)]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_a_smaller_one_could_replace_is_replaced_once_and_no_pod_waits_long() {
    let stage = Stage::running(&three_sizes("consolidation = true"));
    stage.deploy("big", 1, "6", "4Gi");
    stage.until("it runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.deploy("small", 1, "1500m", "1Gi");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(shapes(&stage), [(8, 16384)]);
    stage.kube.scale("default", "big", 0);
    stage.until("a smaller VM exists", SOON, |stage| shapes(stage) == [(2, 4096), (8, 16384)]).await;
    assert_eq!(stage.running_pods(), 1, "the pod still runs on the large machine");
    stage.until("the large machine is gone", SOON * 2, |stage| shapes(stage) == [(2, 4096)]).await;
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.throughout("nothing more happens", SOON * 5, |stage| shapes(stage) == [(2, 4096)]).await;
}

#[tokio::test(start_paused = true)]
async fn without_consolidation_a_large_node_stays() {
    let stage = Stage::running(&three_sizes(""));
    stage.deploy("big", 1, "6", "4Gi");
    stage.until("it runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.deploy("small", 1, "1500m", "1Gi");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    stage.kube.scale("default", "big", 0);
    stage.throughout("it stays", SOON * 5, |stage| shapes(stage) == [(8, 16384)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_of_a_pool_at_its_minimum_is_replaced_and_then_goes() {
    let text = ONE_POOL
        .replace("max = 5", "max = 5\nmin = 2")
        .replace("[[pool]]", "[scale_down]\nunready_time = \"5m\"\ndelay_after_add = \"0s\"\n[[pool]]");
    let stage = Stage::running(&text);
    stage.until("both are there", SOON, |stage| stage.ready_nodes("workers").len() == 2).await;
    let lost = stage.ready_nodes("workers")[0].clone();
    stage.kube.set_kubelet_silent(&lost, true);
    stage.until("the silent node is not ready", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    stage
        .throughout("nothing is hurried", Duration::from_mins(4), |stage| stage.vms(9100..=9109).len() == 2)
        .await;
    stage.until("another node takes its place", SOON, |stage| stage.ready_nodes("workers").len() == 2).await;
    let listed =
        |stage: &Stage| stage.kube.list("Node").iter().any(|node| node["metadata"]["name"] == lost.as_str());
    stage.until("the lost Node is gone", Duration::from_mins(30), |stage| !listed(stage)).await;
    stage.until("two are left", SOON, |stage| stage.vms(9100..=9109).len() == 2).await;
}
