//! Pods that each need a separate node: how many nodes they need, and what the other pods that can share
//! these nodes need.
//!
//! Which classes cannot share a node follows from the terms of their anti-affinity. Classes that have the
//! same terms, and are selected by the same terms, repel the same classes, so the needs of the repelled
//! classes are summed only once.

use std::collections::{BTreeMap, BTreeSet};

use super::class::Class;
use model::Resources;
use scheduling::World;

/// The needs of pods that repel each other, updated while pods are placed.
pub(super) struct Loners {
    /// The group of each class. Classes that repel the same classes are in the same group.
    group: Vec<usize>,
    groups: Vec<Group>,
    /// By class: the groups whose sums include the class.
    summed_in: Vec<Vec<usize>>,
    /// By class: how many of its pods the sums include.
    waiting: Vec<usize>,
    /// By row of demands: the needs of all classes.
    all: Vec<Resources>,
    /// By term: the classes that have the term.
    owners: BTreeMap<usize, Vec<usize>>,
    /// By term: the classes that the term selects.
    meant: BTreeMap<usize, Vec<usize>>,
}

/// Classes with the same terms, which repel the same classes.
struct Group {
    /// The terms of these classes.
    own: Vec<usize>,
    /// The terms that select these classes.
    about: Vec<usize>,
    /// The needs of the repelled classes, computed when they are first needed.
    sum: Option<Sum>,
}

/// The needs of the classes that a group repels.
struct Sum {
    pods: usize,
    /// By row of demands: the needs of the classes in that row.
    needs: Vec<Resources>,
}

impl Loners {
    /// Sums the needs of all classes. `rows` is the number of rows of their demands.
    pub(super) fn new(classes: &[Class], rows: usize, world: &World) -> Self {
        let mut loners = Self {
            group: Vec::with_capacity(classes.len()),
            groups: Vec::new(),
            summed_in: vec![Vec::new(); classes.len()],
            waiting: classes.iter().map(Class::left).collect(),
            all: vec![Resources::default(); rows],
            owners: BTreeMap::new(),
            meant: BTreeMap::new(),
        };
        let mut known: BTreeMap<(Vec<usize>, Vec<usize>), usize> = BTreeMap::new();
        for (number, class) in classes.iter().enumerate() {
            let (own, about) = world.repels_on_hosts(class.sample);
            for &term in &own {
                loners.owners.entry(term).or_default().push(number);
            }
            for &term in &about {
                loners.meant.entry(term).or_default().push(number);
            }
            let group = *known.entry((own.clone(), about.clone())).or_insert_with(|| {
                loners.groups.push(Group { own, about, sum: None });
                loners.groups.len() - 1
            });
            loners.group.push(group);
            add(&mut loners.all[class.demands], class, times(class.left()));
        }
        loners
    }

    /// Returns two results: the total number of pods, of any class, that this class repels; and, by row of
    /// demands, the needs of the pods that it does not repel.
    pub(super) fn beside(&mut self, class: usize, classes: &[Class]) -> (usize, Vec<Resources>) {
        self.update(class, &classes[class]);
        let number = self.group[class];
        if self.groups[number].sum.is_none() {
            let sum = self.sum(number, classes);
            self.groups[number].sum = Some(sum);
        }
        let mut others = self.all.clone();
        let sum = self.groups[number].sum.as_ref();
        for (left, needs) in others.iter_mut().zip(sum.into_iter().flat_map(|sum| &sum.needs)) {
            left.subtract(needs);
        }
        (sum.map_or(0, |sum| sum.pods), others)
    }

    fn sum(&mut self, group: usize, classes: &[Class]) -> Sum {
        let Group { own, about, .. } = &self.groups[group];
        let meant = own.iter().filter_map(|term| self.meant.get(term)).flatten();
        let owners = about.iter().filter_map(|term| self.owners.get(term)).flatten();
        let repelled: BTreeSet<usize> = meant.chain(owners).copied().collect();
        let mut sum = Sum { pods: 0, needs: vec![Resources::default(); self.all.len()] };
        for number in repelled {
            let class = &classes[number];
            sum.pods += class.left();
            add(&mut sum.needs[class.demands], class, times(class.left()));
            self.summed_in[number].push(group);
        }
        sum
    }

