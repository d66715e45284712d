//! Nominated pods: preemption makes room for them on a node. Only pods with a higher priority may use this
//! room.
//!
//! A node takes a pod only if the pod fits in both cases: with the nominated pods of the same or a higher
//! priority placed on the node, and without them (`RunFilterPluginsWithNominatedPods`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::priorities::Priorities;
use super::refusal::Refusal;
use super::world::{NodeIndex, World};
use model::{Pod, Snapshot};

/// The nominated pods of a cluster.
pub(super) struct Nominated<'a> {
    /// The nominated pods with their priorities, by node.
    by_node: BTreeMap<NodeIndex, Vec<(i32, &'a Arc<Pod>)>>,
    priorities: Priorities<'a>,
}

impl<'a> Nominated<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let priorities = Priorities::new(snapshot);
        let nodes: BTreeMap<&str, NodeIndex> =
            snapshot.nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
        let mut by_node: BTreeMap<NodeIndex, Vec<_>> = BTreeMap::new();
        for pod in snapshot.pods.iter().filter(|pod| pod.node.is_none() && !pod.is_finished()) {
            if let Some(at) = pod.nominated_node.as_deref().and_then(|name| nodes.get(name)) {
                by_node.entry(*at).or_default().push((priorities.of(pod), pod));
            }
        }
        Self { by_node, priorities }
    }

    /// The nodes that refuse the pod because of their nominated pods. The world is unchanged afterwards.
    pub(super) fn refusals(&self, world: &mut World, pod: &Arc<Pod>) -> BTreeMap<NodeIndex, Refusal> {
        let own = self.priorities.of(pod);
        let mut refusals = BTreeMap::new();
        for (&at, nominated) in &self.by_node {
            let others =
                nominated.iter().filter(|(priority, other)| *priority >= own && !Arc::ptr_eq(other, pod));
            let others: Vec<_> = others.map(|(_, other)| *other).collect();
            if others.is_empty() {
                continue;
            }
            for other in &others {
                world.place(other, at);
            }
            if let Err(refusal) = world.check(&world.prepare(pod), at) {
                refusals.insert(at, refusal);
            }
            for other in &others {
                world.remove(other, at);
            }
        }
        refusals
    }
}
