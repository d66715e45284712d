//! PodTopologySpread: the hard constraints (`DoNotSchedule`).
//!
//! kube-scheduler's built-in default constraints are `ScheduleAnyway`, so they refuse nothing.

use std::ops::Deref;
use std::sync::Arc;

use super::crowd::{Around, Crowd, Stands};
use super::ground::Ground;
use super::node_affinity;
use super::refusal::Refusal;
use super::selector::labels_match;
use super::sim_node::SimNode;
use super::spreads::merged;
use super::taint_toleration::tolerates_all;
use super::topology::{Domain, Key, Topologies};
use super::world::{NodeIndex, World};
use model::pod::{Pod, SpreadConstraint};
use model::selector::LabelSelector;

/// For each constraint: how many matching pods each domain has.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The counts. They are shared with the world until a change is reported to this state.
    counted: Option<Arc<Vec<Counted>>>,
    /// The id number of the pod's spread, if the spread was announced.
    number: Option<usize>,
    /// For each constraint: whether its selector matches the pod itself.
    matches_itself: Vec<bool>,
}

/// The number of matching pods in each domain, for one constraint.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    rule: Arc<Rule>,
    /// The count of each domain, by the domain's number. `None` if no node of the domain counts for the pod.
    domains: Vec<Option<i64>>,
    levels: Levels,
    /// The number of domains that are not `None` in `domains`.
    known: usize,
}

/// The distinct counts of the domains, in ascending order, each with the number of domains that have this
/// count. The first count is the global minimum. The list is short.
#[derive(Clone, Debug, Default)]
struct Levels(Vec<(i64, usize)>);

impl Levels {
    fn enter(&mut self, count: i64) {
        match self.0.binary_search_by_key(&count, |one| one.0) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => self.0.insert(at, (count, 1)),
        }
    }

    fn leave(&mut self, count: i64) {
        if let Ok(at) = self.0.binary_search_by_key(&count, |one| one.0) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }
}

/// The part of a constraint that does not change while pods are counted.
#[derive(Debug)]
pub(super) struct Rule {
    pub key: Key,
    max_skew: i64,
    min_domains: usize,
    selector: Option<LabelSelector>,
    honor_affinity: bool,
    honor_taints: bool,
}

impl Rule {
    fn new(pod: &Pod, constraint: &SpreadConstraint, topologies: &Topologies) -> Self {
        Self {
            key: topologies.key(&constraint.topology_key),
            max_skew: i64::from(constraint.max_skew),
            min_domains: usize::try_from(constraint.min_domains).unwrap_or(1),
            selector: merged(pod, constraint),
            honor_affinity: constraint.honor_node_affinity,
            honor_taints: constraint.honor_node_taints,
        }
    }

    pub(super) fn selector(&self) -> Option<&LabelSelector> {
        self.selector.as_ref()
    }

    /// Whether the node counts for the pod. A closed node does not count if taints are honored, because it
    /// has a taint or will get one.
    pub(super) fn counts_on(&self, pod: &Pod, node: &SimNode) -> bool {
        (!self.honor_affinity || node_affinity::matches(pod, &node.node))
            && (!self.honor_taints || (node.open && tolerates_all(&pod.tolerations, &node.node.taints)))
    }

    /// Whether `other` counts for this constraint of `pod`. An empty selector counts no pod
    /// (`countPodsMatchSelector`).
    pub(super) fn matches(&self, pod: &Pod, other: &Pod) -> bool {
        let selector = self.selector.as_ref().filter(|selector| !selector.requirements.is_empty());
        other.namespace == pod.namespace
            && other.deletion.is_none()
            && selector.is_some_and(|selector| labels_match(selector, &other.labels))
    }
}

impl Deref for Counted {
    type Target = Rule;

    fn deref(&self) -> &Rule {
        &self.rule
    }
}

impl Counted {
    /// The domains before any pods are counted.
    fn new(rule: &Arc<Rule>, ground: &Ground) -> Self {
        let domains = ground.empty.clone();
        Self {
            rule: rule.clone(),
            known: domains.iter().flatten().count(),
            domains,
            levels: Levels::default(),
        }
    }

