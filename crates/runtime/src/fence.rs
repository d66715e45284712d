//! The fence around every write: an instance writes only while it leads. By its own clock, it stops writing
//! before another instance may lead.
//!
//! Every client that writes checks the fence at the last moment before it sends a request, so no write can
//! skip the check. Still, a lease is not a lock: a request that was sent in time may arrive after another
//! instance has begun to lead. For this reason, each write is also conditional.

use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a write waits at a closed fence before it is refused. Usually, this instance's term ends during
/// the wait, and the calling task is ended along with the term.
const FAREWELL: Duration = Duration::from_secs(1);

/// This instance does not lead, or no longer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this instance does not lead: it must not write anything")]
pub struct Fenced;

#[derive(Clone, Copy, Debug)]
enum Gate {
    Open,
    Until(Instant),
    Closed,
}

/// Controls whether writes may be sent. Clones are cheap, and share their state.
#[derive(Clone, Debug)]
pub struct Fence(watch::Sender<Gate>);

impl Fence {
    /// A fence that lets every write pass: for an operator's commands, or if no other instance can lead.
    pub fn open() -> Self {
        Self(watch::Sender::new(Gate::Open))
    }

    /// A fence that lets no write pass, for code that only reads.
    pub fn closed() -> Self {
        Self(watch::Sender::new(Gate::Closed))
    }

    /// A fence that lets writes pass until `end`, by the monotonic clock.
    pub fn until(end: Instant) -> Self {
        Self(watch::Sender::new(Gate::Until(end)))
    }

    /// Lets writes pass until `end`, unless the fence was closed.
    pub fn extend(&self, end: Instant) {
        self.0.send_if_modified(|gate| {
            let open = !matches!(gate, Gate::Closed);
            if open {
                *gate = Gate::Until(end);
            }
            open
        });
    }

    /// Closes the fence permanently.
    pub fn close(&self) {
        self.0.send_replace(Gate::Closed);
    }

    /// Whether a write may be sent now.
    pub fn is_open(&self) -> bool {
        match *self.0.borrow() {
            Gate::Open => true,
            Gate::Until(end) => Instant::now() < end,
            Gate::Closed => false,
        }
    }

    /// Checks, before a write is sent, that the fence is open.
    ///
    /// # Errors
    /// Returns an error after a short wait if this instance does not lead. The calling task is usually ended
    /// during the wait.
    pub async fn pass(&self) -> Result<(), Fenced> {
        if self.is_open() {
            return Ok(());
        }
        tokio::time::sleep(FAREWELL).await;
        Err(Fenced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_closes_by_the_clock_alone_and_once_closed_stays_so() {
        let fence = Fence::until(Instant::now() + Duration::from_secs(6));
        let copy = fence.clone();
        assert_eq!(copy.pass().await, Ok(()));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(copy.pass().await, Err(Fenced));
        fence.extend(Instant::now() + Duration::from_secs(6));
        assert!(copy.is_open());
        fence.close();
        fence.extend(Instant::now() + Duration::from_secs(6));
        assert_eq!(copy.pass().await, Err(Fenced));
    }
}
