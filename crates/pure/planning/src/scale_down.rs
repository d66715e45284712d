//! Scaling down: a verdict for each node, and the nodes that are removed now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::{Deferral, Round};
use super::budgets::Budgets;
use super::candidate_turns::CandidateTurns;
use super::drain::Rules;
use super::facts::node::{is_leaving, pool_of, ready};
use super::headroom::Headroom;
use super::node_state::{Drainable, judge, unneeded_since};
use super::removal::{self, Candidate, Moves, Together};
use super::removal_backoff::rests;
use super::scale_up_check::Need;
use super::scale_up_decision::ScaleUpDecision;
use super::utilization::rounded;
use super::view::View;
use super::{Depth, annotations, buffers, consolidation, replacement_removals, scale_up_check};
use model::drain::NodeReason;
use model::node::Node;
use model::plan::{Move, NodeOutcome, NodeVerdict, PoolGrowth, Removal, RemovalReason};
use model::pod::Pod;
use model::snapshot::UNNEEDED_SINCE;
use model::unfinished::NodeTurns;
use scheduling::{NodeIndex, SimNode};

/// What scaling down decided.
pub(super) struct ScaleDownDecision {
    pub removals: Vec<Removal>,
    pub verdicts: Vec<NodeVerdict>,
    /// Machines to create that replace nodes. The nodes are removed once the machines are ready.
    pub replacements: Vec<PoolGrowth>,
    /// For each pending pod that would have fitted a removed node: the node that the pod fits instead.
    pub rehoused: BTreeMap<String, String>,
    /// Nodes that were not looked at, and where the next round continues.
    pub unfinished: Option<NodeTurns>,
}

/// Maximum number of nodes above the utilization threshold that consolidation considers.
const FULL: usize = 50;

/// Nodes that could be drained, by their index in the snapshot.
type Drainables<'a> = BTreeMap<NodeIndex, Drainable<'a>>;

pub(super) fn decide<'a>(
    view: &mut View<'a>,
    growth: &ScaleUpDecision<'a>,
    depth: Depth,
) -> ScaleDownDecision {
    let rules = Rules::new(view.snapshot, &view.config.scale_down);
    let mut budgets = Budgets::new(view.snapshot);
    let (mut verdicts, mut drainable) = judge_all(view, &rules, &budgets);
    keep_growing(growth, &mut drainable, &mut verdicts);
    let mut round = Round::new(view, growth);
    let most = view.config.scale_down.max_parallel_drains;
    let replaced = replacement_removals::removals(
        view,
        growth,
        &rules,
        &mut budgets,
        &mut round.drains,
        most,
        &mut verdicts,
    );
    // Nodes of a pool at its minimum stay, so other nodes' pods can use their room.
    let (kept, drainable): (Drainables, Drainables) =
        drainable.into_iter().partition(|(_, node)| round.established(&node.pool.name) <= node.pool.min);
    let (together, turns) = simulate(view, &drainable, growth, &round);
    let admitted = admit(view, growth, &drainable, &together, &mut round, &mut budgets, &mut verdicts);
    let nodes: Vec<(NodeIndex, &Drainable)> = admitted.iter().map(|(at, node, _)| (*at, *node)).collect();
    let after = scale_up_check::judge(view, growth, &nodes);
    let judged = |at: &NodeIndex| after.go.contains(at) || after.needed.contains_key(at);
    let unjudged = nodes.iter().filter(|(at, _)| view.allowance.is_spent() && !judged(at)).count();
    let (removals, rehoused) = remove(view, replaced, admitted, &after, &mut verdicts);
    say_why_they_stay(view, growth, &drainable, &together, &round, &mut verdicts);
    for (at, node) in &kept {
        // The node continues to count as unneeded while another machine of its pool, perhaps its replacement,
        // is being created. Otherwise both nodes would be unneeded from the same moment on, and the new,
        // empty one would be removed.
        let coming = |at: &NodeIndex| pool_of(&view.world.node(*at).node) == Some(&node.pool.name);
        let counted = view.snapshot.nodes[*at].annotations.contains_key(UNNEEDED_SINCE);
        if node.above && !(counted && growth.upcoming.keys().any(coming)) {
            needed(&mut verdicts[*at], NodeOutcome::Utilized);
        } else {
            round.why_kept(node, view.snapshot.time).apply(&mut verdicts[*at]);
        }
    }
    let mut replacements = Vec::new();
    let consolidates = view.config.scale_down.consolidation && depth == Depth::Real;
    if consolidates
        && !after.needed.values().any(|need| *need == Need::Machine)
        && at_rest(view, growth, &verdicts)
    {
        replacements = replace(view, growth, drainable.iter().chain(&kept), &round, &mut verdicts);
    }
    let unfinished = turns.next(view.allowance.is_spent(), together.untried.len() + unjudged);
    ScaleDownDecision { removals, verdicts, replacements, rehoused, unfinished }
}

