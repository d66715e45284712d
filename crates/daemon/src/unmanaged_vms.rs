//! Reads the VMs whose VMIDs belong to no managed machine, to learn their addresses and whether they bear
//! this cluster's mark. The VMs are read concurrently with the rounds: new ones immediately, the others a few
//! at a time, which limits the load if there are hundreds of them. No machine is created in a Proxmox VE
//! cluster until each of its readable VMs has been read once. A result remains valid until the VM changes or
//! is gone, even while the VM's host is off, because the VM keeps its address.
//!
//! A VM may bear this cluster's mark but have no record, because the record was deleted by hand, or because
//! an administrator cloned a machine together with its notes. Such a VM is reported, with the commands that
//! remove it. The daemon leaves it alone unless the setting `orphans` allows its removal and the VM is proven
//! to be an orphan. If an unmanaged VM or Node has an address from a pool, no machine is created in the slot
//! with that address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Daemon;
use super::inventory::Observation;
use super::regions::{Region, Regions};
use machines::{MachineView, Owner, Promise, Registry, ask_hosts_in_time, promise_of};
use model::{HostKey, Snapshot, Vmid};
use observability::Problem;
use proxmox::marker::{Description, Marker};
use proxmox::{Guest, Kind, VmConfig};
use runtime::clock::SharedClock;
use settings::{Config, Orphans};

/// How long the first round waits until the unmanaged VMs have been read. If a cluster takes longer to
/// answer, its machines are created later. Other clusters do not wait for it.
const FIRST: Duration = Duration::from_secs(2);
/// The maximum number of VMs per cluster that are read again in one pass.
const AT_A_TIME: usize = 5;
/// The time after which a VM is read again. It is shorter if the last attempt failed.
const AGAIN: Duration = Duration::from_mins(10);
const AGAIN_UNHEARD: Duration = Duration::from_mins(1);
/// The time after which a VM that is being created is read again.
const AGAIN_UNSETTLED: Duration = Duration::from_secs(5);
/// The time after which a VM with a mark but without a record is reported. Within this time, all records are
/// read again, including those that other instances wrote.
const SURE: SignedDuration = SignedDuration::from_mins(6);
/// The maximum number of reports about unmanaged VMs that `status` shows.
const NAMED: usize = 20;

/// The data that was read about an unmanaged VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Says {
    name: String,
    marker: Option<Marker>,
    /// The VM's full configuration, if the VM bears the mark of a machine of any cluster.
    config: Option<VmConfig>,
    /// Whether the VM was running when it was read.
    runs: bool,
    addresses: Vec<IpAddr>,
    /// The resources that the VM will use on its host once it runs, if it is a machine that is meant to run.
    promise: Option<Promise>,
    /// Whether the VM is still being created. If so, its resources may change soon.
    unsettled: bool,
}

/// A VM without a record.
#[derive(Clone, Debug)]
struct Stranger {
    host: String,
    /// What was read from the VM; `None` if the VM has not been read yet.
    says: Option<Says>,
    /// The time at which the VM was first queried.
    since: Timestamp,
    /// The time of the last change to the VM's host, power state or configuration, and how many times the VM
    /// has been read since then.
    steady: (Instant, u32),
    due: Instant,
}

/// A VM that bears this cluster's mark but has no record.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    /// Its VMID.
    pub vmid: Vmid,
    /// The VM's host, with the prefix of its cluster.
    pub host: HostKey,
    /// Its configuration.
    pub config: VmConfig,
    /// The VM's mark, which names the machine and its owner.
    pub marker: Marker,
    /// How long the VM has been unchanged, and how many times it was read in that time.
    pub steady: (Duration, u32),
}

/// All known unmanaged VMs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Strangers {
    /// The unmanaged VMs, by their cluster's prefix and their VMID.
    known: Arc<Mutex<BTreeMap<(String, Vmid), Stranger>>>,
    /// The prefixes of the clusters whose readable VMs have all been read at least once.
    asked: watch::Sender<BTreeSet<String>>,
}

