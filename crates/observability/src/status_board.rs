//! The board that holds the daemon's current state. Rounds and other tasks of the daemon write to the board;
//! the socket, the HTTP server and the notifications to systemd read from it.

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

/// The maximum number of decisions that are kept in memory, and the maximum number that survive a restart.
pub(super) const DECISIONS: usize = 100;
const REMEMBERED: usize = 50;
/// The maximum length of a decision's text, in characters.
const LONGEST: usize = 300;

/// Returns why a node cannot be drained, or `None` if this instance knows no reason.
pub type Judge = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

#[derive(Default)]
struct Inner {
    status: Status,
    decisions: VecDeque<Decision>,
    timeline: Timeline,
    next_due: Option<Timestamp>,
    begun: bool,
    last_round: Option<Instant>,
    judge: Option<Judge>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The board that holds the daemon's current state. Cheap to clone.
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
    /// The status as of the last round, with the current problems and decisions.
    pub fn status(&self) -> Status {
        let inner = self.inner();
        Status { decisions: inner.decisions.iter().rev().cloned().collect(), ..inner.status.clone() }
    }

    /// The numbers of nodes and pending pods during the last day, oldest first.
    pub(super) fn timeline(&self) -> Vec<Sample> {
        self.inner().timeline.samples()
    }

    /// Sets the instance and mode, before the first round.
    pub fn introduce(&self, instance: &str, mode: &str, now: Timestamp) {
        let mut inner = self.inner();
        instance.clone_into(&mut inner.status.instance);
        mode.clone_into(&mut inner.status.mode);
        inner.status.time = now;
    }

    /// Returns a receiver for a number that increases with every round. [`Self::begin`] and
    /// [`Self::stand_by`] also wake up receivers, so these calls feed the watchdog too.
    pub fn rounds(&self) -> watch::Receiver<u64> {
        self.rounds.subscribe()
    }

    /// Returns a receiver for a number that increases when a round should run soon because an operator has
    /// changed something.
    pub fn pokes(&self) -> watch::Receiver<u64> {
        self.pokes.subscribe()
    }

    /// Requests that the next round start soon.
    pub fn poke(&self) {
        self.pokes.send_modify(|count| *count += 1);
    }

    /// Sets the function that decides whether a node can be drained.
    pub fn judges(&self, judge: Judge) {
        self.inner().judge = Some(judge);
    }

    /// Returns why a node cannot be drained, if this instance knows a reason.
    pub fn hinders(&self, node: &str) -> Option<String> {
        let judge = self.inner().judge.clone();
        judge.and_then(|judge| judge(node))
    }

