//! What cloud-init gets to read: generated from the configuration, whatever `cicustom` says.

use std::{fmt::Write, net::Ipv4Addr};

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    config::LOCK_WAIT,
    vm::{Vm, property},
};
use crate::qemu::{Seed, SeedKind};

/// Keys whose changes the drive has to be made anew for.
const KEYS: &[&str] = &["sshkeys", "searchdomain", "nameserver", "ciuser", "cipassword"];

impl Pve {
    /// What the drive is made of.
    pub(super) fn cloud_init_pending(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let rows = KEYS.iter().filter_map(|key| Some(json!({ "key": key, "value": vm.get(key)? })));
        Ok(Value::Array(rows.collect()).into())
    }

    /// Makes the drive anew.
    pub(super) async fn renew_cloud_init(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        call.who.need(&self.state(), &format!("/vms/{}", call.vmid()), &["VM.Config.Cloudinit"])?;
        let _lock = self.lock_vm(call.node(), call.vmid(), LOCK_WAIT).await?;
        self.state().vm_on(call.node(), call.vmid())?.check_lock()?;
        Ok(Value::Null.into())
    }

    pub(super) fn cloud_init_dump(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let text = match call.params.text("type").as_deref() {
            Some("user") => user(vm),
            Some("network") => network(vm),
            _ => format!("instance-id: {}\n", vm.digest()),
        };
        Ok(Value::from(text).into())
    }
}

/// What the drive of a VM holds: the layout of its `citype`, by default NoCloud.
pub(super) fn seed(vm: &Vm) -> Seed {
    let user = user(vm);
    if vm.get("citype") == Some("configdrive2") {
        let id = instance(&user, "");
        let meta = json!({ "uuid": id, "network_config": { "content_path": "/content/0000" } });
        let network = interfaces(vm);
        return Seed { kind: SeedKind::ConfigDrive, user, network, meta: meta.to_string() };
    }
    let network = network(vm);
    let meta = format!("instance-id: {}\n", instance(&user, &network));
    Seed { kind: SeedKind::NoCloud, user, network, meta }
}

/// An id that changes with what a guest is told. The real one is SHA-1.
fn instance(user: &str, network: &str) -> String {
    let hash = Sha256::new().chain_update(user).chain_update(network).finalize();
    hash.iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}

/// The network in the form of Debian's `interfaces`, as a configuration drive has it.
fn interfaces(vm: &Vm) -> String {
    let mut text = "auto lo\niface lo inet loopback\n\n".to_owned();
    for (key, config) in vm.config.iter().filter(|(key, _)| key.starts_with("ipconfig")) {
        let name = format!("eth{}", key.trim_start_matches("ipconfig"));
        text += &format!("auto {name}\n");
        match property(config, "ip") {
            Some("dhcp") => text += &format!("iface {name} inet dhcp\n"),
            Some(address) => {
                let (own, mask) = address.split_once('/').map_or((address, None), |(own, prefix)| {
                    (own, prefix.parse::<u32>().ok().and_then(|prefix| u32::MAX.checked_shl(32 - prefix)))
                });
                let mask = Ipv4Addr::from(mask.unwrap_or(0));
                text += &format!("iface {name} inet static\n        address {own}\n        netmask {mask}\n");
                if let Some(gateway) = property(config, "gw") {
                    text += &format!("        gateway {gateway}\n");
                }
            }
            None => {}
        }
    }
    text += &format!("        dns_nameservers {}\n", vm.get("nameserver").unwrap_or("10.77.0.1"));
    if let Some(domains) = vm.get("searchdomain") {
        text += &format!("        dns_search {domains}\n");
    }
    text
}

