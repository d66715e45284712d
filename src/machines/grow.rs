//! A running machine is given more vCPUs and memory where it is.
//!
//! ```text
//!  record (what it is to have, what it had) ─> the guest is asked ─> plugged, read back ─> taken up in the guest ─> its Node says so ─> record
//! ```
//!
//! * The record holds the size that is wanted before anything is asked of Proxmox, so that its host's room and all limits count it.
//!   Each step looks at what is there and goes on from that.
//! * Proxmox keeps for the next start what it cannot plug, and says nothing of it: that is read back, and taken back.
//! * Whatever goes wrong, the node serves on. What was plugged and its Node does not report is taken out of the VM again (`stock`), and the
//!   record ends with what the VM has. Nothing else ever shrinks.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::jobs::{self, CONFIGURE};
use super::ownership::ours;
use super::stock::{self, given, has};
use super::task::{self, Ending, Reports};
use super::tracked::Tracked;
use super::trouble::{Blame, Trouble, insist};
use super::{Context, guest, node, touched};
use crate::bootstrap;
use crate::config::{Grow, Pool, Size};
use crate::kubernetes::Versioned;
use crate::model::Record;
use crate::model::machine::{Growing, Phase};
use crate::model::node::{Taint, TaintEffect};
use crate::model::snapshot::GROWING_TAINT;
use crate::model::workload::Backoff;
use crate::proxmox::{ExecStatus, Kind, VmConfig};

/// The option that says how many of a VM's `cores` it has.
pub(super) const VCPUS: &str = "vcpus";
/// The option that says how many it may have at most, and has where nothing else is said.
pub(super) const CORES: &str = "cores";
/// The option that says how much memory it has, in MiB.
pub(super) const MEMORY: &str = "memory";

/// How long the guest may take for one command: it waits 15 s for CPUs, and a minute for the unit.
const IN_GUEST: Duration = Duration::from_mins(2);
/// Between two looks at such a command.
const LOOK: Duration = Duration::from_millis(500);
/// So long the Node may be behind the guest before the guest is asked again.
const NODE_SAYS: Duration = Duration::from_secs(45);
/// So long the node stays closed after its Node says so. The kubelet that wrote it judges pods by what it watches, and turns away for good
/// (`OutOfcpu`) one that comes before it has seen its own word. Nothing tells when it has.
const KUBELET_SEES: Duration = Duration::from_secs(5);

/// Gives a ready machine more: `before` is what it has and what its Node says, `to` what it is to have.
pub async fn grow(ctx: Context, stored: Versioned<Record>, before: Growing, to: Size, reports: Reports) {
    let Some(mut machine) = task::claimed(&ctx, stored) else { return };
    machine.phase = Phase::Ready;
    let wanted = |record: &mut Record| {
        (record.cores, record.memory) = (to.cores, to.memory);
        record.growing = Some(before);
    };
    match machine.change(&ctx, wanted).await {
        Ok(()) => go_on(&ctx, machine, &reports).await,
        Err(trouble) => task::lost(&ctx, &machine, &trouble, &reports),
    }
}

/// Goes on with a machine whose record says that it grows.
pub(super) async fn go_on(ctx: &Context, mut machine: Tracked, reports: &Reports) {
    machine.phase = Phase::Ready;
    machine.node = node::find(ctx, machine.record()).map(|node| node.name.clone()).or(machine.node);
    let size = Size { cores: machine.record().cores, memory: machine.record().memory };
    machine.say(ctx, &format!("it grows to {}", size.words()));
    let id = machine.record().id.clone();
    let (grown, disturbed) = tokio::select! {
        biased;
        grown = Box::pin(run(ctx, &mut machine)) => (grown, false),
        () = touched::noticed(ctx, &id) => {
            (Err(failed("somebody has ended, moved or taken its VM".to_owned())), true)
        }
    };
    if matches!(grown, Err(Trouble::RecordLost(_))) {
        let trouble = Trouble::RecordLost(machine.record().name.clone());
        return task::lost(ctx, &machine, &trouble, reports);
    }
    // Before its node takes pods again.
    let plugged = (!disturbed).then_some(size);
    let left = match &grown {
        Ok(()) => Ok(None),
        Err(_) => stock::take(ctx, &mut machine, plugged).await,
    };
    // Before the record says that it grows no more: whoever goes on after a crash takes it away as well.
    let opened = open(ctx, &machine).await;
    let left = match left.and_then(|left| opened.map(|()| left)) {
        Ok(left) => left,
        Err(trouble) => return task::stuck(ctx, &mut machine, &trouble, reports),
    };
    let record = &mut machine.stored.record;
    let ending = match grown {
        Ok(()) => {
            record.grow_backoff = None;
            (record.takes_no_cpus, record.takes_no_memory) = (false, false);
            Ending::Grown
        }
        Err(trouble) => {
            let left = left.map(|left| format!("; {left}")).unwrap_or_default();
            let reason = format!("{} could not grow to {}: {trouble}{left}", record.name, size.words());
            let scale_up = &ctx.config.scale_up;
            let lengths = (scale_up.backoff_initial, scale_up.backoff_max);
            record.grow_backoff =
                Some(Backoff::next(record.grow_backoff.as_ref(), &reason, lengths, ctx.clock.now()));
            tracing::warn!(machine = %record.name, reason, "a machine did not grow");
            Ending::NotGrown(reason)
        }
    };
    machine.stored.record.growing = None;
    if let Err(trouble) = machine.save(ctx).await {
        return task::lost(ctx, &machine, &trouble, reports);
    }
    machine.say(ctx, "");
    task::tell(ctx, reports, machine.record(), ending);
    ctx.registry.release(&machine.record().id);
}

