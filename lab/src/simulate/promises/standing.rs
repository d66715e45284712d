//! Periods during which everything is frozen: nothing runs, but the clocks continue. This is what a guest
//! experiences if its hypervisor gives it no CPU time.

use std::time::Duration;

use tokio::time::Instant;

use crate::simulate::checker::Checker;
use crate::simulate::checker::memory::AsOf;

/// How long a freeze is remembered. After this time, all decisions from before the freeze have been written.
const REMEMBERED: Duration = Duration::from_mins(6);

impl Checker {
    /// Called after everything was frozen for this time. Calls in progress did not advance during the freeze.
    pub fn all_stood_still(&self, time: Duration) {
        let mut inner = self.inner();
        inner.stood.0.retain(|(end, _)| end.elapsed() < REMEMBERED);
        inner.stood.0.push((Instant::now(), time));
        inner.delay_what_is_on_its_way(time);
    }

    /// Describes the daemon that sent a write at this time, and for how long it was frozen shortly before the
    /// write.
    pub fn as_of<'a>(&self, who: &'a str, sent: Instant) -> AsOf<'a> {
        let inner = self.inner();
        let stood = inner.stood.0.iter().filter(|(end, _)| *end + REMEMBERED > sent);
        AsOf { who, sent, stood: stood.map(|(_, time)| *time).sum() }
    }
}
