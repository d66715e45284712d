//! A VM's configuration as the API returns it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::marker::{self, Description};

/// A VM's configuration: every key as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmConfig {
    values: BTreeMap<String, String>,
}

impl VmConfig {
    pub(crate) fn read(data: &Value) -> Option<Self> {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(set) => Some(u8::from(*set).to_string()),
            _ => None,
        };
        let values =
            data.as_object()?.iter().filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect();
        Some(Self { values })
    }

    /// A key's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// All keys with their values, in order of the keys.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// What a write must name so that it only happens to this state of the file.
    pub fn digest(&self) -> Option<&str> {
        self.get("digest")
    }

    /// The lock that an operation holds, e.g. `clone`.
    pub fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    /// Whose machine the VM is.
    pub fn owner(&self) -> Description {
        match (self.lock(), self.get("description")) {
            // Of a VM that is being made anew, or is all but destroyed, nothing but its lock is there.
            (Some("create"), None) => Description::BeingCloned,
            (Some("destroyed"), None) => Description::BeingDestroyed,
            (_, description) => marker::read(description),
        }
    }

    /// Whether it is a template.
    pub fn is_template(&self) -> bool {
        self.get("template") == Some("1")
    }

    /// Whether the guest agent's device is there.
    pub fn agent_enabled(&self) -> bool {
        let agent = self.get("agent").unwrap_or_default();
        match property(agent, "enabled") {
            Some(enabled) => enabled == "1",
            None => agent.split(',').next() == Some("1"),
        }
    }

    /// Whether cloud-init upgrades all packages at a first boot: it does unless told otherwise, which makes boots slow and
    /// their outcome a matter of luck.
    pub fn upgrades_packages(&self) -> bool {
        self.get("ciupgrade") != Some("0")
    }

    /// The drive that holds the cloud-init data, e.g. `ide2`.
    pub fn cloudinit_drive(&self) -> Option<&str> {
        let found = self.values.iter().find(|(key, value)| {
            let volume = value.split(',').next().unwrap_or_default();
            is_drive(key) && (volume.ends_with(":cloudinit") || volume.contains("-cloudinit"))
        });
        found.map(|(key, _)| key.as_str())
    }

    /// The SMBIOS uuid in lower case: the guest's, and so the Node's `systemUUID`.
    pub fn smbios_uuid(&self) -> Option<String> {
        property(self.get("smbios1")?, "uuid").map(str::to_lowercase)
    }

    /// The addresses that cloud-init gives the VM's network devices, without those that a server or a router is to give.
    pub fn static_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let texts = self.values.iter().filter(|(key, _)| {
            key.strip_prefix("ipconfig").is_some_and(|number| number.parse::<u8>().is_ok())
        });
        let given = texts.flat_map(|(_, text)| [property(text, "ip"), property(text, "ip6")]);
        given.flatten().filter_map(|address| address.split('/').next()?.parse().ok())
    }

    /// A network device (the first part is its model with its MAC) with its MAC kept, of this model, and with these parts set: a
    /// device that is written without its MAC gets a new one, as one that is not there yet does.
    pub fn net_with(&self, device: &str, model: Option<&str>, set: &[(&str, String)]) -> String {
        let present = self.get(device).unwrap_or("virtio");
        let mut parts: Vec<String> = present.split(',').map(ToOwned::to_owned).collect();
        if let (Some(model), Some(first)) = (model, parts.first_mut()) {
            *first = match first.split_once('=') {
                Some((_, mac)) => format!("{model}={mac}"),
                None => model.to_owned(),
            };
        }
        for (name, value) in set {
            parts.retain(|part| part.split_once('=').is_none_or(|(key, _)| key != *name));
            parts.push(format!("{name}={value}"));
        }
        parts.join(",")
    }

    /// All drives with a volume, e.g. `scsi0`; CD-ROM drives among them.
    pub fn drives(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(key, value)| {
            is_drive(key) && value.split(',').next().is_some_and(|volume| volume.contains(':'))
        })
    }

    /// The volumes of all drives, e.g. `local-lvm:vm-101-disk-0`.
    pub fn volumes(&self) -> Vec<&str> {
        let volume = |value: &'_ String| value.split(',').next().is_some_and(|first| first.contains(':'));
        let drives = self.values.iter().filter(|(key, value)| is_drive(key) && volume(value));
        drives.filter_map(|(_, value)| value.split(',').next()).collect()
    }

    /// The storages that those volumes are on, and what a suspended VM's memory is in.
    pub fn storages(&self) -> BTreeSet<&str> {
        let volumes = self.volumes().into_iter().chain(self.get("vmstate"));
        volumes.filter_map(|volume| Some(volume.split_once(':')?.0)).collect()
    }

    /// The disks that a backup job would take, written so that it leaves them out.
    pub fn drives_without_backup(&self) -> Vec<(String, String)> {
        let disks = self.values.iter().filter(|(key, value)| {
            is_drive(key)
                && !key.starts_with("efidisk")
                && !key.starts_with("tpmstate")
                && !value.contains("media=cdrom")
                && value.split(',').next().is_some_and(|volume| volume.contains(':'))
                && property(value, "backup").is_none_or(|backup| backup != "0")
        });
        let without = |value: &str| {
            let parts = value.split(',').filter(|part| !part.starts_with("backup="));
            format!("{},backup=0", parts.collect::<Vec<_>>().join(","))
        };
        disks.map(|(key, value)| (key.clone(), without(value))).collect()
    }

    /// A drive's size in bytes.
    pub fn drive_size(&self, drive: &str) -> Option<i64> {
        let size = property(self.get(drive)?, "size")?;
        let (number, unit) =
            size.split_at(size.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(size.len()));
        let shift = match unit {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return None,
        };
        number.parse::<i64>().ok()?.checked_shl(shift)
    }
}

