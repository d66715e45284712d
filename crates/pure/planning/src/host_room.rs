//! The room for new machines on each host: memory, vCPUs, and the number of machines per pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::device_room::DeviceRoom;
use super::disk_room::{CloneBytes, DiskRoom};
use super::facts::host::shut;
use super::limits::Shape;
use super::view::View;
use model::machine::{Host, Machine, Phase, WarmState};
use model::{HostKey, PoolName, quantity};
use settings::Pool;

/// What a host has left for new machines.
#[derive(Clone, Debug)]
pub(super) struct HostRoom {
    /// The host's memory in bytes.
    memory: i64,
    /// How many bytes of the host's memory are in use, including those for planned machines.
    used: i64,
    /// How many bytes of memory are assigned to running and planned guests.
    promised: i64,
    /// How many bytes of memory must stay free, if the host's table in the configuration sets a reserve.
    reserve: Option<i64>,
    /// How many of the host's threads are available to machines: all threads except those that the host's
    /// table in the configuration reserves.
    threads: u32,
    /// How many threads the host has.
    all_threads: u32,
    /// How many vCPUs running and planned guests have.
    vcpus: u32,
    /// Why nothing new may be placed on the host, or `None` if the host is open.
    shut: Option<&'static str>,
    pub backoff: Option<String>,
    pub disks: DiskRoom,
    devices: DeviceRoom,
    by_pool: BTreeMap<PoolName, u32>,
    /// The pools whose machines can be placed on the host once the daemon has switched it on again.
    awaited_by: BTreeSet<PoolName>,
}

