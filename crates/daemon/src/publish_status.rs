//! Publishes a round's result on the board.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::execute::leaves;
use super::{Daemon, orphans, prediction_outcomes, stale_zone_labels};
use machines::MachineView;
use model::Snapshot;
use model::machine::{Host, Phase, Storage};
use model::plan::{BufferVerdict, NodeOutcome, NodeVerdict, Plan, PodVerdict, RequestVerdict};
use model::power::HostVerdict;
use model::snapshot::POOL_LABEL;
use model::workload::Backoff;
use observability::{
    BufferState, HostStatus, MachineStatus, NodeStatus, PodStatus, PoolStatus, RequestState, StorageStatus,
};
use settings::{Config, Mode};

/// The maximum number of pending pods that the board shows.
const PODS_SHOWN: usize = 500;

impl Daemon {
    /// Shows the last decision on the board, or at least the machines' phases if there is no decision.
    pub(super) fn publish(&self, config: &Config, decided: Option<(&Snapshot, Plan)>) {
        let views = self.registry.all();
        let mut status = self.board.status();
        status.time = self.clock.now();
        status.mode = match config.mode {
            Mode::Active => "active".to_owned(),
            Mode::Observe => "observe".to_owned(),
        };
        status.machines = views.iter().map(|view| machine(config, view)).collect();
        let mut next_due = None;
        if let Some((snapshot, plan)) = decided {
            status.orphans = self.orphans.iter().map(orphans::Judged::status).collect();
            status.warnings = warnings(config, snapshot);
            status.warnings.extend(
                stale_zone_labels::problem_text(&self.astray)
                    .map(|words| (stale_zone_labels::ABOUT.to_owned(), words)),
            );
            status.pools = pools(config, snapshot, &plan, &views);
            let hosts = snapshot.proxmox.hosts.iter().flatten();
            status.hosts = hosts.map(|one| host(one, snapshot, &plan.hosts)).collect();
            next_due = plan
                .nodes
                .iter()
                .filter_map(|verdict| verdict.removable_at)
                .chain(plan.hosts.iter().filter_map(|verdict| verdict.due))
                .filter(|at| *at > plan.time)
                .min();
            status.nodes = plan.nodes.iter().map(|one| node(one, &self.waiting_wishes)).collect();
            status.pods = plan.pods.iter().take(PODS_SHOWN).map(pod).collect();
            status.buffers = plan.buffers.iter().map(buffer).collect();
            status.requests = plan.requests.iter().map(request).collect();
        }
        self.board.publish(status, next_due);
    }
}

/// Warnings about conditions that do not stop the daemon, by the object or section that they concern.
fn warnings(config: &Config, snapshot: &Snapshot) -> BTreeMap<String, String> {
    let newer = snapshot.kubernetes.newer_than_known();
    let newer = newer.map(|warning| ("kubernetes".to_owned(), warning));
    let unlike = planning::unlike_declared(snapshot, config).into_iter();
    let unlike = unlike.map(|(pool, words)| {
        (
            format!("[[pool.device]] of {pool}"),
            format!("{words}: the planner uses the devices that the nodes publish"),
        )
    });
    newer.into_iter().chain(unlike).collect()
}

fn host(host: &Host, snapshot: &Snapshot, verdicts: &[HostVerdict]) -> HostStatus {
    let backoff = snapshot.memory.hosts.get(&host.name).and_then(|memory| memory.backoff.as_ref());
    let backoff = backoff.filter(|backoff| backoff.runs(snapshot.time));
    let verdict = verdicts.iter().find(|verdict| verdict.host == host.name);
    HostStatus {
        power: verdict.map(|verdict| verdict.verdict.code().to_owned()).unwrap_or_default(),
        why: verdict.map(|verdict| verdict.message.clone()).unwrap_or_default(),
        due: verdict.and_then(|verdict| verdict.due),
        name: host.name.clone(),
        online: host.online,
        maintenance: host.maintenance,
        cores: host.cores,
        cores_assigned: host.cores_assigned,
        memory: host.memory,
        memory_assigned: host.memory_assigned,
        memory_used: host.memory_used,
        storages: host.storage.iter().map(|(name, one)| storage(name, one)).collect(),
        backoff: backoff.map(|backoff| left_alone(backoff, snapshot.time)),
        backoff_until: backoff.map(|backoff| backoff.until),
    }
}

