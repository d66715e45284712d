//! `[[pool.schedule]]`: a pool's minimum number of nodes at certain times, ahead of known demand.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use toml::Spanned;

use super::{Pool, Written as WrittenPool};
use crate::Config;
use crate::values::Checker;
use crate::window::{self, Window};

/// A minimum number of nodes at certain times.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// When it applies.
    pub window: Window,
    /// The pool's minimum number of nodes while the window is open.
    pub min: u32,
}

/// `[[pool.schedule]]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    min: Spanned<u32>,
    start: Spanned<String>,
    duration: Spanned<String>,
    time_zone: Option<Spanned<String>>,
}

impl Pool {
    /// Returns the minimum number of nodes at this time: the pool's own or the scheduled one, whichever is
    /// larger.
    pub fn min_at(&self, now: Timestamp) -> u32 {
        let open = self.schedule.iter().filter(|one| one.window.open_until(now).is_some());
        open.map(|one| one.min).max().unwrap_or(0).max(self.min)
    }

    /// The scheduled minimums that apply now, and the next one, in words; `None` without a schedule.
    pub fn scheduled(&self, now: Timestamp) -> Option<String> {
        let open = |one: &Schedule| Some(format!("min {} until {}", one.min, one.window.open_until(now)?));
        let now_open = self.schedule.iter().filter_map(open);
        let next = self.schedule.iter().filter_map(|one| Some((one.window.opens(now)?, one.min))).min();
        let next = next.map(|(time, min)| format!("min {min} from {time}"));
        let words: Vec<String> = now_open.chain(next).collect();
        (!words.is_empty()).then(|| words.join(", then "))
    }
}

impl Config {
    /// Returns the settings with each pool's `min` set to the minimum that applies at this time.
    pub fn at(self: &Arc<Self>, now: Timestamp) -> Arc<Self> {
        self.scheduled_at(now).map_or_else(|| self.clone(), Arc::new)
    }

    /// Like [`Self::at`]; `None` if no schedule raises a pool's minimum at this time.
    pub fn scheduled_at(&self, now: Timestamp) -> Option<Self> {
        if self.pools.iter().all(|pool| pool.min_at(now) == pool.min) {
            return None;
        }
        let mut config = self.clone();
        for pool in &mut config.pools {
            pool.min = pool.min_at(now);
        }
        Some(config)
    }
}

pub(super) fn check(pool: &WrittenPool, checker: &mut Checker) -> Vec<Schedule> {
    let name = pool.name.get_ref();
    let max = *pool.max.get_ref();
    let mut all = Vec::new();
    for written in &pool.schedule {
        let min = *written.min.get_ref();
        if min > max {
            checker.clash(
                format!("pool `{name}`: a scheduled `min` is greater than `max`"),
                written.min.span(),
                &format!("must be at most {max}"),
                pool.max.span(),
                "raise `max`, or lower this `min`",
            );
        }
        let parts = window::Parts {
            start: &written.start,
            duration: &written.duration,
            time_zone: written.time_zone.as_ref(),
        };
        let window = parts.check(&format!("pool `{name}`: `[[pool.schedule]]`"), checker);
        all.extend(window.map(|window| Schedule { window, min }));
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    #[test]
    fn the_largest_minimum_that_is_scheduled_counts() {
        let text = "[[pool]]\nname = \"w\"\nmin = 1\nmax = 9\ncores = 2\nmemory = \"2GiB\"\n\
            [[pool.schedule]]\nmin = 4\nstart = \"0 8 * * MON-FRI\"\nduration = \"10h\"\n\
            [[pool.schedule]]\nmin = 6\nstart = \"0 9 * * *\"\nduration = \"1h\"\n";
        let config = parse("c.toml", text, Needs::Plan).unwrap();
        let min = |time: &str| config.pools[0].min_at(time.parse().unwrap());
        for (time, expected) in [
            ("2026-01-05T07:59:59Z", 1),
            ("2026-01-05T08:00:00Z", 4),
            ("2026-01-05T09:30:00Z", 6),
            ("2026-01-05T12:00:00Z", 4),
            ("2026-01-05T18:00:00Z", 1),
            ("2026-01-04T09:30:00Z", 6),
            ("2026-01-04T12:00:00Z", 1),
        ] {
            assert_eq!(min(time), expected, "{time}");
        }
        let words = config.pools[0].scheduled("2026-01-05T12:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(words, "min 4 until 2026-01-05T18:00:00Z, then min 4 from 2026-01-06T08:00:00Z");
    }

    #[test]
    fn a_schedule_beyond_the_maximum_is_refused() {
        let text = "[[pool]]\nname = \"w\"\nmax = 3\ncores = 2\nmemory = \"2GiB\"\n\
            schedule = [{ min = 4, start = \"0 8 * * *\", duration = \"1h\" }]\n";
        let report = parse("c.toml", text, Needs::Plan).unwrap_err().plain();
        assert!(report.contains("a scheduled `min` is greater than `max`"), "{report}");
    }
}
