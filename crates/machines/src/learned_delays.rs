//! Learned durations. An operation is first polled when it has probably ended, which saves calls without
//! losing time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The shortest pause between two polls.
const SHORTEST: Duration = Duration::from_millis(100);

/// Learned durations, by the name of the operation. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    usual: Arc<Mutex<BTreeMap<String, Duration>>>,
}

impl Pace {
    /// How long an operation usually takes, or `guess` if it has not been measured yet.
    pub fn usual(&self, what: &str, guess: Duration) -> Duration {
        self.known(what).unwrap_or(guess)
    }

    /// How long an operation usually takes, if it has been measured.
    pub fn known(&self, what: &str) -> Option<Duration> {
        self.usual.lock().unwrap_or_else(PoisonError::into_inner).get(what).copied()
    }

    /// Learns how long an operation took. The most recent durations have the most weight.
    pub fn learn(&self, what: &str, took: Duration) {
        let mut usual = self.usual.lock().unwrap_or_else(PoisonError::into_inner);
        let known = usual.entry(what.to_owned()).or_insert(took);
        *known = (*known * 2 + took) / 3;
    }

    /// Starts to watch for the end of an operation that has to be polled.
    pub fn watch(&self, what: &str, guess: Duration) -> Looks {
        Looks { usual: self.usual(what, guess), count: 0, last: Duration::ZERO, before: Duration::ZERO }
    }
}

/// The polls of one operation until it ends.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    usual: Duration,
    count: u32,
    /// The time from the operation's start to the last poll. `before` is the time from the start to the poll
    /// before that.
    last: Duration,
    before: Duration,
}

impl Looks {
    /// How long to wait before the next poll, if `passed` is the time since the operation's start. The first
    /// poll comes a little after the usual time. The later pauses increase up to `longest`.
    pub fn pause(&mut self, passed: Duration, longest: Duration) -> Duration {
        let first = self.usual + self.usual / 12;
        let pause = match self.count {
            0 => first.saturating_sub(passed),
            count => passed * count / 12,
        };
        let pause = pause.clamp(SHORTEST, longest.max(first).max(SHORTEST));
        self.count += 1;
        self.before = self.last;
        self.last = passed + pause;
        pause
    }

    /// The estimated duration of an operation that had ended at the last poll. The operation ended between
    /// the last two polls, so the estimate is halfway between them. If the operation had already ended at the
    /// first poll, it probably ended earlier, so the estimate is a little less than the usual time. Without
    /// this reduction, the usual time could only grow.
    pub fn took(&self) -> Duration {
        if self.count <= 1 { self.last * 88 / 100 } else { (self.last + self.before) / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Polls until the end and learns the duration. Returns when the end was seen, and the number of polls.
    fn see(pace: &Pace, real: Duration) -> (Duration, u32) {
        let mut looks = pace.watch("start", ms(1000));
        let mut passed = Duration::ZERO;
        for number in 1.. {
            passed += looks.pause(passed, Duration::from_secs(5));
            if passed >= real {
                pace.learn("start", looks.took());
                return (passed, number);
            }
        }
        unreachable!("the loop never ends")
    }

    #[test]
    fn the_first_look_comes_when_it_is_usually_done() {
        let pace = Pace::default();
        for _ in 0..20 {
            see(&pace, ms(4000));
        }
        for _ in 0..50 {
            let (seen, looks) = see(&pace, ms(4000));
            assert!(seen < ms(4500), "{seen:?}");
            assert!(looks <= 2, "{looks}");
        }
    }

    #[test]
    fn many_lives_do_not_make_the_usual_time_grow() {
        let pace = Pace::default();
        for _ in 0..500 {
            see(&pace, ms(1300));
        }
        assert!(pace.usual("start", ms(0)) < ms(1450));
    }

    #[test]
    fn what_takes_much_longer_than_usual_is_looked_at_in_growing_steps() {
        let (seen, looks) = see(&Pace::default(), Duration::from_mins(1));
        assert!(looks < 30, "{looks}");
        assert!(seen <= Duration::from_secs(65), "{seen:?}");
    }
}
