//! Explains which nodes could take a pod. Each node is checked separately against the unchanged snapshot.

use std::sync::Arc;

use serde::Serialize;

use super::nominated::Nominated;
use super::refusal::Refusal;
use super::world::{NodeIndex, World};
use model::Snapshot;
use model::plan::MissedPrediction;
use model::pod::{Pod, PodPhase};
use model::prediction::{Missed, kind};

/// Whether each node would take a certain pod, and the reason if it would not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `namespace/name`.
    pub pod: String,
    /// The answer for each node.
    pub nodes: Vec<NodeAnswer>,
    /// kube-scheduler's message, if it has refused the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Wrong predictions: nodes on which kube-scheduler refuses pods like this one, although the planner
    /// expected them to fit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<MissedPrediction>,
}

/// Whether a node would take a pod, and the reason if it would not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeAnswer {
    /// The node.
    pub node: String,
    /// Whether the node takes the pod.
    pub fits: bool,
    /// The name of the first filter, in kube-scheduler's order, that refuses the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<&'static str>,
    /// The reason why the filter refuses the pod, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Explains the pod with the id `chosen`. If that is `None`, explains every unfinished pod that has no node.
pub fn explain(snapshot: &Snapshot, chosen: Option<&str>) -> Vec<Explanation> {
    let mut world = World::new(snapshot);
    let nominated = Nominated::new(snapshot);
    let waits =
        |pod: &Pod| pod.node.is_none() && !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
    let pods = snapshot.pods.iter().filter(|pod| match chosen {
        Some(id) => pod.id() == id,
        None => waits(pod),
    });
    let missed = &snapshot.memory.predictions.missed;
    pods.map(|pod| explain_one(&mut world, &nominated, missed, pod)).collect()
}

fn explain_one(world: &mut World, nominated: &Nominated, missed: &[Missed], pod: &Arc<Pod>) -> Explanation {
    // A running pod is taken out of the world first, so that it does not compete with itself.
    let runs = pod.node.as_deref().filter(|_| !pod.is_finished());
    let own = runs.and_then(|name| world.nodes().iter().position(|one| one.node.name == name));
    if let Some(own) = own {
        world.remove(pod, own);
    }
    let mut refused = nominated.refusals(world, pod);
    let prepared = world.prepare(pod);
    let answer = |index: usize| {
        let refused = refused.remove(&index);
        let found = refused.map_or_else(|| world.check(&prepared, index), Err);
        answer(world, index, found)
    };
    let nodes = (0..world.nodes().len()).map(answer).collect();
    if let Some(own) = own {
        world.place(pod, own);
    }
    let waits = pod.node.is_none() && !pod.refusal.is_empty();
    let missed = missed.iter().filter(|one| waits && one.kind == kind(pod));
    Explanation {
        pod: pod.id(),
        nodes,
        scheduler: waits.then(|| pod.refusal.clone()),
        missed: missed.map(MissedPrediction::of).collect(),
    }
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
