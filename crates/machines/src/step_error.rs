//! The errors of a step, which of them are temporary, and how long they are retried.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use model::Vmid;
use runtime::boxed;
use thiserror::Error;
use tokio::time::Instant;

use bootstrap::SshError;
use kubernetes::{ErrorKind, RecordError};
use proxmox::{Kind, Meaning, redfish};
use runtime::error_chain::chain;

/// What should back off after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackoffTarget {
    /// The pool, because its template, its settings or its guests are the cause.
    Pool,
    /// The host.
    Host,
    /// The host lacks something that the pool's settings need, such as a bridge or room. At first the host is
    /// to blame; if the same failure occurs on another host, the pool is to blame.
    HostOrPool,
    /// Neither the pool nor a host is to blame: for example, an administrator caused the failure.
    Other,
}

/// Why a step was not completed.
#[derive(Debug, Error)]
pub enum StepError {
    /// Proxmox VE refused, or could not be reached within the limit.
    #[error("{0}")]
    Proxmox(#[source] proxmox::Error),
    /// Kubernetes refused, or could not be reached within the limit.
    #[error("{}", chain(.0))]
    Kubernetes(#[source] kubernetes::Error),
    /// A control plane node did not create or delete a bootstrap token within the limit.
    #[error("{}", chain(.0))]
    Ssh(#[source] SshError),
    /// Another client, perhaps another instance of the daemon, has changed the record. Nothing more may be
    /// done for the machine.
    #[error("the record of `{0}` was changed by another client")]
    RecordLost(String),
    /// The VMID is taken by a VM that is not ours.
    #[error("VMID {vmid} belongs to another VM: {what}")]
    Foreign {
        /// The VMID.
        vmid: Vmid,
        /// What is known about the other VM, in words.
        what: String,
    },
    /// A management controller refused, or could not be reached within the limit.
    #[error("{}", chain(.0))]
    Redfish(#[source] redfish::Error),
    /// The bare-metal machine cannot be used now, for example because another client is using it.
    #[error("{what}")]
    Taken {
        /// Why the machine cannot be used, in words.
        what: String,
    },
    /// The time limit of the step has passed.
    #[error("{what} took longer than {}", time_text(*.limit))]
    Limit {
        /// What took longer than the limit, in words.
        what: String,
        /// The limit.
        limit: Duration,
        /// What is to blame.
        blame: BackoffTarget,
    },
    /// The step failed permanently.
    #[error("{what}")]
    Failed {
        /// What failed, in words.
        what: String,
        /// What is to blame.
        blame: BackoffTarget,
    },
    /// Only an administrator can fix the problem, with this command.
    #[error("{what}; to fix it: {command}")]
    Administrator {
        /// What is wrong.
        what: String,
        /// The command, and where to run it.
        command: String,
    },
}

impl StepError {
    /// A failure that the pool is to blame for.
    pub(super) fn pool(what: impl Into<String>) -> Self {
        Self::Failed { what: what.into(), blame: BackoffTarget::Pool }
    }

    /// What should back off for a while.
    pub fn blame(&self) -> BackoffTarget {
        match self {
            Self::Limit { blame, .. } | Self::Failed { blame, .. } => blame.clone(),
            Self::Proxmox(error) => match (error.kind, error.meaning()) {
                (Kind::Fenced | Kind::NoQuorum | Kind::Changed | Kind::Locked, _) => BackoffTarget::Other,
                (_, Some(Meaning::Pool | Meaning::Template | Meaning::Right) | None) => BackoffTarget::Pool,
                (_, Some(Meaning::Host | Meaning::NotSeen | Meaning::Storage)) => BackoffTarget::HostOrPool,
                (_, Some(Meaning::Passes | Meaning::Full)) => BackoffTarget::Host,
            },
            // A permanent SSH error means that the settings are wrong, so it would recur with the next
            // machine.
            Self::Ssh(error) if !error.passes() => BackoffTarget::Pool,
            Self::Redfish(error) if error.kind != redfish::Kind::Fenced => BackoffTarget::Host,
            Self::Redfish(_)
            | Self::Taken { .. }
            | Self::Ssh(_)
            | Self::Kubernetes(_)
            | Self::RecordLost(_)
            | Self::Foreign { .. }
            | Self::Administrator { .. } => BackoffTarget::Other,
        }
    }

    /// Whether a call failed but may have been carried out, in part or completely.
    pub(super) fn leaves_doubt(&self) -> bool {
        let Self::Proxmox(error) = self else { return false };
        // Without a status, there was no connection, so nothing was sent.
        error.kind == Kind::OutcomeUnknown || (error.kind == Kind::HostUnreachable && error.status.is_some())
    }

    /// Whether a host cannot see a volume that another host may have created a moment ago.
    fn is_unseen(&self) -> bool {
        matches!(self, Self::Proxmox(error) if error.meaning() == Some(Meaning::NotSeen))
    }

    /// Whether the error may be temporary.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Proxmox(error) => {
                matches!(
                    error.kind,
                    Kind::HostUnreachable
                        | Kind::OutcomeUnknown
                        | Kind::Busy
                        | Kind::NoQuorum
                        | Kind::Changed
                        | Kind::Unauthorized
                ) || error.meaning() == Some(Meaning::Passes)
            }
            Self::Kubernetes(error) => matches!(
                error.kind(),
                ErrorKind::Unreachable
                    | ErrorKind::Unavailable
                    | ErrorKind::Timeout
                    | ErrorKind::TooManyRequests
                    | ErrorKind::Conflict
                    | ErrorKind::Unauthorized
                    | ErrorKind::Forbidden
            ),
            Self::Ssh(error) => error.passes(),
            // A busy controller refuses requests. Some controllers list only the requests that they accept at
            // that moment, so a request that seems unsupported may be accepted later.
            Self::Redfish(error) => matches!(
                error.kind,
                redfish::Kind::Unreachable
                    | redfish::Kind::OutcomeUnknown
                    | redfish::Kind::Refused
                    | redfish::Kind::Unsupported
            ),
            _ => false,
        }
    }
}

impl From<proxmox::Error> for StepError {
    fn from(error: proxmox::Error) -> Self {
        Self::Proxmox(error)
    }
}

impl From<redfish::Error> for StepError {
    fn from(error: redfish::Error) -> Self {
        Self::Redfish(error)
    }
}

impl From<kubernetes::Error> for StepError {
    fn from(error: kubernetes::Error) -> Self {
        Self::Kubernetes(error)
    }
}

impl From<SshError> for StepError {
    fn from(error: SshError) -> Self {
        Self::Ssh(error)
    }
}

impl From<RecordError> for StepError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::SlotTaken { vmid, .. } => {
                Self::Foreign { vmid, what: "another machine's record holds the slot".to_owned() }
            }
            RecordError::Changed { name } => Self::RecordLost(name),
            RecordError::Kubernetes { source, .. } => Self::Kubernetes(source),
        }
    }
}

