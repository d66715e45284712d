//! Two Kubernetes clusters, each with its own daemon, have machines on the same hosts. Neither daemon uses
//! room that the other has promised to a machine, and neither touches the other's VMs.

use std::time::Duration;

use serde_json::Value;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
const GIB: i64 = 1 << 30;
/// The memory that a host keeps free for itself.
const RESERVE: i64 = 2 * GIB;

/// The first cluster's configuration: up to this many machines with this much memory.
fn first(max: u32, memory: &str) -> String {
    let quick = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    ONE_POOL
        .replace("[[pool]]", quick)
        .replace("max = 5", &format!("max = {max}"))
        .replace("\"4GiB\"", &format!("\"{memory}\""))
        .replace("9100-9109", "9100-9129")
        .replace("10.10.10.11-10.10.10.20", "10.10.10.11-10.10.10.40")
}

/// Turns the first cluster's configuration into one for another cluster, with its own id, VMIDs and
/// addresses.
fn second(text: &str) -> String {
    text.replace("cluster = \"lab\"", "cluster = \"shop\"")
        .replace("9100-9129", "9200-9229")
        .replace("10.10.10.11-10.10.10.40", "10.10.10.101-10.10.10.130")
}

/// The total memory of the VMs that run on a host, in bytes.
fn running_memory(stage: &Stage, host: &str) -> i64 {
    let vms = stage.pve.vmids().into_iter().filter_map(|vmid| stage.pve.vm(vmid));
    let here = vms.filter(|vm| vm.running && vm.node == host);
    here.map(|vm| vm.config["memory"].parse::<i64>().unwrap() << 20).sum()
}

/// Waits until the condition is met, and asserts meanwhile that the VMs running on a host never have more
/// memory than `room`.
async fn fairly(what: &str, limit: Duration, both: [&Stage; 2], room: i64, is_so: impl Fn() -> bool) {
    both[0]
        .until(what, limit, |stage| {
            for host in ["pve1", "pve2", "pve3"] {
                let memory = running_memory(stage, host);
                assert!(memory <= room, "VMs on {host} use {memory} of {room} bytes; {}", both[1].scene());
            }
            is_so()
        })
        .await;
}

fn pods(both: [&Stage; 2]) -> usize {
    both[0].running_pods() + both[1].running_pods()
}

