//! A checked pool, as the rest of the program uses it, and values that are derived from its settings.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{
    Addressing, Boot, CloneKind, CloudInit, Device, DiskSize, ExtraDisk, Family, Grow, KubeletSettings, Pci,
    PhysicalMachine, Pinning, Placement, Room, Schedule, Security, Size, TemplateRef, Warm, ZoneLabels,
    declared_devices, fingerprint, labels, pci, slots,
};
use crate::bootstrap::Bootstrap;
use model::devices::ResourceSlice;
use model::machine::Slot;
use model::node::Taint;
use model::passing::TaintDomain;
use model::resources::Resources;
use model::selector::Labels;
use model::{HostKey, PoolName, Vmid};

/// A checked `[[pool]]`.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The pool's name, which is the first part of its machines' names.
    pub name: PoolName,
    /// The pool's region; `None` if the only cluster has no name.
    pub region: Option<String>,
    /// The region prefix in the keys of the pool's hosts ([`model::HostKey`]); empty for the cluster in
    /// `[proxmox]`.
    pub prefix: String,
    /// Minimum number of nodes.
    pub min: u32,
    /// Maximum number of machines.
    pub max: u32,
    /// Maximum total number of vCPUs of the pool's machines.
    pub max_cores: Option<u32>,
    /// Maximum total memory of the pool's machines, in bytes.
    pub max_memory: Option<i64>,
    /// CPU and memory that stay free on the pool's nodes after a removal.
    pub headroom: Room,
    /// vCPUs of a machine.
    pub cores: u32,
    /// Memory of a machine in bytes.
    pub memory: i64,
    /// All sizes that a machine may have, smallest first, including the one set by `cores` and `memory`.
    pub sizes: Vec<Size>,
    /// What the pool's machines boot from.
    pub boot: Boot,
    /// The template that machines are cloned from; `None` if they boot from the network or are bare metal.
    /// Plans do not require a template.
    pub template: Option<TemplateRef>,
    /// How the template is cloned.
    pub clone: CloneKind,
    /// The storages for full clones, and for disks of machines without a template; empty: the template's
    /// storage.
    pub storages: Vec<String>,
    /// Bytes that stay free on each storage that the pool names.
    pub storage_reserve: i64,
    /// Disks that a machine has in addition to those of its template.
    pub extra_disks: Vec<ExtraDisk>,
    /// Additional options of the pool's VMs.
    pub vm_options: BTreeMap<String, String>,
    /// The VMIDs of the pool's machines, in order; empty only for plans and bare-metal machines.
    pub vmids: Vec<RangeInclusive<u32>>,
    /// How addresses are assigned to the pool's machines.
    pub addressing: Addressing,
    /// The size of a machine's disk. A clone's disk is grown to this size, and a machine without a template
    /// is created with a disk of this size. `None`: the template's size, or no disk.
    pub disk: Option<DiskSize>,
    /// The network devices of a machine, by number. `addressing` contains the IPv4 addresses of the first
    /// device, or its IPv6 addresses if it has no IPv4 ones.
    pub devices: Vec<Device>,
    /// PCI devices that each machine receives from its host.
    pub pci: Vec<Pci>,
    /// The declared ResourceSlices that drivers publish for each node. [`Pool::slices_for`] fills in the
    /// node's name.
    pub resource_slices: Vec<ResourceSlice>,
    /// The user that cloud-init creates; `None`: the template's user.
    pub user: Option<String>,
    /// Public SSH keys that may log in as `user`.
    pub ssh_keys: Vec<String>,
    /// Tags of the pool's VMs.
    pub tags: Vec<String>,
    /// Labels of the pool's nodes. They may contain variables, which [`Pool::labels_for`] fills in.
    pub labels: Labels,
    /// Taints of the pool's nodes.
    pub taints: Vec<Taint>,
    /// Taints that the pool's nodes start with. Another component removes them once a node is set up.
    pub startup_taints: Vec<Taint>,
    /// Domains of taint keys. A taint in one of these domains also counts as a startup taint, whichever
    /// component sets it.
    pub startup_taint_domains: Vec<TaintDomain>,
    /// Maximum number of pods on a node; `None`: the kubelet's default.
    pub max_pods: Option<u32>,
    /// Additional kubelet arguments, without dashes.
    pub kubelet_args: BTreeMap<String, String>,
    /// Kubelet configuration fields that override the cluster's configuration.
    pub kubelet: KubeletSettings,
    /// Annotations of the pool's nodes. They may contain variables, which [`Pool::annotations_for`] fills in.
    pub annotations: Labels,
    /// `spec.providerID` of the pool's nodes. It contains variables, which [`Pool::provider_id_for`] fills
    /// in.
    pub provider_id: Option<String>,
    /// The allocatable resources of a fresh node; `None`: they are taken from an existing ready node, or else
    /// computed from the machine's size.
    pub allocatable: Option<Resources>,
    /// How many volumes a fresh node can attach, by CSI driver. For other drivers, the number is read from
    /// existing nodes.
    pub csi_volumes: BTreeMap<String, i64>,
    /// The rank for the `priority` expander. The pool with the highest rank grows first.
    pub priority: i32,
    /// The hosts that may run the pool's machines; empty: all hosts of the pool's region.
    pub hosts: Vec<HostKey>,
    /// Maximum number of vCPUs for each CPU thread of a host.
    pub cpu_overcommit: f64,
    /// Maximum memory of a host's running guests, as a fraction of the host's memory.
    pub memory_overcommit: f64,
    /// Memory in bytes that stays free on each host.
    pub memory_reserve: i64,
    /// Which host is chosen for the next machine, if several have room.
    pub placement: Placement,
    /// Whether labels with `{{ host }}` or `{{ zone }}` use the original or the current host of a VM that was
    /// moved to another host.
    pub zone_labels: ZoneLabels,
    /// The zones of the hosts in the pool's region, by the hosts' names in Proxmox VE. Hosts without a zone
    /// are left out.
    pub zones: BTreeMap<String, String>,
    /// Maximum number of the pool's machines on one host.
    pub max_per_host: Option<u32>,
    /// Time limit for evicting the pods of one node; `None`: `drain` in `[limits]` applies.
    pub drain: Option<Duration>,
    /// The maximum age of a node. Older nodes are replaced; `None`: nodes have no maximum age.
    pub max_node_age: Option<Duration>,
    /// Higher minimum numbers of nodes at certain times.
    pub schedule: Vec<Schedule>,
    /// Machines that are created ahead of demand.
    pub warm: Warm,
    /// How a host's CPUs and memory are dedicated to a machine; `None`: machines run on any CPU.
    pub pinning: Option<Pinning>,
    /// How far a running machine may grow; `None`: not at all.
    pub grow: Option<Grow>,
    /// The settings of Proxmox VE's firewall for the pool's machines; `None`: unchanged from the template.
    pub security: Option<Security>,
    /// How a machine receives its configuration at its first boot.
    pub cloud_init: CloudInit,
    /// How the pool's machines become nodes; `None`: the `[bootstrap]` for all pools applies.
    pub bootstrap: Option<Bootstrap>,
    /// Bare-metal machines, which are switched on and off; empty: the pool creates VMs.
    pub machines: Vec<PhysicalMachine>,
}

