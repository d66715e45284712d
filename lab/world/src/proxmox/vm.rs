//! A virtual machine: its config file, its pending changes, and its process.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{answer::Refusal, firewall::Firewall};
use crate::{
    guest::{Disk, Guest, GuestFaults},
    qemu::Running,
};

/// A change to a running VM that takes effect at its next cold start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A new value.
    Set(String),
    /// The key is removed.
    Delete,
}

/// A virtual machine.
#[derive(Debug)]
pub struct Vm {
    /// VMID.
    pub vmid: u32,
    /// The node that the VM's config file belongs to.
    pub node: String,
    /// The config file.
    pub config: BTreeMap<String, String>,
    /// Its `[PENDING]` section.
    pub pending: BTreeMap<String, Pending>,
    /// The running machine.
    pub machine: Option<Machine>,
    /// The suspended machine, whose memory is on disk.
    pub frozen: Option<Machine>,
    /// The simulated guest's files, which survive a reboot.
    pub disk: Arc<Disk>,
    /// The simulated faults inside the guest.
    pub faults: GuestFaults,
    /// The state that HA keeps the VM in, if the VM is an HA resource.
    pub ha: Option<HaRequest>,
    /// Its firewall file.
    pub firewall: Firewall,
}

/// The state that HA keeps a VM in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaRequest {
    /// Running, on another host if need be.
    Started,
    /// Not running. A running VM is asked to shut down within this time, or loses its power at once if the
    /// time is zero.
    Stopped(Duration),
}

/// A running QEMU.
#[derive(Debug)]
pub struct Machine {
    /// Process id.
    pub pid: u32,
    /// When it started.
    pub started: Instant,
    /// The host CPUs that QEMU was restricted to at its start. `None` means all of them.
    pub affinity: Option<String>,
    /// The guest inside.
    pub inside: Inside,
}

/// What runs in a VM.
#[derive(Clone, Debug)]
pub enum Inside {
    /// A simulated guest.
    Simulated(Guest),
    /// A QEMU process with a real guest.
    Real(Running),
}

impl Machine {
    /// The guest, if it is simulated.
    pub fn simulated(&self) -> Option<&Guest> {
        match &self.inside {
            Inside::Simulated(guest) => Some(guest),
            Inside::Real(_) => None,
        }
    }
}

/// Config keys whose values are numbers or flags. All other values are text.
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

/// Converts a config value to the type that it has in API answers.
pub fn typed(key: &str, value: &str) -> Value {
    match value.parse::<i64>() {
        Ok(number) if NUMERIC.contains(&key) => number.into(),
        _ => value.into(),
    }
}

impl Vm {
    /// Returns a VM with this config and an empty disk.
    pub fn new(vmid: u32, node: &str, config: BTreeMap<String, String>, faults: GuestFaults) -> Self {
        let (node, disk) = (node.to_owned(), Arc::default());
        Self {
            vmid,
            node,
            config,
            pending: BTreeMap::new(),
            machine: None,
            frozen: None,
            disk,
            faults,
            ha: None,
            firewall: Firewall::default(),
        }
    }

    /// 40 hexadecimal digits that change with the config. Proxmox VE uses the SHA-1 of the file; clients only
    /// compare digests.
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

    /// Whether the VM is a template.
    pub fn is_template(&self) -> bool {
        self.get("template") == Some("1")
    }

    /// The VM's name, or the default name of Proxmox VE.
    pub fn name(&self) -> String {
        self.get("name").map_or_else(|| format!("VM {}", self.vmid), String::from)
    }

    /// The number of the VM's vCPUs.
    pub fn cpus(&self) -> u32 {
        let vcpus = self.get("vcpus").and_then(|value| value.parse().ok()).filter(|vcpus| *vcpus > 0);
        vcpus.unwrap_or_else(|| self.most_cpus())
    }

    /// The maximum number of vCPUs that the VM's QEMU is started with.
    pub fn most_cpus(&self) -> u32 {
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

    /// The VM's drives, each with its key, its volume id, and the text of its setting.
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

    /// The volumes that the config names and that are removed with the VM: those of its drives, and its saved
    /// memory.
    pub fn named_volumes(&self) -> Vec<String> {
        let drives = self.drives().into_iter().map(|(_, volid, _)| volid);
        drives.chain(self.get("vmstate").map(ToOwned::to_owned)).collect()
    }

    /// The size in bytes of the first drive that is not a CD drive. `status/current` calls it `maxdisk`.
    pub fn disk_size(&self) -> u64 {
        let drive = self.drives().into_iter().find(|(_, _, text)| !text.contains("media=cdrom"));
        drive.and_then(|(_, _, text)| parse_size(property(&text, "size")?)).unwrap_or(0)
    }

    /// Returns an error if another operation has locked the VM.
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

    /// Returns the members of `status/current` that VM lists also contain. If `full` is true, adds the
    /// members that Proxmox VE gets from QEMU.
    pub fn summary(&self, full: bool) -> Value {
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
            for kind in ["cpu", "io", "memory"] {
                for share in ["some", "full"] {
                    row[format!("pressure{kind}{share}")] = 0.into();
                }
            }
        }
        if self.get("serial0").is_some() {
            row["serial"] = 1.into();
        }
        if full {
            row["qmpstatus"] = row["status"].clone();
            if let Some(vga) = self.get("vga") {
                row["clipboard"] = property(vga, "clipboard").into();
            }
            if self.machine.is_some() && self.get("net0").is_some() {
                let nics = self.config.keys().filter_map(|key| key.strip_prefix("net"));
                let nics = nics.filter(|number| number.parse::<u8>().is_ok());
                let nic =
                    |number: &str| (format!("tap{}i{number}", self.vmid), json!({ "netin": 0, "netout": 0 }));
                row["nics"] = Value::Object(nics.map(nic).collect());
            }
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

/// Returns one member of a property string such as `uuid=…,serial=…`.
pub fn property<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// Parses a size such as `10G`, `512M` or `4K`, and returns the number of bytes. A number without a unit is
/// in bytes.
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

/// Returns a size in the format of a drive's `size` option.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}
