//! VMs at whose VMID no machine of ours is: whether they bear our mark all the same, and which addresses they were given. They are
//! asked beside the rounds and a few at a time, so that a cluster with hundreds of them costs no more than a small one.
//!
//! What bears our mark and has no record is nobody's: its record was deleted by hand, or somebody cloned a machine, notes and all. It is
//! never touched, for nothing says that nobody needs it; it is reported, with the command. An address of a pool's that is set in
//! somebody else's VM, or that a Node has which is no machine of ours, closes its slot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Daemon;
use super::regions::{Region, Regions};
use crate::clock::SharedClock;
use crate::config::Config;
use crate::machines::{Registry, View, ask_hosts};
use crate::model::{Snapshot, place};
use crate::proxmox::marker::{Description, Marker};
use crate::proxmox::{Guest, Kind, VmConfig};

/// VMs of a cluster that are asked in one look.
const AT_A_TIME: usize = 5;
/// A VM is asked again after this time; sooner where it did not answer.
const AGAIN: Duration = Duration::from_mins(10);
const AGAIN_UNHEARD: Duration = Duration::from_mins(1);
/// A mark without a record is told after this time: all records are read anew within it, those that others wrote among them.
const SURE: SignedDuration = SignedDuration::from_mins(6);
/// What the status calls them.
const PROBLEM: &str = "strangers";
/// So many are named at most.
const NAMED: usize = 20;

/// What a VM says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Says {
    name: String,
    marker: Option<Marker>,
    addresses: Vec<IpAddr>,
}

/// A VM that is no machine of ours by any record.
#[derive(Clone, Debug)]
struct Stranger {
    host: String,
    says: Says,
    /// Since when it is known to be there.
    since: Timestamp,
    due: Instant,
}

/// All of them by the prefixes of their clusters and their VMIDs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Strangers(Arc<Mutex<BTreeMap<(String, u32), Stranger>>>);

impl Strangers {
    /// Asks them now and then; never ends.
    pub async fn watch(
        self,
        regions: Regions,
        registry: Registry,
        config: watch::Receiver<Arc<Config>>,
        clock: SharedClock,
    ) {
        loop {
            let settings = config.borrow().clone();
            let looks = regions.iter().map(|region| self.look(region, &registry, &settings, clock.now()));
            futures::future::join_all(looks).await;
            tokio::time::sleep(settings.scan_interval).await;
        }
    }

    /// Asks those of one cluster whose turn it is. Those on a host that does not answer have to wait, and keep no others from theirs.
    async fn look(&self, region: &Region, registry: &Registry, config: &Config, now: Timestamp) {
        let Some(look) = region.fresh(config, now) else { return };
        let views = registry.all();
        let ours = ours(config, &views);
        let online = |host: &str| look.seen.hosts.get(host).is_some_and(|host| host.online);
        let is_stranger = |guest: &&Guest| {
            !guest.container
                && !guest.template
                && online(&guest.host)
                && !ours.contains(&(region.prefix.as_str(), guest.vmid))
        };
        let there = look.seen.guests.values().filter(is_stranger).collect();
        let mut by_host: BTreeMap<String, Vec<&Guest>> = BTreeMap::new();
        for guest in self.due(&region.prefix, there) {
            by_host.entry(guest.host.clone()).or_default().push(guest);
        }
        let ask = |host: String, guest: &Guest| {
            let vmid = guest.vmid;
            async move { region.proxmox.config(&host, vmid).await }
        };
        for (_, guest, answer) in ask_hosts(by_host, ask).await {
            let says = match answer {
                Ok(config) => Some(Says::read(&config)),
                // It is gone, or hidden from the token: it says nothing.
                Err(error) if matches!(error.kind, Kind::NotFound | Kind::Forbidden) => Some(Says::default()),
                Err(_) => None,
            };
            self.heard(&region.prefix, guest, says, now);
        }
    }

    /// Forgets those that are no strangers any more. Of the others, those that are to be asked now: first who never was.
    fn due<'g>(&self, prefix: &str, there: Vec<&'g Guest>) -> Vec<&'g Guest> {
        let mut known = self.known();
        known.retain(|(at, vmid), one| {
            let stays = |guest: &&Guest| guest.vmid == *vmid && guest.host == one.host;
            at != prefix || there.iter().any(stays)
        });
        let due = |guest: &Guest| known.get(&(prefix.to_owned(), guest.vmid)).map(|one| one.due);
        let mut turn: Vec<(Option<Instant>, &Guest)> =
            there.into_iter().map(|guest| (due(guest), guest)).collect();
        turn.retain(|(due, _)| due.is_none_or(|due| due <= Instant::now()));
        turn.sort_by_key(|(due, guest)| (*due, guest.vmid));
        turn.into_iter().take(AT_A_TIME).map(|(_, guest)| guest).collect()
    }

    fn heard(&self, prefix: &str, guest: &Guest, says: Option<Says>, now: Timestamp) {
        let mut known = self.known();
        let due = Instant::now() + if says.is_some() { AGAIN } else { AGAIN_UNHEARD };
        let new = || Stranger { host: guest.host.clone(), says: Says::default(), since: now, due };
        let one = known.entry((prefix.to_owned(), guest.vmid)).or_insert_with(new);
        one.due = due;
        one.says = says.unwrap_or_else(|| one.says.clone());
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<(String, u32), Stranger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are no machines by these records either.
    fn without(&self, config: &Config, views: &[View]) -> Vec<(String, u32, Stranger)> {
        let ours = ours(config, views);
        let known = self.known().clone();
        let strangers = known.into_iter().filter(|((prefix, vmid), _)| !ours.contains(&(prefix, *vmid)));
        strangers.map(|((prefix, vmid), one)| (prefix, vmid, one)).collect()
    }
}

