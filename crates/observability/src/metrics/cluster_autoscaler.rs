//! Some metrics under the names of Cluster Autoscaler (`cluster-autoscaler/metrics`), so that its dashboards
//! and alerts keep working. Cluster Autoscaler counts all nodes of the cluster, but these metrics only count
//! the pools' nodes.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::names;
use super::{Counters, Shown, locked};
use model::machine::Phase;
use model::plan::RemovalReason;

/// The prefix of all names.
const PREFIX: &str = "cluster_autoscaler";

/// The counters with Cluster Autoscaler's names, and the registry that serves them.
#[derive(Debug)]
pub(super) struct ClusterAutoscaler {
    pub registry: Registry,
    added: Counter,
    removed: Counters,
    failed: Counters,
    main: Histogram,
}

impl ClusterAutoscaler {
    pub(super) fn new(shown: Arc<Shown>) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Gauges(shown)));
        let (added, removed, failed) = (Counter::default(), Counters::default(), Counters::default());
        // The same buckets as in Cluster Autoscaler.
        let main = Histogram::new([
            0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 27.5, 30.0,
            50.0, 75.0, 100.0, 1000.0,
        ]);
        registry.register("scaled_up_nodes", "Number of nodes added", added.clone());
        registry.register("scaled_down_nodes", "Number of nodes removed", removed.clone());
        registry.register("failed_scale_ups", "Number of machines that did not become nodes", failed.clone());
        for reason in [RemovalReason::Empty, RemovalReason::Underutilized, RemovalReason::Unready] {
            drop(removed.get_or_create_owned(&vec![("reason", word(Some(reason)))]));
        }
        let rounds = registry.sub_registry_with_label(("function".into(), "main".into()));
        let seconds = Unit::Seconds;
        rounds.register_with_unit("function_duration", "Time taken by a round", seconds, main.clone());
        Self { registry, added, removed, failed, main }
    }

    pub(super) fn added(&self) {
        self.added.inc();
    }

    pub(super) fn removed(&self, reason: Option<RemovalReason>) {
        self.removed.get_or_create(&vec![("reason", word(reason))]).inc();
    }

    /// Counts a machine that did not become a node. `outcome` has the same values as in the metric
    /// `machines_made`.
    pub(super) fn failed(&self, outcome: &str) {
        self.failed.get_or_create(&vec![("reason", outcome.to_lowercase())]).inc();
    }

    pub(super) fn round(&self, seconds: f64) {
        self.main.observe(seconds);
    }
}

/// Returns a reason's code in lower case, as Cluster Autoscaler writes its reasons, e.g. `underutilized`.
/// Returns `asked` for an operator's order.
fn word(reason: Option<RemovalReason>) -> String {
    reason.map_or_else(|| "asked".to_owned(), |reason| reason.code().to_lowercase())
}

/// The current state, from the last round and the board.
#[derive(Debug)]
struct Gauges(Arc<Shown>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (round, board) = (locked(&self.0.round).clone(), locked(&self.0.board).clone());
        let phases = |phases: &[Phase]| -> f64 {
            phases.iter().map(|phase| board.sum_with(names::MACHINES, phase.code())).sum()
        };
        let before = [Phase::Requested, Phase::Cloning, Phase::Configuring, Phase::Starting, Phase::Booting];
        // The nodes of these machines have registered but are not ready yet. The round also counts them as
        // `NotReady`, so they are subtracted below.
        let starting = phases(&[Phase::Registered]);
        let states = [
            ("ready", round.sum_with(names::NODES, "Ready")),
            ("unready", (round.sum_with(names::NODES, "NotReady") - starting).max(0.0)),
            ("notStarted", starting),
            ("unregistered", phases(&before) + phases(&[Phase::Joining])),
            ("longUnregistered", phases(&[Phase::Failed])),
        ];
        let help = "Number of nodes in the pools, including machines that are not nodes yet.";
        let mut family = encoder.encode_descriptor("nodes_count", help, None, MetricType::Gauge)?;
        for (state, value) in states {
            family.encode_family(&[("state", state)])?.encode_gauge(&value)?;
        }
        // Cluster Autoscaler does not count pods with these verdicts as unschedulable, so they are subtracted
        // below.
        let held_back: f64 = ["Gated", "DaemonSet", "TooYoung", "Expendable"]
            .iter()
            .map(|verdict| round.sum_with(names::PENDING, verdict))
            .sum();
        // An instance on standby does not serve this metric, because an old timestamp would raise an alert.
        if round.count_of(names::LAST_SUCCESS) > 0.0 {
            let help = "Time at which a round last completed its decisions.";
            let mut family = encoder.encode_descriptor("last_activity", help, None, MetricType::Gauge)?;
            family.encode_family(&[("activity", "main")])?.encode_gauge(&round.sum(names::LAST_SUCCESS))?;
        }
        let unneeded = round.sum_with(names::NODE_VERDICTS, "Unneeded");
        let cooling = f64::from(u8::from(round.sum_with(names::NODE_VERDICTS, "CoolingDown") > 0.0));
        for (name, help, label, value) in [
            (
                "cluster_safe_to_autoscale",
                "1 once Kubernetes and Proxmox VE have been read and rounds are running",
                None,
                board.sum(names::READY),
            ),
            (
                "unschedulable_pods_count",
                "Number of pending pods",
                Some(("type", "unschedulable")),
                round.sum(names::PENDING) - held_back,
            ),
            (
                "node_groups_count",
                "Number of pools",
                Some(("node_group_type", "autoscaled")),
                board.count_of(names::MAX),
            ),
            (
                "max_nodes_count",
                "Maximum total number of nodes across all pools",
                None,
                board.sum(names::MAX),
            ),
            ("unneeded_nodes_count", "Number of unneeded nodes", None, unneeded),
            ("scale_down_in_cooldown", "1 while a cool-down prevents the removal of a node", None, cooling),
            (
                "cluster_cpu_current_cores",
                "vCPUs of the pools' machines",
                None,
                round.sum(names::CPU_PROVISIONED),
            ),
            (
                "cluster_memory_current_bytes",
                "Memory of the pools' machines",
                None,
                round.sum(names::MEMORY_PROVISIONED),
            ),
        ] {
            let help = format!("{help}.");
            let mut family = encoder.encode_descriptor(name, &help, None, MetricType::Gauge)?;
            match label {
                Some(label) => family.encode_family(&[label])?.encode_gauge(&value)?,
                None => family.encode_gauge(&value)?,
            }
        }
        for (name, help, metric) in [
            ("node_group_min_count", "Minimum number of nodes in the pool.", names::MIN),
            ("node_group_max_count", "Maximum number of nodes in the pool.", names::MAX),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (pool, value) in board.by_first(metric) {
                family.encode_family(&[("node_group", pool)])?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}
