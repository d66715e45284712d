//! Bare-metal machines: switched on over Redfish, joined by themselves, drained as others are, and switched
//! off.
//!
//! ```text
//!  follow:  look ─> next: what is to be done (pure) ─> do it ─> look …
//! ```
//!
//! [`sight`] is what a run has seen, [`next`] decides, [`step`] is what it can decide on, [`look`] and
//! [`perform`] do that, [`follow`] is the loop. What is decided follows from the record, the settings and
//! what was seen, so that a run that goes on after a restart needs nothing but the record.
//!
//! * Before a machine is switched on, its record says so (`Starting` in its timeline). It was off then, and
//!   no Node had its name. One that runs without such a record was switched on by another client, and is left
//!   alone.
//! * If its controller was not asked after all, the record says so no longer, and the machine is claimed
//!   again before the next try.
//! * Only one that the record says we switched on is switched off, and only while nothing is left on its Node
//!   that has to go.
//! * One that was seen to be off is no longer ours once another client switches it on: the record says when
//!   that was. It is ours again only once its Node is heard of.
//! * Its Node is deleted once it is off. One that stayed would look broken to all who watch nodes, and would
//!   be Ready for a moment when the machine is switched on again, with what it ran before; the kubelet makes
//!   another at its next start.
//! * That Node is known by its name, and by its `systemUUID`: the controller's, which some write with the
//!   first three fields turned round (SMBIOS has them little-endian), or, if it says none, that of the Node
//!   which came first after we switched it on.

mod follow;
mod look;
mod next;
pub(super) mod node;
mod perform;
mod seen_off;
mod sight;
mod step;
mod stuck;

pub use seen_off::seen_off;

use super::context::Context;
use super::machine_end::Ended;
use super::machine_handle::MachineHandle;
use super::step_error::StepError;

/// Switches the machine on and waits for its Node, unless that is there.
pub(super) async fn run(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    follow::follow(ctx, machine, next::joining).await
}

/// Switches the machine off, deletes its Node and drops the record. One that we did not switch on is not
/// touched, and one whose Node keeps it serves on.
pub(super) async fn end(ctx: &Context, machine: &mut MachineHandle) -> Result<Ended, StepError> {
    follow::follow(ctx, machine, next::leaving).await
}
