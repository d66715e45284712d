//! Changes that other clients make to a machine's VM while a task works on the machine: they destroy the VM,
//! switch it off, move it, make it a template, or hide it from the token.
//!
//! The cluster's list, which is read anyway, shows such changes. The daemon compares the list with the
//! registry and notifies the machine's task ([`Registry::doubt`](super::Registry::doubt)). The list lags
//! behind, so the task checks the VM itself before it acts.

use std::time::Duration;

use jiff::SignedDuration;
use runtime::boxed;

use super::context::Context;
use super::host_clock::by_clock_of;
use super::machine_handle::MachineHandle;
use super::ownership::{Sight, look};
use super::reports::{Ending, Reports, tell};
use super::step_error::{BackoffTarget, StepError};
use super::vm_search::{self, VmSearch};
use super::vm_start;
use model::machine::Phase;
use model::{MachineId, Record, Vmid};
use proxmox::{Client, Kind, Power, TaskFilter, TaskRow};

/// The maximum age of a task that may be regarded as the cause of the VM's current state.
const LATELY: SignedDuration = SignedDuration::from_mins(10);
/// How many times a VM is started again if other clients switch it off while its machine is being created.
const STARTS: u32 = 2;

/// Proxmox VE's name for the task that destroys a VM. The following constants name the tasks that switch a VM
/// off, move it, or make it a template.
const DESTROYED: &[&str] = &["qmdestroy"];
const SWITCHED_OFF: &[&str] =
    &["qmstop", "qmshutdown", "qmrollback", "qmsuspend", "hastop", "hashutdown", "qmtemplate"];
const MOVED: &[&str] = &["qmigrate", "hamigrate", "migrateall"];
const TEMPLATE: &[&str] = &["qmtemplate"];

/// Proxmox VE's name for the task that stops all guests of a host. It runs if the host is being shut down, or
/// if an administrator requests it.
const STOPS_ALL: &str = "stopall";
/// How long the task that stops all guests may take. Guests are given time to shut down, one after the other.
const STOPS_FOR: SignedDuration = SignedDuration::from_mins(60);
/// The maximum number of seconds that a host stays on after all its guests were stopped for its shutdown.
const GONE_AFTER: i64 = 120;
/// The time between two checks of whether a host is still stopping its guests.
const STOPALL_LOOK: Duration = Duration::from_secs(10);

/// What happened to a machine's VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// It is gone.
    Gone,
    /// The VM with the machine's VMID is not ours, or is hidden from the token.
    NotOurs,
    /// The VM is off, but should run.
    Off,
    /// The VM is on another host, and the record has been updated.
    Moved,
}

/// Describes what this kind of task has done to a VM, as text that follows a user's name (`stopped its VM`).
/// Returns `None` if such a task does not matter to a machine.
pub fn deed(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "qmdestroy" => "destroyed its VM",
        "qmstop" | "hastop" => "stopped its VM",
        "qmshutdown" | "hashutdown" => "shut its VM down",
        "qmreset" => "reset its VM",
        "qmreboot" => "rebooted its VM",
        "qmrollback" => "rolled its VM back to a snapshot",
        "qmsuspend" => "suspended its VM",
        "qmpause" => "paused its VM",
        "qmigrate" | "hamigrate" | "migrateall" => "moved its VM",
        "qmtemplate" => "made its VM a template",
        _ => return None,
    })
}

/// Waits until another client has changed a machine's VM in a way that matters to the machine's task.
pub(super) async fn noticed(ctx: &Context, id: &MachineId) {
    let doubts = ctx.registry.doubts(id);
    loop {
        doubts.notified().await;
        let Some(view) = ctx.registry.get(id) else { continue };
        if is_touched(ctx, &view.record, view.phase).await {
            return;
        }
    }
}

async fn is_touched(ctx: &Context, record: &Record, phase: Phase) -> bool {
    // Until the VM is configured, this check is not needed, because each step checks the VM itself. Its
    // result could also be wrong, because a token with rights only on the pool cannot see a clone whose task
    // is still running.
    if record.smbios_uuid.is_none() {
        return false;
    }
    match look(&ctx.proxmox, &ctx.owner(), record).await {
        Ok(Sight::Ours(config)) if should_run(record, phase) && config.lock().is_none() => {
            let power = ctx.proxmox.power(&record.host, record.slot.vmid).await;
            matches!(power, Ok(Power::Stopped))
        }
        Ok(Sight::Ours(_) | Sight::BeingCloned) | Err(_) => false,
        Ok(Sight::Foreign(_) | Sight::BeingDestroyed | Sight::Absent) => true,
    }
}

/// Whether a machine's VM should run in this phase. Returns `false` for a machine that was created ahead of
/// demand, because the machine may be about to be switched off.
pub fn should_run(record: &Record, phase: Phase) -> bool {
    record.warm.is_none() && (Phase::Booting..=Phase::Draining).contains(&phase)
}

