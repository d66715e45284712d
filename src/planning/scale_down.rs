//! Scaling down: a verdict for each node, and the nodes that go now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::budgets::Budgets;
use super::drain::Rules;
use super::headroom::Headroom;
use super::judging::{Drainable, after, judge};
use super::removal::{self, Candidate, Moves, Together};
use super::scale_up::Growth;
use super::utilization::rounded;
use super::{View, being_deleted, health, pool_of, ready};
use crate::model::plan::{Move, NodeOutcome, NodeVerdict, Removal, RemovalReason};
use crate::model::pod::Pod;
use crate::scheduling::NodeIndex;

/// What scaling down decided.
pub(super) struct Shrinkage {
    pub removals: Vec<Removal>,
    pub verdicts: Vec<NodeVerdict>,
}

pub(super) fn decide<'a>(view: &mut View<'a>, growth: &Growth<'a>) -> Shrinkage {
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
    let mut round = Round::new(view, growth);
    // Nodes of a pool at its minimum stay, so their room is there for the pods of others.
    let (kept, drainable): (BTreeMap<_, _>, BTreeMap<_, _>) =
        drainable.into_iter().partition(|(_, node)| round.size(&node.pool.name) <= node.pool.min);
    let together = simulate(view, &drainable, growth, &round);
    let mut headroom = Headroom::new(view, growth);
    let mut removals = Vec::new();
    for (at, moves) in &together.nodes {
        let Some(node) = drainable.get(at) else { continue };
        if let Err(outcome) = round.admit(view, *at, node, &mut budgets, (&mut headroom, moves)) {
            outcome.apply(&mut verdicts[*at]);
        } else {
            verdicts[*at].verdict = NodeOutcome::Remove;
            removals.push(removal(view, *at, node, moves));
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
        verdict.verdict =
            if pool_is_at_minimum { NodeOutcome::AtMinimum } else { NodeOutcome::NoPlaceToMovePods };
        verdict.since = None;
        verdict.removable_at = None;
    }
    for (at, node) in &kept {
        round.why_kept(node, view.snapshot.time).apply(&mut verdicts[*at]);
    }
    removals.sort_by(|a, b| a.node.cmp(&b.node));
    Shrinkage { removals, verdicts }
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
    let offered = |at: NodeIndex| &view.snapshot.nodes[at].allocatable;
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
                ready: node.ready,
                size: part(offered(at).cpu_milli, most_cpu) + part(offered(at).memory, most_memory),
                utilization: node.utilization,
            }
        })
        .collect();
    let mut stay: Vec<NodeIndex> = (0..view.existing).filter(|at| !drainable.contains_key(at)).collect();
    // Nothing moves to a node that is not ready.
    stay.retain(|&at| view.world.node(at).open && ready(&view.snapshot.nodes[at]));
    // The fullest first, so that the emptiest stay empty.
    stay.sort_by_key(|&at| {
        let used = &view.world.node(at).used;
        let free = (offered(at).cpu_milli - used.cpu_milli, offered(at).memory - used.memory);
        (free, at)
    });
    let spare: Vec<u32> =
        view.config.pools.iter().map(|pool| round.size(&pool.name).saturating_sub(pool.min)).collect();
    removal::choose(&view.world, &candidates, &spare, &stay)
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
            Some((pool.name.clone(), cooling(view, &pool.name, grows)?))
        });
        Self { sizes, unhealthy: health::unhealthy(view), cooling: cooling.collect(), drains }
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

/// Which cool-down of the pool runs, if any.
fn cooling(view: &View, pool: &str, grows: bool) -> Option<String> {
    let settings = &view.config.scale_down;
    let now = view.snapshot.time;
    if grows && !settings.delay_after_add.is_zero() {
        return Some("the pool grows in this round".to_owned());
    }
    let memory = view.snapshot.memory.pools.get(pool)?;
    let runs = |since: Option<Timestamp>, wait: Duration| since.is_some_and(|since| after(since, wait) > now);
    [
        (memory.last_add, settings.delay_after_add, "the last addition"),
        (memory.last_removal, settings.delay_after_delete, "the last removal"),
        (memory.last_removal_failure, settings.delay_after_failure, "a removal that failed"),
    ]
    .into_iter()
    .find(|(since, wait, _)| runs(*since, *wait))
    .and_then(|(since, wait, what)| Some(format!("until {}, after {what}", after(since?, wait))))
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
