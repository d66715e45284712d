//! Decides when a round starts: after a change and the batch window that follows it, or when the next regular
//! round is due.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::bare_metal_power::BareMetalPower;
use super::regions::Regions;
use kubernetes::Watches;
use machines::Registry;
use observability::Board;
use runtime::ordered_notify::Changed;
use settings::Config;

/// Everything that triggers a round when it changes.
pub(super) struct Trigger {
    cluster: Changed,
    /// The changes in the cluster that make a pod pending.
    demand: Changed,
    machines: Changed,
    inventory: watch::Receiver<u64>,
    physical: watch::Receiver<u64>,
    config: watch::Receiver<Arc<Config>>,
    pokes: watch::Receiver<u64>,
}

impl Trigger {
    pub fn new(
        watches: &Watches,
        registry: &Registry,
        regions: &Regions,
        physical: &BareMetalPower,
        config: &watch::Receiver<Arc<Config>>,
        board: &Board,
    ) -> Self {
        Self {
            cluster: watches.changed(),
            demand: watches.demand(),
            machines: registry.changed(),
            inventory: regions.changed(),
            physical: physical.changed(),
            config: config.clone(),
            pokes: board.pokes(),
        }
    }

    /// Waits for the first change, for at most `longest`.
    pub async fn fire(&mut self, longest: Duration) {
        tokio::select! {
            biased;
            () = self.cluster.changed() => {}
            () = self.machines.changed() => {}
            Ok(()) = self.inventory.changed() => {}
            Ok(()) = self.physical.changed() => {}
            Ok(()) = self.config.changed() => {}
            Ok(()) = self.pokes.changed() => {}
            () = tokio::time::sleep(longest) => {}
        }
    }

    /// Waits so that related changes are handled in the same round. The wait lasts for `window`. It is
    /// extended while changes arrive in quick succession, but to at most `most`.
    ///
    /// Once a pod is pending, only further pods that become pending extend the wait. Other changes in the
    /// cluster do not. The window begins when the pod becomes pending, even if a round is still running at
    /// that time. After the window, the wait continues until no pod has become pending for half the window's
    /// length.
    pub async fn settle(&mut self, window: Duration, most: Duration) {
        let now = Instant::now();
        let mut waits = self.demand.pending();
        tokio::time::sleep_until(waits.unwrap_or(now) + window).await;
        loop {
            waits = self.demand.pending().or(waits);
            self.demand.mark_unchanged();
            self.cluster.mark_unchanged();
            let quiet = waits.unwrap_or_else(Instant::now) + window / 2;
            let more = if waits.is_some() { &mut self.demand } else { &mut self.cluster };
            if tokio::time::timeout_at(quiet.min(now + most), more.changed()).await.is_err() {
                break;
            }
            waits = waits.map(|_| Instant::now());
        }
        self.demand.mark_unchanged();
        self.cluster.mark_unchanged();
        self.machines.mark_unchanged();
        self.inventory.mark_unchanged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::ordered_notify::Changes;

    const WINDOW: Duration = Duration::from_millis(100);
    const MOST: Duration = Duration::from_secs(1);

    #[derive(Default)]
    struct Cluster {
        all: Changes,
        demand: Changes,
    }

    impl Cluster {
        fn trigger(&self) -> Trigger {
            let config = settings::parse("c", "", settings::Needs::Plan).unwrap();
            Trigger {
                cluster: self.all.subscribe(),
                demand: self.demand.subscribe(),
                machines: Changes::default().subscribe(),
                inventory: watch::channel(0).1,
                physical: watch::channel(0).1,
                config: watch::channel(Arc::new(config)).1,
                pokes: watch::channel(0).1,
            }
        }

        /// Announces changes continuously.
        fn storm(&self) -> tokio::task::JoinHandle<()> {
            let all = self.all.clone();
            tokio::spawn(async move {
                loop {
                    all.announce();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
        }

        /// Makes this many pods pending: the first after `from` milliseconds, then one every 20 milliseconds.
        fn pods(&self, from: u64, number: usize) {
            let (all, demand) = (self.all.clone(), self.demand.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(from)).await;
                for _ in 0..number {
                    demand.announce();
                    all.announce();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
    }

    async fn settles_after(trigger: &mut Trigger) -> u128 {
        let started = Instant::now();
        trigger.settle(WINDOW, MOST).await;
        started.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_no_longer_be_changed_is_worth_no_round() {
        let (cluster, began) = (Cluster::default(), Instant::now());
        cluster.trigger().fire(10 * MOST).await;
        assert_eq!(began.elapsed(), 10 * MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_waits_for_the_window_and_a_half() {
        assert_eq!(settles_after(&mut Cluster::default().trigger()).await, 150);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_pod_waits_for_the_window_alone() {
        let cluster = Cluster::default();
        let mut trigger = cluster.trigger();
        cluster.demand.announce();
        cluster.all.announce();
        assert_eq!(settles_after(&mut trigger).await, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_came_while_a_round_ran_has_waited_for_that_long() {
        for (ran, expected) in [(30, 70), (99, 1), (250, 0)] {
            let cluster = Cluster::default();
            let mut trigger = cluster.trigger();
            cluster.demand.announce();
            cluster.all.announce();
            tokio::time::sleep(Duration::from_millis(ran)).await;
            let took = settles_after(&mut trigger).await;
            assert!((expected..=expected + 1).contains(&took), "waited {took} ms after a round of {ran} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_changes_waits_no_longer_than_the_most() {
        let cluster = Cluster::default();
        let mut trigger = cluster.trigger();
        let storm = cluster.storm();
        let took = settles_after(&mut trigger).await;
        storm.abort();
        assert!((900..=1060).contains(&took), "{took} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_waits_for_a_node_waits_for_no_storm() {
        for (from, expected) in [(0, 100..=105), (30, 100..=105), (70, 120..=125), (500, 550..=560)] {
            let cluster = Cluster::default();
            let mut trigger = cluster.trigger();
            let storm = cluster.storm();
            cluster.pods(from, 1);
            let took = settles_after(&mut trigger).await;
            storm.abort();
            assert!(expected.contains(&took), "a pod after {from} ms: waited {took} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_come_together_are_decided_on_together() {
        for (number, expected) in [(10, 220..=240), (200, 990..=1060)] {
            let cluster = Cluster::default();
            let mut trigger = cluster.trigger();
            let storm = cluster.storm();
            cluster.pods(0, number);
            let took = settles_after(&mut trigger).await;
            storm.abort();
            assert!(expected.contains(&took), "{number} pods: waited {took} ms");
        }
    }
}
