//! Removes a node: empties it, then removes its machine. If the node cannot be removed, it is put back into
//! service.

use tokio::time::Instant;

use super::context::Context;
use super::drain::Drained;
use super::emptying::{Progress, close, go_on, leaving};
use super::hindrance::Hindrance;
use super::kept_node::Kept;
use super::machine_end::{Ended, Manner};
use super::machine_handle::MachineHandle;
use super::node;
use super::outside_changes::{self, Touched};
use super::reports::Reports;
use super::step_error::{StepError, retry_until};
use super::{destroy, hindrance};
use model::Record;
use model::machine::{Intent, Phase};
use model::node::Node;
use model::snapshot::{RETIRE, UNNEEDED_SINCE};

/// How a removal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Retired {
    /// The machine was removed completely.
    Gone,
    /// The node is in service again, for this reason.
    GivenUp(String),
}

/// Takes a machine out of service. Once the shutdown of its VM has begun, this can only be undone if the VM
/// is started again.
pub(super) async fn run(
    ctx: &Context,
    machine: &mut MachineHandle,
    reports: &Reports,
) -> Result<Retired, StepError> {
    let stopping = machine.record().entered.contains_key(&Phase::Stopping);
    let reason = match &machine.record().intent {
        Intent::Retire { reason, .. } | Intent::Discard { reason, .. } => reason.clone(),
        Intent::Create => String::new(),
    };
    let (mut emptied, mut cut_short) = (None, false);
    if let (false, Some(node)) = (stopping, node::find(ctx, machine.record())) {
        machine.node = Some(node.name.clone());
        // The phase is entered before the first wait, so that rounds count the node as leaving.
        machine.enter(ctx, Phase::Draining, &reason);
        machine.change(ctx, destroy::begun_no_more).await?;
        match hindrance::of_running(ctx, machine, &node).await? {
            None => {}
            Some(Hindrance::Protected(why)) => {
                reopen(ctx, machine, &node).await?;
                return Ok(Retired::GivenUp(why));
            }
            Some(Hindrance::ForNow(why)) => {
                reopen_for_now(ctx, machine, &node).await?;
                return Ok(Retired::GivenUp(why));
            }
        }
        close(ctx, machine, &node).await?;
        match empty_while_there(ctx, machine, &node, reports).await? {
            Emptied::Yes => emptied = Some(Instant::now()),
            Emptied::VmEnded => cut_short = true,
            Emptied::GivenUp(why) => {
                reopen(ctx, machine, &node).await?;
                return Ok(Retired::GivenUp(why));
            }
        }
    }
    match destroy::run(ctx, machine, Manner::Graceful { emptied, cut_short }).await? {
        Ended::Gone => Ok(Retired::Gone),
        Ended::Serves(Kept { node, why }) => {
            reopen(ctx, machine, &node).await?;
            Ok(Retired::GivenUp(why))
        }
        Ended::ServesForNow(Kept { node, why }) => {
            reopen_for_now(ctx, machine, &node).await?;
            Ok(Retired::GivenUp(why))
        }
    }
}

/// How emptying a node ended.
enum Emptied {
    Yes,
    /// The node was not emptied, because another client has stopped or removed its VM, or the VM is no longer
    /// visible as ours.
    VmEnded,
    GivenUp(String),
}

/// Empties a node for as long as its VM runs and is ours. If another client stops or removes the VM, the
/// drain ends, because it would wait for a kubelet that no longer runs.
async fn empty_while_there(
    ctx: &Context,
    machine: &mut MachineHandle,
    node: &Node,
    reports: &Reports,
) -> Result<Emptied, StepError> {
    let id = machine.record().id.clone();
    let mut progress = Progress::default();
    loop {
        let emptied = tokio::select! {
            biased;
            emptied = go_on(ctx, machine, node, &mut progress) => Some(emptied?),
            () = outside_changes::noticed(ctx, &id), if !machine.record().is_physical() => None,
        };
        match emptied {
            Some(Drained::Empty) => return Ok(Emptied::Yes),
            Some(Drained::GivenUp(why)) => return Ok(Emptied::GivenUp(why)),
            None => {}
        }
        let before = machine.record().host.clone();
        // If it cannot be determined now what changed, the change is noticed again at the next check.
        let Ok(Some(touched)) = outside_changes::look_into(ctx, machine).await else { continue };
        let what = outside_changes::change_text(ctx, machine.record(), &before, &touched).await;
        if touched == Touched::Moved {
            outside_changes::say(
                ctx,
                reports,
                machine.record(),
                &format!("{what}: the drain of its node continues"),
            );
        } else {
            let what = format!("{what}: the drain ends, and the node is removed");
            outside_changes::say(ctx, reports, machine.record(), &what);
            return Ok(Emptied::VmEnded);
        }
    }
}

/// Puts the node back into service, and drops an operator's request to remove the node if the request can no
/// longer be fulfilled. The node may belong to a machine whose creation was abandoned. In that case, it is in
/// service from now on, and if it is not ready, it has the same time to become ready as any other node.
pub(super) async fn reopen(ctx: &Context, machine: &mut MachineHandle, node: &Node) -> Result<(), StepError> {
    if is_wish_over(ctx, machine.record(), &node.name) {
        let limit = ctx.config.limits.drain;
        retry_until!(
            limit,
            machine.seed(),
            Ok(ctx.kubernetes.annotate_node(&node.name, RETIRE, None).await?)
        )
        .await?;
    }
    reopen_for_now(ctx, machine, node).await
}

/// Like [`reopen`], but keeps an operator's request to remove the node: the node is removed once that is
/// possible.
async fn reopen_for_now(ctx: &Context, machine: &mut MachineHandle, node: &Node) -> Result<(), StepError> {
    ctx.registry.none_stay(&machine.record().id);
    let limit = ctx.config.limits.drain;
    if machine.record().node_uid.is_none() {
        node::serve(ctx, machine, node).await?;
    }
    if machine.record().cordoned {
        retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.uncordon(&node.name).await?)).await?;
    }
    retry_until!(
        limit,
        machine.seed(),
        Ok(ctx.kubernetes.annotate_node(&node.name, UNNEEDED_SINCE, None).await?)
    )
    .await?;
    retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.remove_taint(&node.name, &leaving()).await?))
        .await?;
    // Until the record is written, the node still counts as leaving, both in rounds and in a run that is
    // resumed after a crash.
    machine
        .change(ctx, |record| {
            record.cordoned = false;
            record.intent = Intent::Create;
            record.entered.retain(|phase, _| *phase <= Phase::Ready);
        })
        .await?;
    machine.enter(ctx, Phase::Ready, "");
    Ok(())
}

/// Whether to drop an operator's request to remove the node, because this removal could not fulfill the
/// request. Otherwise, the removal would be retried endlessly. The request is kept if the removal had another
/// reason, or if the daemon is paused.
fn is_wish_over(ctx: &Context, record: &Record, node: &str) -> bool {
    let Intent::Retire { reason, .. } = &record.intent else { return false };
    let wished = ctx.watches.node(node).and_then(|node| node.annotations.get(RETIRE).cloned());
    wished.as_ref() == Some(reason) && ctx.paused().is_none()
}
