//! Machines that grow, as found so far ([`super::grow`] finds them).

use std::collections::BTreeSet;

use super::limits::Shape;
use model::HostKey;
use model::resources::Resources;
use scheduling::NodeIndex;

/// What scaling up finds out about machines that grow.
#[derive(Default)]
pub(super) struct Growths {
    /// Nodes whose machines grow, now or by this decision.
    pub nodes: BTreeSet<NodeIndex>,
    /// Pods, by their places in the list of waiting ones, that fit only what a machine is to have.
    pub pods: BTreeSet<usize>,
    pub planned: Vec<Candidate>,
}

/// A machine that may grow.
pub(super) struct Candidate {
    pub node: NodeIndex,
    pub machine: String,
    pub host: HostKey,
    /// Its pool's place in the configuration.
    pub pool: usize,
    pub from: Shape,
    pub to: Shape,
    pub most: Shape,
    /// What its node offers now, and the memory that the guest has.
    pub offered: Resources,
    pub capacity: i64,
    /// Pods that it grows for, by their places in the list of waiting ones.
    pub pods: Vec<usize>,
}
