//! The results of a simulation, or the corresponding figures of the record itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::surroundings::Others;
use model::machine::{Machine, Phase, WarmState};
use model::snapshot::POOL_LABEL;
use model::{PoolName, Snapshot};
use planning::ready;

/// The maximum number of points in a series. Once it is reached, each point covers twice as much time.
const POINTS: usize = 1440;
const GIB: f64 = 1_073_741_824.0;
const HOUR: f64 = 3600.0;

/// How long pods were pending. Maps a wait in seconds to the number of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits(BTreeMap<i64, u64>);

impl Waits {
    /// Adds a pod that was pending for this many seconds.
    pub fn add(&mut self, seconds: i64) {
        *self.0.entry(seconds.max(0)).or_default() += 1;
    }

    /// Adds a pod that was pending for this many seconds. If `seconds` is `None`, the pod's wait does not
    /// count, and nothing is added.
    pub(super) fn add_some(&mut self, seconds: Option<i64>) {
        if let Some(seconds) = seconds {
            self.add(seconds);
        }
    }

    /// Adds all waits in `more`.
    pub fn extend(&mut self, more: &Self) {
        for (seconds, count) in &more.0 {
            *self.0.entry(*seconds).or_default() += count;
        }
    }

    /// The number of pods that were pending.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The given percentile of the waits, in seconds; `None` if no pod was pending.
    pub fn percentile(&self, percent: u64) -> Option<i64> {
        let wanted = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.0.iter().find_map(|(seconds, count)| {
            seen += count;
            (seen >= wanted).then_some(*seconds)
        })
    }
}

/// The figures of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolFigures {
    /// Machines that were created.
    pub made: u64,
    /// Nodes that were removed.
    pub removed: u64,
    /// Machines that failed before they became nodes.
    pub failed: u64,
    /// Running machines that were made larger.
    pub grown: u64,
    /// The maximum number of nodes at any one time.
    pub most: u32,
    /// The total time for which nodes were ready, in hours, summed over all nodes.
    pub node_hours: f64,
    /// Pods that were scheduled on the pool's nodes.
    pub pods: u64,
    /// The waits of the pods in `pods` that did not get a node immediately.
    pub waits: Waits,
}

/// Core-hours and GiB-hours. To get the average number of cores and GiB, divide these figures by the length
/// of the period in hours.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// Cores.
    pub cores: f64,
    /// GiB of memory.
    pub memory: f64,
}

impl Use {
    fn add(&mut self, more: (f64, f64), hours: f64) {
        self.cores += more.0 * hours;
        self.memory += more.1 * hours;
    }
}

/// Capacity and use of the hosts and of the nodes on them, in core-hours and GiB-hours.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostUse {
    /// The capacity of hosts that are on.
    pub hosts: Use,
    /// The resources that are assigned to the pools' machines.
    pub machines: Use,
    /// The resources that are assigned to other guests. If the assigned resources are unknown, the memory
    /// that these guests use.
    pub others: Use,
    /// The resources that the pools' nodes offer to pods.
    pub offered: Use,
    /// The resources that pods on the pools' nodes request.
    pub requested: Use,
}

/// How many hours one host was on, on but empty, and switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostHours {
    /// How long the host was on.
    pub on: f64,
    /// How long the host was on without any running guest; `None` if the record does not show what guests
    /// were assigned.
    pub empty: Option<f64>,
    /// How long the host was off because the daemon had switched it off; `None` if the daemon must not switch
    /// it off.
    pub off: Option<f64>,
}

/// The number of ready nodes and the number of pending pods over time. Each point contains the maximum of
/// each number during one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// When it begins.
    pub from: Timestamp,
    /// The length of a step in seconds.
    pub step_seconds: i64,
    /// For each step, the number of ready nodes of all pools and the number of pending pods.
    pub points: Vec<(u32, u32)>,
}

/// The results.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The figures of each pool.
    pub pools: BTreeMap<PoolName, PoolFigures>,
    /// The waits of pods that were eventually scheduled on nodes outside all pools.
    pub elsewhere: Waits,
    /// The waits of pods that ended while they were pending, whether or not they had a node before.
    pub without: Waits,
    /// The waits so far of pods that are still pending at the end.
    pub still: Waits,
    /// The number of pods that are pending now.
    pub waiting: u64,
    /// The number of pods that were denied a machine at least once, by verdict.
    pub refusals: BTreeMap<String, u64>,
    /// Capacity and use of hosts and nodes.
    pub used: HostUse,
    /// How many hours each host was on, on but empty, and switched off.
    pub hosts: BTreeMap<String, HostHours>,
    /// Total hours.
    pub hours: f64,
    /// Decisions that were made.
    pub decisions: u64,
    /// Nodes and pending pods over time.
    pub series: Series,
    last: Option<State>,
}

