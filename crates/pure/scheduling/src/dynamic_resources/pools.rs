//! The device pools that a node can use (`GatherPools`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::facts::Facts;
use super::slices::{Dev, Slice};
use crate::selector::node_matches;
use model::amount::Amount;
use model::devices::Reach;
use model::node::Node;

/// A pool of devices, as seen from a node.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(super) driver: String,
    pub(super) name: String,
    /// Whether some of the pool's slices are missing.
    pub(super) incomplete: bool,
    /// What is wrong with the pool's slices, if anything.
    pub(super) invalid: Option<String>,
    /// The devices in slices that the node can use.
    pub(super) devices: Vec<Candidate>,
    /// The devices in the pool's other slices.
    pub(super) others: Vec<Arc<Dev>>,
    /// The amounts of the pool's counters, by counter set and counter.
    pub(super) counters: BTreeMap<(String, String), Amount>,
    /// Whether some of the pool's devices have binding conditions.
    waits: bool,
}

/// A device in a slice that the node can use, at least in part.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) dev: Arc<Dev>,
    /// Whether the node can use the device. This is true unless the slice selects nodes for each device, and
    /// the selection for this device excludes the node.
    pub(super) reached: bool,
    slice: Arc<Slice>,
}

impl Candidate {
    /// The nodes that can use the device.
    pub(super) fn reach(&self) -> &Reach {
        let slice = &self.slice.object;
        if slice.reach_by_device { &self.dev.object().reach } else { &slice.reach }
    }
}

/// The device pools that a node can use. `own` contains the slices that belong to this node alone.
pub(super) fn gather(facts: &Facts, node: &Node, own: &[Arc<Slice>]) -> Arc<[Pool]> {
    let mut pools: BTreeMap<(&str, &str), Vec<&Arc<Slice>>> = BTreeMap::new();
    let shared = facts.slices().shared().iter().filter(|slice| is_relevant(slice, node));
    for slice in own.iter().chain(shared) {
        let object = &slice.object;
        let pool = pools.entry((&object.driver, &object.pool)).or_default();
        let newest = pool.first().map(|one| one.object.generation);
        match newest.map_or(Ordering::Equal, |newest| object.generation.cmp(&newest)) {
            Ordering::Less => {}
            Ordering::Equal => pool.push(slice),
            Ordering::Greater => *pool = vec![slice],
        }
    }
    let mut found: Vec<Pool> = pools.into_values().filter_map(|slices| pool(facts, node, slices)).collect();
    // A search takes the first suitable device, so pools with binding conditions come last.
    found.sort_by(|a, b| (a.waits, &a.driver, &a.name).cmp(&(b.waits, &b.driver, &b.name)));
    found.into()
}

fn is_relevant(slice: &Slice, node: &Node) -> bool {
    let object = &slice.object;
    if object.reach.all || object.reach.selector.is_some() {
        return reaches(&object.reach, node);
    }
    object.reach_by_device && object.devices.iter().any(|device| reaches(&device.reach, node))
}

/// Whether `reach` includes the node.
fn reaches(reach: &Reach, node: &Node) -> bool {
    match (&reach.node, reach.all, &reach.selector) {
        (Some(name), ..) => *name == node.name,
        (None, true, _) => true,
        (None, false, Some(selector)) => node_matches(selector, &node.name, &node.labels),
        (None, false, None) => false,
    }
}

/// Returns the pool that consists of these slices. `None` if newer slices replace them.
fn pool(facts: &Facts, node: &Node, mut slices: Vec<&Arc<Slice>>) -> Option<Pool> {
    let first = &slices.first()?.object;
    let (driver, name) = (first.driver.clone(), first.pool.clone());
    let is_complete = |count: usize| i64::try_from(count).is_ok_and(|count| count == first.slices);
    let mut elsewhere = Vec::new();
    if !is_complete(slices.len()) {
        let all = facts.slices().of_pool(&driver, &name);
        if all.iter().any(|slice| slice.object.generation > first.generation) {
            return None;
        }
        let current: Vec<_> =
            all.iter().filter(|slice| slice.object.generation == first.generation).collect();
        if !is_complete(current.len()) {
            return Some(Pool { driver, name, incomplete: true, ..Pool::default() });
        }
        let here: BTreeSet<&str> = slices.iter().map(|slice| slice.object.name.as_str()).collect();
        elsewhere = current;
        elsewhere.retain(|slice| !here.contains(slice.object.name.as_str()));
    }
    slices.sort_by(|a, b| a.object.name.cmp(&b.object.name));
    let mut pool = Pool { driver, name, ..Pool::default() };
    pool.invalid = pool.fill(node, &slices, &elsewhere).err();
    Some(pool)
}

impl Pool {
    fn fill(&mut self, node: &Node, here: &[&Arc<Slice>], elsewhere: &[&Arc<Slice>]) -> Result<(), String> {
        let counts = |slice: &&&Arc<Slice>| !slice.object.counters.is_empty();
        let mut names = BTreeSet::new();
        for slice in here.iter().filter(|slice| !counts(slice)) {
            for dev in &slice.devices {
                if !names.insert(&dev.object().name) {
                    return Err(format!("it has two devices called {}", dev.object().name));
                }
            }
        }
        self.count(here.iter().chain(elsewhere).filter(counts))?;
        for slice in here.iter().filter(|slice| !counts(slice)) {
            for dev in &slice.devices {
                self.check(dev)?;
                self.waits |= dev.object().waits;
                let reached = !slice.object.reach_by_device || reaches(&dev.object().reach, node);
                self.devices.push(Candidate { dev: dev.clone(), reached, slice: Arc::clone(slice) });
            }
        }
        for dev in elsewhere.iter().filter(|slice| !counts(slice)).flat_map(|slice| &slice.devices) {
            self.check(dev)?;
            self.others.push(dev.clone());
        }
        Ok(())
    }

    fn count<'s>(&mut self, slices: impl Iterator<Item = &'s &'s Arc<Slice>>) -> Result<(), String> {
        let mut sets = BTreeSet::new();
        for set in slices.flat_map(|slice| &slice.object.counters) {
            if !sets.insert(&set.name) {
                return Err(format!("it has two counter sets called {}", set.name));
            }
            for (counter, amount) in &set.counters {
                self.counters.insert((set.name.clone(), counter.clone()), *amount);
            }
        }
        Ok(())
    }

    /// Checks that all counters that the device consumes exist.
    fn check(&self, dev: &Dev) -> Result<(), String> {
        for set in &dev.object().consumes {
            for counter in set.counters.keys() {
                if !self.counters.contains_key(&(set.name.clone(), counter.clone())) {
                    return Err(format!("the counter set {} has no counter {counter}", set.name));
                }
            }
        }
        Ok(())
    }
}
