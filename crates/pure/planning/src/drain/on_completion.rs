//! The drain waits for a pod with `safe-to-evict: "on-completion"` to end.

use super::{Outcome, Question, SAFE_TO_EVICT};

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    (question.annotation(SAFE_TO_EVICT) == Some("on-completion")).then_some(Outcome::Await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn a_pod_that_says_so_is_waited_for() {
        for (value, outcome) in [("on-completion", Some(Outcome::Await)), ("false", None), ("", None)] {
            assert_eq!(ask(judge, &annotated(SAFE_TO_EVICT, value)), outcome, "{value}");
        }
    }
}
