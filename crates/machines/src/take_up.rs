//! Makes the guest of a growing machine use the VM's new vCPUs and memory, and makes its Node report them.
//!
//! A kubelet determines its machine's size only when it starts, so it is restarted whenever the VM's size has
//! changed. The Node is tainted before the restart, and stays tainted until it reports the actual size.

use std::time::Duration;

use tokio::time::Instant;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::returned_nodes::node as node_now;
use super::step_error::{BackoffTarget, StepError, retry_until};
use super::{guest, node};
use bootstrap::TOO_FEW_CPUS;
use model::Record;
use model::machine::Growing;
use model::node::{Node, Taint, TaintEffect};
use model::snapshot::GROWING_TAINT;
use proxmox::{ExecStatus, Kind};
use settings::{Grow, Pool, Size};

/// The time limit for a command in the guest. The command itself waits up to 15 s for the new CPUs, and up to
/// a minute for the kubelet's systemd unit.
const IN_GUEST: Duration = Duration::from_mins(2);
/// The time between two checks of whether the command has ended.
const LOOK: Duration = Duration::from_millis(500);
/// How long to wait until the Node reports the guest's new size. After that, the command is run again.
const NODE_SAYS: Duration = Duration::from_secs(45);
/// How long the Node stays tainted after it reports the new size. The kubelet checks pods against its own
/// copy of the Node, and permanently rejects (`OutOfcpu`) a pod that arrives before that copy shows the new
/// size. The daemon cannot see when the copy is updated.
const KUBELET_SEES: Duration = Duration::from_secs(5);

/// The systemd unit in the guest whose restart updates the size that the Node reports.
pub(super) fn service(ctx: &Context, pool: &Pool, grow: &Grow) -> Result<String, StepError> {
    let bootstrap = ctx.config.bootstrap_of(pool);
    let none = || failed("the configuration has no `[bootstrap]` table for the machine's pool".to_owned());
    bootstrap.map(|bootstrap| grow.service(&bootstrap.method).to_owned()).ok_or_else(none)
}

/// Checks in the guest whether it can grow, before any vCPUs or memory are hot-plugged.
pub(super) async fn can_grow(ctx: &Context, machine: &MachineHandle, service: &str) -> Result<(), StepError> {
    let what = "it cannot grow";
    let status = in_guest(ctx, machine, &bootstrap::can_grow(service), what).await?;
    ended(&status, what)
}

/// Waits until the guest uses the hot-plugged resources and its Node reports them. If that fails, the record
/// says which resources the guest does not use.
pub(super) async fn taken_up(
    ctx: &Context,
    machine: &mut MachineHandle,
    service: &str,
) -> Result<(), StepError> {
    let limit = ctx.config.limits.ready;
    let what = "the guest did not start to use the hot-plugged vCPUs and memory";
    let record = machine.record().clone();
    let command = bootstrap::take_up(record.cores, service);
    close(ctx, machine).await?;
    // Whether the guest has added the resources, as far as it can, and has restarted its kubelet.
    let mut has_tried = false;
    let until_grown = async {
        loop {
            machine.say(
                ctx,
                &format!(
                    "waiting until the guest uses the hot-plugged vCPUs and memory and has \
                    restarted {service}"
                ),
            );
            let taken = in_guest(ctx, machine, &command, what).await;
            has_tried |=
                taken.as_ref().is_ok_and(|status| matches!(status.exit_code, Some(0 | TOO_FEW_CPUS)));
            machine.say(ctx, "its Node does not report the new size yet");
            // This is checked even if the command has failed, because the command may nevertheless have
            // restarted the kubelet, which then reports the new size a little later.
            let says = node::until(ctx, || node::find(ctx, &record).filter(|node| has_grown(&record, node)));
            if tokio::time::timeout(NODE_SAYS, says).await.is_ok() {
                return Ok(());
            }
            ended(&taken?, what)?;
        }
    };
    let late = || {
        failed(format!(
            "its Node did not report the new size within {} s: check {service} in the guest",
            limit.as_secs()
        ))
    };
    let grown = tokio::time::timeout(limit, until_grown).await.unwrap_or_else(|_| Err(late()));
    match grown {
        Ok(()) => tokio::time::sleep(KUBELET_SEES).await,
        Err(_) if has_tried => note_refusals(ctx, machine),
        Err(_) => {}
    }
    grown
}

/// Records the resources that the Node still lacks although the kubelet was restarted and the Node is ready.
/// The guest does not use them, so no more of them are hot-plugged.
fn note_refusals(ctx: &Context, machine: &mut MachineHandle) {
    let Some(before) = machine.record().growing.clone() else { return };
    let Some(node) = node::find(ctx, machine.record()).filter(|node| node::is_ready(node)) else { return };
    let record = &mut machine.stored.record;
    let (cpu, memory) = before.missing((record.cores, record.memory), &node.capacity);
    record.takes_no_cpus |= cpu > 0 && record.cores > before.cores;
    record.takes_no_memory |= memory > 0 && record.memory > before.memory;
}

