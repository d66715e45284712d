//! What the cluster knows: hosts, VMs with their configs, volumes, pools, tasks. Plain data behind one lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{
    answer::Refusal,
    hands::{CallRecord, Fault},
    spec::{AccessSpec, HostSpec, StorageSpec, Timings},
    task::Task,
};
use crate::guest::{Disk, Guest, GuestFaults};

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
    /// Pools: comment and members.
    pub pools: BTreeMap<String, Pool>,
    /// Users, roles, grants.
    pub access: AccessSpec,
    /// VMs by id.
    pub vms: BTreeMap<u32, Vm>,
    /// Volumes by `volid` and, on storages that are not shared, host.
    pub volumes: BTreeMap<(String, String), Volume>,
    /// Tasks by UPID.
    pub tasks: BTreeMap<String, Task>,
    /// Order of the tasks' start.
    pub task_order: Vec<String>,
    /// How long things take.
    pub timings: Timings,
    /// Whether the cluster has quorum whatever its hosts do.
    pub quorum_forced_away: bool,
    /// Faults that wait for their call.
    pub faults: Vec<Fault>,
    /// The last calls.
    pub calls: std::collections::VecDeque<CallRecord>,
    /// Whether the API answers at all.
    pub away: bool,
    /// What pvestatd said last, by VMID: two generations, newest first.
    pub statistics: [BTreeMap<u32, Value>; 2],
    /// When pvestatd spoke last.
    pub beat_at: Option<Instant>,
    /// Source of every random choice.
    pub random: fastrand::Rng,
    /// The next process id of any host.
    pub next_pid: u32,
}

/// A host with its present state.
#[derive(Clone, Debug)]
pub struct Host {
    /// What it is made of.
    pub spec: HostSpec,
    /// Whether it has power.
    pub online: bool,
    /// When it last lost its power, for what others notice of that.
    pub off_since: Option<Instant>,
    /// Whether somebody already waited for its first time-out.
    pub timed_out: bool,
    /// Whether an administrator put it into HA maintenance.
    pub maintenance: bool,
    /// When it booted.
    pub booted: Instant,
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
    /// The volume that a linked clone hangs on.
    pub parent: Option<String>,
    /// `raw` or `qcow2`.
    pub format: String,
}

/// A change of a running VM that waits for its next cold start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A new value.
    Set(String),
    /// The key goes away.
    Delete,
}

/// A virtual machine.
#[derive(Debug)]
pub struct Vm {
    /// VMID.
    pub vmid: u32,
    /// The node that has its config file.
    pub node: String,
    /// The config file.
    pub config: BTreeMap<String, String>,
    /// Its `[PENDING]` section.
    pub pending: BTreeMap<String, Pending>,
    /// The running machine.
    pub machine: Option<Machine>,
    /// What its file system holds across boots.
    pub disk: Arc<Disk>,
    /// What goes wrong inside.
    pub faults: GuestFaults,
    /// Whether it is an HA resource.
    pub ha: bool,
}

/// A running QEMU.
#[derive(Debug)]
pub struct Machine {
    /// Process id.
    pub pid: u32,
    /// When it started.
    pub started: Instant,
    /// The guest inside.
    pub guest: Guest,
}

/// Config keys with a number or a flag as value; all others are text.
const NUMERIC: &[&str] = &[
    "cores",
    "sockets",
    "vcpus",
    "cpuunits",
    "balloon",
    "shares",
    "onboot",
    "protection",
    "template",
    "kvm",
    "numa",
    "ciupgrade",
    "acpi",
    "tablet",
    "autostart",
    "freeze",
    "localtime",
    "reboot",
    "allow-ksm",
    "keephugepages",
];

/// A config value with the type that it has in answers.
pub fn typed(key: &str, value: &str) -> Value {
    match value.parse::<i64>() {
        Ok(number) if NUMERIC.contains(&key) => number.into(),
        _ => value.into(),
    }
}

