//! Are a pool's slots free for its machines?

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use futures::StreamExt;

use super::lines::{Answer, Line};
use super::pve::Pve;
use crate::cli::exit::{FINDINGS, UNREACHABLE, chain};
use crate::config::{Addressing, Config, Pool};
use crate::machines::{Taken, free};
use crate::model::node::Node;
use crate::proxmox::marker::Description;
use crate::proxmox::{Error, Guest};

/// Calls at a time.
const AT_A_TIME: usize = 4;
/// VMIDs of a pool that are asked for one by one, to find guests that the token may not see.
const ASKED: usize = 256;
/// Slots of one kind that are named at most.
const NAMED: usize = 5;

/// Who has a VMID of the pool.
enum Holder {
    /// A machine of this cluster, with its SMBIOS uuid; its pool if it is another one.
    Ours { uuid: Option<String>, other_pool: Option<String> },
    /// Somebody else's, in words.
    Foreign(String),
    /// It is being made.
    Unknown,
}

pub(super) async fn check(
    pve: &Pve,
    config: &Config,
    pool: &Pool,
    nodes: Option<&[Arc<Node>]>,
    answer: &mut Answer,
) {
    let slots = pool.slots();
    if slots.is_empty() {
        return;
    }
    let what = format!("slots {}", ranges(pool));
    let inside: Vec<&Guest> = slots.iter().filter_map(|slot| pve.seen.guests.get(&slot.vmid)).collect();
    let mut holders = BTreeMap::new();
    let looks = futures::stream::iter(
        inside.into_iter().map(|guest| async move { (guest.vmid, holder(pve, config, pool, guest).await) }),
    );
    let mut looks = looks.buffered(AT_A_TIME);
    while let Some((vmid, looked)) = looks.next().await {
        match looked {
            Ok(holder) => drop(holders.insert(vmid, holder)),
            Err(error) => {
                return answer.say(Line::wrong(what, chain(&error)).of(&pool.name), UNREACHABLE);
            }
        }
    }
    let hidden =
        hidden(pve, slots.iter().map(|slot| slot.vmid).filter(|vmid| !holders.contains_key(vmid))).await;
    let hidden = match hidden {
        Ok(hidden) => hidden,
        Err(error) => return answer.say(Line::wrong(what, chain(&error)).of(&pool.name), UNREACHABLE),
    };

    let mut wrong = Vec::new();
    let mut taken = Taken::default();
    taken.vmids.extend(holders.keys());
    taken.vmids.extend(&hidden);
    let mut foreign: Vec<String> = Vec::new();
    for (vmid, holder) in &holders {
        match holder {
            Holder::Foreign(words) => foreign.push(format!("{vmid} is {words}")),
            Holder::Ours { other_pool: Some(other), .. } => {
                foreign.push(format!("{vmid} is a machine of ours, of pool `{other}`"));
            }
            Holder::Ours { .. } | Holder::Unknown => {}
        }
    }
    foreign
        .extend(hidden.iter().map(|vmid| format!("{vmid} is a VM or container that the token may not see")));
    let strangers = foreign.len();
    for words in named(foreign) {
        let help = "such a slot is never used: leave it out (`vmids = [\"9100-9149\", \"!9110\"]`), or move that guest";
        wrong.push(Line::doubtful(what.clone(), words).key("vmids").help(help));
    }
    let uuids: BTreeSet<&str> = holders
        .values()
        .filter_map(|holder| match holder {
            Holder::Ours { uuid, .. } => uuid.as_deref(),
            _ => None,
        })
        .collect();
    let elsewhere = addresses(pool, nodes.unwrap_or_default(), &uuids, &mut taken);
    for words in named(elsewhere) {
        let help = "such a slot is never used: choose addresses that nobody else has, also outside of any DHCP range";
        wrong.push(Line::doubtful(what.clone(), words).key("addresses").help(help));
    }
    let alone = Config { pools: vec![pool.clone()], ..config.clone() };
    let left = free(&alone, &taken, |_| None).get(&pool.name).map_or(0, Vec::len);
    let ours = holders.len() + hidden.len() - strangers;
    let count = format!("{} slots, {left} free", slots.len());
    if left + ours < pool.max as usize {
        let can = left + ours;
        let message = format!("{count}: enough for {can} machines, and `max` is {}", pool.max);
        let line = if can == 0 { Line::wrong } else { Line::doubtful };
        wrong.push(
            line(what.clone(), message).key("max").help("widen `vmids` and `addresses`, or lower `max`"),
        );
    }
    let wrong = wrong.into_iter().map(|line| line.of(&pool.name)).collect();
    answer.say_all(wrong, Line::good(what, count).of(&pool.name), FINDINGS);
}

async fn holder(pve: &Pve, config: &Config, pool: &Pool, guest: &Guest) -> Result<Holder, Error> {
    let name = guest.name.as_deref().unwrap_or("?");
    if guest.container {
        return Ok(Holder::Foreign(format!("container `{name}` on {}", guest.host)));
    }
    let vm = pve.client.config(&guest.host, guest.vmid).await?;
    Ok(match vm.owner() {
        Description::Ours(marker) if marker.cluster == config.cluster => Holder::Ours {
            uuid: vm.smbios_uuid(),
            other_pool: Some(marker.pool).filter(|other| *other != pool.name),
        },
        Description::Ours(marker) => Holder::Foreign(format!(
            "VM `{name}` on {}, a machine of cluster `{}`",
            guest.host, marker.cluster
        )),
        Description::BeingCloned => Holder::Unknown,
        Description::Foreign => Holder::Foreign(format!("VM `{name}` on {}, not ours", guest.host)),
    })
}

/// VMIDs that are taken by what the token may not see.
async fn hidden(pve: &Pve, vmids: impl Iterator<Item = u32>) -> Result<BTreeSet<u32>, Error> {
    let asked = vmids.take(ASKED).map(|vmid| async move { (vmid, pve.client.vmid_taken(vmid).await) });
    let mut answers = futures::stream::iter(asked).buffered(AT_A_TIME);
    let mut hidden = BTreeSet::new();
    while let Some((vmid, taken)) = answers.next().await {
        if taken? {
            hidden.insert(vmid);
        }
    }
    Ok(hidden)
}

/// Addresses of the pool that a Node has which is no machine of ours, in words; all of Nodes' are taken.
fn addresses(pool: &Pool, nodes: &[Arc<Node>], uuids: &BTreeSet<&str>, taken: &mut Taken) -> Vec<String> {
    let own: BTreeSet<IpAddr> = pool.slots().iter().filter_map(|slot| slot.address).collect();
    let mut words = Vec::new();
    for node in nodes {
        for address in node.internal_ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()) {
            if !own.contains(&address) {
                continue;
            }
            taken.addresses.insert(address);
            if !uuids.contains(node.system_uuid.as_str()) {
                words.push(format!(
                    "{address} is the address of Node `{}`, which is no machine of ours",
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
        last.push_str(&format!(", and {more} more"));
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
