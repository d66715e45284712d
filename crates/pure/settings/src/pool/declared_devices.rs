//! `[[pool.device]]`: devices that a driver publishes in ResourceSlices for each node of a pool. The
//! declaration is used until a node of the pool has published its devices.
//!
//! The checks are those of the API server for ResourceSlices (`pkg/apis/resource/validation`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use toml::Spanned;

use super::labels::{fill, uses};
use super::{Written as Pool, pci};
use crate::name_rules::{is_domain, is_label};
use crate::one_or_many::Scalar;
use crate::values::Checker;
use model::amount::Amount;
use model::devices::{Attribute, Capacity, Device, Reach, ResourceSlice};
use model::semver::Version;

/// The placeholder for the node's name in the slices.
const NODE: &str = "{{ name }}";
/// Maximum number of devices in a slice (`ResourceSliceMaxDevices`).
const MOST_DEVICES: u32 = 128;
/// Maximum total number of a device's attributes and capacities
/// (`ResourceSliceMaxAttributesAndCapacitiesPerDevice`).
const MOST_NAMES: usize = 32;
/// Maximum length in bytes of an attribute value that is a string or a version
/// (`DeviceAttributeMaxValueLength`).
const LONGEST_VALUE: usize = 64;
/// Maximum length of a driver's name, and of the domain of an attribute.
const LONGEST_DRIVER: usize = 63;
/// Maximum length of the name of an attribute or a capacity (`DeviceMaxIDLength`).
const LONGEST_NAME: usize = 32;

/// A `[[pool.device]]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    driver: Spanned<String>,
    resource_pool: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    count: Option<Spanned<u32>>,
    pci: Option<Spanned<String>>,
    #[serde(default)]
    attributes: BTreeMap<Spanned<String>, Spanned<Value>>,
    #[serde(default)]
    capacity: BTreeMap<Spanned<String>, Spanned<Scalar>>,
    #[serde(default)]
    allow_multiple_allocations: bool,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
struct Value(Attribute);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Value;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string, a whole number, `true`, `false` or { version = \"1.2.3\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
                Ok(Value(Attribute::String(text.to_owned())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
                Ok(Value(Attribute::Int(number)))
            }

            fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
                Ok(Value(Attribute::Bool(truth)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut version = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key != "version" {
                        return Err(A::Error::unknown_field(&key, &["version"]));
                    }
                    version = Some(map.next_value::<String>()?);
                }
                let version = version.ok_or_else(|| A::Error::missing_field("version"))?;
                Ok(Value(Attribute::Version(version)))
            }
        }
        deserializer.deserialize_any(ValueVisitor)
    }
}

/// Returns the slices that drivers publish for each node of the pool, with [`NODE`] in place of the node's
/// name.
pub(super) fn check(pool: &Pool, checker: &mut Checker) -> Vec<ResourceSlice> {
    tied(pool, checker);
    let mut slices: BTreeMap<(&str, &str), Filling> = BTreeMap::new();
    for one in &pool.device {
        let device = one.check(pool, checker);
        let key = (one.driver.get_ref().as_str(), one.resource_pool());
        slices.entry(key).or_default().add(one, &device, pool, checker);
    }
    let slice = |((driver, resource_pool), filling): ((&str, &str), Filling)| ResourceSlice {
        name: format!("{driver}-{resource_pool}"),
        driver: driver.to_owned(),
        pool: resource_pool.to_owned(),
        generation: 1,
        slices: 1,
        reach: Reach { node: Some(NODE.to_owned()), ..Reach::default() },
        devices: filling.devices,
        ..ResourceSlice::default()
    };
    slices.into_iter().map(slice).collect()
}

/// Returns a slice of the pool with the node's name filled in.
pub(super) fn of_node(slice: &ResourceSlice, node: &str) -> ResourceSlice {
    let of = BTreeMap::from([("name", node.to_owned())]);
    let mut slice = slice.clone();
    slice.name = fill(&slice.name, &of);
    slice.pool = fill(&slice.pool, &of);
    slice.reach.node = Some(node.to_owned());
    slice
}

/// A slice under construction, to which `[[pool.device]]` tables add their devices.
#[derive(Default)]
struct Filling<'w> {
    devices: Vec<Device>,
    names: BTreeSet<String>,
    /// The number of devices that have been named so far, by name pattern.
    numbers: BTreeMap<&'w str, u32>,
}

impl<'w> Filling<'w> {
    /// Adds the devices of a table, each with a unique name.
    fn add(&mut self, written: &'w Written, like: &Device, pool: &Pool, checker: &mut Checker) {
        let name = pool.name.get_ref();
        let count = written.count(pool);
        let left = MOST_DEVICES.saturating_sub(u32::try_from(self.devices.len()).unwrap_or(u32::MAX));
        if count > left {
            let title = format!(
                "pool `{name}`: more than {MOST_DEVICES} devices of `{}` in one resource pool",
                written.driver.get_ref()
            );
            let help = "put some of them into another `resource_pool`, e.g. \"{{ name }}-2\"";
            checker.wrong(title, written.at(), "more than a ResourceSlice can hold", help);
            return;
        }
        let number = self.numbers.entry(written.pattern()).or_default();
        for _ in 0..count {
            let of = BTreeMap::from([("number", number.to_string())]);
            let device = Device { name: fill(written.pattern(), &of), ..like.clone() };
            *number += 1;
            if !self.names.insert(device.name.clone()) {
                let title = format!("pool `{name}`: two devices are called `{}`", device.name);
                let at = written.name.as_ref().map_or_else(|| written.driver.span(), Spanned::span);
                checker.wrong(
                    title,
                    at,
                    "each device needs a unique name",
                    "number them: \"gpu-{{ number }}\"",
                );
                return;
            }
            self.devices.push(device);
        }
    }
}

