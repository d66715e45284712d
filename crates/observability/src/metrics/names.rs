//! All metrics with their names, types, units, labels and meanings. This list is the source of both the
//! served metrics and `docs/reference/metrics.md`.

use prometheus_client::registry::Unit;

/// The prefix of all names.
pub(super) const PREFIX: &str = "pve_autoscaler";

/// How a metric behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only increases. Starts at zero when the daemon starts.
    Counter,
    /// A distribution of durations.
    Histogram,
}

/// A metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name without prefix, unit and `_total`.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The unit, which is appended to the name.
    pub(super) unit: Option<&'static str>,
    pub(super) labels: &'static [&'static str],
    /// One sentence without a full stop. The encoder adds the full stop.
    pub(super) help: &'static str,
}

impl Metric {
    pub(super) fn unit(&self) -> Option<Unit> {
        self.unit.map(|unit| Unit::Other(unit.to_owned()))
    }

    /// The name as it appears in samples. Histograms append `_bucket`, `_sum` and `_count` to it.
    #[cfg(test)]
    pub(super) fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{PREFIX}_{}{unit}{total}", self.name)
    }
}

type Names = &'static [&'static str];
type Unitary = Option<&'static str>;

const SECONDS: Unitary = Some("seconds");
const BYTES: Unitary = Some("bytes");
const CORES: Unitary = Some("cores");
const POOL: Names = &["pool"];
const HOST: Names = &["host"];
const REGION: Names = &["region"];

macro_rules! metrics {
    ($($title:literal { $($id:ident: $kind:ident $name:literal $unit:expr, $labels:expr, $help:literal;)* })*) => {
        $($(
            #[doc = $help]
            pub const $id: &Metric = &Metric {
                name: $name, kind: Kind::$kind, unit: $unit, labels: $labels, help: $help,
            };
        )*)*

        /// All metrics, by subject.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &[&Metric])] = &[$(($title, &[$($id),*])),*];
    };
}

