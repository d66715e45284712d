//! The back-off after the removal of a node was given up: each further attempt waits longer. The obstacle may
//! last, and each attempt evicts the pods that have come to the node in the meantime.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::facts::{node::pool_of, time::after};
use model::Snapshot;
use model::node::Node;
use model::workload::Backoff;
use settings::Config;

/// The maximum back-off. A failure is forgotten this long after its back-off ends.
const LONGEST: Duration = Duration::from_hours(24);

/// The wait after a removal was given up. It is longer each time.
pub fn removal_given_up(before: Option<&Backoff>, why: &str, config: &Config, now: Timestamp) -> Backoff {
    let first = config.scale_down.delay_after_failure;
    let before = before.filter(|before| !is_long_ago(before, now));
    Backoff::next(before, why, (first, first.max(LONGEST)), now)
}

/// Returns the back-off after a host was emptied but could not be switched off. Without a back-off, machines
/// could be created and removed for nothing again and again.
pub fn emptied_in_vain(before: Option<&Backoff>, why: &str, config: &Config, now: Timestamp) -> Backoff {
    let first = config.power.idle_for.saturating_mul(2);
    let before = before.filter(|before| !is_long_ago(before, now));
    Backoff::next(before, why, (first, first.max(LONGEST)), now)
}

/// Whether a wait ended long enough ago for the next one to start with the initial length again.
pub(super) fn is_long_ago(backoff: &Backoff, now: Timestamp) -> bool {
    let longest = SignedDuration::try_from(LONGEST).unwrap_or(SignedDuration::MAX);
    now.duration_since(backoff.until) > longest
}

fn last<'s>(snapshot: &'s Snapshot, node: &Node) -> Option<&'s Backoff> {
    snapshot.memory.nodes.get(&node.name)?.removal_backoff.as_ref()
}

/// Whether a removal of the node was given up recently. If so, other nodes come first.
pub(super) fn was_given_up(snapshot: &Snapshot, node: &Node) -> bool {
    last(snapshot, node).is_some_and(|backoff| !is_long_ago(backoff, snapshot.time))
}

/// Why no removal of the node begins now. `None`: no wait is running.
pub(super) fn rests(snapshot: &Snapshot, node: &Node) -> Option<String> {
    let backoff = last(snapshot, node).filter(|backoff| backoff.runs(snapshot.time))?;
    Some(backoff_text(backoff.until, backoff))
}

/// Why a removal that an administrator requested does not begin now. Such a removal never waits longer than
/// after the first failure. `None`: no wait is running.
pub fn wish_rests(snapshot: &Snapshot, config: &Config, node: &Node) -> Option<String> {
    let backoff = last(snapshot, node).filter(|backoff| backoff.runs(snapshot.time))?;
    let failed = snapshot.memory.pools.get(pool_of(node)?)?.last_removal_failure?;
    let until = after(failed, config.scale_down.delay_after_failure).min(backoff.until);
    (until > snapshot.time).then(|| backoff_text(until, backoff))
}

fn backoff_text(until: Timestamp, backoff: &Backoff) -> String {
    format!(
        "the next attempt to remove it waits until {until}, because the last one was abandoned: {}",
        backoff.reason
    )
}
