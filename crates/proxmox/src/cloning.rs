//! The rights that a token needs to clone a VM. `clone_vm` in qemu-server checks rights on the VM's storages,
//! resource mappings, networks and CPU model. The rights are required even if these parts are replaced in the
//! clone later.

use super::property::{Properties, stem};
use super::vm_config::VmConfig;

/// A required right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedFor {
    /// The path, e.g. `/mapping/pci/gpu`.
    pub path: String,
    /// The privilege, e.g. `Mapping.Use`.
    pub privilege: &'static str,
}

fn asked(path: String, privilege: &'static str) -> AskedFor {
    AskedFor { path, privilege }
}

/// A network device with its bridge and VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnBridge<'v> {
    /// The option of the device, e.g. `net0`.
    pub device: &'v str,
    /// The bridge.
    pub bridge: &'v str,
    /// The device's VLANs. For a device without VLANs, the only entry is `None`, which stands for the entire
    /// bridge.
    pub vlans: Vec<Option<u16>>,
}

/// Whether this release of Proxmox VE requires a right on each custom CPU model. Before 9.2, `Sys.Audit` on
/// `/nodes` is enough for all models.
pub fn asks_for_cpu_models(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (9, 2)
}

/// Returns the right that an option with this value requires, if any, e.g. a right on a resource mapping or a
/// custom CPU model.
pub fn asked_by(version: &str, option: &str, value: &str) -> Option<AskedFor> {
    let parts = Properties::of(option, value);
    let path = match stem(option) {
        "hostpci" => format!("/mapping/pci/{}", parts.get("mapping")?),
        "usb" => format!("/mapping/usb/{}", parts.get("mapping")?),
        "virtiofs" => format!("/mapping/dir/{}", parts.get("dirid")?),
        "rng" if parts.get("source") == Some("/dev/hwrng") => "/mapping/hwrng".to_owned(),
        "cpu" => {
            let model = parts.get("cputype")?.strip_prefix("custom-")?;
            if !asks_for_cpu_models(version) {
                return Some(asked("/nodes".to_owned(), "Sys.Audit"));
            }
            format!("/mapping/cpu/{model}")
        }
        "vmstatestorage" => return Some(asked(format!("/storage/{value}"), "Datastore.AllocateSpace")),
        _ => return None,
    };
    Some(asked(path, "Mapping.Use"))
}

impl VmConfig {
    /// The rights that cloning the VM requires, apart from those on its networks and on the storages of its
    /// disks.
    pub fn asked_when_cloned(&self, version: &str) -> Vec<AskedFor> {
        let mut all: Vec<AskedFor> =
            self.all().filter_map(|(option, value)| asked_by(version, option, value)).collect();
        if self.has_physical_cdrom() {
            all.push(asked("/".to_owned(), "Sys.Console"));
        }
        all
    }

    /// The VM's network devices that are attached to a bridge. Cloning requires a right on each bridge, for
    /// each VLAN.
    pub fn bridges(&self) -> Vec<OnBridge<'_>> {
        let devices = self.all().map(|(key, _)| key).filter(|key| stem(key) == "net");
        let read = |device| {
            let parts = self.parts(device);
            let tag = parts.get("tag").and_then(|tag| tag.parse().ok());
            let trunks = parts.get("trunks").into_iter().flat_map(vlans);
            let mut vlans: Vec<Option<u16>> = tag.into_iter().chain(trunks).map(Some).collect();
            if vlans.is_empty() {
                vlans.push(None);
            }
            Some(OnBridge { device, bridge: parts.get("bridge")?, vlans })
        };
        devices.filter_map(read).collect()
    }
}

/// The VLANs in a list such as `2;5-7`.
fn vlans(text: &str) -> Vec<u16> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(';').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bridge_is_asked_for_with_its_vlans() {
        let vm: VmConfig = [
            ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
            ("net1", "bridge=vmbr7,tag=40,virtio=BC:24:11:00:00:02"),
            ("net2", "virtio=BC:24:11:00:00:03,bridge=vmbr8,tag=4,trunks=2;5-6"),
            ("net3", "virtio=BC:24:11:00:00:04"),
            ("nameserver", "10.0.0.1"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into_iter()
        .collect();
        let found: Vec<_> = vm.bridges().into_iter().map(|one| (one.device, one.bridge, one.vlans)).collect();
        let expected = [
            ("net0", "vmbr0", vec![None]),
            ("net1", "vmbr7", vec![Some(40)]),
            ("net2", "vmbr8", vec![Some(4), Some(2), Some(5), Some(6)]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn rights_are_found_whatever_the_order_of_parts() {
        for (option, value, path) in [
            ("hostpci0", "pcie=1,mapping=gpu", Some("/mapping/pci/gpu")),
            ("usb1", "mapping=stick,usb3=1", Some("/mapping/usb/stick")),
            ("usb0", "spice", None),
            ("virtiofs0", "share,cache=auto", Some("/mapping/dir/share")),
            ("virtiofs0", "cache=auto,dirid=share", Some("/mapping/dir/share")),
            ("rng0", "/dev/hwrng", Some("/mapping/hwrng")),
            ("rng0", "max_bytes=1024,source=/dev/hwrng", Some("/mapping/hwrng")),
            ("rng0", "source=/dev/urandom", None),
            ("cpu", "flags=+aes,custom-big", Some("/mapping/cpu/big")),
            ("cpu", "host", None),
            ("vmstatestorage", "local", Some("/storage/local")),
            ("net0", "virtio", None),
        ] {
            let found = asked_by("9.2.11", option, value).map(|one| one.path);
            assert_eq!(found.as_deref(), path, "{option}: {value}");
        }
        assert_eq!(asked_by("8.4.21", "cpu", "custom-big").map(|one| one.path).as_deref(), Some("/nodes"));
    }
}
