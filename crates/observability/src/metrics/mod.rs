//! Metrics. Events are counted where they happen; the current state is taken from the last round and from the
//! board.

mod cluster_autoscaler;
mod gauges;
mod kproximate;
pub mod names;
mod process;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Status;
use super::problem;
use cluster_autoscaler::ClusterAutoscaler;
use kubernetes::ErrorKind;
use machines::{BackoffTarget, Ending, MachineReport};
use model::machine::Phase;
use model::plan::RemovalReason;
use model::{MachineId, PoolName};
use names::Metric;

pub use gauges::{GaugeValues, number};

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// The steps of creating a machine, each with its first and last phase.
const STEPS: [(&str, Phase, Phase); 7] = [
    ("clone", Phase::Cloning, Phase::Configuring),
    ("configure", Phase::Configuring, Phase::Starting),
    ("start", Phase::Starting, Phase::Booting),
    ("boot", Phase::Booting, Phase::Joining),
    ("join", Phase::Joining, Phase::Registered),
    ("ready", Phase::Registered, Phase::Ready),
    ("whole", Phase::Requested, Phase::Ready),
];
/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundOutcome {
    /// The round reached a decision.
    Decided,
    /// Too little data was available to decide anything.
    Blind,
    /// The settings changed or the term ended before the decision was complete.
    Obsolete,
}

impl RoundOutcome {
    const ALL: [Self; 3] = [Self::Decided, Self::Blind, Self::Obsolete];

    fn label(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::Blind => "blind",
            Self::Obsolete => "obsolete",
        }
    }
}

/// How terms end.
const TERM_ENDS: [&str; 4] = ["Taken", "HostSlow", "ApiSlow", "ApiFailed"];
const MADE: [&str; 6] = ["Ready", "Warm", "SlotTaken", "Pool", "Host", "Other"];
const REMOVED: [&str; 4] = ["Removed", "GivenUp", "Discarded", "Stuck"];
const GROWN: [&str; 2] = ["Grown", "NotGrown"];
/// The reason for removing a node on an operator's order.
const ASKED: &str = "Asked";

/// All pairs of a decision about a pool and a reason for it.
fn decisions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let removed = RemovalReason::ALL.iter().map(|reason| ("remove", reason.code()));
    [("add", "Pods"), ("add", "Minimum"), ("grow", "Pods"), ("remove", ASKED)].into_iter().chain(removed)
}
/// The maximum number of machines in `Inner::waiting`. Usually, there are far fewer.
const FOLLOWED: usize = 4096;

/// The other projects under whose names metrics are served as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OthersNames {
    /// kproximate's gauges.
    pub kproximate: bool,
    /// Cluster Autoscaler's metrics.
    pub cluster_autoscaler: bool,
}

/// All metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    process: Registry,
    counted: Counted,
    cluster_autoscaler: ClusterAutoscaler,
    shown: Arc<Shown>,
    /// For each machine that was requested for pods, the time at which the first of these pods became
    /// unschedulable.
    waiting: Mutex<BTreeMap<MachineId, Timestamp>>,
}

/// Counters and histograms, which only grow.
#[derive(Debug)]
struct Counted {
    rounds: Counters,
    terms_ended: Counters,
    round: Histogram,
    decisions: Counters,
    calls: Counters,
    call: Histograms,
    pod_wait: Histogram,
    made: Counters,
    removed: Counters,
    grown: Counters,
    missed: Counters,
    step: Histograms,
    clone_request: Histogram,
    to_ready: Histogram,
}

/// The current state, as determined by the last round and as shown by the board.
#[derive(Debug, Default)]
struct Shown {
    round: Mutex<GaugeValues>,
    board: Mutex<GaugeValues>,
}

