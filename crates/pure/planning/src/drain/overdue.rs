//! The drain no longer waits for a pod that should have ended some time ago.

use super::{Outcome, Question};
use crate::facts::pod::overdue;

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    overdue(question.pod, question.rules.now).then_some(Outcome::Skip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn a_pod_is_passed_over_half_a_minute_after_its_grace_period() {
        for (ended, outcome) in [("11:59:31", None), ("11:59:29", Some(Outcome::Skip))] {
            assert_eq!(ask(judge, &ending(ended)), outcome, "{ended}");
        }
    }
}
