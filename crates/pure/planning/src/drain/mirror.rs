//! The mirror of a static pod does not need a place on another node: the node's kubelet runs the static pod
//! until the node is removed.

use super::{Outcome, Question};
use crate::facts::pod::is_mirror;

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    is_mirror(question.pod).then_some(Outcome::Skip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn a_mirror_is_passed_over() {
        assert_eq!(ask(judge, &replica()), None);
        assert_eq!(ask(judge, &annotated("kubernetes.io/config.mirror", "x")), Some(Outcome::Skip));
    }
}
