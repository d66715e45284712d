//! Bare-metal machines: switched on over Redfish, joined by themselves, drained as others are, and switched
//! off.
//!
//! * Before a machine is switched on, its record says so (`Starting` in its timeline). It was off then, and
//!   no Node had its name. One that runs without such a record was switched on by another client, and is left
//!   alone.
//! * Only one that the record says we switched on is switched off, and only while nothing is left on its Node
//!   that has to go.
//! * One that was seen to be off is no longer ours once another client switches it on: the record says when
//!   that was. It is ours again only once its Node is heard of.
//! * Its Node is deleted once it is off. One that stayed would look broken to all who watch nodes, and would
//!   be Ready for a moment when the machine is switched on again, with what it ran before; the kubelet makes
//!   another at its next start.
//! * That Node is known by its name, and by its `systemUUID`: the controller's, which some write with the
//!   first three fields turned round (SMBIOS has them little-endian), or, if it says none, that of the Node
//!   which came first after we switched it on.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::context::Context;
use super::drain::Drained;
use super::emptying::FRESH;
use super::kept_node::Kept;
use super::machine_end::Ended;
use super::machine_handle::MachineHandle;
use super::node::{is_ready, is_silent, until};
use super::out_of_service::{NOTICED, Off};
use super::physical_node::{is_its, is_ours, seen};
use super::step_error::{BackoffTarget, StepError, retry_until, time_text, within};
use super::{drain, emptying, node_deletion};
use model::Record;
use model::machine::{Intent, Phase};
use model::node::Node;
use proxmox::redfish::{self, Client, Kind, PowerState, Reset};
use settings::PhysicalMachine;

/// Between two looks at a machine's power.
const LOOK: Duration = Duration::from_secs(5);
/// A controller that was asked to switch on and shows nothing of it, or refuses to shut down, is asked again
/// after this time.
const AGAIN: Duration = Duration::from_secs(45);

/// The Node that the machine became; `None` while there is none, or before we switched it on.
pub(super) fn find(ctx: &Context, record: &Record) -> Option<Arc<Node>> {
    seen(&ctx.watches, record)
}

/// Switches the machine on and waits for its Node, unless that is there.
pub(super) async fn run(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    let node = match find(ctx, machine.record()) {
        Some(node) => node,
        None => come_up(ctx, machine).await?,
    };
    if node.system_uuid.is_empty() {
        let what = format!("its Node `{}` reports no systemUUID, which would identify it", node.name);
        return Err(StepError::Failed { what, blame: BackoffTarget::Host });
    }
    take(ctx, machine, &node).await
}

/// Notes the uuid as the Node has it: so that every search for the machine's Node finds it.
async fn take(ctx: &Context, machine: &mut MachineHandle, node: &Node) -> Result<(), StepError> {
    machine.change(ctx, |record| record.smbios_uuid = Some(node.system_uuid.clone())).await
}

async fn come_up(ctx: &Context, machine: &mut MachineHandle) -> Result<Arc<Node>, StepError> {
    let (own, client) = controller(ctx, machine.record())?;
    let first = !is_ours(machine.record());
    if first {
        claim(ctx, machine, &own, &client).await?;
    }
    machine.enter(ctx, Phase::Starting, "it is being switched on");
    let mut asked = false;
    let switched = within(ctx.config.limits.start, "switching it on", switch_on(&client, &mut asked)).await;
    if first && !asked {
        disown(ctx, machine).await?;
        let what = format!("`{}` was switched on by another client just now", machine.record().name);
        return Err(switched.err().unwrap_or(StepError::Taken { what }));
    }
    switched?;
    machine.enter(ctx, Phase::Booting, "it boots and joins by itself; waiting for its Node");
    let limit = ctx.config.scale_up.max_node_provision_time;
    let age = ctx.clock.now().duration_since(machine.record().wanted_since()).unsigned_abs();
    let record = machine.record().clone();
    let registered = until(ctx, || find(ctx, &record));
    // A moment before the limit of all steps, which could not say what is there instead.
    let left = limit.saturating_sub(age).saturating_sub(Duration::from_secs(1));
    if let Ok(node) = tokio::time::timeout(left, registered).await {
        return Ok(node);
    }
    let what = format!("no Node of it within {}: {}", time_text(limit), instead(ctx, &record, &client).await);
    Err(StepError::Failed { what, blame: BackoffTarget::Host })
}

