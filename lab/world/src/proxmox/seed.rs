//! The content of a real VM's cloud-init drive, in the layout of its `citype`.

use std::net::Ipv4Addr;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    cloudinit::{network, user},
    vm::{Vm, property},
};
use crate::qemu::{Seed, SeedKind};

/// Returns the drive's files, in the NoCloud layout unless the configuration says otherwise.
pub(super) fn seed(vm: &Vm) -> Seed {
    let user = user(vm);
    if vm.get("citype") == Some("configdrive2") {
        let network = interfaces(vm);
        let id = instance(&user, &network);
        let meta = json!({ "uuid": id, "network_config": { "content_path": "/content/0000" } });
        return Seed { kind: SeedKind::ConfigDrive, user, network, meta: meta.to_string() };
    }
    let network = network(vm);
    let meta = format!("instance-id: {}\n", instance(&user, &network));
    Seed { kind: SeedKind::NoCloud, user, network, meta }
}

/// Returns an instance id that changes with the user and network data. Proxmox VE uses a SHA-1 hash for this.
fn instance(user: &str, network: &str) -> String {
    let hash = Sha256::new().chain_update(user).chain_update(network).finalize();
    let digits: Vec<String> = hash.iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// Returns the network configuration in the format of Debian's `interfaces` file.
fn interfaces(vm: &Vm) -> String {
    let mut lines = vec!["auto lo".to_owned(), "iface lo inet loopback".to_owned(), String::new()];
    for (key, config) in vm.config.iter().filter(|(key, _)| key.starts_with("ipconfig")) {
        let name = format!("eth{}", key.trim_start_matches("ipconfig"));
        lines.push(format!("auto {name}"));
        match property(config, "ip") {
            Some("dhcp") => lines.push(format!("iface {name} inet dhcp")),
            Some(address) => {
                let (own, prefix) = address.split_once('/').unwrap_or((address, "32"));
                let bits = prefix.parse::<u32>().ok().and_then(|prefix| u32::MAX.checked_shl(32 - prefix));
                lines.push(format!("iface {name} inet static"));
                lines.push(format!("        address {own}"));
                lines.push(format!("        netmask {}", Ipv4Addr::from(bits.unwrap_or(0))));
                lines.extend(property(config, "gw").map(|gateway| format!("        gateway {gateway}")));
            }
            None => {}
        }
    }
    lines.push(format!("        dns_nameservers {}", vm.get("nameserver").unwrap_or("10.77.0.1")));
    lines.extend(vm.get("searchdomain").map(|domains| format!("        dns_search {domains}")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{guest::GuestFaults, proxmox::spec::VmSpec};

    fn vm(more: &[(&str, &str)]) -> Vm {
        let mut config = VmSpec::machine(9101, "pve1", "w-1").config;
        config.insert("ipconfig0".into(), "ip=10.0.0.5/24,gw=10.0.0.1".into());
        config.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        Vm::new(9101, "pve1", config, GuestFaults::default())
    }

    #[test]
    fn each_layout_has_its_own_files() {
        let plain = seed(&vm(&[]));
        assert_eq!(plain.kind, SeedKind::NoCloud);
        assert!(plain.network.starts_with("version: 1") && plain.meta.starts_with("instance-id: "));
        let drive = seed(&vm(&[("citype", "configdrive2")]));
        assert_eq!(drive.kind, SeedKind::ConfigDrive);
        assert_eq!(drive.user, plain.user);
        assert!(drive.meta.contains("\"/content/0000\""), "{}", drive.meta);
        let expected = "auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet static\n        address 10.0.0.5\n        \
                        netmask 255.255.255.0\n        gateway 10.0.0.1\n        dns_nameservers 10.77.0.1\n";
        assert_eq!(drive.network, expected);
    }

    #[test]
    fn another_address_is_another_instance() {
        let other = vm(&[("ipconfig0", "ip=10.0.0.6/24,gw=10.0.0.1")]);
        assert_ne!(seed(&vm(&[])).meta, seed(&other).meta);
    }
}
