//! Recurring time windows: when a window opens (as in a crontab), how long it stays open, and in which time
//! zone.

use std::time::Duration;

use cronexpr::{Crontab, MakeTimestamp};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// A checked window.
#[derive(Clone, Debug)]
pub struct Window {
    starts: Crontab,
    length: SignedDuration,
}

/// A window as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    start: Spanned<String>,
    duration: Spanned<String>,
    time_zone: Option<Spanned<String>>,
}

/// The time at which the check starts to search for a window's first opening. If the search finds none, the
/// check reports the window.
const ANY: Timestamp = Timestamp::constant(1_704_067_200, 0);

/// Maximum number of openings within one window's length that are examined. If there are more, the window may
/// seem to close earlier than it does.
const MOST_STARTS: usize = 100;

impl Window {
    /// The time at which the window closes; `None` if it is not open at `now`. If openings overlap, the end
    /// of the last one is returned.
    pub fn open_until(&self, now: Timestamp) -> Option<Timestamp> {
        let mut from = now.saturating_sub(self.length).ok()?;
        let mut last = None;
        for _ in 0..MOST_STARTS {
            let Some(start) = self.next(from).filter(|start| *start <= now) else { break };
            last = Some(start);
            from = start;
        }
        last.and_then(|start| start.saturating_add(self.length).ok())
    }

    /// The first time after `now` at which the window opens.
    pub fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        self.next(now)
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.starts.find_next(MakeTimestamp(after)).ok().map(|zoned| zoned.timestamp())
    }
}

impl Written {
    /// Checks the window; `None` if it is invalid. `what` names the table in reports.
    pub(super) fn check(&self, what: &str, checker: &mut Checker) -> Option<Window> {
        Parts { start: &self.start, duration: &self.duration, time_zone: self.time_zone.as_ref() }
            .check(what, checker)
    }
}

const FIELDS: &str = "the fields are minute, hour, day of the month, month and day of the week: \"0 2 * * SAT\" means \
        Saturdays at 2:00";

/// Returns the first field that is invalid by itself: its name, its text, and what is allowed.
fn wrong_field(start: &str) -> Option<(&'static str, &str, &'static str)> {
    let fields = [
        ("minute", "0 to 59"),
        ("hour", "0 to 23"),
        ("day of the month", "1 to 31"),
        ("month", "1 to 12, or JAN to DEC"),
        ("day of the week", "0 to 7, or SUN to SAT"),
    ];
    start.split_whitespace().zip(fields).enumerate().find_map(|(at, (text, (field, allowed)))| {
        let alone: Vec<&str> = (0..5).map(|other| if other == at { text } else { "*" }).collect();
        let wrong = cronexpr::parse_crontab(&format!("{} UTC", alone.join(" "))).is_err();
        wrong.then_some((field, text, allowed))
    })
}

/// The settings of a window, from any table that defines one.
pub(super) struct Parts<'a> {
    pub start: &'a Spanned<String>,
    pub duration: &'a Spanned<String>,
    pub time_zone: Option<&'a Spanned<String>>,
}

