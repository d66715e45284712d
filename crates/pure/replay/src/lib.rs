//! What a configuration would have done with what was recorded: virtual time, and the planner that decides
//! for real.
//!
//! ```text
//!  recorded rounds ─┬─> Watcher ─> Facts: how long machines took, what happened      (first reading)
//!                   └─> Demand ──> events: pods that are wanted, and no longer       (second reading)
//!                                     └─> Simulation, one for each configuration: binding ─> planning::plan ─> machines ─> Figures
//! ```
//!
//! Pure: the same rounds and configuration give the same figures. Rounds are given one by one, so that weeks
//! of them take no more memory than the cluster itself.

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

/// A machine takes this long until its node is ready if no recorded one shows it.
pub const CREATION: Duration = Duration::from_mins(1);
/// The same of one that was kept warm, and of a running one that grows.
pub const WAKING: Duration = Duration::from_secs(20);
/// A node takes this long to go if no recorded one shows it.
pub const RETIREMENT: Duration = Duration::from_mins(1);
/// A host that is shut down is off after this time.
pub const SHUTDOWN: Duration = Duration::from_mins(1);
/// A host that is woken can be used after this time.
pub const STARTUP: Duration = Duration::from_mins(3);

/// What is different from what was recorded, beside the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// There are so many thousandths of the recorded pods.
    pub demand: u32,
    /// These hosts are not there.
    pub without: BTreeSet<HostKey>,
}

impl Default for WhatIf {
    fn default() -> Self {
        Self { demand: 1000, without: BTreeSet::new() }
    }
}

/// What is taken for granted, in sentences: a record does not say what would have happened otherwise.
pub const ASSUMPTIONS: &[&str] = &[
    "Pods come when they came, and go when they went; one that finishes by itself runs for as long as it ran, and at least until it finished in the record.",
    "A pod that a drain or a lost node moved is one pod: where the simulation moves none, it stays.",
    "A waiting pod is bound as soon as a node takes it, on the node with the most room and the fewest pods of its controller; preemption, the start of its containers and pods that a kubelet refuses are not simulated, and pods of a gang are placed one by one.",
    "Pods on nodes of no pool, and those of DaemonSets, stay as recorded whatever `--scale` says. Copies of pods have no volumes and devices that are one pod's alone.",
    "What only the beginning leaves without a node (copies of pods that ran then, pods of hosts that are not there) gets one, and does not count as waiting.",
    "Nodes of the first round are cordoned, labelled, pinned and retired as in the record, and ready.",
    "Machines take as long to come and to go as the recorded ones of their pool did (median), else the stated default; none fails.",
    "Hosts have the rest of their load as recorded, and machines use all of their memory. One that was away in the record gets no machine meanwhile, and simulated nodes on it go on.",
    "Hosts with a `power` are switched as the planner decides: off in 60 s, on in 180 s. What speaks against it is as recorded; if the record has nothing of a host, its other guests alone, and each host has one vote.",
    "Volumes, attached devices, storages, buffers and provisioning requests are as recorded.",
    "Where nothing changes, a decision is made once a minute; while pods wait that no machine is made for, every `scan_interval`.",
];
