//! Notifications to systemd: readiness, a status line, and a watchdog that is fed while rounds run on time.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Board, Status};

/// The interval of notifications to systemd, unless the watchdog needs a shorter one.
const USUAL: Duration = Duration::from_secs(30);
/// How late a round may be, in addition to three intervals, before the watchdog is no longer fed.
const PATIENCE: Duration = Duration::from_mins(2);

/// Sends notifications to systemd, if systemd started the daemon.
#[derive(Clone, Debug)]
pub struct Supervisor {
    board: Board,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Creates a supervisor. If systemd has set a watchdog in the environment, the supervisor feeds it.
    pub fn from_environment(board: Board) -> Self {
        Self { board, watchdog: sd_notify::watchdog_enabled() }
    }

    /// Notifies systemd that the daemon is up, then reports its status until the future is dropped.
    ///
    /// The daemon counts as up as soon as it serves its socket, even if a cluster cannot be reached.
    /// Otherwise, an unreachable cluster would delay the boot of this host, which may be part of that
    /// cluster, or systemd would kill the daemon while it waits. The status line shows what the daemon is
    /// waiting for. The watchdog is fed until the first round, and after that for as long as rounds run on
    /// time. `interval` returns the longest time between rounds.
    pub async fn run(&self, interval: impl Fn() -> Duration) {
        self.keep_telling(interval, tell).await;
    }

    async fn keep_telling(&self, interval: impl Fn() -> Duration, tell: impl Fn(&[NotifyState<'_>])) {
        tell(&[NotifyState::Ready]);
        let mut rounds = self.board.rounds();
        let mut last = Instant::now();
        let mut tick = tokio::time::interval(self.watchdog.map_or(USUAL, |limit| limit / 3));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                changed = rounds.changed() => match changed {
                    Ok(()) => last = Instant::now(),
                    Err(_) => return,
                },
                _ = tick.tick() => {}
            }
            let status = self.board.status();
            tell(&[NotifyState::Status(&line(&status))]);
            if self.watchdog.is_some() && is_alive(self.board.has_begun(), last.elapsed(), interval()) {
                tell(&[NotifyState::Watchdog]);
            }
        }
    }

    /// Tells systemd that the daemon is stopping.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Tells systemd that the configuration is being reloaded.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::debug!(%error, "systemd could not be notified"),
        }
    }

    /// Tells systemd that the reload has ended, whether the configuration was applied or not.
    pub fn reloaded(&self) {
        tell(&[NotifyState::Ready]);
    }
}

/// Whether rounds run on time. Until the daemon has begun its rounds, none can be late.
pub(super) fn is_alive(begun: bool, since_last: Duration, interval: Duration) -> bool {
    !begun || since_last <= interval * 3 + PATIENCE
}

/// The status line in `systemctl status`.
fn line(status: &Status) -> String {
    if let Some((about, what)) = status.problems.iter().next() {
        return format!("{about}: {what}");
    }
    if let Some(pause) = &status.paused {
        return format!("paused ({}): starting nothing new", pause.words());
    }
    if !status.leads && !status.leader.is_empty() {
        return format!("on standby: {} leads", status.leader);
    }
    if !status.ready {
        return "waiting until both clusters have been read".to_owned();
    }
    let nodes: u32 = status.pools.iter().map(|pool| pool.nodes).sum();
    let mode = if status.mode == "observe" { ", observing only" } else { "" };
    let (pools, pods) = (status.pools.len(), status.pods.len());
    let (nodes, pools) = (counted(u64::from(nodes), "node"), counted(pools as u64, "pool"));
    let wait = if pods == 1 { "waits" } else { "wait" };
    format!("{nodes} in {pools}, {} {wait}{mode}", counted(pods as u64, "pod"))
}

/// A number with its noun, e.g. `1 node` or `2 nodes`.
pub fn counted(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd could not be notified");
    }
}

#[cfg(test)]
mod tests {
    use crate::Problem;
    use std::sync::atomic::{AtomicU32, Ordering};

