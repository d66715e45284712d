//! Handles Nodes that have returned, because their host was off and is on again, or because an administrator
//! has started the VM. Pods may have been placed on such a Node since the decision to remove its VM.

use tokio::time::Instant;

use super::context::Context;
use super::drain::Drained;
use super::emptying::FRESH;
use super::kept_node::Kept;
use super::machine_handle::MachineHandle;
use super::ownership::{Sight, look};
use super::step_error::{BackoffTarget, StepError, retry_until};
use super::{drain, emptying, node as nodes};
use model::machine::Intent;
use model::node::Node;
use proxmox::VmConfig;

/// Returns the machine's current Node, as read from the API server instead of the watches. Returns `None` if
/// the machine's own VM has no Node.
///
/// A VM with the machine's mark may have a new SMBIOS uuid, because it was restored as a unique VM or changed
/// with `qm set --smbios1`. The Node with the new uuid is the machine's, too.
pub(super) async fn node(ctx: &Context, machine: &MachineHandle) -> Result<Option<Node>, StepError> {
    let Some(uuid) = &machine.record().smbios_uuid else { return Ok(None) };
    let Some(node) = named(ctx, machine).await? else { return Ok(None) };
    let is_own =
        node.system_uuid == *uuid || present_uuid(ctx, machine).await?.as_ref() == Some(&node.system_uuid);
    Ok(is_own.then_some(node))
}

/// The Node with the machine's name, even if it belongs to another machine.
async fn named(ctx: &Context, machine: &MachineHandle) -> Result<Option<Node>, StepError> {
    let record = machine.record();
    let seen = nodes::find(ctx, record).map(|node| node.name.clone());
    let name = seen.or_else(|| machine.node.clone()).unwrap_or_else(|| record.name.clone());
    let limit = ctx.config.limits.destroy;
    retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.get_node(&name).await?)).await
}

/// The current uuid of the machine's VM; `None` if the VM is not visible or not ours.
async fn present_uuid(ctx: &Context, machine: &MachineHandle) -> Result<Option<String>, StepError> {
    let record = machine.record();
    if record.is_physical() {
        return Ok(None);
    }
    let sight = retry_until!(ctx.config.limits.destroy, machine.seed(), {
        Ok(look(&ctx.proxmox, &ctx.owner(), record).await?)
    });
    Ok(match sight.await? {
        Sight::Ours(config) => config.smbios_uuid(),
        _ => None,
    })
}

/// Updates the uuid in the record if the machine's VM has a new uuid and the machine's Node reports it.
/// Returns whether the record was updated.
pub(super) async fn follow(
    ctx: &Context,
    machine: &mut MachineHandle,
    vm: &VmConfig,
) -> Result<bool, StepError> {
    if vm.smbios_uuid() == machine.record().smbios_uuid {
        return Ok(false);
    }
    let Some(node) = node(ctx, machine).await? else { return Ok(false) };
    if machine.record().smbios_uuid.as_ref() == Some(&node.system_uuid) {
        return Ok(false);
    }
    tracing::warn!(machine = %machine.record().name, from = machine.record().smbios_uuid, to = node.system_uuid,
        "the machine's VM has a new SMBIOS uuid, and its Node reports it; recording it");
    machine.change(ctx, |record| record.smbios_uuid = Some(node.system_uuid)).await?;
    Ok(true)
}

/// Like [`node`], for a guest that is about to be stopped.
///
/// # Errors
/// Returns an error if the machine's former Node still reports, but with a uuid other than that of the VM. In
/// that case, the daemon cannot determine what runs on the VM.
async fn own(ctx: &Context, machine: &MachineHandle) -> Result<Option<Node>, StepError> {
    if let Some(node) = node(ctx, machine).await? {
        return Ok(Some(node));
    }
    let served = machine.record().node_uid.as_ref();
    match named(ctx, machine).await?.filter(|node| Some(&node.uid) == served && !nodes::is_silent(node)) {
        Some(node) => Err(StepError::Failed {
            what: format!(
                "Node {0} still reports, but its systemUUID {1} is not that of VM {2}, so the VM is \
                    left running; if Node {0} belongs to another machine, delete it: kubectl delete \
                    node {0}",
                node.name,
                node.system_uuid,
                machine.record().slot.vmid,
            ),
            blame: BackoffTarget::Other,
        }),
        None => Ok(None),
    }
}

