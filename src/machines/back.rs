//! Guests that are Nodes again: a host that was away has come back, or somebody has started the VM. Between the decision to take
//! the VM away and the moment in which its plug is pulled pods may have come to it.

use tokio::time::Instant;

use super::node as nodes;
use super::retire::{self, FRESH};
use super::tracked::Tracked;
use super::trouble::{Trouble, insist};
use super::{Context, drain};
use crate::model::machine::Intent;
use crate::model::node::Node;
use crate::model::snapshot::BEING_DELETED_TAINT;

/// The Node of the machine as it is now, past what the watches show; `None` where there is none of this very VM.
pub(super) async fn node(ctx: &Context, machine: &Tracked) -> Result<Option<Node>, Trouble> {
    let record = machine.record();
    let Some(uuid) = &record.smbios_uuid else { return Ok(None) };
    let seen = nodes::find(ctx, record).map(|node| node.name.clone());
    let name = seen.or_else(|| machine.node.clone()).unwrap_or_else(|| record.name.clone());
    let limit = ctx.config.limits.destroy;
    let found = insist!(limit, machine.seed(), Ok(ctx.kubernetes.get_node(&name).await?)).await?;
    Ok(found.filter(|node| node.system_uuid == *uuid))
}

/// The Node that keeps a running guest from losing its power, and why: it has served before and is a Node again, so that what it was given
/// up for is over, and it has the time of any other where it is not ready yet; or it cannot be emptied. Any other is closed first, and what
/// runs on it evicted.
///
/// One that never served and is not ready is closed and no more: its kubelet would end no pod, and starts none that is new.
pub(super) async fn keeps(
    ctx: &Context,
    machine: &mut Tracked,
) -> Result<Option<(Box<Node>, String)>, Trouble> {
    let Some(node) = node(ctx, machine).await? else { return Ok(None) };
    let served = machine.record().node_uid.is_some();
    if served && matches!(machine.record().intent, Intent::Discard { .. }) {
        return Ok(Some((Box::new(node), "it is a Node again".to_owned())));
    }
    retire::close(ctx, machine, &node).await?;
    if !nodes::is_ready(&node) {
        return Ok(None);
    }
    let kept = retire::empty(ctx, machine, &node).await?;
    Ok(kept.map(|why| (Box::new(node), why)))
}

/// The Node as it is now, past what the watches show, where an annotation keeps it; and why.
///
/// To be asked once the record says that the guest is shut down, and before it is: `pin` writes its annotation and then looks at the
/// record, so that one of the two sees the other.
pub(super) async fn pinned(
    ctx: &Context,
    machine: &mut Tracked,
) -> Result<Option<(Box<Node>, String)>, Trouble> {
    let Some(node) = node(ctx, machine).await? else { return Ok(None) };
    let Some(why) = drain::kept(&node) else { return Ok(None) };
    machine.node = Some(node.name.clone());
    Ok(Some((Box::new(node), why)))
}

/// The Node that keeps a guest from being shut down, and why: it is open, for somebody has opened it, or it has registered anew, unseen
/// or while its VM could not be reached; and it is ready or cannot be emptied. Any other is closed and empty then.
///
/// So is one that is closed, and is heard of again after its VM could not be reached for a while: it ends its pods now, and gives its
/// volumes back. Where its guest was asked to shut down before, for which `emptied` is `None`, it is waited for and no more.
pub(super) async fn anew(
    ctx: &Context,
    machine: &mut Tracked,
    emptied: Option<Instant>,
) -> Result<Option<(Box<Node>, String)>, Trouble> {
    let Some(node) = node(ctx, machine).await? else { return Ok(None) };
    let closed = node.taints.iter().any(|taint| taint.key == BEING_DELETED_TAINT);
    if closed && (emptied.is_some_and(|at| at.elapsed() <= FRESH) || nodes::is_silent(&node)) {
        return Ok(None);
    }
    if closed && emptied.is_none() {
        retire::give_back(ctx, machine, &node).await;
        return Ok(None);
    }
    machine.node = Some(node.name.clone());
    if !closed && nodes::is_ready(&node) {
        return Ok(Some((Box::new(node), "its Node was opened meanwhile, and is ready".to_owned())));
    }
    retire::close(ctx, machine, &node).await?;
    let kept = retire::empty(ctx, machine, &node).await?;
    Ok(kept.map(|why| (Box::new(node), why)))
}
