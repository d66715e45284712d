//! Machines that join by themselves. The daemon does not use their guest agent, and only waits until their
//! Nodes register.

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::node;
use super::step_error::{StepError, time_text};
use model::Record;
use model::machine::Phase;
use proxmox::Power;

/// Waits for the Node of a running VM. The time limit is the sum of the limits `system_running` and `join`.
pub(super) async fn run(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    machine.enter(ctx, Phase::Booting, "it joins by itself; waiting for its Node");
    let record = machine.record().clone();
    let limits = &ctx.config.limits;
    let limit = limits.system_running + limits.join;
    let registered = node::until(ctx, || node::find(ctx, &record));
    if tokio::time::timeout(limit, registered).await.is_ok() {
        return Ok(());
    }
    Err(StepError::pool(format!(
        "its Node did not register within {}: {}",
        time_text(limit),
        seen(ctx, &record).await
    )))
}

/// Describes why no Node has registered, as far as that can be determined from outside the guest.
async fn seen(ctx: &Context, record: &Record) -> String {
    if record.smbios_uuid.is_none() {
        return "its VM has no SMBIOS uuid, which is needed to recognize its Node: set `smbios1` in the template"
            .to_owned();
    }
    if let Some(node) = ctx.watches.node(&record.name) {
        let uuid = if node.system_uuid.is_empty() { "none" } else { node.system_uuid.as_str() };
        return format!("Node `{}` exists, but its systemUUID ({uuid}) is not the VM's", record.name);
    }
    match ctx.proxmox.power(&record.host, record.slot.vmid).await {
        Ok(Power::Running) => {
            let console = format!(
                "`qm terminal {}` or the VM's console shows what the guest is doing",
                record.slot.vmid
            );
            format!("the VM is running, but no Node has its name or its systemUUID; {console}")
        }
        Ok(Power::Stopped) => "the VM is off: its guest has shut down or crashed".to_owned(),
        Err(error) => format!("the VM cannot be read: {error}"),
    }
}
