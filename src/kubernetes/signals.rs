//! Which changes are worth a round.
//!
//! A kubelet writes its Node every few minutes without anything having happened, and our own notes on a Node must not
//! start the round that writes the next ones.

use crate::model::snapshot::UNNEEDED_SINCE;
use crate::model::{Node, Pod};

/// Anything that a scheduler or a drain would see differently, not a pod that merely became ready.
pub(super) fn pod(old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    let quiet = |pod: &Pod| Pod { ready: false, ..pod.clone() };
    old != new && quiet(old) != quiet(new)
}

/// Readiness, taints, labels, amounts, volumes; not a heartbeat, nor our own timer.
pub(super) fn node(old: Option<&Node>, new: Option<&Node>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    let quiet = |node: &Node| {
        let mut node = Node { resource_version: String::new(), ..node.clone() };
        node.annotations.remove(UNNEEDED_SINCE);
        node
    };
    quiet(old) != quiet(new)
}

/// Any difference.
pub(super) fn any<T: PartialEq>(old: Option<&T>, new: Option<&T>) -> bool {
    old != new
}

/// Nothing: the next round in due time is soon enough.
pub(super) fn none<T>(_: Option<&T>, _: Option<&T>) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node::{Condition, Taint, TaintEffect};
    use crate::model::pod::{PodPhase, Scheduling};

    fn ready(status: &str) -> Vec<Condition> {
        vec![Condition { kind: "Ready".to_owned(), status: status.to_owned(), last_transition: None }]
    }

    #[test]
    fn a_node_is_worth_a_round_when_something_happened_to_it() {
        let old = Node {
            name: "a".into(),
            resource_version: "1".into(),
            conditions: ready("True"),
            ..Node::default()
        };
        let taint = Taint {
            key: "k".into(),
            value: String::new(),
            effect: TaintEffect::NoSchedule,
            time_added: None,
        };
        let mut noted = old.clone();
        noted.annotations.insert(UNNEEDED_SINCE.to_owned(), "2026-01-01T00:00:00Z".to_owned());
        let mut labelled = old.clone();
        labelled.labels.insert("zone".to_owned(), "a".to_owned());
        let mut larger = old.clone();
        larger.allocatable.cpu_milli = 1;
        let cases = [
            ("heartbeat", Node { resource_version: "2".into(), ..old.clone() }, false),
            ("our own timer", noted, false),
            ("not ready", Node { conditions: ready("Unknown"), ..old.clone() }, true),
            ("tainted", Node { taints: vec![taint], ..old.clone() }, true),
            ("labelled", labelled, true),
            ("larger", larger, true),
            ("cordoned", Node { unschedulable: true, ..old.clone() }, true),
        ];
        for (what, new, expected) in cases {
            assert_eq!(node(Some(&old), Some(&new)), expected, "{what}");
        }
        assert!(node(None, Some(&old)));
        assert!(node(Some(&old), None));
    }

    #[test]
    fn a_pod_is_worth_a_round_when_it_waits_moves_or_ends() {
        let old = Pod { name: "a".into(), ..Pod::default() };
        let cases = [
            ("nothing", old.clone(), false),
            ("ready", Pod { ready: true, ..old.clone() }, false),
            ("unschedulable", Pod { scheduling: Scheduling::Unschedulable(None), ..old.clone() }, true),
            ("bound", Pod { node: Some("n".into()), ..old.clone() }, true),
            ("over", Pod { phase: PodPhase::Succeeded, ..old.clone() }, true),
        ];
        for (what, new, expected) in cases {
            assert_eq!(pod(Some(&old), Some(&new)), expected, "{what}");
        }
    }
}
