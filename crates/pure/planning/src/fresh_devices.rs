//! Determines which devices a fresh node has.
//!
//! A driver publishes a node's devices in ResourceSlices once the driver runs on the node. So only existing
//! nodes show their devices. For each driver, the planner uses the devices of the pool's newest node that has
//! all of the driver's slices. These devices are remembered in case the pool has no nodes later. If no
//! devices of a driver are known or remembered, the devices that the pool declares (`[[pool.device]]`) are
//! used until one of the pool's nodes is old enough to have devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::facts::machine::{ByNode, by_node};
use super::facts::node::{is_young, pool_of};
use model::devices::{Device, DeviceTaint, ResourceSlice};
use model::node::Node;
use model::snapshot::Memory;
use model::{PoolName, Snapshot};
use settings::{Config, Pool};

/// Maximum number of devices per node that are remembered. If a node has more, none of its devices are
/// remembered, because all remembered data must fit into a ConfigMap.
const MOST_REMEMBERED: usize = 64;
/// Maximum size of the remembered devices of all pools, in bytes. Pools that come first in the configuration
/// take precedence. A ConfigMap holds at most 1 MiB.
const MOST_BYTES: usize = 384 << 10;

/// Slices of a node, by driver.
type ByDriver = BTreeMap<String, Vec<ResourceSlice>>;

/// What is known about the devices of the pools' nodes.
#[derive(Debug, Default)]
pub(super) struct Slices {
    pools: BTreeMap<PoolName, PoolDevices>,
}

/// The devices of a pool's nodes.
#[derive(Debug, Default)]
struct PoolDevices {
    drivers: ByDriver,
    /// Whether one of the nodes is old enough to have all its devices.
    settled: bool,
}

impl Slices {
    pub(super) fn new(snapshot: &Snapshot, config: &Config) -> Self {
        let none = snapshot.resource_slices.is_empty() && snapshot.device_classes.is_empty();
        if none { Self::default() } else { Self { pools: seen(snapshot, config) } }
    }

    /// The slices of a fresh node of the pool, if it will have any.
    pub(super) fn of_fresh(
        &self,
        pool: &Pool,
        memory: &Memory,
        node: &str,
    ) -> Option<Arc<[Arc<ResourceSlice>]>> {
        let all = self.of_node(pool, memory, node);
        (!all.is_empty()).then(|| all.into_values().flatten().map(Arc::new).collect())
    }

    /// The devices that a node of the pool will have. They are the devices of the pool's other nodes, or else
    /// those that earlier nodes had, or else those that the pool declares.
    fn of_node(&self, pool: &Pool, memory: &Memory, node: &str) -> ByDriver {
        let settled = self.pools.get(&pool.name).is_some_and(|seen| seen.settled);
        let declared = if settled { Vec::new() } else { pool.slices_for(node) };
        let mut all = by_driver(declared);
        for (driver, slices) in self.learnt(pool, memory) {
            all.insert(driver, slices.iter().map(|slice| of_node(slice, node)).collect());
        }
        all
    }

    /// The slices of the pool's current nodes, or else the remembered slices, if the declared devices have
    /// not changed since.
    fn learnt(&self, pool: &Pool, memory: &Memory) -> ByDriver {
        let seen = self.pools.get(&pool.name);
        let remembered = memory.pools.get(&pool.name).filter(|own| !own.device_slices.is_empty());
        let mut all = match (seen, remembered) {
            (Some(PoolDevices { settled: true, .. }), _) | (_, None) => ByDriver::new(),
            (_, Some(own)) if own.declared_devices == pool.declares() => {
                by_driver(own.device_slices.iter().cloned())
            }
            _ => ByDriver::new(),
        };
        all.extend(seen.into_iter().flat_map(|seen| seen.drivers.clone()));
        all
    }

    /// The slices of the newest node that has this driver. Returns an empty list if a node of the pool is old
    /// enough to have slices but has none, and `None` if the slices are not known yet.
    pub(super) fn published(&self, pool: &str, driver: &str) -> Option<&[ResourceSlice]> {
        let seen = self.pools.get(pool)?;
        let nothing = seen.settled.then_some(&[][..]);
        seen.drivers.get(driver).map(Vec::as_slice).or(nothing)
    }
}

fn by_driver(slices: impl IntoIterator<Item = ResourceSlice>) -> ByDriver {
    let mut all = ByDriver::new();
    for slice in slices {
        all.entry(slice.driver.clone()).or_default().push(slice);
    }
    all
}

