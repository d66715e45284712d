//! Writes the status in Cluster Autoscaler's format (its `clusterstate/api/types.go`) to the ConfigMap in
//! which people and dashboards expect it.
//!
//! The status is written at most once per scan interval, if anything other than its times has changed. It is
//! also written periodically, so that its age shows that the daemon is alive. If a write fails, the next
//! write makes up for it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::execute::leaves;
use kubernetes::{Cluster, ErrorKind};
use machines::MachineView;
use model::Snapshot;
use model::machine::Phase;
use model::plan::{NodeOutcome, Plan};
use model::snapshot::POOL_LABEL;
use settings::{Config, Pool};

/// The status is written after this time even if nothing has changed.
const ANYWAY: SignedDuration = SignedDuration::from_mins(5);
/// Cluster Autoscaler's limit for the length of an error text.
const LONGEST: usize = 500;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unready {
    total: usize,
    resource_unready: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Registered {
    total: usize,
    ready: usize,
    not_started: usize,
    being_deleted: usize,
    unready: Unready,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    registered: Registered,
    long_unregistered: usize,
    unregistered: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    status: &'static str,
    node_counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud_provider_target: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_size: Option<u32>,
    #[serde(flatten)]
    times: Times,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaleUp {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff_info: Option<BackoffInfo>,
    #[serde(flatten)]
    times: Times,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct BackoffInfo {
    error_code: &'static str,
    error_message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaleDown {
    status: &'static str,
    candidates: usize,
    #[serde(flatten)]
    times: Times,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Times {
    last_probe_time: Timestamp,
    last_transition_time: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    health: Health,
    scale_up: ScaleUp,
    scale_down: ScaleDown,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    time: String,
    autoscaler_status: &'static str,
    cluster_wide: Group,
    node_groups: Vec<Group>,
}

/// The status that was last handed over for writing, and when each of its parts last changed.
pub(super) struct ClusterAutoscalerStatus {
    last: Option<Whole>,
    written: Timestamp,
    /// Maps each part of each group to the part's status, and to the time at which that status last changed.
    since: BTreeMap<(String, &'static str), (&'static str, Timestamp)>,
    to_store: watch::Sender<Option<(String, String)>>,
}

impl ClusterAutoscalerStatus {
    /// Starts the task that writes the status.
    pub fn start(kubernetes: &Cluster, cancel: &CancellationToken, tasks: &TaskTracker) -> Self {
        let (to_store, receiver) = watch::channel(None);
        let (keeper, cancel) = (keep(kubernetes.clone(), receiver), cancel.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = keeper => {}
            }
        });
        Self { last: None, written: Timestamp::MIN, since: BTreeMap::new(), to_store }
    }

    /// After a decision, hands the status to the task that writes it, if a write is due.
    pub fn decided(&mut self, config: &Config, snapshot: &Snapshot, plan: &Plan, views: &[MachineView]) {
        let now = snapshot.time;
        let mut whole = whole(config, snapshot, plan, views);
        self.date(&mut whole.cluster_wide, now);
        for group in &mut whole.node_groups {
            self.date(group, now);
        }
        let age = now.duration_since(self.written);
        let interval = SignedDuration::try_from(config.scan_interval).unwrap_or(ANYWAY);
        let changed = self.last.as_ref() != Some(&whole);
        if (changed && age >= interval) || age >= ANYWAY {
            let updated = time_text(now);
            let stamped = stamped(whole.clone(), now, &updated);
            match serde_saphyr::to_string(&stamped) {
                Ok(text) => {
                    self.to_store.send_replace(Some((text, updated)));
                    (self.last, self.written) = (Some(whole), now);
                }
                Err(error) => tracing::debug!(%error, "the status cannot be written as YAML"),
            }
        }
    }

    /// Sets the time at which the status of each part of a group last changed.
    fn date(&mut self, group: &mut Group, now: Timestamp) {
        let name = group.name.clone().unwrap_or_default();
        let mut since = |part, status| {
            let entry = self.since.entry((name.clone(), part)).or_insert((status, now));
            if entry.0 != status {
                *entry = (status, now);
            }
            entry.1
        };
        group.health.times.last_transition_time = since("health", group.health.status);
        group.scale_up.times.last_transition_time = since("scaleUp", group.scale_up.status);
        group.scale_down.times.last_transition_time = since("scaleDown", group.scale_down.status);
    }
}

/// Adds the current time to the status. This happens after the status is compared with the last one, because
/// a new time alone is not a change.
fn stamped(mut whole: Whole, now: Timestamp, updated: &str) -> Whole {
    updated.clone_into(&mut whole.time);
    for group in std::iter::once(&mut whole.cluster_wide).chain(&mut whole.node_groups) {
        for times in [&mut group.health.times, &mut group.scale_up.times, &mut group.scale_down.times] {
            times.last_probe_time = now;
        }
    }
    whole
}

fn whole(config: &Config, snapshot: &Snapshot, plan: &Plan, views: &[MachineView]) -> Whole {
    let groups: Vec<Group> =
        config.pools.iter().map(|pool| group(config, pool, snapshot, plan, views)).collect();
    let mut all = Group::default();
    for group in &groups {
        let (sum, one) = (&mut all.health.node_counts, &group.health.node_counts);
        sum.registered.total += one.registered.total;
        sum.registered.ready += one.registered.ready;
        sum.registered.not_started += one.registered.not_started;
        sum.registered.being_deleted += one.registered.being_deleted;
        sum.registered.unready.total += one.registered.unready.total;
        sum.unregistered += one.unregistered;
        sum.long_unregistered += one.long_unregistered;
        all.scale_down.candidates += group.scale_down.candidates;
    }
    let any = |is_so: fn(&Group) -> bool| groups.iter().any(is_so);
    all.health.status = healthy(!any(|group| group.health.status == "Unhealthy"));
    all.scale_up.status =
        if any(|group| group.scale_up.status == "InProgress") { "InProgress" } else { "NoActivity" };
    all.scale_down.status = candidates(all.scale_down.candidates);
    Whole { time: String::new(), autoscaler_status: "Running", cluster_wide: all, node_groups: groups }
}

fn group(config: &Config, pool: &Pool, snapshot: &Snapshot, plan: &Plan, views: &[MachineView]) -> Group {
    let mine: Vec<&MachineView> = views.iter().filter(|view| view.record.pool == pool.name).collect();
    let phases: BTreeMap<&str, Phase> =
        mine.iter().filter_map(|view| Some((view.node.as_deref()?, view.phase))).collect();
    let mut counts = Counts::default();
    for node in snapshot
        .nodes
        .iter()
        .filter(|node| node.labels.get(POOL_LABEL).is_some_and(|name| pool.name == *name))
    {
        let ready = node.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
        let registered = &mut counts.registered;
        registered.total += 1;
        match phases.get(node.name.as_str()) {
            Some(phase) if leaves(*phase) || *phase == Phase::Failed => registered.being_deleted += 1,
            _ if ready => registered.ready += 1,
            Some(phase) if *phase < Phase::Ready => registered.not_started += 1,
            _ => registered.unready.total += 1,
        }
    }
    let without_node = || mine.iter().filter(|view| view.node.is_none());
    // A machine that is kept warm is not expected to register.
    let comes = |view: &MachineView| view.phase < Phase::Ready && view.record.warm.is_none();
    counts.unregistered = without_node().filter(|view| comes(view)).count();
    counts.long_unregistered = without_node().filter(|view| view.phase == Phase::Failed).count();
    let limits = &config.health;
    let (unready, settled) =
        (counts.registered.unready.total, counts.registered.total - counts.registered.being_deleted);
    #[expect(clippy::cast_precision_loss, reason = "far fewer nodes than 2^52")]
    let percentage = unready as f64 * 100.0 / settled.max(1) as f64;
    let well = unready <= limits.ok_total_unready_count || percentage <= limits.max_total_unready_percentage;
    let backoff = snapshot.memory.pools.get(&pool.name).and_then(|memory| memory.backoff.as_ref());
    let backoff = backoff.filter(|backoff| backoff.runs(snapshot.time));
    let coming = mine.iter().any(|view| comes(view));
    let goes = |outcome| matches!(outcome, NodeOutcome::Unneeded | NodeOutcome::Remove);
    let going = plan
        .nodes
        .iter()
        .filter(|node| node.pool.as_deref() == Some(&pool.name) && goes(node.verdict))
        .count();
    Group {
        name: Some(pool.name.to_string()),
        health: Health {
            status: healthy(well),
            node_counts: counts,
            cloud_provider_target: Some(
                mine.iter().filter(|view| view.phase <= Phase::Ready && view.record.warm.is_none()).count(),
            ),
            min_size: Some(pool.min),
            max_size: Some(pool.max),
            times: Times::default(),
        },
        scale_up: ScaleUp {
            status: match backoff {
                Some(_) => "Backoff",
                None if coming => "InProgress",
                None => "NoActivity",
            },
            backoff_info: backoff.map(|backoff| BackoffInfo {
                error_code: "backoff",
                error_message: backoff.reason.chars().take(LONGEST).collect(),
            }),
            times: Times::default(),
        },
        scale_down: ScaleDown { status: candidates(going), candidates: going, times: Times::default() },
    }
}

fn healthy(well: bool) -> &'static str {
    if well { "Healthy" } else { "Unhealthy" }
}

fn candidates(number: usize) -> &'static str {
    if number > 0 { "CandidatesPresent" } else { "NoCandidates" }
}

/// The time in Cluster Autoscaler's format.
fn time_text(now: Timestamp) -> String {
    let zoned = now.to_zoned(jiff::tz::TimeZone::UTC);
    zoned.strftime("%Y-%m-%d %H:%M:%S.%f %z UTC").to_string()
}

async fn keep(kubernetes: Cluster, mut wanted: watch::Receiver<Option<(String, String)>>) {
    let mut version: Option<String> = None;
    while wanted.changed().await.is_ok() {
        let Some((text, updated)) = wanted.borrow_and_update().clone() else { continue };
        let mut stored = kubernetes.store_status(&text, &updated, version.as_deref()).await;
        if let Err(error) = &stored
            && matches!(error.kind(), ErrorKind::Conflict | ErrorKind::AlreadyExists | ErrorKind::NotFound)
            && let Ok(there) = kubernetes.status_version().await
        {
            // The stored status is from an earlier run or another leader, so it is older than the new one.
            stored = kubernetes.store_status(&text, &updated, there.as_deref()).await;
        }
        match stored {
            Ok(new) => version = Some(new),
            Err(error) => tracing::debug!(%error, "the status could not be written to its ConfigMap"),
        }
    }
}
