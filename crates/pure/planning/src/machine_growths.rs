//! Growing machines, as found by [`super::grow`].

use std::collections::BTreeSet;

use super::limits::Shape;
use model::HostKey;
use model::resources::Resources;
use scheduling::NodeIndex;

/// The results of scaling up that concern growing machines.
#[derive(Default)]
pub(super) struct Growths {
    /// Nodes whose machines are growing already, or will grow by this decision.
    pub nodes: BTreeSet<NodeIndex>,
    /// Pods that fit only a machine's future size, as indices into the list of pending pods.
    pub pods: BTreeSet<usize>,
    pub planned: Vec<Candidate>,
}

/// A machine that may grow.
pub(super) struct Candidate {
    pub node: NodeIndex,
    pub machine: String,
    pub host: HostKey,
    /// The index of the machine's pool in the configuration.
    pub pool: usize,
    pub from: Shape,
    pub to: Shape,
    pub most: Shape,
    /// What the machine's node offers now.
    pub offered: Resources,
    /// How many bytes of memory the guest has.
    pub capacity: i64,
    /// The pods that the machine grows for, as indices into the list of pending pods.
    pub pods: Vec<usize>,
}
