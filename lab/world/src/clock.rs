//! The world's wall clock: a fixed start time plus the time that has passed on tokio's clock.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A wall clock that follows tokio's time, so it also works in a runtime with paused time.
#[derive(Clone, Debug)]
pub struct WorldClock {
    base: Timestamp,
    started: Instant,
}

impl WorldClock {
    /// Creates a clock that currently shows `base`. Must be called inside a tokio runtime.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, started: Instant::now() }
    }

    /// The world's present wall-clock time.
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}
