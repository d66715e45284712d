//! The cluster's state: hosts, VMs with their configs, volumes, pools and tasks. It is plain data behind one
//! lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    answer::Refusal,
    files::{StoredFile, WebImage},
    firewall::ClusterFirewall,
    hands::{CallRecord, Fault, TaskFault},
    host_power::HostPower,
    pci::Pci,
    rights::TagAccess,
    spec::{AccessSpec, HostSpec, StorageSpec, Timings, VmSpec},
    task::Task,
    tracked::Tracked,
    vm::{Vm, parse_size, property},
};
use crate::clock::WorldClock;

/// The whole state.
#[derive(Debug)]
pub struct State {
    /// Cluster name.
    pub name: Option<String>,
    /// Version.
    pub version: String,
    /// Hosts by name.
    pub hosts: BTreeMap<String, Host>,
    /// Storages by id.
    pub storages: BTreeMap<String, StorageSpec>,
    /// Resource pools, each with its comment and members.
    pub pools: Tracked<BTreeMap<String, Pool>>,
    /// Users, roles, grants.
    pub access: AccessSpec,
    /// Who may use which tags.
    pub tags: TagAccess,
    /// VMs by id.
    pub vms: Tracked<BTreeMap<u32, Vm>>,
    /// Volumes by volume id, and by host if the storage is not shared.
    pub volumes: Tracked<BTreeMap<(String, String), Volume>>,
    /// The firewall of the whole cluster.
    pub firewall: ClusterFirewall,
    /// PCI devices.
    pub pci: Pci,
    /// Files by volume id, and by host if the storage is not shared.
    pub files: BTreeMap<(String, String), StoredFile>,
    /// Images that hosts can download, by URL.
    pub web: BTreeMap<String, WebImage>,
    /// The files that a network-booted guest writes to its disk, by path.
    pub network_image: BTreeMap<String, Vec<u8>>,
    /// Uploaded files whose call is not answered yet.
    pub spool: BTreeMap<String, bytes::Bytes>,
    /// Storages whose volumes temporarily cannot be freed.
    pub busy_storages: BTreeSet<String>,
    /// Storages that a test filled up, each with the number of bytes that were in use before.
    pub filled_storages: BTreeMap<String, u64>,
    /// Storages that report a wrong number of used bytes, each with the number that it reports.
    pub claims: BTreeMap<String, u64>,
    /// The VMs that were running when their host was asked to shut down.
    pub stopped_with_hosts: Vec<u32>,
    /// Tasks by UPID.
    pub tasks: BTreeMap<String, Task>,
    /// The tasks' ids, in the order in which the tasks started.
    pub task_order: Vec<String>,
    /// How long simulated operations take.
    pub timings: Timings,
    /// Whether the cluster has no quorum, regardless of the state of its hosts.
    pub quorum_forced_away: bool,
    /// The number of expected votes, if it differs from the number of hosts.
    pub expected_votes: Option<usize>,
    /// Whether the HA manager has ever been active. Once it has been, it reports the state of each host.
    pub ha_runs: bool,
    /// Faults that wait for a matching call.
    pub faults: Vec<Fault>,
    /// Faults that wait for a worker, by kind.
    pub task_faults: Vec<(String, TaskFault)>,
    /// The last calls.
    pub calls: std::collections::VecDeque<CallRecord>,
    /// Whether the API is unreachable.
    pub away: bool,
    /// The host that answers, if it has booted without corosync. It knows no other host, and only the VMs in
    /// its own copy of the configuration.
    pub without_corosync: Option<String>,
    /// The last two reports of pvestatd, newest first. Each contains the reported values by VMID.
    pub statistics: [BTreeMap<u32, Value>; 2],
    /// When pvestatd last reported.
    pub beat_at: Option<Instant>,
    /// Hosts whose pvestatd reports nothing, each with the time at which the reports stopped. `None` means
    /// that all earlier reports have expired.
    pub silent: BTreeMap<String, Option<Instant>>,
    /// Wall-clock time.
    pub clock: WorldClock,
    /// Source of every random choice.
    pub random: fastrand::Rng,
    /// The next process id of any host.
    pub next_pid: u32,
}

