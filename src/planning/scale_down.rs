//! Scaling down: a verdict for each node, and the nodes that go now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::budgets::Budgets;
use super::drain::Rules;
use super::headroom::Headroom;
use super::judging::{Drainable, judge, unneeded_since};
use super::removal::{self, Candidate, Moves, Together};
use super::scale_up::Growth;
use super::utilization::rounded;
use super::{
    Depth, View, aftermath, being_deleted, consolidation, health, pauses, pool_of, ready, replacement,
    replacing,
};
use crate::model::plan::{Move, NodeOutcome, NodeVerdict, PoolGrowth, Removal, RemovalReason};
use crate::model::pod::Pod;
use crate::scheduling::NodeIndex;

/// What scaling down decided.
pub(super) struct Shrinkage {
    pub removals: Vec<Removal>,
    pub verdicts: Vec<NodeVerdict>,
    /// Machines in place of nodes that can go once these are ready.
    pub replacements: Vec<PoolGrowth>,
    /// Waiting pods that would have fitted nodes which go: where they fit instead.
    pub rehoused: BTreeMap<String, String>,
}

/// So many nodes above the threshold are weighed by consolidation.
const FULL: usize = 50;

pub(super) fn decide<'a>(view: &mut View<'a>, growth: &Growth<'a>, depth: Depth) -> Shrinkage {
    let mut verdicts: Vec<NodeVerdict> = Vec::with_capacity(view.existing);
    let mut drainable: BTreeMap<NodeIndex, Drainable> = BTreeMap::new();
    let rules = Rules::new(view.snapshot, &view.config.scale_down);
    let mut budgets = Budgets::new(view.snapshot);
    for at in 0..view.existing {
        let (verdict, found) = judge(view, at, &rules, &budgets);
        verdicts.push(verdict);
        if let Some(found) = found {
            drainable.insert(at, found);
        }
    }
    leave_out_full(&mut drainable, &mut verdicts);
    let mut round = Round::new(view, growth);
    let drains = (&mut round.drains, view.config.scale_down.max_parallel_drains);
    let replaced = replacing::removals(view, growth, &rules, &mut budgets, drains, &mut verdicts);
    // Nodes of a pool at its minimum stay, so their room is there for the pods of others.
    let (kept, drainable): (BTreeMap<_, _>, BTreeMap<_, _>) =
        drainable.into_iter().partition(|(_, node)| round.size(&node.pool.name) <= node.pool.min);
    let together = simulate(view, &drainable, growth, &round);
    let mut headroom = Headroom::new(view, growth);
    let mut admitted = Vec::new();
    for (at, moves) in &together.nodes {
        let Some(node) = drainable.get(at) else { continue };
        if let Some(machine) = moves.iter().find_map(|(_, to)| growth.upcoming.get(to)) {
            let message = format!("its pods go to {machine}, which is on its way");
            NotNow::waits(Some(message)).apply(&mut verdicts[*at]);
            continue;
        }
        match round.admit(view, *at, node, &mut budgets, (&mut headroom, moves)) {
            Err(outcome) => outcome.apply(&mut verdicts[*at]),
            Ok(()) => admitted.push((*at, node, moves)),
        }
    }
    let nodes: Vec<NodeIndex> = admitted.iter().map(|one| one.0).collect();
    let after = aftermath::judge(view, growth, &nodes);
    let (mut removals, mut rehoused) = (replaced, BTreeMap::new());
    for (at, node, moves) in admitted {
        if after.go.contains(&at) {
            verdicts[at].verdict = NodeOutcome::Remove;
            let name = |to: NodeIndex| view.world.node(to).node.name.clone();
            rehoused.extend(
                moves.iter().filter(|one| one.0.node.is_none()).map(|(pod, to)| (pod.id(), name(*to))),
            );
            passed_on(&mut removals, moves.iter().map(|(pod, to)| (pod.id(), name(*to))).collect());
            removals.push(removal(view, at, node, moves));
        } else {
            NotNow::after(after.needed.contains(&at)).apply(&mut verdicts[at]);
        }
    }
    let going: BTreeSet<NodeIndex> = together.nodes.iter().map(|(at, _)| *at).collect();
    for (at, node) in drainable.iter().filter(|(at, _)| !going.contains(at)) {
        let verdict = &mut verdicts[*at];
        if let Some(why) = round.closed(&node.pool.name).filter(|_| together.hosts.contains(at)) {
            why.apply(verdict);
            continue;
        }
        let pool_is_at_minimum = round.size(&node.pool.name) <= node.pool.min;
        let stays = if node.above {
            NodeOutcome::Utilized
        } else if pool_is_at_minimum {
            NodeOutcome::AtMinimum
        } else {
            NodeOutcome::NoPlaceToMovePods
        };
        needed(verdict, stays);
    }
    for (at, node) in &kept {
        if node.above {
            needed(&mut verdicts[*at], NodeOutcome::Utilized);
        } else {
            round.why_kept(node, view.snapshot.time).apply(&mut verdicts[*at]);
        }
    }
    removals.sort_by(|a, b| a.node.cmp(&b.node));
    let mut replacements = Vec::new();
    let consolidates = view.config.scale_down.consolidation && depth == Depth::Real;
    if consolidates && after.needed.is_empty() && at_rest(growth, &verdicts) {
        replacements = replace(view, growth, drainable.iter().chain(&kept), &round, &mut verdicts);
    }
    Shrinkage { removals, verdicts, replacements, rehoused }
}