/// The state of the cluster at one moment.
#[derive(Clone, Debug)]
struct State {
    time: Timestamp,
    nodes: BTreeMap<String, u32>,
    waiting: u32,
    hosts: (f64, f64),
    machines: (f64, f64),
    others: (f64, f64),
    offered: (f64, f64),
    requested: (f64, f64),
    each: BTreeMap<String, HostState>,
}

/// The state of a host at one moment. `None` has the same meaning as in [`HostHours`].
#[derive(Clone, Copy, Debug)]
struct HostState {
    on: bool,
    empty: Option<bool>,
    off: Option<bool>,
}

impl Figures {
    /// Returns the figures of one pool, creating them if necessary.
    pub fn pool(&mut self, name: &str) -> &mut PoolFigures {
        if !self.pools.contains_key(name) {
            self.pools.insert(name.into(), PoolFigures::default());
        }
        self.pools.entry(name.into()).or_default()
    }

    /// All waits, including those that ended without a node or have not ended yet. If such waits were left
    /// out, a configuration would look better the fewer pods it served.
    pub fn waits(&self) -> Waits {
        let others = [&self.elsewhere, &self.without, &self.still];
        let all = self.pools.values().map(|pool| &pool.waits).chain(others);
        all.fold(Waits::default(), |mut sum, waits| {
            sum.extend(waits);
            sum
        })
    }

    /// Sets the state that applies from now on.
    pub(super) fn now(&mut self, snapshot: &Snapshot, others: &Others) {
        self.until(snapshot.time);
        let state = State::of(snapshot, others);
        for (pool, count) in &state.nodes {
            let pool = self.pool(pool);
            pool.most = pool.most.max(*count);
        }
        self.waiting = state.waiting.into();
        self.series.add(&state);
        self.last = Some(state);
    }

