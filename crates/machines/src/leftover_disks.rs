//! Disks that a destroyed VM has left behind.
//!
//! Proxmox's destroy goes on if a disk cannot be freed (its storage is busy, or away), ends well, and says so
//! only in its log; a disk that an interrupted clone was writing is in no configuration at all. Such a disk
//! belongs to the next VM with that VMID, so the record stays, and with it the slot is closed, until the disk
//! is gone. If that log is gone as well, and the token may not look for itself, an administrator has to.

use std::collections::BTreeSet;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::proxmox_tasks;
use super::step_error::{StepError, retry_until};
use model::Record;
use proxmox::Kind;

/// The storages where a machine may have left something: those that its record names, and the pool's own.
fn storages(ctx: &Context, record: &Record) -> BTreeSet<String> {
    let mut storages = record.storages.clone();
    let pool = ctx.config.pools.iter().find(|pool| pool.name == record.pool);
    let named = |pool: &settings::Pool| {
        let of_disks = pool.extra_disks.iter().map(|disk| disk.storage.clone());
        pool.storages.iter().cloned().chain(of_disks).collect::<Vec<_>>()
    };
    storages.extend(pool.map(named).unwrap_or_default());
    storages
}

/// Whether nothing of a VM that is gone is left on its storages, nor of what its destruction could not free.
///
/// # Errors
/// Something is left: an administrator has to remove it. Or a storage could not be asked.
pub(super) async fn none(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    let limit = ctx.config.limits.destroy;
    let record = machine.record();
    let mut storages = storages(ctx, record);
    let (host, vmid) = (&record.host, record.slot.vmid);
    let told = retry_until!(limit, machine.seed(), told(ctx, machine).await).await?;
    let reported: BTreeSet<String> = told.disks.iter().filter_map(|disk| storage_of(disk)).collect();
    storages.extend(reported.iter().cloned());
    let mut left = BTreeSet::new();
    for storage in &storages {
        let seen = retry_until!(limit, machine.seed(), {
            match ctx.proxmox.disks_of(host, storage, vmid).await {
                Ok(disks) => Ok(disks),
                // A storage that was removed, or is not for this token: what the log says has to do.
                Err(error) if matches!(error.kind, Kind::NotFound | Kind::Forbidden) => Ok(Vec::new()),
                Err(error) => Err(error.into()),
            }
        });
        left.extend(seen.await?);
    }
    let mut unseen = BTreeSet::new();
    if left.is_empty() {
        let doubtful = if told.lost {
            storages
        } else if told.found {
            reported
        } else {
            went_down_with_its_host(ctx, machine, &storages).await?
        };
        unseen = not_seen(ctx, machine, doubtful).await?;
    }
    if left.is_empty() && unseen.is_empty() {
        return Ok(());
    }
    // The VMID may be a stranger's by now, and then so are the disks.
    if retry_until!(limit, machine.seed(), Ok(ctx.proxmox.vmid_taken(vmid).await?)).await? {
        return Ok(());
    }
    Err(match (left.is_empty(), told.disks.is_empty()) {
        (false, _) => found(ctx, machine, &left, false),
        (true, false) => found(ctx, machine, &told.disks, true),
        (true, true) => untold(ctx, machine, &unseen),
    })
}

/// What destructions said.
#[derive(Default)]
struct Told {
    /// The disks that they could not free.
    disks: BTreeSet<String>,
    /// The log of one is gone: what it could not free is not known.
    lost: bool,
    /// There was one at all: the VM did not go down with a host.
    found: bool,
}

/// What the destruction itself reported as left.
async fn told(ctx: &Context, machine: &MachineHandle) -> Result<Told, StepError> {
    let record = machine.record();
    let destructions = if let Some(upid) = proxmox_tasks::recorded_destruction(record) {
        vec![upid]
    } else {
        // The daemon that asked for it was killed before it was recorded, or another client asked for it.
        proxmox_tasks::destructions(ctx, record).await?.into_iter().map(|row| row.upid).collect()
    };
    let mut told = Told { found: !destructions.is_empty(), ..Told::default() };
    for upid in destructions {
        match ctx.proxmox.leaked_disks(&upid).await? {
            Some(disks) => told.disks.extend(disks),
            None => told.lost = true,
        }
    }
    Ok(told)
}

