//! `[[pool.machine]]`: bare-metal machines, which are switched on and off instead of being created.
//!
//! * All machines of a pool have the pool's `cores` and `memory`. A machine with another size needs another
//!   pool.
//! * A machine's number takes the place of a VMID. It is derived from the name alone, so the order in the
//!   file does not matter, and it is greater than any VMID.
//! * Each system of a management controller belongs to only one machine or host.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::conflicts::Claim;
use super::{CloneKind, Placement, Written as Pool, ZoneLabels, slots};
use crate::bootstrap::{Bootstrap, BootstrapMethod};
use crate::host_power::{Redfish, Systems, WrittenRedfish};
use crate::hosts::HostSettings;
use crate::name_rules;
use crate::values::Checker;
use model::{HostKey, Slot, Vmid};

/// A bare-metal machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalMachine {
    /// The machine's name, which is also the name of its Node.
    pub name: String,
    /// The machine's address, which is needed to approve its serving certificate.
    pub address: Option<IpAddr>,
    /// Whether the daemon never switches the machine on.
    pub closed: bool,
    /// Its management controller.
    pub redfish: Redfish,
}

impl PhysicalMachine {
    /// The number that takes the place of a VMID.
    pub fn number(&self) -> Vmid {
        number(&self.name)
    }

    /// Its slot.
    pub(super) fn slot(&self) -> Slot {
        let machine = Some(self.name.clone());
        Slot { vmid: self.number(), address: self.address, machine, ..Slot::default() }
    }
}

/// Returns the FNV-1a hash of the name, shifted above all VMIDs.
fn number(name: &str) -> Vmid {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Vmid::of_bare_metal(hash)
}

/// A `[[pool.machine]]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: Spanned<String>,
    address: Option<Spanned<String>>,
    #[serde(default)]
    closed: bool,
    redfish: Spanned<WrittenRedfish>,
}

/// Returns the bootstrap of bare-metal machines, which join by themselves.
pub(super) fn bootstrap() -> Bootstrap {
    Bootstrap { method: BootstrapMethod::None, accept_degraded: false, probe_port: None }
}

pub(super) fn check(pool: &Pool, checker: &mut Checker) -> Vec<PhysicalMachine> {
    let Some(first) = pool.machine.first() else { return Vec::new() };
    let name = pool.name.get_ref();
    for (key, at) in pool.of_vms() {
        let title = format!("pool `{name}`: `{key}` has no effect for bare-metal machines");
        checker.clash(title, at, "not used", first.name.span(), "it applies only to VMs: remove it");
    }
    if let Some((key, value)) = pool.labels.iter().chain(&pool.annotations).find(|(_, value)| {
        ["host", "zone", "vmid"].iter().any(|fact| super::labels::uses(value.get_ref(), &[fact]))
    }) {
        let title = format!("pool `{name}`: `{}` uses a variable that only VMs have", key.get_ref());
        let help = "bare-metal machines have only `{{ name }}` and `{{ pool }}`";
        checker.wrong(title, value.span(), "not known", help);
    }
    let (max, count) = (*pool.max.get_ref(), pool.machine.len());
    if usize::try_from(max).is_ok_and(|max| max > count) {
        let tables =
            super::slots::counted(count as u128, "`[[pool.machine]]` table", "`[[pool.machine]]` tables");
        let title = format!("pool `{name}`: `max` is {max}, but the pool has {tables}");
        let help = format!("set `max = {count}`, or add the missing machines");
        checker.wrong(title, pool.max.span(), "too many", &help);
    }
    pool.machine.iter().filter_map(|one| one.check(name, checker)).collect()
}

impl Written {
    fn check(&self, pool: &str, checker: &mut Checker) -> Option<PhysicalMachine> {
        let name = self.name.get_ref();
        if !name_rules::is_domain(name) || *name != name.to_ascii_lowercase() {
            let title = format!("pool `{pool}`: `{name}` is not a valid Node name");
            let help = "set the name under which the machine's kubelet registers";
            checker.wrong(title, self.name.span(), "expected e.g. \"metal-1\"", help);
        }
        let address = self.address.as_ref().and_then(|written| {
            let parsed = written.get_ref().parse().ok();
            if parsed.is_none() {
                let title = format!("pool `{pool}`: `{}` is not an address", written.get_ref());
                checker.wrong(title, written.span(), "expected e.g. \"10.10.10.21\"", "");
            }
            parsed
        });
        let redfish = WrittenRedfish::check(&self.redfish, checker)?;
        Some(PhysicalMachine { name: name.clone(), address, closed: self.closed, redfish })
    }
}

