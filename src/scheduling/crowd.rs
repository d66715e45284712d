//! Who stands where: pods that no filter tells apart are one kind, counted by node.
//!
//! What the pods of a whole cluster mean for one pod is then a question to each kind, not to each pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::inter_pod_affinity;
use super::world::{NodeIndex, SimNode, World};
use crate::model::digest::Fingerprint;
use crate::model::pod::Pod;

/// Pods of one namespace with equal labels and anti-affinity, all being deleted or none.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// One of them.
    pub pod: Arc<Pod>,
    /// How many stand on each node.
    pub at: BTreeMap<NodeIndex, i64>,
}

/// All pods of a world.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    kinds: Vec<Kind>,
    numbers: BTreeMap<Fingerprint, usize>,
    /// Those with required anti-affinity.
    repellers: Vec<usize>,
}

impl Crowd {
    pub(super) fn new(nodes: &[SimNode]) -> Self {
        let mut crowd = Self::default();
        for (at, node) in nodes.iter().enumerate() {
            for pod in &node.pods {
                crowd.add(pod, at, 1);
            }
            for (pod, count) in &node.copies {
                crowd.add(pod, at, *count);
            }
        }
        crowd
    }

    /// Counts pods in (or out, with a negative number).
    pub(super) fn add(&mut self, pod: &Arc<Pod>, node: NodeIndex, by: i64) {
        let next = self.kinds.len();
        let number = *self.numbers.entry(pod.digest().seen_as).or_insert(next);
        if number == next {
            self.kinds.push(Kind { pod: pod.clone(), at: BTreeMap::new() });
            if !pod.affinity.anti.is_empty() {
                self.repellers.push(next);
            }
        }
        let at = &mut self.kinds[number].at;
        let count = at.entry(node).or_default();
        *count += by;
        if *count <= 0 {
            at.remove(&node);
        }
    }

    /// Kinds that have required anti-affinity.
    pub(super) fn repellers(&self) -> impl Iterator<Item = &Kind> {
        self.repellers.iter().map(|&number| &self.kinds[number]).filter(|kind| !kind.at.is_empty())
    }

    /// Whether the anti-affinity of any pod speaks of this one.
    pub(super) fn repels(&self, pod: &Pod, world: &World) -> bool {
        self.repellers().any(|kind| inter_pod_affinity::repels(&kind.pod, pod, None, world))
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|kind| !kind.at.is_empty())
    }
}
