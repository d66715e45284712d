//! Recurring times by the clock of a zone.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Times that recur every this many hours.
#[derive(Clone, Debug)]
pub struct Hours {
    /// In hours; a day is a multiple.
    pub every: u32,
    /// The minute in which it begins.
    pub at: u32,
    /// How long it lasts.
    pub minutes: u32,
    /// By whose clock.
    pub zone: &'static str,
}

impl Hours {
    /// As the settings have it.
    pub fn written(&self) -> String {
        let Self { every, at, minutes, zone } = self;
        format!("start = \"{at} */{every} * * *\", duration = \"{minutes}m\", time_zone = \"{zone}\"")
    }

    /// Whether it is one of these times.
    pub fn is_now(&self, now: Timestamp) -> bool {
        let local = TimeZone::get(self.zone).map_or(TimeZone::UTC, |zone| zone).to_datetime(now);
        let minute = i64::from(local.hour()) * 60 + i64::from(local.minute());
        (minute - i64::from(self.at)).rem_euclid(i64::from(self.every) * 60) < i64::from(self.minutes)
    }
}
