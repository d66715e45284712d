//! Machines (a VM of a pool, or a bare-metal machine, from its request to its removal), and the hosts that
//! run VMs.

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

/// A stage in the life of a machine, derived from its record and from the state of its VM and Node. Phases
/// are ordered as listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The record is written; nothing has been requested from Proxmox VE yet.
    #[default]
    Requested,
    /// The VM is being cloned.
    Cloning,
    /// The clone exists; its configuration and disk size are being set.
    Configuring,
    /// It is kept ahead of demand ([`Machine::warm`]) until it is asked to join.
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
    /// Its VM is gone; what the VM left behind is being removed.
    Clearing,
    /// Nothing of it is left.
    Gone,
    /// It failed and is being removed.
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
    /// Whether the machine no longer exists, except for what its VM may have left behind.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Clearing | Self::Gone)
    }
}

/// How a machine is kept ahead of demand until it is asked to join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WarmState {
    /// Cloned and configured, but never started: it takes only disk space.
    #[default]
    Stopped,
    /// Started, with systemd up but not joined: it takes memory and cores too.
    Booted,
    /// Booted, then suspended to disk: it takes disk space for its saved memory, but no memory.
    Suspended,
}

impl WarmState {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Booted => "booted",
            Self::Suspended => "suspended",
        }
    }

    /// Whether QEMU runs while the machine waits, so that it occupies its host's memory and cores.
    pub fn runs(self) -> bool {
        self == Self::Booted
    }

    /// How much disk space a waiting machine with this many bytes of memory takes in addition to its disks.
    /// Proxmox VE allocates twice the memory, and 500 MiB for devices (`__snapshot_save_vmstate` of
    /// qemu-server's `QemuConfig`).
    pub fn state_bytes(self, memory: i64) -> i64 {
        if self == Self::Suspended { memory.saturating_mul(2).saturating_add(500 << 20) } else { 0 }
    }
}

/// Whether a machine that is to have dedicated CPUs has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinned {
    /// The helper on the machine's host has yet to assign the CPUs.
    Awaited,
    /// The CPUs are assigned.
    Done,
}

/// Key in `made_of`: which of the pool's storages holds the machine's clone.
pub const STORED_ON: &str = "stored_on";

/// A VMID and the addresses that go with it; or a bare-metal machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// The VMID; for a bare-metal machine, its number ([`Vmid::of_bare_metal`]).
    pub vmid: Vmid,
    /// The bare-metal machine, by its name; `None`: a VM is created.
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
    /// Whether it is a bare-metal machine, which is switched on and off instead of created and destroyed.
    pub fn is_physical(&self) -> bool {
        self.machine.is_some()
    }

    /// All its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.address.into_iter().chain(self.further.values().copied())
    }

    /// The addresses of its first network device for the kubelet's `--node-ip`; `None` if its main address is
    /// not static, or is its only one. The kubelet uses two address families only if it gets an address of
    /// each.
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
    /// Its name, which is also that of the VM, the guest and the Node.
    pub name: String,
    /// Its pool.
    pub pool: PoolName,
    /// Its VMID.
    pub vmid: Vmid,
    /// The Proxmox host it is on.
    pub host: HostKey,
    /// Another host on which Proxmox VE last showed it: an administrator has moved it, and the record was
    /// updated only afterwards, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_on: Option<HostKey>,
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
    /// The stage of its life.
    pub phase: Phase,
    /// It has just written disks or memory to storages, whose reported usage might not include them yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub just_stored: bool,
    /// When it entered this phase.
    pub since: Option<Timestamp>,
    /// When it started on its way to becoming a node ([`Record::wanted_since`]), if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<Timestamp>,
    /// The Node, once it has registered.
    pub node: Option<String>,
    /// Pods that it was created for, `namespace/name`.
    #[serde(default)]
    pub pods: Vec<String>,
    /// How it is kept, or will be kept, until it is asked to join; `None`: it is to become a node right away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmState>,
    /// Set while the running machine is being given more vCPUs or memory: what it had before. `cores` and
    /// `memory` are what it is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growing>,
    /// Its growth has failed, and is not tried again until this back-off ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_backoff: Option<Backoff>,
    /// Its Node did not report CPUs that were hot-plugged, so it gets no more CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_cpus: bool,
    /// Its Node did not report memory that was hot-plugged, so it gets no more memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_memory: bool,
    /// The settings and the `template` that it was created from (`settings::Pool::made_of`); empty: not
    /// known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub made_of: BTreeMap<String, String>,
}

