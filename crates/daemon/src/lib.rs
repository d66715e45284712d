//! Runs rounds. In each round, observations become a plan, and the plan becomes tasks for machines.
//!
//! ```text
//!  watches ────┐
//!  inventory ──┼─> gather ─> Snapshot ─> planning::plan ─> act ─┬─> machines::create / retire, one task each
//!  registry ───┤                                                ├─> Node annotations, events
//!  memory ─────┘                                                └─> status board
//!       └──────────────── reports of the tasks <────────────────────┘
//! ```
//!
//! A round starts when a timer is due, when the batch window after a relevant change has passed, and at least
//! every `scan_interval`. If Kubernetes or Proxmox VE fails, the daemon reports what is wrong and tries
//! again.

mod announce;
mod backoffs;
mod bare_metal_power;
mod buffers;
mod build_snapshot;
mod cluster_autoscaler_status;
mod cpu_pinning;
mod execute;
mod failed_hosts;
mod host_power;
mod host_power_survey;
mod inventory;
mod leader;
mod leader_terms;
mod long_work;
mod node_orders;
mod orphans;
mod outside_changes;
mod pause_switch;
mod persistent_memory;
mod prediction_outcomes;
mod publish_status;
mod reach;
mod reconcile;
mod regions;
mod requests;
mod round_metrics;
mod server_clock;
mod serving_certificates;
mod silent_hosts;
mod stale_zone_labels;
mod standby;
mod status_writes;
mod trigger;
mod unmanaged_vms;
mod unrecorded_nodes;
mod vms;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runtime::boxed;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use kubernetes::{Cluster, Lease, Recorder, Watches};
use machines::{Context, Ending, MachineReport, MachineView, Pace, Probe, Registry, Reports};
use model::{Plan, Record, Snapshot};
use observability::{Board, Problem, RoundOutcome};
use pinning::Door;
use planning::Stop;
use proxmox::Client;
use recording::RoundFiles;
use runtime::clock::SharedClock;
use runtime::fence::Fence;
use settings::{Config, Mode};

use cluster_autoscaler_status::ClusterAutoscalerStatus;
use failed_hosts::FailedHosts;
use leader::{Standing, Term};
use long_work::at_length;
pub use pause_switch::Switch;
use persistent_memory::Remembered;
use regions::Regions;
use standby::{RegionViews, StandbyState};
use trigger::Trigger;
use unrecorded_nodes::Labelled;

/// How long the daemon waits for the first lists before it logs a warning. The warning is repeated at the
/// same interval.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time between two checks of whether the watches are current again.
const LOOK: Duration = Duration::from_millis(100);

pub use machines::Controllers;

/// The daemon's dependencies.
pub struct Deps {
    /// The settings; a new value takes effect in the next round.
    pub config: watch::Receiver<Arc<Config>>,
    /// The Proxmox VE cluster in `[proxmox]`.
    pub proxmox: Client,
    /// The other Proxmox VE clusters, by region name.
    pub regions: BTreeMap<String, Client>,
    /// The Kubernetes cluster.
    pub kubernetes: Cluster,
    /// How the lease is renewed.
    pub renewal: Renewal,
    /// Wall-clock time.
    pub clock: SharedClock,
    /// Detects when guests come up.
    pub probe: Arc<dyn Probe>,
    /// Creates clients for the management controllers of hosts and bare-metal machines.
    pub controllers: Controllers,
    /// Asks this host's helper to pin machines to CPUs.
    pub helper: Arc<dyn Door>,
    /// The seed for names, ids and jitter.
    pub seed: u64,
    /// The name of this instance, for example the host's name.
    pub instance: String,
    /// The board on which the daemon shows its state.
    pub board: Board,
}

/// How the lease is renewed.
#[derive(Clone, Debug)]
pub enum Renewal {
    /// The renewal uses the same connections and threads as all other work. Only for tests in virtual time.
    Shared,
    /// The renewal uses its own connections and threads, so that other work never delays it.
    Apart {
        /// A second Kubernetes client.
        kubernetes: Box<Cluster>,
        /// The runtime on which the renewal runs.
        threads: Handle,
    },
}

