//! What a machine's VM should be configured like, against what the clone is like. Pure.

use std::collections::BTreeMap;

use crate::config::{Addressing, Pool};
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
    set("cores", record.cores.to_string());
    if current.get("sockets").is_some_and(|sockets| sockets != "1") {
        set("sockets", "1".to_owned());
    }
    set("memory", (record.memory >> 20).to_string());
    // A kubelet reports its memory once: a balloon that takes some back later makes the node lie.
    set("balloon", "0".to_owned());
    set("onboot", "1".to_owned());
    // A full upgrade at first boot takes minutes and fails now and then.
    set("ciupgrade", "0".to_owned());
    set("tags", tags(pool, current));
    if let Some(net) = network(pool, current) {
        set("net0", net);
    }
    if let Some(user) = &pool.user {
        set("ciuser", user.clone());
    }
    if !pool.ssh_keys.is_empty() && current.get("sshkeys").is_none() {
        set("sshkeys", pool.ssh_keys.join("\n"));
    }
    for (key, value) in addresses(pool, record) {
        set(&key, value);
    }
    for (drive, value) in current.drives_without_backup() {
        set(&drive, value);
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

fn network(pool: &Pool, current: &VmConfig) -> Option<String> {
    if pool.bridge.is_none() && pool.vlan.is_none() {
        return None;
    }
    let written = current.net_with("net0", pool.bridge.as_deref(), pool.vlan)?;
    let parts = |text: &str| -> Vec<String> {
        let mut parts: Vec<_> = text.split(',').map(ToOwned::to_owned).collect();
        parts.sort();
        parts
    };
    // The order of the parts means nothing: the same parts need no write.
    current.get("net0").is_none_or(|present| parts(present) != parts(&written)).then_some(written)
}

fn addresses(pool: &Pool, record: &Record) -> Vec<(String, String)> {
    let Addressing::Static { prefix, gateway, dns, search, .. } = &pool.addressing else {
        return vec![("ipconfig0".to_owned(), "ip=dhcp".to_owned())];
    };
    let Some(address) = record.slot.address else { return Vec::new() };
    let (ip, gw) = if address.is_ipv6() { ("ip6", "gw6") } else { ("ip", "gw") };
    let gateway = gateway.map(|gateway| format!(",{gw}={gateway}")).unwrap_or_default();
    let mut values = vec![("ipconfig0".to_owned(), format!("{ip}={address}/{prefix}{gateway}"))];
    if !dns.is_empty() {
        // Blanks, not commas: with commas Proxmox writes one entry of all of them.
        let list: Vec<String> = dns.iter().map(ToString::to_string).collect();
        values.push(("nameserver".to_owned(), list.join(" ")));
    }
    if let Some(search) = search {
        values.push(("searchdomain".to_owned(), search.clone()));
    }
    values
}
