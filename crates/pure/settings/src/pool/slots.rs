//! The slots of a pool: its VMIDs, and the addresses that go with them.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::{Range, RangeInclusive};

use ipnet::IpNet;
use toml::Spanned;

use super::Written;
use super::devices::{self, Device};
use super::ranges::{self, Kind, Piece};
use crate::name_rules;
use crate::one_or_many::Listed;
use crate::values::Checker;

/// VMIDs that Proxmox VE accepts (`pve-vmid`).
const VMIDS: RangeInclusive<u128> = 100..=999_999_999;

/// Maximum number of slots: more than the 5000 nodes that Kubernetes supports.
const MOST_SLOTS: u128 = 10_000;

/// How addresses are assigned to a pool's machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// Each slot has its own address, set through cloud-init.
    Static {
        /// The ranges of addresses in order, both ends included.
        ranges: Vec<(IpAddr, IpAddr)>,
        /// Length of the network's prefix.
        prefix: u8,
        /// The router.
        gateway: Option<IpAddr>,
        /// Name servers.
        dns: Vec<IpAddr>,
        /// Search domain.
        search: Option<String>,
    },
    /// Machines get their addresses from a DHCP server. This is also the default if `addresses` is missing,
    /// which is only allowed for plans and bare-metal machines.
    Dhcp,
}

/// The VMIDs and addresses that a pool reserves, with their places in the file, and the pool's network
/// devices. Other pools must not reserve the same VMIDs or addresses.
pub(super) struct Reserved {
    pub devices: Vec<Device>,
    pub vmids: Vec<Piece>,
    pub addresses: Vec<Piece>,
}

pub(super) fn check(pool: &Written, checker: &mut Checker) -> (Reserved, Addressing) {
    let vmids = vmids(pool, checker);
    let (addresses, addressing) = addressing(pool, checker);
    if let (Some(first), Some(written)) = (vmids.first(), &pool.addresses) {
        let (ids, ips) = (total(&vmids), total(&addresses));
        if !addresses.is_empty() && ips < ids {
            let title = format!(
                "pool `{}`: {} for {}",
                pool.name.get_ref(),
                counted(ips, "address", "addresses"),
                counted(ids, "VMID", "VMIDs")
            );
            let help = "each VMID needs an address: widen `addresses`, or narrow `vmids`";
            let label = format!("{} too few", ids - ips);
            checker.clash(title, written.span(), &label, first.at.clone(), help);
        }
    }
    let (devices, further) = devices::check(pool, total(&vmids), checker);
    devices::one_family_each(
        pool,
        addresses.first().is_some_and(|piece| back(piece.first).is_ipv6()),
        checker,
    );
    let lists: Vec<Vec<Piece>> = std::iter::once(addresses).chain(further).collect();
    twice(pool, &lists, checker);
    let addresses = lists.into_iter().flatten().collect();
    (Reserved { devices, vmids, addresses }, addressing)
}

/// Reports an address that is listed for two devices.
fn twice(pool: &Written, lists: &[Vec<Piece>], checker: &mut Checker) {
    for (at, list) in lists.iter().enumerate() {
        let earlier = || lists[..at].iter().flatten();
        let pair = list.iter().find_map(|piece| Some((piece, earlier().find(|other| other.meets(piece))?)));
        if let Some((piece, other)) = pair {
            let shared = back(piece.first.max(other.first));
            let title = format!("pool `{}`: {shared} is listed for two network devices", pool.name.get_ref());
            checker.clash(title, piece.at.clone(), "second", other.at.clone(), "narrow one of the two lists");
        }
    }
}

/// Returns how many numbers the ranges contain in total, saturating.
pub(super) fn total(pieces: &[Piece]) -> u128 {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.count()))
}

