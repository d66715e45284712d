//! PodTopologySpread: the hard constraints (`DoNotSchedule`).
//!
//! The cluster's default constraints are `ScheduleAnyway`, so they refuse nothing.

use std::collections::BTreeMap;

use super::node_affinity;
use super::refusal::Refusal;
use super::selector::labels_match;
use super::taint_toleration::tolerates_all;
use super::world::SimNode;
use crate::model::pod::{Pod, SpreadConstraint};
use crate::model::selector::{LabelSelector, Operator, Requirement};

/// Per constraint, how many matching pods each domain has.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    constraints: Vec<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    key: String,
    max_skew: i64,
    min_domains: usize,
    selector: Option<LabelSelector>,
    matches_itself: bool,
    honor_affinity: bool,
    honor_taints: bool,
    domains: BTreeMap<String, i64>,
    /// How many domains have each count: the smallest key is the global minimum.
    levels: BTreeMap<i64, usize>,
}

impl Counted {
    fn bump(&mut self, domain: &str, by: i64) {
        let before = self.domains.get(domain).copied();
        let after = before.unwrap_or(0) + by;
        if let Some(before) = before {
            if let Some(domains) = self.levels.get_mut(&before) {
                *domains -= 1;
                if *domains == 0 {
                    self.levels.remove(&before);
                }
            }
            if let Some(count) = self.domains.get_mut(domain) {
                *count = after;
            }
        } else {
            self.domains.insert(domain.to_owned(), after);
        }
        *self.levels.entry(after).or_default() += 1;
    }

    fn least(&self) -> i64 {
        let enough = self.domains.len() >= self.min_domains;
        self.levels.keys().next().copied().filter(|_| enough).unwrap_or(0)
    }

    /// Whether the node's domain counts for the pod. A node on its way out carries (or will carry) a taint.
    fn counts_on(&self, pod: &Pod, node: &SimNode) -> bool {
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

pub(super) fn prepare(pod: &Pod, nodes: &[SimNode]) -> State {
    let hard: Vec<_> = pod.spread.iter().filter(|one| one.hard).collect();
    let mut state = State { constraints: hard.iter().map(|one| counted(pod, one)).collect() };
    if state.constraints.is_empty() {
        return state;
    }
    for node in nodes.iter().filter(|node| node.counts_for_spread) {
        state.add_node(pod, node);
    }
    state
}

fn counted(pod: &Pod, constraint: &SpreadConstraint) -> Counted {
    let mut selector = constraint.selector.clone();
    if let Some(selector) = &mut selector {
        for key in &constraint.match_label_keys {
            if let Some(value) = pod.labels.get(key) {
                let values = vec![value.clone()];
                selector.requirements.push(Requirement { key: key.clone(), operator: Operator::In, values });
            }
        }
    }
    Counted {
        key: constraint.topology_key.clone(),
        max_skew: i64::from(constraint.max_skew),
        min_domains: usize::try_from(constraint.min_domains).unwrap_or(1),
        matches_itself: selector.as_ref().is_some_and(|selector| labels_match(selector, &pod.labels)),
        selector,
        honor_affinity: constraint.honor_node_affinity,
        honor_taints: constraint.honor_node_taints,
        domains: BTreeMap::new(),
        levels: BTreeMap::new(),
    }
}

impl State {
    /// Counts a node and its pods in.
    pub(super) fn add_node(&mut self, pod: &Pod, node: &SimNode) {
        let labels = &node.node.labels;
        if !self.constraints.iter().all(|one| labels.contains_key(&one.key)) {
            return;
        }
        for one in &mut self.constraints {
            if !one.counts_on(pod, node) {
                continue;
            }
            let matching = node.pods.iter().filter(|other| one.matches(pod, other)).count();
            let count = i64::try_from(matching).unwrap_or(i64::MAX);
            if let Some(domain) = labels.get(&one.key) {
                one.bump(domain, count);
            }
        }
    }

    /// Counts a pod in (or out, with `by` −1) that was placed on a node which is already counted.
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, node: &SimNode, by: i64) {
        let labels = &node.node.labels;
        if !self.constraints.iter().all(|one| labels.contains_key(&one.key)) {
            return;
        }
        for one in &mut self.constraints {
            if !one.matches(pod, other) || !one.counts_on(pod, node) {
                continue;
            }
            if let Some(domain) = labels.get(&one.key) {
                one.bump(domain, by);
            }
        }
    }

    /// Whether there is nothing to check.
    pub(super) fn is_empty(&self) -> bool {
        self.constraints.is_empty()
    }

    /// Checks a node; a domain that is not known yet (a fresh node's) holds nothing.
    pub(super) fn check(&self, pod: &Pod, node: &SimNode, fresh: bool) -> Result<(), Refusal> {
        for one in &self.constraints {
            let Some(domain) = node.node.labels.get(&one.key) else {
                return Err(Refusal::SpreadLabel(one.key.clone()));
            };
            let opens = fresh && !one.domains.contains_key(domain) && one.counts_on(pod, node);
            let least = if opens { 0 } else { one.least() };
            let here = one.domains.get(domain).copied().unwrap_or(0);
            if here + i64::from(one.matches_itself) - least > one.max_skew {
                return Err(Refusal::Spread(one.key.clone()));
            }
        }
        Ok(())
    }
}