/// Encodes the current state on each scrape.
#[derive(Debug)]
struct Gauges(Arc<Shown>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        locked(&self.0.round).encode(&mut encoder)?;
        locked(&self.0.board).encode(&mut encoder)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(names::PREFIX);
        let shown = Arc::<Shown>::default();
        registry.register_collector(Box::new(Gauges(shown.clone())));
        let counted = Counted {
            rounds: counters(&mut registry, names::ROUNDS),
            terms_ended: counters(&mut registry, names::TERMS_ENDED),
            round: registered(&mut registry, names::ROUND, quick()),
            decisions: counters(&mut registry, names::DECISIONS),
            calls: counters(&mut registry, names::CALLS),
            call: histograms(&mut registry, names::CALL, calls),
            pod_wait: registered(&mut registry, names::POD_WAIT, slow()),
            made: counters(&mut registry, names::MADE),
            removed: counters(&mut registry, names::REMOVED),
            grown: counters(&mut registry, names::GROWN),
            missed: counters(&mut registry, names::MISSED),
            step: histograms(&mut registry, names::STEP, slow),
            clone_request: registered(&mut registry, names::CLONE_REQUEST, middling()),
            to_ready: registered(&mut registry, names::TO_READY, slow()),
        };
        // These series are created at the start: otherwise, Prometheus would not see their first event as an
        // increase.
        for outcome in RoundOutcome::ALL.map(RoundOutcome::label) {
            drop(counted.rounds.get_or_create_owned(&vec![("outcome", outcome.to_owned())]));
        }
        for cause in TERM_ENDS {
            drop(counted.terms_ended.get_or_create_owned(&vec![("cause", cause.to_owned())]));
        }
        for (step, ..) in STEPS {
            drop(counted.step.get_or_create_owned(&vec![("step", step.to_owned())]));
        }
        let mut process = Registry::default();
        process.register_collector(Box::new(process::OfProcess));
        let cluster_autoscaler = ClusterAutoscaler::new(shown.clone());
        let waiting = Mutex::default();
        Self(Arc::new(Inner { registry, process, counted, cluster_autoscaler, shown, waiting }))
    }
}

impl Metrics {
    /// All metrics as OpenMetrics text.
    ///
    /// # Errors
    /// Returns an error if a value cannot be written as text.
    pub fn encode(&self, status: &Status) -> Result<String, fmt::Error> {
        self.encode_beside(status, OthersNames::default())
    }

    /// All metrics as OpenMetrics text. Some are repeated under the names of other projects.
    ///
    /// # Errors
    /// Returns an error if a value cannot be written as text.
    pub fn encode_beside(&self, status: &Status, others: OthersNames) -> Result<String, fmt::Error> {
        let board = of_board(status);
        let mut text = String::new();
        if others.kproximate {
            text.push_str(&kproximate::text(&board, &locked(&self.0.shown.round)));
        }
        *locked(&self.0.shown.board) = board;
        if others.cluster_autoscaler {
            encode_registry(&mut text, &self.0.cluster_autoscaler.registry)?;
        }
        encode_registry(&mut text, &self.0.registry)?;
        encode_registry(&mut text, &self.0.process)?;
        encode_eof(&mut text)?;
        Ok(text)
    }

    /// Drops the values of the last round, which are outdated because another instance leads.
    pub(crate) fn forget(&self) {
        *locked(&self.0.shown.round) = GaugeValues::default();
    }

    /// Stores the values of a round that reached a decision, so that they are served as metrics.
    pub fn show(&self, seen: GaugeValues, pools: &[PoolName]) {
        *locked(&self.0.shown.round) = seen;
        let counted = &self.0.counted;
        for pool in pools {
            for (family, outcomes) in
                [(&counted.made, &MADE[..]), (&counted.removed, &REMOVED[..]), (&counted.grown, &GROWN[..])]
            {
                for outcome in outcomes {
                    drop(family.get_or_create_owned(&pool_and_outcome(pool, outcome)));
                }
            }
            drop(counted.missed.get_or_create_owned(&vec![("pool", pool.to_string())]));
            for (decision, reason) in decisions() {
                drop(counted.decisions.get_or_create_owned(&decision_labels(pool, decision, reason)));
            }
        }
    }

    /// Counts a round that has ended.
    pub fn round(&self, outcome: RoundOutcome, took: Duration) {
        self.0.counted.rounds.get_or_create(&vec![("outcome", outcome.label().to_owned())]).inc();
        self.0.counted.round.observe(took.as_secs_f64());
        self.0.cluster_autoscaler.round(took.as_secs_f64());
    }

    /// Counts the end of a term: this instance no longer leads.
    pub fn term_ended(&self, cause: &str) {
        self.0.counted.terms_ended.get_or_create(&vec![("cause", cause.to_owned())]).inc();
    }

    /// Counts a request for a machine, either for pods or for the pool's minimum. `since` is when the first
    /// of the pods became unschedulable.
    pub fn asked_for(&self, pool: &PoolName, machine: &MachineId, for_pods: bool, since: Option<Timestamp>) {
        self.decided(pool, "add", if for_pods { "Pods" } else { "Minimum" });
        self.0.cluster_autoscaler.added();
        let mut waiting = locked(&self.0.waiting);
        if let Some(since) = since.filter(|_| waiting.len() < FOLLOWED) {
            waiting.insert(machine.to_owned(), since);
        }
    }

