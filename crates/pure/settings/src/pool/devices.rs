//! The network devices of a pool's machines, and the addresses that each slot has in addition to the one from
//! the pool's `addresses`.

use std::net::IpAddr;

use serde::Deserialize;
use toml::Spanned;

use super::Written as Pool;
use super::ranges::{self, Kind, Piece};
use super::slots::{self, back, number};
use crate::name_rules;
use crate::one_or_many::Listed;
use crate::values::Checker;

/// Maximum number of additional network devices. Proxmox VE would allow more (`net0` to `net31`).
const MOST: usize = 7;

/// The source of a device's addresses in one address family, IPv4 or IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// The device has no address in this family.
    #[default]
    None,
    /// From a DHCP server.
    Dhcp,
    /// From router advertisements (IPv6).
    Auto,
    /// Each slot has its own address, set through cloud-init.
    Static {
        /// The ranges of addresses in order, both ends included.
        ranges: Vec<(IpAddr, IpAddr)>,
        /// Length of the network's prefix.
        prefix: u8,
        /// The router.
        gateway: Option<IpAddr>,
    },
}

impl Family {
    /// Returns the static addresses in order; none if the addresses are not static.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let ranges = match self {
            Self::Static { ranges, .. } => ranges.as_slice(),
            _ => &[],
        };
        ranges.iter().flat_map(|(first, last)| number(*first)..=number(*last)).map(back)
    }
}

/// The device models that guests have drivers for (`net0` in `qm.conf`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceModel {
    /// Paravirtualized and fast.
    Virtio,
    /// An Intel gigabit card.
    E1000,
    /// A newer Intel gigabit card.
    E1000e,
    /// A Realtek card.
    Rtl8139,
    /// A VMware card.
    Vmxnet3,
}

impl DeviceModel {
    /// The model's name in a VM's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Rtl8139 => "rtl8139",
            Self::Vmxnet3 => "vmxnet3",
        }
    }
}

/// The settings of a network device. Settings that are `None` are unchanged from the template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its bridge.
    pub bridge: Option<String>,
    /// Its VLAN.
    pub vlan: Option<u16>,
    /// The device's MTU; 1: the bridge's MTU.
    pub mtu: Option<u16>,
    /// Its model.
    pub model: Option<DeviceModel>,
    /// Whether Proxmox VE's firewall filters the device's traffic.
    pub firewall: Option<bool>,
    /// The device's IPv4 addresses. Those of the first device are in the pool's `addresses`.
    pub four: Family,
    /// Its IPv6 addresses.
    pub six: Family,
}

/// An additional device (`[[pool.network]]`), as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    bridge: Spanned<String>,
    vlan: Option<Spanned<u16>>,
    mtu: Option<Spanned<u16>>,
    model: Option<DeviceModel>,
    firewall: Option<bool>,
    addresses: Option<Spanned<Listed>>,
    prefix: Option<Spanned<u8>>,
    addresses6: Option<Spanned<Listed>>,
    prefix6: Option<Spanned<u8>>,
}

/// Returns the devices in the order of their numbers, and the lists of addresses that they reserve. Neither
/// contains the pool's `addresses`.
pub(super) fn check(pool: &Pool, vmids: u128, checker: &mut Checker) -> (Vec<Device>, Vec<Vec<Piece>>) {
    let name = pool.name.get_ref();
    let mut reserved = Vec::new();
    let mut devices = vec![first(pool, vmids, &mut reserved, checker)];
    if let Some(beyond) = pool.network.get(MOST) {
        let title = format!("pool `{name}`: too many network devices");
        checker.wrong(title, beyond.bridge.span(), &format!("at most {MOST} additional devices"), "");
    }
    for written in &pool.network {
        vlan(name, written.vlan.as_ref(), checker);
        let mut family = |key, list: Option<&Spanned<Listed>>, prefix, six| {
            let asked = Asked { pool: name, key, prefix, gateway: None, six, vmids };
            let (pieces, family) = asked.check(list, checker);
            reserved.push(pieces);
            family
        };
        let four = family("addresses", written.addresses.as_ref(), written.prefix.as_ref(), false);
        let six = family("addresses6", written.addresses6.as_ref(), written.prefix6.as_ref(), true);
        devices.push(Device {
            bridge: bridge(name, Some(&written.bridge), checker),
            vlan: written.vlan.as_ref().map(|vlan| *vlan.get_ref()),
            mtu: mtu(name, written.mtu.as_ref(), checker),
            model: written.model,
            firewall: written.firewall,
            four,
            six,
        });
    }
    (devices, reserved)
}