impl Strangers {
    /// Reads unmanaged VMs periodically; never ends.
    pub async fn watch(
        self,
        regions: Regions,
        registry: Registry,
        config: watch::Receiver<Arc<Config>>,
        clock: SharedClock,
    ) {
        let mut changed = regions.changed();
        loop {
            let settings = config.borrow().clone();
            changed.mark_unchanged();
            let looks = regions.iter().map(|region| self.look(region, &registry, &settings, clock.now()));
            let unasked = futures::future::join_all(looks).await;
            if unasked.contains(&true) {
                continue;
            }
            // When a cluster or host comes back, its VMs are read immediately.
            tokio::select! {
                biased;
                Ok(()) = changed.changed() => {}
                () = tokio::time::sleep(settings.scan_interval) => {}
            }
        }
    }

    /// Waits briefly until all VMs in the visible clusters have been read at least once. The returned
    /// receiver changes when all VMs in an additional cluster have been read.
    pub async fn first(
        &self,
        regions: &Regions,
        config: &Config,
        now: Timestamp,
    ) -> watch::Receiver<BTreeSet<String>> {
        let seen: Vec<&Region> = regions.iter().filter(|one| one.fresh(config, now).is_some()).collect();
        let mut asked = self.asked.subscribe();
        let all = asked.wait_for(|asked| seen.iter().all(|region| asked.contains(&region.prefix)));
        if tokio::time::timeout(FIRST, all).await.is_err() {
            tracing::warn!(
                "the addresses of some unmanaged VMs have not been read yet: no machine is created until they are known"
            );
        }
        asked
    }

    /// Whether all VMs in the cluster with this prefix have been read at least once.
    pub fn were_asked(&self, prefix: &str) -> bool {
        self.asked.borrow().contains(prefix)
    }

    /// Reads those VMs of one cluster that are due to be read. Returns true if there was not enough time to
    /// read all new VMs. VMs on a host that does not answer are read later, and do not delay the others.
    async fn look(&self, region: &Region, registry: &Registry, config: &Config, now: Timestamp) -> bool {
        let Some(look) = region.fresh(config, now) else { return false };
        let views = registry.all();
        let ours = ours(config, &views);
        let is_stranger = |guest: &&Guest| {
            !guest.container && !guest.template && !ours.contains(&(region.prefix.as_str(), guest.vmid))
        };
        let there: Vec<&Guest> = look.seen.guests.values().filter(is_stranger).collect();
        self.forget_others(&region.prefix, &there);
        let online = |guest: &&Guest| look.seen.hosts.get(&guest.host).is_some_and(|host| host.online);
        let mut by_host: BTreeMap<String, Vec<&Guest>> = BTreeMap::new();
        for guest in self.due(&region.prefix, there.into_iter().filter(online)) {
            by_host.entry(guest.host.clone()).or_default().push(guest);
        }
        let ask = |host: String, guest: &Guest| {
            let vmid = guest.vmid;
            async move { region.proxmox.config(&host, vmid).await }
        };
        let mut unasked = false;
        for (_, guest, answer) in ask_hosts_in_time(by_host, ask).await {
            let Some(answer) = answer else {
                unasked |= self.is_unheard(&region.prefix, guest.vmid);
                continue;
            };
            let says = match answer {
                Ok(config) => Some(Says::read(&config, guest.running)),
                // The token may not read this VM, so nothing is known about it.
                Err(error) if error.kind == Kind::Forbidden => Some(Says::default()),
                // If the VM is gone or has moved, the next observation shows that.
                Err(_) => None,
            };
            self.heard(&region.prefix, guest, says, now);
        }
        if !unasked {
            self.asked.send_if_modified(|asked| asked.insert(region.prefix.clone()));
        }
        unasked
    }

    fn is_unheard(&self, prefix: &str, vmid: Vmid) -> bool {
        self.known().get(&(prefix.to_owned(), vmid)).is_none_or(|one| one.says.is_none())
    }

