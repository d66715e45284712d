//! How full a node is: requested CPU or memory as a fraction of what the node offers, whichever is larger
//! (Cluster Autoscaler's formula).

use std::sync::Arc;

use jiff::Timestamp;

use super::facts::pod::{is_daemon, overdue};
use model::node::Node;
use model::pod::Pod;

/// The CPU, in thousandths of a core, and the memory, in bytes, that the pods of a node request.
#[derive(Debug, Default)]
pub(super) struct Requested {
    /// Pods of DaemonSets.
    daemons: (i64, i64),
    others: (i64, i64),
    /// Pods that are being deleted. They are in neither `daemons` nor `others`, because a pod no longer
    /// counts once its deletion is overdue, which depends on the time.
    leaving: Vec<Arc<Pod>>,
}

impl Requested {
    /// Adds up what these pods request.
    pub(super) fn by(pods: &[Arc<Pod>]) -> Self {
        let mut requested = Self::default();
        for pod in pods.iter().filter(|pod| !pod.is_finished()) {
            if pod.deletion.is_some() {
                requested.leaving.push(pod.clone());
            } else {
                requested.add(pod);
            }
        }
        requested
    }

    fn add(&mut self, pod: &Pod) {
        let sum = if is_daemon(pod) { &mut self.daemons } else { &mut self.others };
        sum.0 += pod.requests.cpu_milli;
        sum.1 += pod.requests.memory;
    }

    /// What DaemonSet pods request at this time, and what all other pods request.
    fn at(&self, now: Timestamp) -> [(i64, i64); 2] {
        let mut sums = Self { daemons: self.daemons, others: self.others, leaving: Vec::new() };
        self.leaving.iter().filter(|pod| !overdue(pod, now)).for_each(|pod| sums.add(pod));
        [sums.daemons, sums.others]
    }
}

/// Returns a node's utilization, or `None` if the node does not report how much CPU and memory it offers.
pub(super) fn node_utilization(
    node: &Node,
    requested: &Requested,
    ignore_daemons: bool,
    now: Timestamp,
) -> Option<f64> {
    let offered = (node.allocatable.cpu_milli, node.allocatable.memory);
    if offered.0 <= 0 || offered.1 <= 0 {
        return None;
    }
    let [daemons, others] = requested.at(now);
    let (used, offered) = if ignore_daemons {
        (others, (offered.0 - daemons.0, offered.1 - daemons.1))
    } else {
        ((others.0 + daemons.0, others.1 + daemons.1), offered)
    };
    Some(ratio(used.0, offered.0).max(ratio(used.1, offered.1)))
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

/// The utilization, rounded to the four decimal places that a plan shows.
pub(super) fn rounded(utilization: f64) -> f64 {
    (utilization * 10_000.0).round() / 10_000.0
}
