//! Creates the initial state of a cluster from its spec.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::time::Instant;

use super::{
    firewall::ClusterFirewall,
    host_power::HostPower,
    pci::Pci,
    spec::{ClusterSpec, HostSpec},
    state::{Host, Pool, State},
    tracked::Tracked,
};
use crate::clock::WorldClock;

/// Returns the state of a cluster that was just created from a spec. Must be called inside a tokio runtime.
pub fn state(spec: ClusterSpec, clock: WorldClock, seed: u64) -> State {
    let booted = Instant::now();
    let host = |spec: HostSpec| {
        (
            spec.name.clone(),
            Host {
                spec,
                online: true,
                never_up: false,
                off_since: None,
                on_since: None,
                timed_out: false,
                maintenance: false,
                power: HostPower::default(),
                booted,
            },
        )
    };
    let pool = |(name, comment)| (name, Pool { comment, ..Pool::default() });
    let mut state = State {
        name: spec.name,
        version: spec.version,
        hosts: spec.hosts.into_iter().map(host).collect(),
        storages: spec.storages.into_iter().map(|storage| (storage.id.clone(), storage)).collect(),
        pools: Tracked::from(spec.pools.into_iter().map(pool).collect::<BTreeMap<_, _>>()),
        access: spec.access,
        tags: super::rights::TagAccess::default(),
        vms: Tracked::default(),
        volumes: Tracked::default(),
        firewall: ClusterFirewall::default(),
        pci: Pci::of(spec.pci),
        files: BTreeMap::new(),
        web: BTreeMap::new(),
        network_image: BTreeMap::new(),
        spool: BTreeMap::new(),
        busy_storages: BTreeSet::new(),
        filled_storages: BTreeMap::new(),
        claims: BTreeMap::new(),
        stopped_with_hosts: Vec::new(),
        tasks: BTreeMap::new(),
        task_order: Vec::new(),
        timings: spec.timings,
        quorum_forced_away: false,
        expected_votes: None,
        ha_runs: false,
        faults: Vec::new(),
        task_faults: Vec::new(),
        calls: VecDeque::new(),
        away: false,
        without_corosync: None,
        silent: BTreeMap::new(),
        statistics: [BTreeMap::new(), BTreeMap::new()],
        beat_at: None,
        clock,
        random: fastrand::Rng::with_seed(seed),
        next_pid: 400,
    };
    for vm in spec.vms {
        state.add(vm);
    }
    state
}
