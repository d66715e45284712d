//! VolumeRestrictions: disks that pods on the same node cannot share, and ReadWriteOncePod claims.

use super::refusal::Refusal;
use super::volumes::Volumes;
use super::world::World;
use model::pod::{Pod, VolumeSource};

/// The access mode of claims that only one pod at a time may use.
pub(super) const ONCE: &str = "ReadWriteOncePod";

/// Returns the reason if no node can take the pod: a claim that the pod names does not exist, or a
/// ReadWriteOncePod claim is already in use.
pub(super) fn prepare(pod: &Pod, world: &World) -> Option<Refusal> {
    if missing(pod, world.volumes(), false) {
        return Some(Refusal::ClaimMissing { ephemeral: false });
    }
    let conflict =
        exclusive_claims(pod, world.volumes()).any(|name| world.claim_in_use(&pod.namespace, name));
    conflict.then_some(Refusal::VolumeInUse)
}

pub(super) fn check<'a>(
    pod: &Pod,
    refused: Option<&Refusal>,
    others: impl Iterator<Item = &'a Pod> + Clone,
) -> Result<(), Refusal> {
    if let Some(refusal) = refused {
        return Err(refusal.clone());
    }
    for volume in &pod.volumes {
        if let VolumeSource::Exclusive { .. } = volume.source
            && others.clone().any(|other| other.volumes.iter().any(|one| clash(&volume.source, &one.source)))
        {
            return Err(Refusal::VolumeInUse);
        }
    }
    Ok(())
}

/// Whether one of the pod's claims does not exist. If `of_ephemeral` is true, only the claims of ephemeral
/// volumes are checked. Otherwise, only the other claims are checked.
pub(super) fn missing(pod: &Pod, volumes: &Volumes, of_ephemeral: bool) -> bool {
    pod.volumes.iter().any(|volume| match &volume.source {
        VolumeSource::Claim { name, ephemeral, .. } if *ephemeral == of_ephemeral => {
            volumes.claim(&pod.namespace, name.as_str()).is_none()
        }
        _ => false,
    })
}

/// The names of the pod's claims that only one pod at a time may use. Claims of ephemeral volumes are left
/// out, because each of them belongs to one pod anyway.
pub(super) fn exclusive_claims<'p>(pod: &'p Pod, volumes: &'p Volumes) -> impl Iterator<Item = &'p str> {
    pod.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim { name, ephemeral: false, .. } => {
            volumes.claim(&pod.namespace, name.as_str()).filter(|claim| claim.once).map(|_| name.as_str())
        }
        _ => None,
    })
}

fn clash(a: &VolumeSource, b: &VolumeSource) -> bool {
    match (a, b) {
        (
            VolumeSource::Exclusive { kind, identity, read_only },
            VolumeSource::Exclusive { kind: kind_b, identity: identity_b, read_only: read_only_b },
        ) => kind == kind_b && identity == identity_b && !(*read_only && *read_only_b),
        _ => false,
    }
}
