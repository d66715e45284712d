//! Where the daemon shows what it does. Cheap to clone; written by rounds, read by the socket, systemd's
//! watchdog and displays.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::metrics::Metrics;
use super::problem::{self, Problem};
use super::status::Status;
use super::timeline::{Sample, Timeline};
use machines::{Ending, MachineReport};
use model::Pause;
use model::machine::Intent;
use model::snapshot::Decision;

/// Decisions that are kept, and those of them that outlive a restart.
pub(super) const DECISIONS: usize = 100;
const REMEMBERED: usize = 50;
/// As much of a decision's words as is kept, in characters.
const LONGEST: usize = 300;

/// Says why a node cannot be drained, as this instance sees the cluster; `None`: nothing is known that
/// hinders.
pub type Judge = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

#[derive(Default)]
struct Inner {
    status: Status,
    decisions: VecDeque<Decision>,
    timeline: Timeline,
    next_due: Option<Timestamp>,
    last_round: Option<Instant>,
    judge: Option<Judge>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Where the daemon shows what it does.
#[derive(Clone, Debug)]
pub struct Board {
    inner: Arc<Mutex<Inner>>,
    rounds: watch::Sender<u64>,
    pokes: watch::Sender<u64>,
    metrics: Metrics,
}

impl Default for Board {
    fn default() -> Self {
        let metrics = Metrics::default();
        Self { inner: Arc::default(), rounds: watch::Sender::new(0), pokes: watch::Sender::new(0), metrics }
    }
}

impl Board {
    /// The status as of the last round.
    pub fn status(&self) -> Status {
        let inner = self.inner();
        Status { decisions: inner.decisions.iter().rev().cloned().collect(), ..inner.status.clone() }
    }

    /// Nodes and waiting pods over the last hours, oldest first.
    pub(super) fn timeline(&self) -> Vec<Sample> {
        self.inner().timeline.samples()
    }

    /// Says whose board it is and how it starts, before the first round.
    pub fn introduce(&self, instance: &str, mode: &str, now: Timestamp) {
        let mut inner = self.inner();
        instance.clone_into(&mut inner.status.instance);
        mode.clone_into(&mut inner.status.mode);
        inner.status.time = now;
    }

    /// A number that grows with every round: what the watchdog is fed by.
    pub fn rounds(&self) -> watch::Receiver<u64> {
        self.rounds.subscribe()
    }

    /// A number that grows when a round should come soon: an operator has changed something.
    pub fn pokes(&self) -> watch::Receiver<u64> {
        self.pokes.subscribe()
    }

    /// Asks for a round soon.
    pub fn poke(&self) {
        self.pokes.send_modify(|count| *count += 1);
    }

    /// Who judges orders about nodes from now on.
    pub fn judges(&self, judge: Judge) {
        self.inner().judge = Some(judge);
    }

    /// Why a node cannot be drained, as far as is known here.
    pub fn hinders(&self, node: &str) -> Option<String> {
        let judge = self.inner().judge.clone();
        judge.and_then(|judge| judge(node))
    }

