//! When a round starts: something changed, a batch window is over, or it is time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::inventory::Inventory;
use crate::changes::Changed;
use crate::config::Config;
use crate::kubernetes::Watches;
use crate::machines::Registry;
use crate::observability::Board;

/// Everything whose change is worth a round.
pub(super) struct Trigger {
    cluster: Changed,
    machines: Changed,
    inventory: watch::Receiver<u64>,
    config: watch::Receiver<Arc<Config>>,
    pokes: watch::Receiver<u64>,
}

impl Trigger {
    pub fn new(
        watches: &Watches,
        registry: &Registry,
        inventory: &Inventory,
        config: &watch::Receiver<Arc<Config>>,
        board: &Board,
    ) -> Self {
        Self {
            cluster: watches.changed(),
            machines: registry.changed(),
            inventory: inventory.changed(),
            config: config.clone(),
            pokes: board.pokes(),
        }
    }

    /// Waits for the first change, for `longest` at most.
    pub async fn fire(&mut self, longest: Duration) {
        tokio::select! {
            biased;
            () = self.cluster.changed() => {}
            () = self.machines.changed() => {}
            _ = self.inventory.changed() => {}
            _ = self.config.changed() => {}
            _ = self.pokes.changed() => {}
            () = tokio::time::sleep(longest) => {}
        }
    }

    /// Lets what belongs together arrive together: waits for the window, and on while changes come in quick succession,
    /// but for `most` at most.
    pub async fn settle(&mut self, window: Duration, most: Duration) {
        let end = Instant::now() + most;
        tokio::time::sleep(window).await;
        loop {
            self.cluster.mark_unchanged();
            let left = end.saturating_duration_since(Instant::now());
            let quiet = tokio::time::timeout((window / 2).min(left), self.cluster.changed()).await.is_err();
            if quiet || left.is_zero() {
                break;
            }
        }
        self.cluster.mark_unchanged();
        self.machines.mark_unchanged();
        self.inventory.mark_unchanged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Changes;

    fn trigger() -> (Trigger, Changes) {
        let cluster = Changes::default();
        let (receiver, machines) = (cluster.subscribe(), Changes::default().subscribe());
        let inventory = watch::channel(0).1;
        let config = crate::config::parse("c", "", crate::config::Needs::Plan).unwrap();
        let config = watch::channel(Arc::new(config)).1;
        let pokes = watch::channel(0).1;
        (Trigger { cluster: receiver, machines, inventory, config, pokes }, cluster)
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_waits_for_the_window_and_a_half() {
        let (mut trigger, _cluster) = trigger();
        let started = Instant::now();
        trigger.settle(Duration::from_millis(100), Duration::from_secs(1)).await;
        assert_eq!(started.elapsed(), Duration::from_millis(150));
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_changes_waits_no_longer_than_the_most() {
        let (mut trigger, cluster) = trigger();
        let storm = tokio::spawn(async move {
            loop {
                cluster.announce();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let started = Instant::now();
        trigger.settle(Duration::from_millis(100), Duration::from_secs(1)).await;
        storm.abort();
        assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
        assert!(started.elapsed() <= Duration::from_millis(1060), "{:?}", started.elapsed());
    }
}
