//! `[[pool.pci]]`: PCI devices that each machine of a pool receives from its host, through resource mappings
//! of the datacenter.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;

use super::Written as Pool;
use crate::name_rules;
use crate::values::Checker;

/// Maximum number of PCI devices of a VM. Proxmox VE has the options `hostpci0` to `hostpci15`.
const MOST: u32 = 16;

/// The devices that a machine receives from one resource mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pci {
    /// The mapping's id.
    pub mapping: String,
    /// How many of the mapping's devices each machine receives.
    pub count: u32,
    /// The type of mediated device to create on the PCI device; `None`: the machine receives the entire
    /// device.
    pub mdev: Option<String>,
    /// How many machines share one device: 1, except for mediated devices.
    pub per_device: u32,
    /// Whether the guest sees the device on a PCI Express bus, which only VMs with the machine type `q35`
    /// have; `None`: no.
    pub pcie: Option<bool>,
    /// Whether the guest sees the device's firmware; `None`: yes.
    pub rombar: Option<bool>,
    /// Whether the device is the guest's first display.
    pub x_vga: Option<bool>,
    /// The extended resource that the node offers once its device plugin runs, and its amount.
    pub resource: Option<(String, i64)>,
}

impl Pci {
    /// The value of `hostpciN` in a VM's configuration.
    pub fn value(&self) -> String {
        let flag = |name: &str, on: Option<bool>| on.map(|on| format!("{name}={}", u8::from(on)));
        let parts = [
            Some(format!("mapping={}", self.mapping)),
            self.mdev.as_ref().map(|kind| format!("mdev={kind}")),
            flag("pcie", self.pcie),
            flag("rombar", self.rombar),
            flag("x-vga", self.x_vga),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

/// Returns the VM options for all PCI devices of a machine, numbered in the order of the file.
pub(super) fn numbered(all: &[Pci]) -> BTreeMap<String, String> {
    let each = all.iter().flat_map(|one| (0..one.count).map(|_| one.value()));
    each.enumerate().map(|(number, value)| (format!("hostpci{number}"), value)).collect()
}

/// All devices of a machine in words, for its fingerprint.
pub(super) fn devices_text(all: &[Pci]) -> String {
    all.iter().map(|one| format!("{} of {}", one.count, one.value())).collect::<Vec<_>>().join("; ")
}

/// A `[[pool.pci]]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) mapping: Spanned<String>,
    count: Option<Spanned<u32>>,
    mdev: Option<Spanned<String>>,
    per_device: Option<Spanned<u32>>,
    pcie: Option<bool>,
    rombar: Option<bool>,
    x_vga: Option<bool>,
    resource: Option<Spanned<String>>,
    amount: Option<Spanned<u32>>,
}

/// The checked tables.
pub(super) fn check(pool: &Pool, checker: &mut Checker) -> Vec<Pci> {
    let name = pool.name.get_ref();
    let (mut seen, mut sum) = (BTreeSet::new(), 0_u32);
    for one in &pool.pci {
        let mapping = one.mapping.get_ref();
        if !seen.insert(mapping) {
            let title = format!("pool `{name}`: the mapping `{mapping}` is listed twice");
            checker.wrong(
                title,
                one.mapping.span(),
                "second",
                "remove this table, and set `count` in the first one",
            );
        }
        sum = sum.saturating_add(one.count());
        if sum > MOST {
            let title = format!("pool `{name}`: more than {MOST} PCI devices");
            let at = one.count.as_ref().map_or_else(|| one.mapping.span(), Spanned::span);
            checker.wrong(title, at, "more than Proxmox VE allows for a VM", "");
            sum = 0;
        }
    }
    if let (Some(first), Some(option)) = (pool.pci.first(), free_device(pool)) {
        checker.clash(
            format!("pool `{name}`: host devices in both `vm_options` and `[[pool.pci]]`"),
            option.span(),
            "not counted",
            first.mapping.span(),
            "move all host devices into `[[pool.pci]]`",
        );
    }
    pool.pci.iter().map(|one| one.check(pool, checker)).collect()
}

/// The first option in `vm_options` that passes a host device to the VM (`hostpci…`).
pub(super) fn free_device(pool: &Pool) -> Option<&Spanned<String>> {
    pool.vm_options.keys().find(|option| option.get_ref().starts_with("hostpci"))
}

impl Written {
    /// Returns how many of the mapping's devices a machine receives.
    pub(super) fn count(&self) -> u32 {
        self.count.as_ref().map_or(1, |count| *count.get_ref())
    }

    /// The extended resource that a device plugin offers.
    pub(super) fn offered(&self) -> Option<&Spanned<String>> {
        self.resource.as_ref()
    }

    fn check(&self, pool: &Pool, checker: &mut Checker) -> Pci {
        let name = pool.name.get_ref();
        let mapping = self.mapping.get_ref();
        if !is_mapping(mapping) {
            let title = format!("pool `{name}`: `{mapping}` is not a valid resource mapping name");
            checker.wrong(
                title,
                self.mapping.span(),
                "expected letters, digits, `-` and `_`, starting with a letter",
                "",
            );
        }
        if let Some(count) = self.count.as_ref().filter(|count| *count.get_ref() == 0) {
            let title = format!("pool `{name}`: `count` of `{mapping}` is zero");
            checker.wrong(
                title,
                count.span(),
                "must be at least 1",
                "to use no device from this mapping, remove the table",
            );
        }
        let kind = self.mdev.as_ref();
        if let Some(kind) = kind.filter(|kind| !is_kind(kind.get_ref())) {
            let title = format!("pool `{name}`: `{}` is not a mediated device type", kind.get_ref());
            checker.wrong(title, kind.span(), "expected e.g. \"nvidia-63\"", "");
        }
        let per_device = self.per_device.as_ref().map_or(1, |number| {
            let title = format!("pool `{name}`: `per_device` of `{mapping}`");
            if *number.get_ref() == 0 {
                checker.wrong(format!("{title} is zero"), number.span(), "must be at least 1", "");
            } else if kind.is_none() {
                let help =
                    "a whole device can belong to only one machine: set `mdev`, or remove `per_device`";
                checker.wrong(format!("{title} without `mdev`"), number.span(), "not used", help);
            }
            *number.get_ref()
        });
        Pci {
            mapping: mapping.clone(),
            count: self.count(),
            mdev: kind.map(|kind| kind.get_ref().clone()),
            per_device,
            pcie: self.pcie,
            rombar: self.rombar,
            x_vga: self.x_vga,
            resource: self.resource(pool, checker),
        }
    }

    /// Returns the extended resource and its amount. By default, the amount is the number of devices.
    fn resource(&self, pool: &Pool, checker: &mut Checker) -> Option<(String, i64)> {
        let name = pool.name.get_ref();
        if let Some(amount) = self.amount.as_ref().filter(|amount| *amount.get_ref() == 0) {
            let title = format!("pool `{name}`: `amount` is zero");
            checker.wrong(title, amount.span(), "must be at least 1", "or remove `resource`");
        }
        let Some(resource) = &self.resource else {
            if let Some(amount) = &self.amount {
                let title = format!("pool `{name}`: `amount` without `resource`");
                checker.wrong(
                    title,
                    amount.span(),
                    "of which resource?",
                    "set `resource` to the extended resource that the node offers",
                );
            }
            return None;
        };
        let text = resource.get_ref();
        if !text.contains('/') || !name_rules::is_key(text) {
            let title = format!("pool `{name}`: `{text}` is not an extended resource");
            checker.wrong(title, resource.span(), "expected e.g. \"nvidia.com/gpu\"", "");
        }
        let declared = pool.allocatable.iter().flat_map(BTreeMap::keys).find(|key| key.get_ref() == text);
        if let Some(declared) = declared {
            checker.clash(
                format!("pool `{name}`: `{text}` is also in `allocatable`"),
                resource.span(),
                "second",
                declared.span(),
                "remove it from `allocatable`",
            );
        }
        let amount = self.amount.as_ref().map_or_else(|| self.count(), |amount| *amount.get_ref());
        Some((text.clone(), i64::from(amount)))
    }
}

/// Whether the text is a valid resource mapping id (`pve-configid`).
fn is_mapping(text: &str) -> bool {
    text.len() >= 2
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// Whether the text can be the name of a mediated device type. Drivers define these names.
fn is_kind(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    const POOL: &str = "[[pool]]\nname = \"a\"\nmax = 2\ncores = 1\nmemory = \"1GiB\"\n";

    #[test]
    fn devices_are_numbered_in_the_order_of_the_file() {
        let text = format!(
            "{POOL}[[pool.pci]]\nmapping = \"gpu\"\ncount = 2\npcie = true\nresource = \"nvidia.com/gpu\"\n\
             [[pool.pci]]\nmapping = \"nic\"\nmdev = \"kind-1\"\nper_device = 4\nrombar = false\n"
        );
        let pool = parse("c.toml", &text, Needs::Plan).unwrap().pools.remove(0);
        let devices: Vec<String> =
            pool.hostpci().iter().map(|(key, value)| format!("{key}: {value}")).collect();
        assert_eq!(
            devices,
            [
                "hostpci0: mapping=gpu,pcie=1",
                "hostpci1: mapping=gpu,pcie=1",
                "hostpci2: mapping=nic,mdev=kind-1,rombar=0"
            ]
        );
        assert_eq!(pool.pci[0].resource, Some(("nvidia.com/gpu".to_owned(), 2)));
        assert_eq!(pool.made_of()["pci"], "2 of mapping=gpu,pcie=1; 1 of mapping=nic,mdev=kind-1,rombar=0");
    }

    #[test]
    fn what_is_wrong_with_a_device_of_the_host_is_said() {
        let gpu = "[[pool.pci]]\nmapping = \"gpu\"\n";
        for (lines, expected) in [
            ("[[pool.pci]]\nmapping = \"0000:01:00\"\n".to_owned(), "is not a valid resource mapping name"),
            (format!("{gpu}count = 0\n"), "`count` of `gpu` is zero"),
            (format!("{gpu}count = 17\n"), "more than 16 PCI devices"),
            (format!("{gpu}{gpu}"), "the mapping `gpu` is listed twice"),
            (format!("{gpu}per_device = 2\n"), "`per_device` of `gpu` without `mdev`"),
            (format!("{gpu}mdev = \"a b\"\n"), "not a mediated device type"),
            (format!("{gpu}amount = 2\n"), "`amount` without `resource`"),
            (format!("{gpu}resource = \"gpu\"\n"), "`gpu` is not an extended resource"),
            (format!("{gpu}resource = \"a.b/c\"\namount = 0\n"), "`amount` is zero"),
            (format!("vm_options = {{ hostpci0 = \"mapping=gpu\" }}\n{gpu}"), "move all host devices into"),
            (
                format!(
                    "allocatable = {{ cpu = 1, memory = \"1Gi\", pods = 9, \"a.b/c\" = 1 }}\n{gpu}resource = \"a.b/c\"\n"
                ),
                "is also in `allocatable`",
            ),
            (format!("warm = {{ count = 1, state = \"suspended\" }}\n{gpu}"), "cannot be suspended"),
        ] {
            let report = parse("c.toml", &format!("{POOL}{lines}"), Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }
}
