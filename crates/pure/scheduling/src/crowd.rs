//! The pods of a world, counted so that a pod can be checked against all of them without looking at each.
//! Pods with the same namespace, labels and anti-affinity form one kind. The pods of each kind are counted on
//! each node. The pods that an affinity term selects are counted in each domain.
//!
//! All counts are updated when pods are placed or removed. A clone shares all data until the data changes.

use std::sync::Arc;

use super::numbers::Numbers;
use super::pod_topology_spread::Counted;
use super::sim_node::SimNode;
use super::spreads::{Counts, Spreads};
use super::terms::{Namespaces, Terms};
use super::topology::{Domain, Key, Topologies};
use super::world::NodeIndex;
use model::pod::Pod;

/// A kind of pod: the pods of one namespace that have the same labels and anti-affinity. Either all or none
/// of them are being deleted.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// A pod of this kind.
    pub pod: Arc<Pod>,
    /// The numbers of the terms that select the kind's pods.
    about: Arc<Vec<usize>>,
    /// The terms in `about`, and the anti-affinity terms of the kind's pods. Each has the amount that one pod
    /// of the kind adds to the term's count.
    terms: Vec<(usize, Count)>,
    /// The spreads that count the kind's pods, each with the index of the constraint that selects the pods.
    spreads: Vec<(usize, usize)>,
}

/// The nodes that have pods of one kind, each with the number of these pods. Sorted by node.
#[derive(Clone, Debug, Default)]
pub(super) struct Stands(Vec<(NodeIndex, i64)>);

/// For one term, the counts of two groups of pods in each domain: the pods that the term selects, and the
/// pods whose anti-affinity contains the term. Most of these pods belong to both groups, so the counts of
/// both groups are stored together.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// The counts, sorted by domain number. If no domain is missing, a domain's number is its index.
    domains: Vec<(usize, Count)>,
    /// The total of the counts on all nodes that have the label of the term's topology key.
    labelled: Count,
    /// The total of the counts on all nodes, with or without that label.
    all: Count,
}

/// How many pods a term selects, and how many have it in their anti-affinity.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// The number of pods that the term selects.
    meant: i64,
    /// The number of pods whose anti-affinity contains the term.
    owners: i64,
}

/// The parts of a world that are needed to count the world's pods.
#[derive(Clone, Copy)]
pub(super) struct Around<'w> {
    pub nodes: &'w [SimNode],
    pub topologies: &'w Topologies,
    pub namespaces: &'w Namespaces,
    pub terms: &'w Terms,
    pub spreads: &'w Spreads,
}

impl Around<'_> {
    pub(super) fn domain(self, key: &Key, node: NodeIndex) -> Domain {
        self.topologies.of(key, node, self.nodes)
    }
}

/// The pods of a world by kind, with the counts for terms and spreads.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    kinds: Vec<Arc<Kind>>,
    numbers: Arc<Numbers>,
    /// For each kind: the nodes that its pods are on.
    stands: Vec<Arc<Stands>>,
    /// The counts for each term.
    meanings: Vec<Arc<Tally>>,
    /// The counts for each spread, computed when they are first needed.
    pub counts: Counts,
}

impl Crowd {
    pub(super) fn new(around: Around) -> Self {
        let mut crowd = Self::default();
        crowd.learn(around);
        for (at, node) in around.nodes.iter().enumerate() {
            for pod in node.pods.iter() {
                crowd.add(pod, at, 1, around);
            }
            for (pod, count) in &node.copies {
                crowd.add(pod, at, *count, around);
            }
        }
        crowd
    }

    /// A copy with the same kinds, terms and spreads, for a world in which no pods have been placed yet.
    pub(super) fn without_pods(&self) -> Self {
        Self {
            kinds: self.kinds.clone(),
            numbers: self.numbers.clone(),
            stands: vec![Arc::default(); self.kinds.len()],
            meanings: vec![Arc::default(); self.meanings.len()],
            counts: self.counts.without_pods(),
        }
    }

    /// Adds the terms and spreads that were announced since the last call.
    pub(super) fn learn(&mut self, around: Around) {
        let (known, spreads) = (self.meanings.len(), self.counts.len());
        self.meanings.resize_with(around.terms.count(), Arc::default);
        self.counts.grow_to(around.spreads);
        for number in 0..self.kinds.len() {
            let kind = Arc::make_mut(&mut self.kinds[number]);
            let new = (known..around.terms.count())
                .filter(|&term| around.terms.get(term).means(&kind.pod, around.namespaces));
            let new: Vec<usize> = new.collect();
            for &term in &new {
                for &(node, by) in &self.stands[number].0 {
                    let domain = around.domain(&around.terms.get(term).key, node);
                    Arc::make_mut(&mut self.meanings[term]).add(domain, Count { meant: by, owners: 0 });
                }
            }
            if !new.is_empty() {
                kind.terms.extend(new.iter().map(|&term| (term, Count { meant: 1, owners: 0 })));
                Arc::make_mut(&mut kind.about).extend(new);
            }
            for spread in spreads..around.spreads.count() {
                for constraint in around.spreads.constraints_about(spread, &kind.pod) {
                    kind.spreads.push((spread, constraint));
                    self.counts.add_kind((spread, constraint), number);
                }
            }
        }
    }