/// The slices of each pool's nodes. Each driver's slices are taken from the newest node that has the driver.
/// Nodes are read from newest to oldest, so that most slices of older nodes do not have to be read.
fn seen(snapshot: &Snapshot, config: &Config) -> BTreeMap<PoolName, PoolDevices> {
    let mut slices: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in &snapshot.resource_slices {
        if let Some(node) = &slice.reach.node {
            slices.entry(node).or_default().push(slice);
        }
    }
    let others = Others::new(snapshot, config);
    let of_pool = snapshot.nodes.iter().filter_map(|node| Some((pool_of(node)?, node)));
    let mut nodes: Vec<(&str, &Arc<Node>)> =
        of_pool.filter(|(pool, node)| !others.include(pool, node)).collect();
    nodes.sort_by(|(_, a), (_, b)| (b.created, &b.name).cmp(&(a.created, &a.name)));
    let mut pools: BTreeMap<PoolName, PoolDevices> = BTreeMap::new();
    for (pool, node) in nodes {
        if !pools.contains_key(pool) {
            pools.insert(pool.into(), PoolDevices::default());
        }
        let Some(seen) = pools.get_mut(pool) else { continue };
        seen.settled = seen.settled || !is_young(node, snapshot, config);
        let own = slices.get(node.name.as_str()).into_iter().flatten().copied();
        let unknown: Vec<_> = own.filter(|slice| !seen.drivers.contains_key(&slice.driver)).collect();
        seen.drivers.extend(complete(&unknown));
    }
    pools
}

/// Nodes that do not show which devices new nodes will have. Their pool declares devices, but their machines
/// were created with different host devices from those that new machines get.
struct Others<'a> {
    /// For each pool that declares devices, the host devices that its new machines are given.
    given: BTreeMap<&'a str, String>,
    machines: ByNode<'a>,
}

impl<'a> Others<'a> {
    fn new(snapshot: &'a Snapshot, config: &'a Config) -> Self {
        let declaring = config.pools.iter().filter(|pool| !pool.resource_slices.is_empty());
        let given = |pool: &'a Pool| Some((pool.name.as_str(), pool.made_of().remove("pci")?));
        let given: BTreeMap<&str, String> = declaring.filter_map(given).collect();
        let machines = snapshot.proxmox.machines.as_deref().filter(|_| !given.is_empty());
        Self { given, machines: by_node(machines) }
    }

    fn include(&self, pool: &str, node: &Node) -> bool {
        let made = || self.machines.get(node.name.as_str())?.made_of.get("pci");
        self.given.get(pool).is_some_and(|given| made().is_some_and(|made| made != given))
    }
}

/// A node's complete sets of slices, without taints that only some devices have.
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

/// Removes taints that only some devices of a driver have, because the devices of a fresh node may not have
/// them.
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

/// Remembers the devices of each pool's nodes, within the size limits. Returns whether anything changed.
pub(super) fn learn(memory: &mut Memory, snapshot: &Snapshot, config: &Config) -> bool {
    let slices = Slices::new(snapshot, config);
    let mut changed = forget_others(memory, config);
    let mut left = MOST_BYTES;
    for pool in &config.pools {
        let own = memory.pools.get(&pool.name);
        let own = own.map_or((&[][..], ""), |own| (&own.device_slices, &own.declared_devices));
        let (mut all, mut declared) = if slices.pools.contains_key(&pool.name) {
            (slices.learnt(pool, memory).into_values().flatten().collect(), pool.declares())
        } else {
            (own.0.to_vec(), own.1.to_owned())
        };
        let devices = all.iter().map(|slice: &ResourceSlice| slice.devices.len()).sum::<usize>();
        let fits = if devices > MOST_REMEMBERED { None } else { left.checked_sub(bytes(&all)) };
        match fits {
            Some(rest) => left = rest,
            None => all.clear(),
        }
        if all.is_empty() {
            declared.clear();
        }
        if own != (&all[..], &declared[..]) {
            let own = memory.pools.entry(pool.name.clone()).or_default();
            (own.device_slices, own.declared_devices) = (all, declared);
            changed = true;
        }
    }
    changed
}

/// Forgets the devices of pools that are no longer in the configuration.
fn forget_others(memory: &mut Memory, config: &Config) -> bool {
    let mut changed = false;
    for (name, memory) in &mut memory.pools {
        if !memory.device_slices.is_empty() && config.pools.iter().all(|pool| pool.name != *name) {
            memory.device_slices = Vec::new();
            memory.declared_devices = String::new();
            changed = true;
        }
    }
    changed
}

/// The size of these slices when they are stored, in bytes.
fn bytes(slices: &[ResourceSlice]) -> usize {
    if slices.is_empty() {
        return 0;
    }
    serde_json::to_string(slices).map_or(usize::MAX, |text| text.len())
}

