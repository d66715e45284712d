//! Facts about a machine: whether it is kept warm, and which Node belongs to it.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use model::machine::{Machine, Phase};

/// Whether a machine is or will be kept warm, and is not being removed.
pub(crate) fn is_kept(machine: &Machine) -> bool {
    machine.warm.is_some() && machine.phase < Phase::Draining
}

/// Machines by the names of their Nodes. Only used for lookups: the order of the entries has no effect.
pub(crate) type ByNode<'a> = HashMap<&'a str, &'a Machine, FixedState>;

/// The machines by the names of their Nodes. A machine whose Node is unknown is listed under its own name.
pub(crate) fn by_node(machines: Option<&[Machine]>) -> ByNode<'_> {
    let machines = machines.into_iter().flatten();
    machines.map(|machine| (machine.node.as_ref().unwrap_or(&machine.name).as_str(), machine)).collect()
}
