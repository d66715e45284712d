//! Waits for Proxmox VE tasks.

use std::time::Duration;

use tokio::time::Instant;

use super::context::Context;
use super::host_clock::by_clock_of;
use super::step_error::{BackoffTarget, StepError};
use model::machine::{Intent, Phase};
use model::{MachineKind, Record};
use proxmox::{Exit, Kind, TaskFilter, TaskRow, TaskStatus, Upid};

/// A kind of task, and its typical duration. This duration determines when the task is polled, until the real
/// duration has been measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub name: &'static str,
    pub guess: Duration,
}

pub(super) const CLONE: Job = Job { name: "the clone", guess: Duration::from_millis(400) };
pub(super) const CREATE: Job = Job { name: "the creation", guess: Duration::from_millis(400) };
pub(super) const CONFIGURE: Job = Job { name: "the configuration", guess: Duration::from_millis(200) };
pub(super) const RESIZE: Job = Job { name: "the resize", guess: Duration::from_millis(200) };
pub(super) const START: Job = Job { name: "the start", guess: Duration::from_millis(1300) };
pub(super) const SUSPEND: Job = Job { name: "the suspension", guess: Duration::from_secs(5) };
pub(super) const SHUTDOWN: Job = Job { name: "the shutdown", guess: Duration::from_secs(4) };
pub(super) const STOP: Job = Job { name: "the stop", guess: Duration::from_millis(500) };
pub(super) const DESTROY: Job = Job { name: "the destroy task", guess: Duration::from_millis(300) };

/// Proxmox VE's name for the task that destroys a VM.
const DESTRUCTION: &str = "qmdestroy";

/// How long a call that got no answer may still take effect. Proxmox VE's proxy gives up after 30 s.
pub(super) const ON_ITS_WAY: Duration = Duration::from_secs(45);

/// Waits until a task ends, but at most for `limit`.
pub(super) async fn finish(ctx: &Context, job: Job, upid: &Upid, limit: Duration) -> Result<Exit, StepError> {
    let started = Instant::now();
    let mut looks = ctx.pace.watch(job.name, job.guess);
    loop {
        let longest = ctx.config.limits.task_poll * 5;
        let pause = looks.pause(started.elapsed(), longest);
        let left = limit.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(StepError::Limit {
                what: format!("{} ({upid})", job.name),
                limit,
                blame: BackoffTarget::Host,
            });
        }
        tokio::time::sleep(pause.min(left)).await;
        match ctx.proxmox.task_status(upid).await {
            Ok(TaskStatus::Ended(exit)) => {
                if exit.is_success() {
                    ctx.pace.learn(job.name, looks.took());
                }
                if matches!(exit, Exit::Warnings(_)) {
                    warn(ctx, upid).await;
                }
                return Ok(exit);
            }
            Ok(TaskStatus::Running) => {}
            // A host that has restarted no longer knows the task.
            Err(error) if error.kind == Kind::NotFound => return Ok(Exit::Unknown),
            Err(error) if matches!(error.kind, Kind::Forbidden | Kind::BadRequest) => {
                return Err(error.into());
            }
            Err(error) => tracing::debug!(%error, "a task cannot be read at the moment"),
        }
    }
}

/// The job that creates a machine's VM.
pub(super) fn making(record: &Record) -> Job {
    match record.kind() {
        MachineKind::Clone(_) => CLONE,
        MachineKind::Blank | MachineKind::BareMetal => CREATE,
    }
}

/// Whether this kind of task creates a VM.
pub(super) fn makes(kind: &str) -> bool {
    kind == "qmclone" || kind == "qmcreate"
}

