//! The classes of pending pods, and which pools' nodes they accept.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::allowance::Allowance;
use super::class::Class;
use super::dominant_share::largest_share;
use super::pod_place::PodPlace;
use super::priorities::Priorities;
use super::waiting::Waiting;
use super::waiting_stock::Met;
use model::Resources;
use model::features::Features;
use model::pod::{Pod, Toleration};
use model::selector::{Labels, NodeSelector};
use scheduling::{EXPRESSION, SimNode, World};

/// What the classes demand of a node's labels and taints, and which pools meet these demands.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// One row for each distinct set of demands: whether each pool meets these demands.
    pub suits: Vec<Vec<bool>>,
    /// For each pool, which rows of demands it meets: the columns of `suits`.
    pub met: Vec<Met>,
    /// For each pool, the first pool whose fresh nodes look the same to all plain pods.
    pub twins: Vec<usize>,
}

impl Demands {
    /// Fills `met` and `twins`. Call this once all rows of `suits` are known.
    pub(super) fn compare(&mut self, prototypes: &[SimNode]) {
        let column = |pool: usize| self.suits.iter().map(|row| row[pool]).collect();
        self.met = (0..prototypes.len()).map(|pool| Met::new(column(pool))).collect();
        let mut firsts: BTreeMap<(&Met, Resources, &Resources), usize> = BTreeMap::new();
        let same =
            prototypes.iter().zip(&self.met).map(|(one, met)| (met, one.free(), &one.node.allocatable));
        self.twins = same.enumerate().map(|(pool, key)| *firsts.entry(key).or_insert(pool)).collect();
    }
}

/// The classes of pods that are still pending. They are sorted by descending priority, then by descending
/// size, then in the order of the pods.
pub(super) fn of<'a>(
    pods: &[Waiting],
    spots: &[PodPlace],
    samples: &[&'a Arc<Pod>],
    priorities: &Priorities,
    world: &World,
    prototypes: &[SimNode],
    allowance: &Allowance,
) -> (Vec<Class<'a>>, Demands) {
    let open = || {
        let all = pods.iter().zip(spots).enumerate();
        all.filter(|(_, (waiting, spot))| waiting.settled.is_none() && **spot == PodPlace::None)
    };
    let mut sizes = vec![0; samples.len()];
    for (_, (waiting, _)) in open() {
        sizes[waiting.group] += 1;
    }
    let mut members: Vec<Vec<usize>> = sizes.into_iter().map(Vec::with_capacity).collect();
    for (index, (waiting, _)) in open() {
        members[waiting.group].push(index);
    }
    let mut demands = Demands::default();
    let mut rows: BTreeMap<Demand, usize> = BTreeMap::new();
    let mut classes = Vec::new();
    for (&sample, pods) in samples.iter().zip(members).filter(|(_, pods)| !pods.is_empty()) {
        if allowance.is_spent() {
            break;
        }
        let next = demands.suits.len();
        let row = *rows.entry(Demand::of(sample)).or_insert(next);
        if row == next {
            allowance.spend(prototypes.len() * (10 + EXPRESSION * expressions(sample)));
            let suits = |one: &SimNode| world.suits(sample, &one.node);
            demands.suits.push(prototypes.iter().map(suits).collect());
        }
        classes.push(Class {
            sample,
            pods,
            priority: priorities.of(sample),
            done: 0,
            demands: row,
            hold: None,
            cut: false,
        });
    }
    let size = largest_share(prototypes.iter().map(|one| &one.node.allocatable));
    classes.sort_by_cached_key(|class| {
        (Reverse(class.priority), Reverse(size(&class.sample.requests)), class.pods[0])
    });
    (classes, demands)
}

/// How many label expressions the pod's node affinity has.
fn expressions(pod: &Pod) -> usize {
    let terms = pod.affinity.node.iter().flat_map(|node| &node.terms);
    terms.map(|term| term.match_expressions.len()).sum()
}

/// The demands of a pod on a node's labels, taints and kubelet.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Demand<'p> {
    selector: &'p Labels,
    affinity: &'p Option<NodeSelector>,
    tolerations: &'p [Toleration],
    features: Features,
}

impl<'p> Demand<'p> {
    fn of(pod: &'p Pod) -> Self {
        Self {
            selector: &pod.node_selector,
            affinity: &pod.affinity.node,
            tolerations: &pod.tolerations,
            features: pod.features,
        }
    }
}
