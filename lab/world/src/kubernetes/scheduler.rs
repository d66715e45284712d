//! The scheduler. One pass tries to place all waiting pods, in order of priority.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    KubeEvent,
    fit::{Misfit, Place, fits},
    kinds::{CLAIM, NODE, POD, STORAGE_CLASS, VOLUME},
    object::{self, Key, list, text},
    pods::{Amounts, Facts, amounts},
    preemption::Candidate,
    state::State,
};

/// The name under which the scheduler writes events.
pub(super) const COMPONENT: &str = "default-scheduler";

/// An additional filter of the scheduler. It keeps pods with this label off nodes whose names have this
/// prefix.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Key and value of the pods' label.
    pub label: (String, String),
    /// The prefix of the node names.
    pub nodes: String,
    /// The reason that the filter reports.
    pub reason: String,
}

impl Plugin {
    fn refuses(&self, pod: &Value, place: &Place) -> bool {
        let label = pod["metadata"]["labels"].get(&self.label.0);
        label.is_some_and(|value| *value == self.label.1) && place.name.starts_with(&self.nodes)
    }
}

/// The outcome of trying to place one pod.
pub(super) enum Outcome {
    Bound(usize),
    Unschedulable(String),
    /// The pod waits for other pods to end: the victims on the candidate node, or pods that are already
    /// ending if there is no candidate.
    Waits(String, Option<Candidate>),
}

impl State {
    /// Tries to bind every waiting pod.
    pub(super) fn schedule(&mut self) {
        if self.scheduler_rests {
            return;
        }
        let places: Vec<Place> = self
            .store
            .all(&NODE)
            .map(|node| Place {
                name: object::name(node).to_owned(),
                node: node.clone(),
                allocatable: amounts(&node["status"]["allocatable"]),
            })
            .collect();
        let mut queue: Vec<(Key, Arc<Facts>)> =
            self.pods.waiting().map(|(key, facts)| (key.clone(), facts.clone())).collect();
        queue.sort_by_cached_key(|(key, facts)| {
            let made = self.store.get(&POD, &key.0, &key.1);
            let made = made.map(|pod| text(&pod, "/metadata/creationTimestamp").to_owned());
            (-facts.priority, made, key.clone())
        });
        // If a pod fits no node, no later pod of the same class fits in this pass either, because binding
        // pods only uses up room.
        let mut failed: BTreeMap<String, String> = BTreeMap::new();
        let mut gangs: BTreeSet<Key> = BTreeSet::new();
        for (key, facts) in &queue {
            let Some(pod) = self.store.get(&POD, &key.0, &key.1) else { continue };
            // A gated pod is skipped. The API server set its condition when the pod was created.
            if !list(&pod, "/spec/schedulingGates").is_empty() {
                continue;
            }
            if let Some(gang) = self.gang_of(&pod) {
                if gangs.insert(gang.clone()) {
                    self.schedule_gang(&gang, &queue, &places);
                }
                continue;
            }
            // Other pods of the class cannot use the room that is reserved for this pod. Therefore, this pod
            // may fit even though they do not.
            let promised = !text(&pod, "/status/nominatedNodeName").is_empty();
            let outcome = match failed.get(&facts.class).filter(|_| !promised) {
                Some(message) => Outcome::Unschedulable(message.clone()),
                None => self.place(&pod, facts, &places, &[]),
            };
            match outcome {
                Outcome::Bound(at) => {
                    if let Some(place) = places.get(at) {
                        self.take_devices(&pod, &place.name);
                        self.bind_pod(key, &place.name, true);
                    }
                }
                Outcome::Waits(message, candidate) => {
                    let node = candidate.as_ref().map(|candidate| candidate.node.as_str());
                    self.unschedulable(&pod, &message, node);
                    if let Some(candidate) = candidate {
                        self.preempt(&pod, &candidate);
                    }
                }
                Outcome::Unschedulable(message) => {
                    self.unschedulable(&pod, &message, None);
                    // Skipping the rest of the class is inexact: a pod that is bound later in this pass may
                    // still satisfy an affinity of the class.
                    failed.insert(facts.class.clone(), message);
                }
            }
        }
    }

