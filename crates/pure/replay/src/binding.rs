//! Chooses a node for each pending pod, with the same filters as decisions and a simplified form of
//! kube-scheduler's scores.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::Snapshot;
use model::pod::Pod;
use scheduling::{NodeIndex, Priorities, World};

/// The minimum request that scores assume for a pod: CPU in thousandths of a core and memory in bytes
/// (kube-scheduler's `DefaultMilliCPURequest` and `DefaultMemoryRequest`).
const AT_LEAST: (i64, i64) = (100, 200 << 20);

/// Binds a cluster's pending pods to its nodes, in order of the pods' priority and age. For each bound pod,
/// returns its index in the snapshot and the index of its node.
pub(super) fn bind(snapshot: &Snapshot) -> Vec<(usize, NodeIndex)> {
    let is_waiting =
        |pod: &Pod| pod.digest().marks.waits && !pod.digest().marks.gated && !pod.digest().marks.daemon;
    let all = snapshot.pods.iter().enumerate();
    let mut waiting: Vec<(usize, &Arc<Pod>)> = all.filter(|(_, pod)| is_waiting(pod)).collect();
    if waiting.is_empty() {
        return Vec::new();
    }
    let priorities = Priorities::new(snapshot);
    waiting.sort_by_cached_key(|(at, pod)| (Reverse(priorities.of(pod)), pod.created, *at));
    let mut world = World::new(snapshot);
    let mut bound = Vec::new();
    let mut refused = BTreeSet::new();
    for (at, pod) in waiting {
        if refused.contains(&pod.digest().class) {
            continue;
        }
        let prepared = world.prepare(pod);
        let nodes: Vec<NodeIndex> =
            (0..world.nodes().len()).filter(|node| world.takes(&prepared, *node)).collect();
        let Some(best) = best(&world, pod, &nodes) else {
            if prepared.refusals_last() {
                refused.insert(pod.digest().class);
            }
            continue;
        };
        world.place(pod, best);
        bound.push((at, best));
    }
    bound
}

/// Returns the node with the best score. Free resources, few pods of the same controller, and the pod's
/// preferences raise a node's score.
fn best(world: &World, pod: &Pod, nodes: &[NodeIndex]) -> Option<NodeIndex> {
    if nodes.len() < 2 {
        return nodes.first().copied();
    }
    let kin: Vec<i64> = nodes.iter().map(|node| kin(world, pod, *node)).collect();
    let most = kin.iter().copied().max().unwrap_or(0).max(1);
    let preferred = world.preferences(pod, nodes);
    let score = |place: usize| {
        let spread = 2 * (100 * (most - kin[place]) / most);
        let preferred = preferred.as_ref().map_or(0, |all| all[place]);
        room(world, pod, nodes[place]) + spread + preferred
    };
    (0..nodes.len()).max_by_key(|place| (score(*place), Reverse(nodes[*place]))).map(|place| nodes[place])
}

fn kin(world: &World, pod: &Pod, node: NodeIndex) -> i64 {
    let Some(owner) = &pod.owner else { return 0 };
    let same = |other: &&Arc<Pod>| other.owner.as_ref().is_some_and(|its| its.uid == owner.uid);
    i64::try_from(world.node(node).pods.iter().filter(same).count()).unwrap_or(i64::MAX)
}

/// The sum of the scores of NodeResourcesFit (`LeastAllocated`) and NodeResourcesBalancedAllocation, each at
/// most 100.
fn room(world: &World, pod: &Pod, node: NodeIndex) -> i64 {
    let sim = world.node(node);
    let offered = &sim.node.allocatable;
    let share = |offered: i64, used: i64, wanted: i64| {
        if offered > 0 { (offered - used - wanted).max(0).saturating_mul(100) / offered } else { 0 }
    };
    let cpu = share(offered.cpu_milli, sim.used.cpu_milli, pod.requests.cpu_milli.max(AT_LEAST.0));
    let memory = share(offered.memory, sim.used.memory, pod.requests.memory.max(AT_LEAST.1));
    i64::midpoint(cpu, memory) + 100 - (cpu - memory).abs() / 2
}
