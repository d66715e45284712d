//! The cost of the queries to a world.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::pod::Pod;

/// The cost of running all filters for a pod on a node: ten times the cost of looking only at the node's free
/// resources.
const CHECK: u64 = 10;
/// The additional cost of a check for each expression in the pod's node affinity.
pub const EXPRESSION: usize = 12;
/// The cost of placing or removing a pod that requires something of other pods. The counts must then be
/// updated.
pub(super) const SOCIAL: u64 = 100;
/// The cost of preparing a pod.
const PREPARATION: u64 = 20;

/// The total cost of the queries to a world and to all its forks. The same queries cost the same on every
/// computer. Only one thread at a time may query.
#[derive(Clone, Debug, Default)]
pub struct Effort(Arc<AtomicU64>);

impl Effort {
    /// Adds this many units to the total cost.
    #[inline]
    pub fn add(&self, units: u64) {
        self.0.store(self.spent().saturating_add(units), Ordering::Relaxed);
    }

    /// The units spent so far.
    #[inline]
    pub fn spent(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The cost of each query about a pod. The more the pod requires, the higher the cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    pub check: u64,
    pub preparation: u64,
}

impl Price {
    pub fn of(pod: &Pod, nodes: usize) -> Self {
        let terms = pod.affinity.node.iter().flat_map(|node| &node.terms);
        let expressions: usize = terms.map(|term| term.match_expressions.len()).sum();
        let others = pod.affinity.pods.len() + pod.affinity.anti.len() + pod.spread.len();
        let units = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self {
            check: CHECK + units(EXPRESSION * expressions + others),
            // Preparing a pod with topology spread visits every node that counts for the spread.
            preparation: PREPARATION + units(10 * others + pod.spread.len() * nodes / 2),
        }
    }
}
