//! Determines which machines will become nodes that take pods: how long the planner waits for each machine,
//! and which taints will be gone once it is a node.

use super::facts::time::is_young;
use super::view::View;
use model::machine::{Machine, Phase};
use model::node::{Node, Taint, TaintEffect};
use model::passing::passes_by_itself;
use settings::Pool;

/// Whether the machine has no Node, and may still become one.
pub(super) fn is_coming(machine: &Machine, view: &View) -> bool {
    is_without_node(machine, view) && !is_overdue(machine, view)
}

/// Whether the machine should have become a node by now. The daemon cannot always check such a machine and
/// give it up, for example if its host is off or its cluster is unreachable.
pub(super) fn is_missing(machine: &Machine, view: &View) -> bool {
    is_without_node(machine, view) && is_overdue(machine, view)
}

fn is_overdue(machine: &Machine, view: &View) -> bool {
    machine.wanted_since().is_some_and(|since| !is_young(since, view.snapshot, view.config))
}

/// Whether the machine has no Node but should have one. A warm machine should have none before it is asked to
/// join.
fn is_without_node(machine: &Machine, view: &View) -> bool {
    let name = machine.node.as_ref().unwrap_or(&machine.name);
    machine.phase < Phase::Draining && machine.warm.is_none() && view.named.find(name).is_none()
}

/// Whether the node has a temporary taint, which is removed once the node is set up.
pub(super) fn is_starting(node: &Node, pool: &Pool) -> bool {
    let bars = |taint: &Taint| taint.effect != TaintEffect::PreferNoSchedule;
    node.taints.iter().any(|taint| bars(taint) && passes(taint, pool))
}

/// The taints that a starting node will keep: its pool's, and any others that are not temporary.
pub(super) fn lasting_taints(node: &Node, pool: &Pool) -> Vec<Taint> {
    let further = node.taints.iter().filter(|taint| !passes(taint, pool) && !is_of_pool(taint, pool));
    pool.taints.iter().chain(further).cloned().collect()
}

/// Whether another component removes the taint once the node is set up. The pool's permanent taints stay.
fn passes(taint: &Taint, pool: &Pool) -> bool {
    passes_by_itself(&taint.key)
        || pool.startup_taints.iter().any(|own| own.key == taint.key)
        || (!is_of_pool(taint, pool) && pool.startup_taint_domains.iter().any(|domain| domain.holds(taint)))
}

fn is_of_pool(taint: &Taint, pool: &Pool) -> bool {
    pool.taints.iter().any(|own| (&own.key, own.effect) == (&taint.key, taint.effect))
}
