//! `[scale_down]`: when and how nodes are removed. Settings that also exist in Cluster Autoscaler use its
//! defaults, except for `max_parallel_drains`.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// Checked `[scale_down]`.
#[derive(Clone, Debug)]
pub struct ScaleDown {
    /// Whether nodes are removed at all.
    pub enabled: bool,
    /// A node is a candidate for removal if its utilization (0 to 1) is at or below this value.
    pub utilization_threshold: f64,
    /// How long a node must have been unneeded before it is removed.
    pub unneeded_time: Duration,
    /// How long a node must have been unready before it is removed.
    pub unready_time: Duration,
    /// How long removals from a pool pause after a node was added to it.
    pub delay_after_add: Duration,
    /// How long removals from a pool pause after a removal.
    pub delay_after_delete: Duration,
    /// How long removals from a pool pause after a failed removal.
    pub delay_after_failure: Duration,
    /// How long removals from a pool pause after any addition or removal.
    pub stabilization_window: Duration,
    /// Whether nodes above the utilization threshold are also removed if their pods fit elsewhere, and
    /// whether nodes are replaced by fewer or smaller ones.
    pub consolidation: bool,
    /// Whether DaemonSet pods are left out when the utilization is computed.
    pub ignore_daemonsets_utilization: bool,
    /// Whether a node is kept if it runs a pod with local storage.
    pub skip_nodes_with_local_storage: bool,
    /// Whether a node is kept if it runs a kube-system pod that is younger than an hour and is not covered by
    /// a disruption budget.
    pub skip_nodes_with_system_pods: bool,
    /// Whether a node is kept if it runs a pod whose controller does not exist or is of an unknown kind.
    pub skip_nodes_with_custom_controller_pods: bool,
    /// Maximum number of nodes that are drained at a time, across all pools. Nodes without pods to move do
    /// not count.
    pub max_parallel_drains: usize,
    /// The priorities that divide a node's pods into groups, in ascending order. Each value is the lowest
    /// priority of a group. Pods below the first value form the first group. A group is evicted once the
    /// previous group is gone.
    pub drain_priorities: Vec<i32>,
    /// Maximum number of removals within any hour, across all pools. It limits the damage that a mistake can
    /// do. `None` means no limit. This value is only used in simulations, and cannot be set in a file.
    pub max_removals_per_hour: Option<u32>,
    /// Maximum percentage of a pool's nodes that are removed at a time. At least one node may always be
    /// removed.
    pub max_removal_percentage: f64,
}

impl ScaleDown {
    /// Returns how many of a pool's nodes may be removed at a time.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the node count, rounded down"
    )]
    pub fn most_at_once(&self, nodes: usize) -> usize {
        ((nodes as f64 * self.max_removal_percentage / 100.0) as usize).max(1)
    }
}

/// The priority of Kubernetes' built-in class `system-cluster-critical`.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;

fn drain_priorities(written: Option<&Spanned<Vec<i32>>>, checker: &mut Checker) -> Vec<i32> {
    let Some(written) = written else { return vec![SYSTEM_CRITICAL] };
    let priorities = written.get_ref();
    if !priorities.is_sorted_by(|a, b| a < b) {
        let title = "`drain_priorities` are not in ascending order".to_owned();
        checker.wrong(title, written.span(), "each must be greater than the one before", "");
    }
    priorities.clone()
}

/// `[scale_down]` as written in the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    enabled: Option<bool>,
    utilization_threshold: Option<Spanned<f64>>,
    unneeded_time: Option<Spanned<String>>,
    unready_time: Option<Spanned<String>>,
    delay_after_add: Option<Spanned<String>>,
    delay_after_delete: Option<Spanned<String>>,
    delay_after_failure: Option<Spanned<String>>,
    stabilization_window: Option<Spanned<String>>,
    consolidation: Option<bool>,
    ignore_daemonsets_utilization: Option<bool>,
    skip_nodes_with_local_storage: Option<bool>,
    skip_nodes_with_system_pods: Option<bool>,
    skip_nodes_with_custom_controller_pods: Option<bool>,
    max_parallel_drains: Option<Spanned<usize>>,
    drain_priorities: Option<Spanned<Vec<i32>>>,
    max_removals_per_hour: Option<Spanned<u32>>,
    max_removal_percentage: Option<Spanned<f64>>,
}

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> ScaleDown {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let mut duration = |key: &str, written: &Option<Spanned<String>>, default: Duration| {
            checker.duration(key, written.as_ref(), default)
        };
        let unneeded_time = duration("unneeded_time", &self.unneeded_time, minutes(10));
        let unready_time = duration("unready_time", &self.unready_time, minutes(20));
        let delay_after_add = duration("delay_after_add", &self.delay_after_add, minutes(10));
        let delay_after_delete = duration("delay_after_delete", &self.delay_after_delete, Duration::ZERO);
        let delay_after_failure = duration("delay_after_failure", &self.delay_after_failure, minutes(3));
        let stabilization_window =
            duration("stabilization_window", &self.stabilization_window, Duration::ZERO);
        let off = "to switch removals off, set `enabled = false`";
        let max_parallel_drains =
            checker.count("max_parallel_drains", self.max_parallel_drains.as_ref(), 4, off);
        let max_removals_per_hour =
            checker.count("max_removals_per_hour", self.max_removals_per_hour.as_ref(), 60, off);
        ScaleDown {
            enabled: self.enabled.unwrap_or(true),
            utilization_threshold: checker.between(
                "utilization_threshold",
                self.utilization_threshold.as_ref(),
                (0.0, 1.0),
                0.5,
            ),
            unneeded_time,
            unready_time,
            delay_after_add,
            delay_after_delete,
            delay_after_failure,
            stabilization_window,
            consolidation: self.consolidation.unwrap_or(false),
            ignore_daemonsets_utilization: self.ignore_daemonsets_utilization.unwrap_or(false),
            skip_nodes_with_local_storage: self.skip_nodes_with_local_storage.unwrap_or(true),
            skip_nodes_with_system_pods: self.skip_nodes_with_system_pods.unwrap_or(true),
            skip_nodes_with_custom_controller_pods: self
                .skip_nodes_with_custom_controller_pods
                .unwrap_or(true),
            max_parallel_drains,
            drain_priorities: drain_priorities(self.drain_priorities.as_ref(), checker),
            max_removals_per_hour: Some(max_removals_per_hour),
            max_removal_percentage: checker.between(
                "max_removal_percentage",
                self.max_removal_percentage.as_ref(),
                (0.0, 100.0),
                50.0,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    #[test]
    fn a_share_is_rounded_down_and_one_node_always_may_go() {
        let mut settings = parse("c.toml", "", Needs::Plan).unwrap().scale_down;
        for (nodes, percentage, most) in
            [(0, 50.0, 1), (1, 50.0, 1), (3, 50.0, 1), (4, 50.0, 2), (9, 34.0, 3), (5, 0.0, 1), (5, 100.0, 5)]
        {
            settings.max_removal_percentage = percentage;
            assert_eq!(settings.most_at_once(nodes), most, "{percentage} % of {nodes}");
        }
    }
}
