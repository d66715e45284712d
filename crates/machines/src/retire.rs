//! A node's way out: closed, drained, its volumes detached; then the VM goes.

use std::time::Duration;

use tokio::time::Instant;

use super::destroy::{self, Ended, Manner};
use super::drain::{self, Drained, Met};
use super::kept::Kept;
use super::node::{self, is_ready, is_silent};
use super::out_of_service::{LOOK, are_of_staying_pods, let_go};
use super::task::Reports;
use super::touched::{self, Touched};
use super::tracked::Tracked;
use super::trouble::{Trouble, insist, words};
use super::{Context, hindrance, protection};
use kubernetes::ErrorKind;
use model::Record;
use model::machine::{Intent, Phase};
use model::node::{Node, Taint, TaintEffect};
use model::snapshot::{BEING_DELETED_TAINT, RETIRE, UNNEEDED_SINCE};

/// For this long after a node was seen empty it is not looked at again.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// How often pods are looked for again after volumes were waited for: if each answer takes long, the last has
/// to do.
const TURNS: u32 = 3;

/// How a removal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Retired {
    /// Nothing of the machine is left.
    Gone,
    /// The node serves again, for this reason.
    GivenUp(String),
}

/// Takes a machine out of service. Once its VM is being stopped there is no way back, unless it is started
/// again.
pub(super) async fn run(ctx: &Context, machine: &mut Tracked, reports: &Reports) -> Result<Retired, Trouble> {
    let stopping = machine.record().entered.contains_key(&Phase::Stopping);
    let reason = match &machine.record().intent {
        Intent::Retire { reason, .. } | Intent::Discard { reason, .. } => reason.clone(),
        Intent::Create => String::new(),
    };
    let (mut emptied, mut cut_short) = (None, false);
    if let (false, Some(node)) = (stopping, node::find(ctx, machine.record())) {
        machine.node = Some(node.name.clone());
        // Before anything is waited for: rounds count it among those that leave.
        machine.enter(ctx, Phase::Draining, &reason);
        machine.change(ctx, destroy::begun_no_more).await?;
        if let Some(why) = protection::of_running(ctx, machine, &node).await {
            reopen(ctx, machine, &node).await?;
            return Ok(Retired::GivenUp(why));
        }
        if let Some(why) = hindrance::of_running(ctx, machine, &node).await {
            reopen_for_now(ctx, machine, &node).await?;
            return Ok(Retired::GivenUp(why));
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
    /// Another client has ended its VM: there is nothing left to empty.
    VmEnded,
    GivenUp(String),
}

/// Empties a node as long as its VM is there: a drain would wait in vain for the kubelet of one that another
/// client has ended.
async fn empty_while_there(
    ctx: &Context,
    machine: &mut Tracked,
    node: &Node,
    reports: &Reports,
) -> Result<Emptied, Trouble> {
    let id = machine.record().id.clone();
    let mut progress = Progress::default();
    loop {
        let emptied = tokio::select! {
            biased;
            emptied = go_on(ctx, machine, node, &mut progress) => Some(emptied?),
            () = touched::noticed(ctx, &id), if !machine.record().is_physical() => None,
        };
        match emptied {
            Some(Drained::Empty) => return Ok(Emptied::Yes),
            Some(Drained::GivenUp(why)) => return Ok(Emptied::GivenUp(why)),
            None => {}
        }
        let before = machine.record().host.clone();
        // What cannot be determined now is noticed again with the next look.
        let Ok(Some(touched)) = touched::look_into(ctx, machine).await else { continue };
        let what = touched::words(ctx, machine.record(), &before, &touched).await;
        if touched == Touched::Moved {
            touched::say(ctx, reports, machine.record(), &format!("{what}: it is drained there"));
        } else {
            let what = format!("{what}: its node is not drained any further, and is removed");
            touched::say(ctx, reports, machine.record(), &what);
            return Ok(Emptied::VmEnded);
        }
    }
}

fn leaving() -> Taint {
    let effect = TaintEffect::NoSchedule;
    Taint { key: BEING_DELETED_TAINT.to_owned(), value: String::new(), effect, time_added: None }
}

/// Lets nothing more onto the node.
pub(super) async fn close(ctx: &Context, machine: &mut Tracked, node: &Node) -> Result<(), Trouble> {
    let limit = ctx.config.limits.drain;
    insist!(limit, machine.seed(), Ok(ctx.kubernetes.add_taint(&node.name, &leaving()).await?)).await?;
    if !node.unschedulable {
        // Recorded first: what an interrupted drain leaves behind has to be undone by the run that goes on.
        machine.change(ctx, |record| record.cordoned = true).await?;
        insist!(limit, machine.seed(), Ok(ctx.kubernetes.cordon(&node.name).await?)).await?;
    }
    Ok(())
}

/// Evicts what has to go, and waits until nothing of it is left.
pub(super) async fn empty(ctx: &Context, machine: &mut Tracked, node: &Node) -> Result<Drained, Trouble> {
    go_on(ctx, machine, node, &mut Progress::default()).await
}

/// How far emptying a node has come. The limits hold across an interruption.
#[derive(Default)]
struct Progress {
    /// When volumes are no longer waited for.
    until: Option<Instant>,
    met: Met,
}

/// The same, from where it was interrupted.
async fn go_on(
    ctx: &Context,
    machine: &mut Tracked,
    node: &Node,
    progress: &mut Progress,
) -> Result<Drained, Trouble> {
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
            // One that is not ready is no reason to stay.
            let found = ctx.kubernetes.get_node(&node.name).await;
            if found.map_or(true, |node| node.is_some_and(|node| is_ready(&node))) {
                let why = format!("volumes were still attached after {}", words(limits.detach));
                return Ok(Drained::GivenUp(why));
            }
            break;
        }
        // Pods may have come that tolerate everything, while volumes were waited for.
        if empty.elapsed() <= FRESH || turn >= TURNS {
            break;
        }
    }
    // The last moment in which there is a way back.
    Ok(ctx.paused().map_or(Drained::Empty, Drained::GivenUp))
}