fn first(pool: &Pool, vmids: u128, reserved: &mut Vec<Vec<Piece>>, checker: &mut Checker) -> Device {
    let name = pool.name.get_ref();
    vlan(name, pool.vlan.as_ref(), checker);
    let asked = Asked {
        pool: name,
        key: "addresses6",
        prefix: pool.prefix6.as_ref(),
        gateway: pool.gateway6.as_ref(),
        six: true,
        vmids,
    };
    let (pieces, six) = asked.check(pool.addresses6.as_ref(), checker);
    reserved.push(pieces);
    Device {
        bridge: bridge(name, pool.bridge.as_ref(), checker),
        vlan: pool.vlan.as_ref().map(|vlan| *vlan.get_ref()),
        mtu: mtu(name, pool.mtu.as_ref(), checker),
        model: pool.model,
        firewall: pool.firewall,
        four: Family::None,
        six,
    }
}

/// Reports `addresses6` if `addresses` already contains IPv6 addresses.
pub(super) fn one_family_each(pool: &Pool, six_already: bool, checker: &mut Checker) {
    if let (Some(written), Some(first), true) = (&pool.addresses6, &pool.addresses, six_already) {
        let title = format!("pool `{}`: `addresses` already contains IPv6 addresses", pool.name.get_ref());
        let help = "put IPv4 addresses into `addresses`, or remove `addresses6`";
        checker.clash(title, written.span(), "second", first.span(), help);
    }
}

fn vlan(pool: &str, written: Option<&Spanned<u16>>, checker: &mut Checker) {
    if let Some(vlan) = written.filter(|vlan| !(1..=4094).contains(vlan.get_ref())) {
        let title = format!("pool `{pool}`: `vlan` is not a VLAN tag");
        checker.wrong(
            title,
            vlan.span(),
            "must be from 1 to 4094",
            "if you do not want a VLAN, remove the setting",
        );
    }
}

fn bridge(pool: &str, written: Option<&Spanned<String>>, checker: &mut Checker) -> Option<String> {
    checker.named(
        written,
        name_rules::is_bridge,
        |text| format!("pool `{pool}`: `{text}` is not a valid bridge name"),
        "at most 15 letters, digits, `-`, `_` and `.`, e.g. \"vmbr0\"",
    )
}

/// Checks an MTU. Proxmox VE accepts 1 to 65520. Values below IPv6's minimum of 1280 (RFC 8200 § 5) are
/// refused, except for 1, which stands for the bridge's MTU.
fn mtu(pool: &str, written: Option<&Spanned<u16>>, checker: &mut Checker) -> Option<u16> {
    let written = written?;
    let mtu = *written.get_ref();
    if mtu != 1 && !(1280..=65520).contains(&mtu) {
        let title = format!("pool `{pool}`: {mtu} is not a valid MTU");
        checker.wrong(title, written.span(), "must be from 1280 to 65520, or 1 for the bridge's MTU", "");
    }
    Some(mtu)
}

/// The settings of a device for one address family, as written in the configuration file.
struct Asked<'w> {
    pool: &'w str,
    key: &'static str,
    prefix: Option<&'w Spanned<u8>>,
    gateway: Option<&'w Spanned<String>>,
    six: bool,
    vmids: u128,
}

