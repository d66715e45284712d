//! Removes a VM and everything that belongs to it: the VM is stopped, its Node is deleted, the VM is
//! destroyed, leftovers are removed, and the record is dropped.

use tokio::time::Instant;

use super::context::Context;
use super::emptying::FRESH;
use super::kept_node::Kept;
use super::lost_host::{hosts_that_left, leave_lost_host};
use super::machine_end::{Ended, Manner};
use super::machine_handle::MachineHandle;
use super::node_deletion::delete_node;
use super::out_of_service::Off;
use super::ownership::{TRIES, is_fresh, ours, still_ours};
use super::proxmox_tasks::{self, DESTROY, Job, SHUTDOWN, STOP};
use super::step_error::{BackoffTarget, StepError, retry_until};
use super::vm_search::{CLONING, DESTROYED, VmSearch, find, stale_lock, unlock};
use super::warm_vm::SUSPENDED;
use super::{
    bare_metal, bootstrap_tokens, hindrance, leftover_disks, nocloud_seed, node, protection, returned_nodes,
    silent_kubelet,
};
use model::Record;
use model::machine::Phase;
use proxmox::{Client, Exit, Kind, Power, Upid, VmConfig};

/// Whether a machine had a VM, according to its record.
fn had_vm(record: &Record) -> bool {
    record.smbios_uuid.is_some() || record.node_uid.is_some()
}

/// The progress line for a machine without a VM.
fn without_vm(record: &Record) -> &'static str {
    if had_vm(record) {
        "the VM is gone; its Node is being deleted"
    } else {
        "it has no VM to destroy; its other objects are being removed"
    }
}

/// The progress line once a machine has no VM and no Node.
fn clearing(record: &Record) -> &'static str {
    if had_vm(record) {
        "the VM is gone; what it left behind is being removed"
    } else {
        "it has no VM; its other objects are being removed"
    }
}

/// Stops the VM, deletes its Node, destroys the VM and drops the record. Each part that is already done is
/// skipped.
///
/// If the guest's Node has returned and is needed, the guest keeps running.
pub(super) async fn run(
    ctx: &Context,
    machine: &mut MachineHandle,
    mut manner: Manner,
) -> Result<Ended, StepError> {
    if machine.record().is_physical() {
        return bare_metal::end(ctx, machine).await;
    }
    let asked = Instant::now();
    let found = present(ctx, machine).await?;
    if let Present::Locked(trouble) = found {
        let node = hindrance::serving(ctx, machine, manner).await?;
        return match node {
            Some(node) => Ok(Ended::ServesForNow(Kept { node, why: trouble.to_string() })),
            None => Err(trouble),
        };
    }
    if let Present::There(present) = found {
        note(ctx, machine, &present).await?;
        if let Some(kept) = hindrance::of_emptied(ctx, machine, manner).await? {
            return Ok(Ended::ServesForNow(kept));
        }
        if let Some(kept) = protection::keeps(ctx, machine, &present, manner).await? {
            return Ok(Ended::Serves(kept));
        }
        if let Manner::Graceful { emptied, cut_short } = &mut manner
            && let Some(kept) = begin(ctx, machine, emptied, *cut_short).await?
        {
            return Ok(Ended::Serves(kept));
        }
        let off = match stop(ctx, machine, manner, (*present, asked)).await? {
            Stopped::Kept(kept) => return Ok(Ended::Serves(kept)),
            Stopped::Off(off) => off,
        };
        machine.enter(ctx, Phase::Deleting, "the Node and the VM are being deleted");
        forget_node(ctx, machine, off).await?;
        if let Some(kept) = destroy(ctx, machine).await? {
            return Ok(Ended::Serves(kept));
        }
    } else {
        let off = match found {
            Present::Gone if hosts_that_left(ctx, machine).await?.is_empty() => Off::Gone,
            Present::Gone => Off::Apart,
            Present::Hidden => Off::Hidden,
            _ => Off::Unknown,
        };
        if machine.phase != Phase::Clearing {
            machine.enter(ctx, Phase::Deleting, without_vm(machine.record()));
        }
        forget_node(ctx, machine, off).await?;
    }
    // From now on, a resumed run knows that the machine has neither a VM nor a Node, however long the
    // remaining cleanup takes.
    machine.enter(ctx, Phase::Clearing, clearing(machine.record()));
    machine.save(ctx).await?;
    // Leftover disks are checked last. If an administrator has to remove disks, everything else is already
    // done, so the record can be dropped by hand afterwards.
    nocloud_seed::remove(ctx, machine).await?;
    bootstrap_tokens::delete_all(ctx, machine, ctx.config.limits.destroy).await?;
    leftover_disks::none(ctx, machine).await?;
    machine.drop_record(ctx).await?;
    Ok(Ended::Gone)
}