    /// Adds `by` pods like `pod` to the counts, or removes them if `by` is negative. The pod's own terms must
    /// have been announced.
    pub(super) fn add(&mut self, pod: &Arc<Pod>, node: NodeIndex, by: i64, around: Around) {
        let number = self.number(pod, around);
        Arc::make_mut(&mut self.stands[number]).add(node, by);
        let kind = &*self.kinds[number];
        for &(term, each) in &kind.terms {
            let domain = around.domain(&around.terms.get(term).key, node);
            Arc::make_mut(&mut self.meanings[term]).add(domain, each.times(by));
        }
        for &spread in &kind.spreads {
            self.counts.count(spread, node, by, around);
        }
    }

    fn number(&mut self, pod: &Arc<Pod>, around: Around) -> usize {
        let seen_as = pod.digest().seen_as;
        if let Some(number) = self.numbers.get(seen_as) {
            return number;
        }
        let number = self.kinds.len();
        Arc::make_mut(&mut self.numbers).get_or_insert(seen_as, number);
        let spreads = around.spreads.about(pod);
        for &spread in &spreads {
            self.counts.add_kind(spread, number);
        }
        let about = around.terms.about(pod, around.namespaces);
        let repels = around.terms.own(pod).map_or(&[][..], |own| &own.anti);
        self.kinds.push(Arc::new(Kind {
            pod: pod.clone(),
            terms: each(&about, repels),
            about: Arc::new(about),
            spreads,
        }));
        self.stands.push(Arc::default());
        number
    }

    /// The terms that select the pod.
    pub(super) fn about(&self, pod: &Pod, around: Around) -> Arc<Vec<usize>> {
        match self.numbers.get(pod.digest().seen_as) {
            Some(number) => self.kinds[number].about.clone(),
            None => Arc::new(around.terms.about(pod, around.namespaces)),
        }
    }

    /// Whether the anti-affinity of another pod selects `pod`.
    pub(super) fn repels(&self, pod: &Pod, around: Around) -> bool {
        self.about(pod, around).iter().any(|&term| self.has_owner(term))
    }

    /// The counts for a spread.
    pub(super) fn spread(&self, number: usize, around: Around) -> Arc<Vec<Counted>> {
        self.counts.of(number, &self.stands, around)
    }

    /// Whether `counted` is the world's own count for the spread, and not a copy of it.
    pub(super) fn shares(&self, number: usize, counted: &Arc<Vec<Counted>>) -> bool {
        self.counts.shares(number, counted)
    }

    /// The kinds that have pods in the world, each with the nodes that these pods are on.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&Kind, &Stands)> {
        let all = self.kinds.iter().zip(&self.stands).map(|(kind, stands)| (&**kind, &**stands));
        all.filter(|(_, stands)| !stands.0.is_empty())
    }

    /// Whether any pod in the world has anti-affinity that contains the term.
    pub(super) fn has_owner(&self, term: usize) -> bool {
        self.meanings[term].all.owners > 0
    }

    /// Whether any node with the term's label has a pod that the term selects.
    pub(super) fn is_met_anywhere(&self, term: usize) -> bool {
        self.meanings[term].labelled.meant > 0
    }

    /// Whether this domain has a pod that the term selects.
    pub(super) fn is_met(&self, term: usize, domain: Domain) -> bool {
        self.meanings[term].at(domain).meant > 0
    }

    /// Whether this domain has a pod whose anti-affinity contains the term.
    pub(super) fn is_owned(&self, term: usize, domain: Domain) -> bool {
        self.meanings[term].at(domain).owners > 0
    }
}

