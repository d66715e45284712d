//! Gangs: kube-scheduler places the pods of a PodGroup only once there is room for its minimum. So machines
//! are created for the whole minimum or not at all.
//!
//! * Pods with a node count towards the minimum, as they do for kube-scheduler (`PlacementFeasible` of its
//!   plugin `GangScheduling`). Once the pods with a node reach the minimum, the others are placed one by one.
//! * The plugin does not look at the pods of a gang before the PodGroup and the minimum number of pods exist,
//!   so no machine is created before that either.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use super::allowance::Allowance;
use super::class::Class;
use super::priorities::Priorities;
use super::view::View;
use super::waiting::Waiting;
use model::gang::{GangReason, GangWait, PodGroup};
use model::plan::{PodOutcome, WhyPending};
use model::pod::Pod;
use model::prediction::kind;

/// When one kind of a gang's pods has its turn, the gang's other kinds are looked at too, before their own
/// turns. If more kinds than this would be looked at early, the whole gang is postponed until it is the turn
/// of its oldest pod's kind.
const KINDS: usize = 16;

/// Pending gangs, in the order of their turns.
#[derive(Default)]
pub(super) struct Gangs<'a> {
    pub all: Vec<Gang<'a>>,
    /// For each pod of a gang, by its index in the list of pending pods, the index of the gang in `all`.
    of_pod: BTreeMap<usize, usize>,
    /// For each pod that is pending because of its gang, the reason. The key is the pod's index in the list
    /// of pending pods.
    waits: BTreeMap<usize, Arc<WhyPending>>,
}

/// A gang that has fewer pods on nodes than its minimum.
pub(super) struct Gang<'a> {
    group: &'a PodGroup,
    pub minimum: usize,
    /// How many of the gang's pods have a node.
    pub bound: usize,
    /// The gang's pods without a node, by their indexes in the list of pending pods.
    pub members: Vec<usize>,
    /// Whether the gang is tried separately.
    pub apart: bool,
}

/// Namespace and name of a PodGroup.
pub(super) type Key<'a> = (&'a str, &'a str);

/// The pods of a PodGroup.
#[derive(Default)]
struct Members<'a> {
    /// The group's pending pods, by their indexes in the list of pending pods.
    waiting: Vec<usize>,
    bound: Vec<&'a Pod>,
}

