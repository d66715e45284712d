//! Room for new machines: the pools' maxima, free slots, and the hosts' memory and cores.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use model::{HostKey, PoolName};

use super::bare_metal::Machines;
use super::cooldowns;
use super::facts::{
    machine::is_kept,
    node::{being_deleted, pool_of},
};
use super::host_room::{self, HostRoom};
use super::limits::{self, Shape, Sum};
use super::view::View;
use super::warm_pool::{self, Woken};
use model::machine::{Phase, Slot, WarmState};
use model::plan::PoolReason;
use model::snapshot::PoolMemory;
use settings::{Pool, ScaleUp};

/// Maximum number of hosts or machines that the text of a reason lists.
const HOSTS_NAMED: usize = 4;

/// Why a pool cannot get another machine now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The pool or the cluster is at one of its maxima. The text says which one.
    AtMax(String),
    /// No free slot is left.
    NoSlot,
    /// No bare-metal machine can be switched on. Contains the reason for each machine.
    NoMachine(Vec<String>),
    /// No host has room. Contains the reason for each host.
    NoHost(Vec<String>),
    /// The pool, or every host that has room, is backing off after failures.
    BackingOff(String),
    /// The pool changed recently, and must not grow until the time that the text gives.
    Settling(String),
    /// kube-scheduler refuses pods although they fit according to the planner. The text gives the details.
    Missed(String),
}

impl NoRoom {
    /// Reasons that no longer apply once a machine of the pool is removed.
    pub(super) const NEEDS_A_PLACE: [&str; 2] = ["PoolAtMax", "NoFreeSlot"];

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::AtMax(_) => "PoolAtMax",
            Self::NoSlot | Self::NoMachine(_) => "NoFreeSlot",
            Self::NoHost(_) => "NoHostCapacity",
            Self::BackingOff(_) | Self::Settling(_) => "BackingOff",
            Self::Missed(_) => "PredictionMissed",
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::AtMax(which) => which.clone(),
            Self::NoSlot => "no free slot (a VMID with its addresses) is left".to_owned(),
            Self::NoMachine(why) if why.is_empty() => "the pool has no more machines to switch on".to_owned(),
            Self::NoMachine(why) => format!("no machine can be switched on: {}", named(why)),
            Self::NoHost(why) if why.is_empty() => "no host has room for another machine".to_owned(),
            Self::NoHost(why) => format!("no host has room for another machine: {}", named(why)),
            Self::BackingOff(why) => format!("left alone after a failure: {why}"),
            Self::Settling(until) => format!("left alone {until}"),
            Self::Missed(what) => what.clone(),
        }
    }

    /// Returns this reason as a pool's entry in a pod's verdict.
    pub(super) fn of(&self, pool: PoolName) -> PoolReason {
        PoolReason { pool, reason: self.reason(), message: self.message() }
    }
}

/// Joins the first of these reasons, and says how many more there are.
fn named(why: &[String]) -> String {
    let more = why.len().saturating_sub(HOSTS_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let named: Vec<&str> = why.iter().take(HOSTS_NAMED).map(String::as_str).collect();
    format!("{}{more}", named.join("; "))
}

/// The place of a pool's next machine.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub host: HostKey,
    /// The storage of the clone, if the pool names any.
    pub storage: Option<String>,
    /// How good the host is: smaller is better. A host on which the pool failed recently comes after all
    /// others.
    pub rank: (bool, i64, i64),
    pub slot: Option<Slot>,
    /// The warm machine to wake, or `None` if a new machine is created.
    pub woken: Option<Woken>,
}

/// The nodes and machines of a pool.
#[derive(Default)]
struct Present {
    all: Sum,
    /// How many of these machines are being removed.
    leaving: u32,
    /// How many of these machines are kept warm.
    kept: u32,
}

/// The room that is left for new machines. It shrinks as machines are planned.
#[derive(Clone)]
pub(super) struct Rooms<'a> {
    settings: &'a ScaleUp,
    now: Timestamp,
    hosts: Option<BTreeMap<HostKey, HostRoom>>,
    slots: Option<BTreeMap<PoolName, VecDeque<Slot>>>,
    machines: Machines,
    counts: BTreeMap<PoolName, Sum>,
    /// How many machines of each pool are being removed.
    leaving: BTreeMap<PoolName, u32>,
    /// How many machines of each pool are kept warm.
    kept: BTreeMap<PoolName, u32>,
    /// The warm machines of each pool that may be asked to join.
    waiting: BTreeMap<PoolName, VecDeque<Woken>>,
    total: Sum,
    backoffs: BTreeMap<PoolName, String>,
    /// Pools whose machines must not grow now.
    grow_backoffs: BTreeSet<PoolName>,
    settling: BTreeMap<PoolName, String>,
    memory: &'a BTreeMap<PoolName, PoolMemory>,
}