metrics! {
    "The daemon" {
        BUILD: Gauge "build_info" None, &["version"], "Always 1, labelled with the running version";
        READY: Gauge "ready" None, &[], "1 once Kubernetes and Proxmox VE have been read and rounds are running";
        LEADER: Gauge "leader" None, &[], "1 while this instance leads; only the leader reports metrics about pools, pods, machines and hosts";
        TERMS_ENDED: Counter "terms_ended" None, &["cause"], "How many times this instance lost leadership without being stopped, by cause: `Taken` if another instance took over, `HostSlow` if a timer of this process fired much too late, `ApiSlow` if the Kubernetes API did not answer in time, or `ApiFailed` if the API refused a request or could not be reached";
        PAUSED: Gauge "paused" None, &[], "1 while the daemon is paused; only the leader reports this metric";
        OBSERVING: Gauge "observing" None, &[], "1 while the mode is `observe`, in which the daemon changes nothing";
        PROBLEM: Gauge "problem" None, &["about"], "1 while there is a problem of the kind that the label `about` names; docs/reference/alerts.md explains each kind";
        ROUNDS: Counter "rounds" None, &["outcome"], "Rounds by outcome: `decided`, `blind` if too little could be seen to decide anything, or `obsolete` if the settings changed or this instance lost leadership during the round";
        ROUND: Histogram "round_duration" SECONDS, &[], "Duration of a round, excluding the waits between rounds";
        LAST_SUCCESS: Gauge "last_success_timestamp" SECONDS, &[], "Time at which a round last completed its decisions";
        REGION_ACTS: Gauge "region_acts" None, REGION, "1 while the region's Proxmox VE cluster is visible and quorate. Otherwise, no nodes are added to or removed from the region's pools. The metric exists only if there are several regions";
        CREDENTIAL_END: Gauge "credential_end_timestamp" SECONDS, &["credential"], "Time at which a \
            credential expires. Credentials with an expiry time are the kubeconfig's client \
            certificate, token and certificate authority, and the authorities in Proxmox VE's `ca_file` \
            or `ca_credential`";
        LAST_LOOK: Gauge "last_proxmox_look_timestamp" SECONDS, &[], "Time at which Proxmox VE was last read successfully";
        DECISIONS: Counter "decisions" None, &["pool", "decision", "reason"], "Decisions to create a machine (`add`, for `Pods` or the pool's `Minimum`), to enlarge a running machine (`grow`, for `Pods`) or to remove a node (`remove`, with the plan's reason, or with `Asked` if an operator ordered the removal)";
        CALLS: Counter "calls" None, &["api", "outcome"], "Calls to the APIs `proxmox` and `kubernetes`, except watches, by outcome: `Ok` or the kind of failure";
        CALL: Histogram "call_duration" SECONDS, &["api"], "Time from sending a call to receiving its answer";
    }
    "Pools" {
        MIN: Gauge "pool_min_nodes" None, POOL, "The pool's `min`";
        MAX: Gauge "pool_max_nodes" None, POOL, "The pool's `max`";
        SLOTS: Gauge "pool_free_slots" None, POOL, "Free slots of the pool. Each slot is a VMID with its addresses";
        POOL_BACKOFF: Gauge "pool_backoff" None, POOL, "1 while the pool is in back-off after failures, or has no usable template";
        POOL_BACKOFF_END: Gauge "pool_backoff_end_timestamp" SECONDS, POOL, "Time at which the pool is \
            tried again. The metric exists only while the pool is in back-off";
        NODES: Gauge "nodes" None, &["pool", "state"], "Nodes of the pool by state: `Ready`, \
            `NotReady`, or `Leaving` if they are being removed, whether ready or not";
        CPU_PROVISIONED: Gauge "cpu_provisioned" CORES, POOL, "vCPUs of the pool's machines";
        CPU_ALLOCATABLE: Gauge "cpu_allocatable" CORES, POOL, "CPU that the pool's nodes offer to pods";
        CPU_ALLOCATED: Gauge "cpu_allocated" CORES, POOL, "CPU that pods on the pool's nodes request";
        MEMORY_PROVISIONED: Gauge "memory_provisioned" BYTES, POOL, "Memory of the pool's machines";
        MEMORY_ALLOCATABLE: Gauge "memory_allocatable" BYTES, POOL, "Memory that the pool's nodes offer to pods";
        MEMORY_ALLOCATED: Gauge "memory_allocated" BYTES, POOL, "Memory that pods on the pool's nodes request";
        NODE_VERDICTS: Gauge "node_verdicts" None, &["pool", "verdict", "reason"], "Nodes by their \
            verdict in the last decision, as shown by `plan`. If the verdict is `Blocked`, the label \
            `reason` contains the reason";
    }
    "Pods" {
        PENDING: Gauge "pending_pods" None, &["reason"], "Pending pods by reason. The reason is the \
            pod's verdict in the last decision, as shown by `plan`. If the pod's gang waits for \
            something that a new machine cannot provide, the reason is that of the gang (`gang.reason`)";
        MISSED: Counter "predictions_missed" None, POOL, "Number of wrong predictions: kube-scheduler \
            refused a pod on the ready node that the planner had chosen for it, or the pods of a \
            removed node did not start on other nodes. The label `pool` is empty for nodes outside all \
            pools";
        MISSED_NOW: Gauge "predictions_missed_now" None, POOL, "Wrong predictions that currently limit \
            changes to the pool. No machines are created for a kind of pod if kube-scheduler refused \
            such a pod on a node that it seemed to fit. No more nodes are removed if the pods of a \
            removed node did not start on other nodes";
        UNFINISHED: Gauge "unfinished" None, &["what"], "Pending `Pods` and removable `Nodes` that the last round left for later rounds";
        BUFFER_CHUNKS: Gauge "buffer_chunks" None, &["buffer", "state"], "Chunks of each CapacityBuffer (`namespace/name`) by state: `Filled` if the chunk fits an existing node, `Coming` if a machine for it is being created, or `Short` otherwise";
        POD_WAIT: Histogram "pod_waiting" SECONDS, &[], "Time from when a pod became unschedulable until it got a node";
    }
    "Machines" {
        MACHINES: Gauge "machines" None, &["pool", "phase"], "Machines by phase, as shown by `status`";
        MADE: Counter "machines_made" None, &["pool", "outcome"], "Finished creations by outcome: `Ready`, `Warm` if the machine is kept until it is needed, `SlotTaken` if another VM or Node has its slot, or the cause of a failure: `Pool`, `Host` or `Other`";
        GROWN: Counter "machines_grown" None, &["pool", "outcome"], "Finished attempts to enlarge a running machine, by outcome: `Grown`, or `NotGrown` if the machine stays in service unchanged";
        REMOVED: Counter "machines_removed" None, &["pool", "outcome"], "Finished removals by outcome: `Removed`, `GivenUp` if the node returned to service, `Discarded` after a failed creation, or `Stuck` if the removal is tried again later";
        STEP: Histogram "machine_step" SECONDS, &["step"], "Duration of each step of a machine's \
            creation (`clone`, `configure`, `start`, `boot`, `join`, `ready`), of the `whole` creation \
            since the decision, of the `drain` before a removal, and of the whole removal including the \
            drain (`remove`)";
        CLONE_REQUEST: Histogram "unschedulable_to_clone" SECONDS, &[], "Time from when a pod became unschedulable until a clone for it began";
        TO_READY: Histogram "unschedulable_to_ready" SECONDS, &[], "Time from when a pod became unschedulable until the node for it was ready";
        ORPHANS: Gauge "orphans" None, &["state"], "VMs with this cluster's mark but no record, by \
            state: `Proven` if every check shows that the VM is left over, otherwise `Unproven`";
        ASTRAY: Gauge "nodes_astray" None, POOL, "Nodes whose labels do not match the zone or host of \
            their VM; only for pools that use `{{ zone }}` or `{{ host }}` in labels";
        DRAINS: Gauge "drains" None, POOL, "Nodes that are being drained";
    }
    "Hosts" {
        HOST_ONLINE: Gauge "host_online" None, HOST, "1 while the host is up and not in maintenance";
        HOST_BACKOFF: Gauge "host_backoff" None, HOST, "1 while the host is in back-off after failures, so no new machine is placed on it";
        HOST_BACKOFF_END: Gauge "host_backoff_end_timestamp" SECONDS, HOST, "Time at which the host is \
            tried again. The metric exists only while the host is in back-off";
        HOST_CPU: Gauge "host_cpu" CORES, HOST, "Hardware threads of the host";
        HOST_CPU_ASSIGNED: Gauge "host_cpu_assigned" CORES, HOST, "vCPUs of all running guests on the host";
        HOST_MEMORY: Gauge "host_memory" BYTES, HOST, "Memory of the host";
        HOST_MEMORY_USED: Gauge "host_memory_used" BYTES, HOST, "Memory in use on the host, as reported by Proxmox VE";
        HOST_MEMORY_ASSIGNED: Gauge "host_memory_assigned" BYTES, HOST, "Memory assigned to all running guests on the host";
        HOST_STORAGE: Gauge "host_storage" BYTES, &["host", "storage"], "Size of a storage on the host";
        HOST_STORAGE_USED: Gauge "host_storage_used" BYTES, &["host", "storage"], "Used space of a storage on the host";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use super::*;

    /// The generated page about all metrics.
    fn page() -> String {
        let mut text = String::from(
            "# Metrics\n\n\
             The daemon serves metrics in the OpenMetrics text format at `http://127.0.0.1:9736/metrics`. `[metrics]` in the \
             configuration sets the address, or turns them off. On the same address, `/healthz` returns 200 while rounds run \
             on time, and `/readyz` returns 200 once both clusters have been read.\n\n\
             No password is needed. Listen on an address other than loopback only if every client that reaches it may see the \
             names of pools, hosts and storages.\n\n\
             Counters and histograms start at zero whenever the daemon starts. Durations of machines and pods are computed from \
             times in the objects themselves, so a restart of the daemon does not change them.\n\n\
             Each instance serves its own metrics. Instances on standby report nothing about pools, pods, machines and hosts, so \
             use the sum or the maximum over all instances in queries.\n\n\
             With `kproximate_names = true` in `[metrics]`, eight gauges are also served under kproximate's names, as sums over \
             all pools: `kpnodes_total` (machines), `kpnodes_running` (ready nodes), `cpu_provisioned_total`, \
             `memory_provisioned_total`, `cpu_allocatable_total`, `memory_allocatable_total`, `cpu_allocated_total`, \
             `memory_allocated_total`.\n\n\
             With `cluster_autoscaler_names = true`, the metrics that Cluster Autoscaler's dashboards and alerts use are served under \
             its names, all beginning with `cluster_autoscaler_`: `cluster_safe_to_autoscale`, `nodes_count`, `node_groups_count`, \
             `node_group_min_count`, `node_group_max_count`, `max_nodes_count`, `unschedulable_pods_count`, `unneeded_nodes_count`, \
             `scale_down_in_cooldown`, `last_activity`, `cluster_cpu_current_cores`, `cluster_memory_current_bytes`, \
             `scaled_up_nodes_total`, `scaled_down_nodes_total`, `failed_scale_ups_total`, `function_duration_seconds` (of `main`, a \
             whole round). Cluster Autoscaler counts all nodes of the cluster, but these metrics count only \
             the pools' nodes.\n\n\
             The usual metrics of the process are served as well: `process_cpu_seconds_total`, `process_start_time_seconds`, \
             `process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_open_fds`, `process_max_fds`, \
             `process_threads`.\n",
        );
        for (title, metrics) in ALL {
            let _ = writeln!(text, "\n## {title}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|");
            for metric in *metrics {
                let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
                let kind = format!("{:?}", metric.kind).to_lowercase();
                let _ = writeln!(
                    text,
                    "| `{}` | {kind} | {} | {}. |",
                    metric.full_name(),
                    labels.join(", "),
                    metric.help
                );
            }
        }
        text
    }

    #[test]
    fn the_page_about_metrics_is_as_it_is_written_down() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, page()).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(
            page(),
            written,
            "update it with UPDATE=1 cargo test -p pve-autoscaler-observability the_page_about_metrics"
        );
    }

    #[test]
    fn each_name_is_there_once_and_ends_in_no_suffix_of_its_own() {
        let mut names = BTreeSet::new();
        for metric in ALL.iter().flat_map(|(_, metrics)| *metrics) {
            let name = metric.name;
            assert!(names.insert(metric.full_name()), "{name} is listed twice");
            assert!(!name.ends_with("_total") && !name.ends_with("_seconds"), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert!(!metric.help.ends_with('.') && !metric.help.is_empty(), "{name}");
            assert!(metric.kind != Kind::Histogram || metric.unit == SECONDS, "{name}");
            let reserved = ["le", "quantile", "instance", "job"];
            assert!(metric.labels.iter().all(|label| !reserved.contains(label)), "{name}");
        }
    }
}