impl<'a> Gangs<'a> {
    /// Finds the gangs among the pending pods. Settles the pods of gangs that wait for something other than
    /// room.
    pub(super) fn find(view: &View<'a>, pods: &mut [Waiting<'a>], priorities: &Priorities) -> Self {
        let mut gangs = Self::default();
        let Some(groups) = &view.snapshot.pod_groups else { return gangs };
        let members = members(view, pods);
        if members.is_empty() {
            return gangs;
        }
        view.allowance.spend(view.pods.len() + 10 * groups.len());
        let groups: BTreeMap<Key, &PodGroup> =
            groups.iter().map(|one| ((one.namespace.as_str(), one.name.as_str()), &**one)).collect();
        for ((namespace, name), members) in members {
            let Some(group) = groups.get(&(namespace, name)) else {
                let message =
                    format!("kube-scheduler is waiting for the pod's PodGroup `{namespace}/{name}`");
                gangs.settle(pods, &members.waiting, waits(namespace, name, GangReason::NoPodGroup, message));
                continue;
            };
            let refused = unsupported(group).map(|why| (GangReason::NotSupported, why));
            let refused = refused.or_else(|| {
                mismatch(group, &members, pods, priorities).map(|why| (GangReason::Mismatch, why))
            });
            if let Some((reason, why)) = refused {
                gangs.settle(pods, &members.waiting, waits(namespace, name, reason, why));
            } else if let Some(minimum) = group.minimum {
                let minimum = usize::try_from(minimum).unwrap_or(0);
                // A PodGroup with a minimum of one pod is not a gang.
                if minimum > 1 && members.bound.len() < minimum {
                    gangs.add(Gang::new(group, minimum, members), pods, &view.allowance);
                }
            }
        }
        let first = |gang: &Gang| gang.members.first().map(|&pod| priorities.of(pods[pod].pod));
        gangs.all.sort_by_cached_key(|gang| {
            let PodGroup { created, namespace, name, .. } = gang.group;
            (Reverse(first(gang)), *created, namespace, name)
        });
        for (number, gang) in gangs.all.iter().enumerate() {
            gangs.of_pod.extend(gang.members.iter().map(|&pod| (pod, number)));
        }
        gangs
    }

    /// Why the pod is pending, if it is pending with its gang.
    pub(super) fn waits(&self, pod: usize) -> Option<&Arc<WhyPending>> {
        self.waits.get(&pod)
    }

    /// Adds a gang if enough of its pods exist and may be placed. Otherwise, settles its pods.
    fn add(&mut self, mut gang: Gang<'a>, pods: &mut [Waiting<'a>], allowance: &Allowance) {
        let is_late = |pod: &usize, pods: &[Waiting]| pods[*pod].settled == Some(PodOutcome::Unfinished);
        let late: Vec<usize> = gang.members.iter().copied().filter(|pod| is_late(pod, pods)).collect();
        if !late.is_empty() {
            // The pods of an Indexed Job have different labels, but are of one kind.
            let groups: BTreeMap<usize, usize> = late.iter().map(|&pod| (pods[pod].group, pod)).collect();
            allowance.spend(10 * groups.len());
            let kinds: BTreeSet<String> = groups.into_values().map(|pod| kind(pods[pod].pod)).collect();
            let has_turn = if kinds.len() > KINDS {
                // The kind has its turn some time, unless it is too much for a round by itself.
                first(&gang, pods).is_some_and(|pod| pods[pod].settled.is_none())
            } else {
                gang.members.iter().any(|&pod| pods[pod].settled.is_none())
            };
            let settled = (!has_turn).then_some(PodOutcome::Unfinished);
            for &pod in &late {
                pods[pod].settled = settled;
            }
            if settled.is_some() {
                put_off(pods, &gang.members);
                return;
            }
        }
        let (open, held): (Vec<usize>, Vec<usize>) =
            gang.members.iter().partition(|pod| pods[**pod].settled.is_none());
        let there = gang.bound + open.len();
        gang.members = open;
        if there >= gang.minimum {
            self.all.push(gang);
            return;
        }
        let mut message = format!(
            "its gang needs {} pods, and kube-scheduler waits until they all exist; {there} {} now",
            gang.minimum,
            if there == 1 { "exists" } else { "exist" },
        );
        if let Some(outcome) = held.first().and_then(|&pod| pods[pod].settled) {
            let _ = write!(message, "; {} of its pods cannot be placed ({})", held.len(), outcome.code());
        }
        let PodGroup { namespace, name, .. } = gang.group;
        self.settle(pods, &gang.members, waits(namespace, name, GangReason::TooFewPods, message));
    }

    /// Settles these pods as waiting with their gang, except for pods that are settled already.
    pub(super) fn settle(&mut self, pods: &mut [Waiting], members: &[usize], waits: WhyPending) {
        let waits = Arc::new(waits);
        for &pod in members {
            if pods[pod].settled.is_none() {
                pods[pod].settled = Some(PodOutcome::AwaitsGang);
                self.waits.insert(pod, waits.clone());
            }
        }
    }

    /// Moves the pods of gangs that are tried separately out of the classes. Returns them by gang.
    pub(super) fn take_apart(&self, classes: &mut Vec<Class<'a>>) -> BTreeMap<usize, Vec<Class<'a>>> {
        let mut apart: BTreeMap<usize, Vec<Class<'a>>> = BTreeMap::new();
        if !self.all.iter().any(|gang| gang.apart) {
            return apart;
        }
        let gang = |pod: &usize| self.of_pod.get(pod).copied().filter(|&number| self.all[number].apart);
        for class in classes.iter_mut() {
            let Some(number) = class.pods.iter().find_map(gang) else { continue };
            // Pods of the class that are not members of the gang, because they still run on a node that is
            // being removed, are placed like all other pods.
            let (own, others) = class.pods.iter().partition(|pod| gang(pod).is_some());
            class.pods = own;
            apart.entry(number).or_default().push(class.clone());
            class.pods = others;
        }
        classes.retain(|class| !class.pods.is_empty());
        apart
    }
}

impl<'a> Gang<'a> {
    fn new(group: &'a PodGroup, minimum: usize, members: Members) -> Self {
        Self { group, minimum, bound: members.bound.len(), members: members.waiting, apart: false }
    }

    /// Why the gang waits, copied from an equal gang that found no room either.
    pub(super) fn as_other(&self, other: &WhyPending) -> WhyPending {
        let message = other.gang.as_ref().map(|gang| gang.message.clone()).unwrap_or_default();
        WhyPending { gang: self.without_room(message).gang, ..other.clone() }
    }

    /// Why the gang waits if there is no room for its minimum.
    pub(super) fn without_room(&self, message: String) -> WhyPending {
        waits(&self.group.namespace, &self.group.name, GangReason::NoRoom, message)
    }
}

