//! What both halves of a decision work on.

mod beside;
mod build;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::allowance::Allowance;
use super::daemons::Daemons;
use super::groups::Groups;
use super::learned_allocatable::Statics;
use super::nodes_by_name::Named;
use super::storage_room::StorageRoom;
use super::waiting::Waiting;
use super::{csi, fresh_devices};
use model::Snapshot;
use model::pod::Pod;
use scheduling::{NodeIndex, World};
use settings::{Config, Pool};

/// What both halves of a decision work on.
pub(super) struct View<'a> {
    /// Without its pods.
    pub snapshot: &'a Snapshot,
    /// The snapshot's nodes by their names.
    pub named: Named<'a>,
    /// In the order in which they came.
    pub pods: &'a [Arc<Pod>],
    pub config: &'a Config,
    /// The pools, once for each size of their machines and each set of hosts with labels of its own.
    pub offers: &'a [Pool],
    /// What may still be spent on the decision.
    pub allowance: Allowance,
    /// Pods without a node, in order of their names.
    pub waiting: Vec<Waiting<'a>>,
    pub groups: Groups<'a>,
    /// The cluster; pending pods are placed into it by scaling up.
    pub world: World,
    /// The snapshot's nodes come first in the world, in this order.
    pub existing: usize,
    /// Running machines may be made larger by this decision.
    pub grows: bool,
    /// By pod, in the order in which they came.
    stands: Vec<Stand>,
    /// Pods with a node that count, by their node's index.
    pub bound: Vec<Vec<&'a Arc<Pod>>>,
    /// Those that hold no room (expendable ones), which may hold their node all the same.
    pub expendable: Vec<Vec<&'a Arc<Pod>>>,
    /// Pods with annotations that decisions read.
    pub annotated: Vec<&'a Arc<Pod>>,
    /// The newest pod of each DaemonSet, by the set's uid.
    pub newest: BTreeMap<&'a str, &'a Arc<Pod>>,
    pub daemons: Daemons<'a>,
    pub statics: Statics<'a>,
    pub drivers: csi::Drivers,
    pub slices: fresh_devices::Slices,
    pub storage_room: StorageRoom<'a>,
}

/// Where a pod stands.
#[derive(Clone, Copy)]
enum Stand {
    /// It is one of those that count on this node.
    On(NodeIndex),
    /// It waits for a node.
    Waits,
    /// Anything else: it holds no room that others may not have.
    Nowhere,
}
