//! Named formats of values, with the error texts of the real server.

use std::collections::BTreeMap;

/// Checks a value against a named format. `name` is the name of the parameter, which some error texts repeat.
pub fn check(name: &str, text: &str, format: &str) -> Result<(), String> {
    match format {
        "dns-name" if !is_dns_name(text) => wrong("value does not look like a valid DNS name"),
        "pve-node" if !is_label(text) => wrong("value does not look like a valid node name"),
        "pve-vmid" if !is_vmid(text) => wrong("value does not look like a valid VM ID"),
        "pve-tag-list" => {
            let bad = words(text).any(|tag| !is_tag(tag));
            if bad { wrong("invalid characters in tag") } else { Ok(()) }
        }
        "urlencoded" if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-%_.!~*'()".contains(c)) => {
            wrong(&format!("invalid urlencoded string: {text}"))
        }
        "address-list" => match words(text).find(|word| !is_address(word)) {
            Some(bad) => wrong(&format!("value does not look like a valid address: {bad}")),
            None => Ok(()),
        },
        "pve-qm-ipconfig" => ipconfig(name, text),
        "pve-qm-memory" => memory(name, text),
        "pve-qm-agent" => members(name, text, "enabled", AGENT).map(|_| ()),
        "pve-qm-cpu" => cpu(text),
        "pve-disk-size" if !is_size(text) => Err("value does not match the regex pattern".to_owned()),
        "pve-qm-unused" if !text.contains(':') => {
            let inner = format!("invalid format - unable to parse volume ID '{text}'\n");
            part_error(name, "file", &inner)
        }
        _ => Ok(()),
    }
}

/// Checks a VMID in a path.
pub fn vmid(text: &str) -> Result<(), String> {
    if text.parse::<i64>().is_err() {
        return Err(format!("type check ('integer') failed - got '{text}'"));
    }
    check("vmid", text, "pve-vmid")
}

/// Returns the format of a parameter, such as a config key, whose format the schema describes only in words.
pub fn unwritten(name: &str) -> Option<&'static str> {
    Some(match name {
        "ipconfig[n]" => "pve-qm-ipconfig",
        "memory" => "pve-qm-memory",
        "agent" => "pve-qm-agent",
        "cpu" => "pve-qm-cpu",
        "nameserver" => "address-list",
        "size" => "pve-disk-size",
        "unused[n]" => "pve-qm-unused",
        _ => return None,
    })
}

const AGENT: &[&str] = &["enabled", "fstrim_cloned_disks", "freeze-fs-on-backup", "freeze-fs", "type"];
const NO_SUCH_MEMBER: &str =
    "property is not defined in schema and the schema does not allow additional properties";

fn wrong(text: &str) -> Result<(), String> {
    Err(format!("invalid format - {text}\n"))
}

fn part_error(name: &str, part: &str, text: &str) -> Result<(), String> {
    Err(format!("invalid format - format error\n{name}.{part}: {text}\n"))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ';', ' ']).filter(|word| !word.is_empty())
}

/// Whether a text may be a VM's name.
pub fn is_dns_name(text: &str) -> bool {
    !text.is_empty() && text.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn is_vmid(text: &str) -> bool {
    (3..=9).contains(&text.len()) && text.chars().all(|c| c.is_ascii_digit()) && !text.starts_with('0')
}

fn is_tag(tag: &str) -> bool {
    tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && tag.chars().all(|c| c.is_ascii_alphanumeric() || "_-+.".contains(c))
}

/// Whether a text is an IP address or a host name. `10.0.0.300` is accepted as a host name.
fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok() || is_dns_name(text)
}

fn is_size(text: &str) -> bool {
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = text.strip_suffix(['K', 'M', 'G', 'T']).unwrap_or(text);
    let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    digits.split_once('.').map_or_else(|| number(digits), |(whole, part)| number(whole) && number(part))
}

/// The members of a property string. A value without a key is assigned to the key that `default` names. If
/// `default` is empty, such a value is an error.
fn members<'t>(
    name: &str,
    text: &'t str,
    default: &'t str,
    known: &[&str],
) -> Result<BTreeMap<&'t str, &'t str>, String> {
    let mut found = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (key, value) = match part.split_once('=') {
            Some(pair) => pair,
            None if default.is_empty() => {
                return Err("invalid format - value without key, but schema does not define a default key\n"
                    .to_owned());
            }
            None => (default, part),
        };
        if !known.contains(&key) {
            return Err(format!("invalid format - format error\n{name}.{key}: {NO_SUCH_MEMBER}\n"));
        }
        found.insert(key, value);
    }
    Ok(found)
}