/// Adds slices that have not been published yet to young nodes. Only the planner's copy of the snapshot
/// changes. Until the slices are published, kube-scheduler refuses to place the pending pods on a node that
/// was created for them.
pub(super) fn expect(snapshot: &mut Snapshot, config: &Config) {
    let of_pool = |node: &&Arc<Node>| is_young(node, snapshot, config) && pool_of(node).is_some();
    let young: Vec<&Arc<Node>> = snapshot.nodes.iter().filter(of_pool).collect();
    if young.is_empty() {
        return;
    }
    let slices = Slices::new(snapshot, config);
    if slices.pools.is_empty() {
        return;
    }
    let there: BTreeSet<(&str, &str)> = snapshot
        .resource_slices
        .iter()
        .filter_map(|slice| Some((slice.reach.node.as_deref()?, slice.driver.as_str())))
        .collect();
    let others = Others::new(snapshot, config);
    let mut late = Vec::new();
    for node in young {
        let pool = pool_of(node).and_then(|name| config.pools.iter().find(|pool| pool.name == name));
        // A node whose machine has different devices from those of new machines gets no additional slices.
        let Some(pool) = pool.filter(|pool| !others.include(&pool.name, node)) else { continue };
        for (driver, all) in slices.of_node(pool, &snapshot.memory, &node.name) {
            if !there.contains(&(node.name.as_str(), driver.as_str())) {
                late.extend(all.into_iter().map(Arc::new));
            }
        }
    }
    drop(others);
    snapshot.resource_slices.extend(late);
}

/// The slice as another node would publish it. A slice's `pool`, which is a pool of devices, is usually named
/// after the slice's node.
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

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use model::devices::{Attribute, Reach};
    use model::snapshot::POOL_LABEL;
    use settings::{Needs, parse};

    /// A slice of a node with this many devices, each with as many attributes as a GPU has.
    fn rich(node: &str, devices: usize) -> Arc<ResourceSlice> {
        let device = |number: usize| Device {
            name: format!("gpu-{number}"),
            attributes: (0..30)
                .map(|of| (format!("attribute-{of}"), Attribute::String(format!("{of:060}"))))
                .collect(),
            ..Device::default()
        };
        Arc::new(ResourceSlice {
            name: format!("{node}-gpu"),
            driver: "gpu.example.com".to_owned(),
            pool: node.to_owned(),
            slices: 1,
            reach: Reach { node: Some(node.to_owned()), ..Reach::default() },
            devices: (0..devices).map(device).collect(),
            ..ResourceSlice::default()
        })
    }

    #[test]
    fn what_is_remembered_of_devices_has_a_limit_over_all_pools() {
        let names: Vec<String> = (0..12).map(|number| format!("gpu{number}")).collect();
        let mut pools = String::new();
        for (number, name) in names.iter().enumerate() {
            let vmids = format!("{}-{}", 9000 + number * 10, 9009 + number * 10);
            let _ = write!(
                pools,
                "[[pool]]\nname = \"{name}\"\nmax = 5\ncores = 2\nmemory = \"4GiB\"\ntemplate = 900\nvmids = \"{vmids}\"\n"
            );
        }
        let config = parse("c", &pools, Needs::Plan).unwrap();
        let node = |pool: &String| {
            let labels = [(POOL_LABEL.to_owned(), pool.clone())].into();
            Arc::new(Node { name: pool.clone(), labels, ..Node::default() })
        };
        let snapshot = Snapshot {
            nodes: names.iter().map(node).collect(),
            resource_slices: names.iter().map(|name| rich(name, MOST_REMEMBERED)).collect(),
            ..Snapshot::default()
        };
        let mut memory = Memory::default();
        assert!(learn(&mut memory, &snapshot, &config));
        let stored = serde_json::to_string(&memory).unwrap().len();
        assert!(stored < 512 << 10, "{stored} bytes");
        let known =
            |memory: &Memory| memory.pools.values().filter(|one| !one.device_slices.is_empty()).count();
        assert!(known(&memory) > 0, "the devices of some pools are remembered");
        assert!(!learn(&mut memory, &snapshot, &config), "a second call changes nothing");
        let without = Snapshot { nodes: Vec::new(), ..snapshot };
        assert!(!learn(&mut memory, &without, &config), "devices stay remembered without nodes");
        let none = parse("c", "", Needs::Plan).unwrap();
        assert!(learn(&mut memory, &without, &none));
        assert_eq!(known(&memory), 0, "devices of a pool that no longer exists are forgotten");
    }
}
