//! Volumes that a drain does not detach.

use std::collections::BTreeSet;

use crate::facts::pod::{is_daemon, is_mirror};
use model::Snapshot;
use model::pod::VolumeSource;

/// The PersistentVolumes of pods that a drain leaves on a node: DaemonSets' pods and static pods.
pub fn volumes_that_stay(snapshot: &Snapshot, node: &str) -> BTreeSet<String> {
    let here = snapshot.pods.iter().filter(|pod| pod.node.as_deref() == Some(node));
    let claims: BTreeSet<(&str, &str)> = here
        .filter(|pod| (is_daemon(pod) || is_mirror(pod)) && !pod.is_finished())
        .flat_map(|pod| pod.volumes.iter().map(|volume| (&*pod.namespace, &volume.source)))
        .filter_map(|(namespace, source)| match source {
            VolumeSource::Claim { name, .. } => Some((namespace, name.as_str())),
            _ => None,
        })
        .collect();
    let of_them = snapshot.claims.iter().filter(|one| claims.contains(&(&*one.namespace, one.name.as_str())));
    of_them.filter_map(|claim| claim.volume.clone()).collect()
}