    /// Adds pods to a domain and marks the domain as known. Returns the domain's previous count (`None` if
    /// the domain was not known) and its new count. Does not update the levels.
    fn add(&mut self, domain: usize, by: i64) -> (Option<i64>, i64) {
        if self.domains.len() <= domain {
            self.domains.resize(domain + 1, None);
        }
        let before = self.domains[domain];
        let after = before.unwrap_or(0) + by;
        self.domains[domain] = Some(after);
        self.known += usize::from(before.is_none());
        (before, after)
    }

    pub(super) fn bump(&mut self, domain: usize, by: i64) {
        let (before, after) = self.add(domain, by);
        if let Some(before) = before {
            self.levels.leave(before);
        }
        self.levels.enter(after);
    }

    fn level(&mut self) {
        for count in self.domains.iter().flatten() {
            self.levels.enter(*count);
        }
    }

    fn least(&self) -> i64 {
        let enough = self.known >= self.min_domains;
        self.levels.0.first().filter(|_| enough).map_or(0, |one| one.0)
    }

    /// Returns what the global minimum would be if a new node changed its domain's count from `before` to
    /// `after`. If `before` is `None`, the domain was not known.
    fn least_with(&self, before: Option<i64>, after: i64) -> i64 {
        if self.known + usize::from(before.is_none()) < self.min_domains {
            return 0;
        }
        let stays = |(count, domains): &&(i64, usize)| Some(*count) != before || *domains > 1;
        self.levels.0.iter().find(stays).map_or(after, |(count, _)| after.min(*count))
    }
}

/// The hard constraints of the pod.
pub(super) fn rules(pod: &Pod, topologies: &Topologies) -> Vec<Arc<Rule>> {
    let hard = pod.spread.iter().filter(|one| one.hard);
    hard.map(|one| Arc::new(Rule::new(pod, one, topologies))).collect()
}

/// Counts the pods that these rules select. `kinds` contains, for each kind of pods, the index of a rule that
/// selects it and the nodes that its pods are on. `ground` contains the nodes that count for each rule.
pub(super) fn count_out<'s>(
    rules: &[Arc<Rule>],
    ground: &[Ground],
    kinds: impl Iterator<Item = (usize, &'s Stands)>,
) -> Vec<Counted> {
    let mut all: Vec<Counted> =
        rules.iter().zip(ground).map(|(rule, ground)| Counted::new(rule, ground)).collect();
    for (number, stands) in kinds {
        for (at, count) in stands.iter() {
            if let Some(domain) = ground[number].places[at] {
                all[number].add(domain, count);
            }
        }
    }
    all.iter_mut().for_each(Counted::level);
    all
}

/// Adds `by` pods like `other` to the counts, or removes them if `by` is negative. Their node must already be
/// counted.
fn count(all: &mut [Counted], pod: &Pod, other: &Pod, at: NodeIndex, around: Around, by: i64) {
    for (one, domain) in counted_on(all, pod, at, around) {
        if one.matches(pod, other) {
            one.bump(domain, by);
        }
    }
}

/// Whether the node counts for a pod at all: the node must have the labels of all constraints.
pub(super) fn counts<'k>(mut keys: impl Iterator<Item = &'k Key>, at: NodeIndex, around: Around) -> bool {
    around.nodes[at].counts_for_spread && keys.all(|key| around.domain(key, at) != Domain::Nowhere)
}

/// The constraints for which the node counts, each with the node's domain.
fn counted_on<'c>(
    all: &'c mut [Counted],
    pod: &'c Pod,
    at: NodeIndex,
    around: Around<'c>,
) -> impl Iterator<Item = (&'c mut Counted, usize)> {
    let counts = counts(all.iter().map(|one| &one.key), at, around);
    all.iter_mut().filter(move |_| counts).filter_map(move |one| match around.domain(&one.key, at) {
        Domain::Known(domain) if one.counts_on(pod, &around.nodes[at]) => Some((one, domain)),
        _ => None,
    })
}

