//! Which devices a fresh node has.
//!
//! Their driver publishes them in ResourceSlices once it runs on the node, so that only nodes that are there tell. Of each driver the
//! pool's newest node that has published all of its slices speaks. What nodes had is remembered for when there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::coming::is_young;
use super::pool_of;
use crate::config::{Config, Pool};
use crate::model::Snapshot;
use crate::model::devices::{Device, DeviceTaint, ResourceSlice};
use crate::model::node::Node;
use crate::model::snapshot::Memory;

/// Of a node with more devices than this nothing is remembered: what is remembered has to fit into a ConfigMap.
const MOST_REMEMBERED: usize = 64;

/// Slices of a node, by driver.
type ByDriver = BTreeMap<String, Vec<ResourceSlice>>;

/// What is known of the devices of pools' nodes.
#[derive(Debug, Default)]
pub(super) struct Slices {
    pools: BTreeMap<String, Seen>,
}

/// What the nodes of a pool have.
#[derive(Debug, Default)]
struct Seen {
    drivers: ByDriver,
    /// One of them is too old to be still without devices that it will have.
    settled: bool,
}

impl Slices {
    pub(super) fn new(snapshot: &Snapshot, config: &Config) -> Self {
        let none = snapshot.resource_slices.is_empty() && snapshot.device_classes.is_empty();
        if none { Self::default() } else { Self { pools: seen(snapshot, config) } }
    }

    /// The slices of a fresh node of the pool, if it will have any.
    pub(super) fn of_fresh(&self, pool: &Pool, memory: &Memory) -> Option<Arc<[Arc<ResourceSlice>]>> {
        let all = self.drivers(&pool.name, memory);
        (!all.is_empty()).then(|| all.into_values().flatten().map(Arc::new).collect())
    }

    fn drivers(&self, pool: &str, memory: &Memory) -> ByDriver {
        let seen = self.pools.get(pool);
        let remembered = memory.pools.get(pool).map(|memory| &memory.device_slices);
        let mut all = match (seen, remembered) {
            (Some(Seen { settled: true, .. }), _) | (_, None) => ByDriver::new(),
            (_, Some(remembered)) => by_driver(remembered.iter()),
        };
        all.extend(seen.into_iter().flat_map(|seen| seen.drivers.clone()));
        all
    }
}

fn by_driver<'s>(slices: impl Iterator<Item = &'s ResourceSlice>) -> ByDriver {
    let mut all = ByDriver::new();
    for slice in slices {
        all.entry(slice.driver.clone()).or_default().push(slice.clone());
    }
    all
}

/// What the nodes of each pool have: of each driver what the newest node with it says.
fn seen(snapshot: &Snapshot, config: &Config) -> BTreeMap<String, Seen> {
    let mut slices: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in &snapshot.resource_slices {
        if let Some(node) = &slice.reach.node {
            slices.entry(node).or_default().push(slice);
        }
    }
    let mut nodes: Vec<&Arc<Node>> = snapshot.nodes.iter().collect();
    nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let mut pools: BTreeMap<String, Seen> = BTreeMap::new();
    for node in nodes {
        let Some(pool) = pool_of(node) else { continue };
        let seen = pools.entry(pool.to_owned()).or_default();
        seen.settled |= !young(node, snapshot, config);
        let own = slices.get(node.name.as_str()).map_or(&[][..], Vec::as_slice);
        for (driver, slices) in complete(own) {
            seen.drivers.insert(driver, slices);
        }
    }
    pools
}

/// What drivers have published in full for a node, without what is wrong with single devices.
fn complete(slices: &[&ResourceSlice]) -> ByDriver {
    let mut pools: BTreeMap<(&str, &str), Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices {
        let pool = pools.entry((&slice.driver, &slice.pool)).or_default();
        let newest = pool.first().map_or(i64::MIN, |one| one.generation);
        if slice.generation > newest {
            pool.clear();
        }
        if slice.generation >= newest {
            pool.push(slice);
        }
    }
    let mut all = ByDriver::new();
    for ((driver, _), slices) in pools {
        if i64::try_from(slices.len()).is_ok_and(|count| count == slices[0].slices) {
            all.entry(driver.to_owned()).or_default().extend(slices.into_iter().cloned());
        }
    }
    for slices in all.values_mut() {
        keep_common_taints(slices);
    }
    all
}

/// A taint that not all devices of a driver have is one of the device's own: others may be well.
fn keep_common_taints(slices: &mut [ResourceSlice]) {
    let devices = || slices.iter().flat_map(|slice| &slice.devices);
    let has = |device: &Device, taint: &DeviceTaint| device.taints.contains(taint);
    let first = devices().next().map(|device| device.taints.clone()).unwrap_or_default();
    let common: Vec<DeviceTaint> =
        first.into_iter().filter(|taint| devices().all(|device| has(device, taint))).collect();
    for device in slices.iter_mut().flat_map(|slice| &mut slice.devices) {
        device.taints.retain(|taint| common.contains(taint));
    }
}

/// Whether the node may still be without something that comes once it is ready.
fn young(node: &Node, snapshot: &Snapshot, config: &Config) -> bool {
    node.created.is_some_and(|created| is_young(created, snapshot, config))
}

/// Remembers the devices of each pool's nodes. Whether anything changed.
pub(super) fn learn(memory: &mut Memory, snapshot: &Snapshot, config: &Config) -> bool {
    let slices = Slices::new(snapshot, config);
    let mut changed = false;
    for pool in &config.pools {
        if !slices.pools.contains_key(&pool.name) {
            continue;
        }
        let mut all: Vec<ResourceSlice> =
            slices.drivers(&pool.name, memory).into_values().flatten().collect();
        if all.iter().map(|slice| slice.devices.len()).sum::<usize>() > MOST_REMEMBERED {
            all.clear();
        }
        let own = memory.pools.get(&pool.name).map_or(&[][..], |memory| &memory.device_slices);
        if own != all {
            memory.pools.entry(pool.name.clone()).or_default().device_slices = all;
            changed = true;
        }
    }
    changed
}

/// Adds to young nodes, in the planner's copy of the snapshot, the slices that are still to come. Until then kube-scheduler refuses a
/// node that was made for the very pods that wait.
pub(super) fn expect(snapshot: &mut Snapshot, config: &Config) {
    let slices = Slices::new(snapshot, config);
    if slices.pools.is_empty() {
        return;
    }
    let there: BTreeSet<(&str, &str)> = snapshot
        .resource_slices
        .iter()
        .filter_map(|slice| Some((slice.reach.node.as_deref()?, slice.driver.as_str())))
        .collect();
    let mut late = Vec::new();
    for node in snapshot.nodes.iter().filter(|node| young(node, snapshot, config)) {
        let Some(pool) = pool_of(node) else { continue };
        for (driver, all) in slices.drivers(pool, &snapshot.memory) {
            if !there.contains(&(node.name.as_str(), driver.as_str())) {
                late.extend(all.iter().map(|slice| Arc::new(of_node(slice, &node.name))));
            }
        }
    }
    snapshot.resource_slices.extend(late);
}

/// The slice as another node has it. A pool is mostly named after its node.
fn of_node(slice: &ResourceSlice, node: &str) -> ResourceSlice {
    let mut slice = slice.clone();
    let like = slice.reach.node.replace(node.to_owned()).unwrap_or_default();
    slice.pool = match like.as_str() {
        "" => format!("{}-{node}", slice.pool),
        like if slice.pool.contains(like) => slice.pool.replace(like, node),
        _ => format!("{}-{node}", slice.pool),
    };
    slice.name = format!("{}-{node}", slice.name);
    slice
}
