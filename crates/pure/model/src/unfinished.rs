//! What a round could not look at, because it had looked at all that one round may: the next ones go on with
//! it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What is left over of a round, and where the next one goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unfinished {
    /// Pods that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodTurns>,
    /// Nodes that could perhaps go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeTurns>,
}

/// Which pods come next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTurns {
    /// How many were not looked at.
    pub left: usize,
    /// How many kinds of pods are looked at in the next round; every namespace has its turn.
    pub most: usize,
    /// By priority and namespace (`PRIORITY/NAMESPACE`), the first pod of the kind that was looked at last.
    pub after: BTreeMap<String, String>,
    /// By priority, the namespace that had its turn last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last: BTreeMap<i32, String>,
    /// Kinds, by their first pod, that are too much for a round by themselves: they come last.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub heavy: BTreeSet<String>,
}

/// Which nodes come next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTurns {
    /// How many were not looked at.
    pub left: usize,
    /// How many are looked at in the next round.
    pub most: usize,
    /// The node that was looked at last.
    pub after: Option<String>,
}

impl Unfinished {
    /// Whether nothing is left over.
    pub fn is_empty(&self) -> bool {
        self.pods.is_none() && self.nodes.is_none()
    }

    /// The same in words.
    pub fn words(&self) -> String {
        let pods = self.pods.as_ref().map(|turns| format!("{} waiting pods", turns.left));
        let nodes = self.nodes.as_ref().map(|turns| format!("{} nodes that could perhaps go", turns.left));
        let left: Vec<String> = pods.into_iter().chain(nodes).collect();
        format!("a round looked at all that one may; the next ones go on with {}", left.join(" and "))
    }
}
