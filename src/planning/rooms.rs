//! Room for new machines: the pools' maxima, free slots, and the hosts' memory and cores.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::limits::{self, Shape, Sum};
use super::{View, being_deleted, pauses, pool_of};
use crate::config::{Pool, ScaleUp};
use crate::model::machine::{Host, Machine, Phase, Slot};
use crate::model::snapshot::PoolMemory;

/// Why a pool gets no further machine now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The pool, or the cluster, is at a maximum: which, in words.
    AtMax(String),
    /// No free slot is left.
    NoSlot,
    /// No host has room.
    NoHost,
    /// The pool or every host that has room backs off after failures.
    BackingOff(String),
    /// The pool has just changed: until when it is left alone, in words.
    Settling(String),
}

impl Full {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::AtMax(_) => "PoolAtMax",
            Self::NoSlot => "NoFreeSlot",
            Self::NoHost => "NoHostCapacity",
            Self::BackingOff(_) | Self::Settling(_) => "BackingOff",
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::AtMax(which) => which.clone(),
            Self::NoSlot => "no free VMID and address is left".to_owned(),
            Self::NoHost => "no host has room for another machine".to_owned(),
            Self::BackingOff(why) => format!("left alone after a failure: {why}"),
            Self::Settling(until) => format!("left alone {until}"),
        }
    }
}

/// Where the next machine of a pool goes.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub host: String,
    pub slot: Option<Slot>,
}

#[derive(Clone, Debug)]
struct HostRoom {
    memory: i64,
    threads: u32,
    vcpus: u32,
    usable: bool,
    backoff: Option<String>,
    by_pool: BTreeMap<String, u32>,
}

/// What is left, counted down while machines are planned.
#[derive(Clone)]
pub(super) struct Rooms<'a> {
    settings: &'a ScaleUp,
    hosts: Option<BTreeMap<String, HostRoom>>,
    slots: Option<BTreeMap<String, VecDeque<Slot>>>,
    counts: BTreeMap<String, Sum>,
    /// How many of them are on their way out.
    leaving: BTreeMap<String, u32>,
    total: Sum,
    backoffs: BTreeMap<String, String>,
    settling: BTreeMap<String, String>,
    memory: &'a BTreeMap<String, PoolMemory>,
}

impl<'a> Rooms<'a> {
    pub(super) fn new(view: &View<'a>) -> Self {
        let snapshot = view.snapshot;
        let now = snapshot.time;
        let memory = &snapshot.memory;
        let holds = |backoff: Option<&crate::model::workload::Backoff>| {
            backoff.filter(|backoff| backoff.until > now).map(|backoff| backoff.reason.clone())
        };
        let mut rooms = Self {
            hosts: hosts(view, &holds),
            slots: memory.free_slots.as_ref().map(|all| {
                all.iter().map(|(pool, slots)| (pool.clone(), slots.iter().cloned().collect())).collect()
            }),
            counts: BTreeMap::new(),
            leaving: BTreeMap::new(),
            total: Sum::default(),
            settings: &view.config.scale_up,
            memory: &memory.pools,
            backoffs: memory
                .pools
                .iter()
                .filter_map(|(pool, memory)| Some((pool.clone(), holds(memory.backoff.as_ref())?)))
                .collect(),
            settling: view
                .config
                .pools
                .iter()
                .filter_map(|pool| Some((pool.name.clone(), pauses::growth(view, &pool.name)?)))
                .collect(),
        };
        rooms.count_present(view);
        rooms
    }

