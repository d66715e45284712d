//! Determines which resources of hosts and storages are in use, independently of the daemon, and how much of
//! this use a daemon could know about when it placed a machine.

use std::time::Duration;

use serde_json::Value;
use stage::Call;
use tokio::time::Instant;
use world::proxmox::GuestView;
use world::proxmox::spec::GIB;

use crate::simulate::checker::memory::{AsOf, STALE, Sight, Sights};
use crate::simulate::checker::objects::{is_kept, name, vmid};
use crate::simulate::checker::{Checker, Promise};
use crate::simulate::drawn::pool_shape::{Places, PoolShape};
use crate::simulate::drawn::{devices, standing};

/// The longest time for which everything may be frozen between a read and a write.
const LONGEST: Duration = Duration::from_secs(*standing::SECONDS.end());
/// The longest time from a decision to the writing of its record, including all repetitions.
const CLAIMED: Duration = Duration::from_secs(75);
/// The time between two checks of storages.
const WEIGHED: Duration = Duration::from_secs(5);
/// How much linked clones and new cloud-init drives may add to a storage's use after the check, in bytes.
pub const GROWS: u64 = 2 * GIB;
/// The host whose template is cloned to hosts that have no template of their own.
const TEMPLATES_HOST: &str = "pve1";

/// The path at which the token's rights over VMs are granted.
const POOL: &str = "/pool/k8s-workers";

/// The resources in use on a host.
#[derive(Debug, Default)]
struct Taken {
    vcpus: u32,
    promised: u64,
    used: u64,
    of_pool: usize,
    /// The number of PCI devices in use.
    devices: usize,
    /// The VMIDs of the VMs that are included in `vcpus` and `promised`, for the message.
    by: Vec<u32>,
}

impl Taken {
    fn promise(&mut self, vmid: u32, (cores, memory): (u32, u64)) {
        self.by.push(vmid);
        self.vcpus += cores;
        self.promised += memory;
    }
}

/// Keeps track of the location of VMs and the state of hosts, for other promises.
pub struct Room;

impl Promise for Room {
    fn throughout(&self, checker: &Checker) {
        checker.look_at_places();
    }
}

impl Checker {
    /// Updates the location of VMs and the state of hosts and storages.
    pub fn look_at_places(&self) {
        self.look_at_guests();
        let now = Instant::now();
        let due = self.inner().sights.weighed.is_none_or(|at| at.elapsed() >= WEIGHED);
        let storages = if due { self.others_on_storages() } else { Vec::new() };
        let mut inner = self.inner();
        let sights = &mut inner.sights;
        if !self.world.pve.has_grants_on(POOL) {
            sights.blind = Some(now);
        }
        if due {
            sights.weighed = Some(now);
        }
        for host in &self.world.hosts {
            let Some(it) = self.world.pve.host(host) else { continue };
            let Sights { kept_empty, off, silent, .. } = &mut *sights;
            for (is_so, since) in [(it.maintenance, kept_empty), (!it.online, off), (it.silent, silent)] {
                if is_so {
                    since.entry(host.clone()).or_insert(now);
                } else {
                    since.remove(host);
                }
            }
        }
        for (place, used) in storages {
            let looks = sights.others.entry(place).or_default();
            if looks.back().is_none_or(|(_, last)| *last != used) {
                looks.push_back((now, used));
            }
            // The last value from before the window is kept, because it was still valid at the window's
            // beginning.
            while looks.get(1).is_some_and(|(at, _)| at.elapsed() > STALE + LONGEST) {
                looks.pop_front();
            }
        }
    }

