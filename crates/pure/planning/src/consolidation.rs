//! Finds nodes that fewer or smaller machines could replace. Consolidation can be stopped safely after every
//! step. The new machines are created first. The nodes are removed in a later round, like any other node
//! whose pods fit elsewhere.
//!
//! A replacement is always smaller. It has no more machines, cores or memory than the nodes that it replaces,
//! and less of at least one of these. So consolidation ends if the cluster's pods stay the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::limits::{self, Shape, Sum};
use super::node_state::Drainable;
use super::pods_by_node::PodsByNode;
use super::scale_up;
use super::scale_up_check::{self, Demand};
use super::scale_up_decision::ScaleUpDecision;
use super::view::View;
use super::{Depth, decide, fresh_node};
use model::machine::{Machine, Phase};
use model::plan::{NodeOutcome, PoolGrowth};
use model::pod::{Pod, PodPhase};
use model::snapshot::UNNEEDED_SINCE;
use scheduling::NodeIndex;
use settings::Room;

/// Nodes, and the machines that could replace them.
#[derive(Debug)]
pub(super) struct Replacement {
    pub nodes: Vec<NodeIndex>,
    pub machines: Vec<PoolGrowth>,
}

impl Replacement {
    /// A description of the machines.
    pub(super) fn words(&self) -> String {
        let machines = self.machines.iter().flat_map(|pool| &pool.machines);
        let each =
            machines.map(|one| format!("a machine with {} cores and {} of memory", one.cores, one.memory));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// Sets of nodes are tried until about this many pods and nodes have been looked at. At least [`FEWEST`] sets
/// are tried.
const EFFORT: usize = 300_000;
const FEWEST: usize = 4;
/// Maximum number of nodes in a set.
const LARGEST: usize = 16;

/// Of all possible replacements of some of these nodes, returns the one that saves the most. `count` returns
/// the number of nodes in a pool.
pub(super) fn best(
    view: &View,
    growth: &ScaleUpDecision,
    nodes: &BTreeMap<NodeIndex, &Drainable>,
    count: impl Fn(&str) -> u32,
) -> Option<Replacement> {
    let now = Demand::of(growth);
    let tries = (EFFORT / (view.pods.len() + view.existing).max(1)).max(FEWEST);
    let shape = |at: NodeIndex| {
        let node = &view.snapshot.nodes[at];
        limits::shape(view, node, view.machines.get(node.name.as_str()).copied())
    };
    let mut best: Option<(i128, Replacement)> = None;
    for set in sets(nodes, shape).into_iter().take(tries) {
        if view.allowance.is_spent() {
            return None;
        }
        let mut gone = Sum::default();
        for &at in &set {
            gone.add(shape(at));
        }
        let Some((saved, machines)) = replace(view, &now, nodes, &set, gone, &count) else { continue };
        if best.as_ref().is_none_or(|best| saved > best.0) && goes_on(view, &set, &machines) {
            best = Some((saved, Replacement { nodes: set, machines }));
        }
    }
    best.map(|(_, replacement)| replacement)
}

/// Sets of nodes to try: increasingly large sets of the emptiest nodes and of the smallest nodes, and each of
/// the emptiest nodes alone.
fn sets(nodes: &BTreeMap<NodeIndex, &Drainable>, shape: impl Fn(NodeIndex) -> Shape) -> Vec<Vec<NodeIndex>> {
    let mut emptiest: Vec<NodeIndex> = nodes.keys().copied().collect();
    emptiest.sort_by(|a, b| nodes[a].utilization.total_cmp(&nodes[b].utilization).then(a.cmp(b)));
    let mut smallest = emptiest.clone();
    smallest.sort_by_key(|&at| (shape(at).cores, shape(at).memory));
    let mut sets: Vec<Vec<NodeIndex>> = Vec::new();
    let mut known: BTreeSet<Vec<NodeIndex>> = BTreeSet::new();
    for count in 1..=nodes.len().min(LARGEST) {
        for set in [&emptiest[..count], &smallest[..count], &emptiest[count - 1..count]] {
            let mut set = set.to_vec();
            set.sort_unstable();
            if known.insert(set.clone()) {
                sets.push(set);
            }
        }
    }
    sets
}

/// Returns the cost saved, and the machines that would be created if these nodes did not exist. Returns
/// `None` if the machines are not smaller than the nodes, if more pods than now would stay pending, if a pool
/// would fall below its minimum or exceed its maximum, or if not all pods were looked at.
fn replace(
    view: &View,
    now: &Demand,
    nodes: &BTreeMap<NodeIndex, &Drainable>,
    set: &[NodeIndex],
    gone: Sum,
    count: &impl Fn(&str) -> u32,
) -> Option<(i128, Vec<PoolGrowth>)> {
    let names = scale_up_check::names(view, &set.iter().copied().collect());
    let snapshot = scale_up_check::world_without(view, &names);
    let mut without = view.beside(&snapshot, &names);
    let growth = scale_up::decide(&mut without);
    let mut made = Sum::default();
    for machine in growth.pools.iter().flat_map(|pool| &pool.machines) {
        made.add(Shape { cores: machine.cores, memory: machine.memory_bytes });
    }
    if growth.cut
        || made.machines == 0
        || !made.is_less_than(gone)
        || Demand::of(&growth).leaves_more_waiting_than(now)
    {
        return None;
    }
    let within_limits = view.config.pools.iter().all(|pool| {
        let going = set.iter().filter(|at| nodes[*at].pool.name == pool.name).count();
        let coming =
            growth.pools.iter().find(|one| one.pool == pool.name).map_or(0, |one| one.machines.len());
        let (size, min, max) = (count(&pool.name) as usize, pool.min as usize, pool.max as usize);
        (going == 0 || size + coming >= min + going) && (coming == 0 || size + coming <= max)
    });
    within_limits.then(|| (gone.cost(view.offers) - made.cost(view.offers), growth.pools))
}

/// Whether these nodes, and none of the new nodes, would be removed once the new machines have become nodes.
fn goes_on(view: &View, set: &[NodeIndex], made: &[PoolGrowth]) -> bool {
    let (mut snapshot, mut pods) = (view.snapshot.clone(), view.pods.to_vec());
    let mut new: BTreeSet<String> = BTreeSet::new();
    for pool in made {
        for (number, machine) in pool.machines.iter().enumerate() {
            let offer = view.offers.iter().find(|offer| {
                (&offer.name, offer.cores, offer.memory) == (&pool.pool, machine.cores, machine.memory_bytes)
                    && offer.may_be_on(&machine.host)
            });
            let Some(offer) = offer else { return false };
            let name = machine.name.clone().unwrap_or_else(|| format!("{}-new-{number}", pool.pool));
            let node = fresh_node::node(view, offer, &name);
            let bound = |pod: &Arc<Pod>| {
                let node = Some(name.clone());
                Arc::new(Pod { node, phase: PodPhase::Running, ..pod.as_ref().clone() })
            };
            pods.extend(node.pods.iter().map(bound));
            snapshot.nodes.push(node.node);
            if let Some(machines) = &mut Arc::make_mut(&mut snapshot.proxmox).machines {
                // A warm machine that is woken is already listed. Its entry is replaced.
                machines.retain(|one| one.name != name);
                machines.push(Machine {
                    name: name.clone(),
                    pool: pool.pool.clone(),
                    host: machine.host.clone(),
                    cores: machine.cores,
                    memory: machine.memory_bytes,
                    phase: Phase::Ready,
                    node: Some(name.clone()),
                    ..Machine::default()
                });
            }
            new.insert(name);
        }
    }
    // Once the new machines have become nodes, the nodes to be removed will have been unneeded for long
    // enough.
    for &at in set {
        let long_ago = (UNNEEDED_SINCE.to_owned(), Timestamp::UNIX_EPOCH.to_string());
        Arc::make_mut(&mut snapshot.nodes[at]).annotations.extend([long_ago]);
    }
    snapshot.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let pods = PodsByNode::new(&pods, &snapshot, view.config);
    let then = decide(&snapshot, &pods, view.config, view.offers, Depth::Thought, &view.allowance).plan;
    let going: BTreeSet<&str> = set.iter().map(|&at| view.snapshot.nodes[at].name.as_str()).collect();
    then.unfinished.is_empty()
        && then.scale_up.is_empty()
        && then.nodes.iter().all(|one| {
            let goes = matches!(one.verdict, NodeOutcome::Remove | NodeOutcome::Unneeded);
            !going.contains(one.node.as_str()) || goes
        })
        && then.scale_down.iter().all(|one| !new.contains(&one.node))
        && then.scale_down.iter().any(|one| going.contains(one.node.as_str()))
}

/// Whether a node may be replaced at all.
pub(super) fn may_be_replaced(node: &Drainable) -> bool {
    node.ready && node.drain.awaited.is_none() && node.pool.headroom == Room::default()
}