/// The verdict on each node by itself, and which nodes could be drained.
fn judge_all<'a>(view: &View<'a>, rules: &Rules, budgets: &Budgets) -> (Vec<NodeVerdict>, Drainables<'a>) {
    let mut verdicts: Vec<NodeVerdict> = Vec::with_capacity(view.existing);
    let mut drainable = Drainables::new();
    for at in 0..view.existing {
        let (verdict, found) = judge(view, at, rules, budgets);
        verdicts.push(verdict);
        if let Some(found) = found {
            drainable.insert(at, found);
        }
    }
    leave_out_full(&mut drainable, &mut verdicts);
    (verdicts, drainable)
}

/// Marks a node as needed if its machine is growing.
fn keep_growing(growth: &ScaleUpDecision, drainable: &mut Drainables, verdicts: &mut [NodeVerdict]) {
    for at in &growth.growing {
        if drainable.remove(at).is_some() {
            needed(&mut verdicts[*at], NodeOutcome::Utilized);
            verdicts[*at].message = Some("its machine is growing".to_owned());
        }
    }
}

/// A node that may be removed now, and where its pods go.
type Admitted<'d, 'a> = (NodeIndex, &'d Drainable<'a>, &'d Moves);

/// Returns the nodes that the round's limits allow to be removed. The verdict of each other node is set to
/// what that node waits for.
fn admit<'d, 'a>(
    view: &View<'a>,
    growth: &ScaleUpDecision<'a>,
    drainable: &'d Drainables<'a>,
    together: &'d Together,
    round: &mut Round,
    budgets: &mut Budgets,
    verdicts: &mut [NodeVerdict],
) -> Vec<Admitted<'d, 'a>> {
    let mut headroom = Headroom::new(view, growth);
    let mut admitted = Vec::new();
    for (at, moves) in &together.nodes {
        let Some(node) = drainable.get(at) else { continue };
        if let Some(machine) = moves.iter().find_map(|(_, to)| growth.upcoming.get(to)) {
            let message = format!("its pods will move to {machine}, which is being created");
            Deferral::waits(Some(message)).apply(&mut verdicts[*at]);
            continue;
        }
        match round.admit(view, *at, node, budgets, &mut headroom, moves) {
            Err(outcome) => outcome.apply(&mut verdicts[*at]),
            Ok(()) => admitted.push((*at, node, moves)),
        }
    }
    admitted
}

/// Returns all removals, including those of replaced nodes, ordered by node name. Also returns, for each
/// pending pod that would have fitted a removed node, the remaining node that it fits.
fn remove(
    view: &View,
    mut replaced: Vec<Removal>,
    admitted: Vec<Admitted>,
    after: &scale_up_check::Verdicts,
    verdicts: &mut [NodeVerdict],
) -> (Vec<Removal>, BTreeMap<String, String>) {
    let (mut removals, mut rehoused) = (Vec::new(), BTreeMap::new());
    for (at, node, moves) in admitted {
        if after.go.contains(&at) {
            verdicts[at].verdict = NodeOutcome::Remove;
            let name = |to: NodeIndex| view.world.node(to).node.name.clone();
            rehoused.extend(
                moves.iter().filter(|one| one.0.node.is_none()).map(|(pod, to)| (pod.id(), name(*to))),
            );
            if !replaced.is_empty() {
                passed_on(&mut replaced, moves.iter().map(|(pod, to)| (pod.id(), name(*to))).collect());
            }
            removals.push(removal(view, at, node, moves));
        } else {
            Deferral::after(after.needed.get(&at)).apply(&mut verdicts[at]);
        }
    }
    removals.append(&mut replaced);
    removals.sort_by(|a, b| a.node.cmp(&b.node));
    (removals, rehoused)
}

/// Writes the verdicts of nodes whose pods fit nowhere else, or that have to take the pods of others.
fn say_why_they_stay(
    view: &View,
    growth: &ScaleUpDecision,
    drainable: &Drainables,
    together: &Together,
    round: &Round,
    verdicts: &mut [NodeVerdict],
) {
    let going: BTreeSet<NodeIndex> = together.nodes.iter().map(|(at, _)| *at).collect();
    let holders = buffers::holders(view, growth);
    for (at, node) in drainable.iter().filter(|(at, _)| !going.contains(at)) {
        let verdict = &mut verdicts[*at];
        if together.untried.contains(at) {
            if !view.snapshot.nodes[*at].annotations.contains_key(UNNEEDED_SINCE) {
                // It is not known whether the node is needed, so the node does not begin to count as
                // unneeded.
                (verdict.since, verdict.removable_at) = (None, None);
            }
            let why = "waiting for its turn: the round has reached its limit";
            Deferral::waits(Some(why.to_owned())).apply(verdict);
            continue;
        }
        if let Some(why) = round.closed(&node.pool.name).filter(|_| together.hosts.contains(at)) {
            why.apply(verdict);
            continue;
        }
        let pool_is_at_minimum = round.established(&node.pool.name) <= node.pool.min;
        if !node.ready {
            // The node is lost in any case, so its unneeded time continues. If it were reset, no replacement
            // would be created.
            verdict.verdict = NodeOutcome::NoPlaceToMovePods;
            continue;
        }
        let stays = if node.above {
            NodeOutcome::Utilized
        } else if pool_is_at_minimum {
            NodeOutcome::AtMinimum
        } else {
            NodeOutcome::NoPlaceToMovePods
        };
        needed(verdict, stays);
        if let Some(buffer) = holders.get(at).filter(|_| !node.above) {
            verdict.reason = Some(NodeReason::CapacityBuffer);
            verdict.message = Some(format!("its room is kept for {buffer}"));
        }
    }
}

/// Corrects the destinations of replaced nodes' pods. If a pod's destination is removed too, the pod moves to
/// where that node's pods go.
fn passed_on(removals: &mut [Removal], moves: BTreeMap<String, String>) {
    for one in removals.iter_mut().flat_map(|removal| &mut removal.moves) {
        if let Some(to) = moves.get(&one.pod) {
            one.to.clone_from(to);
        }
    }
}

/// Whether the cluster is at rest: no machine is being created or is growing, and no node is being removed or
/// may soon be removed.
fn at_rest(view: &View, growth: &ScaleUpDecision, verdicts: &[NodeVerdict]) -> bool {
    use NodeOutcome::{BeingDeleted, CoolingDown, Remove, Unneeded, Unready};
    let going = |(one, node): (&NodeVerdict, &Arc<Node>)| match one.verdict {
        Remove | Unneeded | CoolingDown | Unready => true,
        BeingDeleted => is_leaving(node),
        _ => false,
    };
    growth.pools.is_empty()
        && growth.upcoming.is_empty()
        && growth.growing.is_empty()
        && !verdicts.iter().zip(&view.snapshot.nodes).any(going)
}

/// Returns the machines that replace nodes that have been unneeded for long enough. Nodes that could be
/// replaced later begin to count as unneeded.
fn replace<'v, 'a: 'v>(
    view: &View<'a>,
    growth: &ScaleUpDecision<'a>,
    candidates: impl Iterator<Item = (&'v NodeIndex, &'v Drainable<'a>)>,
    round: &Round,
    verdicts: &mut [NodeVerdict],
) -> Vec<PoolGrowth> {
    let replaceable = |at: NodeIndex, node: &Drainable| {
        consolidation::may_be_replaced(node)
            && rests(view.snapshot, &view.snapshot.nodes[at]).is_none()
            && round.closed(&node.pool.name).is_none()
            && round.allowed.shut(RemovalReason::Consolidation, &node.pool.name).is_none()
    };
    let all: BTreeMap<NodeIndex, &Drainable> =
        candidates.filter(|(at, node)| replaceable(**at, node)).map(|(at, node)| (*at, node)).collect();
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
        let what = if begins { "to be replaced by" } else { "could be replaced by" };
        verdict.message = Some(format!("{what} {}", found.words()));
    }
    if begins { found.machines } else { Vec::new() }
}