    /// Updates the locations of VMs, unless no VM has changed.
    fn look_at_guests(&self) {
        let [vms, ..] = self.world.pve.changes();
        if self.inner().sights.as_of.replace(vms) == Some(vms) {
            return;
        }
        let (now, guests) = (Instant::now(), self.world.pve.guests());
        let mut inner = self.inner();
        let sights = &mut inner.sights;
        sights.guests.retain(|vmid, _| guests.iter().any(|guest| guest.vmid == *vmid));
        for GuestView { vmid, node, running, cores, memory, .. } in guests {
            let size = (cores, memory);
            let starts = u32::from(running);
            let new =
                || Sight { node: node.clone(), running, since: now, moved: None, starts, size, sized: now };
            let sight = sights.guests.entry(vmid).or_insert_with(new);
            if sight.size != size {
                (sight.size, sight.sized) = (size, now);
            }
            if sight.node != node || sight.running != running {
                let starts = sight.starts + u32::from(running && !sight.running);
                // When a clone is complete, its VM appears on the host in its record. That is not a move.
                let planned = || self.record(vmid).is_some_and(|record| record["host"] == node.as_str());
                let moved = if sight.node == node || planned() { sight.moved } else { Some(now) };
                *sight = Sight { node, running, since: now, moved, starts, size, sized: sight.sized };
            }
        }
    }

    /// The reason why no machine of a pool may be placed on a host, if any. A lack of free CPU, memory or
    /// storage is not considered.
    pub fn refuses(
        &self,
        host: &str,
        pool: &PoolShape,
        as_of: Option<AsOf<'_>>,
        except: Option<u32>,
    ) -> Option<String> {
        if self.world.rules.closed_host == Some(host) {
            return Some("is closed".to_owned());
        }
        if !pool.places.allows(host) {
            return Some(format!("is not one of the pool's hosts {:?}", pool.places.hosts));
        }
        // Each of these states is checked with its own start time: if a host loses its power during
        // maintenance, the daemon may not know of the power loss yet when the maintenance ends.
        let shut = {
            let sights = &self.inner().sights;
            [&sights.kept_empty, &sights.off, &sights.silent].map(|since| since.get(host).copied())
        };
        // Without `as_of`, the present state is checked, and a host that a daemon switched off is allowed,
        // because it may be woken.
        let stays_shut = |since| as_of.map_or_else(|| !self.is_asleep(host), |as_of| as_of.knew(since));
        if shut.into_iter().flatten().any(stays_shut) {
            return Some("is off, in maintenance or silent".to_owned());
        }
        let threads = self.world.pve.host(host)?.cores;
        if pool.grows.is_some_and(|grows| grows.cores > threads) {
            return Some(format!("cannot start a VM with more vCPUs than its {threads} threads"));
        }
        let taken = self.taken(host, pool, as_of, except);
        let devices = self.world.rules.devices.on(host);
        if pool.device && taken.devices >= devices {
            return Some(format!("has {devices} devices, of which {} are in use: {taken:?}", taken.devices));
        }
        let there = taken.of_pool;
        let most = pool.places.most.filter(|most| there >= *most)?;
        Some(format!("has {there} machines of the pool, but at most {most} are allowed"))
    }

    /// Checks whether a host has room for this many more vCPUs and bytes of memory, which one of the pool's
    /// machines needs to run or to grow. Returns the reason if the host lacks room. If the machine needs no
    /// more of a resource, that resource is not checked, because other clients may have overcommitted the
    /// host in the meantime.
    pub fn lacks(
        &self,
        host: &str,
        pool: &PoolShape,
        (cores, wanted): (u32, u64),
        as_of: Option<AsOf<'_>>,
        except: Option<u32>,
    ) -> Option<String> {
        let (there, taken) = (self.world.pve.host(host)?, self.taken(host, pool, as_of, except));
        let reserved = self.world.rules.reserved.filter(|reserved| reserved.host == host);
        let Places { cpu_halves, memory_halves, reserve, .. } = pool.places;
        let reserve = reserved.map_or(reserve, |reserved| reserved.gib) * GIB;
        let threads = there.cores.saturating_sub(reserved.map_or(0, |reserved| reserved.cores));
        let sums = [
            (cores > 0, "vCPUs", u64::from(taken.vcpus + cores), u64::from(threads * cpu_halves / 2)),
            (
                wanted > 0,
                "bytes promised",
                taken.promised + wanted + reserve,
                there.memory * memory_halves / 2,
            ),
            (wanted > 0, "bytes used", there.own_memory + taken.used + wanted + reserve, there.memory),
        ];
        let (_, what, sum, most) = sums.into_iter().find(|(more, _, sum, most)| *more && sum > most)?;
        Some(format!(
            "would have {sum} {what}, including its reserve, but may have at most {most}; in use: {taken:?}"
        ))
    }

