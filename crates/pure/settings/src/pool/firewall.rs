//! `[pool.security]`: Proxmox VE's firewall for a pool's machines.

use serde::Deserialize;
use toml::Spanned;

use super::{Addressing, Device, Family, Written as Pool};
use crate::values::Checker;

/// What happens to packets that match no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Packets that match no rule pass.
    Accept,
    /// Packets that match no rule are rejected, and the sender is notified.
    Reject,
    /// Packets that match no rule are dropped.
    Drop,
}

impl Policy {
    /// The policy's name in Proxmox VE.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accept => "ACCEPT",
            Self::Reject => "REJECT",
            Self::Drop => "DROP",
        }
    }
}

/// Checked `[pool.security]`, which enables the firewall of each machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security {
    /// What happens to incoming packets that match no rule.
    pub policy_in: Policy,
    /// What happens to outgoing packets that match no rule.
    pub policy_out: Policy,
    /// Security groups of the datacenter. Their rules apply, in this order, before the template's own rules.
    pub groups: Vec<String>,
    /// Whether packets sent from the first device must have one of the machine's own addresses as their
    /// source.
    pub ip_filter: bool,
    /// Whether packets sent from a device must have the device's own MAC address as their source.
    pub mac_filter: bool,
}

/// `[pool.security]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    policy_in: Option<Policy>,
    policy_out: Option<Policy>,
    #[serde(default)]
    groups: Vec<Spanned<String>>,
    ip_filter: Option<Spanned<bool>>,
    mac_filter: Option<bool>,
}

/// Returns the checked table. Enables the firewall on each device that does not set `firewall`, because
/// Proxmox VE only filters devices with the firewall enabled.
pub(super) fn check(
    pool: &Pool,
    addressing: &Addressing,
    devices: &mut [Device],
    checker: &mut Checker,
) -> Option<Security> {
    let written = pool.security.as_ref()?;
    let name = pool.name.get_ref();
    let table = written.get_ref();
    for group in table.groups.iter().filter(|group| !is_group(group.get_ref())) {
        let title = format!("pool `{name}`: `{}` is not a valid security group name", group.get_ref());
        checker.wrong(
            title,
            group.span(),
            "expected 2 to 18 characters: letters, digits, `-` and `_`, starting with a letter",
            "",
        );
    }
    for device in devices.iter_mut() {
        if device.firewall.is_none() {
            device.firewall = Some(true);
        }
    }
    let first = devices.first();
    if first.is_some_and(|device| device.firewall == Some(false)) {
        let title = format!("pool `{name}`: the firewall is off for the first network device");
        let help = "remove `firewall = false`, or the `[pool.security]` table";
        checker.wrong(title, written.span(), "this table would have no effect", help);
    }
    let ip_filter = table.ip_filter.as_ref().is_some_and(|on| *on.get_ref());
    let unknown = matches!(addressing, Addressing::Dhcp)
        || first.is_some_and(|device| {
            [&device.four, &device.six]
                .into_iter()
                .any(|family| matches!(family, Family::Dhcp | Family::Auto))
        });
    if let Some(at) = table.ip_filter.as_ref().filter(|_| ip_filter && unknown) {
        let title = format!("pool `{name}`: `ip_filter` needs known addresses");
        let help = "set `addresses` (and `addresses6`) to ranges, or remove `ip_filter`";
        checker.wrong(title, at.span(), "the machine could not use the address that is assigned to it", help);
    }
    Some(Security {
        policy_in: table.policy_in.unwrap_or(Policy::Drop),
        policy_out: table.policy_out.unwrap_or(Policy::Accept),
        groups: table.groups.iter().map(|group| group.get_ref().clone()).collect(),
        ip_filter,
        mac_filter: table.mac_filter.unwrap_or(true),
    })
}

/// Whether the text is a valid security group name (`pve-security-group-name`).
fn is_group(text: &str) -> bool {
    (2..=18).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}
