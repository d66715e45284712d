//! Machines, from their request to their removal, and the hosts that run VMs. A machine is a VM of a pool, or
//! a bare-metal machine.

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

/// A stage in the life of a machine, derived from its record and from the state of its VM and Node. The
/// phases are listed in chronological order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The record is written; nothing has been requested from Proxmox VE yet.
    #[default]
    Requested,
    /// The VM is being cloned.
    Cloning,
    /// The clone exists; its configuration and disk size are being set.
    Configuring,
    /// The machine is kept ahead of demand ([`Machine::warm`]) until it is asked to join.
    Warm,
    /// The VM is being started.
    Starting,
    /// The VM runs; the daemon waits for the guest agent and systemd.
    Booting,
    /// The guest is joining the cluster.
    Joining,
    /// The Node object exists, but is not ready yet.
    Registered,
    /// The node is ready.
    Ready,
    /// Pods are being evicted.
    Draining,
    /// The VM is being shut down.
    Stopping,
    /// The Node object and the VM are being deleted.
    Deleting,
    /// The VM is gone, and what it left behind is being removed.
    Clearing,
    /// Nothing of the machine is left.
    Gone,
    /// The machine failed and is being removed.
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
    /// Whether the machine is gone, even if remains of its VM still exist.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Clearing | Self::Gone)
    }
}

/// How a machine is kept ahead of demand until it is asked to join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WarmState {
    /// Cloned and configured, but never started. The machine uses only disk space.
    #[default]
    Stopped,
    /// Started, with systemd up, but not joined to the cluster. The machine uses disk space, memory and
    /// cores.
    Booted,
    /// Booted, then suspended to disk. The machine uses disk space for its saved memory, but no memory.
    Suspended,
}

impl WarmState {
    /// The name of the state in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Booted => "booted",
            Self::Suspended => "suspended",
        }
    }

    /// Whether QEMU runs while the machine waits. If it does, the machine uses the host's memory and cores.
    pub fn runs(self) -> bool {
        self == Self::Booted
    }

    /// Returns the disk space that a waiting machine with this many bytes of memory uses in addition to its
    /// disks. Only a suspended machine uses any: Proxmox VE allocates twice the memory size, plus 500 MiB for
    /// devices (`__snapshot_save_vmstate` in qemu-server's `QemuConfig`).
    pub fn state_bytes(self, memory: i64) -> i64 {
        if self == Self::Suspended { memory.saturating_mul(2).saturating_add(500 << 20) } else { 0 }
    }
}

/// The progress of assigning dedicated CPUs to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinned {
    /// The helper on the machine's host has yet to assign the CPUs.
    Awaited,
    /// The CPUs are assigned.
    Done,
}

/// The key in `made_of` for the storage that holds the machine's clone. Its value is one of the pool's
/// `storages`.
pub const STORED_ON: &str = "stored_on";

/// A VMID and the addresses that go with it, or a bare-metal machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// The VMID. For a bare-metal machine, a number that is not a VMID ([`Vmid::of_bare_metal`]).
    pub vmid: Vmid,
    /// The name of the bare-metal machine. `None` if the slot is for a VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The main address. `None` if the machine uses DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Other addresses by device and family, e.g. `net0/ip6` or `net1/ip`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub further: BTreeMap<String, IpAddr>,
}

impl Slot {
    /// Whether the slot is a bare-metal machine, which is switched on and off instead of created and
    /// destroyed.
    pub fn is_physical(&self) -> bool {
        self.machine.is_some()
    }

    /// All its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.address.into_iter().chain(self.further.values().copied())
    }

    /// Returns the addresses of the first network device, for the kubelet's `--node-ip`. Returns `None` if
    /// the main address is not static, or if the slot has no other address. The kubelet uses two address
    /// families only if it is given an address of each.
    pub fn node_ips(&self) -> Option<String> {
        let own = self.address.filter(|_| !self.further.is_empty())?;
        let six = self.further.get("net0/ip6").map(|six| format!(",{six}")).unwrap_or_default();
        Some(format!("{own}{six}"))
    }
}

