//! The nodes that count for topology spread, and their domains. They are determined once for each kind of
//! spread, because thousands of apps use only a few kinds.

use std::sync::Arc;

use super::crowd::Around;
use super::pod_topology_spread::{Rule, counts};
use super::topology::Domain;
use model::pod::{Pod, Toleration};
use model::selector::{Labels, NodeSelector};

/// Everything that determines which nodes count for a pod's hard constraints, and in which domains they
/// count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manner {
    /// For each constraint: the topology key, whether the constraint honors node affinity, and whether it
    /// honors taints.
    constraints: Vec<(String, bool, bool)>,
    selector: Labels,
    affinity: Option<NodeSelector>,
    tolerations: Vec<Toleration>,
}

impl Manner {
    pub(super) fn of(pod: &Pod) -> Self {
        let hard = pod.spread.iter().filter(|one| one.hard);
        let constraint = hard.map(|one| {
            let (affinity, taints) = (one.honor_node_affinity, one.honor_node_taints);
            (one.topology_key.clone(), affinity, taints)
        });
        Self {
            constraints: constraint.collect(),
            selector: pod.node_selector.clone(),
            affinity: pod.affinity.node.clone(),
            tolerations: pod.tolerations.clone(),
        }
    }
}

/// The nodes that count for one constraint.
#[derive(Debug)]
pub(super) struct Ground {
    /// For each node: the domain in which the node counts, or `None` if the node does not count.
    pub places: Vec<Option<usize>>,
    /// By domain, the count before any pod is added: 0, or `None` if no node of the domain counts.
    pub empty: Vec<Option<i64>>,
}

impl Ground {
    /// The nodes that count for each of the pod's hard constraints (`all`).
    pub(super) fn of(pod: &Pod, all: &[Arc<Rule>], around: Around) -> Vec<Self> {
        let keys = || all.iter().map(|rule| &rule.key);
        let counted: Vec<bool> = (0..around.nodes.len()).map(|at| counts(keys(), at, around)).collect();
        let ground = |one: &Arc<Rule>| {
            let place = |(at, &counts): (usize, &bool)| match around.domain(&one.key, at) {
                Domain::Known(domain) if counts && one.counts_on(pod, &around.nodes[at]) => Some(domain),
                _ => None,
            };
            let places: Vec<Option<usize>> = counted.iter().enumerate().map(place).collect();
            let mut empty = vec![None; places.iter().flatten().max().map_or(0, |last| last + 1)];
            for domain in places.iter().flatten() {
                empty[*domain] = Some(0);
            }
            Self { places, empty }
        };
        all.iter().map(ground).collect()
    }
}
