//! A pod keeps its node as long as a disruption budget does not allow the pod's eviction.

use super::{Outcome, Question};

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    question.budgets.refusal(question.pod).map(Outcome::Block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn budgets_have_the_last_word() {
        let pod = Pod { phase: PodPhase::Running, ready: true, ..replica() };
        let with = |budgets| ask_with(judge, &pod, &defaults(), budgets);
        assert_eq!(with(Vec::new()), None);
        assert_eq!(with(vec![budget(1)]), None);
        assert_eq!(with(vec![budget(0)]), Some(Outcome::Block(Blocking::NotEnoughPdb)));
        assert_eq!(with(vec![budget(1), budget(1)]), Some(Outcome::Block(Blocking::SeveralPdbs)));
    }
}