    /// Forgets VMs of a cluster that are gone or no longer unmanaged.
    fn forget_others(&self, prefix: &str, there: &[&Guest]) {
        let there: BTreeSet<Vmid> = there.iter().map(|guest| guest.vmid).collect();
        self.known().retain(|(at, vmid), _| at != prefix || there.contains(vmid));
    }

    /// Returns the VMs to read now: all VMs that have not been read yet, and some of the others. Among the
    /// others, VMs that have moved come first.
    fn due<'g>(&self, prefix: &str, there: impl Iterator<Item = &'g Guest>) -> Vec<&'g Guest> {
        let known = self.known();
        let (mut unheard, mut again) = (Vec::new(), Vec::new());
        for guest in there {
            let one = known.get(&(prefix.to_owned(), guest.vmid));
            let due = one.filter(|one| one.host == guest.host).map(|one| one.due);
            if due.is_some_and(|due| due > Instant::now()) {
                continue;
            }
            match one.and_then(|one| one.says.as_ref()) {
                Some(_) => again.push((due, guest)),
                None => unheard.push(guest),
            }
        }
        again.sort_by_key(|(due, guest)| (*due, guest.vmid));
        unheard.extend(again.into_iter().take(AT_A_TIME).map(|(_, guest)| guest));
        unheard
    }

    fn heard(&self, prefix: &str, guest: &Guest, says: Option<Says>, now: Timestamp) {
        let mut known = self.known();
        let again = match &says {
            Some(says) if says.unsettled => AGAIN_UNSETTLED,
            Some(_) => AGAIN,
            None => AGAIN_UNHEARD,
        };
        let due = Instant::now() + again;
        let new =
            || Stranger { host: String::new(), says: None, since: now, steady: (Instant::now(), 0), due };
        let one = known.entry((prefix.to_owned(), guest.vmid)).or_insert_with(new);
        // A VM that could not be read may have changed in the meantime.
        if says.is_none() || says != one.says || one.host != guest.host {
            one.steady = (Instant::now(), 0);
        }
        one.steady.1 += u32::from(says.is_some());
        one.host.clone_from(&guest.host);
        one.due = due;
        one.says = says.or_else(|| one.says.take());
    }

    /// Returns the VMs whose mark contains this cluster's id (`cluster`), even if the mark was set by another
    /// Kubernetes cluster with the same id.
    pub fn marked(&self, config: &Config, views: &[MachineView]) -> Vec<Marked> {
        let all = self.without(config, views).into_iter();
        let marked = all.filter_map(|(prefix, vmid, stranger)| {
            let Says { marker, config, .. } = stranger.says?;
            let (since, looks) = stranger.steady;
            let host = HostKey::new(&prefix, &stranger.host);
            let steady = (since.elapsed(), looks);
            Some(Marked { vmid, host, config: config?, marker: marker?, steady })
        });
        marked.filter(|one| one.marker.cluster == config.cluster).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<(String, Vmid), Stranger>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the known VMs that do not belong to these machines.
    fn without(&self, config: &Config, views: &[MachineView]) -> Vec<(String, Vmid, Stranger)> {
        let ours = ours(config, views);
        let known = self.known().clone();
        let strangers = known.into_iter().filter(|((prefix, vmid), _)| !ours.contains(&(prefix, *vmid)));
        strangers.map(|((prefix, vmid), one)| (prefix, vmid, one)).collect()
    }
}

impl Says {
    fn read(config: &VmConfig, runs: bool) -> Self {
        let marker = match config.owner() {
            Description::Ours(marker) => Some(marker),
            Description::BeingCloned | Description::BeingDestroyed | Description::Foreign => None,
        };
        let name = config.get("name").unwrap_or("?").to_owned();
        let promise = promise_of(config).map(|(_, promise)| promise);
        let unsettled = match config.owner() {
            Description::BeingCloned => true,
            Description::Ours(_) => !runs && promise.is_some(),
            Description::BeingDestroyed | Description::Foreign => false,
        };
        let addresses = config.static_addresses().collect();
        let config = marker.is_some().then(|| config.clone());
        Self { name, marker, config, runs, addresses, promise, unsettled }
    }
}

