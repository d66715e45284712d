//! Measures how long an entire decision takes, from the snapshot to the plan. Each workload's result is
//! checked before the workload is timed.

#![expect(clippy::unwrap_used, reason = "a benchmark may panic on unexpected results")]

#[path = "worlds/inventory.rs"]
mod inventory;

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, criterion_group, criterion_main};
use pve_autoscaler::model::node::Node;
use pve_autoscaler::model::plan::PodOutcome;
use pve_autoscaler::model::pod::{Owner, Pod, PodAffinityTerm, PodPhase, SpreadConstraint};
use pve_autoscaler::model::pod_spec::{PodSpec, Specs};
use pve_autoscaler::model::selector::{LabelSelector, Operator, Requirement};
use pve_autoscaler::model::snapshot::{POOL_LABEL, UNNEEDED_SINCE};
use pve_autoscaler::model::workload::Controller;
use pve_autoscaler::model::{Plan, Resources, Snapshot};
use pve_autoscaler::planning::{Carried, Stop, plan, plan_unless};
use pve_autoscaler::scheduling::World;
use pve_autoscaler::settings::{self, Config, Needs};

fn config(max: u32, cpu: &str, memory: &str, pods: u32) -> Config {
    let text = format!(
        "[scale_down]\ndelay_after_add = \"0s\"\nmax_parallel_drains = 5000\n[[pool]]\nname = \"w\"\nmax = {max}\n\
         cores = 10\nmemory = \"8GiB\"\nallocatable = {{ cpu = \"{cpu}\", memory = \"{memory}\", pods = {pods} }}\n"
    );
    settings::parse("bench", &text, Needs::Plan).unwrap()
}

