//! Runs one task for each machine that is being worked on, and handles the task's outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Context;
use super::kept_node::Kept;
use super::machine_handle::{MachineHandle, seed};
use super::outside_changes::{self, Touched};
use super::reports::{Ending, Reports, claimed, lost, stuck, tell};
use super::step_error::{BackoffTarget, StepError, retry_until};
use super::{
    create as creation, destroy, emptying, grow, machine_end, node, proxmox_tasks, refused_pools,
    retire as retirement, returned_nodes, silent_kubelet, vm_search, vm_start, warm_machine,
};
use kubernetes::Versioned;
use model::Record;
use model::machine::{Intent, Phase};
use proxmox::Power;
use runtime::boxed;

/// How long to try to write the record of a new machine.
const CLAIM_LIMIT: Duration = Duration::from_mins(1);
/// How long to try to record that a node is to be removed. After that, the removal is left to a later round,
/// which may decide differently. For example, removals may no longer be allowed at that time of day, the node
/// may be needed again, or other nodes may be removed instead.
const DECISION_LIMIT: Duration = Duration::from_secs(15);

/// Creates a machine: claims its slot by writing the record, then goes through all steps.
#[boxed]
pub async fn create(ctx: Context, record: Record, reports: Reports) {
    // The answer to an earlier request may have been lost, so the record may exist. The daemon has to know
    // this before it creates another machine in the same slot.
    let mut repeated = false;
    let created = retry_until!(CLAIM_LIMIT, seed(&record.id), {
        // While the daemon is paused, nothing new is started. If an earlier attempt did create the record,
        // the record is found the next time that all records are read.
        if std::mem::replace(&mut repeated, true)
            && let Some(what) = ctx.paused()
        {
            return Err(StepError::Failed { what, blame: BackoffTarget::Other });
        }
        Ok(ctx.kubernetes.create_record(&record).await?)
    });
    let stored = match created.await {
        Ok(stored) => stored,
        Err(StepError::Foreign { .. }) => {
            ctx.registry.forget(&record.id, ctx.clock.now());
            tell(
                &ctx,
                &reports,
                &record,
                Ending::SlotTaken("another machine's record holds the slot".to_owned()),
            );
            return;
        }
        Err(error) => {
            // If the outcome is still unknown, the record may exist. It is found the next time that all
            // records are read.
            ctx.registry.forget(&record.id, ctx.clock.now());
            let reason = format!("{error}");
            tell(&ctx, &reports, &record, Ending::Failed { reason, blame: BackoffTarget::Other });
            return;
        }
    };
    let machine = MachineHandle::new(stored, ctx.clock.now());
    creating(&ctx, machine, &reports, true).await;
}

/// Resumes a machine whose record was found, if the stored record has not changed since. A list of records
/// may arrive late, when the machine no longer exists.
#[boxed]
pub async fn adopt(ctx: Context, stored: Versioned<Record>, reports: Reports) {
    let id = stored.record.id.clone();
    if !ctx.registry.claim(&id) {
        return;
    }
    let mut machine = MachineHandle::new(stored, ctx.clock.now());
    if let Err(trouble) = machine.save(&ctx).await {
        return stuck(&ctx, &mut machine, &trouble, &reports);
    }
    match machine.record().intent.clone() {
        Intent::Create if machine.record().growing.is_some() => grow::go_on(&ctx, machine, &reports).await,
        Intent::Create => creating(&ctx, machine, &reports, false).await,
        Intent::Retire { .. } => retiring(&ctx, machine, &reports).await,
        Intent::Discard { reason, .. } => discarding(&ctx, machine, &reason, &reports).await,
    }
}

/// Asks a machine that is kept warm to join, for these pods.
#[boxed]
pub async fn wake(ctx: Context, stored: Versioned<Record>, pods: Vec<String>, reports: Reports) {
    let Some(mut machine) = claimed(&ctx, stored) else { return };
    match ask(&ctx, &mut machine, pods).await {
        Ok(()) => creating(&ctx, machine, &reports, false).await,
        Err(trouble) => lost(&ctx, &machine, &trouble, &reports),
    }
}

/// Records that a machine should become a node from now on.
async fn ask(ctx: &Context, machine: &mut MachineHandle, pods: Vec<String>) -> Result<(), StepError> {
    let now = ctx.clock.now();
    machine
        .change(ctx, |record| {
            record.kept = record.warm.take();
            record.asked = Some(now);
            record.pods = pods;
            // The timeline starts again, because no pod waited for the machine's earlier steps.
            record.entered = BTreeMap::from([(Phase::Requested, now)]);
        })
        .await
}