    /// Finds a node for a pod. `beside` are other pods that are about to be bound, each with the index of its
    /// node.
    pub(super) fn place(
        &self,
        pod: &Value,
        facts: &Facts,
        places: &[Place],
        beside: &[(usize, Arc<Facts>)],
    ) -> Outcome {
        let total = places.len();
        if total == 0 {
            return Outcome::Unschedulable("no nodes available to schedule pods".into());
        }
        if let Some(problem) = self.claim_problem(pod) {
            return Outcome::Unschedulable(format!("0/{total} nodes are available: {problem}. not found"));
        }
        let key = object::key(pod);
        let company = self.company(pod, places);
        let mut best: Option<(i128, usize)> = None;
        let mut misfits: Vec<Misfit> = Vec::new();
        for (at, place) in places.iter().enumerate() {
            let usage = self.pods.usage_for(&place.name, &key, facts);
            let usage = beside.iter().filter(|other| other.0 == at).fold(usage, |usage, (_, other)| {
                let mut usage = usage.map(Cow::into_owned).unwrap_or_default();
                usage.put_on(other);
                Some(Cow::Owned(usage))
            });
            let usage = usage.as_deref();
            let refused = self.plugin.as_ref().filter(|plugin| plugin.refuses(pod, place));
            let refused = refused.map(|plugin| Misfit::hopeless(&plugin.reason));
            let found = fits(pod, facts, &company, place, usage)
                .and_then(|()| refused.map_or(Ok(()), Err))
                .and_then(|()| self.has_devices(pod, &place.name));
            match found {
                Ok(()) => {
                    let empty = Amounts::new();
                    let taken = usage.map_or(&empty, |usage| &usage.requests);
                    let score = free(place, taken, facts);
                    if best.is_none_or(|(known, _)| score > known) {
                        best = Some((score, at));
                    }
                }
                Err(misfit) => misfits.push(misfit),
            }
        }
        if let Some((_, at)) = best {
            return Outcome::Bound(at);
        }
        let reasons = reasons(&misfits);
        if self.waits_for_victims(pod, facts) {
            let tail = "not eligible due to a terminating pod on the nominated node.";
            return Outcome::Waits(with_preemption(&reasons, tail), None);
        }
        // No node fits, so `misfits` has one entry for each node, in the order of `places`.
        let hopeful = places.iter().zip(&misfits).filter(|(_, misfit)| misfit.resolvable);
        let hopeful: Vec<&Place> = hopeful.map(|(place, _)| place).collect();
        match self.candidate(pod, facts, &company, &hopeful) {
            Some(candidate) => Outcome::Waits(reasons, Some(candidate)),
            None => Outcome::Unschedulable(with_preemption(&reasons, &hopelessness(pod, &misfits))),
        }
    }

    /// Binds a pod to a node. If `by_scheduler` is set, also records the scheduler's event.
    pub(super) fn bind_pod(&mut self, key: &Key, node: &str, by_scheduler: bool) {
        let now = self.stamp();
        let bound = self.edit(&POD, key, |pod| {
            pod["spec"]["nodeName"] = json!(node);
            if let Some(status) = pod["status"].as_object_mut() {
                status.remove("nominatedNodeName");
            }
            let condition = json!({
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": null,
            });
            object::set_condition(pod, condition, &now);
        });
        if let Some(pod) = bound.filter(|_| by_scheduler) {
            let text = format!("Successfully assigned {}/{} to {node}", key.0, key.1);
            self.note_event(&pod, "Normal", "Scheduled", "Binding", COMPONENT, &text);
        }
    }

    pub(super) fn unschedulable(&mut self, pod: &Value, message: &str, nominated: Option<&str>) {
        let key = object::key(pod);
        let first = object::condition(pod, "PodScheduled").is_none_or(|one| one["reason"] != "Unschedulable");
        let known = object::condition(pod, "PodScheduled").is_some_and(|one| one["message"] == message);
        self.not_scheduled(&key, message, nominated);
        if !known && let Some(pod) = self.store.get(&POD, &key.0, &key.1) {
            self.note_event(&pod, "Warning", "FailedScheduling", "Scheduling", COMPONENT, message);
        }
        if first {
            let pod = format!("{}/{}", key.0, key.1);
            self.announce(KubeEvent::PodUnschedulable { pod, at: self.now() });
        }
    }

