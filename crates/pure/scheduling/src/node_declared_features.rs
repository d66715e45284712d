//! NodeDeclaredFeatures: the node's kubelet must declare every feature that the pod uses and that the
//! scheduler requires of a node.

use super::refusal::Refusal;
use model::features::Features;
use model::node::Node;

/// Checks the kubelet's features. `asked` contains the features that the pod uses and that the scheduler of
/// this version requires of a node.
pub(super) fn check(asked: Features, node: &Node) -> Result<(), Refusal> {
    let lacking = asked.without(node.features).iter().next();
    lacking.map_or(Ok(()), |feature| Err(Refusal::Feature(feature)))
}
