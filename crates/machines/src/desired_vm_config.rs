//! Computes how a machine's VM should be configured, and what differs in the clone's configuration. Pure
//! functions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use percent_encoding::percent_decode_str;

use super::{inherited, seed_image, vm_size, warm_vm};
use model::Record;
use proxmox::property::{Properties, stem};
use proxmox::{TAG, TagRules, VmConfig};
use settings::{Addressing, CloudInit, Device, DeviceModel, Family, Pool};

/// Keys to set in a VM's configuration, and keys to remove from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub set: BTreeMap<String, String>,
    pub delete: Vec<String>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty()
    }
}

/// The option that protects a VM's drives from being removed. It has to be deleted before other changes can
/// be made.
const PROTECTION: &str = "protection";

/// Returns the changes that the next call has to make so that the VM matches the pool's settings, and whether
/// that call is the last one.
pub(super) fn next(
    pool: &Pool,
    record: &Record,
    current: &VmConfig,
    tags: Option<&TagRules>,
) -> (Change, bool) {
    if current.is_set(PROTECTION) {
        return (Change { set: BTreeMap::new(), delete: vec![PROTECTION.to_owned()] }, false);
    }
    (wanted(pool, record, current, tags), true)
}

/// The changes that the VM needs to match the pool's settings. `rules`, if known, says which tags the token
/// may change.
fn wanted(pool: &Pool, record: &Record, current: &VmConfig, rules: Option<&TagRules>) -> Change {
    let mut change = Change { delete: unwanted(pool, current), ..Change::default() };
    let mut values = size(pool, record, current);
    let rests = record.warm.is_some_and(|state| !state.runs());
    values.push((warm_vm::ONBOOT.to_owned(), warm_vm::with_host(!rests).to_owned()));
    values.push(("tags".to_owned(), tags(pool, current, rules)));
    values.extend(guest(pool, current));
    let devices = pool.devices.iter().enumerate();
    values.extend(devices.filter_map(|(number, device)| network(number, device, current)));
    values.extend(pool.vm_options.clone());
    let differs = |(key, value): &(String, String)| {
        current.get(key).is_none_or(|present| sorted(key, present) != sorted(key, value))
    };
    values.extend(pool.hostpci().into_iter().filter(differs));
    // An existing extra disk is kept: writing it again would allocate another one.
    let missing = pool.extra_disks.iter().filter(|disk| current.get(&disk.device).is_none());
    values.extend(
        missing
            .map(|disk| (disk.device.clone(), format!("{}:{},backup=0,discard=on", disk.storage, disk.gib))),
    );
    let addresses = addresses(pool, record);
    for (key, kept) in foreign_addresses(&addresses, current) {
        if kept.is_empty() {
            change.delete.push(key);
        } else {
            values.push((key, kept));
        }
    }
    values.extend(addresses);
    values.extend(current.drives_without_backup());
    if let CloudInit::Seed(wanted) = &pool.cloud_init {
        // Proxmox VE appends the size to the value, so the values cannot be compared.
        if !seed_image::is_attached(&wanted.storage, record, current) {
            let drive = format!("{},media=cdrom", seed_image::volume(&wanted.storage, record));
            values.push((seed_image::DRIVE.to_owned(), drive));
        }
        // A guest that finds two seeds may use either.
        let other = current.cloudinit_drive().filter(|drive| *drive != seed_image::DRIVE);
        change.delete.extend(other.map(ToOwned::to_owned));
    }
    let new = values.into_iter().filter(|(key, value)| current.get(key) != Some(value.as_str()));
    change.set.extend(new);
    change
}