    /// Whether an operator has paused the daemon, from now on.
    pub fn paused(&self, pause: Option<&Pause>) {
        self.inner().status.paused = pause.cloned();
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// How long ago the last round was, or the first look at everything if there was none since.
    pub(super) fn since_last_round(&self) -> Option<Duration> {
        self.inner().last_round.map(|last| last.elapsed())
    }

    /// Whether everything was seen once and rounds run.
    pub fn is_ready(&self) -> bool {
        self.inner().status.ready
    }

    /// Everything was seen once, and this instance leads.
    pub fn ready(&self) {
        {
            let mut inner = self.inner();
            inner.last_round = Some(Instant::now());
            let status = &mut inner.status;
            status.ready = true;
            status.leads = true;
            status.leader.clone_from(&status.instance);
        }
        self.rounds.send_modify(|_| {});
    }

    /// This instance waits while `leader` leads: what it knew of machines is old. Without a leader it stays
    /// as it was, but for the lead. It says so regularly: that is its round.
    pub fn stand_by(&self, leader: &str, now: Timestamp) {
        if !leader.is_empty() {
            self.metrics.forget();
        }
        {
            let mut inner = self.inner();
            inner.next_due = None;
            inner.last_round = Some(Instant::now());
            inner.status.leads = false;
            leader.clone_into(&mut inner.status.leader);
            if !leader.is_empty() {
                let old = std::mem::take(&mut inner.status);
                let Status { instance, mode, rounds, mut problems, leader, credentials, .. } = old;
                problems.retain(|name, _| problem::is_of_its_own(name));
                inner.status = Status {
                    time: now,
                    instance,
                    mode,
                    rounds,
                    problems,
                    leader,
                    credentials,
                    ready: true,
                    ..Status::default()
                };
            }
        }
        self.rounds.send_modify(|_| {});
    }

    /// Something is wrong, until it is cleared. `what` is a sentence.
    pub fn problem(&self, problem: &Problem, what: &str) {
        debug_assert!(problem::ALL.iter().any(|(about, _)| *about == problem.about()));
        self.inner().status.problems.insert(problem.to_string(), what.to_owned());
    }

    /// What was wrong there is over.
    pub fn clear(&self, problem: &Problem) {
        self.inner().status.problems.remove(&problem.to_string());
    }

    /// What was wrong with the VMs of machines is over, whichever they are.
    pub fn clear_machines(&self) {
        let machine = Problem::Machine(String::new()).about();
        self.inner().status.problems.retain(|name, _| problem::about(name) != machine);
    }

    /// The credentials that say when they end, with that time.
    pub fn credentials(&self, ends: BTreeMap<String, Timestamp>) {
        self.inner().status.credentials = ends;
    }

    /// Adds a decision to the latest ones.
    pub fn decided(&self, time: Timestamp, what: String) {
        let what = if what.chars().count() > LONGEST { what.chars().take(LONGEST).collect() } else { what };
        let mut inner = self.inner();
        if inner.decisions.len() >= DECISIONS {
            inner.decisions.pop_front();
        }
        inner.decisions.push_back(Decision { time, what });
    }

    /// The latest decisions, oldest first, for the next leader.
    pub fn latest_decisions(&self) -> Vec<Decision> {
        let inner = self.inner();
        inner.decisions.iter().skip(inner.decisions.len().saturating_sub(REMEMBERED)).cloned().collect()
    }

    /// Takes over what was decided before, by an earlier run or by the previous leader.
    pub fn recall(&self, decisions: &[Decision]) {
        let mut inner = self.inner();
        let mut all: Vec<Decision> = inner.decisions.drain(..).chain(decisions.iter().cloned()).collect();
        all.sort_by(|a, b| (a.time, &a.what).cmp(&(b.time, &b.what)));
        all.dedup();
        inner.decisions = all.into_iter().rev().take(DECISIONS).rev().collect();
    }

    /// Takes up what the task of a machine reports.
    pub fn heard(&self, told: &MachineReport, now: Timestamp) {
        let name = &told.record.name;
        let what = match &told.ending {
            Ending::Ready => format!("{name} is ready"),
            Ending::Warm => format!("{name} is kept until it is needed"),
            Ending::Failed { reason, .. } => format!("{name} failed: {reason}"),
            Ending::SlotTaken(what) => format!("{name} was not made: {what}"),
            Ending::Removed => format!("{name} is gone"),
            Ending::Discarded => match &told.record.intent {
                Intent::Discard { reason, .. } => {
                    format!("{name}: what was left of it is gone; it was given up: {reason}")
                }
                _ => format!("{name}: what was left of it is gone"),
            },
            Ending::Grown => format!("{name} has grown"),
            Ending::NotGrown(why) => why.clone(),
            Ending::GivenUp(why) | Ending::LookedAfter(why) => format!("{name} stays: {why}"),
            Ending::Touched(what) => format!("! {name}: {what}"),
            Ending::Stuck(why) => format!("{name} is stuck: {why}"),
        };
        self.decided(now, what);
        self.metrics.heard(told);
    }

    /// When the next change is due that only time brings.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.inner().next_due
    }

    /// Takes a round's result; problems and decisions stay.
    pub fn publish(&self, status: Status, next_due: Option<Timestamp>) {
        {
            let mut inner = self.inner();
            let problems = std::mem::take(&mut inner.status.problems);
            let (rounds, ready) = (inner.status.rounds + 1, inner.status.ready);
            inner.timeline.take(&status);
            inner.status = Status { ready, rounds, problems, ..status };
            inner.next_due = next_due;
            inner.last_round = Some(Instant::now());
        }
        self.rounds.send_modify(|count| *count += 1);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