impl Stands {
    fn add(&mut self, node: NodeIndex, by: i64) {
        match self.0.binary_search_by_key(&node, |one| one.0) {
            Ok(place) => {
                self.0[place].1 += by;
                if self.0[place].1 <= 0 {
                    self.0.remove(place);
                }
            }
            Err(place) if by > 0 => self.0.insert(place, (node, by)),
            Err(_) => {}
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeIndex, i64)> {
        self.0.iter().copied()
    }
}

/// The amounts that a pod adds to the counts of the terms that select it and of its own anti-affinity terms.
fn each(about: &[usize], repels: &[usize]) -> Vec<(usize, Count)> {
    let meant = about.iter().map(|&term| (term, Count { meant: 1, owners: 0 }));
    let mut all: Vec<(usize, Count)> = meant.collect();
    for &term in repels {
        match all.iter_mut().find(|one| one.0 == term) {
            Some((_, count)) => count.owners += 1,
            None => all.push((term, Count { meant: 0, owners: 1 })),
        }
    }
    all
}

impl Count {
    fn times(self, by: i64) -> Self {
        Self { meant: self.meant * by, owners: self.owners * by }
    }

    fn add(&mut self, by: Self) {
        self.meant += by.meant;
        self.owners += by.owners;
    }
}

impl Tally {
    fn add(&mut self, domain: Domain, by: Count) {
        self.all.add(by);
        let Domain::Known(number) = domain else { return };
        self.labelled.add(by);
        match self.place(number) {
            Ok(place) => self.domains[place].1.add(by),
            Err(place) => self.domains.insert(place, (number, by)),
        }
    }

    fn place(&self, number: usize) -> Result<usize, usize> {
        match self.domains.get(number) {
            Some((one, _)) if *one == number => Ok(number),
            _ => self.domains.binary_search_by_key(&number, |one| one.0),
        }
    }

