//! What a machine is for.

use model::machine::{Machine, Phase};

/// Whether a machine is kept, or is being made to be kept, and is not on its way out.
pub(crate) fn is_kept(machine: &Machine) -> bool {
    machine.warm.is_some() && machine.phase < Phase::Draining
}
