//! Where a pod was placed.

use scheduling::NodeIndex;

/// Where a pod was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodPlace {
    /// Nowhere.
    None,
    /// On this node of the world: an existing one, one that is being created, or a new one.
    Node(NodeIndex),
}
