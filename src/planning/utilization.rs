//! How full a node is: the larger of requested CPU and memory, in parts of what it offers (Cluster Autoscaler's formula).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::pending::is_daemon;
use crate::model::node::Node;
use crate::model::pod::{Pod, PodPhase};

/// A node's utilization; `None` where it says nothing of what it offers.
pub(super) fn of(node: &Node, pods: &[&Arc<Pod>], ignore_daemons: bool, now: Timestamp) -> Option<f64> {
    let counted = || {
        pods.iter()
            .filter(|pod| !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed) && !overdue(pod, now))
    };
    let part = |offered: i64, of: fn(&Pod) -> i64| {
        if offered <= 0 {
            return None;
        }
        let daemons: i64 =
            if ignore_daemons { counted().filter(|pod| is_daemon(pod)).map(|pod| of(pod)).sum() } else { 0 };
        let used: i64 = counted().map(|pod| of(pod)).sum::<i64>() - daemons;
        Some(ratio(used, offered - daemons))
    };
    let cpu = part(node.allocatable.cpu_milli, |pod| pod.requests.cpu_milli)?;
    let memory = part(node.allocatable.memory, |pod| pod.requests.memory)?;
    Some(cpu.max(memory))
}

/// Nothing requested of nothing is empty; something of nothing is full.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no exact bytes")]
fn ratio(used: i64, offered: i64) -> f64 {
    match (used, offered) {
        (0, _) => 0.0,
        (_, offered) if offered <= 0 => 1.0,
        (used, offered) => used as f64 / offered as f64,
    }
}

/// Rounded to the four digits that a plan shows.
pub(super) fn rounded(utilization: f64) -> f64 {
    (utilization * 10_000.0).round() / 10_000.0
}

/// A pod that should have ended more than 30 s ago counts for nothing.
pub(super) fn overdue(pod: &Pod, now: Timestamp) -> bool {
    let Some(deletion) = &pod.deletion else { return false };
    let grace = SignedDuration::from_secs(pod.grace_seconds.saturating_add(30));
    deletion.at.saturating_add(grace).is_ok_and(|end| end < now)
}
