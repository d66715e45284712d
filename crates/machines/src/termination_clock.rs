//! Measures how long pods have been terminating, by the time that has passed on this host. A pod's deadline
//! comes from the API server's clock, from which this host's clock may differ by minutes, or by hours if its
//! hardware clock is set to local time. If this host's clock were ahead and the deadlines were used directly,
//! each pod would seem overdue, and the daemon would not wait until the pod has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use tokio::time::Instant;

use model::Snapshot;
use model::pod::{Deletion, Pod};

/// If a pod was already being deleted when the daemon first saw it, and it was overdue by more than this, the
/// pod is assumed never to end. Clocks are assumed to be wrong by less than this.
const LONG_AGO: SignedDuration = SignedDuration::from_mins(15);

/// The pods of one node that is being drained, by their uids.
#[derive(Debug, Default)]
pub(super) struct TerminationClock {
    /// Pods that were seen before their deletion.
    standing: BTreeSet<String>,
    /// Pods that are being deleted, with the time at which the deletion was first seen.
    began: BTreeMap<String, Instant>,
}

impl TerminationClock {
    /// Rewrites the deadlines of a node's terminating pods to match the clock of the snapshot.
    pub fn restate(&mut self, snapshot: &mut Snapshot, node: &str) {
        let now = snapshot.time;
        for pod in snapshot.pods.iter_mut().filter(|pod| pod.node.as_deref() == Some(node)) {
            let Some(deletion) = pod.deletion else {
                self.standing.insert(pod.uid.clone());
                continue;
            };
            let grace = SignedDuration::from_secs(deletion.grace_seconds.unwrap_or(pod.grace_seconds));
            let Some(began) = self.began(pod, now.duration_since(deletion.at)) else { continue };
            let passed = SignedDuration::try_from(began.elapsed()).unwrap_or(SignedDuration::MAX);
            let at = now.saturating_add(grace.saturating_sub(passed)).unwrap_or(deletion.at);
            let deletion = Deletion { at, ..deletion };
            Arc::make_mut(pod).deletion = Some(deletion);
        }
    }

    /// Returns when this pod was first seen terminating. Returns `None` if the pod was already long overdue
    /// when it was first seen.
    fn began(&mut self, pod: &Pod, over: SignedDuration) -> Option<Instant> {
        if let Some(began) = self.began.get(&pod.uid) {
            return Some(*began);
        }
        if over > LONG_AGO && !self.standing.contains(&pod.uid) {
            return None;
        }
        let now = Instant::now();
        self.began.insert(pod.uid.clone(), now);
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;

    const GRACE: i64 = 60;

    /// A snapshot with one pod on the node `n`. If `end` is set, the pod is being deleted, and its deadline
    /// is `end` seconds from `now`, by the API server's clock.
    fn seen(now: Timestamp, end: Option<i64>) -> Snapshot {
        let deletion = end.map(|seconds| Deletion {
            at: now + SignedDuration::from_secs(seconds),
            grace_seconds: Some(GRACE),
        });
        let pod = Pod { uid: "one".to_owned(), node: Some("n".to_owned()), deletion, ..Pod::default() };
        Snapshot { time: now, pods: vec![Arc::new(pod)], ..Snapshot::default() }
    }

    fn left(snapshot: &Snapshot) -> i64 {
        let deletion = snapshot.pods[0].deletion.unwrap();
        deletion.at.duration_since(snapshot.time).as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn ends_are_counted_from_when_they_were_seen_to_begin() {
        for (stands_first, stated, expected) in [
            (true, 60, 50),
            (true, -7200, 50),
            (true, 7200, 50),
            (false, 60, 50),
            (false, -600, 50),
            // The pod has been overdue for longer than a clock's error is likely to be.
            (false, -901, -901),
        ] {
            let mut endings = TerminationClock::default();
            let now: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
            if stands_first {
                endings.restate(&mut seen(now, None), "n");
            }
            endings.restate(&mut seen(now, Some(stated)), "n");
            tokio::time::sleep(Duration::from_secs(10)).await;
            // The clock was changed in the meantime.
            let mut later = seen(now + SignedDuration::from_hours(1), Some(stated));
            endings.restate(&mut later, "n");
            assert_eq!(left(&later), expected, "{stands_first} {stated}");
            let mut elsewhere = seen(now, Some(stated));
            endings.restate(&mut elsewhere, "another");
            assert_eq!(left(&elsewhere), stated);
        }
    }
}
