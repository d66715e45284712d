//! The data that scaling up and scaling down work on.

mod beside;
mod build;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::allowance::Allowance;
use super::daemons::Daemons;
use super::facts::machine::ByNode;
use super::groups::Groups;
use super::learned_allocatable::Statics;
use super::nodes_by_name::Named;
use super::pods_by_node::{NodePods, PodsByNode};
use super::storage_room::StorageRoom;
use super::waiting::Waiting;
use super::{csi, fresh_devices};
use model::Snapshot;
use model::pod::Pod;
use scheduling::World;
use settings::{Config, Pool};

/// The data that scaling up and scaling down work on.
pub(super) struct View<'a> {
    /// The snapshot, without its pods.
    pub snapshot: &'a Snapshot,
    /// The snapshot's nodes by their names.
    pub named: Named<'a>,
    /// All pods, in the order in which they were passed.
    pub pods: &'a [Arc<Pod>],
    /// The snapshot's machines by the names of their Nodes.
    pub machines: ByNode<'a>,
    pub config: &'a Config,
    /// The pools, each once for each machine size and each set of hosts with different labels.
    pub offers: &'a [Pool],
    /// The amount of work that the decision may still do.
    pub allowance: Allowance,
    /// Pending pods, ordered by name.
    pub waiting: Vec<Waiting<'a>>,
    pub groups: Groups<'a>,
    /// The simulated cluster, into which scaling up places pending pods.
    pub world: World,
    /// How many nodes the snapshot has. They come first in the world, in the same order.
    pub existing: usize,
    /// Whether running machines may grow by this decision.
    pub grows: bool,
    /// The pods of each existing node.
    pub on: Vec<&'a NodePods>,
    by_node: &'a PodsByNode<'a>,
    /// Pods with annotations that decisions read.
    pub annotated: Vec<&'a Arc<Pod>>,
    /// The newest pod of each DaemonSet, by the DaemonSet's uid.
    pub newest: BTreeMap<&'a str, &'a Arc<Pod>>,
    pub daemons: Daemons<'a>,
    pub statics: Statics<'a>,
    pub drivers: csi::Drivers,
    pub slices: fresh_devices::Slices,
    pub storage_room: StorageRoom<'a>,
}
