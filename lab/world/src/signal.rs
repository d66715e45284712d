//! A signal that wakes all waiting tasks, in the order in which they began to wait. With tokio's own `watch`,
//! that order is random.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The sender of a signal. Clones share the signal.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<(AtomicU64, Notify)>);

/// The receiver of a signal.
#[derive(Clone, Debug)]
pub struct Waiter {
    signal: Signal,
    seen: u64,
}

impl Signal {
    /// Wakes all waiting tasks.
    pub fn give(&self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        self.0.1.notify_waiters();
    }

    /// Returns a waiter for all signals that are sent from now on.
    pub fn waiter(&self) -> Waiter {
        Waiter { signal: self.clone(), seen: self.0.0.load(Ordering::SeqCst) }
    }
}

impl Waiter {
    /// Waits until there is a signal that this waiter has not seen yet, and marks all signals so far as seen.
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

    /// Marks all signals so far as seen.
    pub fn catch_up(&mut self) {
        self.seen = self.signal.0.0.load(Ordering::SeqCst);
    }
}
