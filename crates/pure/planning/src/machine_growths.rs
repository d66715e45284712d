//! Machines that grow, as found so far ([`super::grow`] finds them).

use std::collections::BTreeSet;

use super::limits::Shape;
use model::HostKey;
use model::resources::Resources;
use scheduling::NodeIndex;

/// What scaling up finds out about growing machines.
#[derive(Default)]
pub(super) struct Growths {
    /// Nodes whose machines are growing, or will by this decision.
    pub nodes: BTreeSet<NodeIndex>,
    /// Pods, by their places in the list of pending ones, that fit only a machine's future size.
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
    /// What its node offers now.
    pub offered: Resources,
    /// How many bytes of memory the guest has.
    pub capacity: i64,
    /// Pods that it grows for, by their places in the list of pending ones.
    pub pods: Vec<usize>,
}