impl HostRoom {
    /// Why the host accepts no machines of the pool now, if it will accept them once the daemon has switched
    /// it on again.
    pub(super) fn switched(&self, pool: &Pool) -> Option<&'static str> {
        self.shut.filter(|_| self.awaited_by.contains(&pool.name))
    }

    /// Why the host accepts no more machines of the pool, as words that follow the host's name. `None` if the
    /// host accepts another one.
    pub(super) fn refusal(&self, pool: &Pool) -> Option<String> {
        if let Some(why) = self.shut {
            return Some(why.to_owned());
        }
        if let Some(most) = pool.max_per_host.filter(|most| self.of_pool(pool) >= *most) {
            return Some(format!("has {most} of the pool's machines, the most that `max_per_host` allows"));
        }
        self.too_small(pool).or_else(|| self.devices.lacks(pool)).or_else(|| self.lacks(pool))
    }

    /// Why the host has too few threads for machines of the pool, or `None` if it has enough. QEMU is started
    /// with all vCPUs that a machine may grow to, and Proxmox VE refuses more vCPUs than the host has
    /// threads.
    fn too_small(&self, pool: &Pool) -> Option<String> {
        let most = pool.grow.as_ref().filter(|grow| grow.grows_cores)?.max_cores;
        let words = || format!("has {} threads, but a machine may grow to {most} cores", self.all_threads);
        (most > self.all_threads).then(words)
    }

    /// Whether an existing machine of the pool can run on the host. `has_room` is true if the machine's
    /// memory and vCPUs are already counted. Its devices are always counted. But the machine cannot start
    /// while another VM uses one of them.
    pub(super) fn runs(&self, pool: &Pool, has_room: bool) -> bool {
        self.shut.is_none() && !self.devices.starts_none(pool) && (has_room || self.lacks(pool).is_none())
    }

    /// What the host lacks to run one more machine of the pool, or `None` if it lacks nothing.
    fn lacks(&self, pool: &Pool) -> Option<String> {
        let free = self.free(pool);
        if free < pool.memory {
            let left = quantity::binary(free.max(0));
            return Some(format!(
                "has {left} of memory left, but a machine needs {}",
                quantity::binary(pool.memory)
            ));
        }
        let vcpus = f64::from(self.threads) * pool.cpu_overcommit - f64::from(self.vcpus);
        (vcpus < f64::from(pool.cores)).then(|| {
            format!("has {:.0} vCPUs left, but a machine needs {}", vcpus.max(0.0).floor(), pool.cores)
        })
    }

    /// How good the host is for a machine of the pool: smaller is better.
    pub(super) fn rank(&self, pool: &Pool) -> (i64, i64) {
        pool.placement.rank(self.of_pool(pool), self.free(pool))
    }

    /// Counts a machine of the pool as planned on the host.
    pub(super) fn take(&mut self, pool: &Pool) {
        self.start(pool);
        self.count(pool);
    }

    /// Counts a machine of the pool that exists but does not run.
    pub(super) fn count(&mut self, pool: &Pool) {
        self.devices.take(pool);
        *self.by_pool.entry(pool.name.clone()).or_default() += 1;
    }

    /// Counts what an existing machine uses once it runs.
    pub(super) fn start(&mut self, pool: &Pool) {
        self.used = self.used.saturating_add(pool.memory);
        self.promised = self.promised.saturating_add(pool.memory);
        self.vcpus = self.vcpus.saturating_add(pool.cores);
    }

    /// Whether machines that run on the host may grow.
    pub(super) fn may_grow(&self) -> bool {
        self.shut.is_none() && self.backoff.is_none()
    }

    /// Whether the host has room for a running machine to grow from the size `from` to the size `to`.
    pub(super) fn holds_more(&self, pool: &Pool, from: Shape, to: Shape) -> bool {
        let vcpus = f64::from(self.threads) * pool.cpu_overcommit - f64::from(self.vcpus);
        (to.memory == from.memory || to.memory - from.memory <= self.free(pool))
            && (to.cores == from.cores || f64::from(to.cores - from.cores) <= vcpus)
    }

    /// Counts the growth of a running machine.
    pub(super) fn give(&mut self, from: Shape, to: Shape) {
        let more = to.memory - from.memory;
        self.used = self.used.saturating_add(more);
        self.promised = self.promised.saturating_add(more);
        self.vcpus = self.vcpus.saturating_add(to.cores - from.cores);
    }

    /// How many machines of the pool are on the host.
    fn of_pool(&self, pool: &Pool) -> u32 {
        self.by_pool.get(&pool.name).copied().unwrap_or(0)
    }

    /// How many bytes of memory are left for machines of the pool. Assigned memory is limited by the pool's
    /// `memory_overcommit`, and used memory by the host's memory.
    fn free(&self, pool: &Pool) -> i64 {
        let promised = quantity::share(self.memory, pool.memory_overcommit).saturating_sub(self.promised);
        let unused = self.memory.saturating_sub(self.used);
        promised.min(unused).saturating_sub(self.reserve.unwrap_or(pool.memory_reserve))
    }
}

