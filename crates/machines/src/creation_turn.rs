//! A machine's turn to be created. The turn comes when nothing is paused, the storages of the machine's
//! template can take another clone, and fewer machines than the limit are being created. Before its turn,
//! nothing is started for the machine, and its time limit does not run.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, interval_at, timeout};

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::step_error::{BackoffTarget, StepError};
use model::machine::Phase;
use model::{MachineKind, Record};
use proxmox::CloneTurn;
use settings::{CloneKind, Pool};

/// The creation of a machine that has waited for this long is abandoned. The machine is planned again if it
/// is still needed.
const LIMIT: Duration = Duration::from_hours(1);
/// How often the time limit of a waiting machine is restarted, so that the wait does not count.
const TICK: Duration = Duration::from_secs(30);

/// A machine's place among the machines that are being created, and its turn to be cloned from its template's
/// storages.
pub(super) struct Place<'c> {
    turn: Option<CloneTurn>,
    permit: Option<SemaphorePermit<'c>>,
}

impl<'c> Place<'c> {
    /// Ends the machine's turn, so that the next machine can be cloned from the same storages. Returns the
    /// machine's place among the machines that are being created.
    pub fn cloned(self) -> Option<SemaphorePermit<'c>> {
        drop(self.turn);
        self.permit
    }
}

/// If no part of the machine exists yet and the daemon is paused, waits for the end of the pause and then
/// starts the machine's time limit.
pub(super) async fn not_paused(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    if is_begun(machine.record()) {
        return Ok(());
    }
    let Some(why) = ctx.paused() else { return Ok(()) };
    machine.say(ctx, &why);
    ctx.until_paused(false).await;
    let now = ctx.clock.now();
    machine.change(ctx, |record| _ = record.entered.insert(Phase::Requested, now)).await
}

/// Waits until the machine has a place among the machines that are being created, then starts its time limit.
/// Returns `None` if a pause begins first. A machine that already partly exists does not wait; it is only
/// counted.
///
/// # Errors
/// Returns an error if the machine's turn did not come within [`LIMIT`].
pub(super) async fn place<'c>(
    ctx: &'c Context,
    machine: &mut MachineHandle,
    pool: &Pool,
) -> Result<Option<Place<'c>>, StepError> {
    let full = pool.clone == CloneKind::Full;
    let record = machine.record();
    let sources = match record.kind() {
        MachineKind::Clone(template) => ctx.templates.sources(template),
        MachineKind::Blank | MachineKind::BareMetal => BTreeSet::new(),
    };
    if is_begun(record) {
        let clones = record.task.is_some() && record.smbios_uuid.is_none();
        let turn = clones.then(|| ctx.proxmox.running_clone_turn(&sources, full));
        return Ok(Some(Place { turn, permit: ctx.creating.try_acquire().ok() }));
    }
    // The time that the machine waited under another instance of the daemon does not count towards its limit.
    if ctx.clock.now().duration_since(record.wanted_since()).unsigned_abs() >= TICK {
        machine.wait_on(ctx);
    }
    if !sources.is_empty() {
        let names: Vec<&str> = sources.iter().map(String::as_str).collect();
        machine.say(ctx, &format!("waiting for its turn to be cloned from {}", names.join(", ")));
    }
    let placed = async {
        // The machine first waits for its turn at the storage, and only then takes one of the limited places
        // for machines that are being created. Otherwise it would occupy a place while its storage is busy.
        let turn = ctx.proxmox.clone_turn(&sources, full).await;
        Place { turn: Some(turn), permit: ctx.creating.acquire().await.ok() }
    };
    let timed = async {
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        loop {
            ticks.tick().await;
            machine.wait_on(ctx);
        }
    };
    tokio::select! {
        biased;
        () = ctx.until_paused(true) => Ok(None),
        placed = placed => Ok(Some(placed)),
        () = timed => Ok(None),
        () = tokio::time::sleep(LIMIT) => Err(late("waiting for its turn to be created")),
    }
}

/// Waits until the host may write the memory of one more machine to disk.
///
/// # Errors
/// Returns an error if the machine's turn did not come within [`LIMIT`].
pub(super) async fn to_suspend(ctx: &Context, host: &str) -> Result<CloneTurn, StepError> {
    let turn = timeout(LIMIT, ctx.proxmox.suspend_turn(host)).await;
    turn.map_err(|_| late("waiting for its turn to be suspended"))
}

fn late(what: &str) -> StepError {
    StepError::Limit { what: what.to_owned(), limit: LIMIT, blame: BackoffTarget::Other }
}

/// Whether any part of a machine exists, according to its record.
fn is_begun(record: &Record) -> bool {
    let is_cloned = record.task.is_some() || record.smbios_uuid.is_some();
    is_cloned || record.asked.is_some() || record.entered.contains_key(&Phase::Starting)
}
