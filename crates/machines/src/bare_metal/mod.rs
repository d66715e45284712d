//! Manages bare-metal machines. The daemon switches them on through Redfish. They join the cluster by
//! themselves, are drained like any other machine, and are switched off again.
//!
//! ```text
//!  follow:  look ─> next: what to do (pure) ─> do it ─> look …
//! ```
//!
//! [`sight`] holds what a run has seen, [`next`] decides, [`step`] lists the possible steps, [`look`] and
//! [`perform`] carry them out, and [`follow`] is the loop. Decisions depend only on the record, the settings
//! and what was seen, so a run that is resumed after a restart only needs the record.
//!
//! * A machine is ours if its record says that the daemon switched it on (`Starting` in its timeline). This
//!   claim is written before the machine is switched on, and only if the machine is off and no Node has its
//!   name. A machine that runs without such a record was switched on by another client and is left alone.
//! * If the controller did not accept the request to switch the machine on, the claim is removed from the
//!   record, and the machine is claimed again before the next try.
//! * A machine is only switched off if it is ours, and only while no pod on its Node has to move.
//! * If another client switches on a machine that was seen to be off (the record contains the time), the
//!   machine is no longer ours. It is ours again once its Node reports.
//! * The Node is deleted once its machine is off. Otherwise, the Node would look broken to everyone who
//!   watches nodes, and would briefly be Ready with its old pods when the machine is switched on again. The
//!   kubelet registers a new Node at its next start.
//! * A Node is identified by its name and its `systemUUID`, which must match the uuid that the controller
//!   reports. Some controllers swap the bytes of the first three fields, which SMBIOS stores in little-endian
//!   order, so either byte order matches. If the controller reports no uuid, the uuid of the first Node with
//!   the machine's name that appears after the claim is used.

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
/// on is not changed, and a machine whose Node has to stay remains in service.
pub(super) async fn end(ctx: &Context, machine: &mut MachineHandle) -> Result<Ended, StepError> {
    follow::follow(ctx, machine, next::leaving).await
}