/// Returns the count with the word for one or for several of the counted things.
pub(super) fn counted(count: u128, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn vmids(pool: &Written, checker: &mut Checker) -> Vec<Piece> {
    let name = pool.name.get_ref();
    let Some(written) = &pool.vmids else {
        pool.lacks("vmids", "reserve at least `max` VMIDs, e.g. `vmids = \"9100-9149\"`", checker);
        return Vec::new();
    };
    let kind = Kind {
        what: format!("pool `{name}`: `vmids`"),
        label: "expected e.g. \"9100-9149\" or [\"9100-9149\", 9200]",
        read: |text| text.parse::<u32>().ok().map(u128::from),
    };
    let before = checker.findings.len();
    let pieces = ranges::read(written, &kind, checker);
    for piece in pieces.iter().filter(|it| !VMIDS.contains(&it.first) || !VMIDS.contains(&it.last)) {
        let title = format!("pool `{name}`: `vmids` is outside the range that Proxmox VE allows");
        checker.wrong(title, piece.at.clone(), "must be from 100 to 999999999", "");
    }
    if checker.findings.len() > before {
        return pieces;
    }
    let (slots, max) = (total(&pieces), *pool.max.get_ref());
    if slots < u128::from(max) {
        let title = format!("pool `{name}`: {} for {max} machines", counted(slots, "VMID", "VMIDs"));
        let help = format!("widen `vmids`, or set `max = {slots}`");
        checker.clash(title, written.span(), "too few", pool.max.span(), &help);
    }
    if slots > MOST_SLOTS {
        let title = format!("pool `{name}`: {slots} VMIDs are too many");
        let label = format!("must be at most {MOST_SLOTS}");
        checker.wrong(title, written.span(), &label, "");
        return Vec::new();
    }
    pieces
}

fn addressing(pool: &Written, checker: &mut Checker) -> (Vec<Piece>, Addressing) {
    let Some(written) = &pool.addresses else {
        let help = "reserve one address for each VMID, e.g. `addresses = \"10.10.10.11-10.10.10.60\"`, or set \
                `addresses = \"dhcp\"`";
        pool.lacks("addresses", help, checker);
        return (Vec::new(), Addressing::Dhcp);
    };
    if matches!(written.get_ref(), Listed::One(one) if one.to_string() == "dhcp") {
        no_network(pool, checker);
        return (Vec::new(), Addressing::Dhcp);
    }
    let kind = Kind {
        what: format!("pool `{}`: `addresses`", pool.name.get_ref()),
        label: "expected e.g. \"10.10.10.11-10.10.10.60\", a list of ranges, or \"dhcp\"",
        read: |text| text.parse::<IpAddr>().ok().map(number),
    };
    let pieces = ranges::read(written, &kind, checker);
    let dns = pool.dns.iter().filter_map(|text| address("dns", pool, text, checker)).collect();
    let gateway = pool.gateway.as_ref().and_then(|text| address("gateway", pool, text, checker));
    let search = checker.named(
        pool.search.as_ref(),
        name_rules::is_domain,
        |text| format!("pool `{}`: `{text}` is not a search domain", pool.name.get_ref()),
        "expected e.g. \"example.org\"",
    );
    let prefix = prefix(pool, &pieces, checker);
    let at = pool.gateway.as_ref().map(Spanned::span);
    network(pool.name.get_ref(), &pieces, prefix, gateway.zip(at).as_ref(), checker);
    others(pool, &pieces, checker);
    let ranges = pieces.iter().map(|piece| (back(piece.first), back(piece.last))).collect();
    (pieces, Addressing::Static { ranges, prefix, gateway, dns, search })
}

/// Returns the address as a number. An IPv4 address is mapped to IPv6 first.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().to_bits(),
        IpAddr::V6(six) => six.to_bits(),
    }
}

/// Returns the address for a number. This is the inverse of [`number`].
pub(super) fn back(number: u128) -> IpAddr {
    Ipv6Addr::from_bits(number).to_canonical()
}

fn address(key: &str, pool: &Written, written: &Spanned<String>, checker: &mut Checker) -> Option<IpAddr> {
    let parsed = written.get_ref().parse().ok();
    if parsed.is_none() {
        let title =
            format!("pool `{}`: `{key}`: `{}` is not an address", pool.name.get_ref(), written.get_ref());
        let help = if written.get_ref().contains('/') {
            "set the network's prefix length with `prefix`"
        } else {
            ""
        };
        checker.wrong(title, written.span(), "expected e.g. \"10.10.10.1\"", help);
    }
    parsed
}

/// The configured prefix length, or the address family's default.
fn prefix(pool: &Written, pieces: &[Piece], checker: &mut Checker) -> u8 {
    let six = pieces.first().is_some_and(|piece| back(piece.first).is_ipv6());
    let (usual, most) = if six { (64, 128) } else { (24, 32) };
    let Some(written) = &pool.prefix else { return usual };
    let prefix = *written.get_ref();
    if six && prefix <= 32 {
        let title = format!(
            "pool `{}`: `prefix` fits an IPv4 network, but `addresses` are IPv6",
            pool.name.get_ref()
        );
        let help = "remove `prefix`, or set it to the prefix length of the machines' network";
        checker.wrong(title, written.span(), "usually 64", help);
        return usual;
    }
    if !(1..=most).contains(&prefix) {
        let title = format!("pool `{}`: `prefix` is not a prefix length", pool.name.get_ref());
        checker.wrong(title, written.span(), &format!("must be from 1 to {most}"), "");
        return usual;
    }
    prefix
}