/// The options for CPUs and memory.
fn size(pool: &Pool, record: &Record, current: &VmConfig) -> Vec<(String, String)> {
    let mut shape = BTreeMap::from([("cores", record.cores.to_string())]);
    if let Some(grow) = &pool.grow {
        shape.extend(grow.options());
        if grow.grows_cores {
            shape.insert(vm_size::VCPUS, record.cores.to_string());
        }
    }
    // If `sockets` is unset, the older `smp` applies.
    if current.get("sockets").or(current.get("smp")).is_some_and(|sockets| sockets != "1") {
        shape.insert("sockets", "1".to_owned());
    }
    shape.insert("memory", (record.memory >> 20).to_string());
    // A kubelet reports its memory only once. A balloon that reclaims some of it later would make that report
    // wrong.
    shape.insert("balloon", "0".to_owned());
    shape.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Cloud-init settings other than addresses.
fn guest(pool: &Pool, current: &VmConfig) -> Vec<(String, String)> {
    // A full upgrade at first boot takes minutes and sometimes fails.
    let mut values = vec![("ciupgrade".to_owned(), "0".to_owned())];
    values.extend(pool.user.iter().map(|user| ("ciuser".to_owned(), user.clone())));
    if !pool.ssh_keys.is_empty() && keys(current) != pool.ssh_keys {
        values.push(("sshkeys".to_owned(), pool.ssh_keys.join("\n")));
    }
    let kept = cicustom(pool, current).filter(|kept| !kept.is_empty());
    values.extend(kept.map(|kept| (CICUSTOM.to_owned(), kept)));
    values
}

/// The template's options that have to be removed from a machine.
fn unwanted(pool: &Pool, current: &VmConfig) -> Vec<String> {
    let is_ours = |key: &str| match stem(key) {
        vm_size::VCPUS => pool.grow.as_ref().is_some_and(|grow| grow.grows_cores),
        // The pinning helper divides a machine's memory among NUMA nodes only once, so its result has to be
        // kept.
        "numa" => pool.pinning.is_some(),
        _ => false,
    };
    let mut keys: Vec<String> =
        inherited::removable(current).filter(|key| !is_ours(key)).map(ToOwned::to_owned).collect();
    keys.extend(cicustom(pool, current).filter(String::is_empty).map(|_| CICUSTOM.to_owned()));
    keys
}

/// Returns the tags in the form in which Proxmox VE stores them: the pool's tags, the daemon's own tag, and
/// the template's tags that the token may not remove. If the rules for tags are unknown, all of the
/// template's tags are kept.
fn tags(pool: &Pool, current: &VmConfig, rules: Option<&TagRules>) -> String {
    let inherited = current.get("tags").unwrap_or_default().split([';', ',', ' ']).map(ToOwned::to_owned);
    let inherited = inherited.filter(|tag| rules.is_none_or(|rules| !rules.allow(tag)));
    let mut tags: Vec<String> = inherited.chain(pool.tags.iter().cloned()).chain([TAG.to_owned()]).collect();
    tags.retain(|tag| !tag.is_empty());
    tags.sort();
    tags.dedup();
    tags.join(";")
}

/// The VM's SSH keys, decoded from the URL-encoded form in which Proxmox VE stores them.
fn keys(current: &VmConfig) -> Vec<String> {
    let decoded = percent_decode_str(current.get("sshkeys").unwrap_or_default()).decode_utf8_lossy();
    decoded.lines().map(str::trim).filter(|line| !line.is_empty()).map(ToOwned::to_owned).collect()
}

const CICUSTOM: &str = "cicustom";

/// The template's cloud-init files (`cicustom`) that are kept; `None` if all of them are kept. If the pool
/// assigns addresses, the network file is dropped, because it would give all machines the same address.
fn cicustom(pool: &Pool, current: &VmConfig) -> Option<String> {
    let parts = current.parts(CICUSTOM);
    if parts.get("network").is_none() || !pool.gives_addresses() {
        return None;
    }
    let kept = parts.all().filter(|(key, _)| *key != "network");
    Some(kept.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","))
}

/// The `ipconfig` keys that the pool does not set and for which the template has a static address. Each key
/// comes with the parts of its value that are kept.
fn foreign_addresses(ours: &[(String, String)], current: &VmConfig) -> Vec<(String, String)> {
    let is_static = |key: &str, value: &str| match key {
        "ip" => value != "dhcp",
        "ip6" => !["dhcp", "auto"].contains(&value),
        _ => false,
    };
    let mut found = Vec::new();
    for (key, text) in current.all().filter(|(key, _)| stem(key) == "ipconfig") {
        let parts = Properties::of(key, text);
        let fixed: Vec<&str> =
            parts.all().filter(|(name, value)| is_static(name, value)).map(|(name, _)| name).collect();
        if fixed.is_empty() || ours.iter().any(|(own, _)| own == key) {
            continue;
        }
        // A gateway is removed with its address.
        let stays = |name: &str| {
            let address = match name {
                "gw" => "ip",
                "gw6" => "ip6",
                other => other,
            };
            !fixed.contains(&address)
        };
        let kept = parts.all().filter(|(name, _)| stays(name)).map(|(name, value)| format!("{name}={value}"));
        found.push((key.to_owned(), kept.collect::<Vec<_>>().join(",")));
    }
    found
}