/// Returns the Node that prevents a running guest's power from being cut, with the reason. Returns `None` if
/// no Node prevents this. There are two possible reasons. The first is that the machine was to be discarded,
/// but its Node is back. (If the Node is not ready yet, it has the same time to become ready as any other.)
/// The second is that the Node cannot be emptied. Any other Node is closed and emptied.
///
/// A Node that is not ready is closed but not emptied, because its kubelet neither ends pods nor starts new
/// ones.
pub(super) async fn keeps(ctx: &Context, machine: &mut MachineHandle) -> Result<Option<Kept>, StepError> {
    let Some(node) = own(ctx, machine).await? else { return Ok(None) };
    let served = machine.record().node_uid.is_some();
    if served && matches!(machine.record().intent, Intent::Discard { .. }) {
        return Ok(Some(Kept::new(node, "it is a Node again")));
    }
    emptying::close(ctx, machine, &node).await?;
    if !nodes::is_ready(&node) {
        return Ok(None);
    }
    match emptying::empty(ctx, machine, &node).await? {
        Drained::Empty => Ok(None),
        Drained::GivenUp(why) => Ok(Some(Kept::new(node, why))),
    }
}

/// Returns the Node if an annotation keeps it in service, with the reason. The Node is read directly from the
/// API server.
///
/// Call this function once the record says that the guest is being shut down, but before the shutdown is
/// requested. `pin` first writes its annotation and then reads the record. So either this function sees the
/// annotation, or `pin` sees that the guest is being shut down, or both.
pub(super) async fn pinned(ctx: &Context, machine: &mut MachineHandle) -> Result<Option<Kept>, StepError> {
    let Some(node) = node(ctx, machine).await? else { return Ok(None) };
    let Some(why) = drain::kept(&node) else { return Ok(None) };
    machine.node = Some(node.name.clone());
    Ok(Some(Kept::new(node, why)))
}

/// Returns the Node that prevents a guest from being shut down, with the reason. Returns `None` if no Node
/// prevents this. There are two possible reasons. The first is that the Node is open and ready: an
/// administrator has uncordoned it, or it registered again, unnoticed or while its VM could not be reached.
/// The second is that the Node cannot be emptied.
///
/// A closed Node may report again after its VM could not be reached for a while. The taint only proves that a
/// drain of the Node has begun, so the Node is emptied now. If the guest was already asked to shut down or is
/// off (`ends`), the Node is not emptied, and the daemon only waits until the Node has released its volumes.
pub(super) async fn serving_again(
    ctx: &Context,
    machine: &mut MachineHandle,
    emptied: Option<Instant>,
    ends: bool,
) -> Result<Option<Kept>, StepError> {
    let Some(node) = own(ctx, machine).await? else { return Ok(None) };
    let closed = drain::is_closed(&node);
    if closed && (emptied.is_some_and(|at| at.elapsed() <= FRESH) || nodes::is_silent(&node)) {
        return Ok(None);
    }
    if closed && ends && emptied.is_none() {
        emptying::give_back(ctx, machine, &node).await;
        return Ok(None);
    }
    machine.node = Some(node.name.clone());
    if !closed && nodes::is_ready(&node) {
        return Ok(Some(Kept::new(node, "its Node was uncordoned in the meantime and is ready")));
    }
    emptying::close(ctx, machine, &node).await?;
    match emptying::empty(ctx, machine, &node).await? {
        Drained::Empty => Ok(None),
        Drained::GivenUp(why) => Ok(Some(Kept::new(node, why))),
    }
}