impl Asked<'_> {
    fn check(&self, written: Option<&Spanned<Listed>>, checker: &mut Checker) -> (Vec<Piece>, Family) {
        let (pool, key) = (self.pool, self.key);
        let word = written.map(|written| match written.get_ref() {
            Listed::One(one) => one.to_string(),
            Listed::Many(_) => String::new(),
        });
        let family = match word.as_deref() {
            None => Some(Family::None),
            Some("dhcp") => Some(Family::Dhcp),
            Some("auto") if self.six => Some(Family::Auto),
            Some(_) => None,
        };
        if let Some(family) = family {
            let [prefix, gateway] = if self.six { ["prefix6", "gateway6"] } else { ["prefix", "gateway"] };
            let given =
                [(prefix, self.prefix.map(Spanned::span)), (gateway, self.gateway.map(Spanned::span))];
            for (what, at) in given.into_iter().filter_map(|(what, at)| Some((what, at?))) {
                let title = format!("pool `{pool}`: `{what}` needs address ranges in `{key}`");
                checker.wrong(title, at, "has no effect", "remove it, or list ranges");
            }
            return (Vec::new(), family);
        }
        let Some(written) = written else { return (Vec::new(), Family::None) };
        let kind = Kind {
            what: format!("pool `{pool}`: `{key}`"),
            label: if self.six {
                "expected e.g. \"fd00:10::11-fd00:10::60\", \"dhcp\" or \"auto\""
            } else {
                "expected e.g. \"10.20.0.11-10.20.0.60\" or \"dhcp\""
            },
            read: if self.six {
                |text| text.parse::<std::net::Ipv6Addr>().ok().map(|six| number(six.into()))
            } else {
                |text| text.parse::<std::net::Ipv4Addr>().ok().map(|four| number(four.into()))
            },
        };
        let pieces = ranges::read(written, &kind, checker);
        let count = slots::total(&pieces);
        if !pieces.is_empty() && count < self.vmids {
            let addresses = slots::counted(count, "address", "addresses");
            let vmids = slots::counted(self.vmids, "VMID", "VMIDs");
            let title = format!("pool `{pool}`: `{key}` contains {addresses} for {vmids}");
            let help = "each VMID needs one: widen the range, or narrow `vmids`";
            checker.wrong(title, written.span(), &format!("{} too few", self.vmids - count), help);
        }
        let (usual, most) = if self.six { (64, 128) } else { (24, 32) };
        let prefix = self.prefix.map_or(usual, |prefix| {
            if !(1..=most).contains(prefix.get_ref()) {
                let title = format!("pool `{pool}`: invalid prefix length");
                checker.wrong(title, prefix.span(), &format!("must be from 1 to {most}"), "");
                return usual;
            }
            *prefix.get_ref()
        });
        let gateway = self.gateway.and_then(|text| {
            let parsed = text.get_ref().parse::<IpAddr>().ok().filter(|parsed| parsed.is_ipv6() == self.six);
            if parsed.is_none() {
                let title = format!("pool `{pool}`: `{}` is not an IPv6 address", text.get_ref());
                checker.wrong(title, text.span(), "expected e.g. \"fd00:10::1\"", "");
            }
            Some((parsed?, text.span()))
        });
        slots::network(pool, &pieces, prefix, gateway.as_ref(), checker);
        if let Some((own, at)) = &gateway
            && let Some(piece) = pieces.iter().find(|piece| piece.holds(number(*own)))
        {
            let title = format!("pool `{pool}`: the gateway {own} is among `{key}`");
            let help =
                format!("begin or end the range elsewhere, or exclude the address: [\"…\", \"!{own}\"]");
            checker.clash(title, piece.at.clone(), "no machine can use it", at.clone(), &help);
        }
        let ranges = pieces.iter().map(|piece| (back(piece.first), back(piece.last))).collect();
        (pieces, Family::Static { ranges, prefix, gateway: gateway.map(|(gateway, _)| gateway) })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    const POOL: &str = "[[pool]]\nname = \"a\"\nmax = 2\ncores = 1\nmemory = \"1GiB\"\nvmids = \"100-101\"\n";

    #[test]
    fn every_list_gives_each_slot_an_address() {
        let text = format!(
            "{POOL}addresses = \"10.0.0.8-10.0.0.9\"\naddresses6 = [\"fd00::2\", \"fd00::4\"]\n\
             [[pool.network]]\nbridge = \"b\"\naddresses = \"10.1.0.2-10.1.0.9\"\n"
        );
        let slots = parse("c.toml", &text, Needs::Plan).unwrap().pools[0].slots();
        let second: Vec<String> = slots[1].further.iter().map(|(key, it)| format!("{key} {it}")).collect();
        assert_eq!(second, ["net0/ip6 fd00::4", "net1/ip 10.1.0.3"]);
    }

    #[test]
    fn what_is_wrong_with_a_device_is_said() {
        let second = "[[pool.network]]\nbridge = \"b\"\n";
        for (lines, expected) in [
            ("mtu = 900".to_owned(), "900 is not a valid MTU"),
            ("model = \"ne2k\"".to_owned(), "unknown variant `ne2k`"),
            ("addresses6 = \"10.0.0.1\"".to_owned(), "`addresses6`: `10.0.0.1` is not a range"),
            ("addresses6 = \"fd00::2\"".to_owned(), "`addresses6` contains 1 address for 2 VMIDs"),
            (
                "addresses6 = \"auto\"\ngateway6 = \"fd00::1\"".to_owned(),
                "`gateway6` needs address ranges in `addresses6`",
            ),
            (
                "addresses6 = \"fd00::2-fd00::3\"\ngateway6 = \"10.0.0.1\"".to_owned(),
                "is not an IPv6 address",
            ),
            (
                "addresses6 = \"fd00::2-fd00::3\"\ngateway6 = \"fd01::1\"".to_owned(),
                "not in the machines' network",
            ),
            ("addresses6 = \"fd00::2-fd00::3\"\ngateway6 = \"fd00::3\"".to_owned(), "is among `addresses6`"),
            (
                "addresses = \"fd00::8-fd00::9\"\naddresses6 = \"fd00::2-fd00::3\"".to_owned(),
                "`addresses` already contains IPv6 addresses",
            ),
            (format!("{second}vlan = 4095"), "`vlan` is not a VLAN tag"),
            (format!("{second}addresses = \"fd00::2\""), "`addresses`: `fd00::2` is not a range"),
            (
                format!("addresses = \"10.0.0.8-10.0.0.9\"\n{second}addresses = \"10.0.0.9-10.0.0.20\""),
                "10.0.0.9 is listed for two network devices",
            ),
            (second.repeat(8), "too many network devices"),
            ("[[pool.network]]\nvlan = 1".to_owned(), "missing field `bridge`"),
        ] {
            let report = parse("c.toml", &format!("{POOL}{lines}\n"), Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }
}
