//! Random periods for which a host freezes.

use std::time::Duration;

use fastrand::Rng;

/// The range of the time for which a host freezes, in seconds.
pub const SECONDS: std::ops::RangeInclusive<u64> = 1..=60;

/// Draws the time for which a host freezes.
pub fn draw(random: &mut Rng) -> Duration {
    Duration::from_secs(random.u64(SECONDS))
}