    /// Adds the last state to the totals, for the time between that state and `now`.
    pub(super) fn until(&mut self, now: Timestamp) {
        let Some(mut last) = self.last.take() else { return };
        let hours = now.duration_since(last.time).as_secs_f64().max(0.0) / HOUR;
        self.hours += hours;
        for (pool, count) in &last.nodes {
            self.pool(pool).node_hours += f64::from(*count) * hours;
        }
        let used = &mut self.used;
        used.hosts.add(last.hosts, hours);
        used.machines.add(last.machines, hours);
        used.others.add(last.others, hours);
        used.offered.add(last.offered, hours);
        used.requested.add(last.requested, hours);
        for (host, state) in &last.each {
            let own = self.hosts.entry(host.clone()).or_default();
            let add = |sum: &mut Option<f64>, holds: Option<bool>| {
                if let Some(holds) = holds {
                    *sum.get_or_insert_default() += if holds { hours } else { 0.0 };
                }
            };
            own.on += if state.on { hours } else { 0.0 };
            add(&mut own.empty, state.empty);
            add(&mut own.off, state.off);
        }
        last.time = now;
        self.series.add(&last);
        self.last = Some(last);
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn gib(bytes: i64) -> f64 {
    bytes as f64 / GIB
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn cores(milli: i64) -> f64 {
    milli as f64 / 1000.0
}

/// Whether a machine occupies cores and memory of its host, or will do so shortly.
fn takes_room(machine: &Machine) -> bool {
    match machine.phase {
        Phase::Requested | Phase::Cloning | Phase::Configuring | Phase::Warm => {
            machine.warm.is_none_or(WarmState::runs)
        }
        phase => phase <= Phase::Stopping,
    }
}

impl State {
    fn of(snapshot: &Snapshot, others: &Others) -> Self {
        let mut state = Self {
            time: snapshot.time,
            nodes: BTreeMap::new(),
            waiting: 0,
            hosts: (0.0, 0.0),
            machines: (0.0, 0.0),
            others: (0.0, 0.0),
            offered: (0.0, 0.0),
            requested: (0.0, 0.0),
            each: BTreeMap::new(),
        };
        let mut ours: BTreeMap<&str, bool> = BTreeMap::new();
        for node in &snapshot.nodes {
            let Some(pool) = node.labels.get(POOL_LABEL).filter(|_| ready(node)) else { continue };
            *state.nodes.entry(pool.clone()).or_default() += 1;
            ours.insert(&node.name, true);
            state.offered.0 += cores(node.allocatable.cpu_milli);
            state.offered.1 += gib(node.allocatable.memory);
        }
        for pod in &snapshot.pods {
            if pod.digest().marks.waits && !pod.digest().marks.daemon && !pod.digest().marks.gated {
                state.waiting += 1;
            } else if !pod.is_finished() && pod.node.as_deref().is_some_and(|node| ours.contains_key(node)) {
                state.requested.0 += cores(pod.requests.cpu_milli);
                state.requested.1 += gib(pod.requests.memory);
            }
        }
        let mut carrying: BTreeMap<&str, bool> = BTreeMap::new();
        for machine in snapshot.proxmox.machines.iter().flatten().filter(|machine| takes_room(machine)) {
            state.machines.0 += f64::from(machine.cores);
            state.machines.1 += gib(machine.memory);
            carrying.insert(&machine.host, true);
        }
        for host in snapshot.proxmox.hosts.iter().flatten() {
            let (cores, memory) = others.of(&host.name);
            let is_empty = cores == 0 && memory == 0 && !carrying.contains_key(host.name.as_str());
            let power = snapshot.memory.hosts.get(&host.name).and_then(|memory| memory.power.as_ref());
            let facts = snapshot.proxmox.power.as_ref().is_some_and(|all| all.hosts.contains_key(&host.name));
            let own = HostState {
                on: host.online,
                empty: others.assigned_known.then_some(host.online && is_empty),
                off: (facts || power.is_some()).then_some(!host.online && power.is_some()),
            };
            state.each.insert(host.name.to_string(), own);
            if host.online {
                state.hosts.0 += f64::from(host.cores);
                state.hosts.1 += gib(host.memory);
                state.others.0 += f64::from(cores);
                state.others.1 += gib(memory);
            }
        }
        state
    }
}

impl Series {
    fn add(&mut self, state: &State) {
        if self.points.is_empty() {
            (self.from, self.step_seconds) = (state.time, 10);
        }
        let point = (state.nodes.values().sum(), state.waiting);
        let at = |series: &Self| {
            let seconds = state.time.duration_since(series.from).as_secs().max(0);
            usize::try_from(seconds / series.step_seconds).unwrap_or(0)
        };
        while at(self) >= POINTS {
            self.step_seconds *= 2;
            let halves = self.points.chunks(2);
            self.points = halves.filter_map(|pair| pair.iter().copied().reduce(larger)).collect();
        }
        let at = at(self);
        // The steps since the last point get the values of that point.
        let last = self.points.last().copied().unwrap_or(point);
        while self.points.len() <= at {
            self.points.push(if self.points.len() < at { last } else { point });
        }
        if let Some(there) = self.points.get_mut(at) {
            *there = larger(*there, point);
        }
    }
}

fn larger(one: (u32, u32), other: (u32, u32)) -> (u32, u32) {
    (one.0.max(other.0), one.1.max(other.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_those_that_waited() {
        let mut waits = Waits::default();
        assert_eq!(waits.percentile(50), None);
        for seconds in 1..=100 {
            waits.add(seconds);
        }
        assert_eq!(
            (waits.percentile(50), waits.percentile(95), waits.percentile(100)),
            (Some(50), Some(95), Some(100))
        );
        let mut one = Waits::default();
        one.add(7);
        assert_eq!((one.percentile(50), one.percentile(95)), (Some(7), Some(7)));
    }

    #[test]
    fn a_series_of_any_length_has_a_bounded_number_of_points() {
        let mut series = Series::default();
        let state = |second: i64, waiting| State {
            time: Timestamp::from_second(second).unwrap(),
            waiting,
            ..State::of(&Snapshot::default(), &Others::default())
        };
        for second in (0..1_000_000).step_by(100) {
            series.add(&state(second, u32::from(second == 500_000)));
        }
        assert!(series.points.len() <= POINTS && series.points.len() > POINTS / 3);
        assert_eq!(series.points.iter().filter(|point| point.1 == 1).count(), 1);
    }
}
