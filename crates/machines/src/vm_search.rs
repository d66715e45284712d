//! Looks for a machine's VM. The VM may exist completely or in part, have been moved, be gone, or be
//! unmanaged. In some cases, an administrator has to decide.

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::nocloud_seed;
use super::ownership::{Sight, look};
use super::proxmox_tasks::{self, Destruction};
use super::step_error::{BackoffTarget, StepError, retry_until};
use proxmox::{Kind, VmConfig};

/// The lock of a VM that is being cloned, or whose clone task was interrupted.
pub(super) const CLONING: &str = "clone";
/// The lock of a VM that is being destroyed and whose disks have been freed.
pub(super) const DESTROYED: &str = "destroyed";

/// What exists of a machine's VM.
pub(super) enum VmSearch {
    /// The machine's VM, locked or not, on the host that the record names now.
    There(Box<VmConfig>),
    /// The VM is being cloned.
    BeingCloned,
    /// The VM's disks are freed, and its configuration only contains the `destroyed` lock.
    BeingDestroyed,
    /// Nothing exists.
    Gone,
    /// The VM with the machine's VMID is not proved to be ours.
    NotOurs,
    /// The token cannot see the VM. The VM may still be ours, and may have been removed from our pool.
    Hidden,
}

/// Looks for a machine's VM. If the VM was moved to another host, the search continues on that host.
///
/// # Errors
/// Returns an error if the VM's state cannot be determined now, or if an administrator has to determine it.
pub(super) async fn find(ctx: &Context, machine: &mut MachineHandle) -> Result<VmSearch, StepError> {
    loop {
        match sight(ctx, machine).await? {
            Sight::Ours(config) => {
                ctx.registry.silent(&machine.record().id, false);
                return Ok(VmSearch::There(config));
            }
            Sight::BeingCloned => return Ok(VmSearch::BeingCloned),
            Sight::BeingDestroyed => return Ok(VmSearch::BeingDestroyed),
            Sight::Foreign(what) => {
                tracing::info!(machine = %machine.record().name, what, "the VM is not ours and is left alone");
                return Ok(VmSearch::NotOurs);
            }
            Sight::Absent => match elsewhere(ctx, machine).await? {
                Some(host) => {
                    tracing::info!(machine = %machine.record().name, host, "the VM was moved to another host");
                    machine.change(ctx, |record| record.follow(host)).await?;
                }
                None => {
                    if let Some(found) = hidden(ctx, machine).await? {
                        return Ok(found);
                    }
                }
            },
        }
    }
}

async fn sight(ctx: &Context, machine: &MachineHandle) -> Result<Sight, StepError> {
    retry_until!(ctx.config.limits.destroy, machine.seed(), {
        Ok(look(&ctx.proxmox, &ctx.owner(), machine.record()).await?)
    })
    .await
}

/// Returns the host that has a VM with the record's VMID now, if that is not the record's host.
///
/// # Errors
/// Returns an error if the record's host is down, or if the cluster is not quorate.
async fn elsewhere(ctx: &Context, machine: &MachineHandle) -> Result<Option<String>, StepError> {
    let record = machine.record();
    let seen =
        retry_until!(ctx.config.limits.destroy, machine.seed(), Ok(ctx.proxmox.resources().await?)).await?;
    if seen.hosts.get(&record.host).is_some_and(|host| !host.online) {
        return Err(StepError::Failed {
            what: format!(
                "host {} is down; VM {} can only be checked once the host is back",
                record.host, record.slot.vmid
            ),
            blame: BackoffTarget::Host,
        });
    }
    let elsewhere = seen.guests.get(&record.slot.vmid).map(|guest| guest.host.clone());
    let elsewhere = elsewhere.filter(|host| *host != record.host);
    if elsewhere.is_some() {
        sees_all(ctx, machine).await?;
    }
    Ok(elsewhere)
}

/// Makes sure that a VM that is missing from the cluster's lists really does not exist. A host without
/// quorum, or whose corosync has not run since the host booted, answers from its own copy of the
/// configuration. That copy may be outdated: hosts and VMs may be missing, or VMs may be listed on their
/// former host.
///
/// # Errors
/// Returns an error if the cluster is not quorate.
pub(super) async fn sees_all(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    retry_until!(ctx.config.limits.destroy, machine.seed(), {
        if ctx.proxmox.quorate().await? {
            return Ok(());
        }
        Err(StepError::Proxmox(proxmox::Error {
            kind: Kind::NoQuorum,
            call: "GET /cluster/status".to_owned(),
            status: None,
            text: "the Proxmox cluster is not quorate: a VM that it does not list may still exist".to_owned(),
        }))
    })
    .await
}

