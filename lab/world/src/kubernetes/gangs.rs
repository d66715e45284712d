//! Gangs. The pods of a PodGroup are bound together once there is room for its minimum number of pods, as in
//! kube-scheduler 1.37 with the feature gate `GenericWorkload`.
//!
//! Preemption for gangs, topology constraints and composite groups are not supported. Constraints between the
//! pods of one gang are ignored.

use std::sync::Arc;

use serde_json::Value;

use super::{
    fit::Place,
    kinds::{POD, POD_GROUP},
    object::{Key, list, number, text},
    pods::Facts,
    scheduler::Outcome,
    state::State,
};

impl State {
    /// The PodGroup that a pod names, unless the group's policy places its pods one by one.
    pub(super) fn gang_of(&self, pod: &Value) -> Option<Key> {
        let name = text(pod, "/spec/schedulingGroup/podGroupName");
        if name.is_empty() {
            return None;
        }
        let namespace = text(pod, "/metadata/namespace");
        let group = self.store.get(&POD_GROUP, namespace, name);
        let one_by_one = group.is_some_and(|group| group.pointer("/spec/schedulingPolicy/gang").is_none());
        (!one_by_one).then(|| (namespace.to_owned(), name.to_owned()))
    }

    /// Binds the waiting pods of a gang if there is room for its minimum number of pods. Does nothing until
    /// the group and enough of its pods exist.
    pub(super) fn schedule_gang(&mut self, gang: &Key, queue: &[(Key, Arc<Facts>)], places: &[Place]) {
        let Some(group) = self.store.get(&POD_GROUP, &gang.0, &gang.1) else { return };
        let minimum = number(&group, "/spec/schedulingPolicy/gang/minCount").unwrap_or(1);
        let is_own = |pod: &Value| {
            let name = text(pod, "/spec/schedulingGroup/podGroupName");
            (text(pod, "/metadata/namespace"), name) == (gang.0.as_str(), gang.1.as_str())
        };
        let is_bound = |pod: &Value| {
            let over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
            !text(pod, "/spec/nodeName").is_empty() && !over
        };
        let bound = self.store.all(&POD).filter(|pod| is_own(pod) && is_bound(pod)).count();
        let waiting: Vec<(Arc<Value>, &Arc<Facts>)> = queue
            .iter()
            .filter_map(|(key, facts)| Some((self.store.get(&POD, &key.0, &key.1)?, facts)))
            .filter(|(pod, _)| is_own(pod) && list(pod, "/spec/schedulingGates").is_empty())
            .collect();
        let counted = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        if counted(bound + waiting.len()) < minimum {
            return;
        }
        let mut placed: Vec<(usize, Arc<Facts>)> = Vec::new();
        let mut found: Vec<(Arc<Value>, Result<usize, String>)> = Vec::new();
        for (pod, facts) in waiting {
            let place = match self.place(&pod, facts, places, &placed) {
                Outcome::Bound(at) => {
                    placed.push((at, facts.clone()));
                    Ok(at)
                }
                Outcome::Unschedulable(message) | Outcome::Waits(message, _) => Err(message),
            };
            found.push((pod, place));
        }
        let scheduled = bound + placed.len();
        let whole = counted(scheduled) >= minimum;
        for (pod, place) in found {
            let key = super::object::key(&pod);
            match place {
                Ok(at) if whole => {
                    self.take_devices(&pod, &places[at].name);
                    self.bind_pod(&key, &places[at].name, true);
                }
                Ok(_) => {
                    let message = format!(
                        "minCount ({minimum}) cannot be satisfied: {scheduled} scheduled, 0 remaining"
                    );
                    self.unschedulable(&pod, &message, None);
                }
                Err(message) => self.unschedulable(&pod, &message, None),
            }
        }
    }
}
