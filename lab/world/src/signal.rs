//! A signal that wakes all who wait for it, in the order in which they began to wait: with tokio's own
//! `watch` that order is drawn at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Gives the signal. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<(AtomicU64, Notify)>);

/// Waits for the next signal.
#[derive(Clone, Debug)]
pub struct Waiter {
    signal: Signal,
    seen: u64,
}

impl Signal {
    /// All who wait go on.
    pub fn give(&self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        self.0.1.notify_waiters();
    }

    /// Waits for what is given from now on.
    pub fn waiter(&self) -> Waiter {
        Waiter { signal: self.clone(), seen: self.0.0.load(Ordering::SeqCst) }
    }
}

impl Waiter {
    /// Waits for a signal that was not seen yet, and sees all that were given.
    pub async fn wait(&mut self) {
        loop {
            let notified = self.signal.0.1.notified();
            let given = self.signal.0.0.load(Ordering::SeqCst);
            if given != self.seen {
                self.seen = given;
                return;
            }
            notified.await;
        }
    }

    /// Sees all that were given.
    pub fn catch_up(&mut self) {
        self.seen = self.signal.0.0.load(Ordering::SeqCst);
    }
}