/// Takes a ready machine out of service.
#[boxed]
pub async fn retire(ctx: Context, stored: Versioned<Record>, reason: String, reports: Reports) {
    let Some(mut machine) = claimed(&ctx, stored) else { return };
    let since = ctx.clock.now();
    // The machine has counted as draining since the round that decided to remove it. It continues to count as
    // draining while its VM is being checked.
    (machine.phase, machine.since) = (Phase::Draining, since);
    machine.note.clone_from(&reason);
    machine.stored.record.intent = Intent::Retire { reason, since };
    match machine.save_within(&ctx, DECISION_LIMIT).await {
        Ok(()) => retiring(&ctx, machine, &reports).await,
        Err(trouble) => lost(&ctx, &machine, &trouble, &reports),
    }
}

/// Removes a machine that is to be discarded. The machine is normally not drained, because it is assumed to
/// run no pods.
#[boxed]
pub async fn discard(ctx: Context, stored: Versioned<Record>, reason: String, reports: Reports) {
    let Some(mut machine) = claimed(&ctx, stored) else { return };
    match give_up(&ctx, &mut machine, &reason).await {
        Ok(()) => discarding(&ctx, machine, &reason, &reports).await,
        Err(trouble) => lost(&ctx, &machine, &trouble, &reports),
    }
}

/// Handles a ready machine whose VM has not been seen running for a while. If the VM is off, it is started
/// again. If the VM is gone or no longer visible as ours, the machine is removed with everything that belongs
/// to it. Otherwise, the machine stays in service. A warm machine in an unexpected state is removed, unless
/// its VM runs and has joined or will join by itself.
#[boxed]
pub async fn missed(ctx: Context, stored: Versioned<Record>, reports: Reports) {
    let Some(mut machine) = claimed(&ctx, stored) else { return };
    machine.phase = if machine.record().warm.is_some() { Phase::Warm } else { Phase::Ready };
    if let Err(trouble) = machine.save(&ctx).await {
        // An administrator may have dropped the record in order to keep the VM.
        return lost(&ctx, &machine, &trouble, &reports);
    }
    if machine.record().warm.is_some() {
        return Box::pin(missed_warm(&ctx, machine, &reports)).await;
    }
    match serves_on(&ctx, &mut machine, &reports).await {
        Ok(None) => {
            let how = "its VM exists".to_owned();
            tell(&ctx, &reports, machine.record(), Ending::LookedAfter(how));
            ctx.registry.release(&machine.record().id);
        }
        Ok(Some(reason)) => {
            outside_changes::say(
                &ctx,
                &reports,
                machine.record(),
                &format!("{reason}; the machine is removed"),
            );
            match give_up(&ctx, &mut machine, &reason).await {
                Ok(()) => discarding(&ctx, machine, &reason, &reports).await,
                Err(trouble) => lost(&ctx, &machine, &trouble, &reports),
            }
        }
        Err(trouble) => stuck(&ctx, &mut machine, &trouble, &reports),
    }
}

async fn missed_warm(ctx: &Context, mut machine: MachineHandle, reports: &Reports) {
    match warm_machine::found(ctx, &mut machine).await {
        Ok(warm_machine::WarmSight::AsItWas) => ctx.registry.release(&machine.record().id),
        // Pods may already run on the machine, so it is treated like any other node.
        Ok(warm_machine::WarmSight::Joins) => {
            tracing::warn!(machine = %machine.record().name, "another client started a warm machine \
                that joins by itself; keeping it as a node");
            if let Err(trouble) = ask(ctx, &mut machine, Vec::new()).await {
                return lost(ctx, &machine, &trouble, reports);
            }
            // The machine stays in service even if its VM cannot be configured to start with its host.
            if let Err(trouble) = warm_machine::come_up_with_host(ctx, &machine, None).await {
                tracing::warn!(machine = %machine.record().name, error = %trouble, "the machine's VM could not be configured to start with its host");
            }
            creating(ctx, machine, reports, false).await;
        }
        Ok(warm_machine::WarmSight::Otherwise) => {
            let reason = "the state of its VM has changed: another client started, stopped or removed \
                the VM";
            tracing::warn!(machine = %machine.record().name, reason, "removing a machine that was kept warm");
            match give_up(ctx, &mut machine, reason).await {
                Ok(()) => discarding(ctx, machine, reason, reports).await,
                Err(trouble) => lost(ctx, &machine, &trouble, reports),
            }
        }
        Err(trouble) => {
            tracing::debug!(machine = %machine.record().name, error = %trouble, "a machine that is kept warm cannot be read");
            ctx.registry.release(&machine.record().id);
        }
    }
}

