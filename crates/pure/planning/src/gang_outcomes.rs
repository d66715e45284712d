//! Gangs whose pods are not expected to be placed now, even though the planner found that they fit.
//! kube-scheduler either cannot place them at present or does not look at them.

use std::collections::{BTreeMap, BTreeSet};

use super::gangs::{Key, key};
use model::Snapshot;
use model::gang::PodGroup;
use model::plan::Plan;

/// The gangs that are not expected to be placed now, by namespace and name of their PodGroups.
#[derive(Default)]
pub(super) struct GangOutcomes<'a> {
    /// Gangs that cannot start: too few of their pods run or fit existing nodes, so kube-scheduler refuses
    /// all of their pods until there is more room. Also contains gangs whose PodGroup does not exist or is
    /// part of another group.
    pub split: BTreeSet<Key<'a>>,
    /// Gangs whose pods kube-scheduler might not look at: the PodGroup does not exist yet, has fewer pods
    /// than its minimum, or is part of another group.
    pub unlooked: BTreeSet<Key<'a>>,
}

/// Counts of the pods of a PodGroup.
#[derive(Default)]
struct Counts {
    /// How many pods kube-scheduler counts towards the minimum: running pods, and pending pods without a
    /// scheduling gate.
    there: i64,
    /// How many pods run or fit existing nodes.
    placed: i64,
    /// Whether one of the pods has no place because of a missed prediction.
    missed: bool,
}

impl<'a> GangOutcomes<'a> {
    /// `fits` are the pods that fit a ready node, by namespace and name.
    pub(super) fn of(snapshot: &'a Snapshot, plan: &Plan, fits: &BTreeSet<&str>) -> Self {
        let Some(groups) = &snapshot.pod_groups else { return Self::default() };
        let missed = plan.pods.iter().filter(|one| one.missed().is_some());
        let missed: BTreeSet<&str> = missed.map(|one| &*one.pod).collect();
        let mut all: BTreeMap<Key, Counts> = BTreeMap::new();
        for pod in &snapshot.pods {
            let Some(key) = key(pod) else { continue };
            let (digest, runs) = (pod.digest(), pod.node.is_some() && !pod.is_finished());
            let id = &*digest.id;
            let counts = all.entry(key).or_default();
            counts.there += i64::from(runs || digest.marks.waits && !digest.marks.gated);
            counts.placed += i64::from(runs || fits.contains(id));
            counts.missed |= missed.contains(id);
        }
        if all.is_empty() {
            return Self::default();
        }
        let groups: BTreeMap<Key, &PodGroup> =
            groups.iter().map(|one| ((one.namespace.as_str(), one.name.as_str()), &**one)).collect();
        let mut outcomes = Self::default();
        for (key, counts) in all {
            let group = groups.get(&key);
            // Without a minimum, or with a minimum of one pod, the pods are placed one by one.
            let minimum = group.and_then(|group| group.minimum).filter(|minimum| *minimum > 1).unwrap_or(0);
            let is_child = group.is_some_and(|group| group.parent.is_some());
            if group.is_none() || is_child || counts.there < minimum {
                outcomes.unlooked.insert(key);
            }
            if group.is_none() || is_child || counts.placed < minimum && !counts.missed {
                outcomes.split.insert(key);
            }
        }
        outcomes
    }
}
