//! The inventory of hosts, guests and storages, from Proxmox VE's list of cluster resources.
//!
//! One cheap call returns the list, but some of its values lag. A VM's power state and name are up to 11 s
//! old and may change back and forth, and the VMs of a failed host keep their last state. VMID, host, tags,
//! pool and lock are always current.

use std::collections::{BTreeMap, BTreeSet};

use model::{HostKey, Vmid};
use runtime::boxed;
use serde_json::Value;

use super::answer::{flag_of, number_of, text_of};
use super::client::{Client, Lane};
use super::error::Error;
use model::machine::{Host, Storage};
use model::pci::HostPci;

/// The tag by which people recognize the daemon's VMs in a list.
pub const TAG: &str = "pve-autoscaler";

/// A VM or container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guest {
    /// Its VMID.
    pub vmid: Vmid,
    /// The host of the guest.
    pub host: String,
    /// The guest's name, once the statistics contain it.
    pub name: Option<String>,
    /// Whether the guest runs according to the statistics, and its host is up.
    pub running: bool,
    /// Whether the guest is stopped according to the statistics. In a guest's first seconds, the statistics
    /// do not contain it, so it counts as neither running nor stopped.
    pub stopped: bool,
    /// Whether the guest is a template.
    pub template: bool,
    /// Whether the guest is a container.
    pub container: bool,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its Proxmox pool.
    pub pool: Option<String>,
    /// The lock that an operation holds on the guest, if any.
    pub lock: Option<String>,
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSeen {
    /// Its name.
    pub name: String,
    /// Whether the host is up.
    pub online: bool,
    /// Whether the host's `pvestatd` has not reported for five minutes. If so, all that is known about the
    /// host's guests is the values that are always current (VMID, host, tags, pool, lock), and all that is
    /// known about its storages is their names.
    pub silent: bool,
    /// Whether the host is in HA maintenance.
    pub maintenance: bool,
    /// The number of CPU threads of the host.
    pub cores: u32,
    /// The host's memory in bytes.
    pub memory: i64,
    /// The host's memory in use, in bytes.
    pub memory_used: i64,
}

/// A storage as one host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSeen {
    /// Its name.
    pub name: String,
    /// The host.
    pub host: String,
    /// The storage's size and used space, in bytes.
    pub size: Storage,
    /// The kind of the storage, e.g. `lvmthin`.
    pub kind: String,
}

/// The contents of the cluster's list: hosts, guests and storages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterResources {
    /// Hosts by name.
    pub hosts: BTreeMap<String, HostSeen>,
    /// Guests by VMID.
    pub guests: BTreeMap<Vmid, Guest>,
    /// Storages that are available.
    pub storages: Vec<StorageSeen>,
}

impl Client {
    /// The cluster's list.
    #[boxed]
    pub async fn resources(&self) -> Result<ClusterResources, Error> {
        let data = self.get(Lane::Free, "/cluster/resources", &[]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET /cluster/resources", "no list"))?;
        Ok(ClusterResources::read(rows))
    }
}

impl Guest {
    /// Whether the guest's vCPUs and memory may count as assigned even while it is stopped, because another
    /// client may start it at any time. False for the daemon's own machines, because they are counted through
    /// their records.
    fn may_start(&self) -> bool {
        !self.template && self.lock.is_none() && !self.tags.iter().any(|tag| tag == TAG)
    }
}

impl ClusterResources {
    fn read(rows: &[Value]) -> Self {
        let mut seen = Self::default();
        for row in rows {
            match text_of(row, "type").as_deref() {
                Some("node") => {
                    let host = host(row);
                    seen.hosts.insert(host.name.clone(), host);
                }
                Some("qemu" | "lxc") => {
                    let guest = guest(row);
                    seen.guests.insert(guest.vmid, guest);
                }
                Some("storage") if text_of(row, "status").as_deref() == Some("available") => {
                    seen.storages.push(storage(row));
                }
                _ => {}
            }
        }
        let online = |host: &str| seen.hosts.get(host).is_some_and(|host| host.online);
        for guest in seen.guests.values_mut() {
            guest.running &= online(&guest.host);
        }
        seen.storages.retain(|storage| online(&storage.host));
        seen
    }