/// A duration as text: `90 s`, `5 min`.
pub(super) fn time_text(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 120 && seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{seconds} s")
    }
}

/// How long it may take until a host sees a volume that another host has created: NFS clients cache the
/// absence of a file for up to a minute (`acdirmax`).
const APPEARS: Duration = Duration::from_mins(1);

/// Retries with increasing pauses, until a limit is reached.
pub(super) struct Tries {
    began: Instant,
    end: Instant,
    pauses: ExponentialBackoff,
}

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

impl Tries {
    /// Allows attempts for at most `limit`. The jitter of the pauses between them depends on `seed`.
    pub fn new(limit: Duration, seed: u64) -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(250))
            .with_max_delay(LONGEST_PAUSE)
            .with_factor(2.0)
            .with_jitter()
            .with_jitter_seed(seed)
            .without_max_times()
            .build();
        let began = Instant::now();
        Self { began, end: began + limit, pauses }
    }

    /// Waits for the next try, if the error may be temporary and there is time left.
    ///
    /// # Errors
    /// Returns the error if there is no next try.
    #[boxed]
    pub async fn again(&mut self, trouble: StepError) -> Result<(), StepError> {
        let pause = self.pauses.next().unwrap_or(LONGEST_PAUSE);
        let next = Instant::now() + pause;
        let appears = trouble.is_unseen() && next <= self.began + APPEARS;
        if !(trouble.passes() || appears) || next > self.end {
            return Err(trouble);
        }
        tracing::debug!(error = %trouble, ?pause, "trying again");
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// A future that repeats an attempt until it succeeds or fails permanently, or until the limit has passed.
/// The attempt must be safe to repeat.
macro_rules! retry_until {
    ($limit:expr, $seed:expr, $attempt:expr) => {
        async {
            let mut tries = $crate::step_error::Tries::new($limit, $seed);
            loop {
                let attempt: Result<_, $crate::step_error::StepError> = async { $attempt }.await;
                match attempt {
                    Ok(done) => break Ok(done),
                    Err(trouble) => {
                        if let Err(trouble) = tries.again(trouble).await {
                            break Err(trouble);
                        }
                    }
                }
            }
        }
    };
}
pub(super) use retry_until;

/// Runs a step within its limit.
pub(super) async fn within<T>(
    limit: Duration,
    what: &str,
    step: impl Future<Output = Result<T, StepError>>,
) -> Result<T, StepError> {
    let over = || StepError::Limit { what: what.to_owned(), limit, blame: BackoffTarget::Host };
    tokio::time::timeout(limit, step).await.unwrap_or_else(|_| Err(over()))
}

pub(super) fn no_pool(name: &str) -> StepError {
    let what = format!("pool `{name}` is no longer in the configuration");
    StepError::Failed { what, blame: BackoffTarget::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> StepError {
        StepError::Proxmox(proxmox::Error {
            kind: Kind::HostUnreachable,
            call: "GET /x".to_owned(),
            status: Some(595),
            text: "no route".to_owned(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_tried_again_until_the_limit_and_no_longer() {
        let mut left = 3;
        let done = retry_until!(Duration::from_mins(1), 1, {
            left -= 1;
            if left == 0 { Ok(7) } else { Err(unreachable()) }
        });
        assert_eq!(done.await.unwrap(), 7);

        let started = Instant::now();
        let failed = retry_until!(Duration::from_mins(1), 1, Err::<(), _>(unreachable())).await;
        assert!(matches!(failed, Err(StepError::Proxmox(_))));
        assert!(started.elapsed() <= Duration::from_mins(1));
        assert!(started.elapsed() > Duration::from_secs(30));
    }

    fn said(text: &str) -> StepError {
        let (call, text) = ("the resize".to_owned(), text.to_owned());
        StepError::Proxmox(proxmox::Error { kind: Kind::NotFound, call, status: Some(500), text })
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_that_is_not_seen_is_waited_for_a_minute_and_is_the_hosts_then() {
        let text = "volume 'nfs:101/vm-101-disk-0.raw' does not exist";
        let started = Instant::now();
        let failed = retry_until!(Duration::from_mins(5), 1, Err::<(), _>(said(text))).await.unwrap_err();
        let took = started.elapsed();
        assert!(took > Duration::from_secs(30) && took <= APPEARS, "{took:?}");
        assert_eq!(failed.blame(), BackoffTarget::HostOrPool);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_waited_for_until_the_limit_and_is_no_fault_of_a_pool_then() {
        let text = "VM is locked (backup)".to_owned();
        let locked = || {
            let call = "POST /nodes/pve1/qemu/9000/clone".to_owned();
            StepError::Proxmox(proxmox::Error {
                kind: Kind::Locked,
                call,
                status: Some(500),
                text: text.clone(),
            })
        };
        let started = Instant::now();
        let failed = retry_until!(Duration::from_mins(5), 1, Err::<(), _>(locked())).await.unwrap_err();
        assert!(started.elapsed() > Duration::from_mins(4));
        assert_eq!(failed.blame(), BackoffTarget::Other);
    }

    #[test]
    fn who_is_left_alone_is_told_by_the_text() {
        for (text, blame) in [
            ("storage 'nfs' is not online", BackoffTarget::HostOrPool),
            ("start failed: QEMU exited with code 1", BackoffTarget::HostOrPool),
            ("unable to create image: No space left on device", BackoffTarget::Host),
            ("storage 'old' does not exist", BackoffTarget::Pool),
            ("can't clone VM to node 'pve2' (VM uses local storage)", BackoffTarget::Pool),
            ("something new", BackoffTarget::Pool),
        ] {
            assert_eq!(said(text).blame(), blame, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_pass_ends_at_once() {
        let mut tries = 0;
        let failed = retry_until!(Duration::from_mins(1), 1, {
            tries += 1;
            Err::<(), _>(StepError::pool("no such template"))
        });
        assert!(failed.await.is_err());
        assert_eq!(tries, 1);
    }
}
