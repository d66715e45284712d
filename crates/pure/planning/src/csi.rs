//! Determines which CSI drivers a fresh node has, and how many volumes of each driver it can attach.
//!
//! A DaemonSet installs a driver, and the driver registers once its node is ready. So only existing nodes
//! show which drivers they have. The pool's settings take precedence over the drivers seen on the pool's
//! nodes, and newer nodes take precedence over older ones. The drivers are remembered in case the pool has no
//! nodes later. If a pool has never had a node, all known drivers are expected, each with the largest known
//! limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::facts::node::{is_young, pool_of};
use model::node::Node;
use model::snapshot::{DriverLimits, Memory};
use model::workload::CsiNode;
use model::{PoolName, Snapshot};
use settings::{Config, Pool};

/// What is known about the CSI drivers of the pools' nodes.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    pools: BTreeMap<PoolName, PoolDrivers>,
    /// All known drivers, each with the largest limit that a node has.
    anywhere: DriverLimits,
    /// In-tree plugins whose volumes are served by CSI drivers.
    migrated: Vec<String>,
}

/// The drivers of a pool's nodes.
#[derive(Debug, Default)]
struct PoolDrivers {
    limits: DriverLimits,
    /// Whether one of the nodes is old enough to have all its drivers.
    settled: bool,
}

impl Drivers {
    pub(super) fn new(snapshot: &Snapshot, config: &Config) -> Self {
        if snapshot.csi_nodes.is_empty() && snapshot.csi_drivers.is_empty() {
            return Self::default();
        }
        let mut anywhere: DriverLimits =
            snapshot.csi_drivers.iter().map(|driver| (driver.name.clone(), None)).collect();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for (driver, limit) in snapshot.csi_nodes.iter().flat_map(|node| &node.limits) {
            let most = anywhere.entry(driver.clone()).or_default();
            *most = if known.insert(driver) { *limit } else { most.zip(*limit).map(|(a, b)| a.max(b)) };
        }
        let migrated = snapshot.csi_nodes.iter().map(|node| &node.migrated).find(|all| !all.is_empty());
        Self { pools: seen(snapshot, config), anywhere, migrated: migrated.cloned().unwrap_or_default() }
    }

    /// The CSINode of a fresh node of the pool, or `None` if no driver is known.
    pub(super) fn of_fresh(&self, pool: &Pool, memory: &Memory) -> Option<Arc<CsiNode>> {
        let limits = self.limits(pool, memory);
        let known = !limits.is_empty() || !self.anywhere.is_empty();
        known.then(|| Arc::new(CsiNode { name: String::new(), limits, migrated: self.migrated.clone() }))
    }

    fn limits(&self, pool: &Pool, memory: &Memory) -> DriverLimits {
        let seen = self.pools.get(&pool.name);
        let remembered = || memory.pools.get(&pool.name).map(|memory| memory.csi_limits.clone());
        let mut limits = match seen.filter(|seen| seen.settled) {
            Some(_) => DriverLimits::new(),
            None => remembered().filter(|all| !all.is_empty()).unwrap_or_else(|| self.anywhere.clone()),
        };
        limits.extend(seen.into_iter().flat_map(|seen| seen.limits.clone()));
        limits.extend(pool.csi_volumes.iter().map(|(driver, most)| (driver.clone(), Some(*most))));
        limits
    }
}

/// The drivers of each pool's nodes. The limit of a driver is that of the newest node with the driver.
fn seen(snapshot: &Snapshot, config: &Config) -> BTreeMap<PoolName, PoolDrivers> {
    let csi: BTreeMap<&str, &CsiNode> =
        snapshot.csi_nodes.iter().map(|node| (node.name.as_str(), node.as_ref())).collect();
    let mut nodes: Vec<&Arc<Node>> = snapshot.nodes.iter().collect();
    nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let mut pools: BTreeMap<PoolName, PoolDrivers> = BTreeMap::new();
    for node in nodes {
        let (Some(pool), Some(csi)) = (pool_of(node), csi.get(node.name.as_str())) else { continue };
        if !pools.contains_key(pool) {
            pools.insert(pool.into(), PoolDrivers::default());
        }
        let Some(seen) = pools.get_mut(pool) else { continue };
        seen.settled |= !is_young(node, snapshot, config);
        for (driver, limit) in &csi.limits {
            match seen.limits.get_mut(driver) {
                Some(known) => *known = *limit,
                None => drop(seen.limits.insert(driver.clone(), *limit)),
            }
        }
    }
    pools
}

/// Remembers the drivers of each pool's nodes. Returns whether anything changed.
pub(super) fn learn(memory: &mut Memory, snapshot: &Snapshot, config: &Config) -> bool {
    let mut changed = false;
    for (pool, seen) in seen(snapshot, config) {
        if !config.pools.iter().any(|one| one.name == pool) {
            continue;
        }
        let own = memory.pools.get(&pool).map(|memory| &memory.csi_limits);
        let mut limits = own.filter(|_| !seen.settled).cloned().unwrap_or_default();
        limits.extend(seen.limits);
        if own.is_some_and(|own| *own == limits) || own.is_none() && limits.is_empty() {
            continue;
        }
        memory.pools.entry(pool).or_default().csi_limits = limits;
        changed = true;
    }
    changed
}

/// Adds drivers that have not registered yet to the CSINodes of young nodes. Only the planner's copy of the
/// snapshot changes. Until these drivers register, kube-scheduler may refuse to place the pending pods on a
/// node that was created for them.
pub(super) fn expect(snapshot: &mut Snapshot, config: &Config) {
    let drivers = Drivers::new(snapshot, config);
    if drivers.anywhere.is_empty() {
        return;
    }
    let places: BTreeMap<&str, usize> =
        snapshot.csi_nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut late = Vec::new();
    for node in snapshot.nodes.iter().filter(|node| is_young(node, snapshot, config)) {
        let pool = pool_of(node).and_then(|name| config.pools.iter().find(|pool| pool.name == name));
        let Some(expected) = pool.and_then(|pool| drivers.of_fresh(pool, &snapshot.memory)) else { continue };
        late.push((node.name.clone(), places.get(node.name.as_str()).copied(), expected));
    }
    for (name, at, expected) in late {
        match at {
            Some(at) => {
                let own = &mut snapshot.csi_nodes[at];
                if expected.limits.keys().any(|driver| !own.limits.contains_key(driver)) {
                    let mut limits = expected.limits.clone();
                    limits.extend(own.limits.clone());
                    Arc::make_mut(own).limits = limits;
                }
            }
            None => snapshot.csi_nodes.push(Arc::new(CsiNode { name, ..CsiNode::clone(&expected) })),
        }
    }
}
