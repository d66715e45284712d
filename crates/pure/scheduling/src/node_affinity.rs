//! NodeAffinity: node selector and required node affinity.

use super::refusal::Refusal;
use super::selector::node_matches;
use model::node::Node;
use model::pod::Pod;

pub(super) fn check(pod: &Pod, node: &Node) -> Result<(), Refusal> {
    if matches(pod, node) { Ok(()) } else { Err(Refusal::NodeAffinity) }
}

/// Whether the pod's node selector and required node affinity match the node
/// (`GetRequiredNodeAffinity(pod).Match(node)`).
pub(super) fn matches(pod: &Pod, node: &Node) -> bool {
    pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && pod.affinity.node.as_ref().is_none_or(|required| node_matches(required, &node.name, &node.labels))
}
