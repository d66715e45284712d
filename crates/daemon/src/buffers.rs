//! The status of CapacityBuffers: whether the daemon can plan them, and whether they are filled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::Daemon;
use super::status_writes::without_words;
use model::Snapshot;
use model::buffer::{BufferStatus, CapacityBuffer};
use model::condition::StatusCondition;
use model::plan::{BufferOutcome, BufferVerdict, Plan, PodOutcome};
use observability::Problem;

impl Daemon {
    /// Writes the buffers' statuses that have changed.
    pub(super) async fn tell_buffers(&self, snapshot: &Snapshot, plan: &Plan) {
        let written = &self.told_buffers;
        written.keep(&snapshot.buffers.iter().map(|buffer| buffer.uid.as_str()).collect::<BTreeSet<_>>());
        let named = snapshot.buffers.iter();
        let named: BTreeMap<(&str, &str), &Arc<CapacityBuffer>> =
            named.map(|one| ((one.namespace.as_str(), one.name.as_str()), one)).collect();
        let changes = plan.buffers.iter().filter_map(|verdict| {
            let buffer = *named.get(&verdict.buffer.split_once('/')?)?;
            let status = status(buffer, verdict, snapshot.time)?;
            let may = status != buffer.status && written.may(&buffer.uid, are_alike(&status, &buffer.status));
            may.then(|| (buffer.uid.clone(), (Arc::clone(buffer), status)))
        });
        let changes: Vec<_> = changes.collect();
        let kubernetes = &self.kubernetes;
        let write = |(buffer, status): (Arc<CapacityBuffer>, BufferStatus)| async move {
            kubernetes.write_buffer_status(&buffer, &status).await
        };
        self.write_statuses((&Problem::Buffers, written), changes, write).await;
    }
}

/// Whether two statuses differ only in their messages.
fn are_alike(one: &BufferStatus, other: &BufferStatus) -> bool {
    let quiet = |status: &BufferStatus| BufferStatus {
        conditions: without_words(&status.conditions),
        ..status.clone()
    };
    quiet(one) == quiet(other)
}

/// The status to write. `None` if the buffer is not for this daemon, or if this round had no time to plan the
/// entire buffer.
fn status(buffer: &CapacityBuffer, verdict: &BufferVerdict, now: Timestamp) -> Option<BufferStatus> {
    if verdict.nowhere_because == Some(PodOutcome::Unfinished) {
        // A later round plans the rest of the buffer.
        return None;
    }
    let ready = verdict.reason.is_none();
    let (fills, why) = match verdict.verdict {
        BufferOutcome::NotOurs => return None,
        BufferOutcome::Filled => (true, "FitsExistingCapacity"),
        BufferOutcome::Filling => (true, "CapacityOnItsWay"),
        BufferOutcome::Short => (false, "InsufficientCapacity"),
        BufferOutcome::Empty => (false, "BufferIsEmpty"),
        BufferOutcome::NotReady => (false, "NotReadyForProvisioning"),
    };
    let understood = match verdict.reason {
        None => ("AttributesSetSuccessfully", "the pod template and the number of chunks are known"),
        Some(reason) => (reason, verdict.message.as_str()),
    };
    let mut status = BufferStatus {
        template: verdict.template.as_ref().filter(|_| ready).map(|(name, _)| name.clone()),
        template_generation: verdict.template.as_ref().filter(|_| ready).map(|(_, generation)| *generation),
        replicas: verdict.chunks,
        strategy: Some(buffer.strategy.clone()),
        conditions: buffer.status.conditions.clone(),
    };
    let mut set = |kind: &str, is: bool, (reason, message): (&str, &str)| {
        set(&mut status.conditions, buffer.generation, now, (kind, is, reason, message));
    };
    set("ReadyForProvisioning", ready, understood);
    set("Provisioning", fills, (why, &verdict.message));
    Some(status)
}

/// Sets a condition. Its transition time changes only if its status does. Conditions of other types are kept.
pub(super) fn set(
    conditions: &mut Vec<StatusCondition>,
    generation: i64,
    now: Timestamp,
    (kind, is, reason, message): (&str, bool, &str, &str),
) {
    let status = if is { "True" } else { "False" };
    let before = conditions.iter().find(|one| one.kind == kind && one.status == status);
    // The API only stores whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let new = StatusCondition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        since: before.and_then(|before| before.since).or(Some(now)),
        generation: Some(generation),
    };
    match conditions.iter_mut().find(|one| one.kind == kind) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(outcome: BufferOutcome) -> BufferVerdict {
        BufferVerdict {
            buffer: "d/b".to_owned(),
            verdict: outcome,
            reason: (outcome == BufferOutcome::NotReady).then_some("PodTemplateNotFound"),
            message: "in words".to_owned(),
            chunks: (outcome != BufferOutcome::NotReady).then_some(2),
            on_nodes: 0,
            on_machines: 0,
            on_new_machines: 0,
            nowhere: 0,
            template: Some(("t".to_owned(), 3)),
            nowhere_because: None,
            reasons: Vec::new(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_is_written_once_is_not_written_again_and_others_conditions_stay() {
        let theirs = StatusCondition { kind: "LimitedByQuotas".to_owned(), ..StatusCondition::default() };
        let mut buffer = CapacityBuffer { generation: 7, ..CapacityBuffer::default() };
        buffer.status.conditions = vec![theirs.clone()];
        let first = status(&buffer, &verdict(BufferOutcome::Filling), at(10)).unwrap();
        assert_eq!(first.conditions[0], theirs);
        assert_eq!(
            (first.template.as_deref(), first.template_generation, first.replicas),
            (Some("t"), Some(3), Some(2))
        );
        buffer.status = first.clone();
        assert_eq!(status(&buffer, &verdict(BufferOutcome::Filling), at(20)).unwrap(), first);
        // The condition stays True and keeps its transition time, but its reason changes.
        let filled = status(&buffer, &verdict(BufferOutcome::Filled), at(20)).unwrap();
        assert_ne!(filled, first);
        assert_eq!(filled.conditions[2].since, Some(at(10)));
        let lost = status(&buffer, &verdict(BufferOutcome::NotReady), at(30)).unwrap();
        assert_eq!((lost.template, lost.template_generation, lost.replicas), (None, None, None));
        let shown: Vec<_> = lost.conditions[1..]
            .iter()
            .map(|one| (one.status.as_str(), one.reason.as_str(), one.since))
            .collect();
        let since = Some(at(30));
        assert_eq!(
            shown,
            [("False", "PodTemplateNotFound", since), ("False", "NotReadyForProvisioning", since)]
        );
    }

    #[test]
    fn another_autoscalers_buffer_is_left_alone() {
        assert_eq!(status(&CapacityBuffer::default(), &verdict(BufferOutcome::NotOurs), at(0)), None);
    }
}