fn pod(name: String, cpu: i64, memory: i64, node: Option<String>, owned: bool) -> Arc<Pod> {
    let owner = owned.then(|| Owner {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: "rs".to_owned(),
        uid: "rs".to_owned(),
    });
    Arc::new(Pod {
        uid: name.clone(),
        name,
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        node,
        spec: PodSpec {
            namespace: "default".to_owned(),
            owner,
            requests: Resources { cpu_milli: cpu, memory, pods: 1, ..Resources::default() },
            restarts_always: true,
            ..PodSpec::default()
        }
        .into(),
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

/// Creates a snapshot whose pods are ordered and share their specs as in the watches.
fn snapshot(nodes: Vec<Arc<Node>>, mut pods: Vec<Arc<Pod>>) -> Snapshot {
    pods.sort_by_cached_key(|pod| pod.id());
    // The pods are copied, so that they are adjacent in memory like those of a list from the API server. The
    // specs that are not shared are freed later, because the copies would otherwise lie in the gaps between.
    let mut specs = Specs::default();
    let known = |pod: &Arc<Pod>| {
        let mut pod = Pod::clone(pod);
        specs.share(&mut pod);
        let pod = Arc::new(pod);
        pod.digest();
        pod
    };
    let copies: Vec<_> = pods.iter().map(known).collect();
    drop(std::mem::replace(&mut pods, copies));
    let controller = Controller {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        namespace: "default".to_owned(),
        name: "rs".to_owned(),
        uid: "rs".to_owned(),
        replicas: 1000,
        selector: None,
        deleted: false,
        template: None,
    };
    let mut all = Snapshot {
        time: "2026-01-15T12:00:00Z".parse().unwrap(),
        nodes,
        pods,
        controllers: vec![Arc::new(controller)],
        ..Snapshot::default()
    };
    inventory::list_machines(&mut all);
    all
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

/// The random number generator SplitMix64, so that the workload is the same on every computer.
struct Random(u64);

impl Random {
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let at = (mixed ^ (mixed >> 31)) % choices.len() as u64;
        choices[usize::try_from(at).unwrap()]
    }
}

fn selector(key: &str, value: &str) -> LabelSelector {
    let one = Requirement { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] };
    LabelSelector { requirements: vec![one] }
}

fn term(key: &str, value: &str, topology: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(selector(key, value)),
        namespaces: Vec::new(),
        namespace_selector: None,
        topology_key: topology.to_owned(),
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

fn spread(value: &str, topology: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        min_domains: 1,
        topology_key: topology.to_owned(),
        hard: true,
        selector: Some(selector("my-label", value)),
        match_label_keys: Vec::new(),
        honor_node_affinity: true,
        honor_node_taints: false,
    }
}

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// Karpenter's "diverse" pods: a fifth are generic, a fifth are spread over zones, a fifth are spread over
/// hosts, a fifth attract each other within a zone, and a fifth repel each other on a host. For pods that are
/// spread, labels and selectors are chosen at random, independently of each other.
fn diverse_pods(count: usize) -> Snapshot {
    let mut random = Random(42);
    let letters = ["a", "b", "c", "d", "e", "f", "g"];
    let make = |number: usize| {
        let cpu = random.of(&[100, 250, 500, 1000, 1500]);
        let memory = random.of(&[100_i64, 256, 512, 1024, 2048, 4096]) << 20;
        let mut one = pod(format!("p-{number:05}"), cpu, memory, None, false).as_ref().clone();
        let (key, value) = match number * 5 / count {
            3 => ("my-affinity", random.of(&letters)),
            4 => ("app", "nginx"),
            _ => ("my-label", random.of(&letters)),
        };
        one.labels.insert(key.to_owned(), value.to_owned());
        match number * 5 / count {
            1 => one.spread = vec![spread(random.of(&letters), ZONE)],
            2 => one.spread = vec![spread(random.of(&letters), HOST)],
            3 => one.affinity.pods = vec![term(key, value, ZONE)],
            4 => one.affinity.anti = vec![term(key, value, HOST)],
            _ => {}
        }
        Arc::new(one)
    };
    snapshot(Vec::new(), (0..count).map(make).collect())
}

/// 400 machine sizes in three zones. A machine of size i has i CPUs (100m of them reserved), 2i GiB of memory
/// (10 MiB of it reserved), and room for 10i pods.
fn sizes() -> Config {
    let mut text = String::new();
    for size in 1..=400 {
        for zone in 1..=3 {
            let (cpu, memory, pods) = (1000 * size - 100, 2048 * size - 10, 10 * size);
            let _ = write!(
                text,
                "[[pool]]\nname = \"s{size}-{zone}\"\nmax = 5000\ncores = {size}\nmemory = \"{}GiB\"\n\
                 labels = {{ \"{ZONE}\" = \"test-zone-{zone}\" }}\n\
                 allocatable = {{ cpu = \"{cpu}m\", memory = \"{memory}Mi\", pods = {pods} }}\n",
                2 * size
            );
        }
    }
    settings::parse("bench", &text, Needs::Plan).unwrap()
}

fn repelled(name: String, app: &str, node: Option<String>) -> Arc<Pod> {
    let mut one = pod(name, 10, 10, node, true).as_ref().clone();
    one.labels.insert("app".to_owned(), app.to_owned());
    one.affinity.anti = vec![term("app", app, HOST)];
    Arc::new(one)
}

/// 5001 nodes, of which all but the last run ten labelled pods each. One pending pod has anti-affinity to the
/// labelled pods.
fn only_the_last_is_free() -> (Snapshot, Arc<Pod>) {
    let nodes: Vec<_> = (0..5001).map(|number| node(number, 10_000, 10_000, false)).collect();
    let labelled = |name: String, node: &Node| {
        let mut one = pod(name, 10, 10, Some(node.name.clone()), true).as_ref().clone();
        one.labels.insert("app".to_owned(), "a".to_owned());
        Arc::new(one)
    };
    let pods = nodes[..5000].iter().flat_map(|node| {
        (0..10).map(|number| labelled(format!("{}-{number}", node.name), node)).collect::<Vec<_>>()
    });
    let mut world = snapshot(nodes.clone(), pods.collect());
    let waits = repelled("waits".to_owned(), "a", None);
    world.pods.push(waits.clone());
    (world, waits)
}

/// 1000 nodes with 30 pods each, and 50 apps of 100 pending pods each. Pods of one app do not share a node.
fn surge() -> Snapshot {
    let mut world = nodes_at_two_fifths(1000, 30, 100, false);
    let apps = (0..50).map(|app| format!("app-{app:02}"));
    world.pods.extend(apps.flat_map(|app| {
        (0..100).map(|number| repelled(format!("{app}-{number}"), &app, None)).collect::<Vec<_>>()
    }));
    world
}

/// Like [`surge`], but with an empty cluster and one app of 5000 pods.
fn surge_of_one() -> Snapshot {
    snapshot(Vec::new(), (0..5000).map(|number| repelled(format!("p-{number:04}"), "a", None)).collect())
}

fn new_nodes(plan: &Plan) -> usize {
    plan.pods.iter().filter(|pod| pod.verdict == PodOutcome::NewNode).count()
}

type Group<'c> = BenchmarkGroup<'c, WallTime>;

/// Times decisions about a world, which is only created if this workload is requested: those of a first round
/// (as in the `plan` command), and those of later rounds, which keep sums over the pods as in the daemon.
/// Dropping the plan is not timed.
///
/// The very first decision is not timed. It caches each pod's digest, which the daemon calculates when the
/// pod arrives.
fn decisions(group: &mut Group, name: &str, make: impl Fn() -> (Snapshot, Config), check: impl Fn(&Plan)) {
    let made = LazyCell::new(|| {
        let (world, settings) = make();
        check(&plan(&world, &settings));
        (world, settings)
    });
    group.bench_function(format!("{name}, first round"), |b| {
        let (world, settings) = &*made;
        b.iter_with_large_drop(|| plan(black_box(world), settings));
    });
    group.bench_function(format!("{name}, later rounds"), |b| {
        let ((world, settings), stop, mut carried) = (&*made, Stop::default(), Carried::default());
        check(&plan_unless(&stop, world, settings, &mut carried).unwrap());
        b.iter_with_large_drop(|| plan_unless(&stop, black_box(world), settings, &mut carried));
    });
}

fn social(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("social");
    group.sample_size(10);
    for count in [1000, 20_000] {
        let name = format!("{count} diverse pods, 400 sizes in 3 zones, {} new nodes", count / 5);
        decisions(
            &mut group,
            &name,
            || (diverse_pods(count), sizes()),
            |plan| {
                assert_eq!(new_nodes(plan), count);
                assert_eq!(machines(plan), count / 5);
            },
        );
    }
    decisions(
        &mut group,
        "50 apps of 100 pods with host anti-affinity onto 1000 nodes",
        || (surge(), config(5000, "10000m", "10000", 110)),
        |plan| assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::ExistingNode)),
    );
    decisions(
        &mut group,
        "5000 pods with host anti-affinity onto 5000 new nodes",
        || (surge_of_one(), config(5000, "10000m", "10000", 110)),
        |plan| assert_eq!(machines(plan), 5000),
    );
    group.finish();
}

