//! The API server's time, as its answers tell it: the header `Date`, which Go's server puts on each of them,
//! to a second.

use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use http::header::DATE;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// What was heard last. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerTime(Arc<Mutex<Option<(Timestamp, Instant)>>>);

impl ServerTime {
    /// Takes in an answer.
    pub fn hear(&self, headers: &HeaderMap) {
        if let Some(date) = headers.get(DATE).and_then(|date| read(date.to_str().ok()?)) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((date, Instant::now()));
        }
    }

    /// What the server's clock shows now; `None` if no answer has said.
    pub fn now(&self) -> Option<Timestamp> {
        let heard = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (date, at) = heard?;
        date.checked_add(SignedDuration::try_from(at.elapsed()).ok()?).ok()
    }
}

/// `Sat, 28 Nov 2026 09:45:10 GMT`.
fn read(date: &str) -> Option<Timestamp> {
    Some(rfc2822::parse(date).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_answer_tells_it_and_it_goes_on_from_there() {
        let time = ServerTime::default();
        assert_eq!(time.now(), None);
        let hear = |date: &str| time.hear(&HeaderMap::from_iter([(DATE, date.parse().unwrap())]));
        hear("Sat, 28 Nov 2026 09:45:10 GMT");
        tokio::time::advance(Duration::from_secs(5)).await;
        let expected: Timestamp = "2026-11-28T09:45:15Z".parse().unwrap();
        assert_eq!(time.now(), Some(expected));
        // What is no date changes nothing.
        hear("soon");
        time.hear(&HeaderMap::new());
        assert_eq!(time.now(), Some(expected));
    }
}