    /// Subtracts the pods of a class that have been placed since the last update.
    pub(super) fn update(&mut self, number: usize, class: &Class) {
        let placed = std::mem::replace(&mut self.waiting[number], class.left()) - class.left();
        add(&mut self.all[class.demands], class, -times(placed));
        for &group in &self.summed_in[number] {
            if let Some(sum) = &mut self.groups[group].sum {
                sum.pods -= placed;
                add(&mut sum.needs[class.demands], class, -times(placed));
            }
        }
    }
}

fn times(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Adds the needs of `times` pods of a class. Only includes the resources by which nodes are chosen.
fn add(sum: &mut Resources, class: &Class, times: i64) {
    let Resources { cpu_milli, memory, pods, .. } = class.sample.requests;
    sum.add_times(&Resources { cpu_milli, memory, pods, ..Resources::default() }, times);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::prop;
    use proptest::{prop_assert_eq, proptest};

    use super::*;
    use model::Snapshot;
    use model::pod::{Pod, PodAffinityTerm};
    use model::selector::{LabelSelector, Operator, Requirement};

    fn apart(app: usize, host: bool) -> PodAffinityTerm {
        let values = vec![app.to_string()];
        let of_app = Requirement { key: "app".to_owned(), operator: Operator::In, values };
        let key = if host { "kubernetes.io/hostname" } else { "zone" };
        PodAffinityTerm {
            selector: Some(LabelSelector { requirements: vec![of_app] }),
            namespaces: Vec::new(),
            namespace_selector: None,
            topology_key: key.to_owned(),
            match_label_keys: Vec::new(),
            mismatch_label_keys: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn what_is_summed_is_what_a_look_at_each_pair_sums(
            all in prop::collection::vec(
                (0..3_usize, prop::collection::vec((0..3_usize, prop::bool::weighted(0.8)), 0..3), 1..4_usize, 0..2_usize),
                1..8,
            ),
            placed in prop::collection::vec((0..8_usize, 0..8_usize), 0..6),
        ) {
            let pods: Vec<Arc<Pod>> = all
                .iter()
                .map(|(app, terms, ..)| {
                    let mut pod = Pod::default();
                    pod.labels.insert("app".to_owned(), app.to_string());
                    pod.affinity.anti = terms.iter().map(|(app, host)| apart(*app, *host)).collect();
                    (pod.requests.cpu_milli, pod.requests.pods) = (1, 1);
                    Arc::new(pod)
                })
                .collect();
            let mut world = World::without_pods(&Snapshot::default());
            for pod in &pods {
                world.announce(pod);
            }
            let mut classes: Vec<Class> = pods
                .iter()
                .zip(&all)
                .map(|(sample, (_, _, count, demands))| Class {
                    sample,
                    pods: (0..*count).collect(),
                    priority: 0,
                    done: 0,
                    demands: *demands,
                    hold: None,
                    cut: false,
                })
                .collect();
            let mut loners = Loners::new(&classes, 2, &world);
            for (asked, taken) in placed {
                let (asked, taken) = (asked % classes.len(), taken % classes.len());
                let (mut nodes, mut others) = (0, vec![Resources::default(); 2]);
                for other in &classes {
                    if world.repel(classes[asked].sample, other.sample) {
                        nodes += other.left();
                    } else {
                        add(&mut others[other.demands], other, times(other.left()));
                    }
                }
                prop_assert_eq!(loners.beside(asked, &classes), (nodes, others));
                classes[taken].done += classes[taken].left().min(1);
                loners.update(taken, &classes[taken]);
            }
        }
    }
}