fn user(vm: &Vm) -> String {
    let name = vm.name();
    let host = name.split('.').next().unwrap_or_default();
    let domain =
        vm.get("searchdomain").and_then(|domains| domains.split(' ').next()).filter(|one| !one.is_empty());
    let fqdn = domain
        .filter(|_| !name.contains('.'))
        .map_or_else(|| name.clone(), |domain| format!("{name}.{domain}"));
    let mut text = format!("#cloud-config\nhostname: {host}\nmanage_etc_hosts: true\nfqdn: {fqdn}\n");
    let line = |text: &mut String, line: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    if let Some(user) = vm.get("ciuser") {
        line(&mut text, format_args!("user: {user}"));
    }
    let keys = percent_decode_str(vm.get("sshkeys").unwrap_or_default()).decode_utf8_lossy().into_owned();
    if !keys.trim().is_empty() {
        line(&mut text, format_args!("ssh_authorized_keys:"));
        for key in keys.lines().filter(|key| !key.trim().is_empty()) {
            line(&mut text, format_args!("  - {key}"));
        }
    }
    text.push_str("chpasswd:\n  expire: False\n");
    if vm.get("ciuser") != Some("root") {
        text.push_str("users:\n  - default\n");
    }
    if vm.get("ciupgrade") != Some("0") {
        text.push_str("package_upgrade: true\n");
    }
    text
}

fn network(vm: &Vm) -> String {
    let mut lines = vec!["version: 1".to_owned(), "config:".to_owned()];
    for (key, config) in vm.config.iter().filter(|(key, _)| key.starts_with("ipconfig")) {
        let number = key.trim_start_matches("ipconfig");
        let Some(net) = vm.get(&format!("net{number}")) else { continue };
        let mac = net.split(',').next().and_then(|model| model.split('=').nth(1)).unwrap_or_default();
        lines.push("    - type: physical".to_owned());
        lines.push(format!("      name: eth{number}"));
        lines.push(format!("      mac_address: '{}'", mac.to_lowercase()));
        lines.push("      subnets:".to_owned());
        // With no address at all the guest asks for both.
        let nothing = property(config, "ip").is_none() && property(config, "ip6").is_none();
        let config = if nothing { "ip=dhcp,ip6=dhcp" } else { config };
        for (family, gateway) in [("ip", "gw"), ("ip6", "gw6")] {
            subnet(&mut lines, family, property(config, family), property(config, gateway));
        }
    }
    // Without servers of its own the guest gets the host's.
    let servers = vm.get("nameserver").unwrap_or("10.77.0.1");
    lines.push("    - type: nameserver".to_owned());
    // Only blanks separate: with a comma or a semicolon the text is one address.
    let servers: Vec<&str> = servers.split(' ').filter(|one| !one.is_empty()).collect();
    lines.extend(servers.first().map(|_| "      address:".to_owned()));
    lines.extend(servers.iter().map(|one| format!("      - '{one}'")));
    let domains: Vec<&str> = vm.get("searchdomain").unwrap_or_default().split(' ').collect();
    if domains != [""] {
        lines.push("      search:".to_owned());
        lines.extend(domains.iter().map(|one| format!("      - '{one}'")));
    }
    lines.join("\n") + "\n"
}

fn subnet(lines: &mut Vec<String>, family: &str, address: Option<&str>, gateway: Option<&str>) {
    let Some(address) = address else { return };
    let four = family == "ip";
    match address {
        "dhcp" => return lines.push(format!("      - type: dhcp{}", if four { 4 } else { 6 })),
        "auto" => return lines.push("      - type: ipv6_slaac".to_owned()),
        _ => lines.push(format!("      - type: static{}", if four { "" } else { "6" })),
    }
    match address.split_once('/') {
        Some((own, prefix)) if four => {
            let bits =
                prefix.parse::<u32>().ok().and_then(|prefix| u32::MAX.checked_shl(32 - prefix)).unwrap_or(0);
            lines.push(format!("        address: '{own}'"));
            lines.push(format!("        netmask: '{}'", Ipv4Addr::from(bits)));
        }
        _ => lines.push(format!("        address: '{address}'")),
    }
    lines.extend(gateway.map(|gateway| format!("        gateway: '{gateway}'")));
}
