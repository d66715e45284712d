//! Randomly drawn durations of freezes.

use std::time::Duration;

use fastrand::Rng;

/// The range of freeze durations, in seconds.
pub const SECONDS: std::ops::RangeInclusive<u64> = 1..=60;

/// Draws how long a freeze lasts.
pub fn draw(random: &mut Rng) -> Duration {
    Duration::from_secs(random.u64(SECONDS))
}
