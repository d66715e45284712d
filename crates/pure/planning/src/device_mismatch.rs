//! Compares the devices that a pool declares with those of its nodes.

use std::collections::BTreeMap;

use super::fresh_devices::Slices;
use model::devices::{Attribute, Device, ResourceSlice};
use model::{PoolName, Snapshot};
use settings::{Config, Pool};

/// For each pool, how the devices of its nodes differ from those that the pool declares. Devices of drivers
/// that the pool does not declare are ignored.
pub fn unlike_declared(snapshot: &Snapshot, config: &Config) -> BTreeMap<PoolName, String> {
    let mut all = BTreeMap::new();
    if config.pools.iter().all(|pool| pool.resource_slices.is_empty()) {
        return all;
    }
    let slices = Slices::new(snapshot, config);
    for pool in &config.pools {
        let found: Vec<String> = declared(pool)
            .into_iter()
            .filter_map(|(driver, devices)| {
                difference(driver, &devices, slices.published(&pool.name, driver)?)
            })
            .collect();
        if !found.is_empty() {
            all.insert(pool.name.clone(), found.join("; "));
        }
    }
    all
}

/// The devices that a pool declares, by driver.
fn declared(pool: &Pool) -> BTreeMap<&str, Vec<&Device>> {
    let mut all: BTreeMap<&str, Vec<&Device>> = BTreeMap::new();
    for slice in &pool.resource_slices {
        all.entry(&slice.driver).or_default().extend(&slice.devices);
    }
    all
}

fn difference(driver: &str, declared: &[&Device], seen: &[ResourceSlice]) -> Option<String> {
    let count = |number: usize| format!("{number} device{}", if number == 1 { "" } else { "s" });
    let wanted = format!("{} of {driver}", count(declared.len()));
    let Some(node) = seen.first().and_then(|slice| slice.reach.node.as_ref()) else {
        return Some(format!("the pool declares {wanted}, but its nodes have none"));
    };
    let mut there: Vec<&Device> = seen.iter().flat_map(|slice| &slice.devices).collect();
    if there.len() != declared.len() {
        return Some(format!("the pool declares {wanted}, but node {node} has {}", there.len()));
    }
    // The declared devices with the most properties are matched first. Otherwise, a declared device with
    // fewer properties might take the only device that matches another one.
    let mut declared = declared.to_vec();
    declared.sort_by_key(|device| std::cmp::Reverse(device.attributes.len() + device.capacity.len()));
    for device in declared {
        if let Some(at) = there.iter().position(|other| lacking(device, other, driver).is_none()) {
            there.swap_remove(at);
            continue;
        }
        let lacks = there.first().and_then(|other| lacking(device, other, driver))?;
        return Some(format!(
            "the pool declares a device of {driver} with {lacks}, but no remaining device of node \
                {node} matches it"
        ));
    }
    None
}

/// Returns the first attribute or capacity of a device that another device lacks or has with a different
/// value.
fn lacking(device: &Device, other: &Device, driver: &str) -> Option<String> {
    let theirs =
        |name: &str| other.attributes.iter().find(|(key, _)| full(key, driver) == full(name, driver));
    let amount = |name: &str| other.capacity.iter().find(|(key, _)| full(key, driver) == full(name, driver));
    let attribute =
        device.attributes.iter().find(|(name, value)| theirs(name).is_none_or(|one| one.1 != *value));
    let capacity =
        device.capacity.iter().find(|(name, own)| amount(name).is_none_or(|one| one.1.value != own.value));
    attribute
        .map(|(name, value)| format!("{name} = {}", value_text(value)))
        .or_else(|| capacity.map(|(name, own)| format!("{name} = {}", own.value)))
        .or_else(|| {
            (device.shared != other.shared).then(|| format!("allow_multiple_allocations = {}", device.shared))
        })
}

/// The domain and the rest of a name. A name without a domain belongs to the driver's domain.
fn full<'n>(name: &'n str, driver: &'n str) -> (&'n str, &'n str) {
    name.split_once('/').unwrap_or((driver, name))
}

fn value_text(value: &Attribute) -> String {
    match value {
        Attribute::String(text) => format!("{text:?}"),
        Attribute::Int(number) => number.to_string(),
        Attribute::Bool(truth) => truth.to_string(),
        Attribute::Version(text) => format!("version {text}"),
        _ => "a list".to_owned(),
    }
}
