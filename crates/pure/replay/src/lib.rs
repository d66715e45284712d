//! Replays recorded rounds, in virtual time and with the real planner, to find out what a configuration would
//! have done.
//!
//! ```text
//!  recorded rounds ─┬─> Watcher ─> Facts: how long machines took, what happened      (first reading)
//!                   └─> Demand ──> events: pods that are wanted or no longer wanted  (second reading)
//!                                     └─> Simulation, one for each configuration: binding ─> planning::plan ─> machines ─> Figures
//! ```
//!
//! Pure: the same rounds and configuration give the same figures. Rounds are passed one by one, so that weeks
//! of rounds need no more memory than the cluster itself.

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

/// The time until a new machine's node is ready, if the record does not show it for any machine of the pool.
pub const CREATION: Duration = Duration::from_mins(1);
/// The time until a warm machine's node is ready, if the record does not show it for any machine of the pool.
pub const WAKING: Duration = Duration::from_secs(20);
/// The time that the removal of a node takes, if the record does not show it for any node of the pool.
pub const RETIREMENT: Duration = Duration::from_mins(1);
/// The time between the shutdown request to a host and the moment when the host is off.
pub const SHUTDOWN: Duration = Duration::from_mins(1);
/// The time between waking a host and the moment when the host can be used.
pub const STARTUP: Duration = Duration::from_mins(3);

/// The differences between a simulation and the record, apart from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// The number of pods, in thousandths of the recorded number.
    pub demand: u32,
    /// Hosts that are left out.
    pub without: BTreeSet<HostKey>,
}

impl Default for WhatIf {
    fn default() -> Self {
        Self { demand: 1000, without: BTreeSet::new() }
    }
}

/// The assumptions of a simulation, in sentences. They are needed because a record does not show what would
/// have happened otherwise.
pub const ASSUMPTIONS: &[&str] = &[
    "Pods are created and deleted at their recorded times. A pod that finishes by itself runs for as long as in the record, and at least until its recorded end.",
    "If a drain or a lost node moved a pod in the record, the old and the new pod count as one. It stays on its node if the simulation does not move it.",
    "A pending pod is bound as soon as it fits a node, to the one with the most room and the fewest pods of its controller. Preemption, the start of containers and pods that a kubelet refuses are not simulated; pods of a gang are placed one by one.",
    "Pods on nodes outside all pools, and those of DaemonSets, stay as recorded whatever `--scale` is. Copies of pods have no volumes or devices that only one pod can use.",
    "At the start of the simulation, copies of pods that were running and pods of missing hosts have no \
        node. They get a node, and do not count as pending.",
    "Nodes of the first round are cordoned, labelled, pinned and retired as in the record, and are always ready.",
    "Creating and removing a machine takes as long as in the record (the median of its pool), or else the stated default. No machine fails.",
    "The load of other guests on the hosts is as recorded, and machines use all of their memory. While \
        a host was offline in the record, no machines are created on it, but simulated nodes on it keep \
        running.",
    "Hosts with a `power` setting are switched as the planner decides: switching off takes 60 s, \
        switching on 180 s. What keeps a host on is as recorded. If the record has no such data on a \
        host, only other guests keep it on, and each host has one vote.",
    "Volumes, attached devices, storages, buffers and provisioning requests are as recorded.",
    "If nothing changes, a decision is made once a minute (or every `scan_interval`, if that is longer); while no machine is created for some pending pods, every `scan_interval`.",
];