async fn run(ctx: &Context, machine: &mut Tracked) -> Result<(), Trouble> {
    let name = machine.record().pool.clone();
    let pool = ctx.config.pools.iter().find(|pool| pool.name == name);
    let none = || failed(format!("pool `{name}` grows no machines any more"));
    let (pool, grow) = pool.and_then(|pool| Some((pool, pool.grow.as_ref()?))).ok_or_else(none)?;
    let _permit = ctx.creating.acquire().await;
    let service = service(ctx, pool, grow)?;
    in_guest(ctx, machine, &bootstrap::can_grow(&service), "it cannot grow").await?;
    plug(ctx, machine, grow).await?;
    taken_up(ctx, machine, &service).await
}

/// The unit in the guest that reports what the Node has.
fn service(ctx: &Context, pool: &Pool, grow: &Grow) -> Result<String, Trouble> {
    let bootstrap = ctx.config.bootstrap_of(pool);
    let none = || failed("the configuration has no table `[bootstrap]` for its pool".to_owned());
    bootstrap.map(|bootstrap| grow.service(&bootstrap.method).to_owned()).ok_or_else(none)
}

/// Until the VM has what the record says. Where it has more, the record says so from then on.
async fn plug(ctx: &Context, machine: &mut Tracked, grow: &Grow) -> Result<(), Trouble> {
    let limit = ctx.config.limits.configure;
    let record = machine.record().clone();
    let (host, vmid) = (&record.host, record.slot.vmid);
    machine.say(ctx, "vCPUs and memory are being plugged");
    let done = insist!(limit, machine.seed(), {
        let config = ours(ctx, &record).await?;
        let set = wanted(&record, grow, &config);
        if set.is_empty() {
            return Ok(());
        }
        let digest = config.digest().unwrap_or_default();
        if let Some(upid) = ctx.proxmox.set_config(host, vmid, &set, &[], digest, 20).await? {
            jobs::succeed(ctx, CONFIGURE, &upid, limit).await?;
        }
        Ok(())
    });
    done.await?;
    let waiting = insist!(limit, machine.seed(), Ok(ctx.proxmox.pending(host, vmid).await?)).await?;
    let kept: Vec<&str> = [VCPUS, MEMORY].into_iter().filter(|key| waiting.contains(*key)).collect();
    if kept.is_empty() {
        // Without what waits besides, as `cores` does that somebody raised: the guest has none of it.
        let now = insist!(limit, machine.seed(), Ok(ctx.proxmox.current_config(host, vmid).await?)).await?;
        let Size { cores, memory } = has(&now, Size { cores: record.cores, memory: record.memory });
        return machine.change(ctx, |record| (record.cores, record.memory) = (cores, memory)).await;
    }
    Err(failed(format!(
        "Proxmox VE keeps `{}` of VM {vmid} for its next start: its `hotplug` or `numa` was changed, or QEMU refused; look at \
         `qm config {vmid} --current` on {host}, or replace the node",
        kept.join("` and `")
    )))
}

/// What is to be set, where the VM has less. Where it has more, somebody else gave it that, and it stays.
fn wanted(record: &Record, grow: &Grow, config: &VmConfig) -> BTreeMap<String, String> {
    let (cores, memory) = given(config);
    let all = [
        (grow.grows_cores, VCPUS, i64::from(record.cores), cores),
        (grow.grows_memory, MEMORY, record.memory >> 20, memory),
    ];
    let missing = all.into_iter().filter(|(grows, _, to, now)| *grows && now.is_none_or(|now| now < *to));
    missing.map(|(_, key, to, _)| (key.to_owned(), to.to_string())).collect()
}

