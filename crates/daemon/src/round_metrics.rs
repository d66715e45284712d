//! Metrics of rounds, and of how long pods are pending.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::Daemon;
use super::execute::leaves;
use super::publish_status::requested_by_node;
use machines::MachineView;
use model::gang::GangReason;
use model::plan::{Plan, PodOutcome, PodVerdict};
use model::pod::{Pod, Scheduling};
use model::pod_id::PodId;
use model::snapshot::POOL_LABEL;
use model::{PoolName, Snapshot};
use observability::{GaugeValues, Metrics, names, number};
use settings::Config;

/// Unschedulable pods: maps a pod's name to its uid and the time at which it became unschedulable.
#[derive(Debug, Default)]
pub(super) struct Waiting(BTreeMap<String, (String, Timestamp)>);

impl Waiting {
    /// Updates the set of unschedulable pods. For each of them that was bound to a node since the last call,
    /// measures how long it waited.
    pub fn look(&mut self, snapshot: &Snapshot, metrics: &Metrics) {
        let before = std::mem::take(&mut self.0);
        for pod in snapshot.pods.iter().filter(|pod| pod.node.is_none()) {
            if let Some(since) = unschedulable_since(pod) {
                self.0.insert(pod.id(), (pod.uid.clone(), since));
            }
        }
        // Usually, all unschedulable pods are still waiting. Returning early then avoids a search through all
        // pods of a large cluster.
        let no_more: BTreeMap<String, (String, Timestamp)> =
            before.into_iter().filter(|(pod, _)| !self.0.contains_key(pod)).collect();
        if no_more.is_empty() {
            return;
        }
        for pod in snapshot.pods.iter().filter(|pod| pod.node.is_some()) {
            if let Some((uid, since)) = no_more.get(&pod.id())
                && *uid == pod.uid
                && let Ok(waited) = Duration::try_from(snapshot.time.duration_since(*since))
            {
                metrics.pod_waited(waited);
            }
        }
    }

    /// The time at which the first of these pods became unschedulable.
    pub fn earliest(&self, pods: &[PodId]) -> Option<Timestamp> {
        pods.iter().filter_map(|pod| self.0.get(&**pod)).map(|(_, since)| *since).min()
    }
}

fn unschedulable_since(pod: &Pod) -> Option<Timestamp> {
    match pod.scheduling {
        Scheduling::Unschedulable(since) => since.or(pod.created),
        _ => None,
    }
}

impl Daemon {
    /// Sets the metrics of a round that reached a decision.
    pub(super) fn measure(&self, config: &Config, snapshot: &Snapshot, plan: &Plan) {
        let mut seen = GaugeValues::default();
        seen.put(names::LAST_SUCCESS, &[], seconds(snapshot.time));
        // With several clusters, the oldest of their last observations is reported.
        let looks = self.regions.iter().filter_map(|region| region.inventory.last().0);
        if let Some(at) = looks.map(|look| look.at).min() {
            seen.put(names::LAST_LOOK, &[], seconds(at));
        }
        for region in self.regions.iter().filter(|_| self.regions.several()) {
            let acts = self.regions.unseen(config, &region.prefix, snapshot.time).is_none();
            let name = config.cluster(&region.prefix).and_then(|one| one.region.as_deref());
            seen.put(names::REGION_ACTS, &[name.unwrap_or_default()], f64::from(u8::from(acts)));
        }
        let views = self.registry.all();
        self.board.metrics().follow_only(&views.iter().map(|view| &view.record.id).collect());
        pools(config, snapshot, &views, &mut seen);
        super::prediction_outcomes::measure(config, snapshot, &mut seen);
        let left = |count: Option<usize>| number(i64::try_from(count.unwrap_or(0)).unwrap_or(i64::MAX));
        seen.put(names::UNFINISHED, &["Pods"], left(plan.unfinished.pods.as_ref().map(|turns| turns.left)));
        seen.put(names::UNFINISHED, &["Nodes"], left(plan.unfinished.nodes.as_ref().map(|turns| turns.left)));
        verdicts(plan, &mut seen);
        hosts(snapshot, &mut seen);
        super::orphans::measure(&self.orphans, &mut seen);
        super::stale_zone_labels::measure(config, &self.astray, &mut seen);
        let pools: Vec<PoolName> = config.pools.iter().map(|pool| pool.name.clone()).collect();
        self.board.metrics().show(seen, &pools);
    }
}

