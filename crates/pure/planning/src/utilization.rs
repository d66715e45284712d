//! How full a node is: requested CPU or memory as a fraction of what the node offers, whichever is larger
//! (Cluster Autoscaler's formula).

use std::sync::Arc;

use jiff::Timestamp;

use super::facts::pod::{is_daemon, overdue};
use model::node::Node;
use model::pod::Pod;

/// A node's utilization; `None` if it does not report what it offers.
pub(super) fn node_utilization(
    node: &Node,
    pods: &[&Arc<Pod>],
    ignore_daemons: bool,
    now: Timestamp,
) -> Option<f64> {
    let offered = &node.allocatable;
    if offered.cpu_milli <= 0 || offered.memory <= 0 {
        return None;
    }
    let (mut cpu, mut memory) = ((0, offered.cpu_milli), (0, offered.memory));
    for pod in pods.iter().filter(|pod| !pod.is_finished() && !overdue(pod, now)) {
        let (used_cpu, used_memory) = (pod.requests.cpu_milli, pod.requests.memory);
        if ignore_daemons && is_daemon(pod) {
            cpu.1 -= used_cpu;
            memory.1 -= used_memory;
        } else {
            cpu.0 += used_cpu;
            memory.0 += used_memory;
        }
    }
    Some(ratio(cpu.0, cpu.1).max(ratio(memory.0, memory.1)))
}

/// If nothing is offered, a node without requests is empty, and one with requests is full.
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
