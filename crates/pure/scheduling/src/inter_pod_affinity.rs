//! InterPodAffinity: required affinity and anti-affinity of the pod, and the anti-affinity of running pods.

use std::sync::Arc;

use super::crowd::{Around, Crowd};
use super::refusal::Refusal;
use super::sim_node::SimNode;
use super::terms::{Namespaces, Own, Terms, matches};
use super::topology::{Domain, Key};
use super::world::World;
use model::pod::{Pod, PodAffinityTerm};

/// The terms that matter for one pod. The counts of the pods that they select are kept in the world.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The pod's own terms.
    own: Option<Arc<Own>>,
    /// The terms that select the pod. Some of these terms are the anti-affinity of other pods.
    about: Option<Arc<Vec<usize>>>,
    matches_itself: bool,
    /// The number of terms that were known when the pod was prepared.
    known: usize,
    /// Only for a pod that was not announced to the world: copies of the world's terms and counts, extended
    /// by the pod's own terms.
    apart: Option<Box<(Terms, Crowd)>>,
}

pub(super) fn prepare(pod: &Pod, world: &World) -> State {
    let wanted = &pod.affinity;
    let asks = !wanted.pods.is_empty() || !wanted.anti.is_empty();
    if !asks && !world.has_anti_affinity() {
        return State::default();
    }
    let around = world.around();
    let own = around.terms.own(pod);
    let apart = (asks && own.is_none()).then(|| {
        let (mut terms, mut crowd) = (around.terms.clone(), world.crowd().clone());
        terms.announce(pod, around.topologies);
        crowd.learn(Around { terms: &terms, ..around });
        Box::new((terms, crowd))
    });
    let (terms, crowd) =
        apart.as_deref().map_or((around.terms, world.crowd()), |(terms, crowd)| (terms, crowd));
    let matches_all = || wanted.pods.iter().all(|term| matches(term, &pod.namespace, pod, around.namespaces));
    State {
        own: own.or_else(|| terms.own(pod)).cloned(),
        about: Some(crowd.about(pod, Around { terms, ..around })),
        matches_itself: !wanted.pods.is_empty() && matches_all(),
        known: terms.count(),
        apart,
    }
}

impl State {
    /// Updates the state after pods like `other` were placed on a node or removed from it.
    pub(super) fn tell(&mut self, pod: &Pod, other: &Pod, world: &World) {
        let unknown = !other.affinity.anti.is_empty() && self.known != world.around().terms.count();
        if unknown || self.apart.is_some() {
            *self = prepare(pod, world);
        }
    }

    /// Whether the pod has terms of its own, or other pods' terms select it.
    pub(super) fn speaks(&self) -> bool {
        self.own.is_some() || !self.about().is_empty()
    }

    /// Whether no running pod's anti-affinity selects the pod.
    pub(super) fn repels_no_pod(&self, world: &World) -> bool {
        // Counting the world's pods is only necessary if a term selects the pod.
        self.about().is_empty() || {
            let (_, crowd) = self.sources(world);
            !self.about().iter().any(|&term| crowd.has_owner(term))
        }
    }

    fn sources<'s>(&'s self, world: &'s World) -> (&'s Terms, &'s Crowd) {
        match self.apart.as_deref() {
            Some((terms, crowd)) => (terms, crowd),
            None => (world.around().terms, world.crowd()),
        }
    }

    fn about(&self) -> &[usize] {
        self.about.as_ref().map_or(&[], |about| about)
    }

    fn own(&self, which: impl Fn(&Own) -> &Vec<usize>) -> &[usize] {
        self.own.as_ref().map_or(&[], |own| which(own))
    }

    /// Checks a node. `domain` returns the node's domain for a key.
    pub(super) fn check(&self, domain: &impl Fn(&Key) -> Domain, world: &World) -> Result<(), Refusal> {
        self.check_affinity(domain, world)?;
        self.check_anti_affinity(domain, world)
    }

    fn check_affinity(&self, domain: &impl Fn(&Key) -> Domain, world: &World) -> Result<(), Refusal> {
        if self.affinity_holds(domain, world) { Ok(()) } else { Err(Refusal::Affinity) }
    }

    pub(super) fn check_anti_affinity(
        &self,
        domain: &impl Fn(&Key) -> Domain,
        world: &World,
    ) -> Result<(), Refusal> {
        if !self.speaks() {
            return Ok(());
        }
        let (terms, crowd) = self.sources(world);
        let of = |term: usize| domain(&terms.get(term).key);
        if self.own(|own| &own.anti).iter().any(|&term| crowd.is_met(term, of(term))) {
            return Err(Refusal::AntiAffinity);
        }
        if self.about().iter().any(|&term| crowd.has_owner(term) && crowd.is_owned(term, of(term))) {
            return Err(Refusal::OthersAntiAffinity);
        }
        Ok(())
    }

    /// Like [`Self::check`], for a node that is not in the world yet and comes with pods of its own.
    pub(super) fn check_fresh(
        &self,
        pod: &Pod,
        node: &SimNode,
        domain: &impl Fn(&Key) -> Domain,
        world: &World,
    ) -> Result<(), Refusal> {
        let (wanted, on) = (&pod.affinity, &node.pods);
        let namespaces = world.around().namespaces;
        let matches_all =
            |one: &Pod| wanted.pods.iter().all(|term| matches(term, &pod.namespace, one, namespaces));
        let follows = !wanted.pods.is_empty() && on.iter().any(|one| matches_all(one));
        let labelled = |key: &str| node.node.labels.contains_key(key);
        if !(follows && wanted.pods.iter().all(|term| labelled(&term.topology_key))) {
            self.check_affinity(domain, world)?;
        }
        let repels = |owner: &Pod, other: &Pod| {
            let has_label = |term: &PodAffinityTerm| labelled(&term.topology_key);
            let mut terms = owner.affinity.anti.iter();
            terms.any(|term| has_label(term) && matches(term, &owner.namespace, other, namespaces))
        };
        if on.iter().any(|one| repels(pod, one)) {
            return Err(Refusal::AntiAffinity);
        }
        self.check_anti_affinity(domain, world)?;
        if on.iter().any(|one| repels(one, pod)) {
            return Err(Refusal::OthersAntiAffinity);
        }
        Ok(())
    }

    /// Whether the required affinity is satisfied: for every term, the node has the label, and its domain has
    /// a matching pod. If no pod in the cluster matches, but the pod matches its own terms, the node only
    /// needs the labels.
    fn affinity_holds(&self, domain: &impl Fn(&Key) -> Domain, world: &World) -> bool {
        let own = self.own(|own| &own.affinity);
        if own.is_empty() {
            return true;
        }
        let (terms, crowd) = self.sources(world);
        let of = |term: usize| domain(&terms.get(term).key);
        own.iter().all(|&term| crowd.is_met(term, of(term)))
            || (self.matches_itself
                && !own.iter().any(|&term| crowd.is_met_anywhere(term))
                && own.iter().all(|&term| of(term) != Domain::Nowhere))
    }
}

/// Whether a term of the required anti-affinity of `owner` selects `other`. If `key` is given, only terms
/// with this topology key count.
pub(super) fn repels(owner: &Pod, other: &Pod, key: Option<&str>, namespaces: &Namespaces) -> bool {
    let mut terms = owner.affinity.anti.iter();
    terms.any(|term| {
        key.is_none_or(|key| term.topology_key == key) && matches(term, &owner.namespace, other, namespaces)
    })
}
