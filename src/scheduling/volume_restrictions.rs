//! VolumeRestrictions: disks that only one user may have at a time, and ReadWriteOncePod claims.

use super::refusal::Refusal;
use super::world::World;
use crate::model::pod::{Pod, VolumeSource};

/// Whether a ReadWriteOncePod claim of the pod is in use anywhere: then no node takes it.
pub(super) fn prepare(pod: &Pod, world: &World) -> bool {
    claims(pod).any(|name| {
        let key = (pod.namespace.clone(), name.to_owned());
        let once = world
            .volumes()
            .claims
            .get(&key)
            .is_some_and(|claim| claim.access_modes.iter().any(|mode| mode == "ReadWriteOncePod"));
        once && world.claim_in_use(&key)
    })
}

pub(super) fn check<'a>(
    pod: &Pod,
    conflict: bool,
    others: impl Iterator<Item = &'a Pod> + Clone,
) -> Result<(), Refusal> {
    if conflict {
        return Err(Refusal::VolumeInUse);
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

/// Names of the claims that a pod mounts.
pub(super) fn claims(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim { name, .. } => Some(name.as_str()),
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