impl Parts<'_> {
    /// Checks the window; `None` if it is invalid. `what` names the table in reports.
    pub(super) fn check(&self, what: &str, checker: &mut Checker) -> Option<Window> {
        let length = checker.positive("duration", Some(self.duration), Duration::from_mins(1));
        let start = self.start.get_ref().trim();
        if start.split_whitespace().count() != 5 {
            let title = format!("{what}: `start` does not have five fields");
            checker.wrong(title, self.start.span(), "expected five fields, as in a crontab", FIELDS);
            return None;
        }
        let zone = self.time_zone.map_or("UTC", |zone| zone.get_ref().as_str());
        if let Some(written) = self.time_zone
            && jiff::tz::TimeZone::get(zone).is_err()
        {
            let title = format!("{what}: there is no time zone `{zone}`");
            checker.wrong(
                title,
                written.span(),
                "expected e.g. \"Europe/Berlin\"",
                "Debian's tzdata package contains the time zones",
            );
            return None;
        }
        match cronexpr::parse_crontab(&format!("{start} {zone}")) {
            Ok(starts) if starts.find_next(MakeTimestamp(ANY)).is_ok() => Some(Window {
                starts,
                length: SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX),
            }),
            Ok(_) => {
                let title = format!("{what}: `start` never occurs");
                checker.wrong(title, self.start.span(), "no match within four years", "");
                None
            }
            Err(error) => {
                let title = format!("{what}: `start` is not valid");
                if let Some((field, text, allowed)) = wrong_field(start) {
                    let label = format!("`{text}` is not a valid {field}: expected {allowed}");
                    checker.wrong(title, self.start.span(), &label, FIELDS);
                } else {
                    let text = error.to_string();
                    let why = text.lines().next_back().unwrap_or_default().trim_matches([' ', '^']);
                    checker.wrong(title, self.start.span(), why, FIELDS);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Needs, parse};

    fn window(start: &str, duration: &str, zone: &str) -> Window {
        let text = format!(
            "[[disruption]]\nwindows = [{{ start = \"{start}\", duration = \"{duration}\", time_zone = \"{zone}\" }}]\n"
        );
        parse("c.toml", &text, Needs::Plan).unwrap().disruptions[0].windows[0].clone()
    }

    #[test]
    fn a_window_is_open_from_its_start_for_as_long_as_it_lasts() {
        let nights = window("0 2 * * *", "4h", "Europe/Berlin");
        // In Berlin, 2:00 is 01:00 UTC in winter and 00:00 UTC in summer.
        for (now, until) in [
            ("2026-01-10T00:59:59Z", None),
            ("2026-01-10T01:00:00Z", Some("2026-01-10T05:00:00Z")),
            ("2026-01-10T04:59:59Z", Some("2026-01-10T05:00:00Z")),
            ("2026-01-10T05:00:00Z", None),
            ("2026-07-10T00:30:00Z", Some("2026-07-10T04:00:00Z")),
        ] {
            let now: Timestamp = now.parse().unwrap();
            assert_eq!(nights.open_until(now).map(|end| end.to_string()).as_deref(), until, "{now}");
        }
        let noon: Timestamp = "2026-01-10T12:00:00Z".parse().unwrap();
        assert_eq!(nights.opens(noon).unwrap().to_string(), "2026-01-11T01:00:00Z");
    }

    #[test]
    fn a_start_in_an_hour_that_is_skipped_or_repeated_does_not_come_or_comes_twice() {
        let starts = |start: &str| {
            let window = window(start, "1m", "Europe/Berlin");
            let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            let next = |time: &Timestamp| window.opens(*time);
            let all = std::iter::successors(next(&from), next);
            let this_year = all.take_while(|time| time.to_string().starts_with("2026"));
            this_year.map(|time| time.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(starts("30 2 29 3 *"), [] as [&str; 0]);
        assert_eq!(starts("30 2 25 10 *"), ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]);
    }

    #[test]
    fn a_step_over_all_days_and_a_day_of_the_week_must_both_match() {
        let mondays = window("0 2 */10 * MON", "1h", "UTC");
        let june: Timestamp = "2026-05-31T23:59:00Z".parse().unwrap();
        let first = mondays.opens(june).unwrap();
        assert_eq!(first.to_string(), "2026-06-01T02:00:00Z");
        assert_eq!(mondays.opens(first).unwrap().to_string(), "2026-08-31T02:00:00Z");
    }

    #[test]
    fn windows_that_overlap_themselves_are_open_until_the_last_ends() {
        let hourly = window("0 * * * *", "90m", "UTC");
        let now: Timestamp = "2026-01-10T12:10:00Z".parse().unwrap();
        assert_eq!(hourly.open_until(now).unwrap().to_string(), "2026-01-10T13:30:00Z");
        let always = window("* * * * *", "1h", "UTC");
        assert_eq!(always.open_until(now).unwrap().to_string(), "2026-01-10T13:10:00Z");
    }

    #[test]
    fn windows_that_follow_each_other_leave_no_gap_and_cross_midnight() {
        let weekly = window("0 0 * * MON", "168h", "Europe/Berlin");
        let nights = window("30 22 * * *", "3h", "UTC");
        let forever = window("0 0 * * *", "200000000h", "UTC");
        for (window, now, until) in [
            (&weekly, "2026-01-11T22:59:59Z", Some("2026-01-11T23:00:00Z")),
            (&weekly, "2026-01-11T23:00:00Z", Some("2026-01-18T23:00:00Z")),
            // The week in which summer time ends is an hour longer than the window, and the week in which it
            // begins is an hour shorter.
            (&weekly, "2026-10-25T22:30:00Z", None),
            (&weekly, "2026-03-29T22:30:00Z", Some("2026-04-05T22:00:00Z")),
            (&nights, "2026-01-11T00:00:00Z", Some("2026-01-11T01:30:00Z")),
            (&nights, "2026-01-11T01:29:59.999Z", Some("2026-01-11T01:30:00Z")),
            (&nights, "2026-01-11T01:30:00Z", None),
            (&nights, "2026-01-11T22:29:59.999Z", None),
            (&forever, "2026-01-11T00:00:00Z", Some("9999-12-30T22:00:00.999999999Z")),
        ] {
            let now: Timestamp = now.parse().unwrap();
            assert_eq!(window.open_until(now).map(|end| end.to_string()).as_deref(), until, "{now}");
        }
    }

    #[test]
    fn what_is_no_window_is_refused_at_its_place() {
        for (fields, expected) in [
            ("start = \"2 * *\", duration = \"1h\"", "`start` does not have five fields"),
            ("start = \"0 25 * * *\", duration = \"1h\"", "`25` is not a valid hour: expected 0 to 23"),
            ("start = \"0 2 * * FUNDAY\", duration = \"1h\"", "`FUNDAY` is not a valid day of the week"),
            ("start = \"0 2 32 * *\", duration = \"1h\"", "`32` is not a valid day of the month"),
            ("start = \"0 0 30 2 *\", duration = \"1h\"", "`start` never occurs"),
            ("start = \"0 2 * * *\", duration = \"0s\"", "`duration` must be longer than zero"),
            (
                "start = \"0 2 * * *\", duration = \"1h\", time_zone = \"Mars/Base\"",
                "no time zone `Mars/Base`",
            ),
        ] {
            let text = format!("[[disruption]]\nwindows = [{{ {fields} }}]\n");
            let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }
}