/// Records that the machine's removal begins. If its Node stays in service, returns the Node and the reason:
/// either the Node has come back and is needed, or an annotation keeps it. If the Node has come back and is
/// needed, nothing is recorded.
async fn begin(
    ctx: &Context,
    machine: &mut MachineHandle,
    emptied: &mut Option<Instant>,
    cut_short: bool,
) -> Result<Option<Kept>, StepError> {
    let ends = cut_short || machine.record().entered.contains_key(&Phase::Stopping);
    if let Some(kept) = returned_nodes::serving_again(ctx, machine, *emptied, ends).await? {
        return Ok(Some(kept));
    }
    if cut_short {
        stays_off(ctx, machine).await?;
    }
    if emptied.is_none_or(|at| at.elapsed() > FRESH) {
        *emptied = Some(Instant::now());
    }
    // A VM that is off is not shut down. If the VM is started before its Node is deleted, this run ends with
    // an error, and the next run drains the Node first.
    let (phase, note) = if cut_short {
        (Phase::Deleting, "the VM is off; the Node and the VM are being deleted")
    } else {
        (Phase::Stopping, "the VM is being shut down")
    };
    let again = machine.record().entered.contains_key(&phase);
    machine.enter(ctx, phase, note);
    // The point of no return for an emptied node: a run resumed after a crash must not uncordon it.
    machine.save(ctx).await?;
    if again { Ok(None) } else { returned_nodes::pinned(ctx, machine).await }
}

/// Checks a VM whose node was not emptied because the VM was off. Returns an error if the VM was started
/// again, because pods may run on it by now, or if the daemon is paused.
async fn stays_off(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    if let Some(what) = ctx.paused() {
        return Err(StepError::Failed { what, blame: BackoffTarget::Other });
    }
    let record = machine.record();
    if ctx.proxmox.power(&record.host, record.slot.vmid).await? != Power::Stopped {
        return Err(started_again());
    }
    Ok(())
}

fn started_again() -> StepError {
    let what = "its VM was started again; draining its node first".to_owned();
    StepError::Failed { what, blame: BackoffTarget::Other }
}

/// Records facts that cannot be read once the VM is gone: the storages of its disks, and its uuid. The uuid
/// identifies the Node that the guest may have registered even though the machine's creation was abandoned.
async fn note(ctx: &Context, machine: &mut MachineHandle, present: &VmConfig) -> Result<(), StepError> {
    let uuid = present.smbios_uuid();
    let storages = present.storages().into_iter().map(ToOwned::to_owned);
    machine
        .change(ctx, |record| {
            // If the VM was recorded as gone, an administrator has restored it from a backup.
            record.vm_gone = None;
            record.smbios_uuid = record.smbios_uuid.take().or(uuid);
            record.storages.extend(storages);
        })
        .await?;
    returned_nodes::follow(ctx, machine, present).await.map(|_| ())
}

/// The result of the search for a machine's VM while the machine is being removed.
enum Present {
    There(Box<VmConfig>),
    /// No VM has the machine's VMID.
    Gone,
    /// A VM has the machine's VMID, but is not ours.
    NotOurs,
    /// A VM has the machine's VMID but is hidden from the token. It may be ours.
    Hidden,
    /// The VM is ours, and stays locked.
    Locked(StepError),
}

/// Returns an error if the machine's kubelet still reports. A host that was removed from the cluster without
/// being switched off keeps running its VMs. As long as a VM's kubelet reports, its Node and its slot are
/// kept.
async fn does_not_run_apart(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    let Some(node) = returned_nodes::node(ctx, machine).await?.filter(|node| !node::is_silent(node)) else {
        return Ok(());
    };
    let record = machine.record();
    let (vmid, hosts) = (record.slot.vmid, hosts_that_left(ctx, machine).await?);
    let stops: Vec<String> = hosts.iter().map(|host| format!("on {host}: qm stop {vmid}")).collect();
    Err(StepError::Administrator {
        what: format!(
            "VM {vmid} is no longer in the cluster, but Node {} still reports: the VM may still run on \
                a host that has left the cluster ({}), so the VM's slot stays closed",
            node.name,
            hosts.join(", "),
        ),
        command: format!(
            "{}; or, if you now manage the Node yourself: {}",
            stops.join("; "),
            kubernetes::command_to_drop(ctx.kubernetes.namespace(), record),
        ),
    })
}

