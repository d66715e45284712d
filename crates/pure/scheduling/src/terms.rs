//! The required affinity and anti-affinity terms of pods. Each term is stored once, even if many pods have
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::finder::Finder;
use super::numbers::Numbers;
use super::selector::labels_match;
use super::topology::{Key, Topologies};
use model::pod::{Pod, PodAffinityTerm};
use model::selector::Labels;

/// The labels of namespaces, by name.
pub(super) type Namespaces = BTreeMap<String, Labels>;

/// The required affinity and anti-affinity terms of all announced pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    all: Vec<Term>,
    numbers: BTreeMap<(Vec<PodAffinityTerm>, String, String), usize>,
    finder: Finder,
    /// The indices into `own`, by the fingerprint of a pod's affinity and anti-affinity.
    askers: Numbers,
    own: Vec<Arc<Own>>,
}

/// A term: which pods it selects, and the label whose values define the domains.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// The API terms that must all match a pod for it to be selected. For anti-affinity, there is exactly
    /// one.
    terms: Vec<PodAffinityTerm>,
    /// The namespace of the pods that have the term. Empty if the selection does not depend on it.
    namespace: String,
    pub key: Key,
}

/// The numbers of a pod's own terms.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub affinity: Vec<usize>,
    pub anti: Vec<usize>,
}

impl Terms {
    /// Adds the terms of a pod.
    pub(super) fn announce(&mut self, pod: &Pod, topologies: &Topologies) {
        let wanted = &pod.affinity;
        let together: Vec<&PodAffinityTerm> = wanted.pods.iter().collect();
        let affinity =
            wanted.pods.iter().map(|term| self.number(&together, pod, &term.topology_key, topologies));
        let affinity = affinity.collect();
        let anti = wanted.anti.iter().map(|term| self.number(&[term], pod, &term.topology_key, topologies));
        let anti = anti.collect();
        if let Some(asks) = pod.looks().and_then(|looks| looks.asks) {
            let next = self.own.len();
            if self.askers.get_or_insert(asks, next) == next {
                self.own.push(Arc::new(Own { affinity, anti }));
            }
        }
    }

    fn number(
        &mut self,
        terms: &[&PodAffinityTerm],
        owner: &Pod,
        key: &str,
        topologies: &Topologies,
    ) -> usize {
        let own_namespace = terms.iter().any(|term| means_own_namespace(term));
        let namespace = if own_namespace { owner.namespace.clone() } else { String::new() };
        // The topology key does not affect which pods a term selects.
        let bare =
            |term: &&PodAffinityTerm| PodAffinityTerm { topology_key: String::new(), ..(*term).clone() };
        let terms: Vec<PodAffinityTerm> = terms.iter().map(bare).collect();
        let next = self.all.len();
        let number = *self.numbers.entry((terms.clone(), namespace.clone(), key.to_owned())).or_insert(next);
        if number == next {
            // An absent selector matches nothing.
            if terms.iter().all(|term| term.selector.is_some()) {
                self.finder.add(number, terms.iter().filter_map(|term| term.selector.as_ref()));
            }
            self.all.push(Term { terms, namespace, key: topologies.key(key) });
        }
        number
    }

    /// Whether the pod has terms that were not announced.
    pub(super) fn lacks(&self, pod: &Pod) -> bool {
        pod.looks().and_then(|looks| looks.asks).is_some_and(|asks| self.askers.get(asks).is_none())
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, number: usize) -> &Term {
        &self.all[number]
    }

    /// The pod's own terms, if they were announced.
    pub(super) fn own(&self, pod: &Pod) -> Option<&Arc<Own>> {
        self.own.get(self.askers.get(pod.looks()?.asks?)?)
    }

    /// The numbers of the terms that select the pod.
    pub(super) fn about(&self, pod: &Pod, namespaces: &Namespaces) -> Vec<usize> {
        let candidates = self.finder.candidates(&pod.labels);
        let mut all: Vec<usize> =
            candidates.filter(|&number| self.all[number].means(pod, namespaces)).collect();
        all.sort_unstable();
        all
    }
}

impl Term {
    /// Whether the term selects the pod.
    pub(super) fn means(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        self.terms.iter().all(|term| matches(term, &self.namespace, pod, namespaces))
    }
}

fn means_own_namespace(term: &PodAffinityTerm) -> bool {
    term.namespaces.is_empty() && term.namespace_selector.is_none()
}

/// Whether a term selects the pod `other`. `owner` is the namespace of the pod that has the term
/// (`AffinityTerm.Matches`).
pub(super) fn matches(term: &PodAffinityTerm, owner: &str, other: &Pod, namespaces: &Namespaces) -> bool {
    static NONE: Labels = Labels::new();
    let namespace = if means_own_namespace(term) {
        other.namespace == owner
    } else {
        let labels = namespaces.get(&other.namespace).unwrap_or(&NONE);
        term.namespaces.contains(&other.namespace)
            || term.namespace_selector.as_ref().is_some_and(|selector| labels_match(selector, labels))
    };
    namespace && term.selector.as_ref().is_some_and(|selector| labels_match(selector, &other.labels))
}