    fn at(&self, domain: Domain) -> Count {
        let Domain::Known(number) = domain else { return Count::default() };
        self.place(number).map_or_else(|_| Count::default(), |place| self.domains[place].1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop};
    use proptest::{prop_assert_eq, prop_oneof, proptest};

    use super::super::terms::matches;
    use super::super::world::World;
    use super::*;
    use model::Snapshot;
    use model::node::Node;
    use model::pod::{PodAffinityTerm, SpreadConstraint};
    use model::pod_spec::PodSpec;
    use model::selector::{LabelSelector, Operator, Requirement};

    const KEYS: [&str; 3] = ["host", "zone", "rack"];

    fn selector() -> impl Strategy<Value = Option<LabelSelector>> {
        let requirement = (prop::sample::select(vec!["app", "tier"]), any::<bool>(), "[ab]").prop_map(
            |(key, is_in, value)| {
                let operator = if is_in { Operator::In } else { Operator::NotIn };
                Requirement { key: key.to_owned(), operator, values: vec![value] }
            },
        );
        let some = prop::collection::vec(requirement, 0..3)
            .prop_map(|requirements| Some(LabelSelector { requirements }));
        prop_oneof![1 => Just(None), 9 => some]
    }

    fn term() -> impl Strategy<Value = PodAffinityTerm> {
        (selector(), prop::sample::select(&KEYS), any::<bool>()).prop_map(|(selector, key, elsewhere)| {
            PodAffinityTerm {
                selector,
                namespaces: if elsewhere { vec!["b".to_owned()] } else { Vec::new() },
                namespace_selector: None,
                topology_key: (*key).to_owned(),
                match_label_keys: Vec::new(),
                mismatch_label_keys: Vec::new(),
            }
        })
    }

    fn constraint() -> impl Strategy<Value = SpreadConstraint> {
        (selector(), prop::sample::select(&KEYS), any::<bool>(), 1..3_i32).prop_map(
            |(selector, key, honor_node_taints, min_domains)| SpreadConstraint {
                max_skew: 1,
                min_domains,
                topology_key: (*key).to_owned(),
                hard: true,
                selector,
                match_label_keys: vec!["tier".to_owned()],
                honor_node_affinity: true,
                honor_node_taints,
            },
        )
    }

    fn pod() -> impl Strategy<Value = Arc<Pod>> {
        let terms = || prop::collection::vec(term(), 0..2);
        let labels = prop::collection::btree_map("app|tier", "[ab]", 0..3);
        ("[ab]", labels, terms(), terms(), prop::collection::vec(constraint(), 0..2)).prop_map(
            |(namespace, labels, pods, anti, spread)| {
                let spec = PodSpec { namespace, labels, spread, ..PodSpec::default() };
                let mut pod = Pod { spec: spec.into(), ..Pod::default() };
                (pod.affinity.pods, pod.affinity.anti) = (pods, anti);
                pod.requests.pods = 1;
                Arc::new(pod)
            },
        )
    }

    fn node(number: usize) -> Arc<Node> {
        let mut node = Node { name: format!("n{number}"), ..Node::default() };
        node.allocatable.pods = 100;
        node.labels.insert("host".to_owned(), node.name.clone());
        node.labels.insert("zone".to_owned(), format!("z{}", number % 2));
        if !number.is_multiple_of(3) {
            node.labels.insert("rack".to_owned(), format!("r{}", number % 3));
        }
        Arc::new(node)
    }

    /// A change to a world, or a query.
    #[derive(Clone, Debug)]
    enum Step {
        Place(usize, usize),
        Remove(usize, usize),
        Close(usize),
        Open(usize),
        Forget(usize),
        Add,
        Ask(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (pods, nodes) = (0..8_usize, 0..6_usize);
        prop_oneof![
            4 => (pods.clone(), nodes.clone()).prop_map(|(pod, node)| Step::Place(pod, node)),
            2 => (pods.clone(), nodes.clone()).prop_map(|(pod, node)| Step::Remove(pod, node)),
            1 => nodes.clone().prop_map(Step::Close),
            1 => nodes.clone().prop_map(Step::Open),
            1 => nodes.prop_map(Step::Forget),
            1 => Just(Step::Add),
            2 => pods.prop_map(Step::Ask),
        ]
    }

    /// Returns a world after the given steps. Queries among the steps run only if `asks` is true.
    fn world(pods: &[Arc<Pod>], steps: &[Step], announced: usize, asks: bool) -> World {
        let mut world = World::without_pods(&Snapshot::default());
        for number in 0..6 {
            world.add_node(node(number));
        }
        for pod in &pods[..announced] {
            world.announce(pod);
        }
        let mut copy = None;
        for step in steps {
            match *step {
                Step::Place(pod, at) => world.place(&pods[pod], at),
                Step::Remove(pod, at) => world.remove(&pods[pod], at),
                Step::Close(at) => world.close(at),
                Step::Open(at) => world.open(at),
                Step::Forget(at) => world.forget(at),
                Step::Add => _ = world.add_node(node(world.nodes().len())),
                Step::Ask(pod) if asks => {
                    world.prepare(&pods[pod]);
                    // As long as this copy shares the counts with the world, the next change to the world has
                    // to copy the counts first.
                    copy = Some(world.clone());
                }
                Step::Ask(_) => {}
            }
        }
        drop(copy);
        world
    }

    /// Whether anti-affinity keeps the pod off the node. Each pod in the world is checked separately.
    fn kept_off(world: &World, pod: &Pod, at: NodeIndex) -> bool {
        let here = &world.node(at).node.labels;
        let namespaces = world.around().namespaces;
        let speaks = |owner: &Pod, other: &Pod, there: &SimNode| {
            owner.affinity.anti.iter().any(|term| {
                let value = here.get(&term.topology_key);
                value.is_some()
                    && value == there.node.labels.get(&term.topology_key)
                    && matches(term, &owner.namespace, other, namespaces)
            })
        };
        let mut all = world.nodes().iter().flat_map(|node| node.pods.iter().map(move |one| (node, one)));
        all.any(|(node, one)| speaks(pod, one, node) || speaks(one, pod, node))
    }

    proptest! {
        #[test]
        fn what_is_kept_up_is_what_is_counted_from_nothing(
            pods in prop::collection::vec(pod(), 8),
            steps in prop::collection::vec(step(), 1..40),
            announced in 0..8_usize,
        ) {
            let kept = world(&pods, &steps, announced, true);
            let counted = world(&pods, &steps, pods.len(), false);
            for pod in &pods {
                let (a, b) = (kept.prepare(pod), counted.prepare(pod));
                for at in 0..kept.nodes().len() {
                    prop_assert_eq!(kept.check(&a, at), counted.check(&b, at), "{:?} on {}", pod, at);
                    prop_assert_eq!(kept.keeps_off(&a, at), kept_off(&kept, pod, at), "{:?} on {}", pod, at);
                }
            }
        }

        #[test]
        fn a_world_beside_counts_what_one_from_nothing_does(
            pods in prop::collection::vec(pod(), 8),
            steps in prop::collection::vec(step(), 1..40),
            places in prop::collection::vec(0..4_usize, 8),
        ) {
            let snapshot = Snapshot { nodes: (1..5).map(node).collect(), ..Snapshot::default() };
            let mut beside = world(&pods, &steps, 4, true).without_pods_beside(&snapshot);
            let mut fresh = World::without_pods(&snapshot);
            for (pod, &at) in pods.iter().zip(&places) {
                beside.place(pod, at);
                fresh.place(pod, at);
            }
            for pod in &pods {
                let (a, b) = (beside.prepare(pod), fresh.prepare(pod));
                for at in 0..4 {
                    prop_assert_eq!(beside.check(&a, at), fresh.check(&b, at), "{:?} on {}", pod, at);
                    prop_assert_eq!(beside.keeps_off(&a, at), kept_off(&fresh, pod, at));
                }
            }
        }
    }
}