impl Vm {
    /// A VM with this config and a fresh disk.
    pub fn new(vmid: u32, node: &str, config: BTreeMap<String, String>, faults: GuestFaults) -> Self {
        let (node, disk) = (node.to_owned(), Arc::default());
        Self { vmid, node, config, pending: BTreeMap::new(), machine: None, disk, faults, ha: false }
    }

    /// 40 hexadecimal digits that change with the config. The real one is SHA-1 of the file; clients only compare it.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for (key, value) in &self.config {
            hash.update(format!("{key}: {value}\n"));
        }
        for (key, pending) in &self.pending {
            hash.update(format!("[PENDING] {key}: {pending:?}\n"));
        }
        let bytes: Vec<String> = hash.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
        bytes.concat()
    }

    /// A config value as text.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str)
    }

    /// Whether it is a template.
    pub fn is_template(&self) -> bool {
        self.get("template") == Some("1")
    }

    /// The name, or the one that Proxmox VE makes up.
    pub fn name(&self) -> String {
        self.get("name").map_or_else(|| format!("VM {}", self.vmid), String::from)
    }

    /// vCPUs.
    pub fn cpus(&self) -> u32 {
        let number = |key| self.get(key).and_then(|value| value.parse().ok()).unwrap_or(1);
        number("cores") * number("sockets")
    }

    /// Memory in bytes.
    pub fn memory(&self) -> u64 {
        let text = self.get("memory").unwrap_or("512");
        text.trim_start_matches("current=").parse::<u64>().unwrap_or(512) << 20
    }

    /// The SMBIOS uuid, lower case.
    pub fn uuid(&self) -> String {
        self.get("smbios1").and_then(|text| property(text, "uuid")).unwrap_or_default().to_lowercase()
    }

    /// Drives: key, volume id, and the drive's text.
    pub fn drives(&self) -> Vec<(String, String, String)> {
        let drive = |key: &str| {
            let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
            stem != key && ["scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "unused"].contains(&stem)
        };
        let drives = self.config.iter().filter(|(key, _)| drive(key));
        drives
            .filter_map(|(key, text)| {
                let volume = text.split(',').next()?;
                (volume.contains(':')).then(|| (key.clone(), volume.to_owned(), text.clone()))
            })
            .collect()
    }

    /// Size of the first real disk in bytes, which `status/current` calls `maxdisk`.
    pub fn disk_size(&self) -> u64 {
        let drive = self.drives().into_iter().find(|(_, _, text)| !text.contains("media=cdrom"));
        drive.and_then(|(_, _, text)| parse_size(property(&text, "size")?)).unwrap_or(0)
    }

    /// Refuses while another operation has the VM.
    pub fn check_lock(&self) -> Result<(), Refusal> {
        match self.get("lock") {
            Some(lock) => Err(Refusal::failed(format!("VM is locked ({lock})"))),
            None => Ok(()),
        }
    }

    /// Whether the guest agent is configured.
    pub fn has_agent(&self) -> bool {
        self.get("agent").is_some_and(|text| text.split(',').any(|part| part == "1" || part == "enabled=1"))
    }

    /// The `status/current` members that lists share.
    pub fn summary(&self) -> Value {
        let mut row = json!({
            "vmid": self.vmid, "name": self.name(), "status": if self.machine.is_some() { "running" } else { "stopped" },
            "cpus": self.cpus(), "cpu": 0, "maxmem": self.memory(), "mem": 0, "memhost": 0, "disk": 0,
            "maxdisk": self.disk_size(), "netin": 0, "netout": 0, "uptime": 0,
        });
        if let Some(machine) = &self.machine {
            row["uptime"] = machine.started.elapsed().as_secs().into();
            row["pid"] = machine.pid.into();
            row["cpu"] = 0.04.into();
            row["mem"] = (self.memory() / 3).into();
        }
        for key in ["tags", "lock"] {
            if let Some(value) = self.get(key) {
                row[key] = value.into();
            }
        }
        if self.is_template() {
            row["template"] = 1.into();
        }
        row
    }
}