/// Finds out what happened to a machine's VM; `None` if nothing did. If the VM was moved, the record is
/// updated.
///
/// # Errors
/// Returns an error if the VM's state cannot be determined now, or if an administrator has to determine it.
pub(super) async fn look_into(
    ctx: &Context,
    machine: &mut MachineHandle,
) -> Result<Option<Touched>, StepError> {
    let before = machine.record().host.clone();
    let found = vm_search::find(ctx, machine).await?;
    let record = machine.record();
    Ok(match found {
        VmSearch::Gone | VmSearch::BeingDestroyed => Some(Touched::Gone),
        VmSearch::NotOurs | VmSearch::Hidden => Some(Touched::NotOurs),
        VmSearch::There(config)
            if should_run(record, machine.phase)
                && config.lock().is_none()
                && ctx.proxmox.power(&record.host, record.slot.vmid).await? == Power::Stopped =>
        {
            Some(Touched::Off)
        }
        VmSearch::There(_) if record.host != before => Some(Touched::Moved),
        VmSearch::There(_) | VmSearch::BeingCloned => None,
    })
}

/// Whether another client's change to the VM may have caused this error in the machine's creation.
pub(super) fn may_explain(trouble: &StepError) -> bool {
    match trouble {
        StepError::Failed { blame: BackoffTarget::Other, .. } | StepError::Foreign { .. } => true,
        StepError::Proxmox(error) => match error.kind {
            Kind::NotFound | Kind::Forbidden => true,
            Kind::Other => error.text.contains("not running"),
            _ => false,
        },
        _ => false,
    }
}

/// Whether all guests of a host are being stopped or were just stopped. A VM that is started now would go
/// down with the host, or run against an administrator's will.
pub(super) async fn is_emptied(ctx: &Context, host: &str) -> bool {
    let now = by_clock_of(&ctx.proxmox, host, &ctx.clock, ctx.clock.now()).await;
    let since = Some(now.saturating_sub(STOPS_FOR.as_secs()));
    let filter = TaskFilter { vmid: None, kind: Some(STOPS_ALL.to_owned()), since, limit: Some(50) };
    // If the host does not answer, it cannot start VMs either, so the result does not matter.
    let rows = ctx.proxmox.tasks(host, &filter).await.unwrap_or_default();
    let stops = |row: &TaskRow| row.ended.is_none_or(|at| now.saturating_sub(at) < GONE_AFTER);
    rows.iter().any(|row| row.upid.kind() == STOPS_ALL && stops(row))
}

/// Waits until a host no longer stops guests, or is off.
async fn until_not_emptied(ctx: &Context, machine: &mut MachineHandle) {
    let host = machine.record().host.clone();
    let until = async {
        while is_emptied(ctx, &host).await {
            machine.say(
                ctx,
                &format!(
                    "all guests on {host} are being stopped; the machine's VM will be started \
                    afterwards"
                ),
            );
            tokio::time::sleep(STOPALL_LOOK).await;
        }
    };
    let limit = Duration::try_from(STOPS_FOR).unwrap_or_default();
    // After the limit, the daemon tries to start the VM anyway.
    let _ = tokio::time::timeout(limit, until).await;
}

/// Continues the creation of a machine after another client changed its VM or a step failed. If the VM was
/// moved, the creation continues on the new host. If the VM was switched off, it is started again.
///
/// # Errors
/// Returns the reason if the creation has to end.
pub(super) async fn go_on(
    ctx: &Context,
    machine: &mut MachineHandle,
    trouble: Option<StepError>,
    starts: &mut u32,
    reports: &Reports,
) -> Result<(), StepError> {
    let before = machine.record().host.clone();
    let touched = match (look_into(ctx, machine).await, trouble) {
        (Ok(Some(touched)), _) => touched,
        (_, Some(trouble)) => return Err(trouble),
        (Ok(None), None) => return Ok(()),
        (Err(error), None) => {
            tracing::debug!(machine = %machine.record().name, %error, "cannot determine yet what happened to a VM");
            return Ok(());
        }
    };
    let what = change_text(ctx, machine.record(), &before, &touched).await;
    match touched {
        Touched::Gone => Err(StepError::Failed { what, blame: BackoffTarget::Other }),
        Touched::NotOurs => {
            say(
                ctx,
                reports,
                machine.record(),
                &format!("{what}: the machine is given up, and the VM is left alone"),
            );
            Err(not_ours(ctx, machine.record(), what).await)
        }
        Touched::Moved => {
            say(
                ctx,
                reports,
                machine.record(),
                &format!("{what}: the machine's creation continues on the new host"),
            );
            Ok(())
        }
        Touched::Off if is_emptied(ctx, &machine.record().host).await => {
            say(
                ctx,
                reports,
                machine.record(),
                &format!("{what}: the VM will be started again once the host is back"),
            );
            until_not_emptied(ctx, machine).await;
            Ok(())
        }
        Touched::Off if *starts >= STARTS => {
            let what = format!("{what}; the VM was already started again {STARTS} times");
            Err(StepError::Failed { what, blame: BackoffTarget::Other })
        }
        Touched::Off => {
            *starts += 1;
            say(ctx, reports, machine.record(), &format!("{what}: starting the VM again"));
            machine.say(ctx, &format!("{what}; starting the VM again"));
            vm_start::start(ctx, machine, false).await
        }
    }
}

