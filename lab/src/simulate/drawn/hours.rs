//! Recurring times in a time zone.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A period that recurs every `every` hours.
#[derive(Clone, Debug)]
pub struct Hours {
    /// The interval in hours, which divides a day evenly.
    pub every: u32,
    /// The minute of the hour in which the period begins.
    pub at: u32,
    /// The duration of the period, in minutes.
    pub minutes: u32,
    /// The time zone.
    pub zone: &'static str,
}

impl Hours {
    /// These periods as written in the settings.
    pub fn written(&self) -> String {
        let Self { every, at, minutes, zone } = self;
        format!("start = \"{at} */{every} * * *\", duration = \"{minutes}m\", time_zone = \"{zone}\"")
    }

    /// Whether `now` is within one of these periods.
    pub fn is_now(&self, now: Timestamp) -> bool {
        let local = TimeZone::get(self.zone).map_or(TimeZone::UTC, |zone| zone).to_datetime(now);
        let minute = i64::from(local.hour()) * 60 + i64::from(local.minute());
        (minute - i64::from(self.at)).rem_euclid(i64::from(self.every) * 60) < i64::from(self.minutes)
    }
}