/// Checks `ip=dhcp|CIDR[,gw=]…`. An address needs a prefix length, and a gateway needs an address. Whether
/// the gateway is in the network is not checked.
fn ipconfig(name: &str, text: &str) -> Result<(), String> {
    let seen = members(name, text, "", &["ip", "gw", "ip6", "gw6"])?;
    for (key, value) in &seen {
        let (good, what) = match *key {
            "ip" => (
                *value == "dhcp" || is_cidr::<std::net::Ipv4Addr>(value, 32),
                "valid ipv4 network configuration",
            ),
            "ip6" => {
                let good = ["dhcp", "auto"].contains(value) || is_cidr::<std::net::Ipv6Addr>(value, 128);
                (good, "valid ipv6 network configuration")
            }
            "gw" => (value.parse::<std::net::Ipv4Addr>().is_ok(), "valid IPv4 address"),
            _ => (value.parse::<std::net::Ipv6Addr>().is_ok(), "valid IPv6 address"),
        };
        if !good {
            return part_error(name, key, &format!("invalid format - value does not look like a {what}\n"));
        }
    }
    for (gateway, address) in [("gw", "ip"), ("gw6", "ip6")] {
        if seen.contains_key(gateway) && !seen.contains_key(address) {
            return part_error(name, address, &format!("missing property required by '{name}.{gateway}'"));
        }
    }
    Ok(())
}

fn is_cidr<A: std::str::FromStr>(text: &str, most: u8) -> bool {
    text.split_once('/').is_some_and(|(address, prefix)| {
        address.parse::<A>().is_ok() && prefix.parse::<u8>().is_ok_and(|p| p <= most)
    })
}

fn memory(name: &str, text: &str) -> Result<(), String> {
    let current = text.strip_prefix("current=").unwrap_or(text);
    match current.parse::<i64>() {
        Err(_) => part_error(name, "current", &format!("type check ('integer') failed - got '{current}'")),
        Ok(number) if number < 16 => part_error(name, "current", "value must have a minimum value of 16"),
        Ok(_) => Ok(()),
    }
}

/// Checks that a CPU type is one of the built-in types. The cluster has no custom ones.
fn cpu(text: &str) -> Result<(), String> {
    let kind = text.split(',').next().unwrap_or_default();
    let kind = kind.strip_prefix("cputype=").unwrap_or(kind);
    if let Some(custom) = kind.strip_prefix("custom-") {
        return wrong(&format!("Custom cputype '{custom}' not found"));
    }
    let families = [
        "host",
        "max",
        "kvm",
        "qemu",
        "x86-64-",
        "EPYC",
        "Skylake",
        "Icelake",
        "Cascadelake",
        "Haswell",
        "Broadwell",
        "Opteron",
    ];
    if families.iter().any(|family| kind.starts_with(family)) {
        return Ok(());
    }
    wrong(&format!("Built-in cputype '{kind}' is not defined (missing 'custom-' prefix?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipconfig_wants_a_prefix_and_an_address_for_a_gateway() {
        for (text, good) in [
            ("ip=10.0.0.7/24,gw=10.0.0.1", true),
            ("ip=dhcp,gw=10.0.0.1", true),
            ("ip=10.0.0.7/24,gw=192.168.0.1", true),
            ("ip=10.0.0.7", false),
            ("ip=10.0.0.300/24", false),
            ("ip=10.0.0.7/33", false),
            ("gw=10.0.0.1", false),
        ] {
            assert_eq!(check("ipconfig0", text, "pve-qm-ipconfig").is_ok(), good, "{text}");
        }
    }

    #[test]
    fn names_follow_dns_rules() {
        for (name, good) in [
            ("k8s-w-1", true),
            ("123", true),
            ("A.b", true),
            ("a_b", false),
            ("-a", false),
            ("a..b", false),
            ("", false),
        ] {
            assert_eq!(is_dns_name(name), good, "{name}");
        }
    }

    #[test]
    fn sizes_and_ids_are_told_from_what_looks_like_them() {
        for (text, good) in
            [("4G", true), ("+1.5T", true), ("4096", true), ("4X", false), ("G", false), ("", false)]
        {
            assert_eq!(check("size", text, "pve-disk-size").is_ok(), good, "{text}");
        }
        for (text, good) in
            [("100", true), ("999999999", true), ("99", false), ("0181", false), ("1000000000", false)]
        {
            assert_eq!(check("vmid", text, "pve-vmid").is_ok(), good, "{text}");
        }
    }
}
