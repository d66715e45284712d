//! InterPodAffinity: required affinity and anti-affinity of the pod, and the anti-affinity of those that run.

use std::collections::BTreeMap;

use super::refusal::Refusal;
use super::selector::labels_match;
use super::world::{SimNode, World};
use crate::model::node::Node;
use crate::model::pod::{Pod, PodAffinityTerm};
use crate::model::selector::Labels;

/// How many pods stand in each domain, by label key and value.
type Domains = BTreeMap<String, BTreeMap<String, i64>>;

/// What the pods of the world mean for one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    affinity: Domains,
    anti: Domains,
    others: Domains,
    matches_itself: bool,
}

pub(super) fn prepare(pod: &Pod, world: &World) -> State {
    let wanted = &pod.affinity;
    let mut state = State {
        matches_itself: !wanted.pods.is_empty() && matches_all(&wanted.pods, pod, pod, world),
        ..State::default()
    };
    if wanted.pods.is_empty() && wanted.anti.is_empty() {
        for node in world.nodes_with_anti_affinity() {
            for other in node.pods.iter().filter(|other| !other.affinity.anti.is_empty()) {
                state.count_others(pod, other, node, world, 1);
            }
        }
        return state;
    }
    for node in world.nodes() {
        for other in &node.pods {
            state.count(pod, other, node, world, 1);
        }
    }
    state
}

impl State {
    /// Counts a pod in (or out, with `by` −1) that was placed on `node`.
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, node: &SimNode, world: &World, by: i64) {
        let wanted = &pod.affinity;
        if !wanted.pods.is_empty() && matches_all(&wanted.pods, pod, other, world) {
            for term in &wanted.pods {
                add(&mut self.affinity, term, &node.node, by);
            }
        }
        for term in wanted.anti.iter().filter(|term| matches(term, pod, other, world)) {
            add(&mut self.anti, term, &node.node, by);
        }
        self.count_others(pod, other, node, world, by);
    }

    fn count_others(&mut self, pod: &Pod, other: &Pod, node: &SimNode, world: &World, by: i64) {
        for term in other.affinity.anti.iter().filter(|term| matches(term, other, pod, world)) {
            add(&mut self.others, term, &node.node, by);
        }
    }

    /// Whether no running pod's anti-affinity speaks of the pod.
    pub(super) fn repels_nobody(&self) -> bool {
        self.others.is_empty()
    }

    pub(super) fn check(&self, pod: &Pod, node: &Node) -> Result<(), Refusal> {
        let wanted = &pod.affinity;
        if !wanted.pods.is_empty() && !self.affinity_holds(&wanted.pods, &node.labels) {
            return Err(Refusal::Affinity);
        }
        if wanted.anti.iter().any(|term| occupied(&self.anti, &term.topology_key, &node.labels)) {
            return Err(Refusal::AntiAffinity);
        }
        let blocked = self.others.keys().any(|key| occupied(&self.others, key, &node.labels));
        if blocked { Err(Refusal::OthersAntiAffinity) } else { Ok(()) }
    }

    /// Every term needs its label and a matching pod in the domain; the first pod of a group that matches its own terms
    /// may go anywhere with the labels.
    fn affinity_holds(&self, terms: &[PodAffinityTerm], labels: &Labels) -> bool {
        if !terms.iter().all(|term| labels.contains_key(&term.topology_key)) {
            return false;
        }
        let nobody = self.affinity.values().flat_map(BTreeMap::values).all(|count| *count <= 0);
        terms.iter().all(|term| occupied(&self.affinity, &term.topology_key, labels))
            || (nobody && self.matches_itself)
    }
}

fn add(domains: &mut Domains, term: &PodAffinityTerm, node: &Node, by: i64) {
    if let Some(value) = node.labels.get(&term.topology_key) {
        if !domains.contains_key(&term.topology_key) {
            domains.insert(term.topology_key.clone(), BTreeMap::new());
        }
        if let Some(counts) = domains.get_mut(&term.topology_key) {
            *counts.entry(value.clone()).or_default() += by;
        }
    }
}

fn occupied(domains: &Domains, key: &str, labels: &Labels) -> bool {
    let Some(value) = labels.get(key) else { return false };
    domains.get(key).and_then(|counts| counts.get(value)).is_some_and(|count| *count > 0)
}

fn matches_all(terms: &[PodAffinityTerm], owner: &Pod, other: &Pod, world: &World) -> bool {
    terms.iter().all(|term| matches(term, owner, other, world))
}

/// Whether `other` is one of the pods that a term of `owner` speaks of (`AffinityTerm.Matches`).
fn matches(term: &PodAffinityTerm, owner: &Pod, other: &Pod, world: &World) -> bool {
    let namespace = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        other.namespace == owner.namespace
    } else {
        term.namespaces.contains(&other.namespace)
            || term
                .namespace_selector
                .as_ref()
                .is_some_and(|selector| labels_match(selector, world.namespace_labels(&other.namespace)))
    };
    namespace && term.selector.as_ref().is_some_and(|selector| labels_match(selector, &other.labels))
}
