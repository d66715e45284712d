//! A signal that wakes its waiters in the order in which they began to wait. tokio's `watch` wakes them in
//! random order, which would make simulations irreproducible.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Announces that something has changed. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    count: AtomicU64,
    last: Mutex<Option<Instant>>,
    notify: Notify,
}

/// Waits for unseen changes.
#[derive(Clone, Debug)]
pub struct Changed {
    shared: Changes,
    seen: u64,
}

impl Changes {
    /// Announces a change and wakes all waiters.
    pub fn announce(&self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.count.fetch_add(1, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    /// Subscribes to changes from now on.
    pub fn subscribe(&self) -> Changed {
        Changed { shared: self.clone(), seen: self.count() }
    }

    fn count(&self) -> u64 {
        self.0.count.load(Ordering::SeqCst)
    }
}

impl Changed {
    /// Waits for an unseen change, and marks all changes as seen.
    pub async fn changed(&mut self) {
        loop {
            // The waiter is registered before the check, so that no change in between is missed.
            let notified = self.shared.0.notify.notified();
            let count = self.shared.count();
            if count != self.seen {
                self.seen = count;
                return;
            }
            notified.await;
        }
    }

    /// Whether there are unseen changes.
    pub fn has_changed(&self) -> bool {
        self.seen != self.shared.count()
    }

    /// The time at which the last change was announced; `None` if all changes have been seen.
    pub fn pending(&self) -> Option<Instant> {
        let last = *self.shared.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|_| self.has_changed())
    }

    /// Marks all changes as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.count();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_longest_goes_on_first() {
        let (changes, order) = (Changes::default(), Arc::new(Mutex::new(Vec::new())));
        for number in 0..40 {
            let (mut changed, order) = (changes.subscribe(), order.clone());
            tokio::spawn(async move {
                changed.changed().await;
                order.lock().unwrap().push(number);
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        changes.announce();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_before_the_wait_is_seen_once() {
        let changes = Changes::default();
        let mut changed = changes.subscribe();
        changes.announce();
        changes.announce();
        changed.changed().await;
        let again = tokio::time::timeout(Duration::from_secs(1), changed.changed()).await;
        assert!(again.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_pending_from_when_it_was_announced_until_it_is_seen() {
        let changes = Changes::default();
        let mut changed = changes.subscribe();
        assert_eq!(changed.pending(), None);
        changes.announce();
        let announced = Instant::now();
        tokio::time::sleep(Duration::from_millis(70)).await;
        assert_eq!(changed.pending(), Some(announced));
        changed.mark_unchanged();
        assert_eq!(changed.pending(), None);
    }
}
