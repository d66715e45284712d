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
    /// Nodes whose machines are growing, or will by this decision.
    pub growing: BTreeSet<NodeIndex>,
    pub verdicts: Vec<PodVerdict>,
    /// Pods that were placed on existing nodes, each with its node. The node may still be starting.
    pub placed: Vec<(&'a Arc<Pod>, NodeIndex)>,
    /// For each upcoming node in the world, the name of the machine that is being created, or of its Node if
    /// that exists already.
    pub upcoming: BTreeMap<NodeIndex, String>,
    /// Pods that find no place, from nodes that are being removed.
    pub homeless: Vec<&'a Arc<Pod>>,
    /// Pools that stay below their minimum, and why.
    pub short: Vec<PoolReason>,
    /// The room that is left for more machines.
    pub rooms: Rooms<'a>,
    /// Pods that were not looked at, and where the next round continues.
    pub unfinished: Option<PodTurns>,
    /// Whether some pending pods were not looked at, so that more machines may be needed.
    pub cut: bool,
}
