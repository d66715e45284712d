//! Decisions about a node that do not depend on other nodes: whether it belongs to a pool, how full it is,
//! which pods its drain affects, and how long it has been unneeded.

use jiff::Timestamp;

use super::budgets::Budgets;
use super::drain::{Blocker, Drain, Rules};
use super::facts::{
    node::{being_deleted, pool_of, ready, stays, unrepaired},
    time::{after, watched_since},
};
use super::unready;
use super::utilization::{self, rounded};
use super::view::View;
use model::drain::{Blocking, NodeReason};
use model::node::Node;
use model::plan::{NodeOutcome, NodeVerdict, RemovalReason};
use model::snapshot::{RETIRE, UNNEEDED_SINCE};
use scheduling::NodeIndex;
use settings::Pool;

/// A node that could be drained.
pub(super) struct Drainable<'a> {
    pub pool: &'a Pool,
    pub drain: Drain,
    pub utilization: f64,
    pub removable_at: Timestamp,
    pub ready: bool,
    /// Whether the node is above the utilization threshold. Only consolidation removes such a node.
    pub above: bool,
}

impl Drainable<'_> {
    /// The reason for the node's removal.
    pub(super) fn reason(&self) -> RemovalReason {
        if !self.ready {
            RemovalReason::Unready
        } else if self.drain.moves.is_empty() {
            RemovalReason::Empty
        } else if self.above {
            RemovalReason::Consolidation
        } else {
            RemovalReason::Underutilized
        }
    }
}

/// Everything about a node that does not depend on other nodes.
pub(super) fn judge<'a>(
    view: &View<'a>,
    at: NodeIndex,
    rules: &Rules,
    budgets: &Budgets,
) -> (NodeVerdict, Option<Drainable<'a>>) {
    let node = &view.snapshot.nodes[at];
    let settings = &view.config.scale_down;
    let mut verdict = NodeVerdict {
        node: node.name.clone(),
        pool: pool_of(node).map(Into::into),
        utilization: None,
        verdict: NodeOutcome::NotManaged,
        reason: None,
        pod: None,
        message: None,
        since: None,
        removable_at: None,
    };
    let Some(name) = pool_of(node) else { return (verdict, None) };
    let Some(pool) = view.config.pools.iter().find(|pool| pool.name == name) else {
        verdict.message = Some(format!("the configuration has no pool `{name}`"));
        return (verdict, None);
    };
    let now = view.snapshot.time;
    let used = utilization::node_utilization(
        node,
        &view.on[at].requested,
        settings.ignore_daemonsets_utilization,
        now,
    );
    verdict.utilization = used.map(rounded);
    if let Some((kept, message)) = kept(view, node) {
        (verdict.verdict, verdict.message) = (kept, message);
        return (verdict, None);
    }
    let Some(used) = used else {
        verdict.verdict = NodeOutcome::Blocked;
        verdict.reason = Some(NodeReason::UnexpectedError);
        verdict.message = Some("the node does not report its allocatable CPU and memory".to_owned());
        return (verdict, None);
    };
    let above = used > settings.utilization_threshold;
    if above && !settings.consolidation {
        verdict.verdict = NodeOutcome::Utilized;
        return (verdict, None);
    }
    let drain = match within_budgets(view, at, rules, budgets) {
        Ok(drain) => drain,
        Err(blocker) => {
            verdict.verdict = NodeOutcome::Blocked;
            verdict.reason = Some(NodeReason::Pod(blocker.reason));
            verdict.pod = Some(blocker.pod);
            return (verdict, None);
        }
    };
    let ready = ready(node);
    let since = unneeded_since(view, node);
    // When a node stops being ready, it may already have been unneeded for hours. `unready_time` only begins
    // when the node stops being ready, so that a restart of its kubelet does not make it removable
    // immediately.
    let silent =
        || unready::since(view.snapshot, view.config, node).map_or(since, |silent| silent.max(since));
    let removable_at =
        if ready { after(since, settings.unneeded_time) } else { after(silent(), settings.unready_time) };
    verdict.verdict = if ready { NodeOutcome::Unneeded } else { NodeOutcome::Unready };
    verdict.since = Some(since);
    verdict.removable_at = Some(removable_at);
    (verdict, Some(Drainable { pool, drain, utilization: used, removable_at, ready, above }))
}

/// If the node is excluded from removal even when it is not needed, returns the outcome and a message.
fn kept(view: &View, node: &Node) -> Option<(NodeOutcome, Option<String>)> {
    if being_deleted(node) {
        let asked = node.annotations.get(RETIRE);
        return Some((NodeOutcome::BeingDeleted, asked.map(|why| format!("to be retired: {why}"))));
    }
    if let Some(why) = stays(node) {
        return Some((NodeOutcome::Disabled, Some(why)));
    }
    if let Some(key) = unrepaired(node) {
        return Some((NodeOutcome::Disabled, Some(format!("annotation {key}"))));
    }
    let off = "removals are switched off (`scale_down.enabled`)";
    (!view.config.scale_down.enabled).then(|| (NodeOutcome::Disabled, Some(off.to_owned())))
}

/// Determines which pods are affected if the node is drained. Returns an error if the rules do not allow the
/// drain. Expendable pods need no other place, but the same rules decide whether they may be evicted.
pub(super) fn drain(view: &View, at: NodeIndex, rules: &Rules, budgets: &Budgets) -> Result<Drain, Blocker> {
    let mut drain = rules.drain(view.on[at].bound.iter(), budgets)?;
    let expendable = rules.drain(&view.on[at].expendable, budgets)?;
    drain.expendable = expendable.moves;
    drain.awaited = drain.awaited.or(expendable.awaited);
    Ok(drain)
}

/// Like [`drain`], but also returns an error if the budgets do not allow all evictions together.
fn within_budgets(view: &View, at: NodeIndex, rules: &Rules, budgets: &Budgets) -> Result<Drain, Blocker> {
    let drain = drain(view, at, rules, budgets)?;
    // If the evictions of this node's pods alone exceed a budget, the node stays. Its room can then be used
    // for other nodes' pods.
    budgets.allow(drain.asked()).map_err(|pod| Blocker { reason: Blocking::NotEnoughPdb, pod })?;
    Ok(drain)
}

/// The time at which the node became unneeded. Time during which no instance was watching does not count:
/// after a gap of more than three scan intervals, the result is moved forward by the length of the gap.
pub(super) fn unneeded_since(view: &View, node: &Node) -> Timestamp {
    let now = view.snapshot.time;
    let written = node.annotations.get(UNNEEDED_SINCE).and_then(|text| text.parse::<Timestamp>().ok());
    let Some(since) = written.filter(|since| *since <= now) else { return now };
    watched_since(view.snapshot, view.config, since)
}