fn one_question(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("question");
    group.sample_size(10);
    let made = LazyCell::new(|| {
        let (snapshot, waits) = only_the_last_is_free();
        (World::new(&snapshot), waits)
    });
    let find = |world: &World, waits: &Arc<Pod>| {
        let prepared = world.prepare(waits);
        (0..world.nodes().len()).find(|&at| world.takes(&prepared, at))
    };
    group.bench_function("one pod with host anti-affinity, 5001 nodes, only the last has room", |b| {
        let (world, waits) = &*made;
        assert_eq!(find(world, waits), Some(5000));
        b.iter(|| find(black_box(world), waits));
    });
    group.finish();
}

fn plain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(10);
    let two_kinds = || (two_kinds_of_pods(), config(3000, "1000m", "5000Mi", 100));
    decisions(&mut group, "51000 pods of two kinds onto 2595 new nodes", two_kinds, |plan| {
        assert_eq!(machines(plan), 2595);
    });
    let (world, settings) = two_kinds();
    group.bench_function("51000 pods of two kinds onto 2595 new nodes, nothing cached", |b| {
        b.iter_batched(|| fresh(&world), |world| (plan(&world, &settings), world), BatchSize::PerIteration);
    });
    decisions(
        &mut group,
        "50000 identical pods onto 1000 new nodes",
        || (identical_pods(), config(10_000, "10000m", "10000", 100)),
        |plan| assert_eq!(machines(plan), 1000),
    );
    decisions(
        &mut group,
        "1200 of 2000 nodes with 40 pods each can be removed",
        || (nodes_at_two_fifths(2000, 40, 100, true), config(5000, "10000m", "10000", 110)),
        |plan| assert_eq!(plan.scale_down.len(), 1200),
    );
    decisions(
        &mut group,
        "nothing to do at 1000 nodes and 30000 pods",
        || (nodes_at_two_fifths(1000, 30, 250, false), config(5000, "10000m", "10000", 110)),
        |plan| assert!(plan.scale_down.is_empty() && plan.scale_up.is_empty()),
    );
    group.finish();
}

/// The same cluster with copies of its pods and specs, for which nothing is cached yet.
fn fresh(world: &Snapshot) -> Snapshot {
    let mut specs: BTreeMap<*const PodSpec, Arc<PodSpec>> = BTreeMap::new();
    let mut renew = |pod: &Arc<Pod>| {
        let spec = specs.entry(Arc::as_ptr(&pod.spec)).or_insert_with(|| Arc::new(PodSpec::clone(&pod.spec)));
        Arc::new(Pod { spec: spec.clone(), ..Pod::clone(pod) })
    };
    let pods = world.pods.iter().map(&mut renew).collect();
    Snapshot { pods, ..world.clone() }
}

/// 1000 nodes with 30 pods each, for which consolidation considers every possible removal. Without
/// consolidation, no node is empty enough to be removed.
fn consolidated(cpu: i64) -> (Snapshot, Config) {
    let text = "[scale_down]\ndelay_after_add = \"0s\"\nconsolidation = true\nmax_parallel_drains = 5000\n\
                [[pool]]\nname = \"w\"\nmax = 5000\ncores = 10\nmemory = \"10GiB\"\n\
                sizes = [{ cores = 5, memory = \"4GiB\" }]\n";
    (nodes_at_two_fifths(1000, 30, cpu, true), settings::parse("bench", text, Needs::Plan).unwrap())
}

fn consolidation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("consolidation");
    group.sample_size(10);
    decisions(
        &mut group,
        "nothing to replace at 1000 nodes and 30000 pods",
        || consolidated(330),
        |plan| {
            assert!(plan.scale_down.is_empty(), "{:?}", plan.scale_down.first());
            assert!(plan.scale_up.is_empty(), "{:?}", plan.scale_up.first());
        },
    );
    decisions(
        &mut group,
        "1000 nodes and 30000 pods, 50 nodes removed",
        || consolidated(250),
        |plan| assert_eq!(plan.scale_down.len(), 50),
    );
    group.finish();
}

criterion_group!(planner, plain, social, one_question, consolidation);
criterion_main!(planner);