/// The key and the wanted value of a network device; `None` if the device needs no change. Proxmox VE assigns
/// the MAC of a device that the pool adds.
pub(super) fn network(number: usize, device: &Device, current: &VmConfig) -> Option<(String, String)> {
    let key = format!("net{number}");
    let parts = [
        ("bridge", device.bridge.clone()),
        ("tag", device.vlan.map(|vlan| vlan.to_string())),
        ("mtu", device.mtu.map(|mtu| mtu.to_string())),
        ("firewall", device.firewall.map(|on| u8::from(on).to_string())),
    ];
    let mut set: Vec<(&str, String)> =
        parts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    // The guest has no network unless the link is up.
    if current.parts(&key).flag("link_down") == Some(true) {
        set.push(("link_down", "0".to_owned()));
    }
    if set.is_empty() && device.model.is_none() {
        return None;
    }
    let written = current.net_with(&key, device.model.map(DeviceModel::name), &set);
    // The order of the parts has no meaning, so the same parts in a different order do not have to be written
    // again.
    let differs = current.get(&key).is_none_or(|present| sorted(&key, present) != sorted(&key, &written));
    differs.then_some((key, written))
}

/// The parts of a property string, sorted.
fn sorted<'t>(key: &str, text: &'t str) -> Vec<(&'t str, &'t str)> {
    let mut parts: Vec<_> = Properties::of(key, text).all().collect();
    parts.sort_unstable();
    parts
}

/// All devices' addresses, the name servers and the search domain.
pub(super) fn addresses(pool: &Pool, record: &Record) -> Vec<(String, String)> {
    let mut values = Vec::new();
    for (number, device) in pool.devices.iter().enumerate() {
        let mut parts = Vec::new();
        if number == 0 {
            parts.extend(first(&pool.addressing, record.slot.address));
        }
        for (kind, (ip, gw)) in [(&device.four, ("ip", "gw")), (&device.six, ("ip6", "gw6"))] {
            let own = record.slot.further.get(&format!("net{number}/{ip}"));
            match (kind, own) {
                (Family::Dhcp, _) => parts.push(format!("{ip}=dhcp")),
                (Family::Auto, _) => parts.push(format!("{ip}=auto")),
                (Family::Static { prefix, gateway, .. }, Some(own)) => {
                    parts.push(format!("{ip}={own}/{prefix}"));
                    parts.extend(gateway.map(|gateway| format!("{gw}={gateway}")));
                }
                (Family::None | Family::Static { .. }, _) => {}
            }
        }
        if !parts.is_empty() {
            values.push((format!("ipconfig{number}"), parts.join(",")));
        }
    }
    if let Addressing::Static { dns, search, .. } = &pool.addressing
        && record.slot.address.is_some()
    {
        if !dns.is_empty() {
            // The addresses are separated by spaces: with commas, Proxmox VE would write them as a single
            // entry.
            let list: Vec<String> = dns.iter().map(ToString::to_string).collect();
            values.push(("nameserver".to_owned(), list.join(" ")));
        }
        if let Some(search) = search {
            values.push(("searchdomain".to_owned(), search.clone()));
        }
    }
    values
}

/// The `ipconfig` parts of the first device, from the pool's `addresses`.
fn first(addressing: &Addressing, address: Option<IpAddr>) -> Vec<String> {
    match (addressing, address) {
        (Addressing::Dhcp, _) => vec!["ip=dhcp".to_owned()],
        (Addressing::Static { .. }, None) => Vec::new(),
        (Addressing::Static { prefix, gateway, .. }, Some(address)) => {
            let (ip, gw) = if address.is_ipv6() { ("ip6", "gw6") } else { ("ip", "gw") };
            let gateway = gateway.map(|gateway| format!("{gw}={gateway}"));
            [format!("{ip}={address}/{prefix}")].into_iter().chain(gateway).collect()
        }
    }
}

#[cfg(test)]
#[path = "desired_vm_config_tests.rs"]
mod tests;
