//! PodTopologySpread: the hard constraints (`DoNotSchedule`).
//!
//! The cluster's default constraints are `ScheduleAnyway`, so they refuse nothing.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use super::crowd::{Around, Kind};
use super::ground::Ground;
use super::node_affinity;
use super::refusal::Refusal;
use super::selector::labels_match;
use super::sim_node::SimNode;
use super::spreads::merged;
use super::taint_toleration::tolerates_all;
use super::topology::{Domain, Key};
use super::world::{NodeIndex, World};
use model::pod::{Pod, SpreadConstraint};
use model::selector::LabelSelector;

/// Per constraint, how many matching pods each domain has.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Shared with the world until a change is reported to it.
    counted: Option<Arc<Vec<Counted>>>,
    /// By constraint, whether the pod itself counts.
    matches_itself: Vec<bool>,
}

/// How many pods each domain has, for one constraint.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    rule: Arc<Rule>,
    /// By the domain's number; `None` if no node of the domain counts for the pod.
    domains: Vec<Option<i64>>,
    /// How many domains have each count: the smallest key is the global minimum.
    levels: BTreeMap<i64, usize>,
    /// How many domains count.
    known: usize,
}

/// What does not change while pods are counted.
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
    fn new(pod: &Pod, constraint: &SpreadConstraint, around: Around) -> Self {
        Self {
            key: around.topologies.key(&constraint.topology_key),
            max_skew: i64::from(constraint.max_skew),
            min_domains: usize::try_from(constraint.min_domains).unwrap_or(1),
            selector: merged(pod, constraint),
            honor_affinity: constraint.honor_node_affinity,
            honor_taints: constraint.honor_node_taints,
        }
    }

    /// Whether the node's domain counts for the pod. A node on its way out carries (or will carry) a taint.
    pub(super) fn counts_on(&self, pod: &Pod, node: &SimNode) -> bool {
        (!self.honor_affinity || node_affinity::matches(pod, &node.node))
            && (!self.honor_taints || (node.open && tolerates_all(&pod.tolerations, &node.node.taints)))
    }

    /// How many of the pods count; an empty selector counts none (`countPodsMatchSelector`).
    fn matches(&self, pod: &Pod, other: &Pod) -> bool {
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
    fn new(rule: Rule) -> Self {
        Self { rule: Arc::new(rule), domains: Vec::new(), levels: BTreeMap::new(), known: 0 }
    }

    /// Makes a domain known and counts pods in it; the levels are not touched.
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

    fn bump(&mut self, domain: usize, by: i64) {
        let (before, after) = self.add(domain, by);
        if let Some(before) = before
            && let Some(domains) = self.levels.get_mut(&before)
        {
            *domains -= 1;
            if *domains == 0 {
                self.levels.remove(&before);
            }
        }
        *self.levels.entry(after).or_default() += 1;
    }

    fn level(&mut self) {
        for count in self.domains.iter().flatten() {
            *self.levels.entry(*count).or_default() += 1;
        }
    }

    fn least(&self) -> i64 {
        let enough = self.known >= self.min_domains;
        self.levels.keys().next().copied().filter(|_| enough).unwrap_or(0)
    }

    /// The global minimum once a node is added to a domain that had this many pods, if it was known, and has
    /// this many then.
    fn least_with(&self, before: Option<i64>, after: i64) -> i64 {
        if self.known + usize::from(before.is_none()) < self.min_domains {
            return 0;
        }
        let stays = |(count, domains): &(&i64, &usize)| Some(**count) != before || **domains > 1;
        self.levels.iter().find(stays).map_or(after, |(count, _)| after.min(*count))
    }
}

/// The hard constraints of the pod, with nothing counted yet.
pub(super) fn constraints(pod: &Pod, around: Around) -> Vec<Counted> {
    let hard = pod.spread.iter().filter(|one| one.hard);
    hard.map(|one| Counted::new(Rule::new(pod, one, around))).collect()
}

/// Counts out what they speak of, among these kinds of pods; `ground` has the nodes for each.
pub(super) fn count_out(all: &mut [Counted], pod: &Pod, kinds: &[&Kind], ground: &[Ground]) {
    for (one, ground) in all.iter_mut().zip(ground) {
        one.domains.clone_from(&ground.empty);
        one.known = ground.empty.iter().flatten().count();
        for kind in kinds.iter().filter(|kind| one.matches(pod, &kind.pod)).collect::<Vec<_>>() {
            for (&at, &count) in &kind.at {
                if let Some(domain) = ground.places[at] {
                    one.add(domain, count);
                }
            }
        }
        one.level();
    }
}

/// Counts pods like `other` in (or out, with a negative number) that were placed on a node which is already
/// counted.
pub(super) fn count(all: &mut [Counted], pod: &Pod, other: &Pod, at: NodeIndex, around: Around, by: i64) {
    for (one, domain) in counted_on(all, pod, at, around) {
        if one.matches(pod, other) {
            one.bump(domain, by);
        }
    }
}

/// Whether the node has the labels of all constraints.
pub(super) fn counts(all: &[Counted], at: NodeIndex, around: Around) -> bool {
    around.nodes[at].counts_for_spread && all.iter().all(|one| around.domain(&one.key, at) != Domain::Nowhere)
}

/// The constraints for which a node counts, with its domains.
fn counted_on<'c>(
    all: &'c mut [Counted],
    pod: &'c Pod,
    at: NodeIndex,
    around: Around<'c>,
) -> impl Iterator<Item = (&'c mut Counted, usize)> {
    let counts = counts(all, at, around);
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
        let mut all = constraints(pod, around);
        let ground = Ground::of(pod, &all, around);
        count_out(&mut all, pod, &crowd.kinds().collect::<Vec<_>>(), &ground);
        Arc::new(all)
    };
    let number = around.spreads.number(pod);
    let counted = number.map_or_else(of_unknown, |number| crowd.spread(number, around));
    let itself =
        |one: &Counted| one.selector.as_ref().is_some_and(|selector| labels_match(selector, &pod.labels));
    State { matches_itself: counted.iter().map(itself).collect(), counted: Some(counted) }
}

impl State {
    /// Counts a node without pods in.
    pub(super) fn add_node(&mut self, pod: &Pod, at: NodeIndex, around: Around) {
        let Some(counted) = &mut self.counted else { return };
        let counted: &mut Vec<Counted> = Arc::make_mut(counted);
        for (one, domain) in counted_on(counted, pod, at, around) {
            one.bump(domain, 0);
        }
    }

    /// Counts pods like `other` in (or out, with a negative number) that were placed on a node which is
    /// already counted.
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, at: NodeIndex, around: Around, by: i64) {
        let Some(counted) = &mut self.counted else { return };
        let counted: &mut Vec<Counted> = Arc::make_mut(counted);
        count(counted, pod, other, at, around, by);
    }

    /// Whether more pods stand in a domain of a node than would be put there by now.
    pub(super) fn is_exceeded(&self, domain: &impl Fn(&Key) -> Domain) -> bool {
        self.counted.iter().flat_map(|all| all.iter()).any(|one| match domain(&one.key) {
            Domain::Known(domain) => {
                let here = one.domains.get(domain).copied().flatten().unwrap_or(0);
                here - one.least() > one.max_skew
            }
            _ => false,
        })
    }

    /// Whether there is nothing to check.
    pub(super) fn is_empty(&self) -> bool {
        self.counted.is_none()
    }

    /// Checks a node whose domains `domain` tells. A fresh one is not in the world yet: the pods that it
    /// comes with count besides.
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
