//! Classes: pods that are equal but for their names are handled together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::pending::{Priorities, Waiting};
use super::verdict::Spot;
use crate::model::Resources;
use crate::model::pod::{Affinity, HostPort, Pod, SpreadConstraint, Toleration, VolumeSource};
use crate::model::selector::{Labels, NodeSelector};
use crate::scheduling::{SimNode, World, volume_matters};

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
}

/// Pods that are equal but for their names share a number.
#[derive(Default)]
pub(super) struct Groups<'a> {
    by_key: BTreeMap<Key<'a>, usize>,
    samples: Vec<&'a Arc<Pod>>,
    last: usize,
}

impl<'a> Groups<'a> {
    /// The number of the pod's group.
    pub(super) fn number(&mut self, pod: &'a Arc<Pod>) -> usize {
        // Pods of one owner mostly come one after the other.
        if !self.samples.get(self.last).is_some_and(|sample| alike(sample, pod)) {
            let next = self.samples.len();
            self.last = *self.by_key.entry(Key(pod)).or_insert(next);
            if self.last == next {
                self.samples.push(pod);
            }
        }
        self.last
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
    prototypes: &[SimNode],
) -> (Vec<Class<'a>>, Demands) {
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); samples.len()];
    for (index, (waiting, spot)) in pods.iter().zip(spots).enumerate() {
        if waiting.settled.is_none() && *spot == Spot::None {
            members[waiting.group].push(index);
        }
    }
    let mut demands = Demands::default();
    let mut rows: BTreeMap<Demand, usize> = BTreeMap::new();
    let mut classes = Vec::new();
    for (&sample, pods) in samples.iter().zip(members).filter(|(_, pods)| !pods.is_empty()) {
        let next = demands.suits.len();
        let row = *rows.entry(Demand::of(sample)).or_insert(next);
        if row == next {
            let suits = |one: &SimNode| World::accepts(sample, &one.node);
            demands.suits.push(prototypes.iter().map(suits).collect());
        }
        classes.push(Class { sample, pods, priority: priorities.of(sample), done: 0, demands: row });
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

/// Everything of a pod that scheduling looks at, but for its volumes.
type Traits<'p> = (
    (&'p Resources, &'p str, Option<i32>, &'p str, bool),
    &'p Labels,
    (&'p Labels, &'p Affinity, &'p [Toleration]),
    (&'p [SpreadConstraint], &'p [HostPort]),
);

fn traits(pod: &Pod) -> Traits<'_> {
    (
        (&pod.requests, &pod.namespace, pod.priority, &pod.priority_class, pod.resource_claims),
        &pod.labels,
        (&pod.node_selector, &pod.affinity, &pod.tolerations),
        (&pod.spread, &pod.host_ports),
    )
}

/// The volumes that scheduling looks at; their names do not count. The volume with a pod's token has a name of its own in
/// each pod.
fn volumes(pod: &Pod) -> impl Iterator<Item = &VolumeSource> {
    pod.volumes.iter().filter(|volume| volume_matters(volume)).map(|volume| &volume.source)
}

/// Whether nothing but their names sets two pods apart.
pub(super) fn alike(a: &Pod, b: &Pod) -> bool {
    traits(a) == traits(b) && volumes(a).eq(volumes(b))
}

/// A pod that compares by what scheduling looks at.
struct Key<'p>(&'p Pod);

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        traits(self.0).cmp(&traits(other.0)).then_with(|| volumes(self.0).cmp(volumes(other.0)))
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

/// What a pod demands of a node's labels and taints.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Demand<'p> {
    selector: &'p Labels,
    affinity: &'p Option<NodeSelector>,
    tolerations: &'p [Toleration],
    devices: bool,
}

impl<'p> Demand<'p> {
    fn of(pod: &'p Pod) -> Self {
        Self {
            selector: &pod.node_selector,
            affinity: &pod.affinity.node,
            tolerations: &pod.tolerations,
            devices: pod.resource_claims,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod::Volume;

    fn with_volume(name: &str, source: VolumeSource) -> Pod {
        Pod { volumes: vec![Volume { name: name.to_owned(), source }], ..Pod::default() }
    }

    #[test]
    fn a_token_volume_with_a_name_of_its_own_sets_no_pod_apart() {
        let one = with_volume("kube-api-access-x7k2p", VolumeSource::Other);
        assert!(alike(&one, &with_volume("kube-api-access-9qhzl", VolumeSource::Other)));
        assert!(alike(&one, &Pod::default()));
    }

    #[test]
    fn a_claim_sets_pods_apart() {
        let claim =
            |name: &str| VolumeSource::Claim { name: name.to_owned(), ephemeral: false, read_only: false };
        let one = with_volume("data", claim("data-0"));
        assert!(!alike(&one, &with_volume("data", claim("data-1"))));
        assert!(alike(&one, &with_volume("other-name", claim("data-0"))));
    }
}