impl Machine {
    /// When it started on its way to becoming a node. If that is not known: when it entered its phase.
    pub fn wanted_since(&self) -> Option<Timestamp> {
        self.requested.or(self.since)
    }

    /// The hosts whose room it takes: its own, and any other on which Proxmox VE shows it.
    pub fn hosts(&self) -> impl Iterator<Item = &HostKey> {
        std::iter::once(&self.host).chain(&self.seen_on)
    }
}

/// A running machine that is being given more vCPUs or memory: what it had before, and what its Node reported
/// then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Growing {
    /// vCPUs before.
    pub cores: u32,
    /// Memory before, in bytes.
    pub memory: i64,
    /// CPUs that the Node reported before, in thousandths.
    pub node_cpu_milli: i64,
    /// Memory that the Node reported before, in bytes.
    pub node_memory: i64,
    /// When the growth began.
    pub since: Timestamp,
    /// Why the growth was given up. What was plugged, but is not reported by the Node, is then unplugged
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Growing {
    /// How much CPU (in thousandths) and memory (in bytes) a Node with this capacity has yet to report once
    /// the machine has grown to this size.
    pub fn missing(&self, (cores, memory): (u32, i64), seen: &Resources) -> (i64, i64) {
        let cpu = self.node_cpu_milli + (i64::from(cores) - i64::from(self.cores)) * 1000;
        let memory = self.node_memory + guest_sees(memory - self.memory);
        ((cpu - seen.cpu_milli).max(0), (memory - seen.memory).max(0))
    }

    /// Whether a Node with this capacity reports more than a machine of this size has. A kubelet keeps
    /// reporting what it found when it started, even after something was unplugged.
    pub fn says_more(&self, (cores, memory): (u32, i64), seen: &Resources) -> bool {
        let cpu = self.node_cpu_milli + (i64::from(cores) - i64::from(self.cores)) * 1000;
        let memory = self.node_memory + (memory - self.memory);
        seen.cpu_milli > cpu || seen.memory - memory >= NO_MORE
    }
}

/// Smaller differences in memory (in bytes) are ignored: kernels reserve a little more or less at each start.
pub const NO_MORE: i64 = 64 << 20;

/// How many of these plugged bytes a guest can use: its kernel reserves a part for itself.
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
    /// Whether it is up and part of the cluster.
    pub online: bool,
    /// Whether it is in (HA) maintenance.
    #[serde(default)]
    pub maintenance: bool,
    /// The number of its CPU threads.
    pub cores: u32,
    /// Its memory in bytes.
    pub memory: i64,
    /// Memory in use in bytes, as Proxmox VE reports it.
    pub memory_used: i64,
    /// vCPUs of the running VMs and containers on it, including managed machines, if known.
    #[serde(default)]
    pub cores_assigned: u32,
    /// Memory in bytes assigned to running guests, including managed machines, if known.
    #[serde(default)]
    pub memory_assigned: i64,
    /// Its storages.
    #[serde(default)]
    pub storage: BTreeMap<String, Storage>,
    /// Its PCI devices, if a pool passes any to its machines.
    #[serde(default, skip_serializing_if = "HostPci::is_empty")]
    pub pci: HostPci,
}

/// What is intended for a machine, according to its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Intent {
    /// It is being created, or is in service.
    Create,
    /// It is being removed, for this reason.
    Retire {
        /// In words, for logs and events.
        reason: String,
        /// When its removal began.
        since: Timestamp,
    },
    /// Its creation failed, and what exists of it is being removed.
    Discard {
        /// What failed.
        reason: String,
        /// When its removal began.
        since: Timestamp,
    },
}

