//! Calculations with times.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use model::Snapshot;
use settings::Config;

/// The time `wait` after `time`, or the last possible time if that is out of range.
pub(crate) fn after(time: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    time.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Returns the start of a timer, moved forward as described in [`crate::node_state::unneeded_since`].
pub(crate) fn watched_since(snapshot: &Snapshot, config: &Config, since: Timestamp) -> Timestamp {
    moved(since, snapshot.memory.last_round, config, snapshot.time)
}

/// Like [`watched_since`], with `last` as the time of the last round.
pub(crate) fn moved(since: Timestamp, last: Option<Timestamp>, config: &Config, now: Timestamp) -> Timestamp {
    let Some(last) = last.filter(|last| *last <= now) else { return since };
    let gap = now.duration_since(last);
    let usual = SignedDuration::try_from(config.scan_interval * 3).unwrap_or(SignedDuration::MAX);
    if gap > usual { since.saturating_add(gap).map_or(now, |moved| moved.min(now)) } else { since }
}

/// Whether a machine whose creation began at this time may still become a node that takes pods.
pub(crate) fn is_young(since: Timestamp, snapshot: &Snapshot, config: &Config) -> bool {
    snapshot.time.duration_since(since).unsigned_abs() < config.scale_up.max_node_provision_time
}
