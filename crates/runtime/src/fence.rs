//! The fence around every write: an instance writes only while it leads, and stops by its own clock before
//! others may begin.
//!
//! Both clients ask it at the last moment before a request leaves, so that no write can forget to. A lease is
//! no lock all the same: what has left may arrive late, which is why each write is conditional besides.

use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

/// A task that asks at a closed fence is ended with its term: it waits this long for that before it is
/// refused.
const FAREWELL: Duration = Duration::from_secs(1);

/// This instance does not lead, or no longer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this instance does not lead: nothing may be written")]
pub struct Fenced;

#[derive(Clone, Copy, Debug)]
enum Gate {
    Open,
    Until(Instant),
    Closed,
}

/// Whether writes may leave. Cheap to clone; the clones are one.
#[derive(Clone, Debug)]
pub struct Fence(watch::Sender<Gate>);

impl Fence {
    /// One that lets everything pass: for commands that an operator gives, and if no other instance can lead.
    pub fn open() -> Self {
        Self(watch::Sender::new(Gate::Open))
    }

    /// One that lets no write pass, for what only reads.
    pub fn closed() -> Self {
        Self(watch::Sender::new(Gate::Closed))
    }

    /// One that lets writes pass until then, by the monotonic clock.
    pub fn until(end: Instant) -> Self {
        Self(watch::Sender::new(Gate::Until(end)))
    }

    /// Lets writes pass until then, unless it was closed.
    pub fn extend(&self, end: Instant) {
        self.0.send_if_modified(|gate| {
            let open = !matches!(gate, Gate::Closed);
            if open {
                *gate = Gate::Until(end);
            }
            open
        });
    }

    /// Closes it for good.
    pub fn close(&self) {
        self.0.send_replace(Gate::Closed);
    }

    /// Whether a write may leave now.
    pub fn is_open(&self) -> bool {
        match *self.0.borrow() {
            Gate::Open => true,
            Gate::Until(end) => Instant::now() < end,
            Gate::Closed => false,
        }
    }

    /// Lets a write pass.
    ///
    /// # Errors
    /// This instance does not lead. The answer comes after a moment in which the task that asks is usually
    /// ended.
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