impl std::fmt::Debug for Deps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deps").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// Runs the daemon until it is cancelled. Work in progress is not completed: the records show how to continue
/// it.
///
/// If there are several instances, only the one that holds the lease acts. The others watch, and one takes
/// over when the leader is gone.
#[boxed]
pub async fn run(deps: Deps, cancel: CancellationToken) {
    let tasks = TaskTracker::new();
    // If this future is dropped, the task that takes part in the election must end too.
    let candidate = cancel.child_token();
    let _guard = candidate.clone().drop_guard();
    let (standing, seen) = watch::channel(Standing::Unknown);
    let (kubernetes, threads) = match &deps.renewal {
        Renewal::Shared => (deps.kubernetes.clone(), Handle::current()),
        Renewal::Apart { kubernetes, threads } => (Cluster::clone(kubernetes), threads.clone()),
    };
    // The seed is different in each run, so it also identifies the run.
    let lease = Lease::new(kubernetes, &deps.instance, &format!("{:016x}", deps.seed));
    let part = leader::take_part(lease, deps.config.clone(), deps.board.clone(), standing, candidate.clone());
    let part = threads.spawn(part);
    tokio::select! {
        biased;
        () = standby::serve(&deps, &cancel, &tasks, seen) => {}
        () = cpu_pinning::serve(&deps) => {}
    }
    candidate.cancel();
    tasks.close();
    tasks.wait().await;
    if let Ok(lease) = part.await {
        leader::give_up(lease).await;
    }
}

/// The Proxmox VE name of the host that an instance runs on: the instance's name without its domain.
fn host_of(instance: &str) -> &str {
    instance.split('.').next().unwrap_or_default()
}

/// The daemon's own state between rounds.
struct Daemon {
    config: watch::Receiver<Arc<Config>>,
    regions: Regions,
    kubernetes: Cluster,
    clock: SharedClock,
    probe: Arc<dyn Probe>,
    watches: Watches,
    registry: Registry,
    pace: Pace,
    recorder: Recorder,
    facts: machines::KnownFacts,
    memory: Remembered,
    board: Board,
    random: fastrand::Rng,
    reports: Reports,
    tasks: TaskTracker,
    cancel: CancellationToken,
    reconcile: reconcile::State,
    overlay: build_snapshot::Overlay,
    unshown: build_snapshot::Overlay,
    said: announce::RateLimitedLog,
    labelled: Labelled,
    rounds: RoundFiles,
    /// The results of the last decision that the next one reuses.
    carried: planning::Carried,
    switch: pause_switch::PauseState,
    waiting: round_metrics::Waiting,
    told_buffers: status_writes::Written,
    told_requests: status_writes::Written,
    /// Nodes that are waiting to be retired, and what each is waiting for, as of the last round.
    waiting_wishes: BTreeMap<String, String>,
    customary: ClusterAutoscalerStatus,
    asked: host_power::Asked,
    physical: bare_metal_power::BareMetalPower,
    strangers: unmanaged_vms::Strangers,
    /// Orphans, as of the last round.
    orphans: Vec<orphans::Judged>,
    orphans_tried: orphans::Tried,
    /// Nodes whose labels do not match the host or zone of their VMs, as of the last round.
    astray: Vec<stale_zone_labels::Astray>,
    controllers: Controllers,
    fence: Fence,
    instance: String,
}

/// Leads until the term is over and all its tasks have ended, then stores the final state of the memory.
async fn lead(deps: &Deps, warm: &StandbyState, eyes: RegionViews, term: &Term) {
    let tasks = TaskTracker::new();
    let (reports, mut told) = mpsc::unbounded_channel();
    let mut daemon = Daemon::new(deps, warm, &eyes, term, &tasks, reports);
    let looked = tokio::select! {
        biased;
        () = term.over.cancelled() => false,
        () = daemon.first_look() => true,
    };
    if looked {
        daemon.spawn(daemon.approver().run());
        daemon.spawn(daemon.physical.clone().watch(deps.config.clone(), deps.controllers.clone()));
        daemon.spawn(daemon.strangers.clone().watch(
            daemon.regions.clone(),
            daemon.registry.clone(),
            deps.config.clone(),
            deps.clock.clone(),
        ));
        daemon.spawn(daemon.dead_hosts().watch());
        let touched = outside_changes::Touched::new(
            daemon.regions.clone(),
            daemon.registry.clone(),
            deps.config.clone(),
            deps.clock.clone(),
            deps.board.clone(),
        );
        daemon.spawn(touched.watch());
        tokio::select! {
            biased;
            () = term.over.cancelled() => {}
            () = daemon.rounds(&mut told) => {}
        }
    }
    tasks.close();
    tasks.wait().await;
    if looked {
        daemon.take_in(&mut told);
        daemon.memory.decided(daemon.board.latest_decisions(), daemon.clock.now());
        daemon.memory.finish().await;
    }
}

