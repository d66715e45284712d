//! What scaling up decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::capacity::Rooms;
use model::plan::{GrownMachine, PodVerdict, PoolGrowth, PoolReason};
use model::pod::Pod;
use model::unfinished::PodTurns;
use scheduling::NodeIndex;

/// What scaling up decided.
pub(super) struct ScaleUpDecision<'a> {
    pub pools: Vec<PoolGrowth>,
    /// Running machines that are to grow.
    pub grown: Vec<GrownMachine>,
    /// Nodes whose machines grow, now or by this decision.
    pub growing: BTreeSet<NodeIndex>,
    pub verdicts: Vec<PodVerdict>,
    /// Pods that were placed on a node that exists, be it still starting, with their nodes.
    pub placed: Vec<(&'a Arc<Pod>, NodeIndex)>,
    /// Machines on their way: their nodes in the world.
    pub upcoming: BTreeMap<NodeIndex, String>,
    /// Pods of nodes on their way out that find no place.
    pub homeless: Vec<&'a Arc<Pod>>,
    /// Pools that stay below their minimum, and why.
    pub short: Vec<PoolReason>,
    /// What is left for more machines.
    pub rooms: Rooms<'a>,
    /// Pods that were not looked at, and where the next round goes on.
    pub unfinished: Option<PodTurns>,
    /// Not all was looked at that was to be: there may be more that is needed.
    pub cut: bool,
}
