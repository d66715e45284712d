//! Looking for a machine's VM: there, moved, gone, unmanaged, or what is left of it; and what only an
//! administrator can tell.

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::nocloud_seed;
use super::ownership::{Sight, look};
use super::proxmox_tasks::{self, Destruction};
use super::step_error::{BackoffTarget, StepError, retry_until};
use proxmox::{Kind, VmConfig};

/// The lock of a VM whose clone is being made, or was interrupted.
pub(super) const CLONING: &str = "clone";
/// The lock of a VM whose disks its destruction has freed.
pub(super) const DESTROYED: &str = "destroyed";

/// What is there of a machine.
pub(super) enum VmSearch {
    /// Its VM, locked or not, on the host that its record names now.
    There(Box<VmConfig>),
    /// A clone is being made.
    BeingCloned,
    /// Its disks are freed, and the lock of its destruction is all that is left of its configuration.
    BeingDestroyed,
    /// Nothing.
    Gone,
    /// Something of which nothing says that it is ours.
    NotOurs,
    /// Something that the token does not see: it may be ours, taken out of our pool.
    Hidden,
}

/// Looks for a machine's VM. One that was moved to another host is followed there.
///
/// # Errors
/// What is there cannot be determined for now, or only by an administrator.
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

/// The host that has the VMID now, if it is another than the record's. A host that is down keeps its VM's
/// record.
async fn elsewhere(ctx: &Context, machine: &MachineHandle) -> Result<Option<String>, StepError> {
    let record = machine.record();
    let seen =
        retry_until!(ctx.config.limits.destroy, machine.seed(), Ok(ctx.proxmox.resources().await?)).await?;
    if seen.hosts.get(&record.host).is_some_and(|host| !host.online) {
        return Err(StepError::Failed {
            what: format!(
                "host {} is down: what becomes of its VM {} is decided when it is back",
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

/// Makes sure that what is not in the cluster's lists is not there. A host without quorum, or whose corosync
/// has not run since it booted, answers from its own copy of the configuration, which may be old: hosts and
/// VMs may be missing there, or stand where they were.
///
/// # Errors
/// The cluster is not quorate.
pub(super) async fn sees_all(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    retry_until!(ctx.config.limits.destroy, machine.seed(), {
        if ctx.proxmox.quorate().await? {
            return Ok(());
        }
        Err(StepError::Proxmox(proxmox::Error {
            kind: Kind::NoQuorum,
            call: "GET /cluster/status".to_owned(),
            status: None,
            text: "the Proxmox cluster is not quorate: what it does not list may be there all the same"
                .to_owned(),
        }))
    })
    .await
}

/// What a VM is that cannot be seen: gone, unmanaged, or a clone at work. `None`: it can be seen after all.
///
/// A token that has lost its rights over our machines sees nothing of them, and that proves nothing. A clone
/// that was interrupted leaves a VM that is not in our pool yet and does not bear our mark: a token with
/// rights on the pool cannot see it, and its owner cannot be proved.
async fn hidden(ctx: &Context, machine: &MachineHandle) -> Result<Option<VmSearch>, StepError> {
    let record = machine.record();
    let limit = ctx.config.limits.destroy;
    let doubt = record.clone_in_doubt && record.smbios_uuid.is_none();
    // It claims its VMID a while after it was asked for: before that is certain, a free VMID proves nothing.
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
    // Before the look and after it: else the rights may have come and gone in between.
    may_look(ctx, machine).await?;
    if !matches!(sight(ctx, machine).await?, Sight::Absent) {
        return Ok(None);
    }
    may_look(ctx, machine).await?;
    if doubt {
        return Err(in_doubt(ctx, machine));
    }
    // Halfway, a destruction takes the VM out of its pool: it can no longer be seen.
    match retry_until!(limit, machine.seed(), proxmox_tasks::destruction(ctx, record).await).await? {
        Destruction::AtWork => return Ok(Some(VmSearch::BeingDestroyed)),
        Destruction::Interrupted => {
            return Err(left_unseen(ctx, machine, "the destruction of", "`lock: destroyed`"));
        }
        Destruction::None | Destruction::Done => {}
    }
    tracing::info!(machine = %record.name, vmid = record.slot.vmid.0, "there is a VM with this VMID outside our resource pool: it is left alone");
    Ok(Some(VmSearch::Hidden))
}

/// Makes sure that the token may see our machines: by its rights over their pool, else over this VMID.
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
    let what =
        format!("there is a VM {vmid}, and the token may not see whose it is: it lacks VM.Audit on {path}");
    Err(StepError::Failed { what, blame: BackoffTarget::Other })
}

/// What an administrator has to decide: is the VM that cannot be seen our own half-made clone?
pub(super) fn in_doubt(ctx: &Context, machine: &MachineHandle) -> StepError {
    left_unseen(ctx, machine, "the clone of", "`lock: clone` or `lock: create`")
}

/// One of our tasks was interrupted, and may have left the VM that has the VMID and cannot be seen: the VM is
/// removed, or the record is dropped if the VM is not ours, and the seed with it.
fn left_unseen(ctx: &Context, machine: &MachineHandle, interrupted: &str, locks: &str) -> StepError {
    let record = machine.record();
    let vmid = record.slot.vmid;
    let mut foreign = nocloud_seed::commands_to_free(record);
    foreign.push(kubernetes::command_to_drop(ctx.kubernetes.namespace(), record));
    StepError::Administrator {
        what: format!(
            "{interrupted} our VM {vmid} on {} was interrupted, and there is a VM {vmid} that we may not see: if `qm config {vmid}` shows {locks}, it is what is left of it",
            record.host
        ),
        command: format!("{}; or, if it is an unmanaged VM: {}", unlock(machine), foreign.join("; ")),
    }
}

/// What an administrator runs where a lock is left over. What was interrupted may have left disks that are in
/// no configuration.
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

/// A lock on whose VM a task is at work.
pub(super) fn locked(machine: &MachineHandle, lock: &str) -> StepError {
    let what = format!("VM {} is locked ({lock}), and a task is at work on it", machine.record().slot.vmid);
    StepError::Failed { what, blame: BackoffTarget::Other }
}