    /// Stops tracking machines that are not in this set. Otherwise, a machine would be tracked forever if its
    /// task ended without a report, because the term ended or the machine's record was removed.
    pub fn follow_only(&self, machines: &BTreeSet<&MachineId>) {
        locked(&self.0.waiting).retain(|machine, _| machines.contains(machine));
    }

    /// Counts a decision to let a running machine grow.
    pub fn grows(&self, pool: &PoolName) {
        self.decided(pool, "grow", "Pods");
    }

    /// Counts a missed prediction: a pod did not get the node that was chosen for it, or the pods of a
    /// removed node did not start on other nodes.
    pub fn missed(&self, pool: &PoolName) {
        self.0.counted.missed.get_or_create(&vec![("pool", pool.to_string())]).inc();
    }

    /// Counts a decision to remove a node. If `reason` is `None`, an operator ordered the removal.
    pub fn taken_back(&self, pool: &PoolName, reason: Option<RemovalReason>) {
        self.0.cluster_autoscaler.removed(reason);
        let reason = reason.map_or(ASKED, RemovalReason::code);
        self.decided(pool, "remove", reason);
    }

    fn decided(&self, pool: &str, decision: &str, reason: &str) {
        self.0.counted.decisions.get_or_create(&decision_labels(pool, decision, reason)).inc();
    }

    /// Records how long a pod was unschedulable before it got a node.
    pub fn pod_waited(&self, time: Duration) {
        self.0.counted.pod_wait.observe(time.as_secs_f64());
    }

    /// Counts the outcome that a machine's task reported.
    pub(crate) fn heard(&self, told: &MachineReport) {
        let counted = &self.0.counted;
        let (family, outcome) = match &told.ending {
            Ending::Ready => (&counted.made, "Ready"),
            Ending::Warm => (&counted.made, "Warm"),
            Ending::SlotTaken(_) => (&counted.made, "SlotTaken"),
            Ending::Failed { blame: BackoffTarget::Pool, .. } => (&counted.made, "Pool"),
            Ending::Failed { blame: BackoffTarget::Host | BackoffTarget::HostOrPool, .. } => {
                (&counted.made, "Host")
            }
            Ending::Failed { blame: BackoffTarget::Other, .. } => (&counted.made, "Other"),
            Ending::Grown => (&counted.grown, "Grown"),
            Ending::NotGrown(_) => (&counted.grown, "NotGrown"),
            Ending::Removed => (&counted.removed, "Removed"),
            Ending::Discarded => (&counted.removed, "Discarded"),
            Ending::GivenUp(_) => (&counted.removed, "GivenUp"),
            Ending::Stuck(_) => (&counted.removed, "Stuck"),
            // No machine was created, grown or removed.
            Ending::LookedAfter(_) | Ending::Touched(_) => return,
        };
        family.get_or_create(&pool_and_outcome(&told.record.pool, outcome)).inc();
        if matches!(told.ending, Ending::SlotTaken(_) | Ending::Failed { .. }) {
            self.0.cluster_autoscaler.failed(outcome);
        }
        let entered = |phase| told.record.entered.get(&phase).copied();
        let step = |name: &str, from: Option<Timestamp>, to: Option<Timestamp>| {
            if let Some(took) = between(from, to) {
                counted.step.get_or_create(&vec![("step", name.to_owned())]).observe(took);
            }
        };
        match &told.ending {
            Ending::Ready => {
                for (name, from, to) in STEPS {
                    step(name, entered(from), entered(to));
                }
            }
            Ending::Removed => {
                step("drain", entered(Phase::Draining), entered(Phase::Stopping));
                step("remove", entered(Phase::Draining), Some(told.at));
            }
            _ => {}
        }
        if let Some(since) = locked(&self.0.waiting).remove(&told.record.id) {
            let observe = |histogram: &Histogram, to| {
                if let Some(took) = between(Some(since), to) {
                    histogram.observe(took);
                }
            };
            observe(&counted.clone_request, entered(Phase::Cloning));
            if told.ending == Ending::Ready {
                observe(&counted.to_ready, entered(Phase::Ready));
            }
        }
    }

    /// An observer that counts the calls of a Proxmox VE client.
    pub fn of_proxmox(&self) -> proxmox::Observer {
        let this = self.clone();
        Arc::new(move |failure: Option<proxmox::Kind>, took| {
            this.called("proxmox", failure.map(proxmox::Kind::code), took);
        })
    }

