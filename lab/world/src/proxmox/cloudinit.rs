//! The files that cloud-init reads. They are generated from the configuration; `cicustom` is ignored.

use std::{fmt::Write, net::Ipv4Addr};

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    config::LOCK_WAIT,
    vm::{Vm, property},
};

/// Configuration keys whose changes require a new cloud-init drive.
const KEYS: &[&str] = &["sshkeys", "searchdomain", "nameserver", "ciuser", "cipassword"];

impl Pve {
    /// Returns the settings that the cloud-init drive is made from.
    pub(super) fn cloud_init_pending(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let rows = KEYS.iter().filter_map(|key| Some(json!({ "key": key, "value": vm.get(key)? })));
        Ok(Value::Array(rows.collect()).into())
    }

    /// Regenerates the cloud-init drive.
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

pub(super) fn user(vm: &Vm) -> String {
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

pub(super) fn network(vm: &Vm) -> String {
    let mut lines = vec!["version: 1".to_owned(), "config:".to_owned()];
    for (key, config) in vm.config.iter().filter(|(key, _)| key.starts_with("ipconfig")) {
        let number = key.trim_start_matches("ipconfig");
        let Some(net) = vm.get(&format!("net{number}")) else { continue };
        let mac = net.split(',').next().and_then(|model| model.split('=').nth(1)).unwrap_or_default();
        lines.push("    - type: physical".to_owned());
        lines.push(format!("      name: eth{number}"));
        lines.push(format!("      mac_address: '{}'", mac.to_lowercase()));
        lines.push("      subnets:".to_owned());
        // A guest without any address requests IPv4 and IPv6 addresses by DHCP.
        let nothing = property(config, "ip").is_none() && property(config, "ip6").is_none();
        let config = if nothing { "ip=dhcp,ip6=dhcp" } else { config };
        for (family, gateway) in [("ip", "gw"), ("ip6", "gw6")] {
            subnet(&mut lines, family, property(config, family), property(config, gateway));
        }
    }
    // A guest without name servers of its own uses the host's.
    let servers = vm.get("nameserver").unwrap_or("10.77.0.1");
    lines.push("    - type: nameserver".to_owned());
    // Only spaces separate addresses. A text with a comma or a semicolon is one address.
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