impl Daemon {
    fn new(
        deps: &Deps,
        warm: &StandbyState,
        eyes: &RegionViews,
        term: &Term,
        tasks: &TaskTracker,
        reports: Reports,
    ) -> Self {
        let config = deps.config.borrow().clone();
        let kubernetes = deps.kubernetes.fenced(&term.fence);
        Self {
            registry: Registry::default(),
            recorder: Recorder::new(kubernetes.clone(), &deps.instance),
            facts: machines::KnownFacts::default(),
            memory: Remembered::start(&kubernetes, &term.over, tasks),
            customary: ClusterAutoscalerStatus::start(&kubernetes, &term.over, tasks),
            asked: host_power::Asked::default(),
            physical: bare_metal_power::BareMetalPower::default(),
            strangers: unmanaged_vms::Strangers::default(),
            orphans: Vec::new(),
            orphans_tried: orphans::Tried::new(),
            astray: Vec::new(),
            controllers: deps.controllers.clone(),
            fence: term.fence.clone(),
            instance: deps.instance.clone(),
            random: warm.random(),
            pace: warm.pace.clone(),
            config: deps.config.clone(),
            regions: eyes.regions.fenced(&term.fence, &config),
            kubernetes,
            clock: deps.clock.clone(),
            probe: deps.probe.clone(),
            board: deps.board.clone(),
            tasks: tasks.clone(),
            cancel: term.over.clone(),
            reconcile: reconcile::State::default(),
            overlay: build_snapshot::Overlay::default(),
            unshown: build_snapshot::Overlay::default(),
            said: announce::RateLimitedLog::default(),
            labelled: Labelled::default(),
            rounds: RoundFiles::default(),
            carried: planning::Carried::default(),
            waiting: round_metrics::Waiting::default(),
            told_buffers: status_writes::Written::default(),
            told_requests: status_writes::Written::default(),
            waiting_wishes: BTreeMap::new(),
            switch: pause_switch::PauseState::new(&deps.board),
            watches: warm.watches.clone(),
            reports,
        }
    }

    /// Runs rounds. Before the first round, waits briefly until the addresses of unmanaged VMs are known.
    async fn rounds(&mut self, told: &mut mpsc::UnboundedReceiver<MachineReport>) {
        let mut trigger = Trigger::new(
            &self.watches,
            &self.registry,
            &self.regions,
            &self.physical,
            &self.config,
            &self.board,
        );
        let config = self.config.borrow().clone();
        let mut asked = self.strangers.first(&self.regions, &config, self.clock.now()).await;
        loop {
            let began = Instant::now();
            let outcome = self.round().await;
            self.board.metrics().round(outcome, began.elapsed());
            let interval = self.config.borrow().scan_interval;
            let wait = self.next_timer().map_or(interval, |timer| timer.min(interval));
            // Reports from machines' tasks are processed while the daemon waits. They also trigger a round.
            tokio::select! {
                biased;
                first = told.recv() => {
                    if let Some(first) = first {
                        self.heard(&first);
                    }
                }
                Ok(()) = asked.changed() => {}
                () = trigger.fire(wait) => {}
            }
            let (window, most) = {
                let config = self.config.borrow();
                (config.batch_window, config.batch_max)
            };
            trigger.settle(window, most).await;
            self.take_in(told);
        }
    }

    fn take_in(&mut self, told: &mut mpsc::UnboundedReceiver<MachineReport>) {
        while let Ok(more) = told.try_recv() {
            self.heard(&more);
        }
    }

    fn dead_hosts(&self) -> FailedHosts {
        FailedHosts {
            regions: self.regions.clone(),
            registry: self.registry.clone(),
            watches: self.watches.clone(),
            kubernetes: self.kubernetes.clone(),
            recorder: self.recorder.clone(),
            board: self.board.clone(),
            clock: self.clock.clone(),
            config: self.config.clone(),
            off: BTreeMap::new(),
            said: announce::RateLimitedLog::default(),
        }
    }

