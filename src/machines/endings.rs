//! Since when pods are on their way out, by the time that has passed here. Until when one may take is written by the clock of the API
//! server; that of this host may be wrong by minutes, or hours where its hardware clock is in local time. One that is ahead would
//! take each pod for one that should have ended long ago, whose end nobody waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use tokio::time::Instant;

use crate::model::Snapshot;
use crate::model::pod::{Deletion, Pod};

/// A pod whose time was over so long ago when it was first seen does not end any more, however wrong the clock may be.
const LONG_AGO: SignedDuration = SignedDuration::from_mins(15);

/// The pods of one node that is being drained, by their uids.
#[derive(Debug, Default)]
pub(super) struct Endings {
    /// Seen before they were deleted.
    standing: BTreeSet<String>,
    /// Seen to be deleted, since when.
    began: BTreeMap<String, Instant>,
}

impl Endings {
    /// Says of the pods of a node when their time is over, by the clock that the snapshot's time is from.
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

    /// When this pod that is deleted began to end; `None` where that was long before anybody looked.
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
