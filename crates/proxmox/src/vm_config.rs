//! A VM's configuration as the API returns it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::marker::{self, Description};
use super::property::{self, Properties, stem, truth};

/// A VM's configuration, with every value as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmConfig {
    values: BTreeMap<String, String>,
}

impl VmConfig {
    /// Parses a configuration as the API returns it. `None` if it is not an object.
    pub fn read(data: &Value) -> Option<Self> {
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

    /// All keys with their values, ordered by key.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The digest of this version of the configuration. A write that contains the digest fails if the
    /// configuration has changed since.
    pub fn digest(&self) -> Option<&str> {
        self.get("digest")
    }

    /// The lock that an operation holds on the VM, e.g. `clone`, if any.
    pub fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    /// The owner of the VM, according to its configuration.
    pub fn owner(&self) -> Description {
        match (self.lock(), self.get("description")) {
            // While a VM is being created, or is almost destroyed, its configuration only contains the lock.
            (Some("create"), None) => Description::BeingCloned,
            (Some("destroyed"), None) => Description::BeingDestroyed,
            (_, description) => marker::read(description),
        }
    }

    /// Whether a boolean option is set.
    pub fn is_set(&self, key: &str) -> bool {
        self.get(key).and_then(truth) == Some(true)
    }

    /// The parts of an option that is a property string; empty if the option is missing.
    pub fn parts(&self, key: &str) -> Properties<'_> {
        self.get(key).map(|text| Properties::of(key, text)).unwrap_or_default()
    }

    /// Whether the VM is a template.
    pub fn is_template(&self) -> bool {
        self.is_set("template")
    }

    /// Whether the VM has a device for the guest agent.
    pub fn agent_enabled(&self) -> bool {
        self.parts("agent").flag("enabled") == Some(true)
    }

    /// Whether cloud-init upgrades all packages at the first boot. This is the default, and makes the first
    /// boot slow and unreliable.
    pub fn upgrades_packages(&self) -> bool {
        self.get("ciupgrade").and_then(truth) != Some(false)
    }

    /// The drive that holds the cloud-init data, e.g. `ide2`.
    pub fn cloudinit_drive(&self) -> Option<&str> {
        self.drives().find(|drive| drive.is_cloud_init()).map(|drive| drive.key)
    }

    /// The SMBIOS UUID in lower case. The guest has the same UUID, so it is also the Node's `systemUUID`.
    pub fn smbios_uuid(&self) -> Option<String> {
        self.parts("smbios1").get("uuid").map(str::to_lowercase)
    }

    /// The VM's memory in bytes, if set.
    pub fn memory(&self) -> Option<i64> {
        let text = self.parts("memory").get("current").or_else(|| self.get("memory"))?;
        text.parse::<i64>().ok().and_then(|mib| mib.checked_mul(1 << 20))
    }

    /// The number of vCPUs that the VM starts with, if set. If only one of `cores` and `sockets` is set, the
    /// other is 1.
    pub fn vcpus(&self) -> Option<u32> {
        let number = |key: &str| self.get(key).and_then(|text| text.parse::<u32>().ok());
        let (cores, sockets) = (number("cores"), number("sockets"));
        let all = cores.or(sockets).map(|_| cores.unwrap_or(1).saturating_mul(sockets.unwrap_or(1)));
        number("vcpus").or(all)
    }