impl Pool {
    /// Whether the pool's machines are bare metal.
    pub fn is_physical(&self) -> bool {
        !self.machines.is_empty()
    }

    /// Returns the bare-metal machine with this name.
    pub fn physical(&self, name: &str) -> Option<&PhysicalMachine> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// Returns the pool's slots, in the order of the file. The n-th slot has the n-th VMID and the n-th
    /// address of each list. In a bare-metal pool, each machine is a slot.
    pub fn slots(&self) -> Vec<Slot> {
        if self.is_physical() {
            return self.machines.iter().map(PhysicalMachine::slot).collect();
        }
        let vmids = self.vmids.iter().flat_map(Clone::clone).map(Vmid);
        let mut slots: Vec<Slot> = match &self.addressing {
            Addressing::Dhcp => vmids.map(|vmid| Slot { vmid, ..Slot::default() }).collect(),
            Addressing::Static { ranges, .. } => {
                let numbers = |(first, last): &(IpAddr, IpAddr)| slots::number(*first)..=slots::number(*last);
                let addresses = ranges.iter().flat_map(numbers).map(slots::back);
                let slot = |(vmid, address)| Slot { vmid, address: Some(address), ..Slot::default() };
                vmids.zip(addresses).map(slot).collect()
            }
        };
        for (number, device) in self.devices.iter().enumerate() {
            for (family, key) in [(&device.four, "ip"), (&device.six, "ip6")] {
                for (slot, address) in slots.iter_mut().zip(family.addresses()) {
                    slot.further.insert(format!("net{number}/{key}"), address);
                }
            }
        }
        slots
    }

    /// Returns the VM options for a machine's PCI devices, by key (`hostpci0` and so on).
    pub fn hostpci(&self) -> BTreeMap<String, String> {
        pci::numbered(&self.pci)
    }