    /// Counts Nodes, and machines without one. A Node on its way out counts as long as its VM exists, where VMs are known.
    fn count_present(&mut self, view: &View) {
        let machines = view.snapshot.proxmox.machines.as_deref();
        let present = || machines.into_iter().flatten().filter(|machine| machine.phase != Phase::Gone);
        let vms: BTreeSet<&str> =
            present().map(|machine| machine.node.as_ref().unwrap_or(&machine.name).as_str()).collect();
        let by_node = limits::by_node(machines);
        let mut nodes: BTreeSet<&str> = BTreeSet::new();
        for node in &view.snapshot.nodes {
            let leaves = being_deleted(node);
            nodes.insert(&node.name);
            if leaves && machines.is_some() && pool_of(node).is_some() && !vms.contains(node.name.as_str()) {
                continue;
            }
            let shape = limits::shape(view, node, by_node.get(node.name.as_str()).copied());
            self.total.add(shape);
            if let Some(pool) = pool_of(node) {
                self.counts.entry(pool.to_owned()).or_default().add(shape);
                *self.leaving.entry(pool.to_owned()).or_default() += u32::from(leaves);
            }
        }
        for machine in present() {
            let name = machine.node.as_ref().unwrap_or(&machine.name);
            if !nodes.contains(name.as_str()) {
                self.total.add(machine.into());
                self.counts.entry(machine.pool.clone()).or_default().add(machine.into());
                let leaves = machine.phase >= Phase::Draining;
                *self.leaving.entry(machine.pool.clone()).or_default() += u32::from(leaves);
            }
        }
    }

    /// Machines of the pool that are not on their way out, those that are planned included.
    pub(super) fn staying(&self, pool: &str) -> u32 {
        self.count(pool).saturating_sub(self.leaving.get(pool).copied().unwrap_or(0))
    }

    /// Machines of the pool, those that are planned included.
    pub(super) fn count(&self, pool: &str) -> u32 {
        self.sum(pool).machines
    }

    fn sum(&self, pool: &str) -> Sum {
        self.counts.get(pool).copied().unwrap_or_default()
    }

    /// Where the next machine of the pool would go.
    pub(super) fn next(&self, pool: &Pool) -> Result<Place, Full> {
        let place = self.next_of_minimum(pool)?;
        match self.settling.get(&pool.name) {
            Some(until) => Err(Full::Settling(until.clone())),
            None => Ok(place),
        }
    }

    /// The same for a machine that the pool's minimum asks for: it does not wait for the pool to settle.
    pub(super) fn next_of_minimum(&self, pool: &Pool) -> Result<Place, Full> {
        if let Some(which) = limits::broken(pool, self.settings, self.sum(&pool.name), self.total) {
            return Err(Full::AtMax(which));
        }
        if let Some(why) = self.backoffs.get(&pool.name) {
            return Err(Full::BackingOff(why.clone()));
        }
        let slot = match &self.slots {
            None => None,
            Some(all) => Some(all.get(&pool.name).and_then(VecDeque::front).cloned().ok_or(Full::NoSlot)?),
        };
        Ok(Place { host: self.host(pool)?, slot })
    }

    /// Counts a machine of the pool as planned there.
    pub(super) fn take(&mut self, pool: &Pool, place: &Place) {
        let shape = Shape::from(pool);
        self.counts.entry(pool.name.clone()).or_default().add(shape);
        self.total.add(shape);
        if let Some(slots) = self.slots.as_mut().and_then(|all| all.get_mut(&pool.name)) {
            slots.pop_front();
        }
        if let Some(host) = self.hosts.as_mut().and_then(|hosts| hosts.get_mut(&place.host)) {
            host.memory -= pool.memory;
            host.vcpus += pool.cores;
            *host.by_pool.entry(pool.name.clone()).or_default() += 1;
        }
    }

    /// The allowed host with the most free memory.
    fn host(&self, pool: &Pool) -> Result<String, Full> {
        let Some(hosts) = &self.hosts else {
            return Ok(pool.hosts.first().cloned().unwrap_or_else(|| "pve".to_owned()));
        };
        let reach = self.memory.get(&pool.name).and_then(|memory| memory.reach.as_ref());
        let mut backing_off = None;
        let mut best: Option<(&str, i64)> = None;
        for (name, host) in hosts {
            let allowed = (pool.hosts.is_empty() || pool.hosts.contains(name))
                && reach.is_none_or(|reach| reach.contains(name));
            if !allowed || !host.usable || !host.takes(pool) {
                continue;
            }
            if let Some(why) = &host.backoff {
                backing_off.get_or_insert_with(|| format!("{name}: {why}"));
            } else if best.is_none_or(|(_, memory)| host.memory > memory) {
                best = Some((name, host.memory));
            }
        }
        match (best, backing_off) {
            (Some((name, _)), _) => Ok(name.to_owned()),
            (None, Some(why)) => Err(Full::BackingOff(why)),
            (None, None) => Err(Full::NoHost),
        }
    }
}

