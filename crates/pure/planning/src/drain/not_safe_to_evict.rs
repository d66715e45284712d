//! A pod keeps its node if an annotation requires it: `safe-to-evict: "false"` or `do-not-disrupt`.

use super::{Outcome, Question, SAFE_TO_EVICT};
use crate::annotations::is_kept;
use model::drain::Blocking;

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    let kept =
        question.annotation(SAFE_TO_EVICT) == Some("false") || is_kept(question.pod, question.rules.now);
    kept.then_some(Outcome::Block(Blocking::NotSafeToEvictAnnotation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn a_pod_stays_if_it_says_so() {
        let stays = Some(Outcome::Block(Blocking::NotSafeToEvictAnnotation));
        for (key, value, outcome) in [
            (SAFE_TO_EVICT, "false", stays),
            (SAFE_TO_EVICT, "False", None),
            ("karpenter.sh/do-not-disrupt", "true", stays),
            ("karpenter.sh/do-not-disrupt", "false", None),
        ] {
            assert_eq!(ask(judge, &annotated(key, value)), outcome, "{key}: {value}");
        }
    }
}
