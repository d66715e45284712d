//! A pod that is being deleted ends by itself, and needs no eviction.

use super::{Outcome, Question};

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    question.pod.deletion.is_some().then_some(Outcome::Skip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn what_ends_by_itself_is_passed_over() {
        assert_eq!(ask(judge, &replica()), None);
        assert_eq!(ask(judge, &ending("12:00:30")), Some(Outcome::Skip));
    }
}