impl Written {
    fn resource_pool(&self) -> &str {
        self.resource_pool.as_ref().map_or(NODE, |pool| pool.get_ref())
    }

    fn pattern(&self) -> &str {
        self.name.as_ref().map_or("device-{{ number }}", |name| name.get_ref())
    }

    /// Returns the place of `count` in the file, or of `driver` if `count` is not set.
    fn at(&self) -> std::ops::Range<usize> {
        self.count.as_ref().map_or_else(|| self.driver.span(), Spanned::span)
    }

    /// Returns the mapping that the devices come from.
    fn mapping<'p>(&self, pool: &'p Pool) -> Option<&'p pci::Written> {
        let named = self.pci.as_ref()?.get_ref();
        pool.pci.iter().find(|one| one.mapping.get_ref() == named)
    }

    /// The configured `count`. By default, it is the number of devices that the mapping gives a machine, or 1
    /// if there is no mapping.
    fn count(&self, pool: &Pool) -> u32 {
        let given = || self.mapping(pool).map_or(1, pci::Written::count);
        self.count.as_ref().map_or_else(given, |count| *count.get_ref())
    }

    /// Checks the table, and returns one of its devices, without a name.
    fn check(&self, pool: &Pool, checker: &mut Checker) -> Device {
        let name = pool.name.get_ref();
        self.names(pool, checker);
        if let Some(count) = self.count.as_ref().filter(|count| *count.get_ref() == 0) {
            let title =
                format!("pool `{name}`: `count` is zero for the devices of `{}`", self.driver.get_ref());
            checker.wrong(
                title,
                count.span(),
                "must be at least 1",
                "if machines have no such devices, remove the table",
            );
        }
        let names = self.attributes.len() + self.capacity.len();
        if let Some(first) = self.attributes.keys().chain(self.capacity.keys()).next()
            && names > MOST_NAMES
        {
            let title = format!("pool `{name}`: a device has {names} attributes and capacities");
            let label = format!("Kubernetes allows {MOST_NAMES} in total");
            checker.wrong(title, first.span(), &label, "remove those that no selector uses");
        }
        let mut device = Device { shared: self.allow_multiple_allocations, ..Device::default() };
        for (key, value) in &self.attributes {
            qualified(name, key, checker);
            attribute(name, key.get_ref(), value, checker);
            device.attributes.insert(key.get_ref().clone(), value.get_ref().0.clone());
        }
        for (key, written) in &self.capacity {
            qualified(name, key, checker);
            let value = capacity(name, key.get_ref(), written, checker);
            device.capacity.insert(key.get_ref().clone(), Capacity { value, policy: None });
        }
        device
    }

    /// Checks the driver's name, the pattern for device names, and the resource pool's name.
    fn names(&self, pool: &Pool, checker: &mut Checker) {
        let name = pool.name.get_ref();
        let driver = self.driver.get_ref();
        if !is_driver(driver) {
            let title = format!("pool `{name}`: `{driver}` is not a valid DRA driver name");
            checker.wrong(title, self.driver.span(), "expected e.g. \"gpu.nvidia.com\"", "");
        }
        if let Some(written) = &self.name {
            let of = BTreeMap::from([("number", "127".to_owned())]);
            if !is_label(&fill(written.get_ref(), &of)) {
                let title = format!("pool `{name}`: devices cannot be called `{}`", written.get_ref());
                let label = "lower-case letters, digits, `-`, and `{{ number }}` for the device's number";
                checker.wrong(title, written.span(), label, "expected e.g. \"gpu-{{ number }}\"");
            }
        }
        let Some(written) = &self.resource_pool else { return };
        let of = BTreeMap::from([("name", format!("{name}-xxxxx"))]);
        let parts = fill(written.get_ref(), &of);
        let fits = parts.len() <= 253
            && parts
                .split('/')
                .all(|part| is_domain(part) && !part.contains(|c: char| c.is_ascii_uppercase()));
        if !fits {
            let title = format!("pool `{name}`: `{}` is not a valid resource pool name", written.get_ref());
            checker.wrong(title, written.span(), "lower-case letters, digits, `-`, `.` and `{{ name }}`", "");
        } else if !uses(written.get_ref(), &["name"]) {
            let title = format!("pool `{name}`: all nodes would have the same resource pool");
            let help = "e.g. \"{{ name }}-gpus\"; by default, the resource pool has the node's name";
            checker.wrong(title, written.span(), "must contain {{ name }}", help);
        }
    }
}