/// Waits for what a node gives back after its machine was asked to shut down, where it is heard of still.
/// There is no way back then.
pub(super) async fn give_back(ctx: &Context, machine: &mut Tracked, node: &Node) {
    machine.say(ctx, "volumes are being detached");
    if tokio::time::timeout(ctx.config.limits.detach, detached(ctx, &node.name)).await.is_err() {
        tracing::warn!(machine = %machine.record().name, "volumes are still attached: it is shut down all the same");
    }
}

/// Waits until no volumes are attached to the node but those of pods that stay on it, such as a DaemonSet's:
/// they are let go of with the machine. Those of a silent one are not waited for: no kubelet unmounts them,
/// and they are let go of once its machine is off.
async fn detached(ctx: &Context, node: &str) {
    let seen_silent = || ctx.watches.node(node).is_some_and(|node| is_silent(&node));
    loop {
        let_go(ctx, node, seen_silent).await;
        // As it is now: a watch that stands still shows no volume that came to the node before it was closed.
        match ctx.kubernetes.attached(node).await {
            Ok(attached) if are_of_staying_pods(ctx, node, &attached) => return,
            // Who may not see any goes by what there is to see.
            Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound) => return,
            Ok(_) | Err(_) => {}
        }
        if ctx.kubernetes.get_node(node).await.is_ok_and(|node| node.is_none_or(|node| is_silent(&node))) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The node serves again, as it did before. One whose making was given up serves from now on: it has the time
/// of any other where it is not ready.
pub(super) async fn reopen(ctx: &Context, machine: &mut Tracked, node: &Node) -> Result<(), Trouble> {
    if is_wish_over(ctx, machine.record(), &node.name) {
        let limit = ctx.config.limits.drain;
        insist!(limit, machine.seed(), Ok(ctx.kubernetes.annotate_node(&node.name, RETIRE, None).await?))
            .await?;
    }
    reopen_for_now(ctx, machine, node).await
}

/// The same, with what an operator wants of the node: it is to go once that can be.
async fn reopen_for_now(ctx: &Context, machine: &mut Tracked, node: &Node) -> Result<(), Trouble> {
    ctx.registry.none_stay(&machine.record().id);
    let limit = ctx.config.limits.drain;
    if machine.record().node_uid.is_none() {
        node::serve(ctx, machine, node).await?;
    }
    if machine.record().cordoned {
        insist!(limit, machine.seed(), Ok(ctx.kubernetes.uncordon(&node.name).await?)).await?;
    }
    insist!(limit, machine.seed(), Ok(ctx.kubernetes.annotate_node(&node.name, UNNEEDED_SINCE, None).await?))
        .await?;
    insist!(limit, machine.seed(), Ok(ctx.kubernetes.remove_taint(&node.name, &leaving()).await?)).await?;
    // Until this is written it goes on leaving, for the rounds here as for the run that goes on after a
    // crash.
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

/// Whether an operator's wish is over: one that could not be fulfilled is, so that it is not tried again and
/// again. Another removal of its node fulfils none, and a pause ends none.
fn is_wish_over(ctx: &Context, record: &Record, node: &str) -> bool {
    let Intent::Retire { reason, .. } = &record.intent else { return false };
    let wished = ctx.watches.node(node).and_then(|node| node.annotations.get(RETIRE).cloned());
    wished.as_ref() == Some(reason) && ctx.paused().is_none()
}