/// The record of a machine. It is stored in Kubernetes before the first call to Proxmox VE, and dropped last.
///
/// It contains everything that was assigned to the machine, so that later changes of the configuration do not
/// affect the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Unique id of the machine (a random UUID), part of the VM's mark.
    pub id: MachineId,
    /// Its pool.
    pub pool: PoolName,
    /// Name of VM, guest and Node.
    pub name: String,
    /// Its slot.
    pub slot: Slot,
    /// The region whose cluster has its VM; `None`: the cluster in `[proxmox]`, which had no region name when
    /// the machine was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The Proxmox VE host that it was placed on.
    pub host: String,
    /// Hosts that its VM was on before it was moved. Files that do not move with a VM might still be there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left_hosts: BTreeSet<String>,
    /// VMID of the template; `None`: it has no template.
    #[serde(default, with = "machine_kind::template")]
    pub template: Option<Vmid>,
    /// The host that holds the template; if there is no template, the machine's own host.
    pub template_host: String,
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
    /// What is intended for it.
    pub intent: Intent,
    /// When it was requested.
    pub created: Timestamp,
    /// UPID of the Proxmox VE task in progress, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The VM's SMBIOS uuid, once known. It equals the Node's `systemUUID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<String>,
    /// Id (not the secret) of the bootstrap token created for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// Ids of tokens that an earlier run of the daemon created for it: a join with one of them may be in
    /// progress in the guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub old_token_ids: Vec<String>,
    /// uid of the Node that it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<String>,
    /// The daemon cordoned the Node, so it may uncordon it.
    #[serde(default)]
    pub cordoned: bool,
    /// When a bare-metal machine that was not being switched on was seen to be off; `None` again once it
    /// is on and its Node is ready. If it is on but its Node does not report, another client has switched it
    /// on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_off: Option<Timestamp>,
    /// A clone was requested, and its outcome is not known: a VM with this VMID that is not visible now might
    /// belong to this machine.
    #[serde(default)]
    pub clone_in_doubt: bool,
    /// The destruction of its VM was requested, or is about to be: remains of the VM might exist even if they
    /// are not visible now.
    #[serde(default)]
    pub destroy_asked: bool,
    /// Names of the storages that might still hold disks of its VM, even if the disks are no longer visible
    /// there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub storages: BTreeSet<String>,
    /// When it entered each phase.
    #[serde(default)]
    pub entered: BTreeMap<Phase, Timestamp>,
    /// When its VM and its Node were seen to be gone. The record is kept only because of what they left
    /// behind. This time is not an entry of `entered`, because an earlier release could not read such a
    /// record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_gone: Option<Timestamp>,
    /// Pods that it was created for, `namespace/name`, in the order of the plan.
    #[serde(default)]
    pub pods: Vec<String>,
    /// How it is kept until it is asked to join; `None`: it is to become a node right away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmState>,
    /// When a machine that was kept warm was asked to join. Its time limits count from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// How it was kept before it was asked to join; `None`: it was not kept, or an earlier release wrote the
    /// record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<WarmState>,
    /// The progress of its dedicated CPUs; `None`: it gets none, or has not reached this step yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
    /// Set while the running machine is being given more vCPUs or memory: what it had before. `cores` and
    /// `memory` are what it is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growing>,
    /// Its growth has failed, and is not tried again until this back-off ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_backoff: Option<Backoff>,
    /// Its Node did not report CPUs that were hot-plugged, so it gets no more CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_cpus: bool,
    /// Its Node did not report memory that was hot-plugged, so it gets no more memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_memory: bool,
    /// The settings and the `template` that it was created from (`settings::Pool::made_of`). Empty in a
    /// record of an earlier release.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub made_of: BTreeMap<String, String>,
}

impl Record {
    /// The record of a machine that was just requested: only its name and its place are known.
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

    /// The record of a machine that was just requested, for tests to change.
    pub fn example() -> Self {
        let (pool, name, host) = ("workers".to_owned(), "workers-a1".to_owned(), "pve1".to_owned());
        let slot = Slot { vmid: Vmid(9101), ..Slot::default() };
        let record = Self::new("m1".into(), pool.into(), name, slot, host, Timestamp::UNIX_EPOCH);
        Self { template: Some(Vmid(9000)), cores: 2, memory: 4 << 30, entered: BTreeMap::new(), ..record }
    }

    /// Whether it is a bare-metal machine, which is switched on and off instead of created and destroyed.
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

    /// The phase from which a daemon that has just read the record continues.
    pub fn phase(&self) -> Phase {
        match self.intent {
            Intent::Create => Phase::Requested,
            Intent::Retire { .. } | Intent::Discard { .. } if self.vm_gone.is_some() => Phase::Clearing,
            Intent::Retire { .. } => Phase::Draining,
            Intent::Discard { .. } => Phase::Failed,
        }
    }

    /// Whether it was given up before it became a node, so that its removal costs its pool no node.
    pub fn was_never_a_node(&self) -> bool {
        matches!(self.intent, Intent::Discard { .. }) && self.node_uid.is_none()
    }

    /// Updates the host after its VM was moved.
    pub fn follow(&mut self, host: String) {
        let left = std::mem::replace(&mut self.host, host);
        self.left_hosts.insert(left);
        self.left_hosts.remove(&self.host);
    }

    /// When it started on its way to becoming a node. The time before its creation starts does not count,
    /// such as a pause or the wait for its turn among clones.
    pub fn wanted_since(&self) -> Timestamp {
        self.entered.get(&Phase::Requested).copied().or(self.asked).unwrap_or(self.created)
    }

    /// Ids of all tokens that were created for it and may still exist.
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
