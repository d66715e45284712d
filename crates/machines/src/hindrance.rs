//! Checks, before a node is emptied, whether its VM could be destroyed afterwards. Without quorum, a VM can
//! be stopped, but neither destroyed nor started again; a locked VM can be neither stopped nor destroyed. If
//! a node was already closed for removal, it is put back into service, unless its VM is being shut down.

use super::context::Context;
use super::kept_node::Kept;
use super::machine_end::Manner;
use super::machine_handle::MachineHandle;
use super::ownership::is_ours;
use super::step_error::{StepError, retry_until};
use super::vm_search::{locked, stale_lock};
use super::warm_vm::SUSPENDED;
use super::{node, proxmox_tasks, returned_nodes};
use model::machine::Phase;
use model::node::Node;
use proxmox::Power;

/// Why a node that still reports is not drained now. Anything that cannot be determined now is checked again
/// before the VM is shut down.
pub(super) async fn of_running(ctx: &Context, machine: &MachineHandle, node: &Node) -> Option<String> {
    let record = machine.record();
    if record.is_physical() || node::is_silent(node) {
        return None;
    }
    if let Some(why) = no_quorum(ctx, machine).await.ok()? {
        return Some(why);
    }
    let (host, vmid) = (&record.host, record.slot.vmid);
    let config = ctx.proxmox.config(host, vmid).await.ok()?;
    let is_ours = is_ours(&ctx.owner(), record, &config);
    let lock = config.lock().filter(|lock| is_ours && *lock != SUSPENDED)?;
    let runs = matches!(ctx.proxmox.power(host, vmid).await, Ok(power) if power != Power::Stopped);
    if !runs {
        return None;
    }
    let worked_on = proxmox_tasks::is_worked_on(ctx, record).await.unwrap_or(true);
    let trouble = if worked_on { locked(machine, lock) } else { stale_lock(machine, lock) };
    Some(trouble.to_string())
}

/// Why no VM of the machine's Proxmox VE cluster could be destroyed now; `None` if the cluster is quorate or
/// the token may not read its status. In the latter case, a lack of quorum is only noticed when a VM is
/// destroyed.
async fn no_quorum(ctx: &Context, machine: &MachineHandle) -> Result<Option<String>, StepError> {
    let status = match ctx.proxmox.cluster_status().await {
        Ok(status) => status,
        Err(error) if error.kind == proxmox::Kind::Forbidden => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let host = &machine.record().host;
    let apart = !status.quorate || status.hosts.get(host) == Some(&false);
    Ok(apart.then(|| {
        let vmid = machine.record().slot.vmid;
        format!(
            "the Proxmox cluster of its host {host} is not quorate: VM {vmid} can be neither destroyed nor \
             started again"
        )
    }))
}

/// The Node that stays in service because the cluster lost its quorum during the drain, so that its VM could
/// not be destroyed.
pub(super) async fn of_emptied(
    ctx: &Context,
    machine: &mut MachineHandle,
    manner: Manner,
) -> Result<Option<Kept>, StepError> {
    if !may_serve(machine, manner) {
        return Ok(None);
    }
    let limit = ctx.config.limits.destroy;
    let asked = retry_until!(limit, machine.seed(), no_quorum(ctx, machine).await).await?;
    let Some(why) = asked else { return Ok(None) };
    Ok(serving(ctx, machine, manner).await?.map(|node| Kept { node, why }))
}

/// The Node that stays in service because its VM cannot be shut down now.
pub(super) async fn serving(
    ctx: &Context,
    machine: &mut MachineHandle,
    manner: Manner,
) -> Result<Option<Box<Node>>, StepError> {
    let record = machine.record();
    // A VM that is off runs no pods.
    if !may_serve(machine, manner)
        || ctx.proxmox.power(&record.host, record.slot.vmid).await? == Power::Stopped
    {
        return Ok(None);
    }
    let Some(node) = returned_nodes::node(ctx, machine).await?.filter(|node| !node::is_silent(node)) else {
        return Ok(None);
    };
    machine.node = Some(node.name.clone());
    Ok(Some(Box::new(node)))
}

/// Whether the machine's node can still be put back into service.
fn may_serve(machine: &MachineHandle, manner: Manner) -> bool {
    let drained = matches!(manner, Manner::Graceful { cut_short: false, .. });
    drained && !machine.record().entered.contains_key(&Phase::Stopping)
}
