//! Orphans: VMs that bear our mark and have no record.
//!
//! A VM becomes an orphan if its record was deleted by hand, if etcd was restored from a backup that is older
//! than the machine, or if an administrator has copied a VM with its notes. So the mark alone proves little,
//! and several other points have to be proven, too ([`verdict`]). If a single point is not proven, the VM is
//! left alone. A proven orphan gets a record again, which says that the VM is to be discarded. From then on,
//! the VM is destroyed like any other machine's ([`collect`]).

mod collect;
mod points;

use std::net::IpAddr;
use std::time::Duration;

use super::adoption::disks_that_go_with_it;
use super::ownership::Owner;
use model::node::Node;
use model::{HostKey, Record, Vmid, names};
use proxmox::marker::{Description, Marker};
use proxmox::{VmConfig, VmStatus};
use settings::{Config, Pool};

pub use collect::{Claim, collect};
pub use points::{Missing, Proof};

/// How many times a VM must have been seen unchanged before it counts as an orphan.
pub const LOOKS: u32 = 3;

/// A VM that may be an orphan.
#[derive(Clone, Copy, Debug)]
pub struct Vm<'a> {
    /// Its VMID.
    pub vmid: Vmid,
    /// The VM's host, with the prefix of the Proxmox VE cluster.
    pub host: &'a HostKey,
    /// Its configuration.
    pub config: &'a VmConfig,
    /// How long the VM has been seen without a record, with the same configuration, host and power state.
    pub steady: Duration,
    /// How many times the VM was seen in that period.
    pub looks: u32,
}

/// The other facts that the verdict depends on.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The settings of all regions.
    pub config: &'a Config,
    /// The Kubernetes cluster whose machines are ours.
    pub owner: &'a Owner,
    /// All readable records.
    pub records: &'a [&'a Record],
    /// Whether there are unreadable records.
    pub unreadable: bool,
    /// All Nodes.
    pub nodes: &'a [&'a Node],
    /// VMIDs of other VMs with the same mark.
    pub twins: &'a [Vmid],
    /// The VM's live state, queried right before its destruction; `None` if it was not queried.
    pub live: Option<&'a Live>,
}

/// What Proxmox VE reports right before the VM is destroyed.
#[derive(Clone, Debug)]
pub struct Live {
    /// Whether the cluster, including the VM's host, is quorate.
    pub quorate: bool,
    /// The VM's status.
    pub status: VmStatus,
    /// The kinds of the tasks that are working on the VM.
    pub tasks: Vec<String>,
    /// Whether the token may see other users' tasks.
    pub sees_tasks: bool,
}

/// The result of the checks of one VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is proven.
    pub proof: Vec<Proof>,
    /// What is not proven. The VM is an orphan if this is empty.
    pub missing: Vec<Missing>,
}

impl Verdict {
    /// Whether everything is proven.
    pub fn is_proven(&self) -> bool {
        self.missing.is_empty() && !self.proof.is_empty()
    }

    /// Describes the proof in words.
    pub fn words(&self) -> String {
        let all: Vec<String> = self.proof.iter().map(ToString::to_string).collect();
        all.join("; ")
    }

    fn add(&mut self, points: impl IntoIterator<Item = Result<Proof, Missing>>) {
        for point in points {
            match point {
                Ok(proof) => self.proof.push(proof),
                Err(missing) => self.missing.push(missing),
            }
        }
    }
}

/// The pool that a mark names, if the pool's machines are VMs of the same Proxmox VE cluster as `vm`.
fn pool_of<'c>(config: &'c Config, vm: Vm, marker: &Marker) -> Option<&'c Pool> {
    let prefix = vm.host.region();
    let mut pools = config.pools.iter().filter(|pool| !pool.is_physical() && pool.prefix == prefix);
    pools.find(|pool| pool.name == marker.pool)
}

/// Judges whether a VM is provably a leftover machine of this cluster. A pure function.
pub fn verdict(vm: Vm, around: &Around) -> Verdict {
    let mut verdict = Verdict::default();
    let Description::Ours(marker) = vm.config.owner() else {
        verdict.add([Err(Missing::Mark)]);
        return verdict;
    };
    verdict.add(of_mark(&marker, around));
    verdict.add(of_pool(vm, &marker, around.config));
    verdict.add(of_kubernetes(vm, &marker, around));
    verdict.add([of_age(vm, around.config)]);
    verdict.add(against(vm, &marker, around.config).into_iter().map(Err));
    if let Some(live) = around.live {
        verdict.add(of_live(live));
    }
    verdict
}

/// Whether the mark belongs to this cluster.
fn of_mark(marker: &Marker, around: &Around) -> [Result<Proof, Missing>; 2] {
    let owner = around.owner;
    let mark = if marker.cluster == owner.cluster {
        Ok(Proof::Mark(marker.machine.clone()))
    } else {
        Err(Missing::OtherCluster(marker.cluster.clone()))
    };
    let kubernetes = match (&marker.kubernetes, &owner.kubernetes) {
        (_, None) => Err(Missing::UidUnknown),
        (Some(theirs), Some(own)) if theirs != own => Err(Missing::OtherKubernetes(theirs.clone())),
        (Some(uid), Some(_)) => Ok(Proof::Kubernetes(uid.clone())),
        // Marks of early versions and of adopted machines contain no uid.
        (None, Some(_)) => Ok(Proof::NoUid),
    };
    [mark, kubernetes]
}