    /// Sets or clears the pause that the status shows.
    pub fn paused(&self, pause: Option<&Pause>) {
        self.inner().status.paused = pause.cloned();
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The time since the last round, or since rounds began if none has been completed yet. `None` if rounds
    /// have not begun.
    pub(super) fn since_last_round(&self) -> Option<Duration> {
        self.inner().last_round.map(|last| last.elapsed())
    }

    /// Whether Kubernetes and Proxmox VE have both been read at least once and rounds are running.
    pub fn is_ready(&self) -> bool {
        self.inner().status.ready
    }

    /// Whether rounds have begun. From then on, they are expected to run on time.
    pub(super) fn has_begun(&self) -> bool {
        self.inner().begun
    }

    /// Records that this instance leads and that rounds are running. `is_ready` is true if Kubernetes and
    /// Proxmox VE have both been read at least once.
    pub fn begin(&self, is_ready: bool) {
        {
            let mut inner = self.inner();
            inner.last_round = Some(Instant::now());
            inner.begun = true;
            let status = &mut inner.status;
            status.ready = is_ready;
            status.leads = true;
            status.leader.clone_from(&status.instance);
        }
        self.rounds.send_modify(|_| {});
    }

    /// Records that this instance is on standby while `leader` leads, and drops its outdated knowledge of
    /// machines. If `leader` is empty, no leader is known, and the outdated knowledge is kept. Each call
    /// counts as a round for the watchdog.
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
                inner.begun = true;
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

    /// Adds a problem, which stays until it is cleared. `what` describes the problem.
    pub fn problem(&self, problem: &Problem, what: &str) {
        debug_assert!(problem::ALL.iter().any(|(about, _)| *about == problem.about()));
        self.inner().status.problems.insert(problem.to_string(), what.to_owned());
    }

    /// Clears a problem.
    pub fn clear(&self, problem: &Problem) {
        self.inner().status.problems.remove(&problem.to_string());
    }

    /// Clears the problems with the VMs of all machines.
    pub fn clear_machines(&self) {
        let machine = Problem::Machine(String::new()).about();
        self.inner().status.problems.retain(|name, _| problem::about(name) != machine);
    }

    /// Sets the expiry times of credentials.
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

    /// Adds decisions from an earlier run or from the previous leader.
    pub fn recall(&self, decisions: &[Decision]) {
        let mut inner = self.inner();
        let mut all: Vec<Decision> = inner.decisions.drain(..).chain(decisions.iter().cloned()).collect();
        all.sort_by(|a, b| (a.time, &a.what).cmp(&(b.time, &b.what)));
        all.dedup();
        inner.decisions = all.into_iter().rev().take(DECISIONS).rev().collect();
    }

    /// Adds the report from a machine's task to the decisions and the metrics.
    pub fn heard(&self, told: &MachineReport, now: Timestamp) {
        let name = &told.record.name;
        let what = match &told.ending {
            Ending::Ready => format!("{name} is ready"),
            Ending::Warm => format!("{name} is kept warm until it is needed"),
            Ending::Failed { reason, .. } => format!("{name} failed: {reason}"),
            Ending::SlotTaken(what) => format!("{name} was not created: {what}"),
            Ending::Removed => format!("{name} is gone"),
            Ending::Discarded => match &told.record.intent {
                Intent::Discard { reason, .. } => {
                    format!("{name} was given up and its leftovers were removed: {reason}")
                }
                _ => format!("the leftovers of {name} were removed"),
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

    /// The earliest time at which an action in the last plan becomes due even if nothing changes.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.inner().next_due
    }

    /// Sets the result of a round. Problems, decisions, credentials, the pause and the leader keep their
    /// current values, because other tasks may have changed them since the round read them.
    pub fn publish(&self, status: Status, next_due: Option<Timestamp>) {
        {
            let mut inner = self.inner();
            inner.timeline.take(&status);
            let now = std::mem::take(&mut inner.status);
            let Status { leads, leader, paused, ready, rounds, problems, credentials, .. } = now;
            let rounds = rounds + 1;
            inner.status = Status { leads, leader, paused, ready, rounds, problems, credentials, ..status };
            inner.next_due = next_due;
            inner.last_round = Some(Instant::now());
        }
        self.rounds.send_modify(|count| *count += 1);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_overwrites_nothing_that_was_written_while_it_ran() {
        let (board, at) = (Board::default(), Timestamp::UNIX_EPOCH);
        board.introduce("pve1", "active", at);
        board.begin(true);
        let round = Status { mode: "observe".to_owned(), ..board.status() };
        let ends = BTreeMap::from([("the API token".to_owned(), at)]);
        let pause = Pause { reason: "storage is moved".to_owned(), ..Pause::default() };
        board.credentials(ends.clone());
        board.paused(Some(&pause));
        board.publish(round.clone(), None);
        let shown = board.status();
        assert_eq!((shown.credentials, shown.paused), (ends, Some(pause)));
        assert_eq!((shown.mode.as_str(), shown.rounds, shown.leads), ("observe", 1, true));
        board.stand_by("pve2", at);
        board.publish(round, None);
        let shown = board.status();
        assert_eq!((shown.leads, shown.leader.as_str()), (false, "pve2"));
    }
}
