//! A DaemonSet's pod does not need a place on another node: it ends when its node is removed.

use super::{Outcome, Question};
use crate::facts::pod::is_daemon;

pub(super) fn judge(question: &Question) -> Option<Outcome> {
    is_daemon(question.pod).then_some(Outcome::Skip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::tests::*;

    #[test]
    fn pods_of_daemon_sets_and_those_that_say_so_are_passed_over() {
        assert_eq!(ask(judge, &replica()), None);
        assert_eq!(ask(judge, &owned("apps/v1", "DaemonSet")), Some(Outcome::Skip));
        let key = "cluster-autoscaler.kubernetes.io/daemonset-pod";
        assert_eq!(ask(judge, &annotated(key, "true")), Some(Outcome::Skip));
    }
}
