//! Nodes that are off and could not let go of what they had: their kubelet was dead, or their plug was pulled.
//!
//! Kubernetes waits six minutes before it detaches a volume that nobody has unmounted (`maxWaitForUnmountDuration` of the attach/detach
//! controller), and for ever with a pod that is being deleted on a Node that is not ready. It does neither where a taint says that the
//! Node is off (non-graceful node shutdown). Pods that then start elsewhere write to the same volumes: the taint is set only where
//! Proxmox VE, or a management controller, says that nothing runs there any more.

use super::Context;
use super::node::until;
use super::tracked::Tracked;
use super::trouble::{Trouble, insist, words};
use crate::kubernetes::ErrorKind;
use crate::model::node::{Taint, TaintEffect};
use crate::model::snapshot::{OUT_OF_SERVICE_BY, OUT_OF_SERVICE_TAINT};

/// The taint, as we set it.
pub(crate) fn taint() -> Taint {
    Taint {
        key: OUT_OF_SERVICE_TAINT.to_owned(),
        value: OUT_OF_SERVICE_BY.to_owned(),
        effect: TaintEffect::NoExecute,
        time_added: None,
    }
}

/// Has the volumes of a Node let go of whose machine was seen to be off, before the Node is deleted. Those that nobody lets go of in
/// time are left to Kubernetes.
///
/// # Errors
/// The taint cannot be set.
pub(super) async fn release(
    ctx: &Context,
    machine: &mut Tracked,
    name: &str,
    uid: &str,
) -> Result<(), Trouble> {
    if !ctx.watches.has_attachments(name) {
        return Ok(());
    }
    let limits = &ctx.config.limits;
    tracing::info!(machine = %machine.record().name, node = name, "the machine is off: its volumes are let go of");
    machine.say(ctx, "the machine is off: its volumes are let go of");
    insist!(limits.destroy, machine.seed(), {
        match ctx.kubernetes.add_taint_if(name, &taint(), |node| node.uid == uid).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            outcome => Ok(outcome?),
        }
    })
    .await?;
    let gone = until(ctx, || (!ctx.watches.has_attachments(name)).then_some(()));
    if tokio::time::timeout(limits.detach, gone).await.is_err() {
        tracing::warn!(
            machine = %machine.record().name,
            node = name,
            limit = words(limits.detach),
            "volumes are still attached to a Node that is off: what becomes of them is left to Kubernetes"
        );
    }
    Ok(())
}
