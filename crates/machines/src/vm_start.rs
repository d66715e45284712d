//! Starts a VM.

use tokio::time::Instant;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::ownership::{ours, still_ours};
use super::proxmox_tasks::{self, START};
use super::step_error::{BackoffTarget, StepError, retry_until};
use model::machine::Phase;
use proxmox::{Exit, Kind, Power};

/// Starts the VM and waits until it runs. If the VM is `known_off`, its power state is not read before the
/// first attempt.
pub(super) async fn start(ctx: &Context, machine: &MachineHandle, known_off: bool) -> Result<(), StepError> {
    let (host, vmid) = (&machine.record().host, machine.record().slot.vmid);
    let mut known_off = known_off;
    retry_until!(ctx.config.limits.start, machine.seed(), {
        let asked = Instant::now();
        ours(ctx, machine.record()).await?;
        if !std::mem::take(&mut known_off) && ctx.proxmox.power(host, vmid).await? == Power::Running {
            return as_configured(ctx, machine).await;
        }
        let upid = still_ours(ctx, machine.record(), asked).await?.start(host, vmid).await?;
        match proxmox_tasks::finish(ctx, START, &upid, ctx.config.limits.start).await? {
            Exit::Failed(text) if text.contains("already running") => as_configured(ctx, machine).await,
            exit if exit.is_success() => Ok(()),
            // QEMU did not start. The cause is more often on the host (memory, a device, a bridge, an image)
            // than in the template.
            exit => match proxmox_tasks::failed(START, &upid, &exit) {
                // If the VM was removed in the meantime, the failure does not mean that the host has a
                // problem.
                StepError::Proxmox(error) if error.text.contains("onfiguration file") => {
                    Err(StepError::Failed { what: error.text, blame: BackoffTarget::Other })
                }
                StepError::Proxmox(error)
                    if matches!(error.kind, Kind::Other | Kind::NotFound) && error.meaning().is_none() =>
                {
                    Err(StepError::Failed { what: error.text, blame: BackoffTarget::Host })
                }
                trouble => Err(trouble),
            },
        }
    })
    .await
}

/// Returns an error if another client started a new VM before it was configured: the VM has then booted with
/// the template's size and name instead of the machine's own.
async fn as_configured(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    let record = machine.record();
    if record.entered.contains_key(&Phase::Booting) {
        return Ok(());
    }
    let waiting = ctx.proxmox.pending(&record.host, record.slot.vmid).await?;
    if waiting.is_empty() {
        return Ok(());
    }
    let waiting = waiting.into_iter().collect::<Vec<_>>().join("`, `");
    let what = format!(
        "another client started VM {} before it was configured: `{waiting}` will not take effect until \
            the VM's next start",
        record.slot.vmid
    );
    Err(StepError::Failed { what, blame: BackoffTarget::Other })
}
