//! VolumeZone: a bound volume's zone and region labels must agree with the node's.

use super::refusal::Refusal;
use super::volumes::Volumes;
use model::node::Node;
use model::pod::{Pod, VolumeSource};

/// The zone and region labels of volumes, each with the label's current name. A node may use either name.
const LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// What the pod's volumes require of a node's labels.
#[derive(Clone, Debug, Default)]
pub(super) struct State(Vec<Topology>);

#[derive(Clone, Debug)]
struct Topology {
    label: &'static str,
    present: &'static str,
    values: Vec<String>,
}

/// Returns what the pod's volumes require of a node's labels. As in kube-scheduler, claims of ephemeral
/// volumes are ignored.
pub(super) fn prepare(pod: &Pod, volumes: &Volumes) -> State {
    let bound = pod.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim { name, ephemeral: false, .. } => {
            let claim = volumes.claim(&pod.namespace, name)?;
            volumes.persistent(claim.object.volume.as_ref()?)
        }
        _ => None,
    });
    let topologies = bound.flat_map(|volume| {
        LABELS.iter().filter_map(|&(label, present)| {
            let values = zones(volume.labels.get(label)?)?;
            Some(Topology { label, present, values })
        })
    });
    State(topologies.collect())
}

/// The zones that a label lists. `None` if one of them is empty, because the label is then ignored.
fn zones(label: &str) -> Option<Vec<String>> {
    label
        .split("__")
        .map(|zone| Some(zone.trim()).filter(|zone| !zone.is_empty()).map(str::to_owned))
        .collect()
}

pub(super) fn check(state: &State, node: &Node) -> Result<(), Refusal> {
    if state.0.is_empty() || !LABELS.iter().any(|(label, _)| node.labels.contains_key(*label)) {
        return Ok(());
    }
    for topology in &state.0 {
        let here = node.labels.get(topology.label).or_else(|| node.labels.get(topology.present));
        if !here.is_some_and(|here| topology.values.contains(here)) {
            return Err(Refusal::VolumeZone);
        }
    }
    Ok(())
}