/// The machines of all clusters, as pairs of the cluster's prefix and the VMID.
fn ours<'a>(config: &Config, views: &'a [MachineView]) -> BTreeSet<(&'a str, Vmid)> {
    let key = |MachineView { record, .. }: &'a MachineView| {
        (config.prefix(record.region.as_deref()), record.slot.vmid)
    };
    views.iter().map(key).collect()
}

/// The report about a VM that bears this cluster's mark but has no record.
fn marked(
    (host, vmid): (&str, Vmid),
    says: &Says,
    marker: &Marker,
    views: &[MachineView],
    orphans: Orphans,
) -> String {
    let it = format!("VM {vmid} `{}` on {host}", says.name);
    let whose = match views.iter().find(|view| view.record.id == marker.machine) {
        Some(MachineView { record, .. }) => {
            format!(
                "{it} is a copy: it bears the mark of machine {}, which is VM {}",
                record.name, record.slot.vmid
            )
        }
        None => {
            format!("{it} bears the mark of a machine of pool `{}` that no longer has a record", marker.pool)
        }
    };
    if orphans == Orphans::Collect {
        return format!(
            "{whose}. `pve-autoscaler orphans` shows when this VM is destroyed, or why it is left \
                alone. To keep the VM, remove the first line of its notes"
        );
    }
    format!(
        "{whose}. This VM is left alone (`pve-autoscaler orphans` shows why). To keep the VM, remove \
            the first line of its notes. If the VM is not needed, on {host}: qm stop {vmid} && qm \
            destroy {vmid} --purge 1"
    )
}

/// Returns the report about a machine of another Kubernetes cluster that uses the same Proxmox VE cluster.
/// `it` names the machine. Returns `None` unless both Kubernetes clusters have the same id, or the VMID
/// belongs to a pool of this daemon.
fn of_another(config: &Config, prefix: &str, vmid: Vmid, it: &str, marker: &Marker) -> Option<String> {
    if marker.cluster == config.cluster {
        return Some(format!(
            "{it} belongs to another Kubernetes cluster whose daemon has the same id (`cluster` in the \
                configuration): the VM is left alone. Give the newer cluster a different id before its \
                daemon creates machines"
        ));
    }
    let mut here = config.pools.iter().filter(|pool| !pool.is_physical() && pool.prefix == prefix);
    let pool = here.find(|pool| pool.vmids.iter().any(|vmids| vmids.contains(&vmid.0)))?;
    Some(format!(
        "{it} has a VMID of pool `{}`: no machine is created with that VMID. Give each cluster its own \
            VMIDs (`vmids`)",
        pool.name
    ))
}

/// A report for each slot whose address is in use by another VM or Node.
fn closed(config: &Config, holders: &BTreeMap<IpAddr, Vec<String>>) -> Vec<String> {
    let mut told = Vec::new();
    for pool in config.pools.iter().filter(|pool| !pool.is_physical() && !holders.is_empty()) {
        for slot in pool.slots() {
            for (address, holder) in slot.addresses().filter_map(|own| holders.get_key_value(&own)) {
                let (who, vmid, name) = (holder.join(" and "), slot.vmid, &pool.name);
                told.push(format!(
                    "{who} has {address}, the address of the slot of VMID {vmid} in pool `{name}`: no \
                        machine is created in that slot"
                ));
            }
        }
    }
    told
}

