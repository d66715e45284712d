//! The API server's time, from the `Date` header of its responses. Go's HTTP server adds the header to each
//! response, in whole seconds.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use http::header::DATE;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The largest tolerated difference. Slow responses, and dates in whole seconds, can make clocks seem to
/// differ by up to this much.
const TOLERATED: SignedDuration = SignedDuration::from_secs(30);

/// The difference between this host's clock and the API server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDifference {
    behind: SignedDuration,
}

impl ClockDifference {
    /// The difference between two clocks; `None` if it is within the tolerance.
    pub(super) fn of(server: Timestamp, own: Timestamp) -> Option<Self> {
        let behind = server.duration_since(own);
        (behind.abs() > TOLERATED).then_some(Self { behind })
    }
}

impl fmt::Display for ClockDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = if self.behind.is_positive() { "behind" } else { "ahead of" };
        let by = SignedDuration::from_secs(self.behind.abs().as_secs());
        write!(f, "this host's clock is {by:#} {which} the Kubernetes API server's")
    }
}

/// The last known time of the API server. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerTime(Arc<Mutex<Option<(Timestamp, Instant)>>>);

impl ServerTime {
    /// Stores the time that the headers of a response contain.
    pub fn hear(&self, headers: &HeaderMap) {
        if let Some(date) = headers.get(DATE).and_then(|date| read(date.to_str().ok()?)) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((date, Instant::now()));
        }
    }

    /// The current time of the API server's clock; `None` if no response has contained a time yet.
    pub fn now(&self) -> Option<Timestamp> {
        let heard = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (date, at) = heard?;
        date.checked_add(SignedDuration::try_from(at.elapsed()).ok()?).ok()
    }
}

/// Parses a date such as `Sat, 28 Nov 2026 09:45:10 GMT`.
fn read(date: &str) -> Option<Timestamp> {
    Some(rfc2822::parse(date).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_difference_is_said_if_it_is_no_delay() {
        let own: Timestamp = "2026-11-28T09:45:00Z".parse().unwrap();
        for (server, words) in [
            ("2026-11-28T09:45:30Z", None),
            ("2026-11-28T10:45:00Z", Some("this host's clock is 1h behind the Kubernetes API server's")),
            ("2026-11-28T09:44:29Z", Some("this host's clock is 31s ahead of the Kubernetes API server's")),
        ] {
            let said = ClockDifference::of(server.parse().unwrap(), own).map(|found| found.to_string());
            assert_eq!(said.as_deref(), words, "{server}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_answer_tells_it_and_it_goes_on_from_there() {
        let time = ServerTime::default();
        assert_eq!(time.now(), None);
        let hear = |date: &str| time.hear(&HeaderMap::from_iter([(DATE, date.parse().unwrap())]));
        hear("Sat, 28 Nov 2026 09:45:10 GMT");
        tokio::time::advance(Duration::from_secs(5)).await;
        let expected: Timestamp = "2026-11-28T09:45:15Z".parse().unwrap();
        assert_eq!(time.now(), Some(expected));
        // A malformed date changes nothing.
        hear("soon");
        time.hear(&HeaderMap::new());
        assert_eq!(time.now(), Some(expected));
    }
}