/// A pod of a node that is replaced was to go to one that goes as well: it goes where that one's pods go.
fn passed_on(removals: &mut [Removal], moves: BTreeMap<String, String>) {
    for one in removals.iter_mut().flat_map(|removal| &mut removal.moves) {
        if let Some(to) = moves.get(&one.pod) {
            one.to.clone_from(to);
        }
    }
}

/// No machine is on its way, and no node goes or is about to by itself.
fn at_rest(growth: &Growth, verdicts: &[NodeVerdict]) -> bool {
    use NodeOutcome::{BeingDeleted, CoolingDown, Remove, Unneeded, Unready};
    let going =
        |one: &NodeVerdict| matches!(one.verdict, Remove | Unneeded | CoolingDown | Unready | BeingDeleted);
    growth.pools.is_empty() && growth.upcoming.is_empty() && !verdicts.iter().any(going)
}

/// Machines in place of nodes whose time has come. Nodes that could be replaced have their time counted.
fn replace<'v, 'a: 'v>(
    view: &View<'a>,
    growth: &Growth<'a>,
    candidates: impl Iterator<Item = (&'v NodeIndex, &'v Drainable<'a>)>,
    round: &Round,
    verdicts: &mut [NodeVerdict],
) -> Vec<PoolGrowth> {
    let replaceable =
        |node: &Drainable| consolidation::may_be_replaced(node) && round.closed(&node.pool.name).is_none();
    let all: BTreeMap<NodeIndex, &Drainable> =
        candidates.filter(|(_, node)| replaceable(node)).map(|(at, node)| (*at, node)).collect();
    let due: BTreeMap<NodeIndex, &Drainable> = all
        .iter()
        .filter(|(_, node)| node.removable_at <= view.snapshot.time)
        .map(|(at, node)| (*at, *node))
        .collect();
    let best = |nodes| consolidation::best(view, growth, nodes, |pool| round.size(pool));
    let (found, begins) = match best(&due) {
        Some(found) => (found, true),
        None if due.len() == all.len() => return Vec::new(),
        None => match best(&all) {
            Some(found) => (found, false),
            None => return Vec::new(),
        },
    };
    for &at in &found.nodes {
        let verdict = &mut verdicts[at];
        verdict.verdict = NodeOutcome::Unneeded;
        verdict.since = Some(unneeded_since(view, &view.snapshot.nodes[at]));
        verdict.removable_at = Some(all[&at].removable_at);
        let what = if begins { "goes after" } else { "could be replaced by" };
        verdict.message = Some(format!("{what} {}", found.words()));
    }
    if begins { found.machines } else { Vec::new() }
}

/// Nobody counts its time.
fn needed(verdict: &mut NodeVerdict, why: NodeOutcome) {
    verdict.verdict = why;
    verdict.since = None;
    verdict.removable_at = None;
}

/// With consolidation every node could go; of those above the threshold only the emptiest are weighed.
fn leave_out_full(drainable: &mut BTreeMap<NodeIndex, Drainable>, verdicts: &mut [NodeVerdict]) {
    let mut above: Vec<NodeIndex> =
        drainable.iter().filter(|(_, node)| node.above).map(|(at, _)| *at).collect();
    if above.len() <= FULL {
        return;
    }
    above.sort_by(|a, b| drainable[a].utilization.total_cmp(&drainable[b].utilization).then(a.cmp(b)));
    for at in above.split_off(FULL) {
        drainable.remove(&at);
        needed(&mut verdicts[at], NodeOutcome::Utilized);
    }
}

