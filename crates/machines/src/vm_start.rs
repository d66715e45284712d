//! A VM is started.

use tokio::time::Instant;

use super::context::Context;
use super::jobs::{self, START};
use super::ownership::{ours, still_ours};
use super::tracked::Tracked;
use super::trouble::{Blame, Trouble, insist};
use model::machine::Phase;
use proxmox::{Exit, Kind, Power};

/// Until the VM runs. One that is `known_off` is not asked at first whether it runs.
pub(super) async fn start(ctx: &Context, machine: &Tracked, known_off: bool) -> Result<(), Trouble> {
    let (host, vmid) = (&machine.record().host, machine.record().slot.vmid);
    let mut known_off = known_off;
    insist!(ctx.config.limits.start, machine.seed(), {
        let asked = Instant::now();
        ours(ctx, machine.record()).await?;
        if !std::mem::take(&mut known_off) && ctx.proxmox.power(host, vmid).await? == Power::Running {
            return as_configured(ctx, machine).await;
        }
        let upid = still_ours(ctx, machine.record(), asked).await?.start(host, vmid).await?;
        match jobs::finish(ctx, START, &upid, ctx.config.limits.start).await? {
            Exit::Failed(text) if text.contains("already running") => as_configured(ctx, machine).await,
            exit if exit.is_success() => Ok(()),
            // QEMU did not come up: the host lacks something (memory, a device, a bridge, an image) more
            // often than the template does.
            exit => match jobs::failed(START, &upid, &exit) {
                // One that was removed meanwhile says nothing about its host.
                Trouble::Proxmox(error) if error.text.contains("onfiguration file") => {
                    Err(Trouble::Failed { what: error.text, blame: Blame::Other })
                }
                Trouble::Proxmox(error)
                    if matches!(error.kind, Kind::Other | Kind::NotFound) && error.meaning().is_none() =>
                {
                    Err(Trouble::Failed { what: error.text, blame: Blame::Host })
                }
                trouble => Err(trouble),
            },
        }
    })
    .await
}

/// A new VM that an administrator started before it was configured has booted as its template, with its size
/// and its name: it is not what was asked for.
async fn as_configured(ctx: &Context, machine: &Tracked) -> Result<(), Trouble> {
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
        "VM {} was started by another client before it was configured: `{waiting}` waits for its next start",
        record.slot.vmid
    );
    Err(Trouble::Failed { what, blame: Blame::Other })
}
