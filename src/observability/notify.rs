//! systemd: readiness, a status line, and a watchdog that is fed by the rounds themselves.

use std::time::Duration;

use sd_notify::NotifyState;

use super::Board;

/// Talks to systemd, where it started the daemon; else says nothing.
#[derive(Clone, Debug)]
pub struct Supervisor {
    board: Board,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// A supervisor as the environment tells.
    pub fn from_environment(board: Board) -> Self {
        Self { board, watchdog: sd_notify::watchdog_enabled() }
    }

    /// Tells systemd of readiness once the first round has run, then after each round that all is well. A daemon whose rounds
    /// have stopped is restarted by the watchdog.
    pub async fn run(&self) {
        let mut rounds = self.board.rounds();
        let mut ready = false;
        while rounds.changed().await.is_ok() {
            let status = self.board.status();
            if !ready && status.ready {
                tell(&[NotifyState::Ready]);
                ready = true;
            }
            let nodes: u32 = status.pools.iter().map(|pool| pool.nodes).sum();
            let waiting = status.pods.len();
            let line = match status.problems.iter().next() {
                Some((about, what)) => format!("{about}: {what}"),
                None => format!("{nodes} nodes in {} pools, {waiting} pods wait", status.pools.len()),
            };
            tell(&[NotifyState::Status(&line)]);
            if self.watchdog.is_some() {
                tell(&[NotifyState::Watchdog]);
            }
        }
    }

    /// Tells systemd that the daemon ends.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Tells systemd that the configuration is read anew, and how that ended.
    pub fn reloaded(&self) {
        tell(&[NotifyState::Ready]);
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd could not be told");
    }
}