/// Marks a node as needed and resets its unneeded time.
fn needed(verdict: &mut NodeVerdict, why: NodeOutcome) {
    verdict.verdict = why;
    verdict.since = None;
    verdict.removable_at = None;
}

/// With consolidation, every node could be removed. Of the nodes above the utilization threshold, only the
/// emptiest are considered.
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

/// Finds a set of nodes whose pods fit elsewhere even if the entire set is removed.
fn simulate(
    view: &View,
    drainable: &Drainables,
    growth: &ScaleUpDecision,
    round: &Round,
) -> (Together, CandidateTurns) {
    if drainable.is_empty() {
        return (Together::default(), CandidateTurns::default());
    }
    let mut candidates = candidates(view, drainable, growth, round);
    let turns = CandidateTurns::take(view, &mut candidates);
    let stay = destinations(view, drainable, growth);
    let spare: Vec<u32> =
        view.config.pools.iter().map(|pool| round.established(&pool.name).saturating_sub(pool.min)).collect();
    let consolidates = view.config.scale_down.consolidation;
    if candidates.iter().any(|one| !one.empty) {
        view.world.count_crowd();
    }
    let mut together =
        removal::choose(&view.world, &candidates, &spare, &stay, consolidates, &view.allowance);
    together.untried.extend(turns.late());
    (together, turns)
}

