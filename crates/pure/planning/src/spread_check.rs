//! Checks whether the pods of removed nodes find room even if kube-scheduler places them differently from
//! the plan. The search for removable nodes fills the other nodes completely. kube-scheduler, however,
//! spreads pods (`NodeResourcesFit` with `LeastAllocated`, its default), follows their preferences, and
//! schedules them in any order. So a pod may find no room even though the search found a place for it. The
//! removal would then be pointless, because a machine would be created for that pod immediately.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::facts::node::ready;
use super::scale_up_decision::ScaleUpDecision;
use super::view::View;
use model::Resources;
use model::pod::Pod;
use scheduling::{NodeIndex, SimNode, World};

/// The number of orders that are tried. The first three sort the pods by a property, and the others are
/// random. If many orders leave a pod without room, at least one of the tried orders probably does too.
const ORDERS: usize = 15;

/// The maximum number of times that the check tests whether a pod fits a node. If a single order would need
/// more, no order is tried: with a thousand pods and a thousand nodes, it is unlikely that a pod finds no
/// room.
const EFFORT: usize = 1_000_000;

/// Whether the pods of these nodes find room on other nodes in each of the tried orders. Machines that are
/// being created do not count, just as during a drain.
pub(super) fn all_find_room(
    view: &View,
    growth: &ScaleUpDecision,
    gone: &BTreeSet<NodeIndex>,
    pods: &[(NodeIndex, &Arc<Pod>)],
) -> bool {
    let takes = |at: NodeIndex| {
        !gone.contains(&at)
            && view.world.node(at).open
            && ready(&view.snapshot.nodes[at])
            && !growth.growing.contains(&at)
    };
    let places: Vec<NodeIndex> = (0..view.existing).filter(|at| takes(*at)).collect();
    let orders = ORDERS.min(EFFORT / (pods.len() * places.len()).max(1));
    if pods.is_empty() || orders == 0 {
        return true;
    }
    let mut world = view.world.clone();
    for &at in gone {
        world.close(at);
    }
    for (at, pod) in pods {
        world.remove(pod, *at);
    }
    let mut pods: Vec<&Arc<Pod>> = pods.iter().map(|one| one.1).collect();
    (0..orders).all(|number| {
        pods.sort_by_cached_key(|pod| (key(number, pod), pod.id()));
        place(&mut world, &pods, &places)
    })
}

/// A pod's sort key in this order: 0 by CPU, 1 by memory, 2 by priority (all ascending), otherwise random.
fn key(order: usize, pod: &Pod) -> i64 {
    match order {
        0 => pod.requests.cpu_milli,
        1 => pod.requests.memory,
        2 => i64::from(pod.priority.unwrap_or_default()),
        _ => {
            let lot = BuildHasherDefault::<DefaultHasher>::default().hash_one((order, pod.id()));
            lot.cast_signed()
        }
    }
}

/// Places the pods in this order, each where kube-scheduler's score is best, and removes them again. Returns
/// whether each pod found room.
fn place(world: &mut World, pods: &[&Arc<Pod>], places: &[NodeIndex]) -> bool {
    let mut placed = Vec::with_capacity(pods.len());
    for pod in pods {
        let prepared = world.prepare(pod);
        let roomy: Vec<NodeIndex> =
            places.iter().copied().filter(|at| world.has_room(&prepared, *at)).collect();
        let preferred = world.preferences(pod, &roomy);
        let preferred = preferred.into_iter().flatten().chain(std::iter::repeat(0));
        // The best node is checked first: it usually takes the pod, and a check costs more than ranking.
        let mut ranked: BinaryHeap<_> = (roomy.iter().zip(preferred))
            .map(|(at, preferred)| (score(world.node(*at), pod) + preferred, Reverse(*at)))
            .collect();
        let mut taken = std::iter::from_fn(|| ranked.pop()).filter(|(_, at)| world.takes(&prepared, at.0));
        let Some((_, Reverse(at))) = taken.next() else { break };
        drop(prepared);
        world.place(pod, at);
        placed.push((*pod, at));
    }
    for (pod, at) in &placed {
        world.remove(pod, *at);
    }
    placed.len() == pods.len()
}

/// kube-scheduler's `LeastAllocated` score of a node for a pod: the average share of CPU and memory that it
/// leaves free, in percent.
fn score(node: &SimNode, pod: &Pod) -> i64 {
    const PARTS: i64 = 100;
    let part = |what: fn(&Resources) -> i64| {
        let offered = what(&node.node.allocatable);
        let left = offered - what(&node.used) - what(&pod.requests);
        if offered > 0 { left.max(0).saturating_mul(PARTS) / offered } else { 0 }
    };
    i64::midpoint(part(|one| one.cpu_milli), part(|one| one.memory))
}
