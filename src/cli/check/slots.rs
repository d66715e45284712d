//! Checks whether a pool's slots are free for its machines.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use futures::StreamExt;

use super::findings::{Answer, Line};
use super::proxmox_view::Pve;
use crate::cli::exit::{FINDINGS, UNREACHABLE, chain};
use model::node::Node;
use model::{PoolName, Slot, Vmid};
use planning::slots::{Taken, free};
use proxmox::marker::Description;
use proxmox::{Error, Guest, Kind};
use settings::{Addressing, Config, Pool};

/// The maximum number of concurrent calls.
const AT_A_TIME: usize = 4;
/// At most this many VMIDs of a pool are queried one by one, to find guests that the token cannot see.
const ASKED: usize = 256;
/// At most this many VMs are read for their addresses.
const READ: usize = 500;
/// At most this many slots are named for each kind of problem.
const NAMED: usize = 5;

/// Errors that occur if a guest has disappeared or its host is off. They reveal nothing else about the guest.
const GONE: [Kind; 4] = [Kind::NotFound, Kind::Forbidden, Kind::HostUnreachable, Kind::OutcomeUnknown];

/// What occupies a VMID of the pool.
enum Holder {
    /// A machine of this cluster, with its SMBIOS uuid. `other_pool` is set if the machine belongs to another
    /// pool.
    Ours { uuid: Option<String>, other_pool: Option<PoolName> },
    /// A guest that is not a machine of this cluster, described in words.
    Foreign(String),
    /// A VM or container that the token cannot see.
    Hidden,
    /// The VM is being created or destroyed, or cannot be queried now.
    Unknown,
}

pub(super) async fn check(
    pve: &Pve,
    config: &Config,
    pool: &Pool,
    nodes: Option<&[Arc<Node>]>,
    configured: &[(IpAddr, Vmid, String)],
    answer: &mut Answer,
) {
    let slots = pool.slots();
    if slots.is_empty() {
        return;
    }
    let what = format!("slots {}", ranges(pool));
    let holders = match holders(pve, config, pool, &slots).await {
        Ok(holders) => holders,
        Err(error) => return answer.say(Line::wrong(what, chain(&error)).of(&pool.name), UNREACHABLE),
    };
    let vmids = [(String::new(), holders.keys().copied().collect())].into();
    let mut taken = Taken { vmids, ..Taken::default() };
    let (strangers, uuids) = (strangers(&holders), uuids(&holders));
    let ours = holders.len() - strangers.len();
    let mut elsewhere = addresses(pool, nodes.unwrap_or_default(), &uuids, &mut taken);
    elsewhere.extend(set_elsewhere(pool, configured, &mut taken));

    let doubtful = |key, help| {
        let what = what.clone();
        move |words| Line::doubtful(what.clone(), words).key(key).help(help)
    };
    let leave_out = "the daemon never uses a slot whose VMID is taken: leave the VMID out (`vmids = [\"9100-9149\", \
            \"!9110\"]`), or move the guest to a different VMID";
    let choose = "the daemon never uses a slot whose address is taken: choose addresses that no other \
        machine has and that are outside any DHCP range";
    let mut wrong: Vec<Line> = named(strangers).into_iter().map(doubtful("vmids", leave_out)).collect();
    wrong.extend(named(elsewhere).into_iter().map(doubtful("addresses", choose)));
    let alone = Config { pools: vec![pool.clone()], ..config.clone() };
    let left = free(&alone, &taken, |_, _| None).get(&pool.name).map_or(0, Vec::len);
    let count = format!("{} slots, {left} free", slots.len());
    let can = left + ours;
    if can < pool.max as usize {
        let message = format!("{count}: enough for {can} machines, but `max` is {}", pool.max);
        let line = if can == 0 { Line::wrong } else { Line::doubtful };
        let help = "widen `vmids` and `addresses`, or lower `max`";
        wrong.push(line(what.clone(), message).key("max").help(help));
    }
    let wrong = wrong.into_iter().map(|line| line.of(&pool.name)).collect();
    answer.say_all(wrong, Line::good(what, count).of(&pool.name), FINDINGS);
}

/// Returns what occupies each of the pool's VMIDs. Free VMIDs are left out.
async fn holders(
    pve: &Pve,
    config: &Config,
    pool: &Pool,
    slots: &[Slot],
) -> Result<BTreeMap<Vmid, Holder>, Error> {
    let (seen, others): (Vec<Vmid>, Vec<Vmid>) =
        slots.iter().map(|slot| slot.vmid).partition(|vmid| pve.seen.guests.contains_key(vmid));
    let guests = seen.iter().filter_map(|vmid| pve.seen.guests.get(vmid));
    let looks = guests.map(|guest| async move { (guest.vmid, holder(pve, config, pool, guest).await) });
    let mut holders = BTreeMap::new();
    let mut looks = futures::stream::iter(looks).buffered(AT_A_TIME);
    while let Some((vmid, holder)) = looks.next().await {
        holders.insert(vmid, holder?);
    }
    let asked = others.into_iter().take(ASKED);
    let asked = asked.map(|vmid| async move { (vmid, pve.client.vmid_taken(vmid).await) });
    let mut answers = futures::stream::iter(asked).buffered(AT_A_TIME);
    while let Some((vmid, taken)) = answers.next().await {
        if taken? {
            holders.insert(vmid, Holder::Hidden);
        }
    }
    Ok(holders)
}