    /// The static addresses that cloud-init assigns to the VM's network devices, without those from DHCP or
    /// router advertisements.
    pub fn static_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let texts = self.values.iter().filter(|(key, _)| stem(key) == "ipconfig" && *key != "ipconfig");
        let parts = texts.map(|(key, text)| Properties::of(key, text));
        let given = parts.flat_map(|parts| [parts.get("ip"), parts.get("ip6")]);
        given.flatten().filter_map(|address| address.split('/').next()?.parse().ok())
    }

    /// The model and the MAC address of a network device, if they are set.
    pub fn net(&self, device: &str) -> (Option<&str>, Option<&str>) {
        let parts = self.parts(device);
        (parts.get("model"), parts.get("macaddr"))
    }

    /// Returns the value of a network device with the parts in `set` added or replaced, and with its model
    /// replaced if `model` is given. The other parts and the MAC address are kept. If a device is written
    /// without a MAC address, Proxmox VE assigns a new one.
    pub fn net_with(&self, device: &str, model: Option<&str>, set: &[(&str, String)]) -> String {
        let present = self.parts(device);
        let model = model.or(present.get("model")).unwrap_or("virtio");
        let first = match present.get("macaddr") {
            Some(mac) => format!("{model}={mac}"),
            None => model.to_owned(),
        };
        let kept = present.all().filter(|(key, _)| !["model", "macaddr"].contains(key));
        let kept = kept.filter(|(key, _)| set.iter().all(|(name, _)| name != key));
        let kept = kept.map(|(key, value)| format!("{key}={value}"));
        let new = set.iter().map(|(key, value)| format!("{key}={value}"));
        std::iter::once(first).chain(kept).chain(new).collect::<Vec<_>>().join(",")
    }

    /// All drives with a volume, including CD-ROM drives.
    pub fn drives(&self) -> impl Iterator<Item = Drive<'_>> {
        self.all().filter(|(key, _)| is_drive(key)).filter_map(|(key, text)| Drive::read(key, text))
    }

    /// The keys of the drives that refer directly to a file or device of the host, e.g. `/dev/sdb`.
    pub fn drives_of_the_host(&self) -> impl Iterator<Item = &str> {
        let paths = self.all().filter(|(key, _)| is_drive(key)).filter(|(key, text)| {
            Properties::of(key, text).get("file").is_some_and(|file| file.starts_with('/'))
        });
        paths.map(|(key, _)| key)
    }

    /// Whether one of the VM's drives is a physical CD-ROM drive of the host.
    pub fn has_physical_cdrom(&self) -> bool {
        let mut drives = self.all().filter(|(key, _)| is_drive(key));
        drives.any(|(key, text)| Properties::of(key, text).get("file") == Some("cdrom"))
    }

    /// The disks that a clone copies or links. CD images are not included, nor is the cloud-init drive,
    /// because Proxmox VE creates a new one.
    pub fn disks(&self) -> impl Iterator<Item = Drive<'_>> {
        self.drives().filter(|drive| !drive.is_cdrom() && !drive.is_cloud_init())
    }

    /// The volumes of all drives, e.g. `local-lvm:vm-101-disk-0`.
    pub fn volumes(&self) -> Vec<&str> {
        self.drives().map(|drive| drive.volume).collect()
    }

    /// The storages that hold the volumes of the drives and, if the VM is suspended, its saved memory.
    pub fn storages(&self) -> BTreeSet<&str> {
        let volumes = self.volumes().into_iter().chain(self.get("vmstate"));
        volumes.filter_map(|volume| Some(volume.split_once(':')?.0)).collect()
    }

    /// The disks that a backup job would include. For each disk, returns its key and its value with
    /// `backup=0` added, which excludes the disk from backups.
    pub fn drives_without_backup(&self) -> Vec<(String, String)> {
        let backed_up = |drive: &Drive| {
            !["efidisk", "tpmstate"].contains(&stem(drive.key)) && drive.parts().flag("backup") != Some(false)
        };
        let without = |text: &str| {
            let parts = text.split(',').filter(|part| !part.starts_with("backup="));
            format!("{},backup=0", parts.collect::<Vec<_>>().join(","))
        };
        let disks = self.drives().filter(|drive| !drive.is_cdrom());
        disks.filter(backed_up).map(|drive| (drive.key.to_owned(), without(drive.text))).collect()
    }

    /// A drive's size in bytes.
    pub fn drive_size(&self, drive: &str) -> Option<i64> {
        property::size(self.parts(drive).get("size")?)
    }

    /// The space that a full clone needs for all disks and for the new cloud-init drive, in bytes.
    pub fn full_clone_bytes(&self) -> i64 {
        let copied = self.drives().filter(|drive| drive.is_cloud_init() || !drive.is_cdrom());
        copied.map(|drive| drive.size().unwrap_or(drive.least_size())).fold(0, i64::saturating_add)
    }
}

/// A drive with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drive<'v> {
    /// The drive's option, e.g. `scsi0`.
    pub key: &'v str,
    /// The drive's volume, e.g. `local-lvm:vm-101-disk-0`.
    pub volume: &'v str,
    /// Its full value.
    pub text: &'v str,
}

impl<'v> Drive<'v> {
    /// The size in bytes that is assumed for a cloud-init drive, EFI disk or TPM state whose size is missing.
    const SMALL: i64 = 4 << 20;

    fn read(key: &'v str, text: &'v str) -> Option<Self> {
        let file = Properties::of(key, text).get("file")?;
        (file.contains(':') && !file.starts_with('/')).then_some(Self { key, volume: file, text })
    }

