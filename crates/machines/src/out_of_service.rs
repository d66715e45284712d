//! Nodes that are off and could not release their volumes, because their kubelet was dead or their power was
//! cut.
//!
//! Kubernetes waits six minutes before it detaches a volume that was not unmounted
//! (`maxWaitForUnmountDuration` of the attach/detach controller). For a pod that is being deleted on a Node
//! that is not ready, it waits forever. It does not wait if a taint says that the Node is off (non-graceful
//! node shutdown). Pods that then start elsewhere write to the same volumes, so the taint is only set if
//! Proxmox VE or a management controller reports that the machine is off.

use std::collections::BTreeSet;
use std::time::Duration;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::node::{is_silent, until};
use super::step_error::{StepError, retry_until, time_text};
use kubernetes::ErrorKind;
use model::node::{Node, Taint, TaintEffect};
use model::snapshot::{OUT_OF_SERVICE_BY, OUT_OF_SERVICE_TAINT};

/// How long a Node may still seem to report after its machine has been switched off or has disappeared.
pub(super) const NOTICED: Duration = Duration::from_mins(2);

/// The time between two searches for the pods that stay on a node, while its volumes are being detached.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// What is known about the power state of a machine whose Node is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Off {
    /// The machine was seen to be off.
    Seen,
    /// The machine is gone. A Node that still reports belongs to something else, such as a VM restored under
    /// another VMID, or a machine that an administrator has switched on again.
    Gone,
    /// Unknown: the VM with the machine's VMID is unmanaged, or is being cloned or destroyed.
    Unknown,
    /// Unknown: the VM with the machine's VMID is hidden from the token, and may be the machine's own.
    Hidden,
    /// Unknown: the VM is not in the cluster, but one of its former hosts has left the cluster and may still
    /// run it.
    Apart,
}

/// The out-of-service taint, as the daemon sets it.
pub fn taint() -> Taint {
    Taint {
        key: OUT_OF_SERVICE_TAINT.to_owned(),
        value: OUT_OF_SERVICE_BY.to_owned(),
        effect: TaintEffect::NoExecute,
        time_added: None,
    }
}

/// Whether the Node already has the out-of-service taint.
pub fn is_out(node: &Node) -> bool {
    node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT)
}

/// Whether all these volumes of a node belong to pods that stay, such as those of a DaemonSet, and are
/// therefore released with the machine.
pub(super) fn are_of_staying_pods(ctx: &Context, node: &str, attached: &BTreeSet<String>) -> bool {
    attached.is_empty() || attached.is_subset(&planning::volumes_that_stay(&ctx.watches.snapshot(), node))
}

/// Waits until the watches show that only volumes of staying pods are attached to the node, or until `or`
/// returns true.
pub(super) async fn let_go(ctx: &Context, node: &str, or: impl Fn() -> bool) {
    loop {
        // Finding the pods that stay requires a search of the entire cluster, so it is not done at each
        // change.
        let stay = planning::volumes_that_stay(&ctx.watches.snapshot(), node);
        let is_done = || ctx.watches.attached(node).is_subset(&stay) || or();
        if tokio::time::timeout(LOOK, until(ctx, || is_done().then_some(()))).await.is_ok() {
            return;
        }
    }
}

/// Makes Kubernetes detach the volumes of a machine that is off, before its Node is deleted. Volumes that are
/// not detached in time are left to Kubernetes, as are all volumes if the taint is refused.
///
/// # Errors
/// Returns an error if the taint cannot be set now, or if this instance no longer leads.
pub(super) async fn release(
    ctx: &Context,
    machine: &mut MachineHandle,
    (name, uid): (&str, &str),
    off: Off,
) -> Result<(), StepError> {
    // The attachments are read directly, because a stalled watch may not show an attached volume.
    let attached = ctx.kubernetes.attached(name).await.unwrap_or_else(|_| ctx.watches.attached(name));
    if matches!(off, Off::Unknown | Off::Hidden | Off::Apart) || attached.is_empty() {
        return Ok(());
    }
    let limits = &ctx.config.limits;
    machine.say(ctx, "the machine is off; releasing its volumes");
    if off == Off::Gone {
        // Kubernetes notices after 50 s that a kubelet is silent.
        let silent = || ctx.watches.node(name).is_none_or(|node| is_silent(&node)).then_some(());
        if tokio::time::timeout(NOTICED, until(ctx, silent)).await.is_err() {
            return Ok(());
        }
    }
    let may = |node: &Node| node.uid == uid && (off == Off::Seen || is_silent(node));
    let set = retry_until!(limits.destroy, machine.seed(), {
        match ctx.kubernetes.add_taint_if(name, &taint(), may).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::Invalid) => {
                tracing::warn!(node = name, %error, "the out-of-service taint cannot be set on a Node \
                    that is off; leaving its volumes to Kubernetes");
                Ok(false)
            }
            outcome => Ok(outcome?),
        }
    })
    .await?;
    if !set {
        return Ok(());
    }
    tracing::info!(machine = %machine.record().name, node = name, "the machine is off; releasing its volumes");
    if tokio::time::timeout(limits.detach, let_go(ctx, name, || false)).await.is_err() {
        tracing::warn!(
            machine = %machine.record().name,
            node = name,
            limit = time_text(limits.detach),
            "volumes are still attached to a Node that is off; leaving them to Kubernetes"
        );
    }
    Ok(())
}
