//! Which nodes could take a pod, judged alone against the snapshot as it stands.

use serde::Serialize;

use super::nominated::Nominated;
use super::refusal::Refusal;
use super::world::{NodeIndex, World};
use crate::model::Snapshot;
use crate::model::pod::{Pod, PodPhase};

/// What each node says to one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `namespace/name`.
    pub pod: String,
    /// Every node, by name.
    pub nodes: Vec<NodeAnswer>,
}

/// What a node says to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeAnswer {
    /// The node.
    pub node: String,
    /// It takes the pod.
    pub fits: bool,
    /// The first filter that refuses, in kube-scheduler's names and order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<&'static str>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Explains the chosen pods, or (with `None`) every pod without a node that is not finished.
pub fn explain(snapshot: &Snapshot, chosen: Option<&str>) -> Vec<Explanation> {
    let mut world = World::new(snapshot);
    let nominated = Nominated::new(snapshot);
    let waits =
        |pod: &Pod| pod.node.is_none() && !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
    let pods = snapshot.pods.iter().filter(|pod| match chosen {
        Some(id) => pod.id() == id,
        None => waits(pod),
    });
    let explained = pods.map(|pod| {
        let mut refused = nominated.refusals(&mut world, pod);
        let prepared = world.prepare(pod);
        let answer = |index: usize| {
            let refused = refused.remove(&index);
            let found = refused.map_or_else(|| world.check(&prepared, index), Err);
            answer(&world, index, found)
        };
        Explanation { pod: pod.id(), nodes: (0..world.nodes().len()).map(answer).collect() }
    });
    explained.collect()
}

fn answer(world: &World, index: NodeIndex, found: Result<(), Refusal>) -> NodeAnswer {
    let node = world.node(index).node.name.clone();
    match found {
        Ok(()) => NodeAnswer { node, fits: true, filter: None, message: None },
        Err(refusal) => {
            let message = Some(refusal.to_string());
            NodeAnswer { node, fits: false, filter: Some(refusal.filter()), message }
        }
    }
}
