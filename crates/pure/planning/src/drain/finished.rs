//! A pod that has ended does not need a place on another node, whatever its restart policy is: kube-scheduler
//! ignores finished pods.

use super::{Outcome, Question};

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    question.pod.is_finished().then_some(Outcome::Finished)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn what_has_ended_moves_nowhere() {
        for (phase, outcome) in [
            (PodPhase::Running, None),
            (PodPhase::Succeeded, Some(Outcome::Finished)),
            (PodPhase::Failed, Some(Outcome::Finished)),
        ] {
            assert_eq!(ask(judge, &Pod { phase, ..replica() }), outcome, "{phase:?}");
        }
    }
}
