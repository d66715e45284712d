//! VolumeBinding: bound volumes must be usable on the node; unbound claims must find or get one there.

use std::collections::BTreeSet;

use super::refusal::{Refusal, VolumeProblem};
use super::selector::{labels_match, node_matches};
use super::world::Volumes;
use crate::model::node::Node;
use crate::model::pod::{Pod, VolumeSource};
use crate::model::workload::{PersistentVolume, VolumeClaim};

/// The pod's claims, sorted by what binding has to do with them (`GetPodVolumeClaims`).
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    bound: Vec<String>,
    waiting: Vec<(String, String)>,
    problem: Option<VolumeProblem>,
}

pub(super) fn prepare(pod: &Pod, volumes: &Volumes) -> State {
    let mut state = State::default();
    for volume in &pod.volumes {
        let VolumeSource::Claim { name, ephemeral, .. } = &volume.source else { continue };
        let key = (pod.namespace.clone(), name.to_owned());
        // One that does not exist was refused by an earlier filter.
        let Some(claim) = volumes.claims.get(&key) else { continue };
        if *ephemeral && claim.owner_uid.as_ref() != Some(&pod.uid) {
            return State { problem: Some(VolumeProblem::ClaimOfAnother), ..state };
        }
        if claim.deleted || claim.lost {
            return State { problem: Some(VolumeProblem::ClaimGone), ..state };
        }
        match &claim.volume {
            Some(volume) if claim.bound => state.bound.push(volume.clone()),
            None if waits(claim, volumes) => state.waiting.push(key),
            _ => return State { problem: Some(VolumeProblem::UnboundImmediate), ..state },
        }
    }
    state
}

fn waits(claim: &VolumeClaim, volumes: &Volumes) -> bool {
    let class = claim.class.as_ref().and_then(|class| volumes.classes.get(class));
    class.is_some_and(|class| class.waits_for_consumer)
}

pub(super) fn check(state: &State, node: &Node, volumes: &Volumes) -> Result<(), Refusal> {
    let refuse = |problem| Err(Refusal::VolumeBinding(problem));
    if let Some(problem) = state.problem {
        return refuse(problem);
    }
    for name in &state.bound {
        match volumes.persistent.get(name) {
            None => return refuse(VolumeProblem::VolumeMissing),
            Some(volume) if !reachable(volume, node) => return refuse(VolumeProblem::NodeAffinity),
            Some(_) => {}
        }
    }
    let mut taken = BTreeSet::new();
    let mut claims: Vec<_> = state.waiting.iter().filter_map(|key| volumes.claims.get(key)).collect();
    claims.sort_by_key(|claim| claim.request);
    for claim in claims {
        if let Some(chosen) = &claim.selected_node {
            if *chosen != node.name {
                return refuse(VolumeProblem::NodeAffinity);
            }
        } else if let Some(volume) = matching(claim, node, volumes, &taken) {
            taken.insert(volume.name.clone());
            continue;
        }
        if !can_provision(claim, node, volumes) {
            return refuse(VolumeProblem::NothingToBind);
        }
    }
    Ok(())
}

fn reachable(volume: &PersistentVolume, node: &Node) -> bool {
    volume.node_affinity.as_ref().is_none_or(|required| node_matches(required, &node.name, &node.labels))
}

/// The smallest volume that the claim could bind to on this node (`FindMatchingVolume`).
fn matching<'a>(
    claim: &VolumeClaim,
    node: &Node,
    volumes: &'a Volumes,
    taken: &BTreeSet<String>,
) -> Option<&'a PersistentVolume> {
    let own = format!("{}/{}", claim.namespace, claim.name);
    let suits = |volume: &&PersistentVolume| {
        !taken.contains(&volume.name)
            && volume.block == claim.block
            && !volume.deleted
            && volume.capacity >= claim.request
    };
    let all = || volumes.persistent.values().map(AsRef::as_ref).filter(suits);
    // A volume that is reserved for the claim is the only one.
    if let Some(reserved) = all().find(|volume| volume.claim.as_ref() == Some(&own)) {
        return Some(reserved).filter(|volume| reachable(volume, node));
    }
    all()
        .filter(|volume| volume.claim.is_none() && volume.available && reachable(volume, node))
        .filter(|volume| volume.class == claim.class.as_deref().unwrap_or_default())
        .filter(|volume| claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode)))
        .filter(|volume| {
            claim.selector.as_ref().is_none_or(|selector| labels_match(selector, &volume.labels))
        })
        .min_by_key(|volume| volume.capacity)
}

fn can_provision(claim: &VolumeClaim, node: &Node, volumes: &Volumes) -> bool {
    let Some(class) = claim.class.as_ref().and_then(|class| volumes.classes.get(class)) else { return false };
    let makes = !class.provisioner.is_empty() && class.provisioner != "kubernetes.io/no-provisioner";
    let topologies = &class.allowed_topologies;
    makes
        && (topologies.is_empty()
            || topologies.iter().any(|term| node_matches(term, &node.name, &node.labels)))
}