/// Looks for the machine's VM. If the VM is locked, waits for a limited time for the lock to be released. If
/// the VM was moved to another host, the search continues on that host.
async fn present(ctx: &Context, machine: &mut MachineHandle) -> Result<Present, StepError> {
    let limits = &ctx.config.limits;
    leave_lost_host(ctx, machine).await?;
    let until = Instant::now() + limits.clone;
    if let Some(upid) = machine.record().task.as_deref().and_then(Upid::parse) {
        // A task that is still running has to end first.
        let destroys = proxmox_tasks::recorded_destruction(machine.record()).is_some();
        let job = if destroys { DESTROY } else { proxmox_tasks::making(machine.record()) };
        let exit = proxmox_tasks::finish(ctx, job, &upid, limits.clone).await?;
        // A failed task may have left a VM behind that is not visible.
        let taken = exit.problem() == Some(Kind::Exists);
        machine.stored.record.clone_in_doubt |=
            proxmox_tasks::makes(upid.kind()) && !exit.is_success() && !taken;
    }
    loop {
        let lock = match find(ctx, machine).await? {
            VmSearch::There(config) => match config.lock() {
                None | Some(SUSPENDED) => return Ok(Present::There(config)),
                Some(lock) => lock.to_owned(),
            },
            VmSearch::BeingCloned => CLONING.to_owned(),
            VmSearch::BeingDestroyed => DESTROYED.to_owned(),
            VmSearch::Gone => return Ok(Present::Gone),
            VmSearch::NotOurs => return Ok(Present::NotOurs),
            VmSearch::Hidden => return Ok(Present::Hidden),
        };
        if Instant::now() >= until {
            if proxmox_tasks::is_worked_on(ctx, machine.record()).await?
                || lock == CLONING && proxmox_tasks::is_cloning(ctx, machine.record()).await?
            {
                let what = format!("the lock ({lock}) of VM {}", machine.record().slot.vmid);
                let trouble = StepError::Limit { what, limit: limits.clone, blame: BackoffTarget::Other };
                return Ok(Present::Locked(trouble));
            }
            return Ok(Present::Locked(stale_lock(machine, &lock)));
        }
        let note = format!("the VM is locked ({lock}); if no task is working on it, run {}", unlock(machine));
        machine.say(ctx, &note);
        tokio::time::sleep(ctx.config.limits.task_poll * 2).await;
    }
}

/// Removes the `Deleting` phase from the record. The node is then drained first, because its VM may have been
/// started again after it was off.
pub(super) fn begun_no_more(record: &mut Record) {
    record.entered.remove(&Phase::Deleting);
}

/// How a stop ended.
enum Stopped {
    /// The VM is kept, because its Node has returned.
    Kept(Kept),
    /// The VM does not have to be stopped: it is off or gone, or cannot be proven to be ours.
    Off(Off),
}

