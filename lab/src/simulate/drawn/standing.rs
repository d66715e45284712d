//! Hosts that freeze for a while: for how long.

use std::time::Duration;

use fastrand::Rng;

/// For this many seconds.
pub const SECONDS: std::ops::RangeInclusive<u64> = 1..=60;

/// For how long.
pub fn draw(random: &mut Rng) -> Duration {
    Duration::from_secs(random.u64(SECONDS))
}
