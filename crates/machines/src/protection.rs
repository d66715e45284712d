//! VMs that an administrator has protected after their creation. Proxmox VE does not destroy protected VMs,
//! so their nodes stay in service.

use super::context::Context;
use super::kept_node::Kept;
use super::machine_end::Manner;
use super::machine_handle::MachineHandle;
use super::step_error::{StepError, retry_until};
use super::{node, returned_nodes};
use model::machine::Phase;
use proxmox::{Power, VmConfig};

/// Returns the reason not to drain a node whose VM an administrator has protected: after the drain, the VM
/// could not be destroyed. Returns `None` if the VM is not protected, or is off.
///
/// # Errors
/// Returns an error if the VM's status cannot be read.
pub(super) async fn of_running(
    ctx: &Context,
    machine: &MachineHandle,
    config: &VmConfig,
) -> Result<Option<String>, StepError> {
    let record = machine.record();
    let is_protected = config.is_set("protection");
    // The protection is noted in the registry, so that later rounds do not choose the node again.
    ctx.registry.protect(&record.id, is_protected);
    Ok((is_protected && runs(ctx, machine).await?).then(|| protected(machine).to_string()))
}

/// Whether a machine's VM runs. A VM that is off runs no pods.
pub(super) async fn runs(ctx: &Context, machine: &MachineHandle) -> Result<bool, StepError> {
    let (host, vmid) = (&machine.record().host, machine.record().slot.vmid);
    let limit = ctx.config.limits.destroy;
    let power = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.power(host, vmid).await?)).await?;
    Ok(power != Power::Stopped)
}

/// The Node that stays in service because its VM was protected after the drain.
///
/// # Errors
/// Returns an error if the VM is protected and runs, but its Node does not report. The VM is left running.
pub(super) async fn keeps(
    ctx: &Context,
    machine: &mut MachineHandle,
    config: &VmConfig,
    manner: Manner,
) -> Result<Option<Kept>, StepError> {
    let record = machine.record();
    let drained = matches!(manner, Manner::Graceful { cut_short: false, .. });
    if !drained || record.entered.contains_key(&Phase::Stopping) || !config.is_set("protection") {
        return Ok(None);
    }
    // A VM that is off runs no pods.
    if ctx.proxmox.power(&record.host, record.slot.vmid).await? == Power::Stopped {
        return Ok(None);
    }
    let Some(node) = returned_nodes::node(ctx, machine).await?.filter(|node| !node::is_silent(node)) else {
        return Err(protected(machine));
    };
    machine.node = Some(node.name.clone());
    ctx.registry.protect(&machine.record().id, true);
    Ok(Some(Kept::new(node, protected(machine).to_string())))
}

/// The error for a protected VM: an administrator wants to keep it, and Proxmox VE does not destroy it.
pub(super) fn protected(machine: &MachineHandle) -> StepError {
    let (host, vmid) = (&machine.record().host, machine.record().slot.vmid);
    StepError::Administrator {
        what: format!("VM {vmid} is protected and is therefore neither stopped nor destroyed"),
        command: format!("on {host}: qm set {vmid} --protection 0"),
    }
}
