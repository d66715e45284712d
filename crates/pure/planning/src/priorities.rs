//! Pod priorities, and which pods are expendable.

use model::Snapshot;
use model::pod::Pod;
use settings::Config;

/// Pod priorities, and which pods are expendable.
pub(super) struct Priorities<'a> {
    all: scheduling::Priorities<'a>,
    cutoff: i32,
}

impl<'a> Priorities<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, config: &Config) -> Self {
        let all = scheduling::Priorities::new(snapshot);
        Self { all, cutoff: config.scale_up.expendable_pods_priority_cutoff }
    }

    /// The pod's priority, or 0 if neither the pod nor a PriorityClass sets one.
    pub(super) fn of(&self, pod: &Pod) -> i32 {
        self.all.of(pod)
    }

    /// Whether the pod's priority is below the cut-off. A pod without a priority is never expendable (Cluster
    /// Autoscaler's rule).
    pub(super) fn expendable(&self, pod: &Pod) -> bool {
        self.all.given(pod).is_some_and(|priority| priority < self.cutoff)
    }
}
