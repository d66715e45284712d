//! Facts about a node: its pool, whether it is ready, whether it is being removed, and what keeps it.

use super::time;
use model::Snapshot;
use model::node::Node;
use model::snapshot::{BEING_DELETED_TAINT, PINNED, PINNED_WHY, POOL_LABEL, RETIRE, VM_PROTECTED};
use settings::Config;

/// The annotation that prevents the node from being removed, even if the node is not needed. `None` if there
/// is no such annotation.
pub fn disabled(node: &Node) -> Option<&'static str> {
    const KEYS: [&str; 4] = [
        PINNED,
        "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        "pve-autoscaler/do-not-disrupt",
        "karpenter.sh/do-not-disrupt",
    ];
    KEYS.into_iter().find(|key| node.annotations.get(*key).is_some_and(|value| value == "true"))
}

/// Why the node must stay, even if it is not needed. `None` if no annotation keeps the node.
pub fn stays(node: &Node) -> Option<String> {
    if let Some(key) = disabled(node) {
        let why = node.annotations.get(PINNED_WHY).filter(|_| key == PINNED);
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        return Some(format!("annotation {key}{why}"));
    }
    node.annotations.contains_key(VM_PROTECTED).then(|| "its VM is protected".to_owned())
}

/// The annotation that prevents the removal of a node that is not ready. `None` if the node is ready or has
/// no such annotation.
pub(crate) fn unrepaired(node: &Node) -> Option<&'static str> {
    const KEY: &str = "karpenter.sh/do-not-repair";
    let kept = || node.annotations.get(KEY).is_some_and(|value| value == "true");
    (!ready(node) && kept()).then_some(KEY)
}

/// Whether the node is being removed, or will be as soon as possible, so that its pods need another place.
pub fn being_deleted(node: &Node) -> bool {
    // If the pool is at its minimum, a node that is to be removed is replaced first.
    is_leaving(node) || node.annotations.contains_key(RETIRE)
}

/// Whether the removal of the node has begun, or is simulated in this round. A node that an administrator
/// wants removed keeps its pods until its removal begins, and does not delay other removals.
pub(crate) fn is_leaving(node: &Node) -> bool {
    const TAINTS: [&str; 3] =
        [BEING_DELETED_TAINT, "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"];
    node.deleted.is_some()
        || node.replaced.is_some()
        || node.taints.iter().any(|taint| TAINTS.contains(&taint.key.as_str()))
}

/// Whether the node reports that it is ready. A node without any conditions, for example in a hand-written
/// snapshot, counts as ready.
pub fn ready(node: &Node) -> bool {
    node.conditions.is_empty()
        || node.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True")
}

/// The name of the node's pool, as its label says.
pub(crate) fn pool_of(node: &Node) -> Option<&str> {
    node.labels.get(POOL_LABEL).map(String::as_str)
}

/// Whether the node is so new that it may not be set up yet.
pub(crate) fn is_young(node: &Node, snapshot: &Snapshot, config: &Config) -> bool {
    node.created.is_some_and(|created| time::is_young(created, snapshot, config))
}