/// Stops the VM and waits until it is off. If the VM is kept because its Node is back, returns the reason
/// instead. `asked` is the time at which `config` was requested.
async fn stop(
    ctx: &Context,
    machine: &mut MachineHandle,
    manner: Manner,
    (config, asked): (VmConfig, Instant),
) -> Result<Stopped, StepError> {
    let vmid = machine.record().slot.vmid;
    let limits = &ctx.config.limits;
    let patience = u32::try_from(limits.shutdown.as_secs()).unwrap_or(u32::MAX);
    // Proxmox VE itself cuts the power if the guest does not shut down in time.
    let limit = limits.shutdown + limits.start;
    let mut seen = Some((VmSearch::There(Box::new(config)), asked));
    let mut looked = match manner {
        Manner::Graceful { emptied, .. } => emptied,
        Manner::Abrupt => None,
    };
    retry_until!(limit, machine.seed(), {
        let asked = Instant::now();
        let (found, asked) = match seen.take() {
            Some(seen) => seen,
            None => (find(ctx, machine).await?, asked),
        };
        let config = match found {
            VmSearch::There(config) => config,
            VmSearch::Gone => return Ok(Stopped::Off(Off::Gone)),
            VmSearch::Hidden => return Ok(Stopped::Off(Off::Hidden)),
            VmSearch::BeingCloned | VmSearch::BeingDestroyed | VmSearch::NotOurs => {
                return Ok(Stopped::Off(Off::Unknown));
            }
        };
        let host = machine.record().host.clone();
        let host = host.as_str();
        if ctx.proxmox.power(host, vmid).await? == Power::Stopped {
            return Ok(Stopped::Off(Off::Seen));
        }
        if matches!(manner, Manner::Graceful { cut_short: true, .. }) {
            machine.change(ctx, begun_no_more).await?;
            return Err(started_again());
        }
        // The host and its VM may have returned since the decision to discard the machine, or since its node
        // was seen empty.
        let kept = match manner {
            Manner::Abrupt => returned_nodes::keeps(ctx, machine).await?,
            Manner::Graceful { .. } if looked.is_some_and(|at| at.elapsed() <= FRESH) => None,
            Manner::Graceful { .. } => returned_nodes::serving_again(ctx, machine, None, true).await?,
        };
        if let Some(kept) = kept {
            return Ok(Stopped::Kept(kept));
        }
        // An administrator has protected the VM. It is not stopped, because it could not be destroyed
        // afterwards.
        if config.is_set("protection") {
            return Err(protection::protected(machine));
        }
        looked = Some(Instant::now());
        let placed = still_ours(ctx, machine.record(), asked).await?;
        // If there is no guest agent, Proxmox VE presses the VM's virtual power button. systemd reacts to
        // that, too.
        let (job, upid) = if manner == Manner::Abrupt {
            (STOP, placed.stop(host, vmid).await?)
        } else {
            (SHUTDOWN, placed.shutdown(host, vmid, patience).await?)
        };
        drop(placed);
        match proxmox_tasks::finish(ctx, job, &upid, limit).await? {
            Exit::Ok | Exit::Warnings(_) if ctx.proxmox.power(host, vmid).await? == Power::Stopped => {
                Ok(Stopped::Off(Off::Seen))
            }
            Exit::Ok | Exit::Warnings(_) => Err(still_runs()),
            // A failed task may still have stopped the VM: the next try checks the VM first.
            exit => Err(match proxmox_tasks::failed(job, &upid, &exit) {
                StepError::Proxmox(error) => StepError::Proxmox(proxmox::Error { kind: Kind::Busy, ..error }),
                trouble => trouble,
            }),
        }
    })
    .await
}

/// The error for a VM that is still running after it was stopped. Either HA was asked to stop the VM and has
/// not done so yet, or another client has started the VM in the meantime. The daemon tries again later to
/// stop the VM.
fn still_runs() -> StepError {
    passing(
        STOP,
        "the VM is running although it was stopped: HA has not acted yet, or another client has started it"
            .to_owned(),
    )
}

/// Returns a temporary error, after which the job is tried again.
fn passing(job: Job, text: String) -> StepError {
    StepError::Proxmox(proxmox::Error { kind: Kind::Busy, call: job.name.to_owned(), status: None, text })
}

/// Deletes the machine's Node, but never another Node with the same name.
async fn forget_node(ctx: &Context, machine: &mut MachineHandle, off: Off) -> Result<(), StepError> {
    if matches!(off, Off::Unknown | Off::Hidden) {
        silent_kubelet::no_kubelet(ctx, machine, off == Off::Hidden).await?;
    }
    if off == Off::Apart {
        does_not_run_apart(ctx, machine).await?;
    }
    if let Some(node) = node::find(ctx, machine.record())
        && delete_node(ctx, machine, (&node.name, &node.uid), off).await?
    {
        return Ok(());
    }
    // The watches may not show the Node yet, because it may have registered again just before the VM was
    // stopped.
    match returned_nodes::node(ctx, machine).await? {
        Some(node) => delete_node(ctx, machine, (&node.name, &node.uid), off).await.map(|_| ()),
        None => Ok(()),
    }
}

/// Proves that the cluster, including the VM's host, is quorate now, and that the VM is ours and stopped.
/// Slow answers do not count, because they describe an earlier state. The VM must be destroyed with the
/// returned client, which has a reserved place in the host's queue.
async fn still_quorate_and_ours(ctx: &Context, record: &Record, asked: Instant) -> Result<Client, StepError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let placed = ctx.proxmox.in_line(&record.host).await;
        let asked_for_quorum = Instant::now();
        let status = ctx.proxmox.cluster_status().await?;
        // A host that is cut off from the other hosts can destroy disks, but cannot remove the VM's
        // configuration.
        if !status.quorate || status.hosts.get(&record.host) == Some(&false) {
            return Err(StepError::Proxmox(proxmox::Error {
                kind: Kind::NoQuorum,
                call: format!("DELETE VM {}", record.slot.vmid),
                status: None,
                text: "the Proxmox cluster is not quorate: no VM is destroyed".to_owned(),
            }));
        }
        if !is_fresh(asked) {
            ours(ctx, record).await?;
            // The query uses the place in the queue that is already reserved: callers that hold one place and
            // wait for another could block each other.
            if placed.power(&record.host, record.slot.vmid).await? != Power::Stopped {
                return Err(passing(DESTROY, "another client has started the VM in the meantime".to_owned()));
            }
        }
        if is_fresh(asked_for_quorum) || tries >= TRIES {
            return Ok(placed);
        }
    }
}