/// Determines the room on each host, by host name. Returns `None` if the snapshot lists no hosts.
pub(super) fn hosts(
    view: &View,
    holds: &impl Fn(Option<&model::workload::Backoff>) -> Option<String>,
) -> Option<BTreeMap<HostKey, HostRoom>> {
    let snapshot = view.snapshot;
    let mut ours: BTreeMap<&str, Ours> = BTreeMap::new();
    for machine in snapshot.proxmox.machines.iter().flatten() {
        for host in machine.hosts() {
            ours.entry(host).or_default().count(machine);
        }
    }
    let clones = Arc::new(CloneBytes::new(snapshot));
    let rooms = snapshot.proxmox.hosts.as_ref()?.iter().map(|host| {
        let ours = ours.remove(host.name.as_str()).unwrap_or_default();
        let memory = &snapshot.memory.hosts.get(&host.name);
        let own = view.config.hosts.get(&host.name);
        let mut disks = DiskRoom::new(host, clones.clone());
        let machines = snapshot.proxmox.machines.as_deref().unwrap_or_default();
        disks.count_coming(&host.name, machines, &view.config.pools);
        let room = HostRoom {
            disks,
            devices: DeviceRoom::new(host, machines, &view.config.pools),
            memory: host.memory,
            used: ours.memory_used(host),
            promised: host.memory_assigned.max(ours.running).saturating_add(ours.coming),
            reserve: own.and_then(|own| own.memory_reserve),
            threads: host.cores.saturating_sub(own.map_or(0, |own| own.cpu_reserve)),
            all_threads: host.cores,
            vcpus: host.cores_assigned.max(ours.running_cores).saturating_add(ours.coming_cores),
            shut: match () {
                () if let Some(why) = shut(snapshot, &host.name) => Some(why),
                () if !host.online => Some("is off"),
                () if host.maintenance => Some("is in maintenance"),
                () if own.is_some_and(|own| own.closed) => Some("is closed"),
                () => None,
            },
            backoff: holds(memory.and_then(|memory| memory.backoff.as_ref())),
            by_pool: ours.by_pool.into_iter().map(|(pool, count)| (pool.into(), count)).collect(),
            awaited_by: memory
                .and_then(|memory| memory.power.as_ref())
                .map(|power| power.reached_by.clone())
                .unwrap_or_default(),
        };
        (host.name.clone(), room)
    });
    Some(rooms.collect())
}

/// What managed machines use on a host.
#[derive(Default)]
struct Ours<'a> {
    /// Memory of machines that do not run yet. The host's report does not include it.
    coming: i64,
    coming_cores: u32,
    /// Memory of machines that run but are not ready. They might not use all of it yet.
    booting: i64,
    /// Memory of all machines that run.
    running: i64,
    running_cores: u32,
    by_pool: BTreeMap<&'a str, u32>,
}

impl<'a> Ours<'a> {
    fn count(&mut self, machine: &'a Machine) {
        if machine.phase.is_over() {
            return;
        }
        *self.by_pool.entry(&machine.pool).or_default() += 1;
        if let Some(before) = machine.growing.as_ref().filter(|_| machine.phase == Phase::Ready) {
            // The host's report does not include the memory and cores that are being added.
            self.coming = self.coming.saturating_add(machine.memory - before.memory);
            self.coming_cores = self.coming_cores.saturating_add(machine.cores.saturating_sub(before.cores));
            self.running = self.running.saturating_add(before.memory);
            self.running_cores = self.running_cores.saturating_add(before.cores);
            return;
        }
        match machine.phase {
            // A machine that is kept stopped is only started when it is asked to join.
            Phase::Requested | Phase::Cloning | Phase::Configuring | Phase::Warm
                if machine.warm == Some(WarmState::Stopped) => {}
            Phase::Warm if machine.warm != Some(WarmState::Booted) => {}
            Phase::Requested | Phase::Cloning | Phase::Configuring | Phase::Starting => {
                self.coming = self.coming.saturating_add(machine.memory);
                self.coming_cores = self.coming_cores.saturating_add(machine.cores);
            }
            Phase::Warm
            | Phase::Booting
            | Phase::Joining
            | Phase::Registered
            | Phase::Ready
            | Phase::Draining => {
                self.running = self.running.saturating_add(machine.memory);
                self.running_cores = self.running_cores.saturating_add(machine.cores);
                if machine.phase < Phase::Ready {
                    self.booting = self.booting.saturating_add(machine.memory);
                }
            }
            // Only the host knows whether machines in these phases still run.
            Phase::Stopping | Phase::Deleting | Phase::Clearing | Phase::Gone | Phase::Failed => {}
        }
    }

    /// The memory in use on the host, plus the memory of machines that do not run yet. If the host does not
    /// report how much memory its guests are assigned, the whole memory of booting machines is added too,
    /// because they use little of it at first.
    fn memory_used(&self, host: &Host) -> i64 {
        let unsaid = if host.memory_assigned == 0 { self.booting } else { 0 };
        host.memory_used.saturating_add(unsaid).saturating_add(self.coming)
    }
}