/// A pool's machine, in the form that decisions read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The machine's name. Its VM, guest and Node have the same name.
    pub name: String,
    /// Its pool.
    pub pool: PoolName,
    /// Its VMID.
    pub vmid: Vmid,
    /// The host that the machine is on.
    pub host: HostKey,
    /// The host on which Proxmox VE last reported the machine, if that is not `host`. The two differ after an
    /// administrator has moved the machine, if the record has not been updated yet, or was updated only after
    /// Proxmox VE was last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_on: Option<HostKey>,
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
    /// The stage in the machine's life.
    pub phase: Phase,
    /// Whether the machine has just written disks or memory to storages. The reported usage of these storages
    /// might not include them yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub just_stored: bool,
    /// The time at which the machine entered its current phase.
    pub since: Option<Timestamp>,
    /// The time at which the daemon began to turn the machine into a node ([`Record::wanted_since`]), if
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<Timestamp>,
    /// The name of the Node, once it has registered.
    pub node: Option<String>,
    /// The pods that the machine was created for, as `namespace/name`.
    #[serde(default)]
    pub pods: Vec<String>,
    /// How the machine is kept warm, or will be kept warm, until it is asked to join. `None` if it is to
    /// become a node right away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmState>,
    /// The machine's size before it began to grow. Set while the running machine is being given more vCPUs or
    /// memory. In the meantime, `cores` and `memory` contain the new size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growing>,
    /// The back-off after a failed attempt to grow the machine. There is no new attempt until this back-off
    /// ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_backoff: Option<Backoff>,
    /// Whether the daemon adds no further CPUs to the machine, because its Node did not report CPUs that were
    /// hot-plugged earlier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_cpus: bool,
    /// Whether the daemon adds no further memory to the machine, because its Node did not report memory that
    /// was hot-plugged earlier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_memory: bool,
    /// The settings and the `template` that the machine was created from (`settings::Pool::made_of`). Empty
    /// if not known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub made_of: BTreeMap<String, String>,
}

impl Machine {
    /// Returns the time at which the daemon began to turn the machine into a node. If that time is unknown,
    /// returns the time at which the machine entered its current phase.
    pub fn wanted_since(&self) -> Option<Timestamp> {
        self.requested.or(self.since)
    }

    /// Returns the hosts whose resources the machine counts against: its own host, and any other host on
    /// which Proxmox VE reports it.
    pub fn hosts(&self) -> impl Iterator<Item = &HostKey> {
        std::iter::once(&self.host).chain(&self.seen_on)
    }
}

/// The growth of a running machine that is being given more vCPUs or memory. Contains the machine's previous
/// size, and what its Node reported before the growth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Growing {
    /// vCPUs before.
    pub cores: u32,
    /// The previous memory, in bytes.
    pub memory: i64,
    /// The CPU that the Node reported before the growth, in thousandths of a core.
    pub node_cpu_milli: i64,
    /// The memory that the Node reported before the growth, in bytes.
    pub node_memory: i64,
    /// The time at which the growth began.
    pub since: Timestamp,
    /// The reason why the growth was given up. If this is set, the daemon unplugs the added CPUs and memory
    /// that the Node does not report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Growing {
    /// The CPU (in thousandths) and memory (in bytes) that the Node does not report yet, although the
    /// machine's new size includes them. `seen` is the capacity that the Node reports now.
    pub fn missing(&self, (cores, memory): (u32, i64), seen: &Resources) -> (i64, i64) {
        let cpu = self.node_cpu_milli + (i64::from(cores) - i64::from(self.cores)) * 1000;
        let memory = self.node_memory + guest_sees(memory - self.memory);
        ((cpu - seen.cpu_milli).max(0), (memory - seen.memory).max(0))
    }

    /// Whether the capacity that the Node reports (`seen`) is larger than the capacity of a machine of this
    /// size. A kubelet keeps reporting the resources that it found when it started, even if some of them have
    /// been unplugged since.
    pub fn says_more(&self, (cores, memory): (u32, i64), seen: &Resources) -> bool {
        let cpu = self.node_cpu_milli + (i64::from(cores) - i64::from(self.cores)) * 1000;
        let memory = self.node_memory + (memory - self.memory);
        seen.cpu_milli > cpu || seen.memory - memory >= NO_MORE
    }
}

/// Differences in memory below this many bytes are ignored, because the kernel reserves a slightly different
/// amount at each start.
pub const NO_MORE: i64 = 64 << 20;

