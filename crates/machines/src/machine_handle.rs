//! The handle through which a task works on its machine: it changes the machine's record and updates the
//! machine in the registry.

use std::time::Duration;

use jiff::Timestamp;
use runtime::boxed;

use super::context::Context;
use super::registry::MachineView;
use super::step_error::{BackoffTarget, StepError, retry_until};
use kubernetes::Versioned;
use model::Record;
use model::machine::Phase;

/// How long the Kubernetes API may be unavailable before a task gives up writing its record.
const RECORD_LIMIT: Duration = Duration::from_mins(30);

/// The handle by which a task works on its machine.
pub(super) struct MachineHandle {
    pub stored: Versioned<Record>,
    pub phase: Phase,
    pub since: Timestamp,
    pub note: String,
    pub node: Option<String>,
}

impl MachineHandle {
    pub fn new(stored: Versioned<Record>, now: Timestamp) -> Self {
        let since =
            stored.record.entered.values().chain(&stored.record.vm_gone).max().copied().unwrap_or(now);
        let phase = stored.record.phase();
        Self { stored, phase, since, note: String::new(), node: None }
    }

    pub fn record(&self) -> &Record {
        &self.stored.record
    }

    /// Enters a phase. The phase is visible immediately, and is stored with the next change to the record.
    pub fn enter(&mut self, ctx: &Context, phase: Phase, note: &str) {
        let now = ctx.clock.now();
        if self.phase != phase {
            tracing::info!(machine = %self.record().name, from = ?self.phase, to = ?phase, note, "machine phase changed");
            self.phase = phase;
            self.since = now;
        }
        if phase == Phase::Clearing {
            self.stored.record.vm_gone.get_or_insert(now);
        } else {
            self.stored.record.entered.entry(phase).or_insert(now);
        }
        note.clone_into(&mut self.note);
        self.show(ctx);
    }

    /// Sets the note that says what the machine is waiting for.
    pub fn say(&mut self, ctx: &Context, note: &str) {
        note.clone_into(&mut self.note);
        self.show(ctx);
    }

    /// Restarts the time limit of a machine that is still waiting for its turn, so that the wait does not
    /// count towards the limit. The restart is stored with the next change to the record.
    pub fn wait_on(&mut self, ctx: &Context) {
        self.stored.record.entered.insert(Phase::Requested, ctx.clock.now());
        self.show(ctx);
    }

    fn show(&self, ctx: &Context) {
        ctx.registry.put(MachineView {
            record: self.stored.record.clone(),
            version: (self.stored.resource_version.clone(), self.stored.uid.clone()),
            phase: self.phase,
            since: self.since,
            note: self.note.clone(),
            node: self.node.clone(),
            busy: true,
        });
    }

    /// Changes the record and waits until it is stored.
    ///
    /// # Errors
    /// Returns an error if another client changed the record, or if Kubernetes was unavailable for too long.
    pub async fn change(&mut self, ctx: &Context, change: impl FnOnce(&mut Record)) -> Result<(), StepError> {
        let before = self.stored.record.clone();
        change(&mut self.stored.record);
        if self.stored.record == before {
            return Ok(());
        }
        self.save(ctx).await
    }

    /// Stores the record in its current state.
    ///
    /// # Errors
    /// Returns the same errors as [`MachineHandle::change`].
    #[boxed]
    pub async fn save(&mut self, ctx: &Context) -> Result<(), StepError> {
        self.save_within(ctx, RECORD_LIMIT).await
    }

    /// Like [`Self::save`], but gives up after `limit`. The record may have been stored nevertheless; the
    /// next read of the record shows whether it was.
    ///
    /// # Errors
    /// Returns the same errors as [`MachineHandle::change`].
    #[boxed]
    pub async fn save_within(&mut self, ctx: &Context, limit: Duration) -> Result<(), StepError> {
        let seed = self.seed();
        let stored = &mut self.stored;
        let kubernetes = &ctx.kubernetes;
        retry_until!(limit, seed, Ok(kubernetes.update_record(stored).await?)).await?;
        self.show(ctx);
        Ok(())
    }

    /// Drops the record, which frees the slot.
    #[boxed]
    pub async fn drop_record(&mut self, ctx: &Context) -> Result<(), StepError> {
        let (stored, kubernetes) = (&self.stored, &ctx.kubernetes);
        retry_until!(RECORD_LIMIT, self.seed(), Ok(kubernetes.delete_record(stored).await?)).await?;
        self.phase = Phase::Gone;
        ctx.registry.forget(&self.stored.record.id, ctx.clock.now());
        Ok(())
    }

    /// The target of the back-off if the machine does not become a node: its pool or, for a bare-metal
    /// machine, the machine itself.
    pub fn blame(&self) -> BackoffTarget {
        if self.record().is_physical() { BackoffTarget::Host } else { BackoffTarget::Pool }
    }

    /// The seed for this machine's jitter. It depends only on the machine's id.
    pub fn seed(&self) -> u64 {
        seed(&self.stored.record.id)
    }
}

/// The jitter seed for the machine with this id.
pub(super) fn seed(id: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    id.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}
