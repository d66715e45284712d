//! Machines whose host is off or has left the cluster.

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::proxmox_tasks;
use super::step_error::{BackoffTarget, StepError, retry_until};
use super::vm_search::sees_all;
use model::Record;
use proxmox::{ClusterResources, Upid};

/// The former hosts of a machine that are no longer in the cluster.
pub(super) async fn hosts_that_left(
    ctx: &Context,
    machine: &MachineHandle,
) -> Result<Vec<String>, StepError> {
    let record = machine.record();
    let limit = ctx.config.limits.destroy;
    let seen = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.resources().await?)).await?;
    let were = record.left_hosts.iter().chain([&record.host]);
    let left: Vec<String> = were.filter(|host| !seen.hosts.contains_key(*host)).cloned().collect();
    if !left.is_empty() {
        sees_all(ctx, machine).await?;
    }
    Ok(left)
}

/// Changes the host in the record if the recorded host is off or has left the cluster, and the VM is no
/// longer on it. The new host is the one that has the VM now: the VM was moved by hand or recovered. If no
/// host has the VM and the recorded host has left, the new host is any host that is on, because it can access
/// the shared storages.
pub(super) async fn leave_lost_host(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    let limit = ctx.config.limits.destroy;
    let seen = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.resources().await?)).await?;
    forget_lost_task(ctx, machine, &seen).await?;
    let record = machine.record();
    if is_on(&seen, &record.host) {
        return Ok(());
    }
    let has_it = seen.guests.get(&record.slot.vmid).map(|guest| guest.host.clone());
    let has_left = !seen.hosts.contains_key(&record.host);
    if !has_left && has_it.as_ref().is_none_or(|host| *host == record.host) {
        return Ok(());
    }
    sees_all(ctx, machine).await?;
    if has_left && has_it.as_ref() == Some(&record.host) {
        return Err(StepError::Failed { what: left_with_files(record), blame: BackoffTarget::Other });
    }
    let any = || seen.hosts.keys().find(|host| has_left && is_on(&seen, host)).cloned();
    let Some(host) = has_it.or_else(any).filter(|host| *host != record.host) else { return Ok(()) };
    tracing::info!(machine = %record.name, left = record.host, host, "the VM is no longer on its \
        recorded host, which is off or has left the cluster");
    machine.change(ctx, |record| record.follow(host)).await
}

/// The error for a VM whose host has left the cluster: `pvecm delnode` leaves the configurations of the
/// host's VMs in place, and the daemon cannot tell whether the host may return.
fn left_with_files(record: &Record) -> String {
    let (host, vmid) = (&record.host, record.slot.vmid);
    format!(
        "host {host} has left the cluster, but VM {vmid} is still listed on it, because the folder \
         /etc/pve/nodes/{host} exists. If {host} will not come back, move the configurations of \
         guests that are still needed to another host's folder, and remove /etc/pve/nodes/{host}"
    )
}

fn is_on(seen: &ClusterResources, host: &str) -> bool {
    seen.hosts.get(host).is_some_and(|host| host.online)
}

/// Drops the recorded task if its host is off or has left the cluster. The result of the task is unknown, and
/// a clone may have left a VM behind that is not visible. The task may have run on the template's host
/// instead of the VM's host.
async fn forget_lost_task(
    ctx: &Context,
    machine: &mut MachineHandle,
    seen: &ClusterResources,
) -> Result<(), StepError> {
    let task = machine.record().task.as_deref().and_then(Upid::parse);
    let Some(upid) = task.filter(|upid| !is_on(seen, upid.node())) else { return Ok(()) };
    sees_all(ctx, machine).await?;
    tracing::info!(machine = %machine.record().name, task = %upid, "the task's host is off or has left the cluster: not waiting for the task");
    machine
        .change(ctx, |record| {
            record.task = None;
            record.clone_in_doubt |= proxmox_tasks::makes(upid.kind());
        })
        .await
}