/// A host with its current state.
#[derive(Clone, Debug)]
pub struct Host {
    /// The host's spec.
    pub spec: HostSpec,
    /// Whether the host has power.
    pub online: bool,
    /// Whether the host has been off ever since it was added to the cluster.
    pub never_up: bool,
    /// The time at which the host last lost power. Other hosts notice this with a delay.
    pub off_since: Option<Instant>,
    /// When the host last got its power back.
    pub on_since: Option<Instant>,
    /// Whether a call to the host has timed out since the host lost its power. Later calls fail sooner.
    pub timed_out: bool,
    /// Whether an administrator put the host into HA maintenance.
    pub maintenance: bool,
    /// The host's power behavior.
    pub power: HostPower,
    /// When it booted.
    pub booted: Instant,
}

/// The time after which the other hosts notice that a host lost its power.
const LOST: Duration = Duration::from_millis(6950);
/// The time after which the other hosts notice that a host has its power back.
const BACK: Duration = Duration::from_millis(6300);
/// The time after a loss of power during which a call to the host can still time out. Later calls fail with
/// `No route to host`.
const LOOKED_FOR: Duration = Duration::from_secs(25);
/// The time from the start of a host's kernel until its API answers.
const BOOT: Duration = Duration::from_secs(8);

/// The time after which reports of pvestatd expire.
const FORGOTTEN: Duration = Duration::from_mins(5);

impl State {
    /// Whether all reports of a host's pvestatd have expired.
    pub fn is_silent(&self, node: &str) -> bool {
        self.silent.get(node).is_some_and(|since| since.is_none_or(|since| since.elapsed() >= FORGOTTEN))
    }
}

impl Host {
    /// Whether the other hosts consider this host online. They notice with a delay that the host went off or
    /// came back.
    pub fn seems_online(&self) -> bool {
        let late = |since: Option<Instant>, time| since.is_some_and(|since| since.elapsed() < time);
        if self.online { !late(self.on_since, BACK) } else { late(self.off_since, LOST) }
    }

    /// Whether the host lost its power so recently that a call to it can still time out.
    pub fn is_looked_for(&self) -> bool {
        self.off_since.is_some_and(|since| since.elapsed() < LOOKED_FOR)
    }

    /// Whether the host has power, but its API does not answer yet.
    pub fn boots(&self) -> bool {
        self.online && self.on_since.is_some_and(|since| since.elapsed() < BOOT)
    }
}

/// A pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Comment.
    pub comment: String,
    /// Member VMs.
    pub members: BTreeSet<u32>,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Storage id.
    pub storage: String,
    /// Bytes.
    pub size: u64,
    /// Owner.
    pub vmid: u32,
    /// The base volume of a linked clone.
    pub parent: Option<String>,
    /// `raw` or `qcow2`.
    pub format: String,
    /// When the volume was created, in Unix time.
    pub ctime: i64,
}

impl Volume {
    /// The bytes that are in use: almost none for a linked clone, a part of the size for any other volume.
    pub fn used(&self) -> u64 {
        if self.parent.is_some() { self.size / 2048 } else { self.size / 11 }
    }

    /// Returns the base volume as listings name it: by its path on file-based storages, otherwise by its
    /// name.
    pub fn shown_parent(&self, files: bool) -> Option<String> {
        let name = self.parent.as_ref()?.split_once(':')?.1;
        Some(if files { format!("../{name}") } else { name.to_owned() })
    }
}

impl State {
    /// Whether the release is 8.x.
    pub fn is_release_8(&self) -> bool {
        self.version.starts_with("8.")
    }

    /// Whether writes to the cluster file system work.
    pub fn quorate(&self) -> bool {
        let online = self.hosts.values().filter(|host| host.seems_online()).count();
        let away = self.quorum_forced_away || self.without_corosync.is_some();
        !away && online * 2 > self.expected_votes.unwrap_or(self.hosts.len())
    }