/// Records that the VM is about to be destroyed: otherwise, the remains of an interrupted destruction could
/// not be distinguished from an unmanaged VM. If the VM must not be destroyed now, nothing is recorded.
async fn announce(ctx: &Context, machine: &mut MachineHandle, asked: Instant) -> Result<(), StepError> {
    if machine.record().destroy_asked {
        return Ok(());
    }
    drop(still_quorate_and_ours(ctx, machine.record(), asked).await?);
    machine.stored.record.destroy_asked = true;
    let stored = machine.save(ctx).await;
    machine.stored.record.destroy_asked = stored.is_ok();
    stored
}

/// Checks again that the VM is ours and stopped and that the cluster is quorate, then destroys the VM. If the
/// VM was started in the meantime and its Node has returned, the VM may be kept.
async fn destroy(ctx: &Context, machine: &mut MachineHandle) -> Result<Option<Kept>, StepError> {
    let vmid = machine.record().slot.vmid;
    let limit = ctx.config.limits.destroy;
    retry_until!(limit, machine.seed(), {
        let asked = Instant::now();
        let config = match find(ctx, machine).await? {
            VmSearch::There(config) => config,
            VmSearch::Gone | VmSearch::NotOurs | VmSearch::Hidden => return Ok(None),
            VmSearch::BeingCloned if proxmox_tasks::is_cloning(ctx, machine.record()).await? => {
                return Err(passing(DESTROY, "its clone is still being created".to_owned()));
            }
            VmSearch::BeingCloned => return Err(stale_lock(machine, CLONING)),
            VmSearch::BeingDestroyed if proxmox_tasks::is_worked_on(ctx, machine.record()).await? => {
                return Err(passing(DESTROY, "the VM is already being destroyed".to_owned()));
            }
            VmSearch::BeingDestroyed => match find(ctx, machine).await? {
                VmSearch::BeingDestroyed => return Err(stale_lock(machine, DESTROYED)),
                _ => {
                    return Err(passing(DESTROY, "the VM was being destroyed until a moment ago".to_owned()));
                }
            },
        };
        let is_protected = config.is_set("protection");
        // The VM may have been moved in the meantime.
        let host = machine.record().host.clone();
        // A start request whose answer was lost may have taken effect after the VM was stopped.
        if ctx.proxmox.power(&host, vmid).await? != Power::Stopped {
            match stop(ctx, machine, Manner::Abrupt, (*config, asked)).await? {
                Stopped::Kept(kept) => return Ok(Some(kept)),
                Stopped::Off(off) => forget_node(ctx, machine, off).await?,
            }
        }
        if is_protected {
            return Err(protection::protected(machine));
        }
        announce(ctx, machine, asked).await?;
        let upid = still_quorate_and_ours(ctx, machine.record(), asked).await?.destroy(&host, vmid).await?;
        // Only the task's log names the disks that could not be freed.
        machine.change(ctx, |record| record.task = Some(upid.to_string())).await?;
        match proxmox_tasks::finish(ctx, DESTROY, &upid, limit).await? {
            Exit::Ok | Exit::Warnings(_) => Ok(None),
            exit => {
                // Before qemu-server 9.1.19, a storage that no longer exists causes the same error as a
                // missing VM, and the VM is not destroyed.
                let absent = exit.problem() == Some(Kind::NotFound);
                if absent
                    && matches!(
                        find(ctx, machine).await?,
                        VmSearch::Gone | VmSearch::NotOurs | VmSearch::Hidden
                    )
                {
                    return Ok(None);
                }
                Err(proxmox_tasks::failed(DESTROY, &upid, &exit))
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_vm_that_was_there_is_said_to_be_gone() {
        let never = Record { smbios_uuid: None, node_uid: None, ..Record::example() };
        let had = Record { smbios_uuid: Some("u".to_owned()), ..never.clone() };
        let joined = Record { node_uid: Some("n".to_owned()), ..never.clone() };
        for (record, is_gone) in [(never, false), (had, true), (joined, true)] {
            for words in [without_vm(&record), clearing(&record)] {
                assert_eq!(words.contains("the VM is gone"), is_gone, "{words}");
            }
        }
    }
}
