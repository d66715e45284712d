//! A machine: one VM of a pool from the first intent to its end, and the hosts that carry it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::host_key::HostKey;
use super::machine_kind::{self, MachineKind};
use super::pci::HostPci;
use super::resources::Resources;
use super::text_id::{MachineId, PoolName};
use super::vmid::Vmid;
use super::workload::Backoff;

/// Where a machine is in its life. Derived from what is seen against the record, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The record is written, nothing is asked of Proxmox yet.
    #[default]
    Requested,
    /// The clone runs.
    Cloning,
    /// The clone is there; its configuration and disk size are being set.
    Configuring,
    /// It is kept ahead of demand, as [`Machine::warm`] says, and waits to be asked to join.
    Warm,
    /// The VM is being started.
    Starting,
    /// The VM runs; the guest agent or systemd is awaited.
    Booting,
    /// The join runs inside.
    Joining,
    /// The Node object is there, not ready yet.
    Registered,
    /// The node is ready.
    Ready,
    /// Pods are being evicted.
    Draining,
    /// The VM is being shut down.
    Stopping,
    /// The Node object and the VM are being deleted.
    Deleting,
    /// Its VM is gone; what that has left behind is being removed.
    Clearing,
    /// Nothing is left.
    Gone,
    /// It failed and is being cleaned away.
    Failed,
}

crate::codes!(
    Phase {
        Requested => "Requested",
        Cloning => "Cloning",
        Configuring => "Configuring",
        Warm => "Warm",
        Starting => "Starting",
        Booting => "Booting",
        Joining => "Joining",
        Registered => "Registered",
        Ready => "Ready",
        Draining => "Draining",
        Stopping => "Stopping",
        Deleting => "Deleting",
        Clearing => "Clearing",
        Gone => "Gone",
        Failed => "Failed",
    }
);

impl Phase {
    /// Whether nothing is there that could be a machine: at most what its VM has left behind.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Clearing | Self::Gone)
    }
}

/// How a machine is kept ahead of demand until it is asked to join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WarmState {
    /// Cloned and configured, never started: it takes disk space alone.
    #[default]
    Stopped,
    /// Started, systemd is up, nothing has joined: it takes memory and cores too.
    Booted,
    /// As booted, then suspended to disk: it takes disk space for its memory, but no memory.
    Suspended,
}

impl WarmState {
    /// As it is written in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Booted => "booted",
            Self::Suspended => "suspended",
        }
    }

    /// Whether QEMU runs while the machine waits, so that it holds its host's memory and cores.
    pub fn runs(self) -> bool {
        self == Self::Booted
    }

    /// What a machine with this many bytes of memory takes of disk space beside its disks while it waits:
    /// Proxmox VE allocates twice the memory and 500 MiB for devices (`__snapshot_save_vmstate` of
    /// qemu-server's `QemuConfig`).
    pub fn state_bytes(self, memory: i64) -> i64 {
        if self == Self::Suspended { memory.saturating_mul(2).saturating_add(500 << 20) } else { 0 }
    }
}

/// How far a machine is that is given CPUs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinned {
    /// The helper on its host is to give it some.
    Awaited,
    /// It has them.
    Done,
}

/// Which of its pool's storages a machine's clone is on, among what it was made of.
pub const STORED_ON: &str = "stored_on";

/// A VMID and the addresses that go with it; or a bare-metal machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// The VMID; for a bare-metal machine its number ([`Vmid::of_bare_metal`]).
    pub vmid: Vmid,
    /// The bare-metal machine, by its name; `None`: a VM is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The address, `None` with DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Further addresses by device and family, e.g. `net0/ip6` or `net1/ip`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub further: BTreeMap<String, IpAddr>,
}

impl Slot {
    /// Whether it is a bare-metal machine, and is switched on and off.
    pub fn is_physical(&self) -> bool {
        self.machine.is_some()
    }

    /// All its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.address.into_iter().chain(self.further.values().copied())
    }

    /// The addresses of its first device, if more than one address makes it worth saying which are the
    /// node's: the kubelet takes two families only if it is given both (`--node-ip`).
    pub fn node_ips(&self) -> Option<String> {
        let own = self.address.filter(|_| !self.further.is_empty())?;
        let six = self.further.get("net0/ip6").map(|six| format!(",{six}")).unwrap_or_default();
        Some(format!("{own}{six}"))
    }
}

