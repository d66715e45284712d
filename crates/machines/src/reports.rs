//! What tasks report about machines, and what happens to a machine if its task cannot continue.

use jiff::Timestamp;
use tokio::sync::mpsc;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::step_error::{BackoffTarget, StepError};
use kubernetes::{ErrorKind, Versioned};
use model::Record;

/// What a machine's task reports: how it ended, or what happened while it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The node is ready.
    Ready,
    /// The machine is warm, and waits until it is needed.
    Warm,
    /// The machine's creation failed, and what exists of the machine is being removed.
    Failed {
        /// Why it failed.
        reason: String,
        /// What should back off for a while: the pool, the host, or neither.
        blame: BackoffTarget,
    },
    /// The slot was taken by another VM or Node. The daemon has left nothing in the slot.
    SlotTaken(String),
    /// The node was removed.
    Removed,
    /// The remains of a failed creation were removed.
    Discarded,
    /// The running machine has grown.
    Grown,
    /// The machine did not grow, for this reason, and stays in service with its previous size.
    NotGrown(String),
    /// The removal was abandoned for this reason, and the node is in service again.
    GivenUp(String),
    /// The machine was checked and stays in service. The text describes its state.
    LookedAfter(String),
    /// Another client has changed the machine's VM. The text describes the change and its consequence.
    Touched(String),
    /// The task could not be completed, for this reason, and is tried again later.
    Stuck(String),
}

/// A task's report to the daemon.
#[derive(Clone, Debug)]
pub struct MachineReport {
    /// The machine's record.
    pub record: Record,
    /// How the task ended, or what happened while it ran.
    pub ending: Ending,
    /// When the report was sent.
    pub at: Timestamp,
}

/// The channel for the tasks' reports.
pub type Reports = mpsc::UnboundedSender<MachineReport>;

pub(super) fn claimed(ctx: &Context, stored: Versioned<Record>) -> Option<MachineHandle> {
    let view = ctx.registry.get(&stored.record.id);
    if !ctx.registry.claim(&stored.record.id) {
        return None;
    }
    let mut machine = MachineHandle::new(stored, ctx.clock.now());
    machine.node = view.and_then(|view| view.node);
    Some(machine)
}

pub(super) fn stuck(ctx: &Context, machine: &mut MachineHandle, trouble: &StepError, reports: &Reports) {
    if matches!(trouble, StepError::RecordLost(_)) {
        return lost(ctx, machine, trouble, reports);
    }
    let words = trouble.to_string();
    tracing::warn!(machine = %machine.record().name, reason = words, "a machine is stuck; trying again later");
    machine.say(ctx, &words);
    tell(ctx, reports, machine.record(), Ending::Stuck(words));
    ctx.registry.release(&machine.record().id);
}

/// Ends a task that cannot write its machine's record. The machine is left alone until the record is read
/// again.
pub(super) fn lost(ctx: &Context, machine: &MachineHandle, trouble: &StepError, reports: &Reports) {
    let gone = match trouble {
        StepError::Kubernetes(error) => error.kind() == ErrorKind::NotFound,
        _ => false,
    };
    tracing::warn!(machine = %machine.record().name, error = %trouble, "a machine is left alone until its record is read again");
    tell(ctx, reports, machine.record(), Ending::Stuck(trouble.to_string()));
    if gone {
        ctx.registry.forget(&machine.record().id, ctx.clock.now());
    } else {
        ctx.registry.release(&machine.record().id);
    }
}

pub(super) fn tell(ctx: &Context, reports: &Reports, record: &Record, ending: Ending) {
    // Sending cannot fail: the receiver exists for as long as the daemon runs.
    let _ = reports.send(MachineReport { record: record.clone(), ending, at: ctx.clock.now() });
}
