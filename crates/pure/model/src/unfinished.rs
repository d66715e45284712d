//! The pods and nodes that a round could not look at because it reached its limit. The next rounds continue
//! with them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The pods and nodes that a round did not look at, and where the next round continues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unfinished {
    /// Pending pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodTurns>,
    /// Nodes that might be removable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeTurns>,
}

/// The pods that the next round looks at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTurns {
    /// The number of pods that were not looked at.
    pub left: usize,
    /// The maximum number of pod kinds that the next round looks at. The round takes kinds from each
    /// namespace in turn.
    pub most: usize,
    /// For each priority and namespace (`PRIORITY/NAMESPACE`): the pod kind after which the next round
    /// continues. A kind is identified by its first pod.
    pub after: BTreeMap<String, String>,
    /// For each priority: the namespace after which the next round continues.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last: BTreeMap<i32, String>,
    /// Pod kinds that are too much work for one round, each identified by its first pod. A round looks at
    /// these kinds last.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub heavy: BTreeSet<String>,
}

/// The nodes that the next round looks at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTurns {
    /// The number of nodes that were not looked at.
    pub left: usize,
    /// The maximum number of nodes that the next round looks at.
    pub most: usize,
    /// The name of the node after which the next round continues.
    pub after: Option<String>,
}

impl Unfinished {
    /// Whether the round looked at all pods and nodes.
    pub fn is_empty(&self) -> bool {
        self.pods.is_none() && self.nodes.is_none()
    }

    /// Returns a message that says what is left for later rounds.
    pub fn words(&self) -> String {
        let pods = self.pods.as_ref().map(|turns| format!("{} pending pods", turns.left));
        let nodes = self.nodes.as_ref().map(|turns| format!("{} nodes that might be removable", turns.left));
        let left: Vec<String> = pods.into_iter().chain(nodes).collect();
        format!("a round reached its limit; the next rounds continue with {}", left.join(" and "))
    }
}
