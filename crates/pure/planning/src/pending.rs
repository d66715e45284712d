//! Determines which pods are pending, and which of them may trigger a new node.

use jiff::{SignedDuration, Timestamp};

use super::annotations;
use super::facts::pod::will_be_made_again;
use super::groups::Groups;
use super::priorities::Priorities;
use super::unbound::UnboundPod;
use super::view::View;
use super::waiting::Waiting;
use model::plan::PodOutcome;
use settings::Config;

/// Treats the pods of nodes that are being removed as pending, if their controllers will recreate them.
pub(super) fn add_leaving<'a>(
    view: &View<'a>,
    priorities: &Priorities,
    waiting: &mut Vec<Waiting<'a>>,
    groups: &mut Groups<'a>,
) {
    for (at, own) in view.on.iter().enumerate() {
        if view.world.node(at).open {
            continue;
        }
        for pod in own.bound.iter().filter(|pod| will_be_made_again(pod)) {
            let digest = pod.digest();
            let (group, _) = groups.number(pod, digest.class, priorities);
            waiting.push(Waiting { pod, group, settled: None, marks: digest.marks, listed: false });
        }
    }
}

/// The outcome of a pending pod, if it can be determined without looking for room. `expendable` says whether
/// the pod's group is expendable ([`Priorities`]).
pub(super) fn settled(
    of: UnboundPod,
    expendable: bool,
    config: &Config,
    now: Timestamp,
) -> Option<PodOutcome> {
    let UnboundPod { pod, marks, .. } = of;
    if marks.gated {
        return Some(PodOutcome::Gated);
    }
    if marks.daemon {
        return Some(PodOutcome::DaemonSet);
    }
    if expendable {
        return Some(PodOutcome::Expendable);
    }
    let configured = SignedDuration::try_from(config.scale_up.new_pod_delay).unwrap_or(SignedDuration::MAX);
    let own = marks.delayed.then(|| annotations::delay(pod)).flatten();
    let delay = own.map_or(configured, |own| own.max(configured));
    let young = delay.is_positive() && pod.created.is_some_and(|created| now.duration_since(created) < delay);
    young.then_some(PodOutcome::TooYoung)
}