/// Restarts the kubelet after resources were unplugged or the VM was moved. The restart is repeated until the
/// Node reports no more than the VM's size.
///
/// # Errors
/// Returns an error if the Node still reports more than the VM's size when the time limit is reached. The
/// Node then stays tainted, because otherwise kube-scheduler would place pods on it for resources that do not
/// exist.
pub(super) async fn settle(
    ctx: &Context,
    machine: &mut MachineHandle,
    before: &Growing,
    now: Size,
) -> Result<(), StepError> {
    let limit = ctx.config.limits.ready;
    let record = machine.record().clone();
    let pool = ctx.config.pools.iter().find(|pool| pool.name == record.pool);
    let service = pool.and_then(|pool| service(ctx, pool, pool.grow.as_ref()?).ok());
    let command = service.as_deref().map(|service| bootstrap::take_up(now.cores, service));
    close(ctx, machine).await?;
    machine.say(ctx, "waiting until its Node reports no more resources than the VM has");
    let what = "its kubelet could not be restarted";
    let until_true = async {
        loop {
            if let Some(command) = &command {
                let ended =
                    in_guest(ctx, machine, command, what).await.and_then(|status| ended(&status, what));
                if let Err(error) = ended {
                    tracing::debug!(machine = %record.name, %error, "trying to restart its kubelet again later");
                }
            }
            // The last update of the previous kubelet may still be on its way.
            tokio::time::sleep(KUBELET_SEES).await;
            let is_true = |node: &Node| !before.says_more((now.cores, now.memory), &node.capacity);
            let says =
                node::until(ctx, || node::find(ctx, &record).is_none_or(|node| is_true(&node)).then_some(()));
            let says = tokio::time::timeout(NODE_SAYS, says).await;
            if says.is_ok() && node_now(ctx, machine).await?.is_none_or(|node| is_true(&node)) {
                return Ok(());
            }
        }
    };
    let late = || {
        failed(format!(
            "the VM has {}, but its Node still reports more: check the kubelet in the guest",
            now.words()
        ))
    };
    tokio::time::timeout(limit, until_true).await.unwrap_or_else(|_| Err(late()))
}

fn growing() -> Taint {
    let effect = TaintEffect::NoSchedule;
    Taint { key: GROWING_TAINT.to_owned(), value: String::new(), effect, time_added: None }
}

/// Keeps pods off the node while its kubelet determines the machine's size.
async fn close(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    let Some(node) = node::find(ctx, machine.record()) else { return Ok(()) };
    let limit = ctx.config.limits.configure;
    retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.add_taint(&node.name, &growing()).await?)).await
}

/// Opens the node for pods again, and waits until the watches show the change.
pub(super) async fn open(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    let Some(node) = node::find(ctx, machine.record()) else { return Ok(()) };
    let limit = ctx.config.limits.configure;
    retry_until!(limit, machine.seed(), Ok(ctx.kubernetes.remove_taint(&node.name, &growing()).await?))
        .await?;
    let is_open = |node: &Node| node.taints.iter().all(|taint| taint.key != GROWING_TAINT);
    let opened = node::until(ctx, || {
        node::find(ctx, machine.record()).is_none_or(|node| is_open(&node)).then_some(())
    });
    // A timeout is ignored. Until the watches show the change, decisions are made without the node.
    let _ = tokio::time::timeout(limit, opened).await;
    Ok(())
}

/// Like [`open`], for a VM that may or may not have grown. The VM has at least its size from before the
/// growth began, so the node is only opened if the Node reports no more than that size.
pub(super) async fn open_if_true(ctx: &Context, machine: &MachineHandle) -> Result<(), StepError> {
    let Some(before) = &machine.record().growing else { return open(ctx, machine).await };
    let had = (before.cores, before.memory);
    let says_more = node_now(ctx, machine).await?.is_some_and(|node| before.says_more(had, &node.capacity));
    if says_more { Ok(()) } else { open(ctx, machine).await }
}

/// Whether the Node reports all resources that the machine was given.
fn has_grown(record: &Record, node: &Node) -> bool {
    let missing = |before: &Growing| before.missing((record.cores, record.memory), &node.capacity);
    record.growing.as_ref().is_none_or(|before| missing(before) == (0, 0))
}

/// Runs a command in the guest and waits until the command ends. If there is no answer in time, the error
/// text begins with `what`.
async fn in_guest(
    ctx: &Context,
    machine: &MachineHandle,
    command: &[String],
    what: &str,
) -> Result<ExecStatus, StepError> {
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
                status.map(Some).map_err(StepError::from)
            }
        };
        match step {
            Ok(Some(status)) if status.exited => return Ok(status),
            Ok(_) => {}
            // The guest agent no longer knows the command. The command has ended, and the answer with its
            // result was lost.
            Err(StepError::Proxmox(error)) if error.kind == Kind::NotFound && running.is_some() => {
                running = None;
            }
            Err(trouble) if guest::is_for_good(&trouble) || Instant::now() >= end => return Err(trouble),
            Err(error) => {
                tracing::debug!(machine = %record.name, %error, "asking the guest again");
            }
        }
        if Instant::now() >= end {
            let what = format!("{what}: the guest's answer");
            return Err(StepError::Limit { what, limit: IN_GUEST, blame: BackoffTarget::Pool });
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn ended(status: &ExecStatus, what: &str) -> Result<(), StepError> {
    if status.exit_code == Some(0) {
        return Ok(());
    }
    let said = status.stderr.lines().last().unwrap_or_default().trim();
    let said = if said.is_empty() { "it printed no error" } else { said };
    Err(failed(format!("{what}: {said}")))
}

pub(super) fn failed(what: String) -> StepError {
    StepError::Failed { what, blame: BackoffTarget::Pool }
}
