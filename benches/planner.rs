//! How long a whole decision takes, snapshot in, plan out. Each workload asserts its answer before it is timed.

#![expect(clippy::unwrap_used, reason = "a benchmark may stop at what it did not expect")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use pve_autoscaler::config::{self, Config, Needs};
use pve_autoscaler::model::node::Node;
use pve_autoscaler::model::pod::{Owner, Pod, PodPhase};
use pve_autoscaler::model::snapshot::{POOL_LABEL, UNNEEDED_SINCE};
use pve_autoscaler::model::workload::Controller;
use pve_autoscaler::model::{Plan, Resources, Snapshot};
use pve_autoscaler::planning::plan;

fn config(max: u32, cpu: &str, memory: &str, pods: u32) -> Config {
    let text = format!(
        "[scale_down]\ndelay_after_add = \"0s\"\nmax_parallel_drains = 5000\n[[pool]]\nname = \"w\"\nmax = {max}\n\
         cores = 10\nmemory = \"8GiB\"\nallocatable = {{ cpu = \"{cpu}\", memory = \"{memory}\", pods = {pods} }}\n"
    );
    config::parse("bench", &text, Needs::Plan).unwrap()
}

fn pod(name: String, cpu: i64, memory: i64, node: Option<String>, owned: bool) -> Arc<Pod> {
    let owner = owned.then(|| Owner {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: "rs".to_owned(),
        uid: "rs".to_owned(),
    });
    Arc::new(Pod {
        namespace: "default".to_owned(),
        uid: name.clone(),
        name,
        owner,
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        node,
        requests: Resources { cpu_milli: cpu, memory, pods: 1, ..Resources::default() },
        restarts_always: true,
        ..Pod::default()
    })
}

fn node(number: usize, cpu: i64, memory: i64, idle: bool) -> Arc<Node> {
    let name = format!("n{number:05}");
    let mut node = Node {
        allocatable: Resources { cpu_milli: cpu, memory, pods: 110, ..Resources::default() },
        ..Node::default()
    };
    node.labels.insert(POOL_LABEL.to_owned(), "w".to_owned());
    node.labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
    if idle {
        node.annotations.insert(UNNEEDED_SINCE.to_owned(), "2026-01-01T00:00:00Z".to_owned());
    }
    node.name = name;
    Arc::new(node)
}

fn snapshot(nodes: Vec<Arc<Node>>, pods: Vec<Arc<Pod>>) -> Snapshot {
    let controller = Controller {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        namespace: "default".to_owned(),
        name: "rs".to_owned(),
        uid: "rs".to_owned(),
        replicas: 1000,
        selector: None,
        deleted: false,
    };
    Snapshot {
        time: "2026-01-15T12:00:00Z".parse().unwrap(),
        nodes,
        pods,
        controllers: vec![Arc::new(controller)],
        ..Snapshot::default()
    }
}

fn machines(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}

fn two_kinds_of_pods() -> Snapshot {
    let small = (0..50_000).map(|number| pod(format!("small-{number:05}"), 50, 100, None, false));
    let large = (0..1_000).map(|number| pod(format!("large-{number:05}"), 95, 190, None, false));
    snapshot(Vec::new(), small.chain(large).collect())
}

fn identical_pods() -> Snapshot {
    snapshot(
        Vec::new(),
        (0..50_000).map(|number| pod(format!("p-{number:05}"), 200, 200, None, false)).collect(),
    )
}

fn nodes_at_two_fifths(count: usize, pods: usize, cpu: i64, idle: bool) -> Snapshot {
    let nodes: Vec<_> = (0..count).map(|number| node(number, 10_000, 10_000, idle)).collect();
    let pods = nodes
        .iter()
        .flat_map(|node| {
            (0..pods)
                .map(|number| pod(format!("{}-{number}", node.name), cpu, cpu, Some(node.name.clone()), true))
        })
        .collect();
    snapshot(nodes, pods)
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(10);
    let (world, settings) = (two_kinds_of_pods(), config(3000, "1000m", "5000Mi", 100));
    assert_eq!(machines(&plan(&world, &settings)), 2595);
    group.bench_function("51000 pods of two kinds onto 2595 new nodes", |b| {
        b.iter_with_large_drop(|| plan(black_box(&world), &settings));
    });
    let (world, settings) = (identical_pods(), config(10_000, "10000m", "10000", 100));
    assert_eq!(machines(&plan(&world, &settings)), 1000);
    group.bench_function("50000 identical pods onto 1000 new nodes", |b| {
        b.iter_with_large_drop(|| plan(black_box(&world), &settings));
    });
    let (world, settings) = (nodes_at_two_fifths(2000, 40, 100, true), config(5000, "10000m", "10000", 110));
    assert_eq!(plan(&world, &settings).scale_down.len(), 1200);
    group.bench_function("1200 of 2000 nodes with 40 pods each can go", |b| {
        b.iter_with_large_drop(|| plan(black_box(&world), &settings));
    });
    let (world, settings) = (nodes_at_two_fifths(1000, 30, 250, false), config(5000, "10000m", "10000", 110));
    assert!(plan(&world, &settings).scale_down.is_empty());
    group.bench_function("nothing to do at 1000 nodes and 30000 pods", |b| {
        b.iter_with_large_drop(|| plan(black_box(&world), &settings));
    });
    group.finish();
}

criterion_group!(planner, benches);
criterion_main!(planner);
