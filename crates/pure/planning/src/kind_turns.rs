//! If a round cannot look at all pending pods, chooses the pods to look at. Pods with the highest priority
//! come first. Within a priority, the namespaces take turns, each beginning with its oldest pods, so that no
//! namespace delays the others. The next round continues where this one stopped. A kind of pods that is too
//! much for one round comes after all other kinds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::priorities::Priorities;
use super::view::View;
use super::waiting::Waiting;
use model::plan::PodOutcome;
use model::pod::Pod;
use model::unfinished::PodTurns;

/// Maximum number of turns that are remembered, by priority and namespace. A namespace without a remembered
/// turn begins with its oldest pod.
const PLACES: usize = 500;
/// Maximum number of remembered kinds that are too much for one round.
const HEAVY: usize = 100;

/// The kinds of pods whose turn it is in this round. If the last round was finished, all kinds are looked at
/// and there are no turns.
pub(super) struct KindTurns<'a> {
    /// The kinds that are looked at, in the order of their turns.
    looked_at: Vec<Kind<'a>>,
    /// Whether some kinds have to wait.
    some_wait: bool,
    last: PodTurns,
}

/// A kind of pending pods.
#[derive(Clone, Debug)]
struct Kind<'a> {
    group: usize,
    priority: i32,
    namespace: &'a str,
    /// The id of the kind's oldest pod. `created` is when that pod was created.
    first: &'a str,
    created: Option<Timestamp>,
}

impl Kind<'_> {
    fn place(&self) -> String {
        format!("{}/{}", self.priority, self.namespace)
    }
}

impl<'a> KindTurns<'a> {
    /// Leaves out the kinds that have to wait, if the last round was not finished. Pods that lose their node
    /// are always looked at. Imagined pods are decided after all others.
    pub(super) fn take(view: &View<'a>, pods: &mut [Waiting<'a>], priorities: &Priorities) -> Self {
        let Some(last) = &view.snapshot.memory.unfinished.pods else {
            return Self { looked_at: Vec::new(), some_wait: false, last: PodTurns::default() };
        };
        let kinds = kinds(pods, priorities);
        let mut last = last.clone();
        // Forgets kinds that were too much for one round if the pod by which they are remembered is gone.
        // This makes room for other kinds. If such a kind is still too much for a round, it is remembered
        // again by its new oldest pod.
        last.heavy.retain(|heavy| kinds.iter().any(|kind| kind.first == heavy));
        let mut looked_at = order(kinds, &last);
        let late = looked_at.split_off(looked_at.len().min(last.most.max(1)));
        let groups: BTreeSet<usize> = late.iter().map(|kind| kind.group).collect();
        for pod in pods.iter_mut().filter(|pod| pod.settled.is_none() && groups.contains(&pod.group)) {
            pod.settled = Some(PodOutcome::Unfinished);
        }
        Self { looked_at, some_wait: !late.is_empty(), last }
    }

    /// Whether some kinds have to wait.
    pub(super) fn some_wait(&self) -> bool {
        self.some_wait
    }

    /// Where the next round continues, or `None` if this round was finished. `spent` is true if the allowance
    /// ran out, `kinds` is the number of kinds of pods, and `left` counts the pods that were not looked at.
    pub(super) fn next(self, spent: bool, kinds: usize, left: impl Fn() -> usize) -> Option<PodTurns> {
        if !spent && !self.some_wait {
            return None;
        }
        let mut next = self.last;
        let looked_at = if self.looked_at.is_empty() { kinds } else { self.looked_at.len() };
        let too_much = self.looked_at.first().filter(|_| spent && self.looked_at.len() == 1);
        if let Some(kind) = too_much
            && next.heavy.len() < HEAVY
        {
            next.heavy.insert(kind.first.to_owned());
        }
        if !spent || too_much.is_some() {
            for kind in &self.looked_at {
                next.after.insert(kind.place(), kind.first.to_owned());
                next.last.insert(kind.priority, kind.namespace.to_owned());
            }
        }
        while next.after.len() > PLACES {
            next.after.pop_last();
        }
        while next.last.len() > PLACES {
            next.last.pop_first();
        }
        next.most = if spent { (looked_at / 2).max(1) } else { looked_at.saturating_mul(2) };
        Some(PodTurns { left: left(), ..next })
    }
}

/// The kinds in the order of their turns.
fn order<'a>(kinds: Vec<Kind<'a>>, last: &PodTurns) -> Vec<Kind<'a>> {
    let mut by_place: BTreeMap<(Reverse<i32>, &str), Vec<Kind<'a>>> = BTreeMap::new();
    for kind in kinds {
        by_place.entry((Reverse(kind.priority), kind.namespace)).or_default().push(kind);
    }
    let mut all = Vec::new();
    for ((Reverse(priority), namespace), mut kinds) in by_place {
        kinds.sort_by(|a, b| (a.created, a.first).cmp(&(b.created, b.first)));
        let stopped = kinds.first().and_then(|kind| last.after.get(&kind.place()));
        let stopped = stopped.and_then(|last| kinds.iter().position(|kind| kind.first == last));
        kinds.rotate_left(stopped.map_or(0, |at| at + 1));
        // Turns resume after the namespace that last had one, then wrap around.
        let had_it = last.last.get(&priority).is_some_and(|last| namespace <= last.as_str());
        all.extend(kinds.into_iter().enumerate().map(|(turn, kind)| {
            let heavy = last.heavy.contains(kind.first);
            ((heavy, Reverse(priority), turn, had_it, namespace), kind)
        }));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().map(|(_, kind)| kind).collect()
}

/// The kinds of real pods that are pending for lack of room, each with its oldest pod.
fn kinds<'a>(pods: &[Waiting<'a>], priorities: &Priorities) -> Vec<Kind<'a>> {
    let mut oldest: BTreeMap<usize, &'a Arc<Pod>> = BTreeMap::new();
    let mut leaving: BTreeSet<usize> = BTreeSet::new();
    let age = |pod: &'a Arc<Pod>| (pod.created, &pod.digest().id);
    for one in pods.iter().filter(|one| one.settled.is_none() && !one.pod.chunk) {
        if one.pod.node.is_some() {
            leaving.insert(one.group);
        }
        let first = oldest.entry(one.group).or_insert(one.pod);
        if age(one.pod) < age(first) {
            *first = one.pod;
        }
    }
    let kept = oldest.into_iter().filter(|(group, _)| !leaving.contains(group));
    kept.map(|(group, pod)| Kind {
        group,
        priority: priorities.of(pod),
        namespace: &pod.namespace,
        first: &pod.digest().id,
        created: pod.created,
    })
    .collect()
}