/// Makes sure that the machine is not in use, and writes down that it is switched on now.
async fn claim(
    ctx: &Context,
    machine: &mut MachineHandle,
    own: &PhysicalMachine,
    client: &Client,
) -> Result<(), StepError> {
    let taken = |what: String| Err(StepError::Taken { what });
    let (limits, name) = (&ctx.config.limits, machine.record().name.clone());
    if own.closed {
        return taken(format!("`{name}` is closed"));
    }
    machine.say(ctx, "its power is read");
    let seen = retry_until!(limits.start, machine.seed(), Ok(client.look().await?)).await?;
    if seen.power != PowerState::Off {
        return taken(format!("`{name}` was not switched on by us, and its power is {:?}", seen.power));
    }
    let node = retry_until!(limits.start, machine.seed(), Ok(ctx.kubernetes.get_node(&name).await?)).await?;
    if node.is_some() {
        return taken(format!("there is a Node `{name}` that is not a managed machine: delete it first"));
    }
    machine.enter(ctx, Phase::Starting, "it is being switched on");
    machine.stored.record.smbios_uuid = seen.uuid;
    machine.save(ctx).await
}

/// The record says no longer that the machine is ours: it was not asked to switch on. If it runs, another
/// client did that; another cluster may have it, too.
async fn disown(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    machine
        .change(ctx, |record| {
            record.entered.remove(&Phase::Starting);
        })
        .await
}

