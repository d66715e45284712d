//! Facts about a machine: whether it is kept warm, and which Node belongs to it.

use std::collections::BTreeMap;

use model::machine::{Machine, Phase};

/// Whether a machine is or will be kept warm, and is not being removed.
pub(crate) fn is_kept(machine: &Machine) -> bool {
    machine.warm.is_some() && machine.phase < Phase::Draining
}

/// Machines by the names of their Nodes.
pub(crate) type ByNode<'a> = BTreeMap<&'a str, &'a Machine>;

/// The machines by the names of their Nodes. A machine whose Node is unknown is listed under its own name.
pub(crate) fn by_node(machines: Option<&[Machine]>) -> ByNode<'_> {
    let machines = machines.into_iter().flatten();
    machines.map(|machine| (machine.node.as_ref().unwrap_or(&machine.name).as_str(), machine)).collect()
}