/// Those of these storages that all hosts share, if a host that the machine was on, or may have been cloned
/// on, has left the cluster: its VM was not destroyed, so its disks are still there. What the host had of its
/// own went with it.
async fn went_down_with_its_host(
    ctx: &Context,
    machine: &MachineHandle,
    storages: &BTreeSet<String>,
) -> Result<BTreeSet<String>, StepError> {
    let record = machine.record();
    let in_doubt = record.clone_in_doubt && record.smbios_uuid.is_none();
    let left: Vec<_> = record.left_hosts.iter().chain(in_doubt.then_some(&record.template_host)).collect();
    if left.is_empty() {
        return Ok(BTreeSet::new());
    }
    let limit = ctx.config.limits.destroy;
    let seen = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.resources().await?)).await?;
    if left.iter().all(|host| seen.hosts.contains_key(*host)) {
        return Ok(BTreeSet::new());
    }
    let shared = |name: &&String| seen.storages.iter().any(|one| one.name == **name && one.size.shared);
    Ok(storages.iter().filter(shared).cloned().collect())
}

/// Those of these storages on which the token would not see a disk of the VM if it were there. With rights on
/// a pool it does not: a VM that is destroyed has left its pool.
async fn not_seen(
    ctx: &Context,
    machine: &MachineHandle,
    mut storages: BTreeSet<String>,
) -> Result<BTreeSet<String>, StepError> {
    if storages.is_empty() {
        return Ok(storages);
    }
    let limit = ctx.config.limits.destroy;
    let vm = format!("/vms/{}", machine.record().slot.vmid);
    let on_vm = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.privileges_on(&vm).await?)).await?;
    let mut unseen = BTreeSet::new();
    while let Some(storage) = storages.pop_first() {
        let path = format!("/storage/{storage}");
        let on_it = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.privileges_on(&path).await?)).await?;
        let seen = on_it.contains("Datastore.Audit") && on_vm.contains("VM.Config.Disk");
        if !seen && !on_it.contains("Datastore.Allocate") {
            unseen.insert(storage);
        }
    }
    Ok(unseen)
}

/// The storage that a volume is on.
fn storage_of(volume: &str) -> Option<String> {
    Some(volume.split_once(':')?.0.to_owned())
}

fn found(ctx: &Context, machine: &MachineHandle, left: &BTreeSet<String>, blind: bool) -> StepError {
    let record = machine.record();
    let disks: Vec<&str> = left.iter().map(String::as_str).collect();
    let free: Vec<String> = left.iter().map(|disk| format!("pvesm free {disk}")).collect();
    let mut steps = vec![format!("on {}: {}", record.host, free.join(" && "))];
    if blind {
        steps.push(a_word(ctx, machine));
    }
    let what = format!(
        "VM {} is destroyed and has left {} behind; its slot stays closed until that is gone",
        record.slot.vmid,
        disks.join(", ")
    );
    StepError::Administrator { what, command: steps.join("; ") }
}

/// The daemon cannot tell whether something is left on these storages.
fn untold(ctx: &Context, machine: &MachineHandle, storages: &BTreeSet<String>) -> StepError {
    let (host, vmid) = (&machine.record().host, machine.record().slot.vmid);
    let names: Vec<&str> = storages.iter().map(String::as_str).collect();
    let what = format!(
        "VM {vmid} is destroyed, the log of that is gone, and the token may not see whether disks of it are left on {}; its slot stays closed until an administrator has looked",
        names.join(", ")
    );
    let lists: Vec<String> =
        storages.iter().map(|storage| format!("pvesm list {storage} --vmid {vmid}")).collect();
    let look = format!("on {host}, with `pvesm free` for each disk that is listed: {}", lists.join(" && "));
    StepError::Administrator { what, command: format!("{look}; {}", a_word(ctx, machine)) }
}

/// The daemon cannot see that nothing is left: an administrator has to say so.
fn a_word(ctx: &Context, machine: &MachineHandle) -> String {
    let dropped = kubernetes::command_to_drop(ctx.kubernetes.namespace(), machine.record());
    format!("then, because the token may not see them: {dropped}")
}
