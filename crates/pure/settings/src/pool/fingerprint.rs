//! The settings of a pool that cannot be changed on an existing machine. If a value in a machine's record
//! differs from the pool's, the machine has drifted and can only be replaced. Settings are left out if they
//! can be changed on a running node (labels, taints, tags), control the number or the placement of machines,
//! or are only used later (such as `drain`).
//!
//! If a setting is added to this list later, existing machines do not drift, because their records do not
//! contain it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Addressing, CloneKind, CloudInit, Device, Family, Pinning, Pool, Security, Size};
use model::quantity;

impl Size {
    /// The size in words, e.g. `4 cores and 8Gi`.
    pub fn words(&self) -> String {
        format!("{} cores and {}", self.cores, quantity::binary(self.memory))
    }
}

impl Pool {
    /// Returns the settings that cannot be changed on an existing machine, by name. Size and template are
    /// left out, because a pool may have several of each. Bare-metal machines have no such settings.
    pub fn made_of(&self) -> BTreeMap<String, String> {
        if self.is_physical() {
            return BTreeMap::new();
        }
        let list = |items: Vec<String>| items.join(" ");
        let set = |value: Option<String>| value.unwrap_or_else(|| "as in the template".to_owned());
        let clone = match self.clone {
            CloneKind::Linked => "linked",
            CloneKind::Full => "full",
        };
        let disk = self.disk.as_ref().map(|disk| format!("{} {}", disk.device, quantity::binary(disk.bytes)));
        let arguments = self.kubelet_args.iter().map(|(key, value)| format!("{key}={value}"));
        let first = self.devices.first();
        let extra =
            self.extra_disks.iter().map(|disk| format!("{} {}Gi {}", disk.device, disk.gib, disk.storage));
        let options = self.vm_options.iter().map(|(key, value)| format!("{key}={value}"));
        let all = [
            ("boot", self.boot.name().to_owned()),
            ("clone", clone.to_owned()),
            ("storage", set((!self.storages.is_empty()).then(|| self.storages.join(" ")))),
            ("extra_disks", list(extra.collect())),
            ("vm_options", list(options.collect())),
            ("disk", set(disk)),
            ("bridge", set(first.and_then(|device| device.bridge.clone()))),
            ("vlan", set(first.and_then(|device| device.vlan).map(|vlan| vlan.to_string()))),
            ("devices", devices(&self.devices)),
            ("pci", super::pci::devices_text(&self.pci)),
            ("grow", self.grow.as_ref().map(super::Grow::words).unwrap_or_default()),
            ("user", set(self.user.clone())),
            // SSH keys are long, and a record must stay small, so it contains only a digest of them.
            ("ssh_keys", set((!self.ssh_keys.is_empty()).then(|| digest(&self.ssh_keys)))),
            ("cloud_init", cloud_init(&self.cloud_init)),
            ("network", network(&self.addressing)),
            ("max_pods", self.max_pods.map_or_else(|| "110".to_owned(), |most| most.to_string())),
            ("kubelet_args", list(arguments.collect())),
            ("kubelet", self.kubelet.words()),
            ("provider_id", self.provider_id.clone().unwrap_or_default()),
            ("security", set(self.security.as_ref().map(security))),
            ("pinning", set(self.pinning.as_ref().map(pinning))),
        ];
        all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// The pinning settings in words. `reserve` is left out, because it does not affect a machine.
fn pinning(pinning: &Pinning) -> String {
    let numa = if pinning.numa { " numa" } else { "" };
    format!(
        "dedicated{numa}{}",
        pinning.hugepages.map(|page| format!(" {}", page.name())).unwrap_or_default()
    )
}

/// The firewall settings in words.
fn security(security: &Security) -> String {
    let filter = |on: bool, name: &str| if on { format!(" {name}") } else { String::new() };
    format!(
        "in {} out {}{}{} {}",
        security.policy_in.word(),
        security.policy_out.word(),
        filter(security.ip_filter, "own addresses"),
        filter(security.mac_filter, "own MAC"),
        security.groups.join(" ")
    )
}

/// The network devices in words, without the bridge and VLAN of the first device; `as in the template` if
/// nothing else is set.
fn devices(devices: &[Device]) -> String {
    let family = |family: &Family| match family {
        Family::None => "none".to_owned(),
        Family::Dhcp => "dhcp".to_owned(),
        Family::Auto => "auto".to_owned(),
        Family::Static { prefix, gateway, .. } => match gateway {
            Some(gateway) => format!("/{prefix} gateway {gateway}"),
            None => format!("/{prefix}"),
        },
    };
    let plain = |device: &Device| Device { bridge: None, vlan: None, ..device.clone() } == Device::default();
    if devices.len() < 2 && devices.iter().all(plain) {
        return "as in the template".to_owned();
    }
    let number = |number: Option<u16>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let words = devices.iter().enumerate().map(|(at, device)| {
        // Bridge and VLAN of the first device are listed separately.
        let (bridge, vlan) = if at == 0 { (None, None) } else { (device.bridge.as_deref(), device.vlan) };
        format!(
            "net{at}: {} vlan {} mtu {} {} firewall {} ip {} ip6 {}",
            bridge.unwrap_or("-"),
            number(vlan),
            number(device.mtu),
            device.model.map_or("-", super::DeviceModel::name),
            device.firewall.map_or("-", |on| if on { "on" } else { "off" }),
            family(&device.four),
            family(&device.six),
        )
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The cloud-init settings in words: `drive`, or `seed STORAGE DIGEST`.
fn cloud_init(cloud_init: &CloudInit) -> String {
    let CloudInit::Seed(seed) = cloud_init else { return "drive".to_owned() };
    let network = seed.network_config.clone().unwrap_or_default();
    let texts = digest(&[seed.user_data.clone(), seed.meta_data.clone(), network]);
    format!("seed {} {texts}", seed.storage)
}

/// The network settings that all machines of the pool share, in words. Addresses are left out.
fn network(addressing: &Addressing) -> String {
    let Addressing::Static { prefix, gateway, dns, search, .. } = addressing else {
        return "dhcp".to_owned();
    };
    let mut words = format!("/{prefix}");
    if let Some(gateway) = gateway {
        let _ = write!(words, " gateway {gateway}");
    }
    for server in dns {
        let _ = write!(words, " dns {server}");
    }
    if let Some(search) = search {
        let _ = write!(words, " search {search}");
    }
    words
}

/// Returns the FNV-1a hash of a list, as sixteen hexadecimal digits. The hash tells lists apart, but does not
/// hide their contents.
pub(super) fn digest(list: &[String]) -> String {
    let bytes = list.iter().flat_map(|one| one.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    #[test]
    fn what_makes_a_machine_is_told_apart_from_what_does_not() {
        let made_of = |more: &str| {
            let text = format!("[[pool]]\nname = \"w\"\nmax = 3\ncores = 2\nmemory = \"2GiB\"\n{more}");
            parse("c.toml", &text, Needs::Plan).unwrap().pools[0].made_of()
        };
        let plain = made_of("");
        for same in [
            "min = 1\n",
            "labels = { a = \"b\" }\n",
            "taints = [\"a=b:NoSchedule\"]\n",
            "tags = [\"x\"]\n",
            "priority = 3\n",
            "max_pods = 110\n",
            "max_node_age = \"720h\"\n",
        ] {
            assert_eq!(made_of(same), plain, "{same}");
        }
        for (other, key) in [
            ("clone = \"full\"\n", "clone"),
            ("clone = \"full\"\nstorage = \"lvm\"\n", "storage"),
            ("disk = \"40GiB\"\n", "disk"),
            ("bridge = \"vmbr1\"\n", "bridge"),
            ("vlan = 7\n", "vlan"),
            ("user = \"admin\"\n", "user"),
            ("max_pods = 50\n", "max_pods"),
            ("kubelet_args = { v = 2 }\n", "kubelet_args"),
            ("[pool.kubelet]\nserverTLSBootstrap = true\n", "kubelet"),
            ("[pool.pinning]\ncpus = \"dedicated\"\n", "pinning"),
        ] {
            assert_ne!(made_of(other).get(key), plain.get(key), "{other}");
        }
    }
}
