//! Reads the status of tasks, and waits until they end. A call that starts a task returns the task's id. The
//! host that runs the task reports the status for this id.

use std::time::Duration;

use runtime::boxed;
use thiserror::Error as ThisError;
use tokio::time::Instant;

use super::answer::text_of;
use super::client::{Client, Lane, encode};
use super::error::{self, Error, Kind};
use super::upid::Upid;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It succeeded.
    Ok,
    /// The task succeeded with this many warnings, which are in its log.
    Warnings(u32),
    /// The task's worker vanished (killed, host rebooted), so its result is unknown.
    Unknown,
    /// The task failed with this text.
    Failed(String),
}

impl Exit {
    pub(super) fn read(text: &str) -> Self {
        let warnings = text.strip_prefix("WARNINGS: ").and_then(|count| count.parse().ok());
        match (text, warnings) {
            ("OK", _) => Self::Ok,
            (_, Some(count)) => Self::Warnings(count),
            ("unexpected status", _) => Self::Unknown,
            (text, _) if text.starts_with("unable to get last line") || text.is_empty() => Self::Unknown,
            (text, _) => Self::Failed(text.to_owned()),
        }
    }

    /// Whether the task succeeded, with or without warnings.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Ok | Self::Warnings(_))
    }

    /// The kind of the failure, which determines what a caller can do about it; `None` if the task succeeded.
    pub fn problem(&self) -> Option<Kind> {
        match self {
            Self::Ok | Self::Warnings(_) => None,
            Self::Unknown => Some(Kind::OutcomeUnknown),
            Self::Failed(text) => Some(error::classify(500, text)),
        }
    }
}

/// The status of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// It is running.
    Running,
    /// It ended.
    Ended(Exit),
}

/// Why waiting for a task failed.
#[derive(Debug, ThisError)]
pub enum WaitError {
    /// The time limit was reached. The task may still be running.
    #[error("task {0} is still running after {1:?}")]
    Limit(Upid, Duration),
    /// The task's status cannot be read.
    #[error("the status of task {0} cannot be read")]
    Call(Upid, #[source] Error),
}

impl Client {
    /// The status of a task.
    #[boxed]
    pub async fn task_status(&self, upid: &Upid) -> Result<TaskStatus, Error> {
        let path = format!("/nodes/{}/tasks/{}/status", encode(upid.node()), encode(upid.as_str()));
        let data = self.get(Lane::Lifecycle(upid.node()), &path, &[]).await?;
        Ok(match text_of(&data, "status").as_deref() {
            Some("stopped") => {
                TaskStatus::Ended(Exit::read(&text_of(&data, "exitstatus").unwrap_or_default()))
            }
            _ => TaskStatus::Running,
        })
    }

    /// The last lines of a task's log, at most `lines`.
    #[boxed]
    pub async fn task_log_tail(&self, upid: &Upid, lines: usize) -> Result<Vec<String>, Error> {
        let path = format!("/nodes/{}/tasks/{}/log", encode(upid.node()), encode(upid.as_str()));
        let data = self.get(Lane::Lifecycle(upid.node()), &path, &[("limit", "0".to_owned())]).await?;
        let all: Vec<_> =
            data.as_array().into_iter().flatten().filter_map(|line| text_of(line, "t")).collect();
        Ok(all[all.len().saturating_sub(lines)..].to_vec())
    }

    /// Waits until a task has ended. Checks immediately, and again after a pause of `poll`. Each further
    /// pause is 1.5 times as long as the previous one, up to five times `poll`. If the host temporarily does
    /// not answer, the wait continues.
    #[boxed]
    pub async fn wait_task(&self, upid: &Upid, limit: Duration, poll: Duration) -> Result<Exit, WaitError> {
        let started = Instant::now();
        let mut pause = poll;
        loop {
            match self.task_status(upid).await {
                Ok(TaskStatus::Ended(exit)) => return Ok(exit),
                Ok(TaskStatus::Running) => {}
                Err(error) if passes(error.kind) => {}
                Err(error) => return Err(WaitError::Call(upid.clone(), error)),
            }
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(WaitError::Limit(upid.clone(), limit));
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 3 / 2).min(poll * 5);
        }
    }
}

/// Whether a failure to read a task's status may be temporary.
fn passes(kind: Kind) -> bool {
    matches!(kind, Kind::HostUnreachable | Kind::OutcomeUnknown | Kind::Busy | Kind::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let cases = [
            ("OK", Exit::Ok, None),
            ("WARNINGS: 2", Exit::Warnings(2), None),
            ("unexpected status", Exit::Unknown, Some(Kind::OutcomeUnknown)),
            ("", Exit::Unknown, Some(Kind::OutcomeUnknown)),
            ("VM 112 already running", Exit::Failed("VM 112 already running".to_owned()), Some(Kind::Other)),
            (
                "can't lock file '/var/lock/x' - got timeout",
                Exit::Failed("can't lock file '/var/lock/x' - got timeout".to_owned()),
                Some(Kind::Busy),
            ),
        ];
        for (text, exit, problem) in cases {
            assert_eq!(Exit::read(text), exit);
            assert_eq!(exit.problem(), problem, "{text}");
            assert_eq!(exit.is_success(), problem.is_none());
        }
    }
}