/// Whether a task that may be creating the machine's VM is still running. A host that has left the cluster
/// cannot be queried: it is assumed to run no such task.
pub(super) async fn is_cloning(ctx: &Context, record: &Record) -> Result<bool, StepError> {
    if !ctx.proxmox.resources().await?.hosts.contains_key(&record.template_host) {
        return Ok(false);
    }
    let (about, kind) = match record.kind() {
        MachineKind::Clone(template) => (template, "qmclone"),
        MachineKind::Blank | MachineKind::BareMetal => (record.slot.vmid, "qmcreate"),
    };
    // The tasks are not filtered by the record's age: task times come from the host's clock, which may be
    // behind.
    let filter = TaskFilter { vmid: Some(about), kind: Some(kind.to_owned()), since: None, limit: None };
    for row in ctx.proxmox.tasks(&record.template_host, &filter).await? {
        if row.status != TaskStatus::Running {
            continue;
        }
        if !matches!(record.kind(), MachineKind::Clone(_))
            || ctx.proxmox.clone_target(&row.upid).await?.is_none_or(|vmid| vmid == record.slot.vmid)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a task is working on a machine's VM, as far as the token can see. Clone tasks are not found,
/// because they only name the template.
pub(super) async fn is_worked_on(ctx: &Context, record: &Record) -> Result<bool, StepError> {
    let filter = TaskFilter { vmid: Some(record.slot.vmid), kind: None, since: None, limit: None };
    let tasks = ctx.proxmox.tasks(&record.host, &filter).await?;
    Ok(tasks.iter().any(|row| row.status == TaskStatus::Running))
}

/// The state of the destroy task of a machine's VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destruction {
    /// None was requested.
    None,
    /// The task is still running.
    AtWork,
    /// It succeeded.
    Done,
    /// The task failed, or is no longer known.
    Interrupted,
}

/// Determines the state of the destroy task for a machine's VM. The host's tasks are searched in addition to
/// the record, because the answer with the task's id may have been lost, or the daemon may have been killed
/// before it recorded the id.
pub(super) async fn destruction(ctx: &Context, record: &Record) -> Result<Destruction, StepError> {
    let recorded = recorded_destruction(record);
    if recorded.is_none() && !record.destroy_asked {
        return Ok(Destruction::None);
    }
    let mut seen: Vec<_> = destructions(ctx, record).await?.into_iter().map(|row| row.status).collect();
    if let Some(upid) = recorded {
        match ctx.proxmox.task_status(&upid).await {
            Ok(status) => seen.push(status),
            Err(error) if error.kind == Kind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    let ended_well = |status: &TaskStatus| matches!(status, TaskStatus::Ended(exit) if exit.is_success());
    Ok(if seen.contains(&TaskStatus::Running) {
        Destruction::AtWork
    } else if seen.iter().any(ended_well) {
        Destruction::Done
    } else {
        Destruction::Interrupted
    })
}

/// The id of the destroy task in a machine's record, if the record has one.
pub(super) fn recorded_destruction(record: &Record) -> Option<Upid> {
    record.task.as_deref().and_then(Upid::parse).filter(|upid| upid.kind() == DESTRUCTION)
}

/// The destroy tasks of a machine's VM that its host knows. Tasks of an earlier machine with the same VMID
/// are left out.
pub(super) async fn destructions(ctx: &Context, record: &Record) -> Result<Vec<TaskRow>, StepError> {
    let kind = Some(DESTRUCTION.to_owned());
    let filter = TaskFilter { vmid: Some(record.slot.vmid), kind, since: None, limit: None };
    let mut rows = ctx.proxmox.tasks(&record.host, &filter).await?;
    let since = by_clock_of(&ctx.proxmox, &record.host, &ctx.clock, record.created).await;
    rows.retain(|row| row.status == TaskStatus::Running || row.started >= since);
    Ok(rows)
}

/// Returns how much longer an earlier request for this machine may still take effect, if the machine is to be
/// discarded. The daemon may have been killed just after it sent the request, or may have received no answer.
/// Returns zero if the machine was already configured, or is not to be discarded.
pub(super) fn still_on_its_way(ctx: &Context, record: &Record) -> Duration {
    let Intent::Discard { since, .. } = &record.intent else { return Duration::ZERO };
    let is_configured = record.entered.keys().any(|phase| (Phase::Warm..=Phase::Ready).contains(phase));
    if is_configured {
        return Duration::ZERO;
    }
    ON_ITS_WAY.saturating_sub(ctx.clock.now().duration_since(*since).unsigned_abs())
}

/// Waits for a task, and returns an error if the task fails.
pub(super) async fn succeed(ctx: &Context, job: Job, upid: &Upid, limit: Duration) -> Result<(), StepError> {
    match finish(ctx, job, upid, limit).await? {
        Exit::Ok | Exit::Warnings(_) => Ok(()),
        exit => Err(failed(job, upid, &exit)),
    }
}

/// Returns the error for a failed task. The error's kind determines whether the failure may be temporary.
pub(super) fn failed(job: Job, upid: &Upid, exit: &Exit) -> StepError {
    let text = match exit {
        Exit::Failed(text) => text.clone(),
        _ => "the task disappeared before it ended".to_owned(),
    };
    StepError::Proxmox(proxmox::Error {
        kind: exit.problem().unwrap_or(Kind::Other),
        call: format!("{} ({upid})", job.name),
        status: Some(500),
        text,
    })
}

/// Logs the warnings of a task. A task that ended with warnings has succeeded.
async fn warn(ctx: &Context, upid: &Upid) {
    match ctx.proxmox.task_log_tail(upid, 20).await {
        Ok(lines) => {
            let said: Vec<_> = lines.into_iter().filter(|line| line.contains("WARN")).collect();
            tracing::warn!(task = %upid, said = said.join("; "), "a task ended with warnings");
        }
        Err(error) => tracing::warn!(task = %upid, %error, "a task ended with warnings that cannot be read"),
    }
}