    fn not_scheduled(&mut self, key: &Key, message: &str, nominated: Option<&str>) {
        let now = self.stamp();
        self.edit(&POD, key, |pod| {
            let generation = pod["metadata"]["generation"].clone();
            let condition = json!({
                "type": "PodScheduled",
                "observedGeneration": generation,
                "status": "False",
                "lastProbeTime": null,
                "reason": "Unschedulable",
                "message": message,
            });
            object::set_condition(pod, condition, &now);
            if let Some(node) = nominated {
                pod["status"]["nominatedNodeName"] = json!(node);
            }
        });
    }

    /// Returns a problem with one of the pod's volume claims that keeps the pod off every node, in the
    /// wording of kube-scheduler.
    fn claim_problem(&self, pod: &Value) -> Option<String> {
        for name in claims(pod) {
            let Some(claim) = self.store.get(&CLAIM, object::namespace(pod), name) else {
                return Some(format!("persistentvolumeclaim \"{name}\" not found"));
            };
            if text(&claim, "/spec/volumeName").is_empty() && !self.waits_for_consumer(&claim) {
                return Some("pod has unbound immediate PersistentVolumeClaims".into());
            }
        }
        None
    }

    fn waits_for_consumer(&self, claim: &Value) -> bool {
        let class = text(claim, "/spec/storageClassName");
        self.store
            .get(&STORAGE_CLASS, "", class)
            .is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
    }

    /// Collects the node affinities of a pod's volumes, and whether one of its claims has no provisioner.
    pub(super) fn volumes_of(&self, pod: &Value, affinities: &mut Vec<Value>, unprovided: &mut bool) {
        for name in claims(pod) {
            let Some(claim) = self.store.get(&CLAIM, object::namespace(pod), name) else { continue };
            let volume = self.store.get(&VOLUME, "", text(&claim, "/spec/volumeName"));
            let required =
                volume.and_then(|one| one.pointer("/spec/nodeAffinity/required/nodeSelectorTerms").cloned());
            affinities.extend(required);
            if text(&claim, "/spec/volumeName").is_empty() {
                let class = self.store.get(&STORAGE_CLASS, "", text(&claim, "/spec/storageClassName"));
                *unprovided |=
                    class.is_none_or(|class| class["provisioner"] == "kubernetes.io/no-provisioner");
            }
        }
    }
}

fn claims(pod: &Value) -> impl Iterator<Item = &str> {
    list(pod, "/spec/volumes")
        .iter()
        .map(|volume| text(volume, "/persistentVolumeClaim/claimName"))
        .filter(|name| !name.is_empty())
}

/// The sum of the free shares of CPU and memory, in thousandths (`LeastAllocated`).
fn free(place: &Place, taken: &Amounts, facts: &Facts) -> i128 {
    ["cpu", "memory"]
        .iter()
        .map(|resource| {
            let total = place.allocatable.get(*resource).copied().unwrap_or(0).max(1);
            let get = |amounts: &Amounts| amounts.get(*resource).copied().unwrap_or(0);
            (total - get(taken) - get(&facts.requests)) * 1000 / total
        })
        .sum()
}

/// Why a pod fits no node, in the format of kube-scheduler 1.36: each reason with its count, sorted as text.
fn reasons(misfits: &[Misfit]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in misfits.iter().flat_map(|misfit| &misfit.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let reasons: BTreeSet<String> =
        counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let reasons: Vec<String> = reasons.into_iter().collect();
    format!("0/{} nodes are available: {}.", misfits.len(), reasons.join(", "))
}

/// The message about a pod that fits no node, with the result of preemption.
fn with_preemption(reasons: &str, preemption: &str) -> String {
    format!("{reasons} no new claims to deallocate, preemption: {preemption}")
}

/// Why preemption cannot make room for a pod.
fn hopelessness(pod: &Value, misfits: &[Misfit]) -> String {
    if text(pod, "/spec/preemptionPolicy") == "Never" {
        return "not eligible due to preemptionPolicy=Never.".to_owned();
    }
    let total = misfits.len();
    let resolvable = misfits.iter().filter(|misfit| misfit.resolvable).count();
    let mut parts = Vec::new();
    if resolvable > 0 {
        parts.push(format!("{resolvable} No preemption victims found for incoming pod"));
    }
    if total > resolvable {
        parts.push(format!("{} Preemption is not helpful for scheduling", total - resolvable));
    }
    format!("0/{total} nodes are available: {}.", parts.join(", "))
}