impl FromIterator<(String, String)> for VmConfig {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

/// Whether a key is a drive's: `scsi0`, not `scsihw`.
fn is_drive(key: &str) -> bool {
    ["ide", "sata", "scsi", "virtio", "efidisk", "tpmstate"].iter().any(|bus| {
        key.strip_prefix(bus)
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// A named part of a property string (`a=1,b=2`).
fn property<'v>(text: &'v str, name: &str) -> Option<&'v str> {
    text.split(',')
        .filter_map(|part| part.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_configuration_is_read() {
        let config = VmConfig::read(&json!({
            "digest": "d1", "memory": "4096", "cores": 2, "template": 1, "agent": "enabled=1,fstrim_cloned_disks=1",
            "ide2": "shared:9010/vm-9010-cloudinit.qcow2,media=cdrom", "smbios1": "uuid=AB-CD,base64=1",
            "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1", "scsi0": "local-lvm:base-9010-disk-0,size=8G",
        }))
        .unwrap();
        assert!(config.is_template() && config.agent_enabled());
        assert_eq!(config.cloudinit_drive(), Some("ide2"));
        assert_eq!(config.smbios_uuid().as_deref(), Some("ab-cd"));
        assert_eq!(config.drive_size("scsi0"), Some(8 << 30));
        assert_eq!((config.get("cores"), config.get("memory")), (Some("2"), Some("4096")));
        assert_eq!(
            config.net_with("net0", None, &[("bridge", "vmbr1".to_owned()), ("tag", "20".to_owned())]),
            "virtio=BC:24:11:00:00:01,firewall=1,bridge=vmbr1,tag=20"
        );
        assert_eq!(
            config.net_with("net0", Some("e1000"), &[]),
            "e1000=BC:24:11:00:00:01,bridge=vmbr0,firewall=1"
        );
        assert_eq!(
            config.net_with("net1", Some("virtio"), &[("bridge", "vmbr2".to_owned())]),
            "virtio,bridge=vmbr2"
        );
        assert_eq!(config.owner(), Description::Foreign);
    }

    #[test]
    fn the_agent_has_two_ways_of_being_enabled() {
        for (text, enabled) in [
            ("1", true),
            ("1,fstrim_cloned_disks=1", true),
            ("enabled=1", true),
            ("0", false),
            ("enabled=0", false),
        ] {
            let config = VmConfig::read(&json!({"agent": text})).unwrap();
            assert_eq!(config.agent_enabled(), enabled, "{text}");
        }
        assert!(!VmConfig::read(&json!({})).unwrap().agent_enabled());
    }
}