/// Why the pods of a gang are pending.
fn waits(namespace: &str, name: &str, reason: GangReason, message: String) -> WhyPending {
    let gang = GangWait { group: format!("{namespace}/{name}"), reason, message };
    WhyPending { gang: Some(gang), ..WhyPending::default() }
}

/// Postpones these pods to a later round, except for pods that are settled already.
pub(super) fn put_off(pods: &mut [Waiting], members: &[usize]) {
    for &pod in members {
        if pods[pod].settled.is_none() {
            pods[pod].settled = Some(PodOutcome::Unfinished);
        }
    }
}

/// The oldest of the gang's pods that may be placed in this round or a later one. Kinds with a pod that loses
/// its node are left out, because they are looked at in each round.
fn first(gang: &Gang, pods: &[Waiting]) -> Option<usize> {
    let leaving = gang.members.iter().filter(|&&pod| pods[pod].pod.node.is_some());
    let leaving: BTreeSet<usize> = leaving.map(|&pod| pods[pod].group).collect();
    let may_be_placed = |pod: &usize| {
        let waiting = &pods[*pod];
        matches!(waiting.settled, None | Some(PodOutcome::Unfinished)) && !leaving.contains(&waiting.group)
    };
    let age = |pod: &usize| (pods[*pod].pod.created, &pods[*pod].pod.digest().id);
    gang.members.iter().copied().filter(may_be_placed).min_by(|a, b| age(a).cmp(&age(b)))
}

/// The pods of each PodGroup that has a pending pod.
fn members<'a>(view: &View<'a>, pods: &[Waiting<'a>]) -> BTreeMap<Key<'a>, Members<'a>> {
    let mut all: BTreeMap<Key, Members> = BTreeMap::new();
    let mut moved: BTreeSet<&str> = BTreeSet::new();
    for (index, waiting) in pods.iter().enumerate().filter(|(_, one)| one.listed && !one.pod.chunk) {
        let Some(key) = key(waiting.pod) else { continue };
        all.entry(key).or_default().waiting.push(index);
        // In the simulation, the pod has lost its node.
        moved.extend(waiting.pod.node.is_some().then_some(&*waiting.pod.digest().id));
    }
    if all.is_empty() {
        return all;
    }
    for pod in view.pods.iter().filter(|pod| pod.node.is_some() && !pod.is_finished()) {
        let members = key(pod).and_then(|key| all.get_mut(&key));
        if let Some(members) = members.filter(|_| !moved.contains(&*pod.digest().id)) {
            members.bound.push(pod);
        }
    }
    all
}

/// The PodGroup that a pod names.
pub(super) fn key(pod: &Pod) -> Option<Key<'_>> {
    Some((pod.namespace.as_str(), pod.scheduling_group.as_deref()?))
}

/// The requirement of a PodGroup that the planner does not support, if any.
fn unsupported(group: &PodGroup) -> Option<String> {
    let what = if let Some(key) = &group.topology {
        format!("requires all of its pods to be on nodes with the same value of the label `{key}`")
    } else if let Some(parent) = &group.parent {
        format!("is part of CompositePodGroup `{parent}`")
    } else if group.shares_claims {
        "has ResourceClaims that its pods share".to_owned()
    } else {
        return None;
    };
    Some(format!("not supported: its PodGroup {what}"))
}

/// Why kube-scheduler would place no pod of the group (`validatePodGroup`).
fn mismatch(
    group: &PodGroup,
    members: &Members,
    pods: &[Waiting],
    priorities: &Priorities,
) -> Option<String> {
    let own = group.priority.unwrap_or(0);
    let waiting = || members.waiting.iter().map(|&pod| &**pods[pod].pod);
    let mut all = waiting().chain(members.bound.iter().copied());
    let first = waiting().next()?;
    let never_preempts = group.never_preempts.unwrap_or(first.never_preempts);
    let other = all.find(|pod| {
        let policy = pod.never_preempts != never_preempts;
        policy || priorities.of(pod) != own || pod.scheduler != first.scheduler
    })?;
    let why = if other.scheduler != first.scheduler {
        format!("pods `{}` and `{}` name different schedulers", first.name, other.name)
    } else if priorities.of(other) != own {
        format!("pod `{}` has priority {}, but its PodGroup has {own}", other.name, priorities.of(other))
    } else if group.never_preempts.is_some() {
        format!("pod `{}` has a different preemptionPolicy from its PodGroup", other.name)
    } else {
        format!("pods `{}` and `{}` have different preemptionPolicies", first.name, other.name)
    };
    Some(format!("kube-scheduler places no pod of its gang: {why}"))
}
