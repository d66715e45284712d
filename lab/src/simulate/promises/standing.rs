//! Everything is frozen for a while, as guests are whose hypervisor has no time for them: nothing runs, but
//! the clocks go on.

use std::time::Duration;

use tokio::time::Instant;

use crate::simulate::checker::Checker;
use crate::simulate::checker::memory::AsOf;

/// Earlier decisions have been written by then.
const REMEMBERED: Duration = Duration::from_mins(6);

impl Checker {
    /// Everything was frozen for this long until now: what was in progress is as far as before.
    pub fn all_stood_still(&self, time: Duration) {
        let mut inner = self.inner();
        inner.stood.0.retain(|(end, _)| end.elapsed() < REMEMBERED);
        inner.stood.0.push((Instant::now(), time));
        inner.delay_what_is_on_its_way(time);
    }

    /// A daemon that has sent something, and what it could not know at that time.
    pub fn as_of<'a>(&self, who: &'a str, sent: Instant) -> AsOf<'a> {
        let inner = self.inner();
        let stood = inner.stood.0.iter().filter(|(end, _)| *end + REMEMBERED > sent);
        AsOf { who, sent, stood: stood.map(|(_, time)| *time).sum() }
    }
}
