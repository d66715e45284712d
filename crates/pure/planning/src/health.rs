//! Determines which pools are too unhealthy to lose nodes. The two limits are those of Cluster Autoscaler,
//! but they apply to each pool by itself: unready nodes of other pools do not prevent removals. In an
//! unhealthy pool, the timers of unneeded nodes keep running.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::node::{being_deleted, pool_of, ready};
use model::{PoolName, Snapshot};
use settings::Config;

/// Pools in which the number and the percentage of unready nodes both exceed their limits.
pub(super) fn unhealthy(snapshot: &Snapshot, config: &Config) -> BTreeSet<PoolName> {
    let limits = &config.health;
    let mut pools: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for node in &snapshot.nodes {
        let Some(pool) = pool_of(node).filter(|_| !being_deleted(node)) else { continue };
        let (all, unready) = pools.entry(pool).or_default();
        *all += 1;
        *unready += usize::from(!ready(node));
    }
    let exceeds = |(all, unready): (usize, usize)| {
        #[expect(clippy::cast_precision_loss, reason = "far fewer nodes than 2^52")]
        let percentage = unready as f64 * 100.0 / all.max(1) as f64;
        unready > limits.ok_total_unready_count && percentage > limits.max_total_unready_percentage
    };
    pools.into_iter().filter(|(_, counts)| exceeds(*counts)).map(|(pool, _)| pool.into()).collect()
}
