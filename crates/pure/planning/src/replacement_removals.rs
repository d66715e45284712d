//! Removes nodes that are being replaced. A node is removed once enough other nodes of its pool are ready and
//! each of its pods has a place on a ready node.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::budgets::Budgets;
use super::drain::Rules;
use super::facts::{
    node::{being_deleted, pool_of, ready},
    pod::will_be_made_again,
};
use super::node_state::drain;
use super::scale_up_decision::ScaleUpDecision;
use super::view::View;
use model::plan::{Move, NodeOutcome, NodeVerdict, Removal};
use model::pod::Pod;
use scheduling::NodeIndex;

/// The nodes that are removed now, and where their pods go. `drains` is the number of drains in progress, and
/// `most` the maximum.
pub(super) fn removals(
    view: &View,
    growth: &ScaleUpDecision,
    rules: &Rules,
    budgets: &mut Budgets,
    drains: &mut usize,
    most: usize,
    verdicts: &mut [NodeVerdict],
) -> Vec<Removal> {
    let mut found = Vec::new();
    for (at, (node, verdict)) in view.snapshot.nodes.iter().zip(verdicts).enumerate() {
        let Some(reason) = node.replaced else { continue };
        let (pool, utilization) = (verdict.pool.clone(), verdict.utilization.unwrap_or(0.0));
        let Ok(drain) = drain(view, at, rules, budgets) else { continue };
        let mut wait = |why: NodeOutcome, message: String| {
            verdict.verdict = why;
            verdict.message = Some(message);
        };
        let min =
            view.config.pools.iter().find(|one| Some(&one.name) == pool.as_ref()).map_or(0, |pool| pool.min);
        if others_ready(view, pool.as_deref()) < min as usize {
            wait(NodeOutcome::AtMinimum, "will be removed once its replacement is ready".to_owned());
            continue;
        }
        let moves = match places(view, growth, &node.name, &drain.moves) {
            Ok(moves) => moves,
            Err(why) => {
                wait(NodeOutcome::NoPlaceToMovePods, why);
                continue;
            }
        };
        if !moves.is_empty() && *drains >= most {
            wait(NodeOutcome::Unneeded, format!("waiting for its turn: at most {most} drains at a time"));
            continue;
        }
        *drains += usize::from(!moves.is_empty());
        // The node is removed even if a disruption budget does not allow the evictions yet: the drain retries
        // them.
        if budgets.allow(drain.asked()).is_ok() {
            budgets.take(drain.asked());
        }
        verdict.verdict = NodeOutcome::Remove;
        verdict.message = None;
        found.push(Removal { node: node.name.clone(), reason, utilization, moves });
    }
    found
}

/// How many ready nodes of a pool are not being removed.
fn others_ready(view: &View, pool: Option<&str>) -> usize {
    let nodes = view.snapshot.nodes.iter().filter(|node| pool_of(node) == pool);
    nodes.filter(|node| ready(node) && !being_deleted(node)).count()
}

/// Where scaling up has put each of these pods, or why one cannot move yet.
fn places(view: &View, growth: &ScaleUpDecision, node: &str, pods: &[Arc<Pod>]) -> Result<Vec<Move>, String> {
    let placed: BTreeMap<String, NodeIndex> = growth
        .placed
        .iter()
        .filter(|(pod, _)| pod.node.as_deref() == Some(node))
        .map(|(pod, at)| (pod.id(), *at))
        .collect();
    let mut moves = Vec::new();
    for pod in pods.iter().filter(|pod| will_be_made_again(pod)) {
        let id = pod.id();
        let Some(&to) = placed.get(&id) else {
            return Err(format!("will be removed once a node to which {id} can move is ready"));
        };
        let to = &view.snapshot.nodes[to];
        if !ready(to) || growth.upcoming.values().any(|name| *name == to.name) {
            return Err(format!("will be removed once {}, to which {id} moves, is ready", to.name));
        }
        moves.push(Move { pod: id, to: to.name.clone() });
    }
    moves.sort_by(|a, b| a.pod.cmp(&b.pod));
    Ok(moves)
}