    /// An observer that counts the calls of a Kubernetes client.
    pub fn of_kubernetes(&self) -> kubernetes::Observer {
        let this = self.clone();
        Arc::new(move |failure: Option<ErrorKind>, took| {
            this.called("kubernetes", failure.map(ErrorKind::code), took);
        })
    }

    fn called(&self, api: &str, failure: Option<&str>, took: Duration) {
        let outcome = failure.unwrap_or("Ok").to_owned();
        self.0.counted.calls.get_or_create(&vec![("api", api.to_owned()), ("outcome", outcome)]).inc();
        self.0.counted.call.get_or_create(&vec![("api", api.to_owned())]).observe(took.as_secs_f64());
    }
}

fn of_board(status: &Status) -> GaugeValues {
    let mut seen = GaugeValues::default();
    seen.put(names::BUILD, &[env!("CARGO_PKG_VERSION")], 1.0);
    seen.put(names::READY, &[], f64::from(u8::from(status.ready)));
    seen.put(names::LEADER, &[], f64::from(u8::from(status.leads)));
    seen.put(names::PAUSED, &[], f64::from(u8::from(status.paused.is_some())));
    seen.put(names::OBSERVING, &[], f64::from(u8::from(status.mode == "observe")));
    for (about, _) in problem::ALL {
        seen.put(names::PROBLEM, &[about], 0.0);
    }
    for name in status.problems.keys() {
        seen.put(names::PROBLEM, &[problem::about(name)], 1.0);
    }
    for (credential, ends) in &status.credentials {
        seen.put(names::CREDENTIAL_END, &[credential], number(ends.as_second()));
    }
    for pool in &status.pools {
        let name = pool.name.as_str();
        seen.put(names::MIN, &[name], f64::from(pool.min));
        seen.put(names::MAX, &[name], f64::from(pool.max));
        seen.put(names::SLOTS, &[name], f64::from(pool.slots_free));
        seen.put(names::POOL_BACKOFF, &[name], f64::from(u8::from(pool.backoff.is_some())));
        if let Some(until) = pool.backoff_until {
            seen.put(names::POOL_BACKOFF_END, &[name], number(until.as_second()));
        }
        for phase in Phase::ALL.iter().filter(|phase| **phase != Phase::Gone) {
            seen.put(names::MACHINES, &[name, phase.code()], 0.0);
        }
        seen.put(names::DRAINS, &[name], 0.0);
    }
    for machine in &status.machines {
        seen.count(names::MACHINES, &[&machine.pool, &machine.phase]);
        if machine.phase == Phase::Draining.code() {
            seen.count(names::DRAINS, &[&machine.pool]);
        }
    }
    seen
}

fn pool_and_outcome(pool: &str, outcome: &str) -> Labels {
    vec![("pool", pool.to_owned()), ("outcome", outcome.to_owned())]
}

fn decision_labels(pool: &str, decision: &str, reason: &str) -> Labels {
    vec![("pool", pool.to_owned()), ("decision", decision.to_owned()), ("reason", reason.to_owned())]
}

/// The number of seconds between two times. Returns `None` if a time is unknown, or if they are out of order
/// because the clock was set back.
fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<f64> {
    let took = to?.duration_since(from?).as_secs_f64();
    (took >= 0.0).then_some(took)
}

fn counters(registry: &mut Registry, metric: &'static Metric) -> Counters {
    registered(registry, metric, Counters::default())
}

fn histograms(registry: &mut Registry, metric: &'static Metric, make: fn() -> Histogram) -> Histograms {
    registered(registry, metric, Histograms::new_with_constructor(make))
}

fn registered<M>(registry: &mut Registry, metric: &'static Metric, made: M) -> M
where
    M: prometheus_client::registry::Metric + Clone,
{
    match metric.unit() {
        Some(unit) => registry.register_with_unit(metric.name, metric.help, unit, made.clone()),
        None => registry.register(metric.name, metric.help, made.clone()),
    }
    made
}

/// Buckets for rounds.
fn quick() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0])
}

/// Buckets for the duration of calls. Proxmox VE abandons a call after 30 s.
fn calls() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

/// Buckets for the time from when a pod became unschedulable until a clone for it began. They range from the
/// usual time to the longest time that is likely when clones are queued.
fn middling() -> Histogram {
    Histogram::new([0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0])
}

/// Buckets for the steps of machine creation and removal.
fn slow() -> Histogram {
    Histogram::new([0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0])
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