    /// Whether any host currently has room for one more of the pool's machines. If `wakes` is set, this
    /// includes hosts that a daemon switched off, because they can be woken.
    pub fn has_room(&self, pool: &PoolShape, wakes: bool) -> bool {
        let gib = self.inner().disks.get(pool.name).copied().unwrap_or_default();
        let wanted = u64::from(gib) * GIB + GROWS;
        let stores = |host: &str| {
            let mut storages = pool.places.storages.iter();
            pool.places.storages.is_empty()
                || storages.any(|storage| {
                    let across = host != TEMPLATES_HOST;
                    self.world.pve.storage_on(storage, host).is_some_and(|it| {
                        (it.shared || !across) && it.used + wanted + Places::STORAGE_RESERVE <= it.size
                    })
                })
        };
        self.world.hosts.iter().any(|host| {
            (wakes || !self.is_asleep(host))
                && self.refuses(host, pool, None, None).is_none()
                && self.lacks(host, pool, pool.size(), None, None).is_none()
                && stores(host)
        })
    }

    /// Whether a host is on, or may have been on when the daemon last read its state.
    pub fn seems_on(&self, host: &str, as_of: AsOf<'_>) -> bool {
        let since = self.inner().sights.off.get(host).copied();
        self.world.pve.is_online(host) || since.is_none_or(|since| !as_of.knew(since))
    }

    /// Returns what uses the host, if the daemon must know about it: a machine on the host, a machine that
    /// will be placed on it, or an unmanaged VM that runs on it.
    pub fn is_used_by(&self, host: &str, as_of: AsOf<'_>) -> Option<String> {
        let (guests, foreign) = (self.world.pve.guests(), self.foreigners());
        for guest in guests.iter().filter(|guest| guest.node == host && !guest.template) {
            let ours = self.world.pool_of(guest.vmid).is_some() && !foreign.contains(&guest.vmid);
            let inner = self.inner();
            let Some(sight) = inner.sights.guests.get(&guest.vmid) else { continue };
            let is_known = as_of.knew(sight.since) || (ours && sight.running && sight.starts == 1);
            if is_known && (ours || guest.running) {
                return Some(format!("VM {}", guest.vmid));
            }
        }
        let comes = |record: &Value| {
            let is_known = vmid(record).is_some_and(|vmid| self.is_written(vmid, as_of));
            is_known && record["intent"]["kind"] == "create" && record["nodeUid"].is_null()
        };
        let coming =
            self.without_vm(&guests).into_iter().find(|record| record["host"] == host && comes(record));
        coming.map(|record| format!("the planned machine {}", record["name"]))
    }

    /// Whether the VM has been stopped on this host long enough for the daemon to know.
    pub fn is_where_it_was(&self, vmid: u32, host: &str, as_of: AsOf<'_>) -> bool {
        let inner = self.inner();
        let sight = inner.sights.guests.get(&vmid);
        sight.is_some_and(|sight| sight.node == host && !sight.running && as_of.knew(sight.since))
    }

    /// Whether the VM has been running on this host long enough for the daemon to know.
    pub fn runs_where_it_did(&self, vmid: u32, host: &str, as_of: AsOf<'_>) -> bool {
        let inner = self.inner();
        let sight = inner.sights.guests.get(&vmid);
        sight.is_some_and(|sight| sight.node == host && sight.running && as_of.knew(sight.since))
    }

