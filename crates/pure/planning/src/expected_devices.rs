//! Nodes that have the devices of their pool but do not offer them yet: a device plugin starts once the node
//! is ready.
//!
//! Such a node is treated as if it already offered its devices, so that no second machine is created for the
//! pods that wait for them. This ends once the node is older than `max_node_provision_time`. (Cluster
//! Autoscaler treats a node with a GPU as not ready for that time.)

use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::node::pool_of;
use super::learned_allocatable;
use model::Snapshot;
use settings::Config;

/// Gives young nodes the devices that they do not offer yet. Only the planner's copy of the snapshot changes.
pub(super) fn expect_devices(snapshot: &mut Snapshot, config: &Config) {
    let with_devices = config.pools.iter().filter(|pool| !pool.pci.is_empty());
    let pools: BTreeMap<&str, BTreeMap<&str, i64>> =
        with_devices.map(|pool| (pool.name.as_str(), learned_allocatable::devices(pool))).collect();
    if pools.is_empty() {
        return;
    }
    let (now, patience) = (snapshot.time, config.scale_up.max_node_provision_time);
    for node in &mut snapshot.nodes {
        let Some(devices) = pool_of(node).and_then(|pool| pools.get(pool)) else { continue };
        let young = node.created.is_some_and(|created| now.duration_since(created).unsigned_abs() < patience);
        let offered = |name: &str| node.allocatable.other.get(name).is_some_and(|amount| *amount > 0);
        let late = devices.iter().filter(|(name, _)| young && !offered(name));
        let late: Vec<(String, i64)> = late.map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        if !late.is_empty() {
            let node = Arc::make_mut(node);
            node.allocatable.other.extend(late.iter().cloned());
            node.capacity.other.extend(late);
        }
    }
}