fn storage(name: &str, storage: &Storage) -> StorageStatus {
    StorageStatus { name: name.to_owned(), total: storage.total, used: storage.used, shared: storage.shared }
}

fn left_alone(backoff: &Backoff, now: Timestamp) -> String {
    format!("left alone for {}: {}", until(now, backoff.until), backoff.reason)
}

fn machine(config: &Config, view: &MachineView) -> MachineStatus {
    let why = match (&view.note, view.record.pods.as_slice()) {
        (note, _) if !note.is_empty() => note.clone(),
        (_, [first, ..]) => format!("created for {first}"),
        _ => String::new(),
    };
    MachineStatus {
        name: view.record.name.clone(),
        pool: view.record.pool.clone(),
        vmid: view.record.slot.vmid,
        host: config.host_key(view.record.region.as_deref(), &view.record.host),
        cores: view.record.cores,
        memory: view.record.memory,
        address: view.record.slot.address.map(|address| address.to_string()).unwrap_or_default(),
        further_addresses: view.record.slot.further.clone(),
        phase: view.phase.code().to_owned(),
        warm: view.record.warm,
        since: view.since,
        created: view.record.created,
        entered: view.record.entered.iter().map(|(phase, time)| (phase.code().to_owned(), *time)).collect(),
        node: view.node.clone(),
        why,
    }
}

fn node(verdict: &NodeVerdict, waiting: &BTreeMap<String, String>) -> NodeStatus {
    let waits = waiting.get(&verdict.node).map(|why| format!("waiting: {why}"));
    let parts = [
        verdict.reason.map(|reason| reason.to_string()),
        verdict.pod.clone(),
        verdict.message.clone(),
        waits,
    ];
    NodeStatus {
        name: verdict.node.clone(),
        pool: verdict.pool.clone(),
        verdict: verdict.verdict.code().to_owned(),
        utilization: verdict.utilization,
        why: parts.into_iter().flatten().collect::<Vec<_>>().join(": "),
        removable_at: verdict.removable_at,
    }
}

fn request(verdict: &RequestVerdict) -> RequestState {
    RequestState {
        request: verdict.request.clone(),
        verdict: verdict.verdict.code().to_owned(),
        why: verdict.message.clone(),
    }
}

fn buffer(verdict: &BufferVerdict) -> BufferState {
    BufferState {
        buffer: verdict.buffer.clone(),
        verdict: verdict.verdict.code().to_owned(),
        chunks: verdict.chunks,
        filled: verdict.on_nodes,
        why: verdict.message.clone(),
    }
}

fn pod(verdict: &PodVerdict) -> PodStatus {
    let place = verdict.node().or(verdict.machine()).or(verdict.pool());
    PodStatus {
        pod: verdict.pod.to_string(),
        verdict: verdict.verdict.code().to_owned(),
        why: match verdict.missed() {
            Some(missed) if verdict.reasons().is_empty() && verdict.gang().is_none() => missed.words(),
            _ => place.map_or_else(|| verdict.why(), ToString::to_string),
        },
    }
}