/// Checks that no two machines share a name or a Redfish system.
pub(super) fn claims(
    pools: &[Spanned<Pool>],
    checked: &[super::Pool],
    hosts: &BTreeMap<HostKey, HostSettings>,
    checker: &mut Checker,
) {
    let mut numbers: BTreeMap<u32, (&str, Range<usize>)> = BTreeMap::new();
    for one in pools.iter().flat_map(|pool| &pool.get_ref().machine) {
        let (name, at) = (one.name.get_ref(), one.name.span());
        let Some((other, first)) = numbers.insert(number(name).0, (name, at.clone())) else { continue };
        let title = if other == name {
            format!("two machines are called `{name}`")
        } else {
            format!("the daemon derives the same number from the names `{name}` and `{other}`")
        };
        checker.clash(title, at, "must be unique", first, "give one of them a different name");
    }
    let mut systems = Systems::of_hosts(hosts);
    for (pool, checked) in pools.iter().zip(checked) {
        for machine in &checked.machines {
            let written = pool.get_ref().machine.iter().find(|one| *one.name.get_ref() == machine.name);
            let at = written.map_or_else(|| pool.span(), |one| one.redfish.span());
            systems.claim(format!("machine `{}`", machine.name), &machine.redfish, at, checker);
        }
    }
}

/// Checks that no two machines share an address, and that no machine's address is in a pool's `addresses`.
pub(super) fn addresses(pools: &[Claim], checker: &mut Checker) {
    let mut seen: BTreeMap<u128, (&str, Range<usize>)> = BTreeMap::new();
    for machine in pools.iter().flat_map(|(pool, ..)| &pool.get_ref().machine) {
        let Some(written) = &machine.address else { continue };
        let Ok(address) = written.get_ref().parse::<IpAddr>() else { continue };
        let (name, number) = (machine.name.get_ref(), slots::number(address));
        if let Some((other, first)) = seen.insert(number, (name, written.span())) {
            let title = format!("machines `{other}` and `{name}` have the same address");
            checker.clash(title, written.span(), "must be unique", first, "correct one of them");
        }
        for (pool, reserved, ..) in pools {
            let Some(piece) = reserved.addresses.iter().find(|piece| piece.holds(number)) else { continue };
            let title = format!(
                "machine `{name}` has the address {address}, which pool `{}` reserves for its VMs",
                pool.get_ref().name.get_ref()
            );
            let help = format!("exclude it: [\"…\", \"!{address}\"]");
            checker.clash(title, written.span(), "already taken", piece.at.clone(), &help);
        }
    }
}

