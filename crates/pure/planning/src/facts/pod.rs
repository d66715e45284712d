//! Facts about a pod: whether it belongs to a DaemonSet, is a mirror, or will be recreated.

use jiff::{SignedDuration, Timestamp};

use model::pod::Pod;

/// Whether the pod belongs to a DaemonSet, or is annotated to be treated as if it did.
pub(crate) fn is_daemon(pod: &Pod) -> bool {
    pod.digest().marks.daemon
}

/// Whether the pod is a mirror pod, which represents a static pod in the API.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    pod.digest().marks.mirror
}

/// Whether the pod needs another place if its node is removed, because its controller will recreate it.
pub(crate) fn will_be_made_again(pod: &Pod) -> bool {
    pod.owner.is_some() && !pod.is_finished() && pod.deletion.is_none() && !is_daemon(pod) && !is_mirror(pod)
}

/// Whether the pod is overdue: since its deletion timestamp, more time has passed than its grace period plus
/// 30 s (Cluster Autoscaler's rule). Such a pod does not delay a drain, and does not count as using its node.
pub(crate) fn overdue(pod: &Pod, now: Timestamp) -> bool {
    let Some(deletion) = &pod.deletion else { return false };
    let grace = SignedDuration::from_secs(pod.grace_seconds.saturating_add(30));
    deletion.at.saturating_add(grace).is_ok_and(|end| end < now)
}