/// Until the controller says that it runs, or is about to; `asked`: it may have been asked for that. One that
/// is busy with what another client asked refuses, or does not answer.
async fn switch_on(client: &Client, asked: &mut bool) -> Result<(), StepError> {
    let mut looked: Option<Instant> = None;
    loop {
        let answer = if looked.is_none_or(|looked| looked.elapsed() >= AGAIN) {
            let answer = client.reset(Reset::On).await;
            looked = Some(Instant::now());
            *asked |= answer.as_ref().map_or_else(redfish::Error::may_have_asked, |asked| *asked);
            // What was not asked is there.
            answer.map(|asked| !asked)
        } else {
            client.power().await.map(|power| matches!(power, PowerState::On | PowerState::PoweringOn))
        };
        match answer {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => {
                let trouble = StepError::Redfish(error);
                if !trouble.passes() {
                    return Err(trouble);
                }
                tracing::debug!(error = %trouble, "a machine's controller is asked again");
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What there is in place of the machine's Node.
async fn instead(ctx: &Context, record: &Record, client: &Client) -> String {
    if let Some(node) = ctx.watches.node(&record.name) {
        let uuid = record.smbios_uuid.as_deref().unwrap_or("unknown");
        return format!(
            "there is a Node `{}`, but its systemUUID ({}) is not the machine's ({uuid})",
            record.name, node.system_uuid
        );
    }
    match client.power().await {
        Ok(PowerState::On) => {
            "it is on, and its kubelet has not registered: its console shows what it does".to_owned()
        }
        Ok(power) => format!("its power is {power:?}"),
        Err(error) => format!("its power cannot be read: {error}"),
    }
}

/// Switches the machine off, deletes its Node and drops the record. One that we did not switch on is not
/// touched, and one whose Node keeps it serves on.
pub(super) async fn end(ctx: &Context, machine: &mut MachineHandle) -> Result<Ended, StepError> {
    if is_ours(machine.record()) {
        let (_, client) = controller(ctx, machine.record())?;
        if is_used_by_another(ctx, machine, &client).await? {
            let what = "it was off, and another client has switched it on since: it is left on, and its Node is deleted";
            tracing::warn!(machine = %machine.record().name, "{what}");
            machine.enter(ctx, Phase::Deleting, what);
            // What ran there has ended with the power; what is heard of after all is not silenced.
            forget_node(ctx, machine, Off::Gone).await?;
            machine.drop_record(ctx).await?;
            return Ok(Ended::Gone);
        }
        if let Some(kept) = keeps(ctx, machine).await? {
            return Ok(Ended::Serves(kept));
        }
        let again = machine.record().entered.contains_key(&Phase::Stopping);
        let emptied = Instant::now();
        machine.enter(ctx, Phase::Stopping, "it is being shut down");
        // The point of no return: a run that goes on after a crash must not open the node again.
        machine.save(ctx).await?;
        if !again && let Some(kept) = pinned(ctx, machine).await? {
            return Ok(Ended::Serves(kept));
        }
        if let Some(kept) = switch_off(ctx, machine, &client, emptied).await? {
            return Ok(Ended::Serves(kept));
        }
        // A run that goes on must not switch it off once more.
        let now = ctx.clock.now();
        machine.change(ctx, |record| record.seen_off = Some(now)).await?;
        machine.enter(ctx, Phase::Deleting, "it is off; its Node is being deleted");
        forget_node(ctx, machine, Off::ClusterResources).await?;
    }
    machine.drop_record(ctx).await?;
    Ok(Ended::Gone)
}

/// Whether another client has switched the machine on since it was seen to be off, and nothing is heard of
/// its Node: it runs something else.
async fn is_used_by_another(
    ctx: &Context,
    machine: &mut MachineHandle,
    client: &Client,
) -> Result<bool, StepError> {
    let Some(off) = machine.record().seen_off else { return Ok(false) };
    let record = machine.record().clone();
    let silent = || find(ctx, &record).is_none_or(|node| is_silent(&node)).then_some(());
    let left = NOTICED.saturating_sub(ctx.clock.now().duration_since(off).unsigned_abs());
    // A Node that is heard of past that time is what the machine runs.
    let _ = tokio::time::timeout(left, until(ctx, silent)).await;
    if now(ctx, &record).await?.is_some_and(|node| !is_silent(&node)) {
        return Ok(false);
    }
    let power = retry_until!(ctx.config.limits.start, machine.seed(), Ok(client.power().await?)).await?;
    Ok(power != PowerState::Off)
}

/// When a machine that is not being switched on was seen to be off, by its record, a look at its power, and
/// its Node.
pub fn seen_off(
    record: &Record,
    power: PowerState,
    node: Option<&Node>,
    now: Timestamp,
) -> Option<Timestamp> {
    let Some(off) = record.seen_off else { return (power == PowerState::Off).then_some(now) };
    let heard = node.is_some_and(is_ready) && now.duration_since(off).unsigned_abs() > NOTICED;
    (!heard || power != PowerState::On).then_some(off)
}

/// The Node that keeps the machine from being switched off, and why: it has served before and is ready again,
/// so that what it was given up for is over; or it is ready and cannot be emptied. Nothing is left on any
/// other, whatever happened since it was drained, or failed.
async fn keeps(ctx: &Context, machine: &mut MachineHandle) -> Result<Option<Kept>, StepError> {
    let Some(node) = now(ctx, machine.record()).await? else { return Ok(None) };
    let record = machine.record();
    let given_up = matches!(record.intent, Intent::Discard { .. }) && record.node_uid.is_some();
    if given_up && may_serve(record, &node) {
        take(ctx, machine, &node).await?;
        return Ok(Some(Kept::new(node, "its Node is ready again")));
    }
    emptying::close(ctx, machine, &node).await?;
    let Drained::GivenUp(why) = emptying::empty(ctx, machine, &node).await? else { return Ok(None) };
    // As it is now: a drain takes its time.
    match now(ctx, machine.record()).await?.filter(|node| may_serve(machine.record(), node)) {
        Some(node) => {
            take(ctx, machine, &node).await?;
            Ok(Some(Kept::new(node, why)))
        }
        None => Err(StepError::Failed {
            what: format!("it is not switched off: {why}"),
            blame: BackoffTarget::Other,
        }),
    }
}

/// The Node as it is now, if an annotation keeps it; and why. As of a VM that is shut down, see
/// [`super::returned_nodes::pinned`].
async fn pinned(ctx: &Context, machine: &mut MachineHandle) -> Result<Option<Kept>, StepError> {
    let found = now(ctx, machine.record()).await?.filter(|node| !node.system_uuid.is_empty());
    let Some(node) = found else { return Ok(None) };
    let Some(why) = drain::kept(&node) else { return Ok(None) };
    take(ctx, machine, &node).await?;
    Ok(Some(Kept::new(node, why)))
}

/// The same just before something is asked of the controller, which may have been silent for a while. With
/// when the Node was seen empty.
async fn keeps_now(
    ctx: &Context,
    machine: &mut MachineHandle,
    emptied: &mut Instant,
) -> Result<Option<Kept>, StepError> {
    if emptied.elapsed() <= FRESH {
        return Ok(None);
    }
    let kept = keeps(ctx, machine).await?;
    *emptied = Instant::now();
    machine.say(ctx, "its controller is asked to shut it down");
    Ok(kept)
}

/// Whether a Node may be opened: it is ready, it identifies its machine, and was not asked to shut down since
/// it registered.
fn may_serve(record: &Record, node: &Node) -> bool {
    let is_before = |asked: &Timestamp| node.created.is_none_or(|created| created <= *asked);
    is_ready(node)
        && !node.system_uuid.is_empty()
        && !record.entered.get(&Phase::Stopping).is_some_and(is_before)
}

/// How a shutdown went.
enum ShutDown {
    /// It is off.
    Off,
    /// It was not asked: its Node keeps it.
    Kept(Kept),
    /// It cannot be shut down gracefully, for this reason. With when its Node was seen empty; `None`: it was
    /// asked, and there is no way back.
    InVain(String, Option<Instant>),
}

/// The operating system is asked first, and has its time; then the plug is pulled. The Node that keeps it, if
/// so.
async fn switch_off(
    ctx: &Context,
    machine: &mut MachineHandle,
    client: &Client,
    emptied: Instant,
) -> Result<Option<Kept>, StepError> {
    let limits = &ctx.config.limits;
    let (why, mut emptied) = match shut_down(ctx, machine, client, emptied).await? {
        ShutDown::Off => return Ok(None),
        ShutDown::Kept(kept) => return Ok(Some(kept)),
        ShutDown::InVain(why, emptied) => (why, emptied),
    };
    machine.say(ctx, &format!("{why}: its power is cut"));
    tracing::warn!(machine = %machine.record().name, why, "the machine's power is cut");
    let kept = retry_until!(limits.destroy, machine.seed(), {
        if let Some(emptied) = &mut emptied
            && let Some(kept) = keeps_now(ctx, machine, emptied).await?
        {
            return Ok(Some(kept));
        }
        client.reset(Reset::ForceOff).await?;
        Ok(None)
    });
    let kept = kept.await?;
    if kept.is_some() || is_off_within(client, limits.start).await {
        return Ok(kept);
    }
    Err(StepError::Limit {
        what: "switching it off".to_owned(),
        limit: limits.start,
        blame: BackoffTarget::Host,
    })
}

/// What a controller makes of being asked to shut its machine down.
enum Asked {
    /// It has taken it.
    Taken,
    /// It has not: the machine's Node keeps it.
    Kept(Kept),
    /// It refuses.
    Refused(redfish::Error),
}

/// It has all of its time each time, for nothing says when it was asked before: its controller may have been
/// silent since the record says so, and an answer may have been lost. Nor does a refusal: one that is busy
/// refuses, as does one whose machine goes down already.
async fn shut_down(
    ctx: &Context,
    machine: &mut MachineHandle,
    client: &Client,
    mut emptied: Instant,
) -> Result<ShutDown, StepError> {
    let limits = &ctx.config.limits;
    let mut refused = None;
    loop {
        let asked = retry_until!(limits.destroy, machine.seed(), {
            if let Some(kept) = keeps_now(ctx, machine, &mut emptied).await? {
                return Ok(Asked::Kept(kept));
            }
            match client.reset(Reset::GracefulShutdown).await {
                Err(error) if matches!(error.kind, Kind::Refused | Kind::Unsupported) => {
                    Ok(Asked::Refused(error))
                }
                asked => asked.map(|_| Asked::Taken).map_err(StepError::Redfish),
            }
        });
        let error = match asked.await? {
            Asked::Kept(kept) => return Ok(ShutDown::Kept(kept)),
            Asked::Taken if is_off_within(client, limits.shutdown).await => return Ok(ShutDown::Off),
            Asked::Taken => return Ok(ShutDown::InVain("it did not shut down in time".to_owned(), None)),
            Asked::Refused(error) => error,
        };
        let left = limits.shutdown.saturating_sub(refused.get_or_insert_with(Instant::now).elapsed());
        let why = match error.kind {
            Kind::Unsupported => format!("it cannot be shut down gracefully ({error})"),
            _ => format!("its controller refuses to shut it down gracefully ({error})"),
        };
        if error.kind == Kind::Unsupported || left.is_zero() {
            return Ok(ShutDown::InVain(why, Some(emptied)));
        }
        machine.say(ctx, &format!("{why}, and is asked again"));
        tracing::warn!(machine = %machine.record().name, %error, "graceful shutdown not possible yet; retrying");
        if is_off_within(client, AGAIN.min(left)).await {
            return Ok(ShutDown::Off);
        }
    }
}

/// Whether it was seen to be off. A controller that does not answer proves nothing.
async fn is_off_within(client: &Client, limit: Duration) -> bool {
    let off = async {
        while !matches!(client.power().await, Ok(PowerState::Off)) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(limit, off).await.is_ok()
}

/// Its Node as it is now, past what the watches show.
async fn now(ctx: &Context, record: &Record) -> Result<Option<Node>, StepError> {
    let limit = ctx.config.limits.destroy;
    let found =
        retry_until!(limit, record.slot.vmid.0.into(), Ok(ctx.kubernetes.get_node(&record.name).await?))
            .await?;
    Ok(found.filter(|node| is_its(record, node)))
}

/// Deletes its Node, and no namesake; also one that no watch has shown yet.
async fn forget_node(ctx: &Context, machine: &mut MachineHandle, off: Off) -> Result<(), StepError> {
    if let Some(node) = now(ctx, machine.record()).await? {
        node_deletion::delete_node(ctx, machine, (&node.name, &node.uid), off).await?;
    }
    Ok(())
}

/// The machine as it is configured, and its controller.
fn controller(ctx: &Context, record: &Record) -> Result<(PhysicalMachine, Client), StepError> {
    let pool = ctx.config.pools.iter().find(|pool| pool.name == record.pool);
    let Some(own) = pool.and_then(|pool| pool.physical(&record.name)).cloned() else {
        let what = format!(
            "machine `{}` is no longer in the configuration of pool `{}`: how to reach it is not known",
            record.name, record.pool
        );
        return Err(StepError::Failed { what, blame: BackoffTarget::Other });
    };
    match (ctx.controllers)(&own.redfish) {
        Ok(client) => Ok((own, client.fenced(&ctx.fence))),
        Err(what) => Err(StepError::Failed { what, blame: BackoffTarget::Host }),
    }
}
