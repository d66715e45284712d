//! VolumeZone: a bound volume's zone and region labels must agree with the node's.

use super::refusal::Refusal;
use super::volume_restrictions::claims;
use super::world::Volumes;
use crate::model::node::Node;
use crate::model::pod::Pod;

/// Old label → present one; both are looked at.
const LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

pub(super) fn check(pod: &Pod, node: &Node, volumes: &Volumes) -> Result<(), Refusal> {
    if !LABELS.iter().any(|(label, _)| node.labels.contains_key(*label)) {
        return Ok(());
    }
    for name in claims(pod) {
        let claim = volumes.claims.get(&(pod.namespace.clone(), name.to_owned()));
        let Some(volume) =
            claim.and_then(|claim| claim.volume.as_ref()).and_then(|name| volumes.persistent.get(name))
        else {
            continue;
        };
        for (label, present) in LABELS {
            let Some(zones) = volume.labels.get(label) else { continue };
            let here = node.labels.get(label).or_else(|| node.labels.get(present));
            if !here.is_some_and(|here| zones.split("__").any(|zone| zone == here)) {
                return Err(Refusal::VolumeZone);
            }
        }
    }
    Ok(())
}
