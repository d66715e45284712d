//! When nodes stopped being ready. The time in a Node's status comes from the clock of
//! kube-controller-manager or of the node itself. The daemon therefore measures by the local clock how long a
//! node has been unready, and leaves out the time in which no instance was watching.

use jiff::Timestamp;

use super::facts::{
    node::{pool_of, ready},
    time::{moved, watched_since},
};
use super::removal_backoff::is_long_ago;
use model::Snapshot;
use model::node::Node;
use model::snapshot::{Memory, NodeMemory};
use settings::Config;

/// Records which nodes of pools are not ready, and forgets those that are gone. Returns whether anything
/// changed.
pub(super) fn notice(memory: &mut Memory, snapshot: &Snapshot) -> bool {
    let now = snapshot.time;
    let mut before = std::mem::take(&mut memory.nodes);
    let count = before.len();
    let mut changed = false;
    for node in &snapshot.nodes {
        let Some(pool) = pool_of(node) else { continue };
        let known = before.remove(&node.name);
        let had = known.is_some();
        let mut one = known.unwrap_or_default();
        // A recorded time in the future dates from before the clock was set back, so it is replaced.
        let since = (!ready(node)).then(|| one.unready_since.filter(|since| *since <= now).unwrap_or(now));
        changed |= one.unready_since != since;
        one.unready_since = since;
        one.removal_backoff = one.removal_backoff.filter(|last| !is_long_ago(last, now));
        if one == (NodeMemory { pool: one.pool.clone(), ..NodeMemory::default() }) {
            changed |= had;
            continue;
        }
        if one.pool != *pool {
            one.pool = pool.into();
        }
        memory.nodes.insert(node.name.clone(), one);
    }
    changed || count != memory.nodes.len()
}

/// Called at the end of a round. If no instance was watching for some time before the round, that time is not
/// counted for any unready node.
pub fn watched(memory: &mut Memory, config: &Config, now: Timestamp) {
    let last = memory.last_round;
    for since in memory.nodes.values_mut().filter_map(|node| node.unready_since.as_mut()) {
        *since = moved(*since, last, config, now);
    }
}

/// When a node stopped being ready: as the Node reports, but no earlier than an instance first saw it.
pub(super) fn since(snapshot: &Snapshot, config: &Config, node: &Node) -> Option<Timestamp> {
    let said = node.conditions.iter().find(|one| one.kind == "Ready")?.last_transition?;
    let seen = snapshot.memory.nodes.get(&node.name).and_then(|node| node.unready_since);
    let Some(seen) = seen.filter(|seen| *seen <= snapshot.time) else { return Some(said) };
    let seen = watched_since(snapshot, config, seen);
    // If the reported time is in the future, the Node's clock is ahead of the local one.
    Some(if said > snapshot.time { seen } else { seen.max(said) })
}
