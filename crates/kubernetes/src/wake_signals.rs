//! Decides which changes trigger a round.
//!
//! A kubelet updates its Node every few minutes even if nothing has happened. Such an update must not trigger
//! a round. Nor must a change to the daemon's own annotation on a Node: otherwise, a round that writes the
//! annotation would trigger the next round.

use model::buffer::{BufferStatus, CapacityBuffer};
use model::pod::Scheduling;
use model::request::ProvisioningRequest;
use model::snapshot::UNNEEDED_SINCE;
use model::workload::Controller;
use model::{Node, Pod};

/// How urgent a change is, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// The change triggers no round: the next regular round is soon enough.
    Nothing,
    /// The change triggers a round, after a short wait for related changes.
    Round,
    /// A pod has become pending, which triggers a round. Only further pods that become pending delay that
    /// round; other changes do not.
    Haste,
}

/// A change to a pod triggers a round, unless only its readiness or the scheduler's message has changed. A
/// pod that becomes pending is urgent.
pub(super) fn pod(old: Option<&Pod>, new: Option<&Pod>) -> Worth {
    let waits = |pod: &Pod| pod.node.is_none() && matches!(pod.scheduling, Scheduling::Unschedulable(_));
    if new.is_some_and(waits) && !old.is_some_and(waits) {
        return Worth::Haste;
    }
    let (Some(old), Some(new)) = (old, new) else { return Worth::Round };
    // The scheduler's message contains node counts, so it changes for every pending pod whenever a node is
    // added or removed.
    let quiet = |pod: &Pod| Pod { ready: false, refusal: String::new(), ..pod.clone() };
    round_if(old != new && quiet(old) != quiet(new))
}

/// A change to a Node triggers a round, unless it is only a heartbeat, or only the daemon's own annotation
/// changed.
pub(super) fn node(old: Option<&Node>, new: Option<&Node>) -> Worth {
    let (Some(old), Some(new)) = (old, new) else { return Worth::Round };
    let quiet = |node: &Node| {
        let mut node = Node { resource_version: String::new(), ..node.clone() };
        node.annotations.remove(UNNEEDED_SINCE);
        node
    };
    round_if(quiet(old) != quiet(new))
}

/// A change to a buffer triggers a round, unless only its status has changed.
pub(super) fn buffer(old: Option<&CapacityBuffer>, new: Option<&CapacityBuffer>) -> Worth {
    let (Some(old), Some(new)) = (old, new) else { return Worth::Round };
    let asked = |buffer: &CapacityBuffer| CapacityBuffer {
        resource_version: String::new(),
        status: BufferStatus::default(),
        ..buffer.clone()
    };
    round_if(asked(old) != asked(new))
}

/// A change to a ProvisioningRequest triggers a round, unless only its conditions have changed.
pub(super) fn request(old: Option<&ProvisioningRequest>, new: Option<&ProvisioningRequest>) -> Worth {
    let (Some(old), Some(new)) = (old, new) else { return Worth::Round };
    let asked = |request: &ProvisioningRequest| ProvisioningRequest {
        resource_version: String::new(),
        conditions: Vec::new(),
        ..request.clone()
    };
    round_if(asked(old) != asked(new))
}

/// A change to a controller triggers a round only if a buffer refers to the controller: only then is its
/// template stored.
pub(super) fn controller(old: Option<&Controller>, new: Option<&Controller>) -> Worth {
    let referred = |one: Option<&Controller>| one.is_some_and(|one| one.template.is_some());
    round_if((referred(old) || referred(new)) && old != new)
}

/// Any change triggers a round.
pub(super) fn any<T: PartialEq>(old: Option<&T>, new: Option<&T>) -> Worth {
    round_if(old != new)
}

/// A change never triggers a round: the next regular round is soon enough.
pub(super) fn none<T>(_: Option<&T>, _: Option<&T>) -> Worth {
    Worth::Nothing
}

fn round_if(matters: bool) -> Worth {
    if matters { Worth::Round } else { Worth::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::node::{Condition, Taint, TaintEffect};
    use model::pod::PodPhase;

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
            ("the daemon's own annotation", noted, false),
            ("not ready", Node { conditions: ready("Unknown"), ..old.clone() }, true),
            ("tainted", Node { taints: vec![taint], ..old.clone() }, true),
            ("labelled", labelled, true),
            ("larger", larger, true),
            ("cordoned", Node { unschedulable: true, ..old.clone() }, true),
        ];
        for (what, new, expected) in cases {
            assert_eq!(node(Some(&old), Some(&new)), round_if(expected), "{what}");
        }
        assert_eq!(node(None, Some(&old)), Worth::Round);
        assert_eq!(node(Some(&old), None), Worth::Round);
    }

    #[test]
    fn a_pod_is_worth_a_round_when_it_waits_moves_or_ends() {
        let old = Pod { name: "a".into(), ..Pod::default() };
        let waits = Pod { scheduling: Scheduling::Unschedulable(None), ..old.clone() };
        let cases = [
            ("nothing", old.clone(), Worth::Nothing),
            ("ready", Pod { ready: true, ..old.clone() }, Worth::Nothing),
            ("unschedulable", waits.clone(), Worth::Haste),
            ("bound", Pod { node: Some("n".into()), ..old.clone() }, Worth::Round),
            ("ended", Pod { phase: PodPhase::Succeeded, ..old.clone() }, Worth::Round),
        ];
        for (what, new, expected) in cases {
            assert_eq!(pod(Some(&old), Some(&new)), expected, "{what}");
        }
        let mut longer = waits.clone();
        longer.priority = Some(1);
        assert_eq!(pod(Some(&waits), Some(&longer)), Worth::Round, "the pod was already pending");
        assert_eq!(pod(None, Some(&waits)), Worth::Haste);
        assert_eq!(pod(Some(&waits), None), Worth::Round);
    }
}