    /// The hosts whose `pvestatd` is silent.
    pub fn silent(&self) -> impl Iterator<Item = &HostSeen> {
        self.hosts.values().filter(|host| host.silent)
    }

    /// Fills in the last known values for silent hosts and their guests. The guests' VMIDs, hosts, tags,
    /// pools and locks are current even without `pvestatd`, and are not replaced.
    #[must_use]
    pub fn with_known(mut self, before: &Self) -> Self {
        let silent: BTreeSet<String> = self.silent().map(|host| host.name.clone()).collect();
        for name in &silent {
            let (Some(now), Some(then)) = (self.hosts.get_mut(name), before.hosts.get(name)) else {
                continue;
            };
            *now =
                HostSeen { silent: true, online: now.online, maintenance: now.maintenance, ..then.clone() };
            let known = before.storages.iter().filter(|storage| storage.host == *name).cloned();
            self.storages.extend(known);
        }
        for (vmid, now) in &mut self.guests {
            let Some(then) = before.guests.get(vmid).filter(|_| silent.contains(&now.host)) else { continue };
            *now = Guest {
                host: now.host.clone(),
                tags: now.tags.clone(),
                pool: now.pool.clone(),
                lock: now.lock.clone(),
                ..then.clone()
            };
        }
        self
    }

    /// The guests that are being migrated (lock `migrate`), running or not; Proxmox VE does not show the
    /// target host.
    pub fn migrating(&self) -> BTreeSet<Vmid> {
        let moves = |guest: &&Guest| guest.lock.as_deref() == Some("migrate");
        self.guests.values().filter(moves).map(|guest| guest.vmid).collect()
    }

    /// The guests whose VMID or name is `wanted`, ordered by VMID. They may be templates, VMs or containers.
    /// A VM that was created less than 11 s ago may not have a name yet.
    pub fn find(&self, wanted: &str) -> Vec<&Guest> {
        let vmid = wanted.parse::<Vmid>().ok();
        let named = |guest: &Guest| guest.name.as_deref() == Some(wanted);
        self.guests.values().filter(|guest| Some(guest.vmid) == vmid || named(guest)).collect()
    }

    /// The VM templates, ordered by VMID.
    pub fn templates(&self) -> Vec<&Guest> {
        self.guests.values().filter(|guest| guest.template && !guest.container).collect()
    }