impl<'a> Rooms<'a> {
    pub(super) fn new(view: &View<'a>) -> Self {
        let snapshot = view.snapshot;
        let now = snapshot.time;
        let memory = &snapshot.memory;
        let holds = |backoff: Option<&model::workload::Backoff>| {
            backoff.filter(|backoff| backoff.runs(now)).map(|backoff| backoff.reason.clone())
        };
        let mut rooms = Self {
            hosts: host_room::hosts(view, &holds),
            machines: Machines::new(view, &holds),
            slots: memory.free_slots.as_ref().map(|all| {
                all.iter().map(|(pool, slots)| (pool.clone(), slots.iter().cloned().collect())).collect()
            }),
            counts: BTreeMap::new(),
            leaving: BTreeMap::new(),
            kept: BTreeMap::new(),
            waiting: warm_pool::waiting(snapshot, view.config),
            total: Sum::default(),
            settings: &view.config.scale_up,
            now,
            memory: &memory.pools,
            backoffs: memory
                .pools
                .iter()
                .filter_map(|(pool, memory)| Some((pool.clone(), holds(memory.backoff.as_ref())?)))
                .collect(),
            grow_backoffs: memory
                .pools
                .iter()
                .filter(|(_, memory)| holds(memory.grow_backoff.as_ref()).is_some())
                .map(|(pool, _)| pool.clone())
                .collect(),
            settling: view
                .config
                .pools
                .iter()
                .filter_map(|pool| Some((pool.name.clone(), cooldowns::growth(view, &pool.name)?)))
                .collect(),
        };
        rooms.count_present(view);
        rooms
    }

    /// Counts all Nodes, and all machines that have no Node. A Node that is being removed counts as long as
    /// its VM exists, provided that the snapshot lists the VMs. A Node that has lost the pool's label still
    /// counts as part of its machine's pool.
    fn count_present(&mut self, view: &View) {
        let machines = view.snapshot.proxmox.machines.as_deref();
        let present = || machines.into_iter().flatten().filter(|machine| !machine.phase.is_over());
        let vms: BTreeSet<&str> =
            present().map(|machine| machine.node.as_ref().unwrap_or(&machine.name).as_str()).collect();
        let mut nodes: BTreeSet<&str> = BTreeSet::new();
        let mut pools: BTreeMap<&str, Present> = BTreeMap::new();
        for node in &view.snapshot.nodes {
            let leaves = being_deleted(node);
            nodes.insert(&node.name);
            if leaves && machines.is_some() && pool_of(node).is_some() && !vms.contains(node.name.as_str()) {
                continue;
            }
            let machine = view.machines.get(node.name.as_str()).copied();
            let shape = limits::shape(view, node, machine);
            self.total.add(shape);
            if let Some(pool) = pool_of(node).or_else(|| machine.map(|machine| machine.pool.as_str())) {
                let own = pools.entry(pool).or_default();
                own.all.add(shape);
                own.leaving += u32::from(leaves);
            }
        }
        for machine in present() {
            let name = machine.node.as_ref().unwrap_or(&machine.name).as_str();
            // Of several machines with the same Node name, only one owns the Node.
            let is_its = view.machines.get(name).is_some_and(|its| std::ptr::eq(*its, machine));
            if !nodes.contains(name) || !is_its {
                self.total.add(machine.into());
                let own = pools.entry(&machine.pool).or_default();
                own.all.add(machine.into());
                own.leaving += u32::from(machine.phase >= Phase::Draining);
                own.kept += u32::from(is_kept(machine));
            }
        }
        for (pool, own) in pools {
            self.counts.insert(pool.into(), own.all);
            self.leaving.insert(pool.into(), own.leaving);
            self.kept.insert(pool.into(), own.kept);
        }
    }

    /// How many of the pool's machines are nodes or will become nodes, including planned machines. Machines
    /// that are kept warm or are being removed do not count.
    pub(super) fn staying(&self, pool: &str) -> u32 {
        let of = |counts: &BTreeMap<PoolName, u32>| counts.get(pool).copied().unwrap_or(0);
        self.count(pool).saturating_sub(of(&self.leaving)).saturating_sub(of(&self.kept))
    }

    /// How many machines the pool has, including planned ones.
    pub(super) fn count(&self, pool: &str) -> u32 {
        self.sum(pool).machines
    }

