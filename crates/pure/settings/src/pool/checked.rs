//! A checked pool, as the rest of the program uses it, and what follows from its settings.

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
    /// Its name, the first part of its machines' names.
    pub name: PoolName,
    /// The region that it is in; `None` if the only cluster has no name.
    pub region: Option<String>,
    /// The region part of its hosts' [`model::HostKey`]; empty for the cluster in `[proxmox]`.
    pub prefix: String,
    /// Minimum number of nodes.
    pub min: u32,
    /// Maximum number of machines.
    pub max: u32,
    /// Maximum vCPUs of all its machines together.
    pub max_cores: Option<u32>,
    /// Maximum memory of all its machines together, in bytes.
    pub max_memory: Option<i64>,
    /// Room that stays free on its nodes after a removal.
    pub headroom: Room,
    /// vCPUs of a machine.
    pub cores: u32,
    /// Memory of a machine in bytes.
    pub memory: i64,
    /// All sizes that a machine may have, smallest first; `cores` and `memory` are one of them.
    pub sizes: Vec<Size>,
    /// What its machines start from.
    pub boot: Boot,
    /// The template that its machines are clones of; `None` if they boot from the network or are bare metal,
    /// and for plans.
    pub template: Option<TemplateRef>,
    /// How the template is cloned.
    pub clone: CloneKind,
    /// The storages that a full clone, or the disk of a machine without a template, may be on; empty: the
    /// template's.
    pub storages: Vec<String>,
    /// Bytes that stay free on each storage that the pool names.
    pub storage_reserve: i64,
    /// Disks that the template does not have.
    pub extra_disks: Vec<ExtraDisk>,
    /// Further options of its VMs.
    pub vm_options: BTreeMap<String, String>,
    /// VMIDs of its machines in their order; empty only for plans and bare-metal machines.
    pub vmids: Vec<RangeInclusive<u32>>,
    /// How its machines get their addresses.
    pub addressing: Addressing,
    /// The size that a disk is grown to or, without a template, created with; `None`: the template's size, or
    /// no disk.
    pub disk: Option<DiskSize>,
    /// Its network devices, by number. The addresses in `addressing` are the first device's: IPv4, or IPv6 if
    /// it has no IPv4 ones.
    pub devices: Vec<Device>,
    /// PCI devices that each of its machines gets from its host.
    pub pci: Vec<Pci>,
    /// ResourceSlices that drivers publish for each of its nodes, as they are declared; [`Pool::slices_for`]
    /// fills in the node.
    pub resource_slices: Vec<ResourceSlice>,
    /// The user that cloud-init creates; `None`: the template's.
    pub user: Option<String>,
    /// Public keys that may log in as this user.
    pub ssh_keys: Vec<String>,
    /// Tags of its VMs.
    pub tags: Vec<String>,
    /// Labels of its nodes as they are written; [`Pool::labels_for`] fills their variables in.
    pub labels: Labels,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// Taints that its nodes start with, and that another component removes once the nodes are set up.
    pub startup_taints: Vec<Taint>,
    /// Domains whose taints are temporary too, whichever component sets them.
    pub startup_taint_domains: Vec<TaintDomain>,
    /// Maximum number of pods on a node; `None`: the kubelet's default.
    pub max_pods: Option<u32>,
    /// Additional kubelet arguments, without dashes.
    pub kubelet_args: BTreeMap<String, String>,
    /// Fields of the kubelet's configuration that differ from the cluster's.
    pub kubelet: KubeletSettings,
    /// Annotations of its nodes as they are written; [`Pool::annotations_for`] fills their variables in.
    pub annotations: Labels,
    /// `spec.providerID` of its nodes as it is written; [`Pool::provider_id_for`] fills its variables in.
    pub provider_id: Option<String>,
    /// What a fresh node offers; `None`: what a ready node offers, or else computed from its size.
    pub allocatable: Option<Resources>,
    /// How many volumes of a CSI driver a fresh node can have, by driver. For other drivers, existing nodes
    /// show the number.
    pub csi_volumes: BTreeMap<String, i64>,
    /// Rank for the `priority` expander: the pool with the highest grows first.
    pub priority: i32,
    /// Hosts that may run its machines; empty: all hosts of its region.
    pub hosts: Vec<HostKey>,
    /// vCPUs that a host may be given for each of its threads.
    pub cpu_overcommit: f64,
    /// Memory that a host may promise to running guests, as a fraction of what it has.
    pub memory_overcommit: f64,
    /// Memory in bytes that stays free on each host.
    pub memory_reserve: i64,
    /// Which of the hosts with room gets the next machine.
    pub placement: Placement,
    /// Which host or zone the labels with `{{ host }}` or `{{ zone }}` show after a VM was moved.
    pub zone_labels: ZoneLabels,
    /// The zones of its region's hosts, by the hosts' names in Proxmox VE. Hosts without a zone are left out.
    pub zones: BTreeMap<String, String>,
    /// Maximum number of its machines on one host.
    pub max_per_host: Option<u32>,
    /// How long evicting the pods of one of its nodes may take; `None`: `drain` of `[limits]`.
    pub drain: Option<Duration>,
    /// A node that is older is replaced; `None`: nodes have no maximum age.
    pub max_node_age: Option<Duration>,
    /// Larger minima at certain times.
    pub schedule: Vec<Schedule>,
    /// Machines that are created ahead of demand.
    pub warm: Warm,
    /// How CPUs and memory of a host are dedicated to a machine; `None`: machines run on any CPU.
    pub pinning: Option<Pinning>,
    /// How far a running machine may grow; `None`: not at all.
    pub grow: Option<Grow>,
    /// The settings of Proxmox VE's firewall for its machines; `None`: as in the template.
    pub security: Option<Security>,
    /// How a machine gets its configuration at its first boot.
    pub cloud_init: CloudInit,
    /// How its machines become nodes; `None`: as in the `[bootstrap]` for all pools.
    pub bootstrap: Option<Bootstrap>,
    /// Bare-metal machines, which are switched on and off; empty: the pool creates VMs.
    pub machines: Vec<PhysicalMachine>,
}