    use jiff::Timestamp;

    use super::*;
    use model::Pause;

    const INTERVAL: Duration = Duration::from_secs(10);
    /// The watchdog's time limit, as in the daemon's systemd unit.
    const WATCHDOG: Duration = Duration::from_mins(3);

    /// The number of times the watchdog is fed during `time`, while the daemon does `work` every ten seconds.
    async fn fed(supervisor: &Supervisor, time: Duration, work: impl Fn(&Board)) -> u32 {
        let times = AtomicU32::new(0);
        let tell = |state: &[NotifyState<'_>]| {
            if matches!(state, [NotifyState::Watchdog]) {
                times.fetch_add(1, Ordering::Relaxed);
            }
        };
        let working = async {
            let end = Instant::now() + time;
            while Instant::now() < end {
                work(&supervisor.board);
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = supervisor.keep_telling(|| INTERVAL, tell) => {}
            () = working => {}
        }
        times.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_whose_rounds_or_looks_hang_is_fed_no_more() {
        let leads = |board: &Board| board.publish(Status { leads: true, ..Status::default() }, None);
        let stands_by = |board: &Board| board.stand_by("pve2", Timestamp::UNIX_EPOCH);
        let works: [&dyn Fn(&Board); 2] = [&leads, &stands_by];
        for work in works {
            let supervisor = Supervisor { board: Board::default(), watchdog: Some(WATCHDOG) };
            supervisor.board.begin(true);
            assert!(fed(&supervisor, Duration::from_hours(1), work).await >= 60);
            // Only rounds feed the watchdog, not other activity.
            let beside = |board: &Board| {
                board.problem(&Problem::Lease, "no answer");
                board.clear(&Problem::Lease);
                board.decided(Timestamp::UNIX_EPOCH, "- a: empty".to_owned());
                board.poke();
            };
            let once = fed(&supervisor, Duration::from_hours(1), beside).await;
            assert!(once <= 3, "the watchdog was fed {once} times after the last round");
            assert!(fed(&supervisor, Duration::from_hours(1), work).await >= 60, "rounds feed the watchdog");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_waits_for_its_first_look_is_fed() {
        let supervisor = Supervisor { board: Board::default(), watchdog: Some(WATCHDOG) };
        let waits = |board: &Board| board.problem(&Problem::Kubernetes, "no answer");
        assert!(fed(&supervisor, Duration::from_hours(1), waits).await >= 60);
    }

    #[test]
    fn the_watchdog_is_fed_while_rounds_come() {
        let seconds = Duration::from_secs;
        for (begun, since, interval, alive) in [
            (false, seconds(3600), seconds(10), true),
            (true, seconds(5), seconds(10), true),
            (true, seconds(149), seconds(10), true),
            (true, seconds(151), seconds(10), false),
            (true, seconds(1800), seconds(600), true),
        ] {
            assert_eq!(is_alive(begun, since, interval), alive, "{begun} {since:?} {interval:?}");
        }
    }

    #[test]
    fn a_problem_comes_first_in_the_status_line() {
        let mut status = Status { mode: "observe".to_owned(), ..Status::default() };
        assert_eq!(line(&status), "waiting until both clusters have been read");
        status.ready = true;
        assert_eq!(line(&status), "0 nodes in 0 pools, 0 pods wait, observing only");
        status.pods.push(crate::status::PodStatus::default());
        assert_eq!(line(&status), "0 nodes in 0 pools, 1 pod waits, observing only");
        status.leader = "pve2".to_owned();
        assert_eq!(line(&status), "on standby: pve2 leads");
        status.paused = Some(Pause { reason: "storage is moved".to_owned(), ..Pause::default() });
        assert_eq!(line(&status), "paused (storage is moved): starting nothing new");
        status.problems.insert("proxmox".to_owned(), "no answer".to_owned());
        assert_eq!(line(&status), "proxmox: no answer");
    }
}
