//! Preemption (`DefaultPreemption`): the scheduler deletes pods of lower priority to make room for a pod that
//! fits no node.
//!
//! Preemption frees only resources and host ports. Pods that are already being deleted are never chosen as
//! victims; the scheduler waits until they are gone.

use std::{cmp::Reverse, sync::Arc};

use serde_json::{Value, json};

use super::{
    fit::{Company, Place, fits},
    kinds::{BUDGET, POD},
    object::{self, Key, number, text},
    pods::Facts,
    removal::Options,
    scheduler::COMPONENT,
    selector::selects,
    state::State,
};

/// A node on which a pod would fit after preemption, and the pods that would have to be deleted.
#[derive(Debug)]
pub(super) struct Candidate {
    pub node: String,
    victims: Vec<Key>,
    /// The candidate with the lowest cost is chosen. The parts of the cost are compared in this order: the
    /// number of victims whose deletion violates a disruption budget, the highest priority among the victims,
    /// the sum of their priorities, their number, and the start time of the victim that started first (later
    /// is better).
    cost: (usize, i64, i64, usize, Reverse<String>),
}

/// A pod of lower priority, which could be preempted.
struct Lower {
    key: Key,
    facts: Arc<Facts>,
    started: String,
    breaks: bool,
}

impl State {
    /// The best node for a preemption, among those where it could help.
    pub(super) fn candidate(
        &self,
        pod: &Value,
        facts: &Facts,
        company: &Company,
        places: &[&Place],
    ) -> Option<Candidate> {
        if text(pod, "/spec/preemptionPolicy") == "Never" {
            return None;
        }
        let candidates = places.iter().filter_map(|place| self.victims_on(pod, facts, company, place));
        candidates.min_by(|a, b| a.cost.cmp(&b.cost))
    }

    /// Whether a pod waits for preempted pods to end.
    pub(super) fn waits_for_victims(&self, pod: &Value, facts: &Facts) -> bool {
        let node = text(pod, "/status/nominatedNodeName");
        !node.is_empty()
            && self.pods.counted_on(node).iter().any(|(key, other)| {
                let going =
                    self.store.get(&POD, &key.0, &key.1).is_some_and(|pod| object::is_terminating(&pod));
                going && other.priority < facts.priority
            })
    }

    /// Finds the pods that would have to be deleted from a node. Assumes that all pods of lower priority are
    /// gone, then puts back those that still fit: first the pods whose deletion would break a budget, then
    /// the most important ones.
    fn victims_on(&self, pod: &Value, facts: &Facts, company: &Company, place: &Place) -> Option<Candidate> {
        let mut lower: Vec<Lower> = self
            .pods
            .counted_on(&place.name)
            .into_iter()
            .filter(|(_, other)| other.priority < facts.priority)
            .filter_map(|(key, facts)| self.lower(key, facts))
            .collect();
        let mut usage = self.pods.usage(&place.name)?.clone();
        for one in &lower {
            usage.take_off(&one.facts);
        }
        if lower.is_empty() || fits(pod, facts, company, place, Some(&usage)).is_err() {
            return None;
        }
        lower.sort_by_key(|one| (!one.breaks, -one.facts.priority, one.started.clone(), one.key.clone()));
        let mut victims = Vec::new();
        for one in lower {
            usage.put_on(&one.facts);
            if fits(pod, facts, company, place, Some(&usage)).is_err() {
                usage.take_off(&one.facts);
                victims.push(one);
            }
        }
        let cost = (
            victims.iter().filter(|one| one.breaks).count(),
            victims.iter().map(|one| one.facts.priority).max()?,
            victims.iter().map(|one| one.facts.priority).sum(),
            victims.len(),
            Reverse(victims.iter().map(|one| one.started.clone()).min()?),
        );
        let victims = victims.into_iter().map(|one| one.key).collect();
        Some(Candidate { node: place.name.clone(), victims, cost })
    }

    fn lower(&self, key: Key, facts: Arc<Facts>) -> Option<Lower> {
        let pod = self.store.get(&POD, &key.0, &key.1)?;
        if object::is_terminating(&pod) {
            return None;
        }
        let breaks = self.store.within(&BUDGET, &key.0).any(|budget| {
            selects(&budget["spec"]["selector"], &pod["metadata"]["labels"])
                && number(budget, "/status/disruptionsAllowed").unwrap_or(0) <= 0
        });
        let started = match text(&pod, "/status/startTime") {
            "" => object::stamp(self.now()),
            started => started.to_owned(),
        };
        Some(Lower { key, facts, started, breaks })
    }

    /// Deletes the victims of a preemption.
    pub(super) fn preempt(&mut self, pod: &Value, candidate: &Candidate) {
        let now = self.stamp();
        for key in &candidate.victims {
            let victim = self.edit(&POD, key, |victim| {
                let generation = victim["metadata"]["generation"].clone();
                let condition = json!({
                    "type": "DisruptionTarget",
                    "observedGeneration": generation,
                    "status": "True",
                    "lastProbeTime": null,
                    "reason": "PreemptionByScheduler",
                    "message": "default-scheduler: preempting to accommodate a higher priority pod",
                });
                object::set_condition(victim, condition, &now);
            });
            if let Some(victim) = victim {
                let text = format!("Preempted by pod {} on node {}", object::uid(pod), candidate.node);
                self.note_event(&victim, "Normal", "Preempted", "Preempting", COMPONENT, &text);
            }
            self.remove(&POD, key, &Options::default());
        }
    }
}
