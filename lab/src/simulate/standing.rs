//! Everything stands still for a while, as guests do whose hypervisor has no time for them: nothing runs, and
//! no clock stands.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::checker::Checker;
use super::room::AsOf;

/// For this many seconds.
pub const SECONDS: std::ops::RangeInclusive<u64> = 1..=60;
/// What was decided longer before is written by then.
const REMEMBERED: Duration = Duration::from_mins(6);

/// When all stood still last: when that ended, and for how long it was.
#[derive(Default)]
pub struct Stood(Vec<(Instant, Duration)>);

/// For how long.
pub fn draw(random: &mut Rng) -> Duration {
    Duration::from_secs(random.u64(SECONDS))
}

impl Checker {
    /// All have stood still for this long until now: what was on its way is as far as it was before.
    pub(super) fn all_stood_still(&self, time: Duration) {
        let mut inner = self.inner();
        inner.stood.0.retain(|(end, _)| end.elapsed() < REMEMBERED);
        inner.stood.0.push((Instant::now(), time));
        inner.delay_what_is_on_its_way(time);
    }

    /// A daemon that has sent something, and what it could not know at that time.
    pub(super) fn as_of<'a>(&self, who: &'a str, sent: Instant) -> AsOf<'a> {
        let inner = self.inner();
        let stood = inner.stood.0.iter().filter(|(end, _)| *end + REMEMBERED > sent);
        AsOf { who, sent, stood: stood.map(|(_, time)| *time).sum() }
    }
}
