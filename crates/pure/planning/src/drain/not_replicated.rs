//! A pod without a controller keeps its node, because the pod would not be recreated. With
//! `skip_nodes_with_custom_controller_pods`, the same applies to a pod whose controller is not built into
//! Kubernetes.

use super::{Outcome, Question};
use model::drain::Blocking;

/// Kinds of controllers that recreate their pods.
const OWN: [&str; 4] = ["ReplicationController", "Job", "ReplicaSet", "StatefulSet"];

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    let strict = question.rules.settings.skip_nodes_with_custom_controller_pods;
    let is_replicated = |kind: &str| !strict || OWN.contains(&kind);
    let replicated = question.pod.owner.as_ref().is_some_and(|owner| is_replicated(&owner.kind));
    (!replicated).then_some(Outcome::Block(Blocking::NotReplicated))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn what_nothing_makes_again_stays() {
        let stays = Some(Outcome::Block(Blocking::NotReplicated));
        let lenient = ScaleDown { skip_nodes_with_custom_controller_pods: false, ..defaults() };
        for (pod, by_default, leniently) in [
            (Pod::default(), stays, stays),
            (replica(), None, None),
            (owned("example.com/v1", "Clone"), stays, None),
        ] {
            assert_eq!(ask(judge, &pod), by_default, "{pod:?}");
            assert_eq!(ask_with(judge, &pod, &lenient, Vec::new()), leniently, "{pod:?}");
        }
    }
}