    /// Returns what a machine's task works with: the cluster of the record's region, and the settings for
    /// that cluster alone. If there is no such region, logs this and returns `None`; the machine is then left
    /// alone.
    fn context(&mut self, config: &Arc<Config>, record: &Record) -> Option<Context> {
        let Some(region) = self.regions.of(config, record) else {
            let name = record.region.as_deref().unwrap_or_default();
            self.said.once(&format!("region {name}"), || {
                tracing::error!(machine = %record.name, region = name,
                    "the machine is left alone: its region is not configured, or was added after the \
                        daemon was started. If the region is configured, restart the daemon");
            });
            return None;
        };
        let config =
            if self.regions.several() { Arc::new(config.alone(&region.prefix)) } else { config.clone() };
        Some(Context {
            config,
            live: self.config.clone(),
            proxmox: region.proxmox.clone(),
            kubernetes: self.kubernetes.clone(),
            watches: self.watches.clone(),
            clock: self.clock.clone(),
            probe: self.probe.clone(),
            registry: self.registry.clone(),
            pace: self.pace.clone(),
            templates: region.templates.clone(),
            recorder: self.recorder.clone(),
            creating: region.creating.clone(),
            cluster_facts: self.facts.clone(),
            controllers: self.controllers.clone(),
            fence: self.fence.clone(),
            pause: self.switch.watch(),
        })
    }

    /// Runs a task concurrently with the rounds until it ends or the term is over.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Waits until Kubernetes has been read once, resumes all machines from their records, and then waits for
    /// a limited time until Proxmox VE has been read once.
    async fn first_look(&mut self) {
        loop {
            let looked = tokio::time::timeout(PATIENCE, self.watches.synced()).await;
            if looked.is_ok() {
                break;
            }
            let mut kinds: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for problem in self.watches.problems() {
                kinds.entry(problem.what).or_default().push(problem.kind);
            }
            for (problem, kinds) in &kinds {
                tracing::warn!(problem, kinds = kinds.join(", "), "waiting for the Kubernetes API");
            }
            let why = kinds.keys().next().map_or("the first lists have not arrived yet", String::as_str);
            self.board.problem(&Problem::Kubernetes, &format!("not all objects could be listed yet: {why}"));
        }
        // If the API was unavailable, another instance may have led since: the watches must be current before
        // they are used.
        let waited = tokio::time::Instant::now();
        while !self.watches.is_current() && waited.elapsed() < PATIENCE {
            tokio::time::sleep(LOOK).await;
        }
        self.memory.load(&self.kubernetes).await;
        self.board.recall(self.memory.decisions());
        // The pause switch is read first, because nothing may be started until it is known whether the daemon
        // is paused.
        let mut pause = reconcile::TRIES.0;
        while !self.read_switch().await {
            self.board.problem(&Problem::Kubernetes, "cannot determine yet whether the daemon is paused");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(reconcile::TRIES.1);
        }
        self.read_records().await;
        self.regions.first(PATIENCE).await;
        let (machines, is_seen) = (self.registry.all().len(), self.regions.is_any_seen());
        if is_seen {
            tracing::info!(machines, "Kubernetes and Proxmox VE were read; starting rounds");
        } else {
            tracing::info!(machines, "Proxmox VE has not been read yet; starting rounds");
        }
        self.board.begin(is_seen);
    }

    /// Runs one round: observes, decides and acts.
    async fn round(&mut self) -> RoundOutcome {
        let mut settings = self.config.clone();
        let config = settings.borrow_and_update().clone();
        if !self.board.is_ready() && self.regions.is_any_seen() {
            self.board.begin(true);
        }
        self.look_at_switch().await;
        self.reconcile(&config).await;
        let now = self.clock.now();
        let config = config.at(now);
        if !self.watches.is_current() {
            let problems = self.watches.problems();
            let what = problems
                .iter()
                .find(|one| one.essential)
                .map_or("watches are broken", |one| one.what.as_str());
            self.board.problem(&Problem::Kubernetes, what);
            self.publish(&config, None);
            return RoundOutcome::Blind;
        }
        self.board.clear(&Problem::Kubernetes);
        self.tell_what_is_not_seen();
        let Some(snapshot) = self.gather_with_records(&config).await else {
            self.publish(&config, None);
            return RoundOutcome::Blind;
        };
        let now = snapshot.time;
        let Some(plan) = self.decide(&snapshot, &config, settings) else {
            return RoundOutcome::Obsolete;
        };
        self.rounds.keep(&config.record, &snapshot, &plan);
        self.memory.seen(now);
        self.waiting.look(&snapshot, self.board.metrics());
        // Only `counted` advances the timers of unneeded nodes. It is not called while nothing may be
        // started.
        if self.act(&config, &snapshot, &plan).await {
            self.memory.counted(&config, now);
            self.look_at_outcomes(&config, &snapshot, &plan);
            self.go_on_with(&plan);
            if config.mode == Mode::Active {
                self.tell_buffers(&snapshot, &plan).await;
                self.answer_requests(&snapshot, &plan).await;
                self.collect_orphan(&config, now).await;
            }
        }
        self.memory.decided(self.board.latest_decisions(), now);
        self.measure(&config, &snapshot, &plan);
        self.customary.decided(&config, &snapshot, &plan, &self.registry.all());
        self.publish(&config, Some((&snapshot, plan)));
        RoundOutcome::Decided
    }

