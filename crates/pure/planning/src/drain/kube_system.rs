//! With `skip_nodes_with_system_pods`, a young kube-system pod keeps its node unless a disruption budget
//! selects the pod.

use jiff::SignedDuration;

use super::{Outcome, Question};
use model::drain::Blocking;

/// The age below which a kube-system pod counts as young, as in Cluster Autoscaler.
const YOUNG: SignedDuration = SignedDuration::from_hours(1);

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    let Question { pod, rules, budgets } = question;
    let is_young = || pod.created.is_none_or(|created| rules.now.duration_since(created) < YOUNG);
    let stays = rules.settings.skip_nodes_with_system_pods
        && pod.namespace == "kube-system"
        && is_young()
        && !budgets.covers(pod);
    stays.then_some(Outcome::Block(Blocking::UnmovableKubeSystemPod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn a_young_system_pod_without_a_budget_stays() {
        let stays = Some(Outcome::Block(Blocking::UnmovableKubeSystemPod));
        let system = |created: &str| {
            let mut pod = Pod { created: Some(time(created)), ..replica() };
            "kube-system".clone_into(&mut pod.namespace);
            pod
        };
        assert_eq!(ask(judge, &replica()), None);
        assert_eq!(ask(judge, &system("11:01:00")), stays);
        assert_eq!(ask(judge, &system("10:59:00")), None);
        let budget = DisruptionBudget { namespace: "kube-system".to_owned(), ..budget(1) };
        let with = ask_with(judge, &system("11:01:00"), &defaults(), vec![budget]);
        assert_eq!(with, None);
        let off = ScaleDown { skip_nodes_with_system_pods: false, ..defaults() };
        assert_eq!(ask_with(judge, &system("11:01:00"), &off, Vec::new()), None);
    }
}