/// Restores lost labels and taints on a ready machine's Node: a Node that was deleted registers again without
/// them.
#[boxed]
pub async fn restore(ctx: Context, stored: Versioned<Record>, reports: Reports) {
    let Some(mut machine) = claimed(&ctx, stored) else { return };
    machine.phase = Phase::Ready;
    if let Err(trouble) = machine.save(&ctx).await {
        return lost(&ctx, &machine, &trouble, &reports);
    }
    match node::restore(&ctx, &mut machine).await {
        Ok(()) => {
            let how = "its Node has the pool's labels and taints again".to_owned();
            tell(&ctx, &reports, machine.record(), Ending::LookedAfter(how));
            ctx.registry.release(&machine.record().id);
        }
        Err(trouble) => stuck(&ctx, &mut machine, &trouble, &reports),
    }
}

/// Returns the reason to remove a machine whose VM was not seen running. Returns `None` if the machine stays
/// in service. A VM that is off is started again.
async fn serves_on(
    ctx: &Context,
    machine: &mut MachineHandle,
    reports: &Reports,
) -> Result<Option<String>, StepError> {
    let before = machine.record().host.clone();
    let found = vm_search::find(ctx, machine).await?;
    let words =
        async |record: &Record, touched| outside_changes::change_text(ctx, record, &before, &touched).await;
    let config = match found {
        vm_search::VmSearch::Gone => return Ok(Some(words(machine.record(), Touched::Gone).await)),
        vm_search::VmSearch::NotOurs | vm_search::VmSearch::Hidden => {
            let what = words(machine.record(), Touched::NotOurs).await;
            outside_changes::say(ctx, reports, machine.record(), &format!("{what}: the VM is left alone"));
            silent_kubelet::no_kubelet(ctx, machine, matches!(found, vm_search::VmSearch::Hidden)).await?;
            return Ok(Some(what));
        }
        vm_search::VmSearch::BeingCloned | vm_search::VmSearch::BeingDestroyed => return Ok(None),
        vm_search::VmSearch::There(config) => config,
    };
    if machine.record().host != before {
        let what = words(machine.record(), Touched::Moved).await;
        outside_changes::say(
            ctx,
            reports,
            machine.record(),
            &format!("{what}: the machine stays in service on the new host"),
        );
    }
    if returned_nodes::follow(ctx, machine, &config).await? {
        outside_changes::say(
            ctx,
            reports,
            machine.record(),
            "its VM has a new SMBIOS uuid; the machine stays in service",
        );
    }
    let (host, vmid) = (machine.record().host.clone(), machine.record().slot.vmid);
    if ctx.proxmox.power(&host, vmid).await? != Power::Stopped {
        return Ok(None);
    }
    match config.lock() {
        // The VM is not started while the host's guests are being stopped. The daemon checks the machine
        // again later.
        None if outside_changes::is_emptied(ctx, &host).await => {
            tracing::info!(machine = %machine.record().name, host, "all guests on its host are being \
                stopped; its VM will be started afterwards");
            Ok(None)
        }
        None => {
            let what = words(machine.record(), Touched::Off).await;
            outside_changes::say(ctx, reports, machine.record(), &format!("{what}: starting the VM again"));
            vm_start::start(ctx, machine, false).await?;
            Ok(None)
        }
        Some(_) if proxmox_tasks::is_worked_on(ctx, machine.record()).await? => Ok(None),
        Some(lock) => Err(StepError::Administrator {
            what: format!(
                "VM {vmid} is off and locked ({lock}), but no task is known to be working on it; a \
                    token cannot remove the lock"
            ),
            command: format!("on {host}: qm unlock {vmid}"),
        }),
    }
}