    /// The machine's size that the daemon must know about: its initial size, or a larger size that the
    /// machine has had for long enough.
    fn size_of(&self, vmid: u32, pool: &PoolShape, as_of: Option<AsOf<'_>>) -> (u32, u64) {
        let (cores, memory) = pool.size();
        let inner = self.inner();
        let sight = inner.sights.guests.get(&vmid).filter(|_| pool.grows.is_some());
        let known = sight.filter(|sight| as_of.is_none_or(|as_of| as_of.knew(sight.sized)));
        known.map_or((cores, memory), |sight| (sight.size.0.max(cores), sight.size.1.max(memory)))
    }

    /// Called when a daemon creates a record. If `given_up` is set, the daemon no longer waits for the answer
    /// and may not know that the record exists.
    pub fn record_made(&self, vmid: u32, who: &str, given_up: bool) {
        let maker = (!given_up).then(|| (who.to_owned(), Instant::now()));
        self.inner().sights.written.insert(vmid, maker);
    }

    /// Called when the answer to a call that creates a record is lost.
    pub fn record_in_doubt(&self, call: &Call<'_>) {
        let Some((before, written)) = self.change_of_record(call).filter(|_| call.method == "POST") else {
            return;
        };
        if let Some(vmid) = vmid(&written).filter(|_| before.is_null()) {
            self.inner().sights.written.insert(vmid, None);
        }
    }

    /// Whether the daemon knew of a record when it decided.
    pub fn is_written(&self, vmid: u32, as_of: AsOf<'_>) -> bool {
        match self.inner().sights.written.get(&vmid) {
            Some(Some((who, since))) => who == as_of.who || as_of.knew(*since),
            Some(None) => false,
            None => true,
        }
    }

    /// Called when a daemon asks a warm machine to join.
    pub fn woken(&self, vmid: u32, who: &str) {
        self.inner().sights.woken.insert(vmid, (who.to_owned(), Instant::now()));
    }

    /// The VMIDs of machines whose records the daemon may have written for the decision in `as_of`.
    pub fn decided_with(&self, as_of: AsOf<'_>) -> Vec<u32> {
        let inner = self.inner();
        let made = inner.sights.written.iter().filter_map(|(vmid, maker)| Some((vmid, maker.as_ref()?)));
        let written = made.chain(&inner.sights.woken);
        let lately = written.filter(|(_, (who, at))| who == as_of.who && *at + CLAIMED > as_of.sent);
        lately.map(|(vmid, _)| *vmid).collect()
    }

    /// Records of machines whose VMID belongs to no VM.
    fn without_vm(&self, guests: &[GuestView]) -> Vec<Value> {
        let maps = self.world.kube.list("ConfigMap");
        let records = maps.iter().filter(|map| name(map).starts_with("machine-"));
        let records = records
            .filter_map(|map| serde_json::from_str::<Value>(map["data"]["record"].as_str()?).ok())
            .filter(|record| !vmid(record).is_some_and(|vmid| guests.iter().any(|guest| guest.vmid == vmid)));
        records.collect()
    }