/// Until the guest uses what was plugged and its Node says so.
async fn taken_up(ctx: &Context, machine: &mut Tracked, service: &str) -> Result<(), Trouble> {
    let limit = ctx.config.limits.ready;
    let record = machine.record().clone();
    let command = bootstrap::take_up(record.cores, service);
    close(ctx, machine).await?;
    let until_grown = async {
        loop {
            machine.say(ctx, &format!("the guest takes up what was plugged, and starts {service} anew"));
            in_guest(ctx, machine, &command, "the guest did not take up what was plugged").await?;
            machine.say(ctx, "its Node does not say yet that it has grown");
            let says = node::until(ctx, || node::find(ctx, &record).filter(|node| has_grown(&record, node)));
            if tokio::time::timeout(NODE_SAYS, says).await.is_ok() {
                return Ok(());
            }
        }
    };
    let late = || {
        failed(format!(
            "its Node did not say within {} s that it has grown: look at {service} in the guest",
            limit.as_secs()
        ))
    };
    tokio::time::timeout(limit, until_grown).await.unwrap_or_else(|_| Err(late()))?;
    tokio::time::sleep(KUBELET_SEES).await;
    Ok(())
}

fn growing() -> Taint {
    let effect = TaintEffect::NoSchedule;
    Taint { key: GROWING_TAINT.to_owned(), value: String::new(), effect, time_added: None }
}

/// Lets nothing onto the node while its kubelet finds out what it has.
async fn close(ctx: &Context, machine: &Tracked) -> Result<(), Trouble> {
    let Some(node) = node::find(ctx, machine.record()) else { return Ok(()) };
    let limit = ctx.config.limits.configure;
    insist!(limit, machine.seed(), Ok(ctx.kubernetes.add_taint(&node.name, &growing()).await?)).await
}

/// Takes that back, and waits until it can be seen.
async fn open(ctx: &Context, machine: &Tracked) -> Result<(), Trouble> {
    let Some(node) = node::find(ctx, machine.record()) else { return Ok(()) };
    let limit = ctx.config.limits.configure;
    insist!(limit, machine.seed(), Ok(ctx.kubernetes.remove_taint(&node.name, &growing()).await?)).await?;
    let is_open = |node: &crate::model::Node| node.taints.iter().all(|taint| taint.key != GROWING_TAINT);
    let opened = node::until(ctx, || {
        node::find(ctx, machine.record()).is_none_or(|node| is_open(&node)).then_some(())
    });
    // Where it cannot be seen for long, what is decided meanwhile is decided without the node.
    let _ = tokio::time::timeout(limit, opened).await;
    Ok(())
}

/// Whether the Node says all that the machine has been given.
fn has_grown(record: &Record, node: &crate::model::Node) -> bool {
    let missing = |before: &Growing| before.missing((record.cores, record.memory), &node.capacity);
    record.growing.as_ref().is_none_or(|before| missing(before) == (0, 0))
}

/// Runs a command in the guest to its end. `what` is said where it fails.
async fn in_guest(ctx: &Context, machine: &Tracked, command: &[String], what: &str) -> Result<(), Trouble> {
    let record = machine.record();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let end = Instant::now() + IN_GUEST;
    let mut running = None;
    loop {
        let step = match running {
            None => guest::exec(ctx, record, &command, None).await.map(|pid| {
                running = Some(pid);
                None
            }),
            Some(pid) => {
                let status = ctx.proxmox.agent_exec_status(&record.host, record.slot.vmid, pid).await;
                status.map(Some).map_err(Trouble::from)
            }
        };
        match step {
            Ok(Some(status)) if status.exited => return ended(&status, what),
            Ok(_) => {}
            // The guest has forgotten it: an answer was lost.
            Err(Trouble::Proxmox(error)) if error.kind == Kind::NotFound && running.is_some() => {
                running = None;
            }
            Err(trouble) if guest::is_for_good(&trouble) || Instant::now() >= end => return Err(trouble),
            Err(error) => {
                tracing::debug!(machine = %record.name, %error, "the guest is asked again");
            }
        }
        if Instant::now() >= end {
            let what = format!("{what}: no answer");
            return Err(Trouble::Limit { what, limit: IN_GUEST, blame: Blame::Pool });
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn ended(status: &ExecStatus, what: &str) -> Result<(), Trouble> {
    if status.exit_code == Some(0) {
        return Ok(());
    }
    let said = status.stderr.lines().last().unwrap_or_default().trim();
    let said = if said.is_empty() { "it says nothing more" } else { said };
    Err(failed(format!("{what}: {said}")))
}

fn failed(what: String) -> Trouble {
    Trouble::Failed { what, blame: Blame::Pool }
}