    /// Returns the declared ResourceSlices of a node.
    pub fn slices_for(&self, node: &str) -> Vec<ResourceSlice> {
        self.resource_slices.iter().map(|slice| declared_devices::of_node(slice, node)).collect()
    }

    /// Returns a fingerprint of the declared devices and of the PCI devices; empty if no devices are
    /// declared.
    pub fn declares(&self) -> String {
        if self.resource_slices.is_empty() {
            return String::new();
        }
        let slices = serde_json::to_string(&self.resource_slices).unwrap_or_default();
        fingerprint::digest(&[slices, pci::devices_text(&self.pci)])
    }

    /// Returns the labels of a machine's Node.
    pub fn labels_for(&self, host: &str, name: &str, vmid: Vmid) -> Labels {
        self.filled(self.of_machine(host, name, vmid))
    }

    /// Like [`Self::labels_for`], but only returns the labels that contain the machine's host or zone.
    pub fn labels_of_place(&self, host: &str, name: &str, vmid: Vmid) -> Labels {
        let of = self.of_machine(host, name, vmid);
        let told = self.labels.iter().filter(|(_, value)| labels::uses(value, &["host", "zone"]));
        told.map(|(key, value)| (key.clone(), labels::fill(value, &of))).collect()
    }

    /// Returns the annotations of a machine's Node.
    pub fn annotations_for(&self, host: &str, name: &str, vmid: Vmid) -> Labels {
        let of = self.of_machine(host, name, vmid);
        self.annotations.iter().map(|(key, value)| (key.clone(), labels::fill(value, &of))).collect()
    }

    /// Returns `spec.providerID` of a machine's Node.
    pub fn provider_id_for(&self, host: &str, name: &str, vmid: Vmid) -> Option<String> {
        Some(labels::fill(self.provider_id.as_ref()?, &self.of_machine(host, name, vmid)))
    }

    fn of_machine(&self, host: &str, name: &str, vmid: Vmid) -> BTreeMap<&'static str, String> {
        let more = [("pool", self.name.to_string()), ("name", name.into()), ("vmid", vmid.to_string())];
        self.of_host(host).into_iter().chain(more).collect()
    }

    /// Returns the pool's labels with only host, zone, region and pool filled in. These variables are known
    /// before a machine has a slot.
    pub fn labels_on(&self, host: &str) -> Labels {
        self.filled(self.of_host(host).into_iter().chain([("pool", self.name.to_string())]).collect())
    }

    /// Returns the pool's labels with only region and pool filled in. These variables have the same value for
    /// all of the pool's machines.
    pub fn labels_anywhere(&self) -> Labels {
        let region = self.region.clone().unwrap_or_default();
        self.filled(BTreeMap::from([("region", region), ("pool", self.name.to_string())]))
    }

    /// Whether the daemon must give guests an address, a user or SSH keys. A guest does not need its name
    /// from the daemon, because the daemon recognizes a Node by its `systemUUID`.
    pub fn tells_guests(&self) -> bool {
        self.gives_addresses() || self.user.is_some() || !self.ssh_keys.is_empty()
    }

    /// Whether machines get addresses from their slots.
    pub fn gives_addresses(&self) -> bool {
        let told = |family: &Family| matches!(family, Family::Static { .. });
        self.addressing != Addressing::Dhcp
            || self.devices.iter().any(|device| told(&device.four) || told(&device.six))
    }

    /// Whether the pool's labels differ between hosts.
    pub fn tells_hosts(&self) -> bool {
        self.labels.values().any(|value| labels::uses(value, &["host", "zone"]))
    }

    /// Whether the pool's labels use `region` or `pool`, the variables that have the same value for all of
    /// the pool's machines.
    pub fn labels_vary(&self) -> bool {
        self.labels.values().any(|value| labels::uses(value, &["region", "pool"]))
    }

    /// Returns the variables `host`, `zone` and `region`. `host` may be a name in Proxmox VE or a
    /// [`HostKey`].
    fn of_host(&self, host: &str) -> [(&'static str, String); 3] {
        let (_, host) = HostKey::split(host);
        let zone = self.zones.get(host).map_or(host, String::as_str);
        let region = self.region.clone().unwrap_or_default();
        [("host", host.to_owned()), ("zone", zone.to_owned()), ("region", region)]
    }

    fn filled(&self, of: BTreeMap<&str, String>) -> Labels {
        self.labels.iter().map(|(key, value)| (key.clone(), labels::fill(value, &of))).collect()
    }
}