    fn taken(&self, host: &str, pool: &PoolShape, as_of: Option<AsOf<'_>>, except: Option<u32>) -> Taken {
        let (guests, foreign) = (self.world.pve.guests(), self.foreigners());
        let mut taken = Taken::default();
        for guest in guests.iter().filter(|guest| !guest.template && Some(guest.vmid) != except) {
            let (is_known, follows, starts) = {
                let inner = self.inner();
                let sight = inner.sights.guests.get(&guest.vmid);
                let knew = |since| as_of.is_none_or(|as_of| as_of.knew(since));
                let known = sight.is_some_and(|sight| knew(sight.since));
                // The daemon may have learned of a move only after the decision, even if the record already
                // contains the new host.
                let follows = sight.and_then(|sight| sight.moved).is_none_or(knew);
                (known, follows, sight.map_or(0, |sight| sight.starts))
            };
            let machine = self.world.pool_of(guest.vmid).filter(|_| !foreign.contains(&guest.vmid));
            let Some(own) = machine else {
                if guest.node == host && is_known {
                    // The token may have lost its rights since the last check.
                    let blind = (!self.world.pve.has_grants_on(POOL)).then(Instant::now);
                    let blind = blind.or(self.inner().sights.blind);
                    let sees = blind.is_none_or(|last| as_of.is_none_or(|as_of| as_of.knew(last)));
                    self.count_foreign(guest, sees, &mut taken);
                }
                continue;
            };
            let record = self.record(guest.vmid).unwrap_or_default();
            if record.is_null() && self.was_outside(guest.vmid) {
                continue;
            }
            let planned = record["host"].as_str().unwrap_or_default();
            // The VM of a clone is on its template's host until the clone is complete.
            let is_cloned = guest.lock.as_deref() == Some("clone") || record["smbiosUuid"].is_null();
            let place = if is_cloned { planned } else { &guest.node };
            if place != host || !follows || (place != planned && !is_known) {
                continue;
            }
            taken.of_pool += usize::from(own.name == pool.name);
            // The daemon knows of a first start that it performed, but perhaps not of an administrator's.
            let first = starts <= 1 && !self.inner().started.contains(&guest.vmid);
            let runs = guest.running && (is_known || first);
            taken.devices += usize::from(own.device && (runs || record["intent"]["kind"] == "create"));
            let coming = starts == 0 && record["nodeUid"].is_null();
            if runs || will_run(&record) {
                let size = self.size_of(guest.vmid, own, as_of);
                taken.promise(guest.vmid, size);
                taken.used += if runs || coming { size.1 } else { 0 };
            }
        }
        for record in self.without_vm(&guests) {
            let vmid = vmid(&record).unwrap_or_default();
            let is_known = as_of.is_none_or(|as_of| self.is_written(vmid, as_of));
            let Some(own) = self.world.pool_of(vmid).filter(|_| Some(vmid) != except && is_known) else {
                continue;
            };
            // The daemon does not recreate a VM that another client has deleted.
            let comes = record["intent"]["kind"] == "create" && record["smbiosUuid"].is_null();
            if record["host"] != host || !comes {
                continue;
            }
            taken.of_pool += usize::from(own.name == pool.name);
            taken.devices += usize::from(own.device);
            if will_run(&record) {
                taken.promise(vmid, own.size());
                taken.used += own.size().1;
            }
        }
        taken
    }

    /// Adds the resources of an unmanaged VM. Memory that the VM uses is always included. Resources that are
    /// assigned to the VM are included only if the token can see the VM.
    fn count_foreign(&self, guest: &GuestView, sees: bool, taken: &mut Taken) {
        let stopped = self.world.rules.count_stopped && guest.lock.is_none();
        let known = sees && (guest.pool.is_some() || self.world.rules.power.is_some());
        if known && (guest.running || stopped) {
            taken.promise(guest.vmid, (guest.cores, guest.memory));
            taken.devices +=
                usize::from(self.world.pve.vm(guest.vmid).is_some_and(|vm| devices::has_one(&vm)));
        }
        taken.used += if guest.running { guest.memory } else { 0 };
    }
}

/// Whether the host must keep room for a machine, because the machine is to run.
fn will_run(record: &Value) -> bool {
    record["intent"]["kind"] == "create" && (!is_kept(record) || record["warm"] == "booted")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_keep_room_for_what_is_to_run() {
        for (record, expected) in [
            (json!({ "intent": { "kind": "create" } }), true),
            (json!({ "intent": { "kind": "create" }, "warm": "booted" }), true),
            (json!({ "intent": { "kind": "create" }, "warm": "stopped" }), false),
            (json!({ "intent": { "kind": "retire" } }), false),
        ] {
            assert_eq!(will_run(&record), expected, "{record}");
        }
    }
}