async fn creating(ctx: &Context, mut machine: MachineHandle, reports: &Reports, fresh: bool) {
    let trouble = match Box::pin(creation::run(ctx, &mut machine, fresh, reports)).await {
        Ok(made) => {
            let ending = match made {
                creation::Created::Ready => Ending::Ready,
                creation::Created::Warm => Ending::Warm,
            };
            tell(ctx, reports, machine.record(), ending);
            ctx.registry.release(&machine.record().id);
            return;
        }
        Err(trouble) => trouble,
    };
    if matches!(trouble, StepError::RecordLost(_)) {
        return lost(ctx, &machine, &trouble, reports);
    }
    let mut reason = format!("{} failed: {trouble}", doing(machine.phase));
    let refused = refuse(ctx, &machine, &trouble).await;
    if let Some(words) = &refused {
        reason = format!("{reason}; {words}");
    }
    tracing::warn!(machine = %machine.record().name, reason, "a machine could not be created");
    let ending = match &trouble {
        // No machines are created in the pool until the right is granted. Then creation resumes immediately,
        // so the pool does not back off.
        _ if refused.is_some() => Ending::Failed { reason: reason.clone(), blame: BackoffTarget::Other },
        StepError::Foreign { .. } | StepError::Taken { .. } => Ending::SlotTaken(trouble.to_string()),
        _ => {
            let blame = super::backoff_target::find(ctx, &machine, &trouble).await;
            Ending::Failed { reason: reason.clone(), blame }
        }
    };
    tell(ctx, reports, machine.record(), ending);
    match give_up(ctx, &mut machine, &reason).await {
        Ok(()) => discarding(ctx, machine, &reason, reports).await,
        Err(trouble) => lost(ctx, &machine, &trouble, reports),
    }
}

/// If the error is about a missing right, records that the pool's machines are refused. Returns a text that
/// says which right is missing and how to grant it.
async fn refuse(ctx: &Context, machine: &MachineHandle, trouble: &StepError) -> Option<String> {
    let StepError::Proxmox(error) = trouble else { return None };
    let record = machine.record();
    let pool = ctx.config.pools.iter().find(|pool| pool.name == record.pool)?;
    let right = refused_pools::missing(ctx, record.slot.vmid, &error.text).await?;
    let token = ctx.config.proxmox.as_ref().map(|table| table.token_id.as_str()).unwrap_or_default();
    Some(ctx.templates.refused(pool, right, token))
}

/// Returns a noun for messages, such as `the clone`, for the step that a machine goes through in this phase.
fn doing(phase: Phase) -> &'static str {
    match phase {
        Phase::Requested | Phase::Cloning => "the clone",
        Phase::Configuring => "the configuration",
        Phase::Starting => "the start",
        Phase::Booting => "the boot",
        Phase::Joining => "the join",
        _ => "the registration",
    }
}

async fn give_up(ctx: &Context, machine: &mut MachineHandle, reason: &str) -> Result<(), StepError> {
    let since = ctx.clock.now();
    machine.enter(ctx, Phase::Failed, reason);
    machine.change(ctx, |record| record.intent = Intent::Discard { reason: reason.to_owned(), since }).await
}

pub(super) async fn discarding(ctx: &Context, mut machine: MachineHandle, reason: &str, reports: &Reports) {
    if machine.phase != Phase::Clearing {
        machine.enter(ctx, Phase::Failed, reason);
    }
    // The Node may still become ready before its VM can be stopped, and must not receive further pods.
    if let Some(node) = node::find(ctx, machine.record())
        && let Err(trouble) = emptying::close(ctx, &mut machine, &node).await
    {
        return stuck(ctx, &mut machine, &trouble, reports);
    }
    let Kept { node, why } = match destroy::run(ctx, &mut machine, machine_end::Manner::Abrupt).await {
        Ok(machine_end::Ended::Gone) => return tell(ctx, reports, machine.record(), Ending::Discarded),
        Ok(machine_end::Ended::Serves(kept) | machine_end::Ended::ServesForNow(kept)) => kept,
        Err(trouble) => return stuck(ctx, &mut machine, &trouble, reports),
    };
    tracing::warn!(machine = %machine.record().name, node = %node.name, why, "keeping the Node and VM of a failed machine");
    machine.node = Some(node.name.clone());
    match retirement::reopen(ctx, &mut machine, &node).await {
        Ok(()) => {
            tell(ctx, reports, machine.record(), Ending::GivenUp(why));
            ctx.registry.release(&machine.record().id);
        }
        Err(trouble) => stuck(ctx, &mut machine, &trouble, reports),
    }
}

async fn retiring(ctx: &Context, mut machine: MachineHandle, reports: &Reports) {
    match retirement::run(ctx, &mut machine, reports).await {
        Ok(retirement::Retired::Gone) => tell(ctx, reports, machine.record(), Ending::Removed),
        Ok(retirement::Retired::GivenUp(why)) => {
            tell(ctx, reports, machine.record(), Ending::GivenUp(why));
            ctx.registry.release(&machine.record().id);
        }
        Err(trouble) => stuck(ctx, &mut machine, &trouble, reports),
    }
}
