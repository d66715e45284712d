//! The topology spread constraints of pods, and the pod counts that they need. Equal sets of constraints are
//! stored only once.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::crowd::{Around, Stands};
use super::finder::Finder;
use super::ground::{Ground, Manner};
use super::numbers::Numbers;
use super::pod_topology_spread::{self as spread, Counted, Rule};
use super::topology::Topologies;
use super::world::NodeIndex;
use model::pod::{Pod, SpreadConstraint};
use model::selector::{LabelSelector, Operator, Requirement};

/// The hard topology spread constraints of all announced pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Spreads {
    all: Vec<Arc<Spread>>,
    numbers: Numbers,
    finder: Finder,
    /// The number of each [`Manner`]. A manner decides which nodes count for a spread.
    manners: BTreeMap<Manner, usize>,
    /// Whether any constraint honors taints. A closed node does not count for such a constraint.
    any_honors_taints: bool,
}

/// The topology spread constraints that several pods of one namespace share, with the rules that decide which
/// nodes count.
#[derive(Debug)]
pub(super) struct Spread {
    /// One of the pods that share the constraints.
    pub pod: Pod,
    /// Its hard constraints.
    rules: Vec<Arc<Rule>>,
    /// The number of the [`Manner`] that decides which nodes count for this spread.
    manner: usize,
    /// Whether a constraint honors taints. A closed node does not count for such a constraint.
    honors_taints: bool,
}

/// Returns the selector of one of the pod's constraints, with the constraint's `matchLabelKeys` merged in.
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
    /// Adds the hard constraints of a pod.
    pub(super) fn announce(&mut self, pod: &Pod, topologies: &Topologies) {
        let number = self.all.len();
        if let Some(spread_as) = pod.looks().and_then(|looks| looks.spread_as) {
            self.numbers.get_or_insert(spread_as, number);
        }
        let hard = || pod.spread.iter().filter(|one| one.hard);
        let rules = spread::rules(pod, topologies);
        for selector in rules.iter().filter_map(|rule| rule.selector()) {
            self.finder.add(number, std::iter::once(selector));
        }
        let honors_taints = hard().any(|one| one.honor_node_taints);
        self.any_honors_taints |= honors_taints;
        let next = self.manners.len();
        let manner = *self.manners.entry(Manner::of(pod)).or_insert(next);
        self.all.push(Arc::new(Spread { pod: pod.clone(), rules, manner, honors_taints }));
    }

    /// Whether the pod has hard constraints that were not announced.
    pub(super) fn lacks(&self, pod: &Pod) -> bool {
        let spread_as = pod.looks().and_then(|looks| looks.spread_as);
        spread_as.is_some_and(|spread_as| self.numbers.get(spread_as).is_none())
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn manners(&self) -> usize {
        self.manners.len()
    }

    pub(super) fn number(&self, pod: &Pod) -> Option<usize> {
        self.numbers.get(pod.looks()?.spread_as?)
    }

    /// Returns the numbers of the spreads that count the pod, each with the index of a constraint that
    /// selects the pod.
    pub(super) fn about(&self, pod: &Pod) -> Vec<(usize, usize)> {
        let mut all: Vec<usize> = self.finder.candidates(&pod.labels).collect();
        all.sort_unstable();
        all.dedup();
        let constraints =
            |spread: usize| self.constraints_about(spread, pod).map(move |constraint| (spread, constraint));
        all.into_iter().flat_map(constraints).collect()
    }

    /// Returns the indices of the spread's constraints that select the pod.
    pub(super) fn constraints_about(&self, number: usize, pod: &Pod) -> impl Iterator<Item = usize> {
        let spread = &*self.all[number];
        let counts = |(at, rule): (usize, &Arc<Rule>)| rule.matches(&spread.pod, pod).then_some(at);
        spread.rules.iter().enumerate().filter_map(counts)
    }
}

/// The pod counts of a world, for all spreads.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The counts for each spread.
    kept: Vec<Kept>,
    /// For each [`Manner`]: the nodes that count. They are determined when first needed, and dropped when the
    /// nodes change.
    grounds: Vec<OnceLock<Arc<Vec<Ground>>>>,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    /// The kinds of pods that count in this spread, each with the constraint that selects them.
    kinds: Arc<Vec<(usize, usize)>>,
    /// The counts, computed when first needed and dropped when the nodes change.
    counted: OnceLock<Arc<Vec<Counted>>>,
}

impl Counts {
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns a copy with the same kinds of pods but without counts, for a world with different nodes.
    pub(super) fn without_pods(&self) -> Self {
        let mut counts = self.clone();
        counts.forget();
        counts
    }

    /// Allocates entries for newly announced spreads and their [`Manner`]s.
    pub(super) fn grow_to(&mut self, spreads: &Spreads) {
        self.kept.resize_with(spreads.count(), Kept::default);
        self.grounds.resize_with(spreads.manners(), OnceLock::default);
    }

    pub(super) fn add_kind(&mut self, (spread, constraint): (usize, usize), kind: usize) {
        Arc::make_mut(&mut self.kept[spread].kinds).push((kind, constraint));
    }

    /// Returns the counts for a spread. `stands` contains, for each kind of pod, the nodes that these pods
    /// are on.
    pub(super) fn of(&self, number: usize, stands: &[Arc<Stands>], around: Around) -> Arc<Vec<Counted>> {
        let kept = &self.kept[number];
        let count = || {
            let Spread { pod, rules, manner, .. } = &*around.spreads.all[number];
            let ground = self.grounds[*manner].get_or_init(|| Arc::new(Ground::of(pod, rules, around)));
            let all = kept.kinds.iter().map(|&(kind, constraint)| (constraint, &*stands[kind]));
            Arc::new(spread::count_out(rules, ground, all))
        };
        kept.counted.get_or_init(count).clone()
    }

    /// Whether `counted` is the world's own count for the spread, and not a copy of it.
    pub(super) fn shares(&self, number: usize, counted: &Arc<Vec<Counted>>) -> bool {
        let kept = self.kept.get(number).and_then(|kept| kept.counted.get());
        kept.is_some_and(|kept| Arc::ptr_eq(kept, counted))
    }

    /// Adds `by` pods to the counts for this constraint of a spread, or removes them if `by` is negative.
    pub(super) fn count(
        &mut self,
        (spread, constraint): (usize, usize),
        at: NodeIndex,
        by: i64,
        around: Around,
    ) {
        let kept = &mut self.kept[spread].counted;
        let Some(counted) = kept.get_mut() else { return };
        // The counts of pods depend on which nodes are included. If the set of these nodes has been dropped,
        // the counts are outdated, so they are dropped too.
        let Some(ground) = self.grounds[around.spreads.all[spread].manner].get() else {
            kept.take();
            return;
        };
        if let Some(&Some(domain)) = ground[constraint].places.get(at) {
            Arc::make_mut(counted)[constraint].bump(domain, by);
        }
    }

    /// Drops all counts, because the nodes have changed.
    pub(super) fn forget(&mut self) {
        self.grounds.fill_with(OnceLock::default);
        for kept in &mut self.kept {
            kept.counted.take();
        }
    }

    /// Drops the counts that depend on which nodes take pods.
    pub(super) fn forget_taints(&mut self, spreads: &Spreads) {
        // Nodes are closed often, but few constraints honor taints. This check avoids going through thousands
        // of spreads each time.
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