/// A member of a property string such as `uuid=…,serial=…`.
pub fn property<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// Bytes of `10G`, `512M`, `4K`; a bare number is bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let (whole, part) = digits.split_once('.')?;
    let unit = 1u64 << shift;
    let tenths = part.get(..1)?.parse::<u64>().ok()?;
    Some(whole.parse::<u64>().ok()?.checked_mul(unit)? + unit / 10 * tenths)
}

/// A size as drives show it.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

impl State {
    /// Whether the release is 8.x.
    pub fn is_release_8(&self) -> bool {
        self.version.starts_with("8.")
    }

    /// Whether writes to the cluster file system work.
    pub fn quorate(&self) -> bool {
        let online = self.hosts.values().filter(|host| host.online).count();
        !self.quorum_forced_away && online * 2 > self.hosts.len()
    }

    /// Refuses where Proxmox VE checks the quorum before it forks.
    pub fn need_quorum(&self) -> Result<(), Refusal> {
        if self.quorate() { Ok(()) } else { Err(Refusal::failed("cluster not ready - no quorum?")) }
    }

    /// What a write of a VM's config says without quorum.
    pub fn need_writable(&self, vmid: u32, node: &str, pid: u32) -> Result<(), Refusal> {
        if self.quorate() {
            return Ok(());
        }
        let path = format!("/etc/pve/nodes/{node}/qemu-server/{vmid}.conf.tmp.{pid}");
        Err(Refusal::failed(format!("unable to open file '{path}' - Permission denied")))
    }

    /// A VM on this node, with the text that reading its config gives otherwise.
    pub fn vm_on(&self, node: &str, vmid: u32) -> Result<&Vm, Refusal> {
        self.vms.get(&vmid).filter(|vm| vm.node == node).ok_or_else(|| missing(node, vmid))
    }

    /// Like [`State::vm_on`].
    pub fn vm_on_mut(&mut self, node: &str, vmid: u32) -> Result<&mut Vm, Refusal> {
        self.vms.get_mut(&vmid).filter(|vm| vm.node == node).ok_or_else(|| missing(node, vmid))
    }

    /// The pool of a VM.
    pub fn pool_of(&self, vmid: u32) -> Option<&str> {
        self.pools.iter().find(|(_, pool)| pool.members.contains(&vmid)).map(|(name, _)| name.as_str())
    }

    /// The place of a storage's volumes seen from a host: empty where all hosts see the same.
    pub fn place(&self, storage: &str, node: &str) -> String {
        let shared = self.storages.get(storage).is_none_or(|spec| spec.shared);
        if shared { String::new() } else { node.to_owned() }
    }

    /// Bytes in use on a storage seen from a host.
    pub fn storage_used(&self, storage: &StorageSpec, node: &str) -> u64 {
        let place = self.place(&storage.id, node);
        let volumes =
            self.volumes.iter().filter(|((_, at), volume)| volume.storage == storage.id && *at == place);
        // A linked clone starts with next to nothing.
        let allocated: u64 =
            volumes.map(|(_, v)| if v.parent.is_some() { v.size / 20 } else { v.size }).sum();
        storage.used + allocated
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
            let tail = format!("{directory}vm-{vmid}-disk-{number}{suffix}");
            let taken = self.volumes.keys().any(|(id, at)| *at == place && id.ends_with(&tail));
            if !taken {
                return (format!("{storage}:{base}{tail}"), format.into());
            }
            number += 1;
        }
    }

    /// A fresh MAC address of Proxmox's range.
    pub fn new_mac(&mut self) -> String {
        let [a, b, c] = [self.random.u8(..), self.random.u8(..), self.random.u8(..)];
        format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
    }

    /// A fresh version 4 uuid from the seeded source.
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
