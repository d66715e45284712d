//! Carries out plans in random worlds until nothing is left to do, and checks the result. Machines have
//! several sizes, and consolidation is on or off.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

mod worlds;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use model::machine::{Machine, Phase};
use model::node::Node;
use model::plan::PodOutcome;
use model::pod::{Pod, PodPhase, Scheduling};
use model::snapshot::POOL_LABEL;
use model::{Plan, Resources, Snapshot};
use planning::plan;
use proptest::prelude::*;
use settings::{self, Config, Needs};

use crate::worlds::{NOW, cases, replica_set};

const GIB: i64 = 1 << 30;
/// The number of cores and the memory in GiB of each machine size.
const SIZES: [(u32, i64); 4] = [(2, 4), (4, 16), (8, 16), (16, 64)];
/// The number of rounds after which the test fails if the cluster still changes.
const ROUNDS: usize = 60;

/// A configuration with a pool `w` that has the given machine sizes and no waiting times.
fn config(sizes: &[(u32, i64)], min: u32, scale_down: &str) -> Config {
    let (first, others) = sizes.split_first().unwrap();
    let each = |(cores, gib): &(u32, i64)| format!("{{ cores = {cores}, memory = \"{gib}GiB\" }}");
    let others: Vec<String> = others.iter().map(each).collect();
    let text = format!(
        "[scale_down]\nunneeded_time = \"0s\"\ndelay_after_add = \"0s\"\nmax_parallel_drains = 100\n{scale_down}\n\
         [[pool]]\nname = \"w\"\nmin = {min}\nmax = 40\ncores = {}\nmemory = \"{}GiB\"\nsizes = [{}]\n",
        first.0,
        first.1,
        others.join(", ")
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

fn node(number: usize, (cores, gib): (u32, i64)) -> Arc<Node> {
    let name = format!("n{number:03}");
    let mut node = Node { name: name.clone(), ..Node::default() };
    node.labels.insert(POOL_LABEL.to_owned(), "w".to_owned());
    node.labels.insert("kubernetes.io/hostname".to_owned(), name);
    let memory = gib * GIB - gib * GIB / 50 - (164 << 20);
    node.allocatable =
        Resources { cpu_milli: i64::from(cores) * 1000, memory, pods: 110, ..Resources::default() };
    Arc::new(node)
}

fn machine(number: usize, (cores, gib): (u32, i64)) -> Machine {
    let name = format!("n{number:03}");
    Machine {
        node: Some(name.clone()),
        name,
        pool: "w".into(),
        host: "pve".into(),
        cores,
        memory: gib * GIB,
        phase: Phase::Ready,
        ..Machine::default()
    }
}

fn pod(number: usize, cpu: i64, mib: i64, node: Option<String>) -> Arc<Pod> {
    Arc::new(worlds::pod(number, cpu, mib, node))
}

/// Nodes of random sizes with pods that fit them, and pending pods.
fn world() -> impl Strategy<Value = Snapshot> {
    let nodes = prop::collection::vec(0..SIZES.len(), 0..7);
    let running = prop::collection::vec((0_usize..7, 50_i64..4000, 50_i64..8000), 0..25);
    let waiting = prop::collection::vec((50_i64..6000, 50_i64..12_000), 0..6);
    (nodes, running, waiting).prop_map(|(sizes, running, waiting)| {
        let nodes: Vec<Arc<Node>> =
            sizes.iter().enumerate().map(|(number, size)| node(number, SIZES[*size])).collect();
        let machines = sizes.iter().enumerate().map(|(number, size)| machine(number, SIZES[*size])).collect();
        let mut free: Vec<Resources> = nodes.iter().map(|node| node.allocatable.clone()).collect();
        let mut pods = Vec::new();
        for (at, cpu, mib) in running {
            let one = pod(pods.len(), cpu, mib, Some(format!("n{at:03}")));
            if free.get(at).is_some_and(|free| free.copies(&one.requests) > 0) {
                free[at].subtract(&one.requests);
                pods.push(one);
            }
        }
        for (cpu, mib) in waiting {
            pods.push(pod(pods.len(), cpu, mib, None));
        }
        let mut snapshot = Snapshot {
            time: NOW.parse().unwrap(),
            nodes,
            pods,
            controllers: vec![replica_set()],
            ..Snapshot::default()
        };
        Arc::make_mut(&mut snapshot.proxmox).machines = Some(machines);
        snapshot
    })
}

/// The machines' total number of cores and total memory in GiB.
fn total(snapshot: &Snapshot) -> (u32, i64) {
    let machines = snapshot.proxmox.machines.as_deref().unwrap();
    (machines.iter().map(|one| one.cores).sum(), machines.iter().map(|one| one.memory).sum::<i64>() / GIB)
}

/// Returns the world after the plan has been carried out: new machines have become nodes, and removed nodes
/// are gone. Pending pods run where the plan places them, and pods of removed nodes run where the plan moves
/// them.
fn carried_out(snapshot: &Snapshot, plan: &Plan, made: &mut usize) -> Snapshot {
    let mut after = snapshot.clone();
    let gone: Vec<&str> = plan.scale_down.iter().map(|removal| removal.node.as_str()).collect();
    let mut place: BTreeMap<String, String> = BTreeMap::new();
    for verdict in plan.pods.iter().filter(|verdict| verdict.verdict == PodOutcome::ExistingNode) {
        place.insert(verdict.pod.to_string(), verdict.node().unwrap().to_owned());
    }
    for one in plan.scale_up.iter().flat_map(|pool| &pool.machines) {
        let size = (one.cores, one.memory_bytes / GIB);
        after.nodes.push(node(*made, size));
        Arc::make_mut(&mut after.proxmox).machines.as_mut().unwrap().push(machine(*made, size));
        for pod in &one.pods {
            place.insert(pod.to_string(), format!("n{made:03}"));
        }
        *made += 1;
    }
    for one in plan.scale_down.iter().flat_map(|removal| &removal.moves) {
        place.insert(one.pod.clone(), one.to.clone());
    }
    after.nodes.retain(|node| !gone.contains(&node.name.as_str()));
    Arc::make_mut(&mut after.proxmox)
        .machines
        .as_mut()
        .unwrap()
        .retain(|machine| !gone.contains(&machine.name.as_str()));
    for pod in &mut after.pods {
        // Pods of a node that is being replaced stay there until the node is removed.
        let stays = pod.node.as_deref().is_some_and(|node| !gone.contains(&node));
        if let Some(node) = place.get(&pod.id()).filter(|_| !stays) {
            let node = Some(node.clone());
            *pod = Arc::new(Pod {
                node,
                phase: PodPhase::Running,
                scheduling: Scheduling::Scheduled,
                ..pod.as_ref().clone()
            });
        }
    }
    after
}

/// Like [`carried_out`], but kube-scheduler places the pods in an arbitrary order. It places each pod on the
/// node that will have the most room left.
fn scheduled(snapshot: &Snapshot, plan: &Plan, made: &mut usize, lot: u64) -> Snapshot {
    let mut bare = plan.clone();
    bare.pods.clear();
    bare.scale_up.iter_mut().flat_map(|pool| &mut pool.machines).for_each(|machine| machine.pods.clear());
    bare.scale_down.iter_mut().for_each(|removal| removal.moves.clear());
    let mut after = carried_out(snapshot, &bare, made);
    let of = |node: &Arc<Node>| (node.name.clone(), (node.allocatable.clone(), node.allocatable.clone()));
    let mut nodes: BTreeMap<String, (Resources, Resources)> = after.nodes.iter().map(of).collect();
    let mut homeless = Vec::new();
    for (at, pod) in after.pods.iter().enumerate() {
        match pod.node.as_ref().and_then(|node| nodes.get_mut(node)) {
            Some((_, free)) => free.subtract(&pod.requests),
            None => homeless.push(at),
        }
    }
    homeless.sort_by_cached_key(|at| BuildHasherDefault::<DefaultHasher>::default().hash_one((lot, at)));
    for at in homeless {
        let wanted = after.pods[at].requests.clone();
        let left = |(offered, free): &(Resources, Resources)| {
            (free.cpu_milli - wanted.cpu_milli) * 100 / offered.cpu_milli
                + (free.memory - wanted.memory) * 100 / offered.memory
        };
        let fits = nodes.iter_mut().filter(|(_, (_, free))| free.copies(&wanted) > 0);
        let place = fits.max_by_key(|(_, node)| left(node)).map(|(name, (_, free))| {
            free.subtract(&wanted);
            name.clone()
        });
        let mut again = worlds::pod(at, 0, 0, place);
        again.requests = wanted;
        after.pods[at] = Arc::new(again);
    }
    after
}

/// Whether the pods on each node request no more than the node offers.
fn nothing_is_overfull(snapshot: &Snapshot) -> bool {
    snapshot.nodes.iter().all(|node| {
        let mut free = node.allocatable.clone();
        for pod in snapshot.pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name)) {
            free.subtract(&pod.requests);
        }
        free.cpu_milli >= 0 && free.memory >= 0 && free.pods >= 0
    })
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn a_cluster_whose_pods_stay_the_same_comes_to_rest(
        snapshot in world(),
        min in 0_u32..3,
        consolidation in any::<bool>(),
    ) {
        let config = config(&SIZES, min, &format!("consolidation = {consolidation}"));
        let (mut now, mut made) = (snapshot, 100);
        let mut rounds = 0;
        let mut grew_for_pods = 0;
        loop {
            let next = plan(&now, &config);
            if next.scale_up.is_empty() && next.scale_down.is_empty() {
                now = carried_out(&now, &next, &mut made);
                break;
            }
            grew_for_pods += usize::from(next.pods.iter().any(|pod| pod.verdict == PodOutcome::NewNode));
            now = carried_out(&now, &next, &mut made);
            prop_assert!(nothing_is_overfull(&now), "{next:?}");
            prop_assert!(now.nodes.len() >= min as usize, "{next:?}");
            rounds += 1;
            prop_assert!(rounds < ROUNDS, "the cluster still changes: {next:?}");
        }
        prop_assert!(grew_for_pods <= 1, "pods that had a node are pending again");
        let placed = |pod: &Arc<Pod>| pod.node.as_ref().is_some_and(|node| now.nodes.iter().any(|one| one.name == *node));
        prop_assert!(now.pods.iter().all(placed), "every pod has a node: {:?}", plan(&now, &config).pods);
    }

    #[test]
    fn a_cluster_whose_scheduler_spreads_comes_to_rest(
        snapshot in world(),
        consolidation in any::<bool>(),
        lot in any::<u64>(),
    ) {
        let config = config(&SIZES, 0, &format!("consolidation = {consolidation}"));
        let (mut now, mut made) = (snapshot, 100);
        let mut made_for_pods = 0;
        for round in 0..=ROUNDS as u64 {
            prop_assert!(round < ROUNDS as u64, "the cluster still changes: {:?}", plan(&now, &config));
            let next = plan(&now, &config);
            let waits = now.pods.iter().any(|pod| pod.node.is_none());
            if next.scale_up.is_empty() && next.scale_down.is_empty() && !waits {
                break;
            }
            made_for_pods += usize::from(next.pods.iter().any(|pod| pod.verdict == PodOutcome::NewNode));
            // Creating machines takes time, so evicted pods are placed before the new machines exist.
            let made_then = Plan { scale_up: next.scale_up.clone(), ..Plan::default() };
            let drained = Plan { scale_up: Vec::new(), ..next.clone() };
            for half in [drained, made_then] {
                now = scheduled(&now, &half, &mut made, lot.wrapping_add(round));
            }
            prop_assert!(nothing_is_overfull(&now), "{next:?}");
        }
        prop_assert!(made_for_pods <= 4, "machines were created for pods in {made_for_pods} rounds");
    }

    #[test]
    fn consolidation_never_makes_a_cluster_larger(snapshot in world()) {
        let config = config(&SIZES, 0, "consolidation = true");
        let (mut now, mut made) = (snapshot, 100);
        now.pods.retain(|pod| pod.node.is_some());
        let before = total(&now);
        for _ in 0..ROUNDS {
            let next = plan(&now, &config);
            if next.scale_up.is_empty() && next.scale_down.is_empty() {
                break;
            }
            now = carried_out(&now, &next, &mut made);
        }
        let after = total(&now);
        let last = plan(&now, &config);
        prop_assert!(after.0 <= before.0 && after.1 <= before.1, "{before:?} → {after:?}: {:?}", last.nodes);
    }

    #[test]
    fn several_sizes_cost_no_more_than_the_best_of_them_alone(snapshot in world()) {
        let mut waiting = snapshot;
        waiting.nodes.clear();
        Arc::make_mut(&mut waiting.proxmox).machines = Some(Vec::new());
        waiting.pods = waiting.pods.iter().map(|one| {
            let requests = &one.requests;
            let number = one.name[1..].parse().unwrap();
            pod(number, requests.cpu_milli, requests.memory >> 20, None)
        }).collect();
        let cost = |sizes: &[(u32, i64)]| {
            let plan = plan(&waiting, &config(sizes, 0, ""));
            let all = plan.pods.iter().all(|pod| pod.verdict == PodOutcome::NewNode);
            let machines = plan.scale_up.iter().flat_map(|pool| &pool.machines);
            // The planner weighs cores and memory relative to the largest machine size.
            let parts = machines.map(|one| i64::from(one.cores) * 4 + one.memory_bytes / GIB).sum::<i64>();
            all.then_some(parts)
        };
        let together = cost(&SIZES).unwrap();
        for size in SIZES {
            if let Some(alone) = cost(&[size]) {
                prop_assert!(together <= alone, "{together} with all sizes, {alone} with {size:?} alone");
            }
        }
    }
}