/// Finds the nodes whose pods fit elsewhere, all together.
fn simulate(
    view: &View,
    drainable: &BTreeMap<NodeIndex, Drainable>,
    growth: &Growth,
    round: &Round,
) -> Together {
    if drainable.is_empty() {
        return Together::default();
    }
    let mut waiting: BTreeMap<NodeIndex, Vec<Arc<Pod>>> = BTreeMap::new();
    for (pod, at) in &growth.placed {
        waiting.entry(*at).or_default().push((*pod).clone());
    }
    let offered = |at: NodeIndex| &view.world.node(at).node.allocatable;
    let most_cpu = (0..view.existing).map(|at| offered(at).cpu_milli).max().unwrap_or(0).max(1);
    let most_memory = (0..view.existing).map(|at| offered(at).memory).max().unwrap_or(0).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no exact bytes")]
    let part = |amount: i64, most: i64| amount as f64 / most as f64;
    let now = view.snapshot.time;
    let candidates: Vec<Candidate> = drainable
        .iter()
        .map(|(&at, node)| {
            let mut pods = node.drain.moves.clone();
            pods.extend(waiting.get(&at).into_iter().flatten().cloned());
            Candidate {
                node: at,
                empty: pods.is_empty(),
                pods,
                pool: view.config.pools.iter().position(|pool| pool.name == node.pool.name).unwrap_or(0),
                due: node.removable_at <= now
                    && node.drain.awaited.is_none()
                    && round.closed(&node.pool.name).is_none(),
                ripe: view.config.scale_down.consolidation && node.removable_at <= now,
                ready: node.ready,
                size: part(offered(at).cpu_milli, most_cpu) + part(offered(at).memory, most_memory),
                utilization: node.utilization,
            }
        })
        .collect();
    let mut stay: Vec<NodeIndex> = (0..view.existing).filter(|at| !drainable.contains_key(at)).collect();
    // Nothing moves to a node that is not ready.
    stay.retain(|&at| view.world.node(at).open && ready(&view.snapshot.nodes[at]));
    if view.config.scale_down.consolidation {
        stay.extend(growth.upcoming.keys().filter(|at| view.world.node(**at).open));
    }
    // The fullest first, so that the emptiest stay empty.
    stay.sort_by_key(|&at| {
        let used = &view.world.node(at).used;
        let free = (offered(at).cpu_milli - used.cpu_milli, offered(at).memory - used.memory);
        (free, at)
    });
    let spare: Vec<u32> =
        view.config.pools.iter().map(|pool| round.size(&pool.name).saturating_sub(pool.min)).collect();
    removal::choose(&view.world, &candidates, &spare, &stay, view.config.scale_down.consolidation)
}

/// Why a node that could go does not go now.
struct NotNow {
    verdict: Option<NodeOutcome>,
    reason: Option<&'static str>,
    pod: Option<String>,
    message: Option<String>,
}

impl NotNow {
    fn apply(self, to: &mut NodeVerdict) {
        if let Some(verdict) = self.verdict {
            to.verdict = verdict;
        }
        to.reason = self.reason;
        to.pod = self.pod;
        to.message = self.message;
    }

    fn because(verdict: NodeOutcome, message: String) -> Self {
        Self { verdict: Some(verdict), reason: None, pod: None, message: Some(message) }
    }

    fn at_minimum(min: u32) -> Self {
        Self::because(NodeOutcome::AtMinimum, format!("pool at its minimum of {min}"))
    }

    /// Scaling up was run without the node.
    fn after(needed: bool) -> Self {
        if needed {
            let message = "without it, a new machine would be asked for".to_owned();
            return Self::because(NodeOutcome::NoPlaceToMovePods, message);
        }
        Self::waits(Some("waits until it is known whether other nodes can go".to_owned()))
    }

    fn waits(message: Option<String>) -> Self {
        Self { verdict: None, reason: None, pod: None, message }
    }
}

/// The limits of one round, counted down.
struct Round {
    sizes: BTreeMap<String, u32>,
    unhealthy: BTreeSet<String>,
    cooling: BTreeMap<String, String>,
    drains: usize,
}

