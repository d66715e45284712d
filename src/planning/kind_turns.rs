//! Whose turn it is if one round cannot look at all pods that wait: those of the highest priority, and of these the oldest of each
//! namespace in turn, so that no namespace holds up the others. The next round goes on where this one stopped.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::View;
use super::pending::{Priorities, Waiting};
use crate::model::plan::PodOutcome;
use crate::model::pod::Pod;
use crate::model::unfinished::PodTurns;

/// Up to so many namespaces' places are remembered; others begin with their oldest pod.
const NAMESPACES: usize = 500;

/// The kinds of pods whose turn it is in this round. There are none if the last round was finished: all of them are looked at.
pub(super) struct KindTurns<'a> {
    /// By turn: namespace, and the first pod of the kind.
    looked_at: Vec<(&'a str, &'a str)>,
    /// Some kinds have to wait.
    some_wait: bool,
    /// By namespace, where the last round stopped.
    after: BTreeMap<String, String>,
}

/// A kind of pods that waits.
struct Kind<'a> {
    group: usize,
    namespace: &'a str,
    /// Its oldest pod, and since when that is there.
    first: &'a str,
    created: Option<Timestamp>,
}

impl<'a> KindTurns<'a> {
    /// Leaves out what has to wait, if the last round was not finished. Pods that lose their node have no turn: they are always
    /// looked at.
    pub(super) fn take(view: &View<'a>, pods: &mut [Waiting<'a>], priorities: &Priorities) -> Self {
        let Some(last) = &view.snapshot.memory.unfinished.pods else {
            return Self { looked_at: Vec::new(), some_wait: false, after: BTreeMap::new() };
        };
        let order = order(pods, priorities, &last.after);
        let most = last.most.max(1);
        let late: BTreeSet<usize> = order.iter().skip(most).map(|kind| kind.group).collect();
        for pod in pods.iter_mut().filter(|pod| pod.settled.is_none() && late.contains(&pod.group)) {
            pod.settled = Some(PodOutcome::Unfinished);
        }
        Self {
            looked_at: order.iter().take(most).map(|kind| (kind.namespace, kind.first)).collect(),
            some_wait: !late.is_empty(),
            after: last.after.clone(),
        }
    }

    /// Where the next round goes on, if it has to; `spent`: this one could not look at all that it should have. There are so many
    /// `kinds` of pods, and `left` pods were not looked at.
    pub(super) fn next(self, spent: bool, kinds: usize, left: usize) -> Option<PodTurns> {
        if !spent && !self.some_wait {
            return None;
        }
        let looked_at = if self.looked_at.is_empty() { kinds } else { self.looked_at.len() };
        let mut after = self.after;
        // One that is too much by itself does not hold up those after it.
        if !spent || looked_at <= 1 {
            after.extend(self.looked_at.iter().map(|(space, pod)| ((*space).to_owned(), (*pod).to_owned())));
        }
        while after.len() > NAMESPACES {
            after.pop_last();
        }
        let most = if spent { (looked_at / 2).max(1) } else { looked_at.saturating_mul(2) };
        Some(PodTurns { left, most, after })
    }
}

/// All kinds in the order of their turns.
fn order<'a>(
    pods: &[Waiting<'a>],
    priorities: &Priorities,
    after: &BTreeMap<String, String>,
) -> Vec<Kind<'a>> {
    let mut by_namespace: BTreeMap<(Reverse<i32>, &str), Vec<Kind<'a>>> = BTreeMap::new();
    for (pod, kind) in kinds(pods) {
        let place = (Reverse(priorities.of(pod)), kind.namespace);
        by_namespace.entry(place).or_default().push(kind);
    }
    let mut all = Vec::new();
    for ((priority, namespace), mut kinds) in by_namespace {
        kinds.sort_by(|a, b| (a.created, a.first).cmp(&(b.created, b.first)));
        let stopped = after.get(namespace);
        let stopped = stopped.and_then(|last| kinds.iter().position(|kind| kind.first == last));
        kinds.rotate_left(stopped.map_or(0, |at| at + 1));
        all.extend(kinds.into_iter().enumerate().map(|(turn, kind)| (priority, turn, kind)));
    }
    all.sort_by(|a, b| (a.0, a.1, a.2.namespace).cmp(&(b.0, b.1, b.2.namespace)));
    all.into_iter().map(|(_, _, kind)| kind).collect()
}

/// The kinds that wait for room, each with its oldest pod.
fn kinds<'a>(pods: &[Waiting<'a>]) -> Vec<(&'a Arc<Pod>, Kind<'a>)> {
    let mut oldest: BTreeMap<usize, &'a Arc<Pod>> = BTreeMap::new();
    let mut leaving: BTreeSet<usize> = BTreeSet::new();
    let age = |pod: &'a Arc<Pod>| (pod.created, &pod.digest().id);
    for one in pods.iter().filter(|one| one.settled.is_none()) {
        if one.pod.node.is_some() {
            leaving.insert(one.group);
        }
        let first = oldest.entry(one.group).or_insert(one.pod);
        if age(one.pod) < age(first) {
            *first = one.pod;
        }
    }
    let kept = oldest.into_iter().filter(|(group, _)| !leaving.contains(group));
    let kind = |(group, pod): (usize, &'a Arc<Pod>)| {
        let kind = Kind { group, namespace: &pod.namespace, first: &pod.digest().id, created: pod.created };
        (pod, kind)
    };
    kept.map(kind).collect()
}
