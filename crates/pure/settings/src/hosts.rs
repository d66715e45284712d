//! `[[host]]`: the settings of one Proxmox VE host. Hosts that are not listed use the defaults.

use std::collections::BTreeMap;
use std::ops::Range;

use model::HostKey;
use serde::Deserialize;
use toml::Spanned;

use super::host_power::{Power, Systems, Way, WrittenRedfish};
use super::name_rules;
use super::region::Regions;
use super::values::Checker;

/// A checked `[[host]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// The value of `{{ zone }}` in labels; `None`: the host's name.
    pub zone: Option<String>,
    /// Whether the host is closed to new machines.
    pub closed: bool,
    /// The number of CPU threads that stay free. They are subtracted before `cpu_overcommit` is applied.
    pub cpu_reserve: u32,
    /// Memory in bytes that stays free; `None`: the pool's `memory_reserve`.
    pub memory_reserve: Option<i64>,
    /// How the host is switched on again after it was shut down as unneeded; `None`: it is never shut down.
    pub power: Option<Power>,
}

/// A `[[host]]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: Spanned<String>,
    region: Option<Spanned<String>>,
    zone: Option<Spanned<String>>,
    #[serde(default)]
    closed: bool,
    #[serde(default)]
    cpu_reserve: u32,
    memory_reserve: Option<Spanned<String>>,
    power: Option<Spanned<Way>>,
    redfish: Option<Spanned<WrittenRedfish>>,
}

impl Written {
    /// Returns how the host is switched on; `None` if it is never switched off. Reports a `[host.redfish]`
    /// that has no effect.
    fn power(&self, checker: &mut Checker) -> Option<Power> {
        let name = self.name.get_ref();
        let redfish = self.redfish.as_ref().map(|table| (table, WrittenRedfish::check(table, checker)));
        match (self.power.as_ref().map(|way| (way, *way.get_ref())), redfish) {
            (Some((_, Way::Redfish)), Some((_, redfish))) => Some(Power::Redfish(Box::new(redfish?))),
            (Some((way, Way::Redfish)), None) => {
                let title = format!("`power` of host `{name}` needs a `[host.redfish]` table");
                checker.wrong(
                    title,
                    way.span(),
                    "needs a management controller",
                    "add a `[host.redfish]` table below this `[[host]]`",
                );
                None
            }
            (way, Some((table, _))) => {
                let title = format!("`[host.redfish]` of host `{name}` is not used");
                checker.wrong(title, table.span(), "used only with `power = \"redfish\"`", "");
                way.map(|_| Power::WakeOnLan)
            }
            (way, None) => way.map(|_| Power::WakeOnLan),
        }
    }
}

/// Checks all `[[host]]` tables, and returns the settings of each host.
pub(super) fn check(
    hosts: &[Written],
    regions: &Regions,
    checker: &mut Checker,
) -> BTreeMap<HostKey, HostSettings> {
    let mut seen: BTreeMap<String, Range<usize>> = BTreeMap::new();
    let mut checked = BTreeMap::new();
    let mut systems = Systems::default();
    for host in hosts {
        let name = host.name.get_ref();
        if !name_rules::is_label(&name.to_ascii_lowercase()) {
            let help = "use the host's name in Proxmox VE, not its address";
            let title = format!("`{name}` is not a valid host name");
            checker.wrong(title, host.name.span(), "expected e.g. \"pve1\"", help);
        }
        let place = regions.place(&format!("host `{name}`"), host.region.as_ref(), host.name.span(), checker);
        let key = HostKey::new(&place.prefix, name);
        if let Some(first) = seen.insert(key.to_string(), host.name.span()) {
            let help = "put all settings of a host into one table";
            let title = format!("two tables for the host `{name}`");
            checker.clash(title, host.name.span(), "second", first, help);
        }
        let zone = checker.named(
            host.zone.as_ref(),
            name_rules::is_word,
            |text| format!("host `{name}`: `{text}` is not a valid zone name"),
            "expected at most 63 letters, digits, `-`, `_` and `.`: the name is used as a label value",
        );
        let memory_reserve = host
            .memory_reserve
            .as_ref()
            .map(|size| checker.size(&format!("host `{name}`: `memory_reserve`"), size));
        let power = host.power(checker);
        if let (Some(Power::Redfish(redfish)), Some(table)) = (&power, &host.redfish) {
            systems.claim(format!("host `{key}`"), redfish, table.span(), checker);
        }
        let settings =
            HostSettings { zone, closed: host.closed, cpu_reserve: host.cpu_reserve, memory_reserve, power };
        checked.insert(key, settings);
    }
    checked
}

#[cfg(test)]
mod tests {
    use model::Vmid;

    use crate::{Needs, parse};

    const CONTROLLER: &str = "power = \"redfish\"\n[host.redfish]\nendpoint = \"https://10.0.0.13\"\n\
                              user = \"power\"\npassword_file = \"/x\"\nca = \"system\"\n";

    #[test]
    fn what_is_wrong_with_a_host_is_said() {
        for (text, expected) in [
            ("name = \"10.0.0.1\"", "`10.0.0.1` is not a valid host name"),
            ("name = \"a\"\nzone = \"-x\"", "host `a`: `-x` is not a valid zone name"),
            ("name = \"a\"\nmemory_reserve = \"x\"", "host `a`: `memory_reserve` is not a size"),
            ("name = \"a\"\n[[host]]\nname = \"a\"", "two tables for the host `a`"),
            (
                &format!("name = \"a\"\n{CONTROLLER}[[host]]\nname = \"b\"\n{CONTROLLER}"),
                "host `b` uses the same Redfish system as host `a`",
            ),
        ] {
            let report = parse("c.toml", &format!("[[host]]\n{text}\n"), Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }

    #[test]
    fn a_label_gets_the_zone_of_its_host_or_the_hosts_own_name() {
        let text = "[[host]]\nname = \"pve1\"\nzone = \"rack-a\"\n[[pool]]\nname = \"w\"\nmax = 1\ncores = 1\n\
                    memory = \"1GiB\"\nlabels = { zone = \"{{ zone }}\" }\n";
        let config = parse("c.toml", text, Needs::Plan).unwrap();
        let zone = |host: &str| config.pools[0].labels_for(host, "w-1", Vmid(100))["zone"].clone();
        assert_eq!((zone("pve1"), zone("pve2")), ("rack-a".to_owned(), "pve2".to_owned()));
    }
}