    /// Whether the host that answers knows this host.
    pub fn knows(&self, node: &str) -> bool {
        self.without_corosync.as_ref().is_none_or(|own| own == node)
    }

    /// The time until the hosts notice a loss of quorum that has already happened. Until then, writes hang.
    pub fn loss_noticed_in(&self) -> Option<Duration> {
        let online = self.hosts.values().filter(|host| host.online).count();
        let lost = self.quorate() && online * 2 <= self.expected_votes.unwrap_or(self.hosts.len());
        let last = self.hosts.values().filter_map(|host| host.off_since).max();
        last.filter(|_| lost).map(|since| LOST.saturating_sub(since.elapsed()))
    }

    /// Adds a VM to the cluster and to its pool, with the volumes that its drives name.
    pub fn add(&mut self, spec: VmSpec) {
        let VmSpec { vmid, node, pool, config, faults, .. } = spec;
        if let Some(pool) = pool.and_then(|pool| self.pools.get_mut(&pool)) {
            pool.members.insert(vmid);
        }
        let vm = Vm::new(vmid, &node, config, faults);
        for (_, volid, text) in vm.drives() {
            let storage = volid.split(':').next().unwrap_or_default().to_owned();
            let size = property(&text, "size").and_then(parse_size).unwrap_or(0);
            let format = volid.rsplit_once('.').map_or("raw", |(_, format)| format).to_owned();
            let place = self.place(&storage, &node);
            let ctime = self.clock.now().as_second();
            // In the volume id of a linked clone, the name of the base volume comes before the clone's own
            // directory.
            let base =
                volid.split('/').nth(1).filter(|name| name.starts_with("base-") && volid.contains("/vm-"));
            let parent = base.and_then(|base| Some(format!("{}{base}", &volid[..volid.find(base)?])));
            let volume = Volume { storage, size, vmid, parent, format, ctime };
            self.volumes.insert((volid, place), volume);
        }
        self.vms.insert(vmid, vm);
    }

    /// Refuses a call if there is no quorum. Used for calls for which Proxmox VE checks the quorum before it
    /// forks a worker.
    pub fn need_quorum(&self) -> Result<(), Refusal> {
        if self.quorate() { Ok(()) } else { Err(Refusal::failed("cluster not ready - no quorum?")) }
    }

    /// Refuses a call if there is no quorum, with the error text that Proxmox VE returns if it cannot write a
    /// VM's config.
    pub fn need_writable(&self, vmid: u32, node: &str, pid: u32) -> Result<(), Refusal> {
        if self.quorate() {
            return Ok(());
        }
        let path = format!("/etc/pve/nodes/{node}/qemu-server/{vmid}.conf.tmp.{pid}");
        Err(Refusal::failed(format!("unable to open file '{path}' - Permission denied")))
    }

    /// Returns a VM on this node. If there is none, refuses the call with the error text that Proxmox VE
    /// returns if it cannot read a VM's config.
    pub fn vm_on(&self, node: &str, vmid: u32) -> Result<&Vm, Refusal> {
        self.vms.get(&vmid).filter(|vm| vm.node == node).ok_or_else(|| missing(node, vmid))
    }

    /// Like [`State::vm_on`], but with the error text that a stop or a shutdown returns.
    pub fn vm_to_stop(&self, node: &str, vmid: u32) -> Result<&Vm, Refusal> {
        let missing = || format!("unable to find configuration file for VM {vmid} on node '{node}'");
        self.vm_on(node, vmid).map_err(|_| Refusal::failed(missing()))
    }

    /// Like [`State::vm_on`], but returns a mutable reference.
    pub fn vm_on_mut(&mut self, node: &str, vmid: u32) -> Result<&mut Vm, Refusal> {
        self.vms.get_mut(&vmid).filter(|vm| vm.node == node).ok_or_else(|| missing(node, vmid))
    }

