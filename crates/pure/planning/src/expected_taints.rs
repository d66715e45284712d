//! Nodes whose machines are being removed but that do not have the corresponding taint yet, because the state
//! in the API server lags behind the daemon's decisions.
//!
//! The taint is added to the planner's copy of the snapshot. So rules about nodes that are being removed do
//! not need to check the machines too. The taint also ensures that a round that begins shortly after another
//! one does not expect such a node to stay.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::Snapshot;
use model::machine::Phase;
use model::node::{Taint, TaintEffect};
use model::snapshot::{BEING_DELETED_TAINT, GROWING_TAINT};

/// The names of the nodes whose machines are being removed, whether tainted or not.
pub fn leaving(snapshot: &Snapshot) -> BTreeSet<&str> {
    let machines = snapshot.proxmox.machines.iter().flatten();
    // A machine whose creation was abandoned may still have registered a Node.
    let leave = machines.filter(|machine| machine.warm.is_none() && machine.phase > Phase::Ready);
    leave.map(|machine| machine.node.as_deref().unwrap_or(&machine.name)).collect()
}

/// Adds the removal taint to the nodes of machines that are being removed, and removes the growth taint from
/// the nodes of growing machines.
pub(super) fn expect_taints(snapshot: &mut Snapshot) {
    let names: BTreeSet<String> = leaving(snapshot).into_iter().map(ToOwned::to_owned).collect();
    let grow = snapshot.proxmox.machines.iter().flatten().filter(|machine| machine.growing.is_some());
    let growing: BTreeSet<String> = grow.filter_map(|machine| machine.node.clone()).collect();
    for node in &mut snapshot.nodes {
        if growing.contains(&node.name) && node.taints.iter().any(|taint| taint.key == GROWING_TAINT) {
            Arc::make_mut(node).taints.retain(|taint| taint.key != GROWING_TAINT);
        }
        let seen = node.taints.iter().any(|taint| taint.key == BEING_DELETED_TAINT);
        if names.contains(&node.name) && !seen {
            Arc::make_mut(node).taints.push(Taint {
                key: BEING_DELETED_TAINT.to_owned(),
                value: String::new(),
                effect: TaintEffect::NoSchedule,
                time_added: None,
            });
        }
    }
}
