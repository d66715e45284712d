//! How long things usually take, learnt, so that the first look at something comes when it is likely to be done: fewer
//! calls, and no time lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The shortest pause between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// Learnt durations by what was waited for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    usual: Arc<Mutex<BTreeMap<String, Duration>>>,
}

impl Pace {
    /// What something usually takes; `guess` until it was seen.
    pub fn usual(&self, what: &str, guess: Duration) -> Duration {
        self.usual.lock().unwrap_or_else(PoisonError::into_inner).get(what).copied().unwrap_or(guess)
    }

    /// Remembers how long something took; the last times weigh most.
    pub fn learn(&self, what: &str, took: Duration) {
        let mut usual = self.usual.lock().unwrap_or_else(PoisonError::into_inner);
        let known = usual.entry(what.to_owned()).or_insert(took);
        *known = (*known * 2 + took) / 3;
    }

    /// How long to wait for the next look: first a little more than the usual time, then steps that grow with the time
    /// that has passed, `longest` at most.
    pub fn pause(&self, what: &str, guess: Duration, passed: Duration, longest: Duration) -> Duration {
        let usual = self.usual(what, guess);
        let first = usual + usual / 12;
        let pause = if passed < first { first.checked_sub(passed).unwrap_or(SHORTEST) } else { passed / 4 };
        pause.clamp(SHORTEST, longest.max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_look_comes_when_it_is_usually_done() {
        let pace = Pace::default();
        let (guess, longest) = (Duration::from_secs(1), Duration::from_secs(5));
        let ms = Duration::from_millis;
        assert_eq!(pace.pause("start", guess, ms(0), longest), ms(1083) + Duration::from_nanos(333_333));
        assert_eq!(pace.pause("start", guess, ms(1200), longest), ms(300));
        for _ in 0..20 {
            pace.learn("start", ms(4000));
        }
        assert!(pace.pause("start", guess, ms(0), longest) > ms(4200));
        assert_eq!(pace.pause("start", guess, Duration::from_mins(10), longest), longest);
    }
}