    /// Returns a missing volume that the VM needs to start, if there is one.
    pub fn missing_volume(&self, vm: &Vm) -> Option<String> {
        let there = |volid: &str| {
            let place = self.place(volid.split(':').next().unwrap_or_default(), &vm.node);
            self.volumes.contains_key(&(volid.to_owned(), place))
        };
        let there = |volid: &str| {
            if volid.contains(":iso/") { self.file(volid, &vm.node).is_some() } else { there(volid) }
        };
        let needed = |key: &str, volid: &str| {
            // The cloud-init drive is created again at each start.
            !key.starts_with("unused") && !volid.contains("cloudinit")
        };
        let mut drives = vm.drives().into_iter();
        drives.find(|(key, volid, _)| needed(key, volid) && !there(volid)).map(|(_, volid, _)| volid)
    }

    /// The pool of a VM.
    pub fn pool_of(&self, vmid: u32) -> Option<&str> {
        self.pools.iter().find(|(_, pool)| pool.members.contains(&vmid)).map(|(name, _)| name.as_str())
    }

    /// The host part of a volume's key: empty if all hosts see the same volumes of the storage.
    pub fn place(&self, storage: &str, node: &str) -> String {
        let shared = self.storages.get(storage).is_none_or(|spec| spec.shared);
        if shared { String::new() } else { node.to_owned() }
    }

    /// Bytes in use on a storage, as a host sees it.
    pub fn storage_used(&self, storage: &StorageSpec, node: &str) -> u64 {
        let place = self.place(&storage.id, node);
        let volumes =
            self.volumes.iter().filter(|((_, at), volume)| volume.storage == storage.id && *at == place);
        // A new linked clone uses almost no space.
        let allocated: u64 =
            volumes.map(|(_, v)| if v.parent.is_some() { v.size / 20 } else { v.size }).sum();
        (storage.used + allocated).min(storage.size)
    }

    /// A new volume name on a storage: `(volid, format)`.
    pub fn volume_name(
        &self,
        storage: &str,
        vmid: u32,
        node: &str,
        parent: Option<&str>,
        cloud_init: bool,
    ) -> (String, String) {
        let files = self.storages.get(storage).is_some_and(|spec| spec.kind.is_file_based());
        let (suffix, format) = if files { (".qcow2", "qcow2") } else { ("", "raw") };
        let directory = if files { format!("{vmid}/") } else { String::new() };
        let base = parent
            .filter(|_| files)
            .and_then(|p| p.split_once(':'))
            .map_or_else(String::new, |(_, p)| format!("{p}/"));
        let place = self.place(storage, node);
        if cloud_init {
            return (format!("{storage}:{directory}vm-{vmid}-cloudinit{suffix}"), format.into());
        }
        let mut number = 0u32;
        loop {
            let tail = format!("{directory}vm-{vmid}-disk-{number}");
            let is_it = |id: &str| {
                id.strip_suffix(".qcow2").or_else(|| id.strip_suffix(".raw")).unwrap_or(id).ends_with(&tail)
            };
            let taken = self.volumes.keys().any(|(id, at)| *at == place && is_it(id));
            if !taken {
                return (format!("{storage}:{base}{tail}{suffix}"), format.into());
            }
            number += 1;
        }
    }

    /// A new MAC address from Proxmox's range.
    pub fn new_mac(&mut self) -> String {
        let [a, b, c] = [self.random.u8(..), self.random.u8(..), self.random.u8(..)];
        format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
    }

    /// A new version 4 UUID from the cluster's seeded random number generator.
    pub fn new_uuid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.random.u128(..).to_be_bytes()).into_uuid().to_string()
    }

    /// A fresh process id.
    pub fn new_pid(&mut self) -> u32 {
        self.next_pid += 1 + self.random.u32(..3);
        self.next_pid
    }

    /// A duration with jitter.
    pub fn vary(&mut self, time: std::time::Duration) -> std::time::Duration {
        let share = self.timings.jitter.clamp(0.0, 1.0);
        time.mul_f64(1.0 + share * (self.random.f64() * 2.0 - 1.0))
    }
}

fn missing(node: &str, vmid: u32) -> Refusal {
    Refusal::failed(format!("Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist"))
}