    fn parts(self) -> Properties<'v> {
        Properties::of(self.key, self.text)
    }

    /// The storage of the drive's volume.
    pub fn storage(self) -> &'v str {
        self.volume.split_once(':').map_or(self.volume, |(storage, _)| storage)
    }

    /// Whether the drive is a CD-ROM drive. This includes cloud-init drives.
    pub fn is_cdrom(self) -> bool {
        self.parts().get("media") == Some("cdrom") || self.is_cloud_init()
    }

    /// Whether the drive holds the cloud-init data. Its volume is named `vm-101-cloudinit` or, before Proxmox
    /// VE has created it, `cloudinit`.
    pub fn is_cloud_init(self) -> bool {
        let file = self.volume.rsplit([':', '/']).next().unwrap_or_default();
        let name = file.split('.').next().unwrap_or_default();
        let numbered = name.strip_prefix("vm-").and_then(|rest| rest.strip_suffix("-cloudinit"));
        name == "cloudinit" || numbered.is_some_and(|vmid| vmid.parse::<u32>().is_ok())
    }

    /// The drive's size in bytes.
    pub fn size(self) -> Option<i64> {
        property::size(self.parts().get("size")?)
    }

    fn least_size(self) -> i64 {
        let small = self.is_cloud_init() || ["efidisk", "tpmstate"].contains(&stem(self.key));
        if small { Self::SMALL } else { 0 }
    }
}

impl FromIterator<(String, String)> for VmConfig {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

/// Whether a key names a drive, such as `scsi0` but not `scsihw`.
fn is_drive(key: &str) -> bool {
    let bus = stem(key);
    bus != key && ["ide", "sata", "scsi", "virtio", "efidisk", "tpmstate"].contains(&bus)
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
    fn the_agent_can_be_enabled_in_every_spelling() {
        for (text, enabled) in [
            ("1", true),
            ("1,fstrim_cloned_disks=1", true),
            ("fstrim_cloned_disks=1,1", true),
            ("enabled=1", true),
            ("type=virtio,enabled=yes", true),
            ("on", true),
            ("0", false),
            ("fstrim_cloned_disks=1", false),
            ("enabled=0", false),
            ("enabled=off", false),
        ] {
            let config = VmConfig::read(&json!({"agent": text})).unwrap();
            assert_eq!(config.agent_enabled(), enabled, "{text}");
        }
        assert!(!VmConfig::read(&json!({})).unwrap().agent_enabled());
    }

    #[test]
    fn a_network_device_is_read_in_any_order_of_its_parts() {
        let config = VmConfig::read(&json!({
            "net0": "bridge=vmbr0,virtio=BC:24:11:00:00:01,tag=5", "net1": "bridge=vmbr0,model=e1000,macaddr=BC:24:11:00:00:02",
        }))
        .unwrap();
        let set = [("tag", "20".to_owned())];
        assert_eq!(config.net_with("net0", None, &set), "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=20");
        assert_eq!(config.net_with("net1", Some("virtio"), &[]), "virtio=BC:24:11:00:00:02,bridge=vmbr0");
        assert_eq!(config.net("net1"), (Some("e1000"), Some("BC:24:11:00:00:02")));
    }

    #[test]
    fn disks_of_every_bus_count_for_a_full_clone() {
        let config = VmConfig::read(&json!({
            "virtio0": "discard=on,local-lvm:base-9-disk-0,size=8G", "sata1": "volume=local-lvm:base-9-disk-1,size=1.5G",
            "ide0": "local-lvm:base-9-disk-2,size=512M,backup=no", "efidisk0": "local-lvm:base-9-disk-3,efitype=4m,size=4M",
            "tpmstate0": "local-lvm:base-9-disk-4,version=v2.0", "ide2": "local-lvm:vm-9-cloudinit,media=cdrom",
            "ide3": "local:iso/debian.iso,media=cdrom,size=600M", "sata2": "none,media=cdrom", "unused0": "local-lvm:vm-9-disk-5",
            "scsi1": "/dev/disk/by-id/ata-1", "scsihw": "virtio-scsi-single",
        }))
        .unwrap();
        let disks: Vec<&str> = config.disks().map(|disk| disk.key).collect();
        assert_eq!(disks, ["efidisk0", "ide0", "sata1", "tpmstate0", "virtio0"]);
        assert_eq!(config.full_clone_bytes(), (8 << 30) + (3 << 29) + (512 << 20) + 3 * (4 << 20));
        assert_eq!(config.cloudinit_drive(), Some("ide2"));
        assert_eq!(config.drives_of_the_host().collect::<Vec<_>>(), ["scsi1"]);
        let backed_up: Vec<String> = config.drives_without_backup().into_iter().map(|(key, _)| key).collect();
        assert_eq!(backed_up, ["sata1", "virtio0"]);
    }

    #[test]
    fn a_cloud_init_drive_is_known_by_its_volume() {
        for (volume, expected) in [
            ("local:cloudinit", true),
            ("local:9010/vm-9010-cloudinit.qcow2", true),
            ("zfs:vm-9010-cloudinit", true),
            ("local:iso/debian-cloudinit.iso", false),
            ("local:9010/vm-9010-disk-0.qcow2", false),
        ] {
            let config = VmConfig::read(&json!({ "ide2": format!("{volume},media=cdrom") })).unwrap();
            assert_eq!(config.cloudinit_drive().is_some(), expected, "{volume}");
        }
    }
}