/// A machine of a pool, as a round sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Its name, which is the VM's, the guest's and the Node's.
    pub name: String,
    /// Its pool.
    pub pool: PoolName,
    /// Its VMID.
    pub vmid: Vmid,
    /// The Proxmox host it is on.
    pub host: HostKey,
    /// Another host on which Proxmox VE shows it: an administrator has moved it, or is about to, and it is
    /// not followed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_on: Option<HostKey>,
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
    /// Where it is in its life.
    pub phase: Phase,
    /// What it has put on storages last, its disks or its memory, may not be in what they say of themselves
    /// yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub just_stored: bool,
    /// Since when it has been in this phase.
    pub since: Option<Timestamp>,
    /// Since when it is on its way to be a node ([`Record::wanted_since`]), if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<Timestamp>,
    /// The Node, once it has registered.
    pub node: Option<String>,
    /// Pods it was made for, `namespace/name`.
    #[serde(default)]
    pub pods: Vec<String>,
    /// How it is kept, or is to be kept, until it is asked to join; `None`: it is to be a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmState>,
    /// It runs and is being given more: what it had before; `cores` and `memory` are what it is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growing>,
    /// Its growth has failed: it is not tried again until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_backoff: Option<Backoff>,
    /// CPUs that were plugged did not come to be its Node's: it gets no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_cpus: bool,
    /// The same of memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_memory: bool,
    /// What it was made of, setting by setting (`settings::Pool::made_of`, and its `template`); empty:
    /// not known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub made_of: BTreeMap<String, String>,
}

impl Machine {
    /// Since when it is on its way to be a node, or at least so far.
    pub fn wanted_since(&self) -> Option<Timestamp> {
        self.requested.or(self.since)
    }

    /// The hosts that it is to be counted on.
    pub fn hosts(&self) -> impl Iterator<Item = &HostKey> {
        std::iter::once(&self.host).chain(&self.seen_on)
    }
}

/// A running machine that is being given more: what it had before, and what its Node said then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Growing {
    /// vCPUs before.
    pub cores: u32,
    /// Memory before, in bytes.
    pub memory: i64,
    /// CPUs that the Node had before, in thousandths.
    pub node_cpu_milli: i64,
    /// Memory that the Node had before, in bytes.
    pub node_memory: i64,
    /// Since when.
    pub since: Timestamp,
    /// Why it is given up: what was plugged and did not come to be its Node's is being taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Growing {
    /// What a Node has with this capacity still to report once the machine has grown to so much: thousandths
    /// of CPUs, and bytes.
    pub fn missing(&self, (cores, memory): (u32, i64), seen: &Resources) -> (i64, i64) {
        let cpu = self.node_cpu_milli + (i64::from(cores) - i64::from(self.cores)) * 1000;
        let memory = self.node_memory + guest_sees(memory - self.memory);
        ((cpu - seen.cpu_milli).max(0), (memory - seen.memory).max(0))
    }

    /// Whether a Node with this capacity reports more than a machine of so much has. A kubelet goes on saying
    /// what it has found at its start, whatever is taken out of the machine since.
    pub fn says_more(&self, (cores, memory): (u32, i64), seen: &Resources) -> bool {
        let cpu = self.node_cpu_milli + (i64::from(cores) - i64::from(self.cores)) * 1000;
        let memory = self.node_memory + (memory - self.memory);
        seen.cpu_milli > cpu || seen.memory - memory >= NO_MORE
    }
}

/// Less memory than this is no more of a Node: kernels differ a little in what they keep from start to start.
pub const NO_MORE: i64 = 64 << 20;

/// What a guest makes of this many bytes of memory that are plugged: its kernel keeps a part for itself.
pub fn guest_sees(bytes: i64) -> i64 {
    bytes - bytes / 50
}

/// A storage as one host sees it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Storage {
    /// Its size.
    pub total: i64,
    /// What is used.
    pub used: i64,
    /// Every host sees the same one.
    #[serde(default)]
    pub shared: bool,
}