impl HostRoom {
    fn takes(&self, pool: &Pool) -> bool {
        let vcpus = f64::from(self.threads) * pool.cpu_overcommit - f64::from(self.vcpus);
        let here = self.by_pool.get(&pool.name).copied().unwrap_or(0);
        self.memory.saturating_sub(pool.memory_reserve) >= pool.memory
            && vcpus >= f64::from(pool.cores)
            && pool.max_per_host.is_none_or(|most| here < most)
    }
}

/// The hosts' room.
fn hosts(
    view: &View,
    holds: &impl Fn(Option<&crate::model::workload::Backoff>) -> Option<String>,
) -> Option<BTreeMap<String, HostRoom>> {
    let snapshot = view.snapshot;
    let mut ours: BTreeMap<&str, Ours> = BTreeMap::new();
    for machine in snapshot.proxmox.machines.iter().flatten() {
        ours.entry(&machine.host).or_default().count(machine);
    }
    let rooms = snapshot.proxmox.hosts.as_ref()?.iter().map(|host| {
        let ours = ours.remove(host.name.as_str()).unwrap_or_default();
        let memory = &snapshot.memory.hosts.get(&host.name);
        let room = HostRoom {
            memory: host.memory.saturating_sub(ours.memory_gone(host)),
            threads: host.cores,
            vcpus: host.cores_assigned.max(ours.running_cores).saturating_add(ours.coming_cores),
            usable: host.online && !host.maintenance,
            backoff: holds(memory.and_then(|memory| memory.backoff.as_ref())),
            by_pool: ours.by_pool,
        };
        (host.name.clone(), room)
    });
    Some(rooms.collect())
}

/// What our machines hold of a host.
#[derive(Default)]
struct Ours {
    /// Memory of those that do not run yet: nothing that the host reports contains it.
    coming: i64,
    coming_cores: u32,
    /// Memory of those that run and have not used it yet.
    booting: i64,
    /// Memory of all that run.
    running: i64,
    running_cores: u32,
    by_pool: BTreeMap<String, u32>,
}

impl Ours {
    fn count(&mut self, machine: &Machine) {
        *self.by_pool.entry(machine.pool.clone()).or_default() += 1;
        match machine.phase {
            Phase::Requested | Phase::Cloning | Phase::Configuring | Phase::Starting => {
                self.coming = self.coming.saturating_add(machine.memory);
                self.coming_cores = self.coming_cores.saturating_add(machine.cores);
            }
            Phase::Booting | Phase::Joining | Phase::Registered | Phase::Ready | Phase::Draining => {
                self.running = self.running.saturating_add(machine.memory);
                self.running_cores = self.running_cores.saturating_add(machine.cores);
                if machine.phase < Phase::Ready {
                    self.booting = self.booting.saturating_add(machine.memory);
                }
            }
            // Whether these still run, only the host knows.
            Phase::Stopping | Phase::Deleting | Phase::Gone | Phase::Failed => {}
        }
    }

    /// Memory that is in use, or was promised to running guests if that is more, is gone; so is that of machines which do
    /// not run yet. A host that does not say what it promised uses little for a machine that boots: all of it counts.
    fn memory_gone(&self, host: &Host) -> i64 {
        let unsaid = if host.memory_assigned == 0 { self.booting } else { 0 };
        let used = host.memory_used.saturating_add(unsaid);
        used.max(host.memory_assigned).max(self.running).saturating_add(self.coming)
    }
}