fn pools(config: &Config, snapshot: &Snapshot, views: &[MachineView], seen: &mut GaugeValues) {
    let requested = requested_by_node(snapshot);
    let going: BTreeMap<&str, bool> =
        views.iter().filter_map(|view| Some((view.node.as_deref()?, leaves(view.phase)))).collect();
    for pool in &config.pools {
        let name = pool.name.as_str();
        for state in ["Ready", "NotReady", "Leaving"] {
            seen.put(names::NODES, &[name, state], 0.0);
        }
        let (mut allocatable, mut allocated) = ((0, 0), (0, 0));
        for node in snapshot
            .nodes
            .iter()
            .filter(|node| node.labels.get(POOL_LABEL).is_some_and(|name| pool.name == *name))
        {
            let ready = node.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
            let state = match (going.get(node.name.as_str()), ready) {
                (Some(true), _) => "Leaving",
                (_, true) => "Ready",
                (_, false) => "NotReady",
            };
            seen.count(names::NODES, &[name, state]);
            let (cpu, memory) = requested.get(node.name.as_str()).copied().unwrap_or_default();
            allocated = (allocated.0 + cpu, allocated.1 + memory);
            allocatable =
                (allocatable.0 + node.allocatable.cpu_milli, allocatable.1 + node.allocatable.memory);
        }
        let mine = || views.iter().filter(|view| view.record.pool == pool.name);
        let cores: i64 = mine().map(|view| i64::from(view.record.cores)).sum();
        let memory: i64 = mine().map(|view| view.record.memory).sum();
        for (metric, value) in [
            (names::CPU_PROVISIONED, number(cores)),
            (names::CPU_ALLOCATABLE, number(allocatable.0) / 1000.0),
            (names::CPU_ALLOCATED, number(allocated.0) / 1000.0),
            (names::MEMORY_PROVISIONED, number(memory)),
            (names::MEMORY_ALLOCATABLE, number(allocatable.1)),
            (names::MEMORY_ALLOCATED, number(allocated.1)),
        ] {
            seen.put(metric, &[name], value);
        }
    }
}

fn verdicts(plan: &Plan, seen: &mut GaugeValues) {
    for verdict in PodOutcome::ALL {
        seen.put(names::PENDING, &[verdict.code()], 0.0);
    }
    for pod in &plan.pods {
        seen.count(names::PENDING, &[reason(pod)]);
    }
    for buffer in &plan.buffers {
        for (state, chunks) in [
            ("Filled", buffer.on_nodes),
            ("Coming", buffer.on_machines + buffer.on_new_machines),
            ("Short", buffer.nowhere),
        ] {
            let chunks = i64::try_from(chunks).unwrap_or(i64::MAX);
            seen.put(names::BUFFER_CHUNKS, &[&buffer.buffer, state], number(chunks));
        }
    }
    for node in &plan.nodes {
        let (pool, reason) =
            (node.pool.as_deref().unwrap_or_default(), node.reason.map_or("", |reason| reason.code()));
        seen.count(names::NODE_VERDICTS, &[pool, node.verdict.code(), reason]);
    }
}

/// The label under which a pending pod is counted. If a pod waits with its gang for something other than
/// room, it is counted separately, because no machine would help it.
fn reason(pod: &PodVerdict) -> &'static str {
    match pod.gang() {
        Some(gang) if gang.reason != GangReason::NoRoom => gang.reason.code(),
        _ => pod.verdict.code(),
    }
}

fn hosts(snapshot: &Snapshot, seen: &mut GaugeValues) {
    for host in snapshot.proxmox.hosts.iter().flatten() {
        let name = host.name.as_str();
        let backoff = snapshot.memory.hosts.get(name).and_then(|memory| memory.backoff.as_ref());
        let backoff = backoff.filter(|backoff| backoff.runs(snapshot.time));
        if let Some(backoff) = backoff {
            seen.put(names::HOST_BACKOFF_END, &[name], seconds(backoff.until));
        }
        for (metric, value) in [
            (names::HOST_ONLINE, f64::from(u8::from(host.online && !host.maintenance))),
            (names::HOST_BACKOFF, f64::from(u8::from(backoff.is_some()))),
            (names::HOST_CPU, f64::from(host.cores)),
            (names::HOST_CPU_ASSIGNED, f64::from(host.cores_assigned)),
            (names::HOST_MEMORY, number(host.memory)),
            (names::HOST_MEMORY_USED, number(host.memory_used)),
            (names::HOST_MEMORY_ASSIGNED, number(host.memory_assigned)),
        ] {
            seen.put(metric, &[name], value);
        }
        for (storage, room) in &host.storage {
            seen.put(names::HOST_STORAGE, &[name, storage], number(room.total));
            seen.put(names::HOST_STORAGE_USED, &[name, storage], number(room.used));
        }
    }
}

fn seconds(time: Timestamp) -> f64 {
    number(time.as_millisecond()) / 1000.0
}