/// A Proxmox host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Its name.
    pub name: HostKey,
    /// It is up and part of the cluster.
    pub online: bool,
    /// It is in (HA) maintenance.
    #[serde(default)]
    pub maintenance: bool,
    /// Its threads.
    pub cores: u32,
    /// Its memory in bytes.
    pub memory: i64,
    /// Memory in use in bytes, as Proxmox reports it.
    pub memory_used: i64,
    /// vCPUs of the running VMs and containers on it, ours included, if known.
    #[serde(default)]
    pub cores_assigned: u32,
    /// Memory in bytes that running guests were given, ours included, if known.
    #[serde(default)]
    pub memory_assigned: i64,
    /// Its storages.
    #[serde(default)]
    pub storage: BTreeMap<String, Storage>,
    /// Its PCI devices, if a pool gives any to its machines.
    #[serde(default, skip_serializing_if = "HostPci::is_empty")]
    pub pci: HostPci,
}

/// What a machine's record says is meant to become of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Intent {
    /// It is being created, or lives.
    Create,
    /// It is on its way out, for this reason.
    Retire {
        /// In words, for logs and events.
        reason: String,
        /// Since when.
        since: Timestamp,
    },
    /// Its creation failed and what there is of it is being removed.
    Discard {
        /// What failed.
        reason: String,
        /// Since when.
        since: Timestamp,
    },
}

/// The record of a machine, kept in Kubernetes before anything is asked of Proxmox and dropped last.
///
/// It names what was given out, so that a later change of configuration contradicts nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Unique id of the machine (a random UUID), part of the VM's marker.
    pub id: MachineId,
    /// Its pool.
    pub pool: PoolName,
    /// Name of VM, guest and Node.
    pub name: String,
    /// Its slot.
    pub slot: Slot,
    /// The region whose cluster has its VM; `None`: the cluster in `[proxmox]`, which had no name then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The Proxmox host that it was put on.
    pub host: String,
    /// Hosts that its VM was on before it was moved: files that do not move with a VM may be left there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left_hosts: BTreeSet<String>,
    /// VMID of the template; `None`: it is a clone of none.
    #[serde(default, with = "machine_kind::template")]
    pub template: Option<Vmid>,
    /// The host that holds the template, or its own.
    pub template_host: String,
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
    /// What is meant to become of it.
    pub intent: Intent,
    /// When it was requested.
    pub created: Timestamp,
    /// UPID of the Proxmox task under way, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The VM's SMBIOS uuid, once known: equals the Node's `systemUUID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<String>,
    /// Id (not the secret) of the bootstrap token minted for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// Ids of tokens that an earlier run of the daemon minted for it: a join with one of them may be under
    /// way in the guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub old_token_ids: Vec<String>,
    /// uid of the Node that it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// We cordoned the Node (so we may uncordon it).
    #[serde(default)]
    pub cordoned: bool,
    /// When a bare-metal machine was seen to be off while it was ours; `None` again once its Node is heard
    /// of. After that, only another client switches it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_off: Option<Timestamp>,
    /// A clone was asked for and its outcome is not known: a VM with this VMID that cannot be seen may be
    /// ours.
    #[serde(default)]
    pub clone_in_doubt: bool,
    /// The destruction of its VM was asked for, or is about to be: a VM with this VMID that cannot be seen
    /// may be what is left of it.
    #[serde(default)]
    pub destroy_asked: bool,
    /// Names of the storages that disks of its VM may be on, whatever can be seen of it by then.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub storages: BTreeSet<String>,
    /// When each phase was entered: the machine's own timeline.
    #[serde(default)]
    pub entered: BTreeMap<Phase, Timestamp>,
    /// When its VM was seen to be gone, its Node too: what is left of them is all that keeps the record. Not
    /// among `entered`, which an earlier release could not read then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_gone: Option<Timestamp>,
    /// Pods it was made for, `namespace/name`, in the order of the plan, which keeps their places for them.
    #[serde(default)]
    pub pods: Vec<String>,
    /// How it is kept until it is asked to join; `None`: it is to be a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmState>,
    /// When a machine that was kept warm was asked to join: what it becomes is timed from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// How it was kept before it was asked to join; `None` also in a record of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<WarmState>,
    /// How far it is with CPUs of its own; `None`: it is to have none, or has not come to it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
    /// It runs and is being given more: what it had before; `cores` and `memory` are what it is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growing>,
    /// Its growth has failed: it is not tried again until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_backoff: Option<Backoff>,
    /// CPUs that were plugged did not come to be its Node's: it gets no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_cpus: bool,
    /// The same of memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_memory: bool,
    /// What it is made of, setting by setting (`settings::Pool::made_of`, and its `template`). Empty
    /// in a record of an earlier release.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub made_of: BTreeMap<String, String>,
}