pub(super) fn prepare(pod: &Pod, world: &World) -> State {
    if !pod.spread.iter().any(|one| one.hard) {
        return State::default();
    }
    let (around, crowd) = (world.around(), world.crowd());
    let of_unknown = || {
        let rules = rules(pod, around.topologies);
        let matching = |(at, rule): (usize, &Arc<Rule>), other: &Pod| rule.matches(pod, other).then_some(at);
        let kinds = crowd.kinds().flat_map(|(kind, stands)| {
            let rules = rules.iter().enumerate();
            rules.filter_map(move |rule| Some((matching(rule, &kind.pod)?, stands)))
        });
        Arc::new(count_out(&rules, &Ground::of(pod, &rules, around), kinds))
    };
    let number = around.spreads.number(pod);
    let counted = number.map_or_else(of_unknown, |number| crowd.spread(number, around));
    let itself =
        |one: &Counted| one.selector.as_ref().is_some_and(|selector| labels_match(selector, &pod.labels));
    State { matches_itself: counted.iter().map(itself).collect(), counted: Some(counted), number }
}

impl State {
    /// Adds a node without pods to the counts.
    pub(super) fn add_node(&mut self, pod: &Pod, at: NodeIndex, around: Around) {
        let Some(counted) = &mut self.counted else { return };
        let counted: &mut Vec<Counted> = Arc::make_mut(counted);
        for (one, domain) in counted_on(counted, pod, at, around) {
            one.bump(domain, 0);
        }
    }

    /// Drops the counts that this state shares with the world, so that the world need not copy them for its
    /// next change. Returns the number of the spread, which is needed to fetch the counts again. No node may
    /// be checked until the counts have been fetched.
    pub(super) fn hand_back(&mut self, crowd: &Crowd) -> Option<usize> {
        let number = self.number?;
        crowd.shares(number, self.counted.as_ref()?).then(|| self.counted = None)?;
        Some(number)
    }

    /// Takes over the world's current counts.
    pub(super) fn take(&mut self, counted: Arc<Vec<Counted>>) {
        self.counted = Some(counted);
    }

    /// Adds `by` pods like `other` to the counts, or removes them if `by` is negative. Their node must
    /// already be counted.
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, at: NodeIndex, around: Around, by: i64) {
        let Some(counted) = &mut self.counted else { return };
        let counted: &mut Vec<Counted> = Arc::make_mut(counted);
        count(counted, pod, other, at, around, by);
    }

    /// Whether one of the node's domains now has more pods than a constraint allows.
    pub(super) fn is_exceeded(&self, domain: &impl Fn(&Key) -> Domain) -> bool {
        self.counted.iter().flat_map(|all| all.iter()).any(|one| match domain(&one.key) {
            Domain::Known(domain) => {
                let here = one.domains.get(domain).copied().flatten().unwrap_or(0);
                here - one.least() > one.max_skew
            }
            _ => false,
        })
    }

    /// Whether the pod has no hard constraints, so that there is nothing to check.
    pub(super) fn is_empty(&self) -> bool {
        self.counted.is_none()
    }

    /// Checks a node. `domain` returns the node's domain for a key. A fresh node is not in the world yet, so
    /// the pods that it comes with are added to the counts.
    pub(super) fn check(
        &self,
        pod: &Pod,
        node: &SimNode,
        fresh: bool,
        domain: &impl Fn(&Key) -> Domain,
    ) -> Result<(), Refusal> {
        let counted = self.counted.iter().flat_map(|all| all.iter());
        for (one, &itself) in counted.zip(&self.matches_itself) {
            let known = match domain(&one.key) {
                Domain::Nowhere => return Err(Refusal::SpreadLabel(one.key.name.clone())),
                Domain::New => None,
                Domain::Known(domain) => one.domains.get(domain).copied().flatten(),
            };
            let (mut here, mut least) = (known.unwrap_or(0), one.least());
            if fresh && one.counts_on(pod, node) {
                let on = node.pods.iter().filter(|other| one.matches(pod, other)).count();
                here += i64::try_from(on).unwrap_or(i64::MAX);
                least = one.least_with(known, here);
            }
            if here + i64::from(itself) - least > one.max_skew {
                return Err(Refusal::Spread(one.key.name.clone()));
            }
        }
        Ok(())
    }
}