/// Describes the guests that have one of the pool's VMIDs but are not the pool's machines.
fn strangers(holders: &BTreeMap<Vmid, Holder>) -> Vec<String> {
    let words = |(vmid, holder): (&Vmid, &Holder)| match holder {
        Holder::Foreign(words) => Some(format!("{vmid} is {words}")),
        Holder::Hidden => Some(format!(
            "{vmid} is a VM or container that the token cannot see (for example, an unfinished clone)"
        )),
        Holder::Ours { other_pool, .. } => {
            other_pool.as_ref().map(|other| format!("{vmid} is a managed machine of pool `{other}`"))
        }
        Holder::Unknown => None,
    };
    holders.iter().filter_map(words).collect()
}

/// Returns the SMBIOS uuids of the machines that have one of the pool's VMIDs.
fn uuids(holders: &BTreeMap<Vmid, Holder>) -> BTreeSet<&str> {
    let mut all = BTreeSet::new();
    for holder in holders.values() {
        if let Holder::Ours { uuid: Some(uuid), .. } = holder {
            all.insert(uuid.as_str());
        }
    }
    all
}

async fn holder(pve: &Pve, config: &Config, pool: &Pool, guest: &Guest) -> Result<Holder, Error> {
    let name = guest.name.as_deref().unwrap_or("?");
    if guest.container {
        return Ok(Holder::Foreign(format!("container `{name}` on {}", guest.host)));
    }
    let vm = match pve.client.config(&guest.host, guest.vmid).await {
        Ok(vm) => vm,
        Err(error) if GONE.contains(&error.kind) => return Ok(Holder::Unknown),
        Err(error) => return Err(error),
    };
    Ok(match vm.owner() {
        Description::Ours(marker) if marker.cluster == config.cluster => Holder::Ours {
            uuid: vm.smbios_uuid(),
            other_pool: Some(marker.pool).filter(|other| *other != pool.name),
        },
        Description::Ours(marker) => Holder::Foreign(format!(
            "VM `{name}` on {}, a machine of cluster `{}`",
            guest.host, marker.cluster
        )),
        Description::BeingCloned | Description::BeingDestroyed => Holder::Unknown,
        Description::Foreign => Holder::Foreign(format!("VM `{name}` on {}, which is unmanaged", guest.host)),
    })
}

/// Returns the static addresses of the VMs that the token can see, with each VM's VMID and name. At most
/// `READ` VMs are read. The result is used for all pools.
pub(super) async fn configured(pve: &Pve) -> Result<Vec<(IpAddr, Vmid, String)>, Error> {
    let guests = pve.seen.guests.values().filter(|guest| !guest.container && !guest.template);
    let asked = guests.take(READ).map(|guest| async move {
        let vm = pve.client.config(&guest.host, guest.vmid).await;
        (guest, vm)
    });
    let mut answers = futures::stream::iter(asked).buffered(AT_A_TIME);
    let mut found = Vec::new();
    while let Some((guest, vm)) = answers.next().await {
        let vm = match vm {
            Ok(vm) => vm,
            Err(error) if GONE.contains(&error.kind) => continue,
            Err(error) => return Err(error),
        };
        let name = guest.name.clone().unwrap_or_default();
        found.extend(vm.static_addresses().map(|address| (address, guest.vmid, name.clone())));
    }
    Ok(found)
}

/// Describes the VMs that have the address of one of the pool's slots, but not that slot's VMID. Adds these
/// addresses to `taken`.
fn set_elsewhere(pool: &Pool, configured: &[(IpAddr, Vmid, String)], taken: &mut Taken) -> Vec<String> {
    let slots = pool.slots();
    let mut words = Vec::new();
    for (address, vmid, name) in configured {
        let of_pool = slots.iter().find(|slot| slot.addresses().any(|own| own == *address));
        if of_pool.is_some_and(|slot| slot.vmid != *vmid) {
            taken.addresses.insert(*address);
            words.push(format!("{address} is set in VM `{name}` ({vmid})"));
        }
    }
    words
}

/// Describes the pool's addresses that belong to an unmanaged Node. Adds the pool's addresses that belong to
/// any Node, managed or unmanaged, to `taken`.
fn addresses(pool: &Pool, nodes: &[Arc<Node>], uuids: &BTreeSet<&str>, taken: &mut Taken) -> Vec<String> {
    let own: BTreeSet<IpAddr> = pool.slots().iter().flat_map(Slot::addresses).collect();
    let mut words = Vec::new();
    for node in nodes {
        for address in node.internal_ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()) {
            if !own.contains(&address) {
                continue;
            }
            taken.addresses.insert(address);
            if !uuids.contains(node.system_uuid.as_str()) {
                words.push(format!(
                    "{address} is the address of Node `{}`, which belongs to no managed machine",
                    node.name
                ));
            }
        }
    }
    words
}

fn named(mut all: Vec<String>) -> Vec<String> {
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    if let Some(last) = all.last_mut().filter(|_| more > 0) {
        last.extend([", and ", &more.to_string(), " more"]);
    }
    all
}

fn ranges(pool: &Pool) -> String {
    let span = |first: String, last: String| if first == last { first } else { format!("{first}-{last}") };
    let vmids = pool.vmids.iter().map(|range| span(range.start().to_string(), range.end().to_string()));
    let vmids = vmids.collect::<Vec<_>>().join(", ");
    match &pool.addressing {
        Addressing::Dhcp => format!("{vmids} × DHCP"),
        Addressing::Static { ranges, .. } => {
            let texts = ranges.iter().map(|(first, last)| span(first.to_string(), last.to_string()));
            format!("{vmids} × {}", texts.collect::<Vec<_>>().join(", "))
        }
    }
}