impl Record {
    /// One of a machine that was just requested: nothing is known of it but what it is to be called and where
    /// it is to be.
    pub fn new(
        id: MachineId,
        pool: PoolName,
        name: String,
        slot: Slot,
        host: String,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            pool,
            name,
            slot,
            region: None,
            template_host: host.clone(),
            host,
            left_hosts: BTreeSet::new(),
            template: None,
            cores: 0,
            memory: 0,
            intent: Intent::Create,
            created: now,
            task: None,
            smbios_uuid: None,
            token_id: None,
            old_token_ids: Vec::new(),
            node_uid: None,
            cordoned: false,
            seen_off: None,
            clone_in_doubt: false,
            destroy_asked: false,
            storages: BTreeSet::new(),
            entered: BTreeMap::from([(Phase::Requested, now)]),
            vm_gone: None,
            pods: Vec::new(),
            warm: None,
            asked: None,
            kept: None,
            pinned: None,
            growing: None,
            grow_backoff: None,
            takes_no_cpus: false,
            takes_no_memory: false,
            made_of: BTreeMap::new(),
        }
    }

    /// One that was just requested, for tests to change.
    pub fn example() -> Self {
        let (pool, name, host) = ("workers".to_owned(), "workers-a1".to_owned(), "pve1".to_owned());
        let slot = Slot { vmid: Vmid(9101), ..Slot::default() };
        let record = Self::new("m1".into(), pool.into(), name, slot, host, Timestamp::UNIX_EPOCH);
        Self { template: Some(Vmid(9000)), cores: 2, memory: 4 << 30, entered: BTreeMap::new(), ..record }
    }

    /// Whether it is a bare-metal machine, and is switched on and off.
    pub fn is_physical(&self) -> bool {
        self.slot.is_physical()
    }

    /// What it is made from.
    pub fn kind(&self) -> MachineKind {
        match self.template {
            _ if self.is_physical() => MachineKind::BareMetal,
            Some(template) => MachineKind::Clone(template),
            None => MachineKind::Blank,
        }
    }

    /// Where a daemon that finds the record goes on with its machine.
    pub fn phase(&self) -> Phase {
        match self.intent {
            Intent::Create => Phase::Requested,
            Intent::Retire { .. } | Intent::Discard { .. } if self.vm_gone.is_some() => Phase::Clearing,
            Intent::Retire { .. } => Phase::Draining,
            Intent::Discard { .. } => Phase::Failed,
        }
    }

    /// Whether it was given up before it was a node: its pool loses none when it goes.
    pub fn was_never_a_node(&self) -> bool {
        matches!(self.intent, Intent::Discard { .. }) && self.node_uid.is_none()
    }

    /// Its VM was moved to another host.
    pub fn follow(&mut self, host: String) {
        let left = std::mem::replace(&mut self.host, host);
        self.left_hosts.insert(left);
        self.left_hosts.remove(&self.host);
    }

    /// Since when it is on its way to be a node. What it waits before anything of it is begun does not count:
    /// a pause, or its turn among clones.
    pub fn wanted_since(&self) -> Timestamp {
        self.entered.get(&Phase::Requested).copied().or(self.asked).unwrap_or(self.created)
    }

    /// Ids of all tokens that were minted for it and may live.
    pub fn tokens(&self) -> impl Iterator<Item = &String> {
        self.old_token_ids.iter().chain(&self.token_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_is_told_its_addresses_where_there_is_a_choice() {
        let slot = |address: Option<&str>, further: &[(&str, &str)]| Slot {
            vmid: Vmid(100),
            machine: None,
            address: address.map(|text| text.parse().unwrap()),
            further: further.iter().map(|(key, text)| ((*key).to_owned(), text.parse().unwrap())).collect(),
        };
        assert_eq!(slot(Some("10.0.0.1"), &[]).node_ips(), None);
        assert_eq!(slot(None, &[("net0/ip6", "fd00::1")]).node_ips(), None);
        let both = slot(Some("10.0.0.1"), &[("net0/ip6", "fd00::1"), ("net1/ip", "10.1.0.1")]);
        assert_eq!(both.node_ips().as_deref(), Some("10.0.0.1,fd00::1"));
        assert_eq!(
            slot(Some("10.0.0.1"), &[("net1/ip", "10.1.0.1")]).node_ips().as_deref(),
            Some("10.0.0.1")
        );
        assert_eq!(both.addresses().count(), 3);
    }
}
