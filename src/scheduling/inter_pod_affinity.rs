//! InterPodAffinity: required affinity and anti-affinity of the pod, and the anti-affinity of those that run.

use super::crowd::Kind;
use super::refusal::Refusal;
use super::selector::labels_match;
use super::topology::{Domain, Key};
use super::world::{NodeIndex, SimNode, World};
use crate::model::pod::{Pod, PodAffinityTerm};

/// How many pods stand in each domain, by label key and the domain's number.
#[derive(Clone, Debug, Default)]
struct Domains(Vec<(Key, Vec<i64>)>);

/// What the pods of the world mean for one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    affinity: Domains,
    anti: Domains,
    others: Domains,
    /// Sum over all domains of `affinity`.
    followed: i64,
    matches_itself: bool,
}

pub(super) fn prepare(pod: &Pod, world: &World) -> State {
    let wanted = &pod.affinity;
    let mut state = State {
        matches_itself: !wanted.pods.is_empty() && matches_all(&wanted.pods, pod, pod, world),
        ..State::default()
    };
    for term in &wanted.pods {
        state.affinity.entry(&term.topology_key, world);
    }
    let asks = !wanted.pods.is_empty() || !wanted.anti.is_empty();
    let mut count = |kind: &Kind| {
        state.count_all(pod, &kind.pod, &|| kind.at.iter().map(|(node, count)| (*node, *count)), world);
    };
    if asks {
        world.crowd().kinds().for_each(&mut count);
    } else if world.has_anti_affinity() {
        world.crowd().repellers().for_each(&mut count);
    }
    state
}

impl State {
    /// Counts pods like `other` in (or out, with a negative number) that were placed on `node`.
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, node: NodeIndex, world: &World, by: i64) {
        self.count_all(pod, other, &|| std::iter::once((node, by)), world);
    }

    fn count_all<I: Iterator<Item = (NodeIndex, i64)>>(
        &mut self,
        pod: &Pod,
        other: &Pod,
        at: &impl Fn() -> I,
        world: &World,
    ) {
        let wanted = &pod.affinity;
        if !wanted.pods.is_empty() && matches_all(&wanted.pods, pod, other, world) {
            for term in &wanted.pods {
                self.followed += self.affinity.add(&term.topology_key, at(), world);
            }
        }
        for term in wanted.anti.iter().filter(|term| matches(term, pod, other, world)) {
            self.anti.add(&term.topology_key, at(), world);
        }
        for term in other.affinity.anti.iter().filter(|term| matches(term, other, pod, world)) {
            self.others.add(&term.topology_key, at(), world);
        }
    }

    /// Whether there is anything to check.
    pub(super) fn speaks(&self) -> bool {
        [&self.affinity, &self.anti, &self.others].iter().any(|domains| !domains.0.is_empty())
    }

    /// Whether no running pod's anti-affinity speaks of the pod.
    pub(super) fn repels_nobody(&self) -> bool {
        self.others.0.is_empty()
    }

    /// Checks a node whose domains `domain` tells.
    pub(super) fn check(&self, domain: &impl Fn(&Key) -> Domain) -> Result<(), Refusal> {
        self.check_affinity(domain)?;
        self.check_anti_affinity(domain)
    }

    fn check_affinity(&self, domain: &impl Fn(&Key) -> Domain) -> Result<(), Refusal> {
        if self.affinity_holds(domain) { Ok(()) } else { Err(Refusal::Affinity) }
    }

    fn check_anti_affinity(&self, domain: &impl Fn(&Key) -> Domain) -> Result<(), Refusal> {
        if self.anti.0.iter().any(|one| occupied(one, domain)) {
            return Err(Refusal::AntiAffinity);
        }
        if self.others.0.iter().any(|one| occupied(one, domain)) {
            return Err(Refusal::OthersAntiAffinity);
        }
        Ok(())
    }

    /// The same for a node that is not in the world yet and comes with pods of its own.
    pub(super) fn check_fresh(
        &self,
        pod: &Pod,
        node: &SimNode,
        domain: &impl Fn(&Key) -> Domain,
        world: &World,
    ) -> Result<(), Refusal> {
        let (wanted, on) = (&pod.affinity, &node.pods);
        let follows =
            !wanted.pods.is_empty() && on.iter().any(|one| matches_all(&wanted.pods, pod, one, world));
        let labelled = |key: &str| node.node.labels.contains_key(key);
        if !(follows && wanted.pods.iter().all(|term| labelled(&term.topology_key))) {
            self.check_affinity(domain)?;
        }
        let repels = |owner: &Pod, other: &Pod| {
            let mut terms = owner.affinity.anti.iter();
            terms.any(|term| labelled(&term.topology_key) && matches(term, owner, other, world))
        };
        if on.iter().any(|one| repels(pod, one)) {
            return Err(Refusal::AntiAffinity);
        }
        self.check_anti_affinity(domain)?;
        if on.iter().any(|one| repels(one, pod)) {
            return Err(Refusal::OthersAntiAffinity);
        }
        Ok(())
    }

    /// Every term needs its label and a matching pod in the domain; the first pod of a group that matches its own terms
    /// may go anywhere with the labels.
    fn affinity_holds(&self, domain: &impl Fn(&Key) -> Domain) -> bool {
        let terms = &self.affinity.0;
        terms.iter().all(|one| occupied(one, domain))
            || (self.followed <= 0
                && self.matches_itself
                && terms.iter().all(|(key, _)| domain(key) != Domain::Nowhere))
    }
}

impl Domains {
    /// Counts pods on these nodes in; returns how many were counted.
    fn add(&mut self, key: &str, at: impl Iterator<Item = (NodeIndex, i64)>, world: &World) -> i64 {
        let (key, counts) = self.entry(key, world);
        let mut sum = 0;
        for (node, by) in at {
            if let Domain::Known(number) = world.domain(key, node) {
                if counts.len() <= number {
                    counts.resize(number + 1, 0);
                }
                counts[number] += by;
                sum += by;
            }
        }
        sum
    }

    fn entry(&mut self, key: &str, world: &World) -> &mut (Key, Vec<i64>) {
        let at = self.0.iter().position(|(one, _)| one.name == key).unwrap_or_else(|| {
            self.0.push((world.key(key), Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

fn occupied((key, counts): &(Key, Vec<i64>), domain: &impl Fn(&Key) -> Domain) -> bool {
    matches!(domain(key), Domain::Known(number) if counts.get(number).is_some_and(|count| *count > 0))
}

/// Whether required anti-affinity of `owner`, over this key or any, speaks of `other`.
pub(super) fn repels(owner: &Pod, other: &Pod, key: Option<&str>, world: &World) -> bool {
    let mut terms = owner.affinity.anti.iter();
    terms.any(|term| key.is_none_or(|key| term.topology_key == key) && matches(term, owner, other, world))
}

fn matches_all(terms: &[PodAffinityTerm], owner: &Pod, other: &Pod, world: &World) -> bool {
    terms.iter().all(|term| matches(term, owner, other, world))
}

/// Whether `other` is one of the pods that a term of `owner` speaks of (`AffinityTerm.Matches`).
pub(super) fn matches(term: &PodAffinityTerm, owner: &Pod, other: &Pod, world: &World) -> bool {
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