    /// Returns the planner's decision. `None` if the settings changed in the meantime, or this term is over.
    fn decide(
        &mut self,
        snapshot: &Snapshot,
        config: &Config,
        mut settings: watch::Receiver<Arc<Config>>,
    ) -> Option<Plan> {
        let stop = Stop::default();
        if settings.has_changed().unwrap_or(false) {
            stop.set();
        }
        let (over, ends) = (self.cancel.clone(), stop.clone());
        let obsolete = AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = settings.changed() => {}
                () = over.cancelled() => {}
            }
            ends.set();
        }));
        let plan = at_length(|| planning::plan_unless(&stop, snapshot, config, &mut self.carried));
        drop(obsolete);
        if plan.is_none() {
            tracing::info!("the decision in progress is obsolete; deciding again");
        }
        plan
    }

    /// Remembers what this round could not consider, so that the next rounds continue with it. If anything is
    /// left, reports a problem.
    fn go_on_with(&mut self, plan: &Plan) {
        self.memory.left_over(plan.unfinished.clone());
        if plan.unfinished.is_empty() {
            self.board.clear(&Problem::Unfinished);
        } else {
            self.board.problem(&Problem::Unfinished, &plan.unfinished.words());
        }
    }

    /// Reports to the operator which optional kinds of objects cannot be read. Rounds continue as if these
    /// objects did not exist, or had not changed.
    fn tell_what_is_not_seen(&self) {
        let unseen = self.watches.unseen();
        match unseen.first() {
            Some(first) => {
                let kinds: Vec<&str> = unseen.iter().map(|one| one.kind).collect();
                self.board.problem(
                    &Problem::Kinds,
                    &format!("{} cannot be seen: {}", kinds.join(", "), first.what),
                );
            }
            None => self.board.clear(&Problem::Kinds),
        }
    }

    fn heard(&mut self, told: &MachineReport) {
        let config = self.config.borrow().clone();
        let now = self.clock.now();
        let failed = |view: &MachineView| {
            let is_other = view.record.pool == told.record.pool && view.record.id != told.record.id;
            is_other && view.record.grow_backoff.as_ref().is_some_and(|backoff| backoff.runs(now))
        };
        let others_failed = self.registry.all().iter().any(failed);
        // If a pause or `mode = "observe"` has interrupted a task, the task has not failed. It continues
        // afterwards without delay.
        let begins = self.switch.paused().is_none() && config.mode == Mode::Active;
        if begins || !matches!(told.ending, Ending::GivenUp(_)) {
            self.memory.heard(told, others_failed, &config, now);
        }
        if let Ending::GivenUp(why) = &told.ending
            && begins
        {
            let record = &told.record;
            let node = self.registry.get(&record.id).and_then(|view| view.node);
            self.memory.stays(node.as_ref().unwrap_or(&record.name), &record.pool, why, &config, now);
        }
        if matches!(told.ending, Ending::Removed | Ending::Discarded) {
            // After its removal, a bare-metal machine still exists, and another client may already be using
            // it.
            let what = if told.record.is_physical() {
                "the machine is no longer in use"
            } else {
                "the machine is gone"
            };
            tracing::info!(machine = %told.record.name, "{what}");
        }
        self.reconcile.heard(told, &config);
        self.physical.heard(told);
        self.board.heard(told, now);
    }

    /// The time until the next step of the last plan is due.
    fn next_timer(&self) -> Option<Duration> {
        let due = self.board.next_due()?;
        let wait = due.duration_since(self.clock.now());
        Some(Duration::try_from(wait).unwrap_or_default().max(Duration::from_millis(100)))
    }
}
