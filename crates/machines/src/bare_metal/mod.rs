//! Bare-metal machines: they are switched on over Redfish, join by themselves, are drained like any other
//! machine, and are switched off.
//!
//! ```text
//!  follow:  look ─> next: what to do (pure) ─> do it ─> look …
//! ```
//!
//! [`sight`] holds what a run has seen, [`next`] decides, [`step`] lists the possible steps, [`look`] and
//! [`perform`] carry them out, [`follow`] is the loop. Decisions depend on the record, the settings and what
//! was seen, so that a run resumed after a restart only needs the record.
//!
//! * A machine is ours if its record says that the daemon switched it on (`Starting` in its timeline). This
//!   claim is written before the machine is switched on, and only if the machine is off and no Node has its
//!   name. A machine that runs without such a record was switched on by another client and is left alone.
//! * If its controller did not accept the request to switch it on, the claim is removed from the record, and
//!   the machine is claimed again before the next try.
//! * A machine is only switched off if it is ours, and only while no pod on its Node has to move.
//! * A machine that was seen to be off (the record holds when) is no longer ours once another client switches
//!   it on. It is ours again once its Node reports.
//! * Its Node is deleted once the machine is off. Otherwise the Node would look broken to everyone who
//!   watches nodes, and would be Ready for a moment with its old pods when the machine is switched on again.
//!   The kubelet registers a new Node at its next start.
//! * Its Node is identified by its name and its `systemUUID`. The latter is the uuid that the controller
//!   reports; some controllers swap the bytes of the first three fields (SMBIOS has them little-endian). If
//!   the controller reports no uuid, the uuid of the first Node with the machine's name that appears after
//!   the claim is used.

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

/// Switches the machine on and waits for its Node, unless the Node already exists.
pub(super) async fn run(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    follow::follow(ctx, machine, next::joining).await
}

/// Switches the machine off, deletes its Node and drops the record. A machine that the daemon did not switch
/// on is not touched, and a machine whose Node has to stay remains in service.
pub(super) async fn end(ctx: &Context, machine: &mut MachineHandle) -> Result<Ended, StepError> {
    follow::follow(ctx, machine, next::leaving).await
}
