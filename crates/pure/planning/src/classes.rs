//! Classes: pods that are equal but for their names are handled together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::allowance::Allowance;
use super::pending::{Priorities, Waiting};
use super::predictions::Hold;
use super::stock::Met;
use super::verdict::Spot;
use model::Resources;
use model::digest::Fingerprint;
use model::features::Features;
use model::pod::{Pod, Toleration};
use model::selector::{Labels, NodeSelector};
use scheduling::{EXPRESSION, SimNode, World};

/// Pods that are equal but for their names.
#[derive(Clone, Debug)]
pub(super) struct Class<'a> {
    /// One of them.
    pub sample: &'a Arc<Pod>,
    /// Their places in the list of waiting pods, in its order.
    pub pods: Vec<usize>,
    pub priority: i32,
    /// How many are placed: the first ones.
    pub done: usize,
    /// Which pools' nodes they accept, by the pools' order, whatever room is there: a row of [`Demands`].
    pub demands: usize,
    /// What a missed prediction keeps from them.
    pub hold: Option<Arc<Hold>>,
    /// Not all nodes that are there were asked: no machine is made for them before that.
    pub cut: bool,
}

impl Class<'_> {
    pub(super) fn left(&self) -> usize {
        self.pods.len() - self.done
    }
}

/// What classes demand of labels and taints, and which pools meet it.
#[derive(Debug, Default)]
pub(super) struct Demands {
    pub suits: Vec<Vec<bool>>,
    /// The same by pool.
    pub met: Vec<Met>,
    /// By pool, the first one whose fresh nodes no plain pod tells apart from its own.
    pub twins: Vec<usize>,
}

impl Demands {
    /// To be called once all rows are known.
    pub(super) fn compare(&mut self, prototypes: &[SimNode]) {
        let column = |pool: usize| self.suits.iter().map(|row| row[pool]).collect();
        self.met = (0..prototypes.len()).map(|pool| Met::new(column(pool))).collect();
        let mut firsts: BTreeMap<(&Met, Resources, &Resources), usize> = BTreeMap::new();
        let same =
            prototypes.iter().zip(&self.met).map(|(one, met)| (met, one.free(), &one.node.allocatable));
        self.twins = same.enumerate().map(|(pool, key)| *firsts.entry(key).or_insert(pool)).collect();
    }
}

/// Pods that are equal but for their names share a number.
#[derive(Default)]
pub(super) struct Groups<'a> {
    numbers: BTreeMap<Fingerprint, usize>,
    samples: Vec<&'a Arc<Pod>>,
    /// By group: whether its pods are expendable.
    expendable: Vec<bool>,
    last: Option<(Fingerprint, usize)>,
}

impl<'a> Groups<'a> {
    /// The number of the pod's group, and whether its pods are expendable.
    pub(super) fn number(&mut self, pod: &'a Arc<Pod>, priorities: &Priorities) -> (usize, bool) {
        let class = pod.digest().class;
        // Pods of one owner mostly come one after the other.
        if let Some((_, number)) = self.last.filter(|last| last.0 == class) {
            return (number, self.expendable[number]);
        }
        let next = self.samples.len();
        let number = *self.numbers.entry(class).or_insert(next);
        if number == next {
            self.samples.push(pod);
            self.expendable.push(priorities.expendable(pod));
        }
        self.last = Some((class, number));
        (number, self.expendable[number])
    }

    /// One pod of each group.
    pub(super) fn samples(&self) -> &[&'a Arc<Pod>] {
        &self.samples
    }
}

/// The classes of what is still waiting: by priority, largest first, then in the pods' order.
pub(super) fn of<'a>(
    pods: &[Waiting],
    spots: &[Spot],
    samples: &[&'a Arc<Pod>],
    priorities: &Priorities,
    (world, prototypes): (&World, &[SimNode]),
    allowance: &Allowance,
) -> (Vec<Class<'a>>, Demands) {
    let open = || {
        let all = pods.iter().zip(spots).enumerate();
        all.filter(|(_, (waiting, spot))| waiting.settled.is_none() && **spot == Spot::None)
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

/// How large amounts are: their parts of the largest of these CPUs and memories, summed, in millionths.
pub(super) fn largest_share<'r, I>(all: I) -> impl Fn(&Resources) -> i64 + use<I>
where
    I: Iterator<Item = &'r Resources> + Clone,
{
    let most = |of: fn(&Resources) -> i64| all.clone().map(of).max().unwrap_or(0).max(1);
    let (most_cpu, most_memory) = (most(|one| one.cpu_milli), most(|one| one.memory));
    let part = |amount: i64, most: i64| {
        i64::try_from(i128::from(amount) * 1_000_000 / i128::from(most)).unwrap_or(i64::MAX / 2)
    };
    move |requests| part(requests.cpu_milli, most_cpu) + part(requests.memory, most_memory)
}

/// How many expressions a node's labels have to meet.
fn expressions(pod: &Pod) -> usize {
    let terms = pod.affinity.node.iter().flat_map(|node| &node.terms);
    terms.map(|term| term.match_expressions.len()).sum()
}

/// What a pod demands of a node's labels, taints and kubelet.
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
