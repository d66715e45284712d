//! `[scale_up]`: when and how nodes are added. Settings that also exist in Cluster Autoscaler use its
//! defaults.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// How a pool is chosen for new machines if several are suitable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expander {
    /// The pool whose machines leave the least CPU and memory idle.
    #[default]
    LeastWaste,
    /// The pool whose new machine has room for the most pods.
    MostPods,
    /// The pool with the highest `priority`. Among pools with the same priority, the one whose machines leave
    /// the least CPU and memory idle.
    Priority,
}

/// Checked `[scale_up]`.
#[derive(Clone, Debug)]
pub struct ScaleUp {
    /// A machine has failed if it has not become a ready node within this time.
    pub max_node_provision_time: Duration,
    /// How a pool is chosen for new machines if several are suitable.
    pub expander: Expander,
    /// Pods with a lower priority than this neither trigger new nodes nor prevent removals.
    pub expendable_pods_priority_cutoff: i32,
    /// Pods younger than this do not trigger new nodes yet.
    pub new_pod_delay: Duration,
    /// How long additions to a pool pause after an addition. Machines are still added to reach the pool's
    /// minimum.
    pub delay_after_add: Duration,
    /// How long additions to a pool pause after any addition or removal. Machines are still added to reach
    /// the pool's minimum.
    pub stabilization_window: Duration,
    /// Maximum number of nodes in the entire cluster, including nodes that belong to no pool.
    pub max_nodes_total: Option<u32>,
    /// Maximum number of vCPUs in the entire cluster, including nodes that belong to no pool.
    pub max_cores_total: Option<u32>,
    /// Maximum memory in the entire cluster in bytes, including nodes that belong to no pool.
    pub max_memory_total: Option<i64>,
    /// The back-off of a pool or host after its first failure. Each further failure doubles it.
    pub backoff_initial: Duration,
    /// The longest back-off of a pool or host.
    pub backoff_max: Duration,
    /// How long kube-scheduler may refuse a pod that was predicted to fit a ready node. After this time, the
    /// prediction counts as wrong (`missed`). It counts as wrong earlier if kube-scheduler refuses the pod
    /// with a new message.
    pub prediction_timeout: Duration,
    /// The back-off after the first missed prediction, during which the pool creates no machine for the same
    /// kind of pod. Each further missed prediction doubles the back-off.
    pub prediction_backoff_initial: Duration,
    /// The longest back-off after missed predictions.
    pub prediction_backoff_max: Duration,
}

/// `[scale_up]` as written in the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    max_node_provision_time: Option<Spanned<String>>,
    #[serde(default)]
    expander: Expander,
    expendable_pods_priority_cutoff: Option<i32>,
    new_pod_delay: Option<Spanned<String>>,
    delay_after_add: Option<Spanned<String>>,
    stabilization_window: Option<Spanned<String>>,
    max_nodes_total: Option<u32>,
    max_cores_total: Option<u32>,
    max_memory_total: Option<Spanned<String>>,
    backoff_initial: Option<Spanned<String>>,
    backoff_max: Option<Spanned<String>>,
    prediction_timeout: Option<Spanned<String>>,
    prediction_backoff_initial: Option<Spanned<String>>,
    prediction_backoff_max: Option<Spanned<String>>,
}

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> ScaleUp {
        let first = self.backoff_initial.as_ref();
        let most = self.backoff_max.as_ref();
        let backoff_initial = checker.positive("backoff_initial", first, Duration::from_mins(5));
        let backoff_max = checker.positive("backoff_max", most, Duration::from_mins(30));
        checker.ordered(("backoff_initial", first, backoff_initial), ("backoff_max", most, backoff_max));
        let (prediction_backoff_initial, prediction_backoff_max) = self.prediction_backoffs(checker);
        let timeout = self.prediction_timeout.as_ref();
        ScaleUp {
            backoff_initial,
            backoff_max,
            prediction_timeout: checker.positive("prediction_timeout", timeout, Duration::from_mins(15)),
            prediction_backoff_initial,
            prediction_backoff_max,
            max_node_provision_time: checker.positive(
                "max_node_provision_time",
                self.max_node_provision_time.as_ref(),
                Duration::from_mins(15),
            ),
            expander: self.expander,
            expendable_pods_priority_cutoff: self.expendable_pods_priority_cutoff.unwrap_or(-10),
            new_pod_delay: checker.duration("new_pod_delay", self.new_pod_delay.as_ref(), Duration::ZERO),
            delay_after_add: checker.duration(
                "delay_after_add",
                self.delay_after_add.as_ref(),
                Duration::ZERO,
            ),
            stabilization_window: checker.duration(
                "stabilization_window",
                self.stabilization_window.as_ref(),
                Duration::ZERO,
            ),
            max_nodes_total: self.max_nodes_total.filter(|most| *most > 0),
            max_cores_total: self.max_cores_total.filter(|most| *most > 0),
            max_memory_total: self
                .max_memory_total
                .as_ref()
                .map(|size| checker.size("`max_memory_total`", size))
                .filter(|most| *most > 0),
        }
    }

    fn prediction_backoffs(&self, checker: &mut Checker) -> (Duration, Duration) {
        let (first, last) = ("prediction_backoff_initial", "prediction_backoff_max");
        let (one, other) = (self.prediction_backoff_initial.as_ref(), self.prediction_backoff_max.as_ref());
        let initial = checker.positive(first, one, Duration::from_mins(30));
        let most = checker.positive(last, other, Duration::from_hours(12));
        checker.ordered((first, one, initial), (last, other, most));
        (initial, most)
    }
}