fn pools(config: &Config, snapshot: &Snapshot, plan: &Plan, views: &[MachineView]) -> Vec<PoolStatus> {
    let requested = requested_by_node(snapshot);
    let verdicts: BTreeMap<&str, &NodeVerdict> =
        plan.nodes.iter().map(|verdict| (verdict.node.as_str(), verdict)).collect();
    let one = |pool: &settings::Pool| {
        let nodes: Vec<_> = snapshot
            .nodes
            .iter()
            .filter(|node| node.labels.get(POOL_LABEL).is_some_and(|name| pool.name == *name))
            .collect();
        let ready = nodes
            .iter()
            .filter(|node| node.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True"));
        let mine = || views.iter().filter(|view| view.record.pool == pool.name);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (mut cpu, mut memory, mut all_cpu, mut all_memory) = (0, 0, 0, 0);
        for node in &nodes {
            let (used_cpu, used_memory) = requested.get(node.name.as_str()).copied().unwrap_or_default();
            cpu += used_cpu;
            memory += used_memory;
            all_cpu += node.allocatable.cpu_milli;
            all_memory += node.allocatable.memory;
        }
        let backoff = snapshot.memory.pools.get(&pool.name).and_then(|memory| memory.backoff.as_ref());
        let backoff = backoff.filter(|backoff| backoff.runs(snapshot.time));
        let free =
            snapshot.memory.free_slots.as_ref().and_then(|all| all.get(&pool.name)).map_or(0, Vec::len);
        PoolStatus {
            name: pool.name.to_string(),
            nodes: count(nodes.len()),
            ready: count(ready.count()),
            coming: count(
                mine().filter(|view| view.phase < Phase::Ready && view.record.warm.is_none()).count(),
            ),
            warm: count(mine().filter(|view| view.phase == Phase::Warm).count()),
            going: count(mine().filter(|view| leaves(view.phase) || view.phase == Phase::Failed).count()),
            min: pool.min,
            max: pool.max,
            cpu_used: share(cpu, all_cpu),
            memory_used: share(memory, all_memory),
            slots_free: count(free),
            backoff: backoff.map(|backoff| left_alone(backoff, snapshot.time)),
            // A back-off of zero seconds does not follow a failure. It ends when its cause does, so no end
            // time is shown.
            backoff_until: backoff.filter(|backoff| backoff.seconds > 0).map(|backoff| backoff.until),
            next: [
                next(
                    snapshot.time,
                    nodes.iter().filter_map(|node| verdicts.get(node.name.as_str()).copied()),
                ),
                pool.scheduled(snapshot.time),
                below_minimum(plan, &pool.name),
            ]
            .into_iter()
            .flatten()
            .chain(prediction_outcomes::in_words(&snapshot.memory.predictions, &pool.name, snapshot.time))
            .collect::<Vec<_>>()
            .join("; "),
        }
    };
    config.pools.iter().map(one).collect()
}

/// The CPU in millicores and the memory in bytes that pods request on each node of a pool. The result is a
/// hash map, because every round looks up a node by name for each pod, and needs no order.
pub(super) fn requested_by_node(snapshot: &Snapshot) -> HashMap<&str, (i64, i64)> {
    let ours = snapshot.nodes.iter().filter(|node| node.labels.contains_key(POOL_LABEL));
    let mut sums: HashMap<&str, (i64, i64)> = ours.map(|node| (node.name.as_str(), (0, 0))).collect();
    for pod in snapshot.pods.iter().filter(|pod| !pod.is_finished()) {
        if let Some(sum) = pod.node.as_deref().and_then(|node| sums.get_mut(node)) {
            sum.0 += pod.requests.cpu_milli;
            sum.1 += pod.requests.memory;
        }
    }
    sums
}

#[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
fn share(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64 * 1000.0).round() / 1000.0)
}

fn next<'v>(now: Timestamp, verdicts: impl Iterator<Item = &'v NodeVerdict>) -> Option<String> {
    let waiting = verdicts.filter(|verdict| verdict.verdict == NodeOutcome::Unneeded);
    let first = waiting.filter_map(|verdict| Some((verdict.removable_at?, &verdict.node))).min();
    first.map(|(at, node)| format!("{node} may be removed in {}", until(now, at)))
}

fn below_minimum(plan: &Plan, pool: &str) -> Option<String> {
    let short = plan.below_minimum.iter().find(|one| one.pool == pool)?;
    Some(format!("stays below its minimum: {}", short.message))
}

fn until(now: Timestamp, then: Timestamp) -> String {
    let seconds = then.duration_since(now).as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