/// Whether the VM's VMID and name fit a machine of its pool.
fn of_pool(vm: Vm, marker: &Marker, config: &Config) -> Vec<Result<Proof, Missing>> {
    let Some(pool) = pool_of(config, vm, marker) else {
        return vec![Err(Missing::NoPool(marker.pool.clone()))];
    };
    let vmid = if pool.vmids.iter().any(|vmids| vmids.contains(&vm.vmid.0)) {
        Ok(Proof::Vmid(vm.vmid, pool.name.clone()))
    } else {
        Err(Missing::Vmid(vm.vmid, pool.name.clone()))
    };
    let name = vm.config.get("name").unwrap_or_default().to_owned();
    let name = if names::is_machine_of(&pool.name, &name) {
        Ok(Proof::Name(name))
    } else {
        Err(Missing::Name(name, pool.name.clone()))
    };
    vec![vmid, name]
}

/// Checks that Kubernetes has no trace of the VM.
fn of_kubernetes(vm: Vm, marker: &Marker, around: &Around) -> Vec<Result<Proof, Missing>> {
    let uuid = vm.config.smbios_uuid();
    let name = vm.config.get("name").unwrap_or_default();
    let prefix = vm.host.region();
    let is_its = |record: &&&Record| {
        let here = around.config.prefix(record.region.as_deref()) == prefix;
        record.id == marker.machine
            || (here && record.slot.vmid == vm.vmid)
            || record.name == name
            || (uuid.is_some() && record.smbios_uuid == uuid)
    };
    let record = match around.records.iter().find(is_its) {
        Some(record) => Err(Missing::Record(record.name.clone())),
        None if around.unreadable => Err(Missing::UnreadableRecord),
        None => Ok(Proof::NoRecord),
    };
    let addresses: Vec<IpAddr> = vm.config.static_addresses().collect();
    let is_its = |node: &&&Node| {
        let has = |ip: &String| ip.parse().is_ok_and(|ip: IpAddr| addresses.contains(&ip));
        node.name == name
            || uuid.as_ref().is_some_and(|uuid| *uuid == node.system_uuid)
            || node.internal_ips.iter().any(has)
    };
    let node = match around.nodes.iter().find(is_its) {
        Some(node) => Err(Missing::Node(node.name.clone())),
        None => Ok(Proof::NoNode),
    };
    let uuid = if uuid.is_some() { None } else { Some(Err(Missing::Uuid)) };
    let twin = around.twins.first().map(|twin| Err(Missing::Twin(*twin)));
    [record, node].into_iter().chain(uuid).chain(twin).collect()
}

/// Whether the VM has been seen unchanged for long enough.
fn of_age(vm: Vm, config: &Config) -> Result<Proof, Missing> {
    if vm.looks < LOOKS || vm.steady < config.orphans_after {
        return Err(Missing::Age { steady: vm.steady, after: config.orphans_after, looks: vm.looks });
    }
    Ok(Proof::Age { steady: vm.steady, looks: vm.looks })
}

/// The points that forbid destroying the VM, whatever else is proven.
fn against(vm: Vm, marker: &Marker, config: &Config) -> Vec<Missing> {
    let mut against = Vec::new();
    if vm.config.is_template() {
        against.push(Missing::Template);
    }
    if let Some(lock) = vm.config.lock() {
        against.push(Missing::Locked(lock.to_owned()));
    }
    if vm.config.is_set("protection") {
        against.push(Missing::Protected);
    }
    if let Some(snapshot) = vm.config.get("parent") {
        against.push(Missing::Snapshot(snapshot.to_owned()));
    }
    let disks = pool_of(config, vm, marker).map(|pool| disks_that_go_with_it(pool, vm.config));
    against.extend(disks.into_iter().flatten().map(Missing::Disk));
    against
}

/// What Proxmox VE must report right before the VM is destroyed: a quorum, no task, no lock, no HA.
fn of_live(live: &Live) -> Vec<Result<Proof, Missing>> {
    let quorum = if live.quorate { Ok(Proof::Quorum) } else { Err(Missing::Quorum) };
    let task = match live.tasks.first() {
        Some(task) => Err(Missing::Task(task.clone())),
        None if !live.sees_tasks => Err(Missing::TasksHidden),
        None => Ok(Proof::NoTask),
    };
    let mut points = vec![quorum, task];
    if let Some(lock) = &live.status.lock {
        points.push(Err(Missing::Locked(lock.clone())));
    }
    if live.status.ha_managed {
        points.push(Err(Missing::Ha));
    }
    points
}

#[cfg(test)]
mod tests;