    /// The hosts in the planner's form, with the vCPUs and memory that are assigned to running guests. If
    /// `count_stopped` is set, a stopped guest also counts, unless it is a template, is locked, or is one of
    /// the daemon's own machines.
    pub fn hosts(&self, count_stopped: bool) -> Vec<Host> {
        self.hosts
            .values()
            .map(|host| {
                let counts = |guest: &&Guest| {
                    guest.host == host.name && (guest.running || count_stopped && guest.may_start())
                };
                let running = || self.guests.values().filter(counts);
                let storages = self.storages.iter().filter(|storage| storage.host == host.name);
                Host {
                    name: HostKey::from(host.name.clone()),
                    online: host.online,
                    maintenance: host.maintenance,
                    cores: host.cores,
                    memory: host.memory,
                    memory_used: host.memory_used,
                    cores_assigned: running().map(|guest| guest.cores).sum(),
                    memory_assigned: running().map(|guest| guest.memory).sum(),
                    storage: storages.map(|storage| (storage.name.clone(), storage.size)).collect(),
                    pci: HostPci::default(),
                }
            })
            .collect()
    }
}

fn count(row: &Value, field: &str) -> u32 {
    number_of(row, field).and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

fn bytes(row: &Value, field: &str) -> i64 {
    number_of(row, field).unwrap_or(0)
}

fn host(row: &Value) -> HostSeen {
    let status = text_of(row, "status");
    // A host that the cluster has lost is always `offline`. `unknown` only means that a host has no
    // statistics.
    let silent = status.as_deref() == Some("unknown");
    HostSeen {
        name: text_of(row, "node").unwrap_or_default(),
        online: silent || status.as_deref() == Some("online"),
        silent,
        maintenance: text_of(row, "hastate").as_deref() == Some("maintenance"),
        cores: count(row, "maxcpu"),
        memory: bytes(row, "maxmem"),
        memory_used: bytes(row, "mem"),
    }
}

fn guest(row: &Value) -> Guest {
    let tags = text_of(row, "tags").unwrap_or_default();
    Guest {
        vmid: Vmid(count(row, "vmid")),
        host: text_of(row, "node").unwrap_or_default(),
        name: text_of(row, "name"),
        running: text_of(row, "status").as_deref() == Some("running"),
        stopped: text_of(row, "status").as_deref() == Some("stopped"),
        template: flag_of(row, "template"),
        container: text_of(row, "type").as_deref() == Some("lxc"),
        tags: tags.split([';', ',', ' ']).filter(|tag| !tag.is_empty()).map(ToOwned::to_owned).collect(),
        pool: text_of(row, "pool"),
        lock: text_of(row, "lock"),
        cores: count(row, "maxcpu"),
        memory: bytes(row, "maxmem"),
    }
}

fn storage(row: &Value) -> StorageSeen {
    StorageSeen {
        name: text_of(row, "storage").unwrap_or_default(),
        host: text_of(row, "node").unwrap_or_default(),
        size: Storage {
            total: bytes(row, "maxdisk"),
            used: bytes(row, "disk"),
            shared: flag_of(row, "shared"),
        },
        kind: text_of(row, "plugintype").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_template_is_found_by_vmid_and_by_a_name_that_others_may_have_too() {
        let seen = ClusterResources::read(&[
            json!({"type": "qemu", "node": "pve1", "vmid": 9000, "name": "worker", "template": 1}),
            json!({"type": "qemu", "node": "pve2", "vmid": 9001, "name": "worker", "template": "1"}),
            json!({"type": "lxc", "node": "pve2", "vmid": 9002, "name": "worker", "template": 1}),
            json!({"type": "qemu", "node": "pve2", "vmid": 120, "name": "9000"}),
        ]);
        let vmids = |found: Vec<&Guest>| found.iter().map(|guest| guest.vmid).collect::<Vec<_>>();
        assert_eq!(vmids(seen.find("worker")), [Vmid(9000), Vmid(9001), Vmid(9002)]);
        assert_eq!(vmids(seen.find("9000")), [Vmid(120), Vmid(9000)]);
        assert_eq!(vmids(seen.find("9001")), [Vmid(9001)]);
        assert!(seen.find("other").is_empty());
        assert_eq!(vmids(seen.templates()), [Vmid(9000), Vmid(9001)]);
    }

    #[test]
    fn a_dead_hosts_guests_do_not_run() {
        let seen = ClusterResources::read(&[
            json!({"type": "node", "node": "pve1", "status": "online", "maxcpu": 8, "maxmem": 100, "mem": "40"}),
            json!({"type": "node", "node": "pve2", "status": "offline"}),
            json!({"type": "qemu", "node": "pve1", "vmid": 101, "status": "running", "maxcpu": 4, "maxmem": 30}),
            json!({"type": "qemu", "node": "pve1", "vmid": "102", "status": "unknown", "lock": "clone"}),
            json!({"type": "qemu", "node": "pve2", "vmid": 103, "status": "running", "maxcpu": 2, "tags": "a;b"}),
            json!({"type": "storage", "node": "pve2", "storage": "shared", "status": "available", "shared": 1}),
            json!({"type": "sdn", "node": "pve1"}),
        ]);
        let running: Vec<_> =
            seen.guests.values().filter(|guest| guest.running).map(|guest| guest.vmid).collect();
        assert_eq!(running, [Vmid(101)]);
        assert_eq!(seen.guests[&Vmid(102)].lock.as_deref(), Some("clone"));
        assert_eq!(seen.guests[&Vmid(103)].tags, ["a", "b"]);
        assert!(seen.storages.is_empty());
        let hosts = seen.hosts(false);
        assert_eq!((hosts[0].cores_assigned, hosts[0].memory_assigned, hosts[0].memory_used), (4, 30, 40));
        assert!(hosts[0].online && !hosts[1].online);
        // VM 102 is locked because it is being cloned, so it is not counted: machines are counted through
        // their records.
        assert_eq!(seen.hosts(true)[0].memory_assigned, 30);
    }

    #[test]
    fn what_was_known_of_a_silent_host_holds_and_what_the_list_still_knows_is_new() {
        let before = ClusterResources::read(&[
            json!({"type": "node", "node": "pve1", "status": "online", "maxcpu": 8, "maxmem": 100, "mem": 40}),
            json!({"type": "qemu", "node": "pve1", "vmid": 9000, "status": "stopped", "name": "worker", "template": 1}),
            json!({"type": "qemu", "node": "pve1", "vmid": 101, "status": "running", "name": "a", "maxcpu": 2, "maxmem": 30}),
            json!({"type": "qemu", "node": "pve1", "vmid": 102, "status": "running", "name": "b"}),
            json!({"type": "storage", "node": "pve1", "storage": "local", "status": "available", "maxdisk": 50}),
        ]);
        // The answer of a real cluster while the `pvestatd` of a host is silent.
        let bare = ClusterResources::read(&[
            json!({"type": "node", "cgroup-mode": 1, "node": "pve1", "status": "unknown", "hastate": "online"}),
            json!({"type": "qemu", "node": "pve1", "vmid": 9000, "status": "unknown"}),
            json!({"type": "qemu", "node": "pve1", "vmid": 101, "status": "unknown", "lock": "backup"}),
            json!({"type": "storage", "node": "pve1", "storage": "local", "status": "unknown", "shared": 0}),
        ]);
        assert!(bare.hosts["pve1"].online && bare.find("worker").is_empty());
        let seen = bare.with_known(&before);
        let host = &seen.hosts["pve1"];
        assert_eq!((host.silent, host.online, host.cores, host.memory_used), (true, true, 8, 40));
        assert_eq!(seen.templates().len(), 1);
        assert_eq!(
            (seen.guests[&Vmid(101)].running, seen.guests[&Vmid(101)].lock.as_deref()),
            (true, Some("backup"))
        );
        assert!(!seen.guests.contains_key(&Vmid(102)), "a guest that is no longer listed is dropped");
        assert_eq!(seen.storages.len(), 1);
    }

    #[test]
    fn guests_that_do_not_run_count_where_they_are_to_but_templates_never_do() {
        let seen = ClusterResources::read(&[
            json!({"type": "node", "node": "pve1", "status": "online", "maxcpu": 8, "maxmem": 100, "mem": 10}),
            json!({"type": "qemu", "node": "pve1", "vmid": 101, "status": "running", "maxcpu": 1, "maxmem": 1}),
            json!({"type": "qemu", "node": "pve1", "vmid": 102, "status": "stopped", "maxcpu": 2, "maxmem": 2}),
            json!({"type": "lxc", "node": "pve1", "vmid": 103, "status": "running", "maxcpu": 4, "maxmem": 4}),
            json!({"type": "lxc", "node": "pve1", "vmid": 104, "status": "stopped", "maxcpu": 8, "maxmem": 8}),
            json!({"type": "qemu", "node": "pve1", "vmid": 900, "status": "stopped", "maxcpu": 16, "maxmem": 16, "template": 1}),
            json!({"type": "qemu", "node": "pve1", "vmid": 105, "status": "stopped", "maxcpu": 32, "maxmem": 32, "tags": "pve-autoscaler"}),
        ]);
        let assigned = |count_stopped| {
            let host = seen.hosts(count_stopped).remove(0);
            (host.cores_assigned, host.memory_assigned)
        };
        assert_eq!((assigned(false), assigned(true)), ((5, 5), (15, 15)));
    }
}