impl Says {
    fn read(config: &VmConfig) -> Self {
        let marker = match config.owner() {
            Description::Ours(marker) => Some(marker),
            Description::BeingCloned | Description::Foreign => None,
        };
        let name = config.get("name").unwrap_or("?").to_owned();
        Self { name, marker, addresses: config.static_addresses().collect() }
    }
}

/// The machines of all clusters, each by its cluster's prefix and its VMID.
fn ours<'a>(config: &Config, views: &'a [View]) -> BTreeSet<(&'a str, u32)> {
    let key = |View { record, .. }: &'a View| (config.prefix(record.region.as_deref()), record.slot.vmid);
    views.iter().map(key).collect()
}

/// What is to be told of a VM that bears our mark.
fn marked(host: &str, vmid: u32, says: &Says, marker: &Marker, views: &[View]) -> String {
    let it = format!("VM {vmid} `{}` on {host}", says.name);
    let whose = match views.iter().find(|view| view.record.id == marker.machine) {
        Some(View { record, .. }) => {
            format!(
                "{it} bears the mark of machine {}, which is VM {}: it is a copy",
                record.name, record.slot.vmid
            )
        }
        None => {
            format!("{it} bears the mark of a machine of pool `{}` that has no record any more", marker.pool)
        }
    };
    format!(
        "{whose}. It is left alone: take the first line out of its notes where it is to stay; where nobody needs it, \
         on {host}: qm stop {vmid} && qm destroy {vmid} --purge 1"
    )
}

/// Slots whose addresses others have, in words.
fn closed(config: &Config, holders: &BTreeMap<IpAddr, Vec<String>>) -> Vec<String> {
    let mut told = Vec::new();
    for pool in config.pools.iter().filter(|pool| !pool.is_physical() && !holders.is_empty()) {
        for slot in pool.slots() {
            for (address, holder) in slot.addresses().filter_map(|own| holders.get_key_value(&own)) {
                let (who, vmid, name) = (holder.join(" and "), slot.vmid, &pool.name);
                told.push(format!(
                    "{who} has {address}, the address of the slot of VMID {vmid} in pool `{name}`: no machine is made there"
                ));
            }
        }
    }
    told
}

impl Daemon {
    /// The addresses of somebody else's VMs. Says which of these, and of other Nodes, are a pool's, and which VMs bear our mark without
    /// a record.
    pub(super) fn meet_strangers(
        &mut self,
        config: &Config,
        views: &[View],
        snapshot: &Snapshot,
    ) -> Vec<IpAddr> {
        let (mut told, mut taken) = (Vec::new(), Vec::new());
        let mut holders: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for (prefix, vmid, Stranger { host, says, since, .. }) in self.strangers.without(config, views) {
            let host = place::key(&prefix, &host);
            let sure = snapshot.time.duration_since(since) >= SURE;
            let marker = says.marker.as_ref().filter(|marker| sure && marker.cluster == config.cluster);
            told.extend(marker.map(|marker| marked(&host, vmid, &says, marker, views)));
            let named = format!("VM {vmid} `{}` on {host}", says.name);
            for address in says.addresses {
                taken.push(address);
                holders.entry(address).or_default().push(named.clone());
            }
        }
        let ours: BTreeSet<&str> =
            views.iter().filter_map(|view| view.record.smbios_uuid.as_deref()).collect();
        for node in snapshot.nodes.iter().filter(|node| !ours.contains(node.system_uuid.as_str())) {
            let addresses = node.internal_ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
            for address in addresses {
                holders.entry(address).or_default().push(format!("Node {}", node.name));
            }
        }
        told.extend(closed(config, &holders));
        self.tell_of_strangers(&told);
        taken
    }

    fn tell_of_strangers(&mut self, told: &[String]) {
        if told.is_empty() {
            return self.board.clear(PROBLEM);
        }
        for what in told {
            self.said.once(what, || tracing::warn!("{what}"));
        }
        let mut shown: Vec<String> = told.iter().take(NAMED).cloned().collect();
        if told.len() > NAMED {
            shown.push(format!("and {} more", told.len() - NAMED));
        }
        self.board.problem(PROBLEM, &shown.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(vmid: u32) -> Guest {
        Guest { vmid, host: "pve1".to_owned(), ..Guest::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_never_asked_comes_first_and_one_that_says_nothing_holds_up_nobody() {
        let (strangers, now) = (Strangers::default(), Timestamp::UNIX_EPOCH);
        let all: Vec<Guest> = (100..108).map(guest).collect();
        let turn = |all: &[Guest]| -> Vec<u32> {
            strangers.due("", all.iter().collect()).iter().map(|guest| guest.vmid).collect()
        };
        assert_eq!(turn(&all), [100, 101, 102, 103, 104]);
        for one in &all[..5] {
            strangers.heard("", one, (one.vmid > 100).then(Says::default), now);
        }
        assert_eq!(turn(&all), [105, 106, 107]);
        tokio::time::advance(AGAIN_UNHEARD).await;
        assert_eq!(turn(&all), [105, 106, 107, 100]);
        // One that is gone is forgotten, and new when it comes back.
        assert_eq!(turn(&all[1..]), [105, 106, 107]);
        assert_eq!(turn(&all), [100, 105, 106, 107]);
    }
}
