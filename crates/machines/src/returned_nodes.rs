//! Guests that are Nodes again: a host that was away has come back, or an administrator has started the VM.
//! Between the decision to take the VM away and the moment in which its plug is pulled pods may have come to
//! it.

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

/// The Node of the machine as it is now, past what the watches show; `None` if there is none of this very VM.
///
/// A VM that bears the machine's mark may have another SMBIOS uuid by now: it was restored as a unique one,
/// or `qm set --smbios1` has changed it. The Node with that uuid is its own.
pub(super) async fn node(ctx: &Context, machine: &MachineHandle) -> Result<Option<Node>, StepError> {
    let Some(uuid) = &machine.record().smbios_uuid else { return Ok(None) };
    let Some(node) = named(ctx, machine).await? else { return Ok(None) };
    let is_own =
        node.system_uuid == *uuid || present_uuid(ctx, machine).await?.as_ref() == Some(&node.system_uuid);
    Ok(is_own.then_some(node))
}

/// The Node that has the machine's name, whatever its machine is.
async fn named(ctx: &Context, machine: &MachineHandle) -> Result<Option<Node>, StepError> {
    let record = machine.record();
    let seen = nodes::find(ctx, record).map(|node| node.name.clone());
    let name = seen.or_else(|| machine.node.clone()).unwrap_or_else(|| record.name.clone());
    let limit = ctx.config.limits.destroy;
    retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.get_node(&name).await?)).await
}

/// The uuid that the machine's VM has now; `None` if the VM cannot be seen, or is not its own.
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

/// Takes the uuid of the machine's VM over into its record if the VM has got another one, and its Node says
/// the same: true then.
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
        "the machine's VM has a new SMBIOS uuid, and its Node reports it: it is recorded");
    machine.change(ctx, |record| record.smbios_uuid = Some(node.system_uuid)).await?;
    Ok(true)
}

/// The same as [`node`], before the guest is stopped.
///
/// # Errors
/// The Node that the machine served as is heard of, and reports a uuid that is not its VM's: what runs there
/// cannot be determined.
async fn own(ctx: &Context, machine: &MachineHandle) -> Result<Option<Node>, StepError> {
    if let Some(node) = node(ctx, machine).await? {
        return Ok(Some(node));
    }
    let served = machine.record().node_uid.as_ref();
    match named(ctx, machine).await?.filter(|node| Some(&node.uid) == served && !nodes::is_silent(node)) {
        Some(node) => Err(StepError::Failed {
            what: format!(
                "Node {0} is heard of, and reports the systemUUID {1}, which is not that of VM {2}: the VM is left running; if Node {0} \
                 belongs to another machine, delete it: kubectl delete node {0}",
                node.name,
                node.system_uuid,
                machine.record().slot.vmid,
            ),
            blame: BackoffTarget::Other,
        }),
        None => Ok(None),
    }
}

/// The Node that keeps a running guest from losing its power, and why: it has served before and is a Node
/// again, so that what it was given up for is over, and it has the time of any other where it is not ready
/// yet; or it cannot be emptied. Any other is closed first, and what runs on it evicted.
///
/// One that never served and is not ready is only closed: its kubelet would end no pod, and starts none that
/// is new.
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

/// The Node as it is now, past what the watches show, if an annotation keeps it; and why.
///
/// To be asked once the record says that the guest is shut down, and before it is: `pin` writes its
/// annotation and then looks at the record, so that one of the two sees the other.
pub(super) async fn pinned(ctx: &Context, machine: &mut MachineHandle) -> Result<Option<Kept>, StepError> {
    let Some(node) = node(ctx, machine).await? else { return Ok(None) };
    let Some(why) = drain::kept(&node) else { return Ok(None) };
    machine.node = Some(node.name.clone());
    Ok(Some(Kept::new(node, why)))
}

/// The Node that keeps a guest from being shut down, and why: it is open, as an administrator has opened it,
/// or it has registered again, unseen or while its VM could not be reached; and it is ready or cannot be
/// emptied. Any other is closed and empty then.
///
/// So is one that is closed, and is heard of again after its VM could not be reached for a while: it ends its
/// pods now, and gives its volumes back. If its guest was asked to shut down before, or is off (`ends`), it
/// is only waited for. That it is closed says no more than that its drain has begun.
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
        return Ok(Some(Kept::new(node, "its Node was opened meanwhile, and is ready")));
    }
    emptying::close(ctx, machine, &node).await?;
    match emptying::empty(ctx, machine, &node).await? {
        Drained::Empty => Ok(None),
        Drained::GivenUp(why) => Ok(Some(Kept::new(node, why))),
    }
}
