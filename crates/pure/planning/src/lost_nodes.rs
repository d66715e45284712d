//! Lost nodes: nodes that have been unready for long enough to be removed, including nodes that stay only
//! because of their pool's minimum. A machine that should have become a node by now counts as lost too.
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

/// How many lost nodes each pool has. If too many nodes of a pool are not ready, the cause is unknown, and
/// none of them counts.
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