/// Returns how many of these hot-plugged bytes the guest can use. The guest's kernel reserves the rest for
/// itself.
pub fn guest_sees(bytes: i64) -> i64 {
    bytes - bytes / 50
}

/// A storage, as one host sees it. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Storage {
    /// Its size.
    pub total: i64,
    /// What is used.
    pub used: i64,
    /// Whether every host sees the same storage.
    #[serde(default)]
    pub shared: bool,
}

/// A Proxmox host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Its name.
    pub name: HostKey,
    /// Whether the host is up and part of the cluster.
    pub online: bool,
    /// Whether the host is in HA maintenance mode.
    #[serde(default)]
    pub maintenance: bool,
    /// The number of the host's CPU threads.
    pub cores: u32,
    /// The host's memory, in bytes.
    pub memory: i64,
    /// The memory in use, in bytes, as Proxmox VE reports it.
    pub memory_used: i64,
    /// The vCPUs of all running VMs and containers on the host, including managed machines, if known.
    #[serde(default)]
    pub cores_assigned: u32,
    /// The memory assigned to all running guests on the host, including managed machines, in bytes, if known.
    #[serde(default)]
    pub memory_assigned: i64,
    /// Its storages.
    #[serde(default)]
    pub storage: BTreeMap<String, Storage>,
    /// The host's PCI devices, if a pool passes any to its machines.
    #[serde(default, skip_serializing_if = "HostPci::is_empty")]
    pub pci: HostPci,
}

/// What the daemon intends to do with a machine, according to its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Intent {
    /// The machine is being created, or is in service.
    Create,
    /// The machine is being removed.
    Retire {
        /// The reason as text, for logs and events.
        reason: String,
        /// The time at which the removal began.
        since: Timestamp,
    },
    /// The machine's creation failed, and everything that was created for the machine is being removed.
    Discard {
        /// What failed.
        reason: String,
        /// The time at which the removal began.
        since: Timestamp,
    },
}

/// The record of a machine. It is stored in Kubernetes before the first call to Proxmox VE, and dropped last.
///
/// The record contains everything that was assigned to the machine, so that later changes to the
/// configuration do not affect the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The unique id of the machine (a random UUID), which is part of the VM's mark.
    pub id: MachineId,
    /// Its pool.
    pub pool: PoolName,
    /// The name of the VM, the guest and the Node.
    pub name: String,
    /// Its slot.
    pub slot: Slot,
    /// The region of the VM's Proxmox VE cluster. `None` if the VM is in the `[proxmox]` cluster, and that
    /// cluster had no region name when the machine was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The Proxmox VE host that the machine is on.
    pub host: String,
    /// Hosts that the VM was on before it was moved. Files that do not move with a VM might remain on these
    /// hosts.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left_hosts: BTreeSet<String>,
    /// The VMID of the template. `None` if the machine has no template.
    #[serde(default, with = "machine_kind::template")]
    pub template: Option<Vmid>,
    /// The host that holds the template. If there is no template, the machine's own host.
    pub template_host: String,
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
    /// What the daemon intends to do with the machine.
    pub intent: Intent,
    /// The time at which the machine was requested.
    pub created: Timestamp,
    /// The UPID of the Proxmox VE task in progress, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The SMBIOS UUID of the VM, once known. It equals the Node's `systemUUID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<String>,
    /// The id (not the secret) of the bootstrap token that was created for the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// The ids of bootstrap tokens that an earlier run of the daemon created for the machine. The guest might
    /// still be joining with one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub old_token_ids: Vec<String>,
    /// The uid of the Node that the machine became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// Whether the daemon cordoned the Node. The daemon uncordons the Node only if it cordoned the Node
    /// itself.
    #[serde(default)]
    pub cordoned: bool,
    /// The time at which the daemon first saw that the bare-metal machine was off, unless the daemon itself
    /// was switching it on. Cleared once the machine is on and its Node is ready. If the machine is on while
    /// this time is set, but its Node is not ready, another client switched the machine on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_off: Option<Timestamp>,
    /// Whether a clone was requested whose outcome is unknown. A VM with this VMID might belong to this
    /// machine, even if Proxmox VE does not show the VM yet.
    #[serde(default)]
    pub clone_in_doubt: bool,
    /// Whether the daemon has requested the VM's destruction, or is about to request it. Remains of the VM
    /// might exist even if Proxmox VE does not show them.
    #[serde(default)]
    pub destroy_asked: bool,
    /// The names of the storages that might still hold disks of the VM, even if the disks are no longer
    /// visible.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub storages: BTreeSet<String>,
    /// The time at which the machine entered each phase.
    #[serde(default)]
    pub entered: BTreeMap<Phase, Timestamp>,
    /// The time at which the daemon saw that the VM and the Node were gone. From then on, the record is kept
    /// only because of what they left behind. This time is not stored in `entered`, because earlier releases
    /// could not read such a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_gone: Option<Timestamp>,
    /// The pods that the machine was created for, as `namespace/name`, in the order of the plan.
    #[serde(default)]
    pub pods: Vec<String>,
    /// How the machine is kept warm until it is asked to join. `None` if it is to become a node right away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmState>,
    /// The time at which a warm machine was asked to join. The machine's time limits begin at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// How the machine was kept warm before it was asked to join. `None` if it was not kept warm, or if an
    /// earlier release wrote the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<WarmState>,
    /// The progress of assigning dedicated CPUs. `None` if the machine gets no dedicated CPUs, or has not
    /// reached this step yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
    /// The machine's size before it began to grow. Set while the running machine is being given more vCPUs or
    /// memory. In the meantime, `cores` and `memory` contain the new size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growing>,
    /// The back-off after a failed attempt to grow the machine. There is no new attempt until this back-off
    /// ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_backoff: Option<Backoff>,
    /// Whether the daemon adds no further CPUs to the machine, because its Node did not report CPUs that were
    /// hot-plugged earlier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_cpus: bool,
    /// Whether the daemon adds no further memory to the machine, because its Node did not report memory that
    /// was hot-plugged earlier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_memory: bool,
    /// The settings and the `template` that the machine was created from (`settings::Pool::made_of`). Empty
    /// in a record of an earlier release.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub made_of: BTreeMap<String, String>,
}