/// Determines what became of a VM that is not visible: it is gone, hidden, or being cloned or destroyed.
/// Returns `None` if the VM is visible after all.
///
/// A token that has lost its rights on our machines cannot see them, which does not prove that they are gone.
/// An interrupted clone leaves behind a VM that is not in our pool yet and does not have our mark. A token
/// with rights only on the pool cannot see such a VM, so the VM's owner cannot be proved.
async fn hidden(ctx: &Context, machine: &MachineHandle) -> Result<Option<VmSearch>, StepError> {
    let record = machine.record();
    let limit = ctx.config.limits.destroy;
    let doubt = record.clone_in_doubt && record.smbios_uuid.is_none();
    // A clone claims its VMID some time after the request. Until then, a free VMID proves nothing.
    let mut at_work = doubt && !proxmox_tasks::still_on_its_way(ctx, record).is_zero();
    if doubt && !at_work {
        at_work = retry_until!(limit, machine.seed(), proxmox_tasks::is_cloning(ctx, record).await).await?;
    }
    if at_work {
        return Ok(Some(VmSearch::BeingCloned));
    }
    let taken =
        retry_until!(limit, machine.seed(), Ok(ctx.proxmox.vmid_taken(record.slot.vmid).await?)).await?;
    if !taken {
        sees_all(ctx, machine).await?;
        return Ok(Some(VmSearch::Gone));
    }
    // The rights are checked both before and after the VM is read, because they may change in between.
    may_look(ctx, machine).await?;
    if !matches!(sight(ctx, machine).await?, Sight::Absent) {
        return Ok(None);
    }
    may_look(ctx, machine).await?;
    if doubt {
        return Err(in_doubt(ctx, machine));
    }
    // While a VM is being destroyed, it is removed from its pool, so it is no longer visible.
    match retry_until!(limit, machine.seed(), proxmox_tasks::destruction(ctx, record).await).await? {
        Destruction::AtWork => return Ok(Some(VmSearch::BeingDestroyed)),
        Destruction::Interrupted => {
            return Err(left_unseen(ctx, machine, "destroying", "`lock: destroyed`"));
        }
        Destruction::None | Destruction::Done => {}
    }
    tracing::info!(machine = %record.name, vmid = record.slot.vmid.0, "a VM outside our resource pool has this VMID and is left alone");
    Ok(Some(VmSearch::Hidden))
}

/// Makes sure that the token may see our machines, by its rights on their pool or, without a pool, on this
/// VMID.
async fn may_look(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    let record = machine.record();
    let pool = ctx.config.proxmox.as_ref().and_then(|proxmox| proxmox.resource_pool.as_ref());
    let path = pool.map_or_else(|| format!("/vms/{}", record.slot.vmid), |pool| format!("/pool/{pool}"));
    let limit = ctx.config.limits.destroy;
    let held = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.privileges_on(&path).await?)).await?;
    if held.contains("VM.Audit") {
        return Ok(());
    }
    let vmid = record.slot.vmid;
    let what = format!(
        "VM {vmid} exists, but the token cannot see whether it is ours, because the token lacks \
            VM.Audit on {path}"
    );
    Err(StepError::Failed { what, blame: BackoffTarget::Other })
}

/// The error for a hidden VM that may be our own unfinished clone. An administrator has to decide.
pub(super) fn in_doubt(ctx: &Context, machine: &MachineHandle) -> StepError {
    left_unseen(ctx, machine, "creating", "`lock: clone` or `lock: create`")
}

/// Returns the error if one of our tasks was interrupted and may have left behind the hidden VM with this
/// VMID. The administrator removes that VM or, if it is not ours, deletes the record and the seed.
fn left_unseen(ctx: &Context, machine: &MachineHandle, interrupted: &str, locks: &str) -> StepError {
    let record = machine.record();
    let vmid = record.slot.vmid;
    let mut foreign = nocloud_seed::commands_to_free(record);
    foreign.push(kubernetes::command_to_drop(ctx.kubernetes.namespace(), record));
    StepError::Administrator {
        what: format!(
            "{interrupted} our VM {vmid} on {} was interrupted, and the token cannot see the VM that \
                now has VMID {vmid}: if `qm config {vmid}` shows {locks}, the interrupted task left \
                that VM behind",
            record.host
        ),
        command: format!("{}; or, if it is an unmanaged VM: {}", unlock(machine), foreign.join("; ")),
    }
}

/// Returns the command with which an administrator removes a VM that an interrupted task left locked. The
/// command also removes disks that the task may have left behind without an entry in any configuration.
pub(super) fn unlock(machine: &MachineHandle) -> String {
    let (host, vmid) = (&machine.record().host, machine.record().slot.vmid);
    format!("on {host}: qm unlock {vmid} && qm destroy {vmid} --purge 1 --destroy-unreferenced-disks 1")
}

pub(super) fn stale_lock(machine: &MachineHandle, lock: &str) -> StepError {
    let record = machine.record();
    let vmid = record.slot.vmid;
    StepError::Administrator {
        what: format!(
            "VM {vmid} on {} is still locked ({lock}), and a token cannot remove a lock",
            record.host
        ),
        command: unlock(machine),
    }
}

/// The error for a locked VM on which a task is working.
pub(super) fn locked(machine: &MachineHandle, lock: &str) -> StepError {
    let what = format!("VM {} is locked ({lock}), and a task is working on it", machine.record().slot.vmid);
    StepError::Failed { what, blame: BackoffTarget::Other }
}