fn candidates(
    view: &View,
    drainable: &Drainables,
    growth: &ScaleUpDecision,
    round: &Round,
) -> Vec<Candidate> {
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
    let candidate = |(&at, node): (&NodeIndex, &Drainable)| {
        let mut pods = node.drain.moves.clone();
        pods.extend(waiting.get(&at).into_iter().flatten().cloned());
        Candidate {
            node: at,
            empty: pods.is_empty(),
            pods,
            pool: view.config.pools.iter().position(|pool| pool.name == node.pool.name).unwrap_or(0),
            due: node.removable_at <= now
                && node.drain.awaited.is_none()
                && rests(view.snapshot, &view.snapshot.nodes[at]).is_none()
                && round.allowed.shut(node.reason(), &node.pool.name).is_none()
                && round.closed(&node.pool.name).is_none(),
            ripe: view.config.scale_down.consolidation && node.removable_at <= now,
            ready: node.ready,
            size: part(offered(at).cpu_milli, most_cpu) + part(offered(at).memory, most_memory),
            utilization: node.utilization,
            cost: node.drain.asked().map(|pod| annotations::cost(pod)).sum(),
        }
    };
    drainable.iter().map(candidate).collect()
}

/// Nodes that stay in any case and can take pods.
fn destinations(view: &View, drainable: &Drainables, growth: &ScaleUpDecision) -> Vec<NodeIndex> {
    // Nothing moves to a node that is not ready.
    let takes = |at: NodeIndex| {
        // A growing machine's future size is reserved for the pods that it grows for.
        let grows = growth.growing.contains(&at);
        view.world.node(at).open && ready(&view.snapshot.nodes[at]) && !grows
    };
    let mut stay: Vec<NodeIndex> =
        (0..view.existing).filter(|at| !drainable.contains_key(at) && takes(*at)).collect();
    if view.config.scale_down.consolidation {
        stay.extend(growth.upcoming.keys().filter(|at| view.world.node(**at).open));
    }
    // Nodes with the least free CPU, then the least free memory, come first, so that the emptiest nodes stay
    // empty.
    stay.sort_by_key(|&at| {
        let SimNode { node, used, .. } = view.world.node(at);
        let free = (node.allocatable.cpu_milli - used.cpu_milli, node.allocatable.memory - used.memory);
        (free, at)
    });
    stay
}

fn removal(view: &View, at: NodeIndex, node: &Drainable, moves: &[(Arc<Pod>, NodeIndex)]) -> Removal {
    let mut moves: Vec<Move> = moves
        .iter()
        .filter(|(pod, _)| pod.node.as_deref() == Some(view.snapshot.nodes[at].name.as_str()))
        .map(|(pod, to)| Move { pod: pod.id(), to: view.world.node(*to).node.name.clone() })
        .collect();
    moves.sort_by(|a, b| a.pod.cmp(&b.pod));
    Removal {
        node: view.snapshot.nodes[at].name.clone(),
        reason: node.reason(),
        utilization: rounded(node.utilization),
        moves,
    }
}
