//! With `skip_nodes_with_custom_controller_pods`, a pod keeps its node if the pod's controller no longer
//! exists, because the pod would not be recreated. Only controllers of kinds that are built into Kubernetes
//! are looked up.

use super::{Outcome, Question, Rules};
use model::drain::Blocking;
use model::pod::Owner;

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    let Question { pod, rules, .. } = question;
    let gone = pod.owner.as_ref().is_some_and(|owner| is_missing(rules, &pod.namespace, owner));
    (rules.settings.skip_nodes_with_custom_controller_pods && gone)
        .then_some(Outcome::Block(Blocking::ControllerNotFound))
}

/// Whether the controller is of a kind that is looked up, and does not exist.
fn is_missing(rules: &Rules, namespace: &str, owner: &Owner) -> bool {
    let apps = owner.api_version.starts_with("apps/");
    let known = match owner.kind.as_str() {
        "ReplicationController" | "ReplicaSet" | "Job" => true,
        "StatefulSet" | "DaemonSet" => apps,
        _ => false,
    };
    known && !rules.has_controller(&owner.kind, namespace, &owner.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn a_controller_of_a_known_kind_has_to_be_there() {
        let lenient = ScaleDown { skip_nodes_with_custom_controller_pods: false, ..defaults() };
        let gone = Some(Outcome::Block(Blocking::ControllerNotFound));
        for (api_version, kind, outcome) in [
            ("apps/v1", "ReplicaSet", gone),
            ("batch/v1", "Job", gone),
            ("apps/v1", "StatefulSet", gone),
            ("apps.example.com/v1", "StatefulSet", None),
            ("example.com/v1", "Clone", None),
        ] {
            let pod = owned(api_version, kind);
            assert_eq!(ask(judge, &pod), outcome, "{kind} of {api_version}");
            assert_eq!(ask_with(judge, &pod, &lenient, Vec::new()), None, "{kind} of {api_version}");
        }
    }
}
