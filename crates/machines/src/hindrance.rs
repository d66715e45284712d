//! Checks, before a node is emptied, whether its VM could be destroyed afterwards. Without quorum, a VM can
//! be stopped, but neither destroyed nor started again; a locked VM can be neither stopped nor destroyed. If
//! a node was already closed for removal, it is put back into service, unless its VM is being shut down. A
//! node whose VM cannot be read is not emptied either, because the VM may be locked or protected.

use super::context::Context;
use super::kept_node::Kept;
use super::machine_end::Manner;
use super::machine_handle::MachineHandle;
use super::step_error::{StepError, retry_until};
use super::vm_search::{VmSearch, find, locked, stale_lock};
use super::warm_vm::SUSPENDED;
use super::{node, protection, proxmox_tasks, returned_nodes};
use model::machine::Phase;
use model::node::Node;
use proxmox::Power;

/// Why a node is not drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// An administrator has protected the node's VM.
    Protected(String),
    /// The VM could not be destroyed now, or cannot be read now.
    ForNow(String),
}

/// Why a node that still reports is not drained now.
///
/// # Errors
/// Returns an error if the machine's record cannot be written, or was changed by another client.
pub(super) async fn of_running(
    ctx: &Context,
    machine: &mut MachineHandle,
    node: &Node,
) -> Result<Option<Hindrance>, StepError> {
    if machine.record().is_physical() || node::is_silent(node) {
        return Ok(None);
    }
    match of_vm(ctx, machine).await {
        Err(trouble) if !matches!(trouble, StepError::RecordLost(_) | StepError::Kubernetes(_)) => {
            let vmid = machine.record().slot.vmid;
            let why =
                format!("it is not known whether VM {vmid} could be destroyed after the drain: {trouble}");
            Ok(Some(Hindrance::ForNow(why)))
        }
        found => found,
    }
}

/// Why a machine's VM could not be destroyed. If the VM was moved, it is checked on its new host.
async fn of_vm(ctx: &Context, machine: &mut MachineHandle) -> Result<Option<Hindrance>, StepError> {
    let VmSearch::There(config) = find(ctx, machine).await? else { return Ok(None) };
    if let Some(why) = protection::of_running(ctx, machine, &config).await? {
        return Ok(Some(Hindrance::Protected(why)));
    }
    let limit = ctx.config.limits.destroy;
    let apart = retry_until!(limit, machine.seed(), no_quorum(ctx, machine).await).await?;
    if let Some(why) = apart {
        return Ok(Some(Hindrance::ForNow(why)));
    }
    let Some(lock) = config.lock().filter(|lock| *lock != SUSPENDED) else { return Ok(None) };
    if !protection::runs(ctx, machine).await? {
        return Ok(None);
    }
    let worked_on = proxmox_tasks::is_worked_on(ctx, machine.record()).await.unwrap_or(true);
    let trouble = if worked_on { locked(machine, lock) } else { stale_lock(machine, lock) };
    Ok(Some(Hindrance::ForNow(trouble.to_string())))
}

/// Returns the reason why no VM in the machine's Proxmox VE cluster could be destroyed now. Returns `None` if
/// the cluster is quorate or the token may not read its status. If the token may not read the status, a lack
/// of quorum is only noticed when a VM is destroyed.
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

/// Returns the Node if it stays in service because the cluster lost its quorum during the drain and the
/// Node's VM could not be destroyed.
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

/// Returns the Node if it stays in service because its VM cannot be shut down now.
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
