//! Writes the statuses of CapacityBuffers and ProvisioningRequests, and limits how often each one is written.
//! Otherwise, a status might be written in every round, because the figures in its messages may change with
//! each observation of the hosts, or because the API server may keep refusing it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use super::Daemon;
use kubernetes::{Error, ErrorKind};
use model::condition::StatusCondition;
use observability::Problem;
use runtime::error_chain::chain;

/// How many statuses are written at a time.
const AT_A_TIME: usize = 8;
/// How long a round waits for the writes.
const WRITING: Duration = Duration::from_secs(3);
/// If only messages have changed, a status is not written until this time has passed since the last write.
const WORDS: Duration = Duration::from_mins(1);
/// The pause after the first refusal of a status, and the maximum pause. Each further refusal doubles the
/// pause.
const PAUSES: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(10));

/// When each object's status was last written, by the object's uid.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<BTreeMap<String, Last>>);

#[derive(Clone, Copy, Debug)]
struct Last {
    at: Instant,
    /// The pause before the next write, if the last one was refused.
    pause: Option<Duration>,
}

impl Written {
    /// Whether an object's status may be written now. `only_words` means that only the messages in the status
    /// have changed.
    pub fn may(&self, uid: &str, only_words: bool) -> bool {
        self.lock().get(uid).is_none_or(|last| match last.pause {
            Some(pause) => last.at.elapsed() >= pause,
            None => !only_words || last.at.elapsed() >= WORDS,
        })
    }

    /// Forgets all objects except those with these uids.
    pub fn keep(&self, uids: &BTreeSet<&str>) {
        self.lock().retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// Records the result of a write.
    fn note(&self, uid: &str, failure: Option<ErrorKind>) {
        let mut all = self.lock();
        let pause = match failure {
            None => None,
            Some(ErrorKind::Forbidden | ErrorKind::Unauthorized | ErrorKind::Invalid) => {
                let before = all.get(uid).and_then(|last| last.pause);
                Some(before.map_or(PAUSES.0, |before| (before * 2).min(PAUSES.1)))
            }
            Some(_) => return,
        };
        all.insert(uid.to_owned(), Last { at: Instant::now(), pause });
    }

    /// Whether there is an object whose last write was refused.
    fn has_refused(&self) -> bool {
        self.lock().values().any(|last| last.pause.is_some())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the conditions with empty messages.
pub(super) fn without_words(conditions: &[StatusCondition]) -> Vec<StatusCondition> {
    conditions.iter().map(|one| StatusCondition { message: String::new(), ..one.clone() }).collect()
}

impl Daemon {
    /// Writes statuses, each with the uid of its object. While one of them cannot be written, `problem` is
    /// reported.
    pub(super) async fn write_statuses<T, W: Future<Output = Result<(), Error>>>(
        &self,
        (problem, written): (&Problem, &Written),
        changes: Vec<(String, T)>,
        write: impl Fn(T) -> W,
    ) {
        let write = |(uid, change): (String, T)| {
            let going = write(change);
            async move {
                let failure = going.await.err();
                written.note(&uid, failure.as_ref().map(Error::kind));
                failure
            }
        };
        let all = futures::stream::iter(changes).map(write).buffer_unordered(AT_A_TIME);
        let Ok(outcomes) = tokio::time::timeout(WRITING, all.collect::<Vec<_>>()).await else {
            tracing::debug!(
                about = problem.about(),
                "not enough time to write all statuses; the next round continues"
            );
            return;
        };
        // A conflict or a missing object is not a problem, because the next round sees the change.
        let known = |kind: ErrorKind| matches!(kind, ErrorKind::Conflict | ErrorKind::NotFound);
        match outcomes.iter().flatten().find(|failure| !known(failure.kind())) {
            Some(failure) => self.board.problem(problem, &chain(failure)),
            // A refusal is reported as a problem until its pause is over.
            None if written.has_refused() => {}
            None => self.board.clear(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn minutes(minutes: u64) {
        tokio::time::sleep(Duration::from_mins(minutes)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn words_alone_wait_for_a_minute_and_a_refusal_for_longer_each_time() {
        let written = Written::default();
        assert!(written.may("a", true), "the status was never written");
        written.note("a", None);
        assert!(!written.may("a", true) && written.may("a", false) && written.may("b", true));
        minutes(1).await;
        assert!(written.may("a", true));
        for pause in [1, 2, 4, 8, 10, 10] {
            written.note("a", Some(ErrorKind::Forbidden));
            minutes(pause - 1).await;
            assert!(!written.may("a", false) && written.has_refused(), "{pause}");
            minutes(1).await;
            assert!(written.may("a", false), "{pause}");
        }
        // A temporary failure is retried in the next round. A success resets the pause to its initial length.
        written.note("a", Some(ErrorKind::Conflict));
        assert!(written.may("a", false));
        written.note("a", None);
        written.note("a", Some(ErrorKind::Invalid));
        minutes(1).await;
        assert!(written.may("a", false));
        written.keep(&BTreeSet::from(["b"]));
        assert!(!written.has_refused());
    }
}
