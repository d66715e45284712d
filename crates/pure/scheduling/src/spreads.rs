//! Topology spread as pods ask for it, each way kept once, and what was counted for it in a world.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::crowd::{Around, Kind};
use super::finder::Finder;
use super::ground::{Ground, Manner};
use super::pod_topology_spread::{self as spread, Counted};
use super::selector::labels_match;
use super::world::NodeIndex;
use model::digest::Fingerprint;
use model::pod::{Pod, SpreadConstraint};
use model::selector::{LabelSelector, Operator, Requirement};

/// The hard constraints of all pods that were announced.
#[derive(Clone, Debug, Default)]
pub(super) struct Spreads {
    all: Vec<Arc<Spread>>,
    numbers: BTreeMap<Fingerprint, usize>,
    finder: Finder,
    /// The ways in which nodes count for them, each with its number.
    manners: BTreeMap<Manner, usize>,
    /// It matters to any of them that a node takes pods.
    any_honors_taints: bool,
}

/// How pods of one namespace ask to be spread, with what decides which nodes count.
#[derive(Debug)]
pub(super) struct Spread {
    /// One of them.
    pub pod: Pod,
    /// Of each hard constraint the selector.
    selectors: Vec<LabelSelector>,
    /// The number of the manner in which nodes count.
    manner: usize,
    /// Whether it matters that a node takes pods.
    honors_taints: bool,
}

/// The selector of a constraint of the pod, with `matchLabelKeys` taken in.
pub(super) fn merged(pod: &Pod, constraint: &SpreadConstraint) -> Option<LabelSelector> {
    let mut selector = constraint.selector.clone()?;
    for key in &constraint.match_label_keys {
        if let Some(value) = pod.labels.get(key) {
            let values = vec![value.clone()];
            selector.requirements.push(Requirement { key: key.clone(), operator: Operator::In, values });
        }
    }
    Some(selector)
}

impl Spreads {
    /// Takes in the constraints of a pod.
    pub(super) fn announce(&mut self, pod: &Pod) {
        let number = self.all.len();
        if let Some(spread_as) = pod.looks().and_then(|looks| looks.spread_as) {
            self.numbers.insert(spread_as, number);
        }
        let hard = || pod.spread.iter().filter(|one| one.hard);
        let selectors: Vec<LabelSelector> = hard().filter_map(|one| merged(pod, one)).collect();
        for selector in &selectors {
            self.finder.add(number, std::iter::once(selector));
        }
        let honors_taints = hard().any(|one| one.honor_node_taints);
        self.any_honors_taints |= honors_taints;
        let next = self.manners.len();
        let manner = *self.manners.entry(Manner::of(pod)).or_insert(next);
        self.all.push(Arc::new(Spread { pod: pod.clone(), selectors, manner, honors_taints }));
    }

    /// Whether the pod has hard constraints that were not announced.
    pub(super) fn lacks(&self, pod: &Pod) -> bool {
        let spread_as = pod.looks().and_then(|looks| looks.spread_as);
        spread_as.is_some_and(|spread_as| !self.numbers.contains_key(&spread_as))
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn manners(&self) -> usize {
        self.manners.len()
    }

    pub(super) fn number(&self, pod: &Pod) -> Option<usize> {
        self.numbers.get(&pod.looks()?.spread_as?).copied()
    }

    /// Those in which the pod counts, by number.
    pub(super) fn about(&self, pod: &Pod) -> Vec<usize> {
        let mut all: Vec<usize> =
            self.finder.candidates(&pod.labels).filter(|&number| self.speaks_of(number, pod)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether the pod counts in it.
    pub(super) fn speaks_of(&self, number: usize, pod: &Pod) -> bool {
        let spread = &self.all[number];
        pod.namespace == spread.pod.namespace
            && spread.selectors.iter().any(|selector| labels_match(selector, &pod.labels))
    }
}

/// What was counted in a world.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// By spread.
    kept: Vec<Kept>,
    /// By manner, where the nodes stand: from the first question on, until they change.
    grounds: Vec<OnceLock<Arc<Vec<Ground>>>>,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    /// The kinds of pods that count in it.
    kinds: Arc<Vec<usize>>,
    /// From the first question on, until the nodes change.
    counted: OnceLock<Arc<Vec<Counted>>>,
}

impl Counts {
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// With the same kinds of pods, on other nodes.
    pub(super) fn without_pods(&self) -> Self {
        let mut counts = self.clone();
        counts.forget();
        counts
    }

    /// Makes room for what was announced.
    pub(super) fn grow_to(&mut self, spreads: &Spreads) {
        self.kept.resize_with(spreads.count(), Kept::default);
        self.grounds.resize_with(spreads.manners(), OnceLock::default);
    }

    pub(super) fn add_kind(&mut self, spread: usize, kind: usize) {
        Arc::make_mut(&mut self.kept[spread].kinds).push(kind);
    }

    /// What is counted for it; `kinds` are all kinds of pods.
    pub(super) fn of(&self, number: usize, kinds: &[Arc<Kind>], around: Around) -> Arc<Vec<Counted>> {
        let kept = &self.kept[number];
        let count = || {
            let Spread { pod, manner, .. } = &*around.spreads.all[number];
            let mut counted = spread::constraints(pod, around);
            let ground = self.grounds[*manner].get_or_init(|| Arc::new(Ground::of(pod, &counted, around)));
            let all: Vec<&Kind> = kept.kinds.iter().map(|&kind| &*kinds[kind]).collect();
            spread::count_out(&mut counted, pod, &all, ground);
            Arc::new(counted)
        };
        kept.counted.get_or_init(count).clone()
    }

    /// Counts pods like `other`, which count in it, in or out.
    pub(super) fn count(&mut self, number: usize, other: &Pod, at: NodeIndex, by: i64, around: Around) {
        if let Some(counted) = self.kept[number].counted.get_mut() {
            let pod = &around.spreads.all[number].pod;
            let counted: &mut Vec<Counted> = Arc::make_mut(counted);
            spread::count(counted, pod, other, at, around, by);
        }
    }

    /// Forgets what was counted: the nodes have changed.
    pub(super) fn forget(&mut self) {
        self.grounds.fill_with(OnceLock::default);
        for kept in &mut self.kept {
            kept.counted.take();
        }
    }

    /// Forgets what depends on which nodes take pods.
    pub(super) fn forget_taints(&mut self, spreads: &Spreads) {
        // Hardly any does, and every node that is tried is closed: thousands of apps are not looked through.
        if !spreads.any_honors_taints {
            return;
        }
        for (kept, spread) in self.kept.iter_mut().zip(&spreads.all) {
            if spread.honors_taints {
                kept.counted.take();
                self.grounds[spread.manner].take();
            }
        }
    }
}
