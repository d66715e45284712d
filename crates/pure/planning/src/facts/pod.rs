//! Facts about a pod: whether it belongs to a DaemonSet, is a mirror, or will be recreated.

use jiff::{SignedDuration, Timestamp};

use model::pod::Pod;

/// A pod of a DaemonSet, or one that asks to be treated like one.
pub(crate) fn is_daemon(pod: &Pod) -> bool {
    pod.digest().daemon
}

/// A static pod's mirror in the API.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    pod.digest().mirror
}

/// A pod of a node that is being removed needs a place if its controller recreates it.
pub(crate) fn will_be_made_again(pod: &Pod) -> bool {
    pod.owner.is_some() && !pod.is_finished() && pod.deletion.is_none() && !is_daemon(pod) && !is_mirror(pod)
}

/// A pod that should have ended more than 30 s ago no longer counts.
pub(crate) fn overdue(pod: &Pod, now: Timestamp) -> bool {
    let Some(deletion) = &pod.deletion else { return false };
    let grace = SignedDuration::from_secs(pod.grace_seconds.saturating_add(30));
    deletion.at.saturating_add(grace).is_ok_and(|end| end < now)
}