/// Checks that all addresses and the gateway are in one network. Also checks that machines can use each
/// address, which excludes the broadcast address, for example. The gateway may instead be a link-local IPv6
/// address.
pub(super) fn network(
    name: &str,
    pieces: &[Piece],
    prefix: u8,
    gateway: Option<&(IpAddr, Range<usize>)>,
    checker: &mut Checker,
) {
    let Some(net) = pieces.first().and_then(|piece| IpNet::new(back(piece.first), prefix).ok()) else {
        return;
    };
    let net = net.trunc();
    let help = format!(
        "the network {net} results from the first address and `prefix`: correct the \
        value that is wrong"
    );
    for piece in pieces {
        let stray = [piece.first, piece.last].map(back).into_iter().find(|end| !net.contains(end));
        if let Some(stray) = stray {
            let title = format!(
                "pool `{name}`: {stray} is not in the same network as the other \
                addresses"
            );
            checker.wrong(title, piece.at.clone(), &format!("must be in {net}"), &help);
        }
        for (own, what) in reserved(&net) {
            if piece.holds(number(own)) {
                let title = format!("pool `{name}`: {own} is the {what} of {net}");
                let help = format!(
                    "begin or end the range elsewhere, or exclude the address: [\"…\", \
                    \"!{own}\"]"
                );
                checker.wrong(title, piece.at.clone(), "no machine can use it", &help);
            }
        }
    }
    if let Some((gateway, at)) = gateway {
        let link_local =
            matches!((gateway, net), (IpAddr::V6(six), IpNet::V6(_)) if six.is_unicast_link_local());
        if !net.contains(gateway) && !link_local {
            let title = format!("pool `{name}`: the gateway {gateway} is not in the machines' network");
            checker.wrong(title, at.clone(), &format!("must be in {net}"), &help);
        }
    }
}

/// Reports addresses that belong to the gateway or to a name server.
fn others(pool: &Written, pieces: &[Piece], checker: &mut Checker) {
    let gateway = pool.gateway.iter().map(|text| (text, "gateway"));
    for (text, what) in gateway.chain(pool.dns.iter().map(|text| (text, "name server"))) {
        let Ok(own) = text.get_ref().parse::<IpAddr>() else { continue };
        let Some(piece) = pieces.iter().find(|piece| piece.holds(number(own))) else { continue };
        let title = format!("pool `{}`: the {what} {own} is among `addresses`", pool.name.get_ref());
        let help = format!(
            "begin or end the range elsewhere, or exclude the address: [\"…\", \
            \"!{own}\"]"
        );
        checker.clash(title, piece.at.clone(), "no machine can use it", text.span(), &help);
    }
}

/// Addresses of a network that no machine can use (RFC 919, RFC 3021, RFC 4291 § 2.6.1).
fn reserved(net: &IpNet) -> Vec<(IpAddr, &'static str)> {
    match net {
        IpNet::V4(four) if four.prefix_len() < 31 => vec![
            (IpAddr::V4(four.network()), "network address"),
            (IpAddr::V4(four.broadcast()), "broadcast address"),
        ],
        IpNet::V6(six) if six.prefix_len() < 127 => {
            vec![(IpAddr::V6(six.network()), "routers' anycast address")]
        }
        _ => Vec::new(),
    }
}

fn no_network(pool: &Written, checker: &mut Checker) {
    let given = [
        ("prefix", pool.prefix.as_ref().map(Spanned::span)),
        ("gateway", pool.gateway.as_ref().map(Spanned::span)),
        ("dns", pool.dns.first().map(Spanned::span)),
        ("search", pool.search.as_ref().map(Spanned::span)),
    ];
    for (key, at) in given {
        if let Some(at) = at {
            let title = format!("pool `{}`: `{key}` has no effect with DHCP", pool.name.get_ref());
            checker.wrong(
                title,
                at,
                "the DHCP server provides it",
                "remove it, or list ranges in `addresses`",
            );
        }
    }
}