impl Daemon {
    /// Returns the addresses of unmanaged VMs. Reports each address of an unmanaged VM or Node that belongs
    /// to a pool. Also reports the VMs that bear this cluster's mark but have no record.
    pub(super) fn meet_strangers(
        &mut self,
        config: &Config,
        views: &[MachineView],
        snapshot: &Snapshot,
    ) -> Vec<IpAddr> {
        let (mut told, mut taken) = (Vec::new(), Vec::new());
        let owner = self.owner(config);
        let mut holders: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for (prefix, vmid, Stranger { host, says, since, .. }) in self.strangers.without(config, views) {
            let Some(says) = says else { continue };
            let host = HostKey::new(&prefix, &host);
            let sure = snapshot.time.duration_since(since) >= SURE;
            let mut named = format!("VM {vmid} `{}` on {host}", says.name);
            match says.marker.as_ref() {
                Some(marker) if owner.is_not(marker) => {
                    named = format!("{named}, a machine of cluster `{}`,", marker.cluster);
                    told.extend(of_another(config, &prefix, vmid, &named, marker));
                }
                Some(marker) if sure => {
                    told.push(marked((&host, vmid), &says, marker, views, config.orphans));
                }
                _ => {}
            }
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

    pub(super) fn owner(&self, config: &Config) -> Owner {
        Owner { cluster: config.cluster.clone(), kubernetes: self.watches.kubernetes_uid() }
    }

    /// The resources that machines of other Kubernetes clusters will use on each host of a Proxmox VE cluster
    /// once they run.
    pub(super) fn promised_to_others(
        &self,
        config: &Config,
        prefix: &str,
        look: &Observation,
    ) -> Vec<(String, Promise)> {
        let owner = self.owner(config);
        let runs = |vmid| look.seen.guests.get(&vmid).is_none_or(|guest| guest.running);
        let known = self.strangers.known();
        let here = known.iter().filter(|((at, vmid), _)| at == prefix && !runs(*vmid));
        let promised = here.filter_map(|(_, stranger)| {
            let says = stranger.says.as_ref()?;
            says.marker.as_ref().filter(|marker| owner.is_not(marker))?;
            Some((stranger.host.clone(), says.promise?))
        });
        promised.collect()
    }

    fn tell_of_strangers(&mut self, told: &[String]) {
        if told.is_empty() {
            return self.board.clear(&Problem::Strangers);
        }
        for what in told {
            self.said.once(what, || tracing::warn!("{what}"));
        }
        let mut shown: Vec<String> = told.iter().take(NAMED).cloned().collect();
        if told.len() > NAMED {
            shown.push(format!("and {} more", told.len() - NAMED));
        }
        self.board.problem(&Problem::Strangers, &shown.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(vmid: Vmid) -> Guest {
        Guest { vmid, host: "pve1".to_owned(), ..Guest::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_vm_that_was_not_heard_is_asked_at_once_and_the_others_a_few_at_a_time() {
        let (strangers, now) = (Strangers::default(), Timestamp::UNIX_EPOCH);
        let mut all: Vec<Guest> = (100..108).map(Vmid).map(guest).collect();
        let turn = |all: &[Guest]| -> Vec<Vmid> {
            strangers.forget_others("", &all.iter().collect::<Vec<_>>());
            strangers.due("", all.iter()).iter().map(|guest| guest.vmid).collect()
        };
        assert_eq!(
            turn(&all),
            [Vmid(100), Vmid(101), Vmid(102), Vmid(103), Vmid(104), Vmid(105), Vmid(106), Vmid(107)]
        );
        for one in &all {
            strangers.heard("", one, (one.vmid > Vmid(100)).then(Says::default), now);
        }
        assert!(turn(&all).is_empty());
        tokio::time::advance(AGAIN_UNHEARD).await;
        assert_eq!(turn(&all), [Vmid(100)]);
        // A VM that is gone is forgotten. If it comes back, it counts as new.
        assert!(turn(&all[1..7]).is_empty());
        assert_eq!(turn(&all), [Vmid(100), Vmid(107)]);
        // A VM that has moved is read on its new host, before the others.
        "pve2".clone_into(&mut all[6].host);
        assert_eq!(turn(&all), [Vmid(100), Vmid(107), Vmid(106)]);
        tokio::time::advance(AGAIN).await;
        assert_eq!(turn(&all), [Vmid(100), Vmid(107), Vmid(106), Vmid(101), Vmid(102), Vmid(103), Vmid(104)]);
        // If a VM cannot be read, the result of the last successful read is kept.
        strangers.heard("", &all[6], None, now);
        assert!(strangers.known()[&(String::new(), Vmid(106))].says.is_some());
    }
}
