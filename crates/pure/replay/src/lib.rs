//! Replays recorded rounds, in virtual time and with the real planner, to find out what a configuration would
//! have done.
//!
//! ```text
//!  recorded rounds ─┬─> Watcher ─> Facts: how long machines took, what happened      (first reading)
//!                   └─> Demand ──> events: pods that are wanted or no longer wanted  (second reading)
//!                                     └─> Simulation, one for each configuration: binding ─> planning::plan ─> machines ─> Figures
//! ```
//!
//! This crate is pure: the same rounds and configuration give the same figures. Rounds are passed in one by
//! one, so that weeks of rounds need no more memory than the state of one cluster.

mod binding;
mod cluster;
mod demand;
mod effects;
mod facts;
mod figures;
mod machines;
mod members;
mod power;
mod surroundings;

pub use cluster::Simulation;
pub use demand::{Demand, Event};
pub use facts::{Facts, Took, Watcher};
pub use figures::{Figures, HostHours, HostUse, PoolFigures, Series, Use, Waits};

use std::collections::BTreeSet;
use std::time::Duration;

use model::HostKey;

/// The assumed time until a new machine's node is ready, if the record contains no measurement for the pool.
pub const CREATION: Duration = Duration::from_mins(1);
/// The assumed time until a warm machine's node is ready, if the record contains no measurement for the pool.
pub const WAKING: Duration = Duration::from_secs(20);
/// The assumed time that it takes to remove a node, if the record contains no measurement for the pool.
pub const RETIREMENT: Duration = Duration::from_mins(1);
/// The time from the request to shut down a host until the host is off.
pub const SHUTDOWN: Duration = Duration::from_mins(1);
/// The time from the request to wake a host until the host can be used.
pub const STARTUP: Duration = Duration::from_mins(3);

/// The differences between a simulation and the record, apart from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// The number of pods, in thousandths of the recorded number.
    pub demand: u32,
    /// Hosts that the simulation leaves out.
    pub without: BTreeSet<HostKey>,
}

impl Default for WhatIf {
    fn default() -> Self {
        Self { demand: 1000, without: BTreeSet::new() }
    }
}

/// The assumptions of a simulation, as text for the reader of the results. Assumptions are needed because a
/// record does not show what would have happened under a different configuration.
pub const ASSUMPTIONS: &[&str] = &[
    "Pods are created and deleted at their recorded times. A pod that finishes by itself runs for its \
        recorded duration, and at least until its recorded end.",
    "If a drain or a lost node moved a pod in the record, the old and the new pod count as one pod. \
        This pod stays on its node unless the simulation moves it.",
    "A pending pod is bound as soon as it fits a node. If it fits several nodes, those with more room \
        and fewer pods of its controller are preferred. The pods of a gang are placed one by one. \
        Preemption, container startup and pods that a kubelet refuses are not simulated.",
    "DaemonSet pods and pods on nodes outside all pools stay as recorded, regardless of `--scale`. \
        Copies of pods have no volumes or devices that only one pod can use.",
    "At the start of the simulation, copies of running pods, and pods on hosts that are left out, have no \
        node. The simulation binds them without counting them as pending.",
    "Nodes of the first round are cordoned, labelled, pinned and retired as in the record, and are always ready.",
    "Creating or removing a machine takes the pool's median time in the record, or the stated default \
        if the record has none. No machine fails.",
    "The load of unmanaged guests on the hosts is as recorded. Machines use all of their memory. While \
        a host was offline in the record, no machines are created on it, but simulated nodes on it keep \
        running.",
    "Hosts with a `power` setting are switched on and off as the planner decides. Switching off takes \
        60 s, and switching on takes 180 s. The reasons that keep a host on are as recorded. If the \
        record has no such data for a host, only unmanaged guests keep it on, and each host has one \
        vote.",
    "Volumes, attached devices, storages, buffers and provisioning requests are as recorded.",
    "If nothing changes, a decision is made once a minute, or every `scan_interval` if that is longer. \
        While there are pending pods for which no machine is created, a decision is made every \
        `scan_interval`.",
];
