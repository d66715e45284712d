//! The source of time. All code outside the pure planner reads the time from a [`Clock`], so that tests and
//! the simulation control it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of wall-clock time.
pub trait Clock: Send + Sync {
    /// The current wall-clock time.
    fn now(&self) -> Timestamp;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the system's clock is read")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that starts at a given time and moves with tokio's time, which tests can pause and advance.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    base: Timestamp,
    started: Instant,
}

impl TokioClock {
    /// A clock that starts at `base`. Must be called inside a tokio runtime.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, started: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}