impl Pool {
    /// The settings that apply only to VMs.
    fn of_vms(&self) -> Vec<(&'static str, Range<usize>)> {
        let own = self.name.span();
        let at = |given: bool| given.then(|| own.clone());
        let all = [
            ("region", self.region.as_ref().map(Spanned::span)),
            ("sizes", self.sizes.as_ref().map(Spanned::span)),
            ("boot", self.boot.as_ref().map(Spanned::span)),
            ("template", self.template.as_ref().map(Spanned::span)),
            ("clone", at(self.clone != CloneKind::default())),
            ("storage", self.storage.as_ref().map(Spanned::span)),
            ("storage_reserve", self.storage_reserve.as_ref().map(Spanned::span)),
            ("extra_disks", at(!self.extra_disks.is_empty())),
            ("vm_options", self.vm_options.keys().next().map(Spanned::span)),
            ("vmids", self.vmids.as_ref().map(Spanned::span)),
            ("addresses", self.addresses.as_ref().map(Spanned::span)),
            ("prefix", self.prefix.as_ref().map(Spanned::span)),
            ("gateway", self.gateway.as_ref().map(Spanned::span)),
            ("dns", self.dns.first().map(Spanned::span)),
            ("search", self.search.as_ref().map(Spanned::span)),
            ("disk", self.disk.as_ref().map(Spanned::span)),
            ("disk_device", self.disk_device.as_ref().map(Spanned::span)),
            ("bridge", self.bridge.as_ref().map(Spanned::span)),
            ("vlan", self.vlan.as_ref().map(Spanned::span)),
            ("mtu", self.mtu.as_ref().map(Spanned::span)),
            ("model", at(self.model.is_some())),
            ("firewall", at(self.firewall.is_some())),
            ("addresses6", self.addresses6.as_ref().map(Spanned::span)),
            ("prefix6", self.prefix6.as_ref().map(Spanned::span)),
            ("gateway6", self.gateway6.as_ref().map(Spanned::span)),
            ("[[pool.network]]", at(!self.network.is_empty())),
            ("[[pool.pci]]", at(!self.pci.is_empty())),
            ("grow", self.grow.as_ref().map(Spanned::span)),
            ("user", self.user.as_ref().map(Spanned::span)),
            ("ssh_keys", self.ssh_keys.first().map(Spanned::span)),
            ("tags", self.tags.first().map(Spanned::span)),
            ("provider_id", self.provider_id.as_ref().map(Spanned::span)),
            ("hosts", self.hosts.first().map(Spanned::span)),
            ("cpu_overcommit", self.cpu_overcommit.as_ref().map(Spanned::span)),
            ("memory_overcommit", self.memory_overcommit.as_ref().map(Spanned::span)),
            ("memory_reserve", self.memory_reserve.as_ref().map(Spanned::span)),
            ("placement", at(self.placement != Placement::default())),
            ("zone_labels", at(self.zone_labels != ZoneLabels::default())),
            ("max_per_host", self.max_per_host.as_ref().map(Spanned::span)),
            ("[pool.warm]", at(self.warm.is_some())),
            ("[pool.security]", self.security.as_ref().map(Spanned::span)),
            ("[pool.cloud_init]", self.cloud_init.as_ref().map(Spanned::span)),
            ("[pool.bootstrap]", self.bootstrap.as_ref().map(Spanned::span)),
        ];
        all.into_iter().filter_map(|(key, at)| Some((key, at?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::Vmid;

    use crate::{BootstrapMethod, Needs, parse};

    const POOL: &str = "[[pool]]\nname = \"metal\"\nmax = 2\ncores = 32\nmemory = \"128GiB\"\n";

    fn machine(name: &str, controller: &str) -> String {
        format!(
            "[[pool.machine]]\nname = \"{name}\"\n[pool.machine.redfish]\nendpoint = \"https://{controller}\"\n\
             user = \"power\"\npassword_file = \"/x\"\nca = \"system\"\n"
        )
    }

    /// A machine with its own controller and address.
    fn at(name: &str, address: &str) -> String {
        let table = "[pool.machine.redfish]";
        machine(name, name).replace(table, &format!("address = \"{address}\"\n{table}"))
    }

    fn with_system(machine: &str, number: &str) -> String {
        machine.replace("user =", &format!("system = \"/redfish/v1/Systems/{number}\"\nuser ="))
    }

    const VMS: &str = "[[pool]]\nname = \"vms\"\nmax = 2\ncores = 4\nmemory = \"8GiB\"\nvmids = \"9100-9101\"\n\
                       addresses = \"10.1.0.1-10.1.0.2\"\nprefix = 24\n";

    #[test]
    fn systems_of_one_controller_that_are_named_belong_to_several_machines() {
        let one = with_system(&machine("metal-1", "10.0.0.1"), "1");
        let two = with_system(&machine("metal-2", "10.0.0.1"), "2");
        assert!(parse("c.toml", &format!("{POOL}{one}{two}"), Needs::Plan).is_ok());
    }

    #[test]
    fn a_pool_of_machines_needs_no_template_and_no_addresses() {
        let text = format!("{POOL}{}{}", machine("metal-1", "10.0.0.1"), machine("metal-2", "10.0.0.2"));
        let text =
            text.replace("name = \"metal-2\"", "name = \"metal-2\"\naddress = \"10.1.0.2\"\nclosed = true");
        // The configuration lacks tables that the daemon needs, but the pool is complete.
        let report = parse("c.toml", &text, Needs::Run).unwrap_err().plain();
        assert!(!report.contains("pool `metal`"), "{report}");
        let config = parse("c.toml", &text, Needs::Plan).unwrap();
        let pool = &config.pools[0];
        assert_eq!(config.bootstrap_of(pool).map(|one| &one.method), Some(&BootstrapMethod::None));
        let slots = pool.slots();
        assert_eq!(slots.len(), 2);
        assert_eq!(slots[1].machine.as_deref(), Some("metal-2"));
        assert_eq!(slots[1].address, Some("10.1.0.2".parse().unwrap()));
        assert!(slots.iter().all(|slot| slot.vmid > Vmid(999_999_999) && slot.is_physical()));
        assert!(pool.machines[1].closed && !pool.machines[0].closed);
        // The order in the file does not matter.
        let turned = format!("{POOL}{}{}", machine("metal-2", "10.0.0.2"), machine("metal-1", "10.0.0.1"));
        assert_eq!(parse("c.toml", &turned, Needs::Plan).unwrap().pools[0].slots()[1].vmid, slots[0].vmid);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let one = machine("metal-1", "10.0.0.1");
        let host = "[[host]]\nname = \"pve3\"\npower = \"redfish\"\n[host.redfish]\nendpoint = \"https://10.0.0.1/\"\n\
                    user = \"power\"\npassword_file = \"/x\"\nca = \"system\"\n";
        let pool = POOL.replace("max = 2", "max = 1");
        for (text, expected) in [
            (format!("{POOL}{one}"), "`max` is 2, but the pool has 1 `[[pool.machine]]` table"),
            (format!("{POOL}{one}{}", machine("metal-1", "10.0.0.2")), "two machines are called `metal-1`"),
            (
                format!("{POOL}{one}{}", machine("metal-2", "10.0.0.1")),
                "uses the same Redfish system as machine `metal-1`",
            ),
            (
                format!("{POOL}{one}{}", with_system(&machine("metal-2", "10.0.0.1/"), "1")),
                "uses the same Redfish system as machine `metal-1`",
            ),
            (
                format!(
                    "{POOL}{}{}",
                    with_system(&one, "1"),
                    with_system(&machine("metal-2", "10.0.0.1:443"), "1/")
                ),
                "uses the same Redfish system as machine `metal-1`",
            ),
            (
                format!("{host}{pool}{}", with_system(&one, "1")),
                "machine `metal-1` uses the same Redfish system as host `pve3`",
            ),
            (
                format!("{POOL}{}{}", at("metal-1", "10.1.0.2"), at("metal-2", "::ffff:10.1.0.2")),
                "machines `metal-1` and `metal-2` have the same address",
            ),
            (
                format!("{pool}{}{VMS}", at("metal-1", "10.1.0.2")),
                "machine `metal-1` has the address 10.1.0.2, which pool `vms` reserves for its VMs",
            ),
            (format!("{host}{pool}{one}"), "uses the same Redfish system as host `pve3`"),
            (format!("{pool}template = 9000\n{one}"), "`template` has no effect for bare-metal machines"),
            (format!("{pool}clone = \"full\"\n{one}"), "`clone` has no effect"),
            (format!("{pool}kubelet_args = {{ a = \"b\" }}\n{one}"), "`kubelet_args` has no effect"),
            (
                format!("{pool}labels = {{ a = \"{{{{ host }}}}\" }}\n{one}"),
                "`a` uses a variable that only VMs have",
            ),
            (format!("{pool}{}", machine("Metal_1", "10.0.0.1")), "`Metal_1` is not a valid Node name"),
            (
                format!(
                    "{pool}{}",
                    one.replace("[pool.machine.redfish]", "address = \"x\"\n[pool.machine.redfish]")
                ),
                "`x` is not an address",
            ),
            (format!("{pool}{}", one.replace("https:", "http:")), "`endpoint` is not encrypted"),
        ] {
            let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }
}