impl Round {
    fn new(view: &View, growth: &Growth) -> Self {
        let mut sizes: BTreeMap<String, u32> = BTreeMap::new();
        let mut drains = 0;
        for (at, node) in view.snapshot.nodes.iter().enumerate() {
            let Some(pool) = pool_of(node) else { continue };
            if replacement::reason(node).is_some() {
                continue;
            }
            if being_deleted(node) {
                let busy = view.bound[at]
                    .iter()
                    .any(|pod| !super::pending::is_daemon(pod) && !super::pending::is_mirror(pod));
                drains += usize::from(busy);
            } else {
                *sizes.entry(pool.to_owned()).or_default() += 1;
            }
        }
        let cooling = view.config.pools.iter().filter_map(|pool| {
            let grows = growth.pools.iter().any(|one| one.pool == pool.name);
            Some((pool.name.clone(), pauses::removal(view, &pool.name, grows)?))
        });
        Self {
            sizes,
            unhealthy: health::unhealthy(view.snapshot, view.config),
            cooling: cooling.collect(),
            drains,
        }
    }

    fn size(&self, pool: &str) -> u32 {
        self.sizes.get(pool).copied().unwrap_or(0)
    }

    /// Why the pool loses no node now, if so.
    fn closed(&self, pool: &str) -> Option<NotNow> {
        if self.unhealthy.contains(pool) {
            let message = "too many nodes of the pool are not ready".to_owned();
            return Some(NotNow::because(NodeOutcome::PoolUnhealthy, message));
        }
        let why = self.cooling.get(pool)?;
        Some(NotNow::because(NodeOutcome::CoolingDown, why.clone()))
    }

    /// Why a node stays whose pool is at its minimum. One that is lost goes once another has taken its place.
    fn why_kept(&self, node: &Drainable, now: Timestamp) -> NotNow {
        let (pool, min) = (node.pool, node.pool.min);
        if node.ready || node.removable_at > now {
            return NotNow::at_minimum(min);
        }
        let next = if self.size(&pool.name) >= pool.max { "`max` leaves no room for" } else { "goes after" };
        let message = format!("pool at its minimum of {min}: {next} a node in its place");
        NotNow::because(NodeOutcome::AtMinimum, message)
    }

    /// Lets a node go now, or says why not.
    fn admit(
        &mut self,
        view: &View,
        at: NodeIndex,
        node: &Drainable,
        budgets: &mut Budgets,
        (headroom, moves): (&mut Headroom, &Moves),
    ) -> Result<(), NotNow> {
        let pool = &node.pool.name;
        if self.size(pool) <= node.pool.min {
            return Err(NotNow::at_minimum(node.pool.min));
        }
        if let Some(pod) = &node.drain.awaited {
            return Err(NotNow::waits(Some(format!("waits for {pod} to end"))));
        }
        if node.removable_at > view.snapshot.time {
            return Err(NotNow::waits(None));
        }
        if let Some(why) = self.closed(pool) {
            return Err(why);
        }
        let drains = !node.drain.moves.is_empty();
        let most = view.config.scale_down.max_parallel_drains;
        if drains && self.drains >= most {
            return Err(NotNow::waits(Some(format!("waits for its turn: {most} drains at a time"))));
        }
        debug_assert!(at < view.existing, "only existing nodes are removed");
        let mut allowed = budgets.clone();
        if let Err(pod) = allowed.take(&node.drain.moves) {
            return Err(NotNow {
                verdict: Some(NodeOutcome::Blocked),
                reason: Some("NotEnoughPdb"),
                pod: Some(pod),
                message: None,
            });
        }
        if let Err(why) = headroom.admit(view, at, moves) {
            return Err(NotNow::because(NodeOutcome::AtMinimum, why));
        }
        *budgets = allowed;
        self.drains += usize::from(drains);
        if let Some(size) = self.sizes.get_mut(pool) {
            *size -= 1;
        }
        Ok(())
    }
}

fn removal(view: &View, at: NodeIndex, node: &Drainable, moves: &[(Arc<Pod>, NodeIndex)]) -> Removal {
    let mut moves: Vec<Move> = moves
        .iter()
        .filter(|(pod, _)| pod.node.as_deref() == Some(view.snapshot.nodes[at].name.as_str()))
        .map(|(pod, to)| Move { pod: pod.id(), to: view.world.node(*to).node.name.clone() })
        .collect();
    moves.sort_by(|a, b| a.pod.cmp(&b.pod));
    let reason = if !node.ready {
        RemovalReason::Unready
    } else if node.drain.moves.is_empty() {
        RemovalReason::Empty
    } else if node.above {
        RemovalReason::Consolidation
    } else {
        RemovalReason::Underutilized
    };
    Removal {
        node: view.snapshot.nodes[at].name.clone(),
        reason,
        utilization: rounded(node.utilization),
        moves,
    }
}