#[tokio::test(start_paused = true)]
async fn of_two_that_want_the_last_room_one_gets_it_and_the_other_says_why_it_waits() {
    // The first cluster's head start, in milliseconds.
    for head_start in [0, 200, 1000, 3000, 6000] {
        let mut spec = ClusterSpec::demo();
        spec.hosts.truncate(1);
        (spec.hosts[0].memory, spec.hosts[0].memory_used) = (8 << 30, 1 << 30);
        spec.vms.retain(|vm| vm.node == "pve1");
        let room = 8 * GIB - RESERVE;
        let text = first(5, "4GiB");
        let mut home = Stage::of(&text, spec, KubeSpec::demo());
        let mut shop = home.another_kubernetes(&second(&text));
        home.start();
        shop.start();
        tokio::time::sleep(Duration::from_secs(30)).await;
        home.deploy("web", 1, "1500m", "1Gi");
        tokio::time::sleep(Duration::from_millis(head_start)).await;
        shop.deploy("web", 1, "1500m", "1Gi");
        let both = [&home, &shop];
        fairly("one pod runs", SOON, both, room, || pods(both) == 1).await;
        let (winner, loser) = if home.running_pods() == 1 { (&home, &shop) } else { (&shop, &home) };
        let machine = winner.ready_nodes("workers");
        let waits =
            |stage: &Stage| stage.status().pods.first().map(|pod| pod.why.clone()).unwrap_or_default();
        fairly("it says why", SOON, both, room, || waits(loser).contains("memory left")).await;
        let until = tokio::time::Instant::now() + Duration::from_mins(10);
        fairly("time passes", SOON * 5, both, room, || tokio::time::Instant::now() >= until).await;
        assert_eq!((winner.ready_nodes("workers"), winner.running_pods()), (machine, 1), "{head_start}");
        assert!(loser.ready_nodes("workers").is_empty() && loser.status().machines.is_empty());
        // The losing cluster gets its machine once the winner no longer needs the room.
        winner.kube.scale("default", "web", 0);
        fairly("the losing cluster's pod runs", SOON * 5, both, room, || loser.running_pods() == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_that_wake_a_kept_machine_for_the_last_room_one_waits() {
    // Whether both clusters keep a warm machine (otherwise, only the first cluster does), and the first
    // cluster's head start in milliseconds.
    for (both_keep, head_start) in [
        (false, 0),
        (false, 1000),
        (false, 3000),
        (true, 0),
        (true, 500),
        (true, 1000),
        (true, 3000),
        (true, 6000),
    ] {
        let mut spec = ClusterSpec::demo();
        spec.hosts.truncate(1);
        (spec.hosts[0].memory, spec.hosts[0].memory_used) = (8 << 30, 1 << 30);
        spec.vms.retain(|vm| vm.node == "pve1");
        let room = 8 * GIB - RESERVE;
        let text = first(5, "4GiB");
        let kept = "warm = { count = 1, state = \"stopped\" }\n";
        let mut home = Stage::of(&format!("{text}{kept}"), spec, KubeSpec::demo());
        let other = second(&text);
        let mut shop = home.another_kubernetes(&if both_keep { other + kept } else { other });
        home.start();
        shop.start();
        let keep = if both_keep { 2 } else { 1 };
        let resting =
            |stage: &Stage| stage.status().machines.iter().filter(|one| one.phase == "Warm").count();
        fairly("they are kept", SOON * 3, [&home, &shop], room, || resting(&home) + resting(&shop) == keep)
            .await;
        home.deploy("web", 1, "1500m", "1Gi");
        tokio::time::sleep(Duration::from_millis(head_start)).await;
        shop.deploy("web", 1, "1500m", "1Gi");
        let both = [&home, &shop];
        fairly("one pod runs", SOON * 2, both, room, || pods(both) == 1).await;
        let until = tokio::time::Instant::now() + Duration::from_mins(10);
        fairly("time passes", SOON * 5, both, room, || tokio::time::Instant::now() >= until).await;
        assert_eq!(pods(both), 1, "both keep: {both_keep}, head start: {head_start} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn twice_twenty_machines_at_once_overcommit_no_host_and_fill_all_of_them() {
    // Each of the three hosts has room for twelve machines, and forty are wanted.
    let text = first(25, "10GiB").replace("[bootstrap]", "[limits]\nmax_parallel_creates = 10\n[bootstrap]");
    let mut home = Stage::new(&text);
    let mut shop = home.another_kubernetes(&second(&text));
    home.start();
    shop.start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    for stage in [&home, &shop] {
        stage.deploy("web", 20, "1500m", "1Gi");
    }
    let (both, room) = ([&home, &shop], 128 * GIB - RESERVE);
    fairly("the hosts are full", Duration::from_hours(1), both, room, || pods(both) == 36).await;
    assert!(home.running_pods() >= 12 && shop.running_pods() >= 12, "each cluster runs at least 12 pods");
    for stage in both {
        let waiting = stage.status().pods;
        assert!(waiting.iter().all(|pod| pod.why.contains("memory left")), "{waiting:?}");
        let foreign = stage.status().problems.contains_key("strangers");
        assert!(!foreign, "{:?}", stage.status().problems);
    }
    // Each machine belongs to the cluster in whose range its VMID is.
    for vmid in home.vms(9100..=9229) {
        let mark = home.pve.config_of(vmid, "description").unwrap();
        let of = if vmid < 9200 { "cluster=lab " } else { "cluster=shop " };
        assert!(mark.contains(of), "{vmid}: {mark}");
    }
}

/// The problem that the status reports about VMs that are not machines.
fn told(stage: &Stage) -> String {
    stage.status().problems.get("strangers").cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_second_cluster_with_the_same_id_or_vmids_is_recognised_by_its_machines() {
    let text = first(5, "4GiB");
    let same_id = second(&text).replace("cluster = \"shop\"", "cluster = \"lab\"");
    let same_vmids = text.replace("cluster = \"lab\"", "cluster = \"shop\"");
    for (other, words) in [
        (same_id, "belongs to another Kubernetes cluster whose daemon has the same id"),
        (same_vmids, "a machine of cluster `lab`, has a VMID of pool `workers`"),
    ] {
        let mut home = Stage::running(&text);
        home.deploy("web", 1, "1500m", "1Gi");
        home.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
        let vmid = home.vms(9100..=9229)[0];
        let mut shop = home.another_kubernetes(&other);
        shop.start();
        shop.until("it is reported", SOON, |stage| told(stage).contains(words)).await;
        let said = told(&shop);
        assert!(said.contains(&format!("VM {vmid} ")) && !said.contains("qm destroy"), "{said}");
        shop.deploy("web", 1, "1500m", "1Gi");
        shop.until("its pod runs", SOON, |stage| stage.running_pods() == 1).await;
        assert_eq!(home.running_pods(), 1);
        home.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_copied_into_another_cluster_does_not_make_its_vm_that_clusters() {
    let text = first(5, "4GiB");
    let home = Stage::running(&text);
    home.deploy("web", 1, "1500m", "1Gi");
    home.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let vmid = home.vms(9100..=9129)[0];
    let name = format!("machine-workers-{vmid}");
    // Copies the record, like a tool that restores namespaces from a backup into a cluster with the same
    // configuration.
    let maps = home.kube.list("ConfigMap");
    let record = maps.iter().find(|map| map["metadata"]["name"] == name.as_str()).unwrap();
    let mut record = Value::clone(record);
    let meta = record["metadata"].as_object_mut().unwrap();
    meta.retain(|key, _: &mut Value| ["name", "namespace", "labels", "annotations"].contains(&key.as_str()));
    record["kind"] = "ConfigMap".into();
    let mut copy = home.another_kubernetes(&text);
    copy.kube.apply(&record).unwrap();
    copy.start();
    let node = home.ready_nodes("workers");
    home.throughout("the machine serves its cluster", Duration::from_mins(40), |stage| {
        stage.pve.vm(vmid).is_some_and(|vm| vm.running) && stage.running_pods() == 1
    })
    .await;
    assert_eq!(home.ready_nodes("workers"), node);
    assert!(told(&copy).contains("belongs to another Kubernetes cluster"), "{}", copy.scene());
}