/// Returns the error for a machine whose VM is no longer ours. If another VM now has the machine's VMID, the
/// error says that the slot is taken.
async fn not_ours(ctx: &Context, record: &Record, what: String) -> StepError {
    match look(&ctx.proxmox, &ctx.owner(), record).await {
        Ok(Sight::Foreign(found)) => StepError::Foreign { vmid: record.slot.vmid, what: found },
        _ => StepError::Failed { what, blame: BackoffTarget::Other },
    }
}

/// Describes what happened to a machine's VM, and who did it, as far as the host's tasks show this.
pub(super) async fn change_text(ctx: &Context, record: &Record, before: &str, touched: &Touched) -> String {
    let (kinds, unknown) = match touched {
        Touched::Gone => (DESTROYED, "its VM was removed by another client".to_owned()),
        Touched::Off => (
            SWITCHED_OFF,
            "its VM is off, but no task stopped it: its guest has shut down or crashed".to_owned(),
        ),
        Touched::Moved => (MOVED, "its VM was moved by another client".to_owned()),
        Touched::NotOurs => (TEMPLATE, hidden(ctx, record)),
    };
    let by = latest(ctx, before, record, kinds).await;
    let by = by.as_ref().and_then(|row| Some(format!("{} {}", row.user, deed(row.upid.kind())?)));
    let what = by.unwrap_or(unknown);
    if *touched == Touched::Moved { format!("{what} from {before} to {}", record.host) } else { what }
}

fn hidden(ctx: &Context, record: &Record) -> String {
    let vmid = record.slot.vmid;
    let pool = ctx.config.proxmox.as_ref().and_then(|proxmox| proxmox.resource_pool.as_deref());
    match pool {
        Some(pool) => format!(
            "VM {vmid} is hidden from the token or no longer managed: an administrator took it out of the \
             resource pool `{pool}`, made it a template, or created another VM with its VMID"
        ),
        None => format!(
            "VM {vmid} is no longer managed: an administrator made it a template, or created another VM \
             with its VMID"
        ),
    }
}

/// Returns the latest task of one of these kinds that another client started for a machine's VM.
async fn latest(ctx: &Context, host: &str, record: &Record, kinds: &[&str]) -> Option<TaskRow> {
    let own = ctx.config.proxmox.as_ref().map(|proxmox| proxmox.token_id.as_str())?;
    let since = ctx.clock.now().saturating_sub(LATELY).ok()?;
    let since = by_clock_of(&ctx.proxmox, host, &ctx.clock, since).await;
    by_others(&ctx.proxmox, host, (record.slot.vmid, own), since, kinds).await
}

/// Returns the latest task of one of these kinds on a VM, or `None` if none was started after `since` (Unix
/// time in seconds, by the host's clock). Tasks that the token `own` started are ignored.
#[boxed]
pub async fn by_others(
    proxmox: &Client,
    host: &str,
    (vmid, own): (Vmid, &str),
    since: i64,
    kinds: &[&str],
) -> Option<TaskRow> {
    let filter = TaskFilter { vmid: Some(vmid), kind: None, since: Some(since), limit: Some(50) };
    let rows = proxmox.tasks(host, &filter).await.ok()?;
    rows.into_iter()
        .filter(|row| row.user != own && kinds.contains(&row.upid.kind()))
        .max_by_key(|row| row.started)
}

/// Reports another client's change to a machine's VM, and the consequence.
pub(super) fn say(ctx: &Context, reports: &Reports, record: &Record, what: &str) {
    tracing::warn!(machine = %record.name, what, "a machine's VM was changed from outside");
    tell(ctx, reports, record, Ending::Touched(what.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_that_is_looked_for_has_words() {
        for kind in [DESTROYED, SWITCHED_OFF, MOVED, TEMPLATE].concat() {
            assert!(deed(kind).is_some(), "{kind}");
        }
        assert_eq!(deed("qmclone"), None);
    }

    #[test]
    fn a_machine_that_waits_for_its_turn_need_not_run() {
        use model::machine::WarmState;
        let record = Record::example();
        let warm = Record { warm: Some(WarmState::Suspended), ..Record::example() };
        for (record, phase, expected) in [
            (&record, Phase::Starting, false),
            (&record, Phase::Booting, true),
            (&record, Phase::Registered, true),
            (&record, Phase::Ready, true),
            (&record, Phase::Draining, true),
            (&record, Phase::Stopping, false),
            (&warm, Phase::Booting, false),
        ] {
            assert_eq!(should_run(record, phase), expected, "{phase:?} {:?}", record.warm);
        }
    }
}
