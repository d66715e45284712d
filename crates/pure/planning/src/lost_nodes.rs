//! Lost nodes: nodes that have been unready for long enough to be removed, even if only their pool's minimum
//! keeps them. A machine that should have become a node by now also counts as lost.
//!
//! A pool does not go below its minimum, so the machine that replaces a lost node is created first.

use std::collections::BTreeMap;

use super::budgets::Budgets;
use super::drain::Rules;
use super::facts::node::{being_deleted, pool_of, ready};
use super::node_state::judge;
use super::view::View;
use super::{health, upcoming_nodes};
use scheduling::NodeIndex;

/// The number of lost nodes in each pool. If too many of a pool's nodes are not ready, the cause is unknown,
/// and none of these nodes counts as lost.
pub(super) fn lost<'a>(view: &View<'a>) -> BTreeMap<&'a str, u32> {
    let with_minimum = |at: &NodeIndex| {
        let node = &view.snapshot.nodes[*at];
        let of = |name: &str| view.config.pools.iter().any(|pool| pool.name == name && pool.min > 0);
        !ready(node) && !being_deleted(node) && pool_of(node).is_some_and(of)
    };
    let silent: Vec<NodeIndex> = (0..view.existing).filter(with_minimum).collect();
    let mut lost = BTreeMap::new();
    for machine in view.snapshot.proxmox.machines.iter().flatten() {
        if upcoming_nodes::is_missing(machine, view) {
            *lost.entry(machine.pool.as_str()).or_default() += 1;
        }
    }
    if silent.is_empty() {
        return lost;
    }
    let unhealthy = health::unhealthy(view.snapshot, view.config);
    let (rules, budgets) = (Rules::new(view.snapshot, &view.config.scale_down), Budgets::new(view.snapshot));
    for at in silent {
        let (_, Some(node)) = judge(view, at, &rules, &budgets) else { continue };
        let due = node.removable_at <= view.snapshot.time;
        if due && node.drain.awaited.is_none() && !unhealthy.contains(&node.pool.name) {
            *lost.entry(node.pool.name.as_str()).or_default() += 1;
        }
    }
    lost
}
