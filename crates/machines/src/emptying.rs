//! Empties a node: closes it to new pods, drains it, and waits until its volumes are detached. Until that is
//! finished, the node can be put back into service.

use std::time::Duration;

use tokio::time::Instant;

use super::context::Context;
use super::drain::{self, Drained, Met};
use super::machine_handle::MachineHandle;
use super::node::{is_ready, is_silent};
use super::out_of_service::{LOOK, are_of_staying_pods, let_go};
use super::step_error::{StepError, retry_until, time_text};
use kubernetes::ErrorKind;
use model::node::{Node, Taint, TaintEffect};
use model::snapshot::BEING_DELETED_TAINT;

/// A node that was seen empty is not checked again for this long.
pub(super) const FRESH: Duration = Duration::from_secs(2);

/// The maximum number of rounds in which pods are evicted and volumes are awaited. After the last round, the
/// node counts as empty even if it was last seen empty longer than [`FRESH`] ago.
const TURNS: u32 = 3;

pub(super) fn leaving() -> Taint {
    let effect = TaintEffect::NoSchedule;
    Taint { key: BEING_DELETED_TAINT.to_owned(), value: String::new(), effect, time_added: None }
}

/// Keeps new pods off the node.
pub(super) async fn close(ctx: &Context, machine: &mut MachineHandle, node: &Node) -> Result<(), StepError> {
    let limit = ctx.config.limits.drain;
    retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.add_taint(&node.name, &leaving()).await?)).await?;
    if !node.unschedulable {
        // The record is written first, so that a resumed run can undo what an interrupted drain leaves
        // behind.
        machine.change(ctx, |record| record.cordoned = true).await?;
        retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.cordon(&node.name).await?)).await?;
    }
    Ok(())
}

/// Evicts the pods that have to move, and waits until none is left.
pub(super) async fn empty(
    ctx: &Context,
    machine: &mut MachineHandle,
    node: &Node,
) -> Result<Drained, StepError> {
    go_on(ctx, machine, node, &mut Progress::default()).await
}

/// The progress of emptying a node. If emptying is interrupted and then resumed, its time limits are not
/// restarted.
#[derive(Default)]
pub(super) struct Progress {
    /// When to stop waiting for volumes.
    until: Option<Instant>,
    met: Met,
}

/// Continues to empty the node after an interruption.
pub(super) async fn go_on(
    ctx: &Context,
    machine: &mut MachineHandle,
    node: &Node,
    progress: &mut Progress,
) -> Result<Drained, StepError> {
    let limits = &ctx.config.limits;
    let pool = ctx.config.pools.iter().find(|pool| pool.name == machine.record().pool);
    let limit = pool.and_then(|pool| pool.drain).unwrap_or(limits.drain);
    for turn in 1.. {
        match drain::run(ctx, machine, node, limit, &mut progress.met).await? {
            Drained::Empty => {}
            given_up @ Drained::GivenUp(_) => return Ok(given_up),
        }
        let empty = Instant::now();
        let until = *progress.until.get_or_insert(empty + limits.detach);
        machine.say(ctx, "volumes are being detached");
        if tokio::time::timeout_at(until, detached(ctx, &node.name)).await.is_err() {
            // Volumes do not prevent the removal of a node that is not ready.
            let found = ctx.kubernetes.get_node(&node.name).await;
            if found.map_or(true, |node| node.is_some_and(|node| is_ready(&node))) {
                let why = format!("volumes were still attached after {}", time_text(limits.detach));
                return Ok(Drained::GivenUp(why));
            }
            break;
        }
        // Pods that tolerate all taints may have arrived while volumes were being detached.
        if empty.elapsed() <= FRESH || turn >= TURNS {
            break;
        }
    }
    // The daemon checks once more whether it is paused, because the node can still be put back into service
    // at this point.
    Ok(ctx.paused().map_or(Drained::Empty, Drained::GivenUp))
}

/// Waits for the volumes of a node that still reports although its machine was already asked to shut down.
/// The node is not put back into service: if volumes stay attached, the machine is shut down anyway.
pub(super) async fn give_back(ctx: &Context, machine: &mut MachineHandle, node: &Node) {
    machine.say(ctx, "volumes are being detached");
    if tokio::time::timeout(ctx.config.limits.detach, detached(ctx, &node.name)).await.is_err() {
        tracing::warn!(machine = %machine.record().name, "volumes are still attached; shutting down the machine anyway");
    }
}

/// Waits until only the volumes of pods that stay on the node, such as those of a DaemonSet, are attached.
/// These volumes are released with the machine. If the node is silent, the daemon does not wait: the kubelet
/// does not unmount volumes, and they are released once the machine is off.
async fn detached(ctx: &Context, node: &str) {
    let seen_silent = || ctx.watches.node(node).is_some_and(|node| is_silent(&node));
    loop {
        let_go(ctx, node, seen_silent).await;
        // The attachments are read directly, because a stalled watch may not show a volume that was attached
        // before the node was closed.
        match ctx.kubernetes.attached(node).await {
            Ok(attached) if are_of_staying_pods(ctx, node, &attached) => return,
            // If the daemon may not read attachments, it relies on the watches.
            Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound) => return,
            Ok(_) | Err(_) => {}
        }
        if ctx.kubernetes.get_node(node).await.is_ok_and(|node| node.is_none_or(|node| is_silent(&node))) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}