    fn sum(&self, pool: &str) -> Sum {
        self.counts.get(pool).copied().unwrap_or_default()
    }

    /// The place of the pool's next machine.
    pub(super) fn next(&self, pool: &Pool) -> Result<Place, NoRoom> {
        self.settled(pool, self.next_of_minimum(pool)?)
    }

    /// The place of a new machine that will be kept warm. Never returns an existing warm machine.
    pub(super) fn next_kept(&self, pool: &Pool, state: WarmState) -> Result<Place, NoRoom> {
        self.settled(pool, self.made(pool, state.state_bytes(pool.memory))?)
    }

    fn settled(&self, pool: &Pool, place: Place) -> Result<Place, NoRoom> {
        match self.settling.get(&pool.name) {
            Some(until) => Err(NoRoom::Settling(until.clone())),
            None => Ok(place),
        }
    }

    /// Like [`Self::next`], for a machine that the pool's minimum requires. Such a machine is created even if
    /// the pool changed recently.
    pub(super) fn next_of_minimum(&self, pool: &Pool) -> Result<Place, NoRoom> {
        match self.woken(pool) {
            Some(place) => Ok(place),
            None => self.made(pool, 0),
        }
    }

    /// Returns a warm machine that can be woken instead of creating a machine. The warm machine must have the
    /// pool's size, and its host must be able to run it. Warm machines already count towards the maxima.
    fn woken(&self, pool: &Pool) -> Option<Place> {
        let waiting = self.waiting.get(&pool.name).filter(|_| !self.backoffs.contains_key(&pool.name))?;
        let can_run = |one: &&Woken| match self.hosts.as_ref().map(|hosts| hosts.get(&one.host)) {
            None => true,
            Some(host) => host.is_some_and(|host| host.backoff.is_none() && host.runs(pool, one.has_room)),
        };
        let woken = waiting.iter().filter(|one| one.suits(pool)).find(can_run)?;
        let host = woken.host.clone();
        Some(Place {
            host,
            storage: None,
            rank: (false, i64::MIN, 0),
            slot: None,
            woken: Some(woken.clone()),
        })
    }

    /// Whether this host cannot start a stopped machine of the pool, but another host has room for a machine
    /// of the pool.
    pub(super) fn runs_elsewhere(&self, pool: &Pool, host: &str) -> bool {
        let here = self.hosts.as_ref().and_then(|hosts| hosts.get(host));
        here.is_some_and(|here| !here.runs(pool, false))
            && self.host(pool, 0).is_ok_and(|place| place.host != host)
    }

    /// The place of a new machine of the pool. `state` is the disk space for its saved memory, in bytes.
    fn made(&self, pool: &Pool, state: i64) -> Result<Place, NoRoom> {
        if let Some(which) = limits::broken(pool, self.settings, self.sum(&pool.name), self.total) {
            return Err(NoRoom::AtMax(which));
        }
        if let Some(why) = self.backoffs.get(&pool.name) {
            return Err(NoRoom::BackingOff(why.clone()));
        }
        if pool.is_physical() {
            let slot = self.machines.next(pool)?;
            let host = slot.machine.clone().unwrap_or_default();
            return Ok(Place {
                host: host.into(),
                storage: None,
                rank: (false, 0, 0),
                slot: Some(slot),
                woken: None,
            });
        }
        let slot = match &self.slots {
            None => None,
            Some(all) => Some(all.get(&pool.name).and_then(VecDeque::front).cloned().ok_or(NoRoom::NoSlot)?),
        };
        Ok(Place { slot, ..self.host(pool, state)? })
    }

    /// Counts a machine of the pool as planned at this place.
    pub(super) fn take(&mut self, pool: &Pool, place: &Place) {
        if let Some(woken) = &place.woken {
            return self.wake(pool, woken);
        }
        self.machines.take(pool, place.slot.as_ref());
        self.put(pool, place, 0, true);
    }

    /// Counts a machine that will be kept warm. A machine that is kept stopped only takes disk space.
    pub(super) fn keep(&mut self, pool: &Pool, place: &Place, state: WarmState) {
        self.put(pool, place, state.state_bytes(pool.memory), state != WarmState::Stopped);
    }

    fn put(&mut self, pool: &Pool, place: &Place, state: i64, starts: bool) {
        self.count_made(pool);
        for (name, host) in self.hosts.iter_mut().flatten() {
            let here = *name == place.host;
            host.disks.take(pool, place.storage.as_deref(), state, here);
            match here {
                true if starts => host.take(pool),
                true => host.count(pool),
                false => {}
            }
        }
    }

