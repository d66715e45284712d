//! With `skip_nodes_with_local_storage`, a pod with a hostPath volume or an on-disk emptyDir keeps its node
//! unless an annotation lists the volume as safe. Volume names are compared exactly.

use super::{Outcome, Question};
use model::drain::Blocking;
use model::pod::VolumeSource;

const SAFE_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    let stays = question.rules.settings.skip_nodes_with_local_storage && has_local_storage(question);
    stays.then_some(Outcome::Block(Blocking::LocalStorageRequested))
}

fn has_local_storage(question: &Question) -> bool {
    let safe = question.annotation(SAFE_VOLUMES).unwrap_or_default();
    question.pod.volumes.iter().any(|volume| {
        let local =
            matches!(volume.source, VolumeSource::HostPath | VolumeSource::EmptyDir { memory: false });
        local && !safe.split(',').any(|name| !name.is_empty() && name == volume.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn a_pod_stays_with_what_is_on_its_nodes_disk() {
        let stays = Some(Outcome::Block(Blocking::LocalStorageRequested));
        for (source, safe, outcome) in [
            (VolumeSource::HostPath, "", stays),
            (VolumeSource::EmptyDir { memory: false }, "", stays),
            (VolumeSource::EmptyDir { memory: true }, "", None),
            (VolumeSource::EmptyDir { memory: false }, "a,cache", None),
            (VolumeSource::EmptyDir { memory: false }, "a, cache", stays),
        ] {
            let mut pod = annotated(SAFE_VOLUMES, safe);
            pod.volumes.push(Volume { name: "cache".to_owned(), source: source.clone() });
            assert_eq!(ask(judge, &pod), outcome, "{source:?}, `{safe}` is safe");
        }
        let mut pod = replica();
        pod.volumes.push(Volume { name: "cache".to_owned(), source: VolumeSource::HostPath });
        let off = ScaleDown { skip_nodes_with_local_storage: false, ..defaults() };
        assert_eq!(ask_with(judge, &pod, &off, Vec::new()), None);
    }
}