/// Checks the tables that set `pci`: a driver must publish the same number of devices for each PCI device of
/// a mapping.
fn tied(pool: &Pool, checker: &mut Checker) {
    let name = pool.name.get_ref();
    let mut sums: BTreeMap<(&str, &str), (Vec<&Written>, &pci::Written)> = BTreeMap::new();
    for one in &pool.device {
        let Some(named) = &one.pci else { continue };
        let Some(given) = one.mapping(pool) else {
            let title = format!("pool `{name}`: no `[[pool.pci]]` has the mapping `{}`", named.get_ref());
            let known: Vec<String> =
                pool.pci.iter().map(|one| format!("`{}`", one.mapping.get_ref())).collect();
            let help = match known.as_slice() {
                [] => "the pool's machines receive no PCI devices: add a `[[pool.pci]]` table, or \
                    remove `pci`"
                    .to_owned(),
                known => format!("known: {}", known.join(", ")),
            };
            checker.wrong(title, named.span(), "the pool's machines do not receive these devices", &help);
            continue;
        };
        if let Some(resource) = given.offered() {
            checker.clash(
                format!(
                    "pool `{name}`: `{}` is both offered as `{}` by a device plugin and published by a driver",
                    named.get_ref(),
                    resource.get_ref()
                ),
                named.span(),
                "counted twice",
                resource.span(),
                "remove `resource`: a DeviceClass with `extendedResourceName` can provide the same \
                    resource with the driver's devices",
            );
        }
        let key = (one.driver.get_ref().as_str(), named.get_ref().as_str());
        sums.entry(key).or_insert_with(|| (Vec::new(), given)).0.push(one);
    }
    for ((driver, mapping), (all, given)) in sums {
        if let Some(one) = all.iter().find(|one| all.len() > 1 && one.count.is_none()) {
            let title = format!("pool `{name}`: several tables for the devices of `{mapping}`");
            checker.wrong(title, one.at(), "has no `count`", "set `count` in each of them");
            continue;
        }
        let sum = all.iter().fold(0_u32, |sum, one| sum.saturating_add(one.count(pool)));
        if given.count() > 0 && !sum.is_multiple_of(given.count()) {
            let title = format!(
                "pool `{name}`: {sum} devices of `{driver}` are declared, but each machine receives {} from \
                    the mapping `{mapping}`",
                given.count()
            );
            let at = all.last().map_or(0..0, |last| last.at());
            let help = format!(
                "each PCI device of the mapping must have the same number of declared devices: set a \
                    multiple of {}, or change `count` in `[[pool.pci]]`",
                given.count()
            );
            checker.wrong(title, at, "cannot be divided evenly", &help);
        }
    }
}

/// Checks the name of an attribute or a capacity: `name` or `domain/name`.
fn qualified(pool: &str, key: &Spanned<String>, checker: &mut Checker) {
    let text = key.get_ref();
    let fits = match text.split_once('/') {
        Some((domain, name)) => is_driver(domain) && is_identifier(name),
        None => is_identifier(text),
    };
    if !fits {
        let title = format!("pool `{pool}`: `{text}` is not a valid attribute or capacity name");
        let label = "at most 32 letters, digits and `_`, not starting with a digit; a domain and `/` \
            may precede them";
        checker.wrong(title, key.span(), label, "expected e.g. \"model\" or \"example.com/model\"");
    }
}

fn attribute(pool: &str, key: &str, written: &Spanned<Value>, checker: &mut Checker) {
    let (text, is_version) = match &written.get_ref().0 {
        Attribute::String(text) => (text, false),
        Attribute::Version(text) => (text, true),
        _ => return,
    };
    if text.len() > LONGEST_VALUE {
        let title = format!("pool `{pool}`: the attribute `{key}` is too long");
        checker.wrong(title, written.span(), &format!("at most {LONGEST_VALUE} bytes"), "");
    } else if is_version && Version::read(text).is_none() {
        let title = format!("pool `{pool}`: the attribute `{key}` is not a semantic version");
        checker.wrong(title, written.span(), "expected e.g. { version = \"1.2.3\" }", "");
    }
}

fn capacity(pool: &str, key: &str, written: &Spanned<Scalar>, checker: &mut Checker) -> Amount {
    let text = written.get_ref().to_string();
    let read = Amount::read(&text).ok();
    if read.is_none_or(|amount| amount.sign() < 0) {
        let title = format!("pool `{pool}`: the capacity `{key}` is not a quantity");
        let meant = text.strip_suffix('B').filter(|rest| Amount::read(rest).is_ok());
        let help = meant.map(|rest| format!("did you mean \"{rest}\"?")).unwrap_or_default();
        checker.wrong(title, written.span(), "expected e.g. \"80Gi\" or 16", &help);
    }
    read.unwrap_or_default()
}

fn is_driver(text: &str) -> bool {
    text.len() <= LONGEST_DRIVER && is_domain(text)
}

/// Whether the text is a C identifier of at most `LONGEST_NAME` bytes.
fn is_identifier(text: &str) -> bool {
    text.len() <= LONGEST_NAME
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests;