impl Record {
    /// Creates the record of a machine that was just requested. At this time, only the machine's id, pool,
    /// name, slot and host are known.
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

    /// An example record that tests can modify.
    pub fn example() -> Self {
        let (pool, name, host) = ("workers".to_owned(), "workers-a1".to_owned(), "pve1".to_owned());
        let slot = Slot { vmid: Vmid(9101), ..Slot::default() };
        let record = Self::new("m1".into(), pool.into(), name, slot, host, Timestamp::UNIX_EPOCH);
        Self { template: Some(Vmid(9000)), cores: 2, memory: 4 << 30, entered: BTreeMap::new(), ..record }
    }

    /// Whether the machine is a bare-metal machine, which is switched on and off instead of created and
    /// destroyed.
    pub fn is_physical(&self) -> bool {
        self.slot.is_physical()
    }

    /// What the machine is created from.
    pub fn kind(&self) -> MachineKind {
        match self.template {
            _ if self.is_physical() => MachineKind::BareMetal,
            Some(template) => MachineKind::Clone(template),
            None => MachineKind::Blank,
        }
    }

    /// Returns the phase in which the daemon continues after it has read the record.
    pub fn phase(&self) -> Phase {
        match self.intent {
            Intent::Create => Phase::Requested,
            Intent::Retire { .. } | Intent::Discard { .. } if self.vm_gone.is_some() => Phase::Clearing,
            Intent::Retire { .. } => Phase::Draining,
            Intent::Discard { .. } => Phase::Failed,
        }
    }

    /// Whether the machine was given up before it became a node. Removing such a machine does not reduce the
    /// number of nodes in the pool.
    pub fn was_never_a_node(&self) -> bool {
        matches!(self.intent, Intent::Discard { .. }) && self.node_uid.is_none()
    }

    /// Updates the host after the VM was moved.
    pub fn follow(&mut self, host: String) {
        let left = std::mem::replace(&mut self.host, host);
        self.left_hosts.insert(left);
        self.left_hosts.remove(&self.host);
    }

    /// Returns the time at which the daemon began to turn the machine into a node. Time before the machine's
    /// creation starts, such as a pause or the wait for other clones, does not count.
    pub fn wanted_since(&self) -> Timestamp {
        self.entered.get(&Phase::Requested).copied().or(self.asked).unwrap_or(self.created)
    }

    /// The ids of all bootstrap tokens that were created for the machine and may still exist.
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
