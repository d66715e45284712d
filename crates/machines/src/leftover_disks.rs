//! Disks that a destroyed VM has left behind.
//!
//! If Proxmox VE cannot free a disk while destroying a VM (its storage is busy or unavailable), the task
//! still succeeds, and only its log shows the failure. A disk that an interrupted clone was writing is not in
//! any configuration. A leftover disk of either kind would be mistaken for a disk of the next VM with the
//! same VMID. So the record is kept, and the slot stays occupied, until the disk is gone. If the log is gone,
//! too, and the token may not list the disks, an administrator has to look for them.

use std::collections::BTreeSet;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::proxmox_tasks;
use super::step_error::{StepError, retry_until};
use model::Record;
use proxmox::Kind;

/// The storages on which a machine may have left something: those in its record, and the pool's own.
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

/// Checks that a VM that is gone has left nothing on its storages, not even disks that could not be freed
/// when the VM was destroyed.
///
/// # Errors
/// Returns an error if something is left that an administrator has to remove, or if a storage could not be
/// read.
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
                // The storage was removed, or the token has no access to it, so only the log of the destroy
                // task can show leftover disks.
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
    // The VMID may belong to another VM by now. If so, the disks belong to that VM.
    if retry_until!(limit, machine.seed(), Ok(ctx.proxmox.vmid_taken(vmid).await?)).await? {
        return Ok(());
    }
    Err(match (left.is_empty(), told.disks.is_empty()) {
        (false, _) => found(ctx, machine, &left, false),
        (true, false) => found(ctx, machine, &told.disks, true),
        (true, true) => untold(ctx, machine, &unseen),
    })
}

/// What the logs of the VM's destroy tasks show.
#[derive(Default)]
struct Told {
    /// The disks that the tasks could not free.
    disks: BTreeSet<String>,
    /// Whether a log is gone, so that the disks that its task could not free are unknown.
    lost: bool,
    /// Whether any destroy task was found. If so, the VM was not lost together with its host.
    found: bool,
}

/// The disks that the VM's destroy tasks have left behind, according to their logs.
async fn told(ctx: &Context, machine: &MachineHandle) -> Result<Told, StepError> {
    let record = machine.record();
    let destructions = if let Some(upid) = proxmox_tasks::recorded_destruction(record) {
        vec![upid]
    } else {
        // The daemon was killed after it requested the destroy task and before it recorded the task, or
        // another client requested the task.
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

/// Returns the shared storages among `storages` if a former host of the machine, or a host on which it may
/// have been cloned, has left the cluster. The VM was then not destroyed, so its disks still exist on shared
/// storages. The host's own storages left the cluster with the host.
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

/// Returns those of `storages` on which the token cannot see a VM's disks. Rights on a resource pool do not
/// suffice, because a destroyed VM is no longer in its pool.
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

/// The storage of a volume.
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
        "VM {} was destroyed but left {} behind; its slot stays closed until these disks are removed",
        record.slot.vmid,
        disks.join(", ")
    );
    StepError::Administrator { what, command: steps.join("; ") }
}

/// The error if the daemon cannot see whether disks are left on these storages.
fn untold(ctx: &Context, machine: &MachineHandle, storages: &BTreeSet<String>) -> StepError {
    let (host, vmid) = (&machine.record().host, machine.record().slot.vmid);
    let names: Vec<&str> = storages.iter().map(String::as_str).collect();
    let what = format!(
        "VM {vmid} was destroyed, but its task log is gone, and the token cannot see whether disks are \
            left on {}; its slot stays closed until an administrator has checked",
        names.join(", ")
    );
    let lists: Vec<String> =
        storages.iter().map(|storage| format!("pvesm list {storage} --vmid {vmid}")).collect();
    let look = format!("on {host}, list the disks and run `pvesm free` for each: {}", lists.join(" && "));
    StepError::Administrator { what, command: format!("{look}; {}", a_word(ctx, machine)) }
}

/// The command with which an administrator confirms that nothing is left, because the token cannot check
/// this.
fn a_word(ctx: &Context, machine: &MachineHandle) -> String {
    let dropped = kubernetes::command_to_drop(ctx.kubernetes.namespace(), machine.record());
    format!("then confirm that no disks are left (the token cannot check this): {dropped}")
}