impl Pool {
    /// Whether its machines are bare metal, and are switched on and off.
    pub fn is_physical(&self) -> bool {
        !self.machines.is_empty()
    }

    /// The bare-metal machine, by its name.
    pub fn physical(&self, name: &str) -> Option<&PhysicalMachine> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// Its slots: the n-th VMID with the n-th address of each list, in the order of the file; or its
    /// bare-metal machines.
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

    /// The PCI devices of its machines, as values in a VM's configuration, by key.
    pub fn hostpci(&self) -> BTreeMap<String, String> {
        pci::numbered(&self.pci)
    }

    /// The declared ResourceSlices of one of its nodes.
    pub fn slices_for(&self, node: &str) -> Vec<ResourceSlice> {
        self.resource_slices.iter().map(|slice| declared_devices::of_node(slice, node)).collect()
    }

    /// A fingerprint of its declared devices and of its PCI devices; empty if no devices are declared.
    pub fn declares(&self) -> String {
        if self.resource_slices.is_empty() {
            return String::new();
        }
        let slices = serde_json::to_string(&self.resource_slices).unwrap_or_default();
        fingerprint::digest(&[slices, pci::devices_text(&self.pci)])
    }

    /// The labels of the node that a machine becomes.
    pub fn labels_for(&self, host: &str, name: &str, vmid: Vmid) -> Labels {
        self.filled(self.of_machine(host, name, vmid))
    }

    /// Like [`Self::labels_for`], but only the labels that contain the machine's place: its host or its zone.
    pub fn labels_of_place(&self, host: &str, name: &str, vmid: Vmid) -> Labels {
        let of = self.of_machine(host, name, vmid);
        let told = self.labels.iter().filter(|(_, value)| labels::uses(value, &["host", "zone"]));
        told.map(|(key, value)| (key.clone(), labels::fill(value, &of))).collect()
    }

    /// The annotations of the node that a machine becomes.
    pub fn annotations_for(&self, host: &str, name: &str, vmid: Vmid) -> Labels {
        let of = self.of_machine(host, name, vmid);
        self.annotations.iter().map(|(key, value)| (key.clone(), labels::fill(value, &of))).collect()
    }

    /// `spec.providerID` of the node that a machine becomes.
    pub fn provider_id_for(&self, host: &str, name: &str, vmid: Vmid) -> Option<String> {
        Some(labels::fill(self.provider_id.as_ref()?, &self.of_machine(host, name, vmid)))
    }

    fn of_machine(&self, host: &str, name: &str, vmid: Vmid) -> BTreeMap<&'static str, String> {
        let more = [("pool", self.name.to_string()), ("name", name.into()), ("vmid", vmid.to_string())];
        self.of_host(host).into_iter().chain(more).collect()
    }

    /// Its labels, filled in with what is known before a machine has a slot: host, zone, region and pool.
    pub fn labels_on(&self, host: &str) -> Labels {
        self.filled(self.of_host(host).into_iter().chain([("pool", self.name.to_string())]).collect())
    }

    /// Its labels, filled in with what all of its machines have in common: region and pool.
    pub fn labels_anywhere(&self) -> Labels {
        let region = self.region.clone().unwrap_or_default();
        self.filled(BTreeMap::from([("region", region), ("pool", self.name.to_string())]))
    }

    /// Whether guests need something that they cannot find out themselves: an address, a user, or keys. A
    /// name alone does not count, because the daemon recognizes a Node by its `systemUUID`.
    pub fn tells_guests(&self) -> bool {
        self.gives_addresses() || self.user.is_some() || !self.ssh_keys.is_empty()
    }

    /// Whether machines get addresses from their slots.
    pub fn gives_addresses(&self) -> bool {
        let told = |family: &Family| matches!(family, Family::Static { .. });
        self.addressing != Addressing::Dhcp
            || self.devices.iter().any(|device| told(&device.four) || told(&device.six))
    }

    /// Whether its labels differ between hosts.
    pub fn tells_hosts(&self) -> bool {
        self.labels.values().any(|value| labels::uses(value, &["host", "zone"]))
    }

    /// Whether its labels use variables that all of its machines share: region and pool.
    pub fn labels_vary(&self) -> bool {
        self.labels.values().any(|value| labels::uses(value, &["region", "pool"]))
    }

    /// The variables `host`, `zone` and `region`. `host` may be a name in Proxmox VE or a [`HostKey`].
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