    /// Counts a warm machine as one that will become a node.
    fn wake(&mut self, pool: &Pool, woken: &Woken) {
        if let Some(waiting) = self.waiting.get_mut(&pool.name) {
            waiting.retain(|one| one.vmid != woken.vmid || one.name != woken.name);
        }
        if let Some(kept) = self.kept.get_mut(&pool.name) {
            *kept = kept.saturating_sub(1);
        }
        let host = self.hosts.as_mut().and_then(|hosts| hosts.get_mut(&woken.host));
        if let Some(host) = host.filter(|_| !woken.has_room) {
            host.start(pool);
        }
    }

    /// Whether machines of the pool on this host may grow at all now.
    pub(super) fn may_grow(&self, pool: &Pool, host: &str) -> bool {
        let held = self.grow_backoffs.contains(&pool.name) || self.settling.contains_key(&pool.name);
        let out_of_sight = self.memory.get(&pool.name).is_some_and(|memory| memory.out_of_sight.is_some());
        let host = self.hosts.as_ref().map(|hosts| hosts.get(host).is_some_and(HostRoom::may_grow));
        !held && !out_of_sight && host.unwrap_or(true)
    }

    /// Whether there is room for a running machine of the pool on this host to grow from the size `from` to
    /// the size `to`.
    pub(super) fn holds_grown(&self, pool: &Pool, host: &str, from: Shape, to: Shape) -> bool {
        let host = self.hosts.as_ref().map(|hosts| hosts.get(host));
        host.is_none_or(|host| host.is_some_and(|host| host.holds_more(pool, from, to)))
            && limits::allow_growth(pool, self.settings, self.sum(&pool.name), self.total, from, to)
    }

    /// Records that a running machine of the pool on this host will grow from the size `from` to the size
    /// `to`.
    pub(super) fn grow(&mut self, pool: &Pool, host: &str, from: Shape, to: Shape) {
        self.counts.entry(pool.name.clone()).or_default().grow(from, to);
        self.total.grow(from, to);
        if let Some(host) = self.hosts.as_mut().and_then(|hosts| hosts.get_mut(host)) {
            host.give(from, to);
        }
    }

    fn count_made(&mut self, pool: &Pool) {
        let shape = Shape::from(pool);
        self.counts.entry(pool.name.clone()).or_default().add(shape);
        self.total.add(shape);
        if let Some(slots) = self.slots.as_mut().and_then(|all| all.get_mut(&pool.name)) {
            slots.pop_front();
        }
    }

    /// The best place on an allowed host with room. The place does not include a slot.
    fn host(&self, pool: &Pool, state: i64) -> Result<Place, NoRoom> {
        let Some(hosts) = &self.hosts else {
            let host = pool.hosts.first().cloned().unwrap_or_else(|| pool.host_key("pve"));
            let storage = pool.storages.first().cloned();
            return Ok(Place { host, storage, rank: (false, 0, 0), slot: None, woken: None });
        };
        let memory = self.memory.get(&pool.name);
        let reach = memory.and_then(|memory| memory.reach.as_ref());
        let mut backing_off = None;
        let mut best: Option<Place> = None;
        let mut refusals = Vec::new();
        for (name, host) in hosts {
            let reached = reach.is_none_or(|reach| reach.contains(name));
            if !pool.may_be_on(name) {
                continue;
            }
            if !reached {
                // For a host that is off, it is not known which templates can be cloned to it.
                refusals.extend(host.switched(pool).map(|why| format!("{name} {why}")));
                continue;
            }
            let across = memory.is_some_and(|memory| memory.across.contains(name));
            let storage = match host.refusal(pool).map_or_else(|| host.disks.choose(pool, across, state), Err)
            {
                Ok(storage) => storage,
                Err(why) => {
                    refusals.push(format!("{name} {why}"));
                    continue;
                }
            };
            if let Some(why) = &host.backoff {
                backing_off.get_or_insert_with(|| format!("{name}: {why}"));
            } else {
                let failed = memory.is_some_and(|memory| memory.failed_on.get(name) > Some(&self.now));
                let (first, second) = host.rank(pool);
                let rank = (failed, first, second);
                if best.as_ref().is_none_or(|other| rank < other.rank) {
                    best = Some(Place { host: name.clone(), storage, rank, slot: None, woken: None });
                }
            }
        }
        match (best, backing_off) {
            (Some(place), _) => Ok(place),
            (None, Some(why)) => Err(NoRoom::BackingOff(why)),
            (None, None) => Err(NoRoom::NoHost(refusals)),
        }
    }
}
