//! What a machine's VM should be configured like, against what the clone is like. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{grow, seed, warm};
use crate::config::{Addressing, CloudInit, Device, DeviceModel, Family, Pool};
use crate::model::Record;
use crate::proxmox::{TAG, VmConfig};

/// Keys to set and to remove.
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

/// What has to change for the VM to be as the pool wants it.
pub(super) fn wanted(pool: &Pool, record: &Record, current: &VmConfig) -> Change {
    let mut change = Change::default();
    let mut set = |key: &str, value: String| {
        if current.get(key) != Some(value.as_str()) {
            change.set.insert(key.to_owned(), value);
        }
    };
    let mut shape = BTreeMap::from([("cores", record.cores.to_string())]);
    if let Some(grow) = &pool.grow {
        shape.extend(grow.options());
        if grow.grows_cores {
            shape.insert(grow::VCPUS, record.cores.to_string());
        }
    }
    for (key, value) in shape {
        set(key, value);
    }
    if current.get("sockets").is_some_and(|sockets| sockets != "1") {
        set("sockets", "1".to_owned());
    }
    set("memory", (record.memory >> 20).to_string());
    // A kubelet reports its memory once: a balloon that takes some back later makes the node lie.
    set("balloon", "0".to_owned());
    let rests = record.warm.is_some_and(|state| !state.runs());
    set(warm::ONBOOT, warm::with_host(!rests).to_owned());
    // A full upgrade at first boot takes minutes and fails now and then.
    set("ciupgrade", "0".to_owned());
    set("tags", tags(pool, current));
    for (number, device) in pool.devices.iter().enumerate() {
        if let Some((key, written)) = network(number, device, current) {
            set(&key, written);
        }
    }
    if let Some(user) = &pool.user {
        set("ciuser", user.clone());
    }
    if !pool.ssh_keys.is_empty() && current.get("sshkeys").is_none() {
        set("sshkeys", pool.ssh_keys.join("\n"));
    }
    for (key, value) in &pool.vm_options {
        set(key, value.clone());
    }
    for (key, value) in pool.hostpci() {
        if current.get(&key).is_none_or(|present| sorted(present) != sorted(&value)) {
            set(&key, value);
        }
    }
    // One that is there already is kept: writing it again would allocate another.
    for disk in pool.extra_disks.iter().filter(|disk| current.get(&disk.device).is_none()) {
        set(&disk.device, format!("{}:{},backup=0,discard=on", disk.storage, disk.gib));
    }
    for (key, value) in addresses(pool, record) {
        set(&key, value);
    }
    for (drive, value) in current.drives_without_backup() {
        set(&drive, value);
    }
    if let CloudInit::Seed(wanted) = &pool.cloud_init {
        // Proxmox VE adds its size to what it is given.
        if !seed::is_attached(&wanted.storage, record, current) {
            set(seed::DRIVE, format!("{},media=cdrom", seed::volume(&wanted.storage, record)));
        }
        // A guest that finds two seeds takes either.
        let other = current.cloudinit_drive().filter(|drive| *drive != seed::DRIVE);
        change.delete.extend(other.map(ToOwned::to_owned));
    }
    change
}

/// The template's tags, the pool's own and ours, in the form in which Proxmox stores them.
fn tags(pool: &Pool, current: &VmConfig) -> String {
    let inherited = current.get("tags").unwrap_or_default().split([';', ',', ' ']).map(ToOwned::to_owned);
    let mut tags: Vec<String> = inherited.chain(pool.tags.iter().cloned()).chain([TAG.to_owned()]).collect();
    tags.retain(|tag| !tag.is_empty());
    tags.sort();
    tags.dedup();
    tags.join(";")
}

/// What a network device is to be, where that is not what it is. One that the pool adds gets its MAC from Proxmox VE.
pub(super) fn network(number: usize, device: &Device, current: &VmConfig) -> Option<(String, String)> {
    let key = format!("net{number}");
    let parts = [
        ("bridge", device.bridge.clone()),
        ("tag", device.vlan.map(|vlan| vlan.to_string())),
        ("mtu", device.mtu.map(|mtu| mtu.to_string())),
        ("firewall", device.firewall.map(|on| u8::from(on).to_string())),
    ];
    let set: Vec<(&str, String)> =
        parts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    if set.is_empty() && device.model.is_none() {
        return None;
    }
    let written = current.net_with(&key, device.model.map(DeviceModel::name), &set);
    // The order of the parts means nothing: the same parts need no write.
    let differs = current.get(&key).is_none_or(|present| sorted(present) != sorted(&written));
    differs.then_some((key, written))
}

/// The parts of a property string in an order of their own.
fn sorted(text: &str) -> Vec<&str> {
    let mut parts: Vec<_> = text.split(',').collect();
    parts.sort_unstable();
    parts
}

/// The addresses of all devices, name servers and the search domain.
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
            // Blanks, not commas: with commas Proxmox writes one entry of all of them.
            let list: Vec<String> = dns.iter().map(ToString::to_string).collect();
            values.push(("nameserver".to_owned(), list.join(" ")));
        }
        if let Some(search) = search {
            values.push(("searchdomain".to_owned(), search.clone()));
        }
    }
    values
}

/// The parts that `addresses` of the pool make of the first device.
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
