//! Measures how much memory a cluster of 1000 nodes and 30,000 pods uses: as a snapshot, and at the peak of a
//! decision.
//!
//! The pods have the fields that real pods have: an owner, labels and tolerations. The benchmark only runs on
//! Linux, because it reads `/proc/self/status`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may panic on unexpected results"
)]

#[path = "worlds/inventory.rs"]
mod inventory;

use std::sync::Arc;

use pve_autoscaler::model::node::Node;
use pve_autoscaler::model::pod::{Owner, Pod, PodPhase, Toleration};
use pve_autoscaler::model::pod_spec::{PodSpec, Specs};
use pve_autoscaler::model::snapshot::POOL_LABEL;
use pve_autoscaler::model::{Resources, Snapshot};
use pve_autoscaler::planning::plan;
use pve_autoscaler::settings::{self, Config, Needs};

const LIMIT_MIB: u64 = 45;

/// A value from `/proc/self/status`, in MiB.
fn status(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

fn pod(number: usize, node: &str) -> Pod {
    let app = format!("app-{:04}", number / 30);
    let name = format!("{app}-7d9c5b8f6d-{number:05}");
    let labels = [
        ("app.kubernetes.io/name", app.as_str()),
        ("pod-template-hash", "7d9c5b8f6d"),
        ("app.kubernetes.io/instance", "main"),
    ];
    let toleration =
        |key: &str| Toleration { key: key.to_owned(), exists: true, value: String::new(), effect: None };
    Pod {
        uid: format!("{number:08}-5b8f-4d9c-8f6d-{number:012}"),
        phase: PodPhase::Running,
        node: Some(node.to_owned()),
        ready: true,
        name,
        spec: PodSpec {
            namespace: format!("team-{}", number / 30 % 20),
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            owner: Some(Owner {
                api_version: "apps/v1".to_owned(),
                kind: "ReplicaSet".to_owned(),
                name: format!("{app}-7d9c5b8f6d"),
                uid: format!("{:08}-5b8f-4d9c-8f6d-000000000000", number / 30),
            }),
            scheduler: "default-scheduler".to_owned(),
            requests: Resources { cpu_milli: 250, memory: 250 << 20, pods: 1, ..Resources::default() },
            tolerations: ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
                .map(toleration)
                .to_vec(),
            restarts_always: true,
            grace_seconds: 30,
            ..PodSpec::default()
        }
        .into(),
        ..Pod::default()
    }
}

fn node(number: usize) -> Node {
    let name = format!("workers-{number:04}");
    let labels = [
        (POOL_LABEL, "w"),
        ("kubernetes.io/hostname", &name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ];
    Node {
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        allocatable: Resources { cpu_milli: 10_000, memory: 10_000 << 20, pods: 110, ..Resources::default() },
        name,
        ..Node::default()
    }
}

/// A cluster of 1000 nodes with `pods` pods in total, in the form in which the watches keep them.
fn cluster(pods: usize) -> Snapshot {
    let nodes: Vec<_> = (0..1000).map(|number| Arc::new(node(number))).collect();
    let mut specs = Specs::default();
    let mut shared = |mut pod: Pod| {
        specs.share(&mut pod);
        pod.digest();
        Arc::new(pod)
    };
    let pods = (0..pods).map(|number| shared(pod(number, &nodes[number % 1000].name))).collect();
    let mut all =
        Snapshot { time: "2026-01-15T12:00:00Z".parse().unwrap(), nodes, pods, ..Snapshot::default() };
    inventory::list_machines(&mut all);
    all
}

/// The number of allocations in one decision.
fn allocations(snapshot: &Snapshot, config: &Config) -> u64 {
    let mut answer = None;
    let counted = allocation_counter::measure(|| answer = Some(plan(snapshot, config)));
    assert!(answer.unwrap().scale_down.is_empty());
    counted.count_total
}

fn main() {
    let (Some(start), true) = (status("VmRSS:"), cfg!(target_os = "linux")) else {
        println!("skipped: no /proc/self/status");
        return;
    };
    let snapshot = cluster(30_000);
    let held = status("VmRSS:").unwrap();
    let config = "[[pool]]\nname = \"w\"\nmax = 2000\ncores = 10\nmemory = \"10GiB\"\n";
    let config = settings::parse("bench", config, Needs::Plan).unwrap();
    for _ in 0..3 {
        let answer = plan(&snapshot, &config);
        assert!(answer.scale_down.is_empty() && answer.nodes.len() == 1000);
    }
    let most = status("VmHWM:").unwrap();
    println!(
        "1000 nodes, 30000 pods: the snapshot uses {} MiB, the process at most {most} MiB while deciding",
        held - start
    );
    assert!(most < LIMIT_MIB, "{most} MiB");

    let (many, few) = (allocations(&snapshot, &config), allocations(&cluster(20_000), &config));
    let more = many.saturating_sub(few);
    println!("a round without changes: {many} allocations, {more} more than with 10,000 fewer pods");
    assert!(more < 1000, "the number of allocations in a round grows with the number of pods");
}
