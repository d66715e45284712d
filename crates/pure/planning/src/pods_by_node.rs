//! The pods of each node. From one round to the next, the pods of most nodes stay the same. So the sums over
//! a node's pods are kept, and are only computed again if one of the pods has changed.
//!
//! The result depends only on the pods that were passed last, and not on the rounds before.

use std::borrow::Cow;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::learned_allocatable;
use super::nodes_by_name::Named;
use super::priorities::Priorities;
use super::unbound::{Collected, Kept, Unbound, UnboundPod, order};
use super::utilization::Requested;
use model::digest::Digest;
use model::pod::Pod;
use model::workload::PriorityClass;
use model::{Resources, Snapshot};
use scheduling::NodeLoad;
use settings::Config;

/// The pods of a cluster by their nodes.
#[derive(Debug, Default)]
pub(super) struct PodsByNode<'p> {
    /// What decides which pods are expendable: the priority classes, and the cut-off.
    priorities: (Vec<Arc<PriorityClass>>, i32),
    /// All pods, in the order in which they were passed.
    all: Cow<'p, [Arc<Pod>]>,
    /// The pods of `all` that have no node.
    unbound: Unbound,
    /// The pods of each node, by node name. The map may contain names of nodes that do not exist. The order
    /// of the entries has no effect.
    nodes: HashMap<String, NodePods, FixedState>,
    /// The entry for nodes without pods.
    none: NodePods,
}

/// The pods of one node, with the sums and lists that decisions need.
#[derive(Debug, Default)]
pub(super) struct NodePods {
    /// Pods that are not expendable, in order of their names.
    pub bound: Arc<Vec<Arc<Pod>>>,
    /// Expendable pods, in order of their names. They occupy no room, but may keep their node.
    pub expendable: Vec<Arc<Pod>>,
    /// The room that the pods in `bound` occupy.
    pub load: NodeLoad,
    /// The CPU and memory that the pods in `bound` request.
    pub requested: Requested,
    /// What the node's static pods request, if it has any.
    pub statics: Option<Resources>,
    /// Pods with annotations that the planner reads.
    pub annotated: Vec<Arc<Pod>>,
    /// Pods of DaemonSets.
    pub daemons: Vec<Arc<Pod>>,
    /// Pods in `bound` whose placement depends on other pods, for example because of anti-affinity.
    pub asking: Vec<Arc<Pod>>,
    /// Pods that were added since the sums were last computed.
    new: Vec<Arc<Pod>>,
    /// Whether a pod was removed since the sums were last computed.
    is_stale: bool,
}

impl PodsByNode<'static> {
    /// Replaces the pods. `snapshot` contains the priority classes. If both the old and the new list are
    /// ordered by `namespace/name`, only pods that have changed are looked at.
    pub(super) fn update(&mut self, pods: &[Arc<Pod>], snapshot: &Snapshot, config: &Config) {
        let priorities = (snapshot.priority_classes.clone(), config.scale_up.expendable_pods_priority_cutoff);
        if self.priorities != priorities {
            *self = Self { priorities, ..Self::default() };
        }
        let usual = usual(pods, snapshot);
        let before = std::mem::take(&mut self.all).into_owned();
        let mut kept = Kept::new(std::mem::take(&mut self.unbound), before.len());
        let mut before = before.into_iter().enumerate().peekable();
        let (mut all, mut new) = (Vec::with_capacity(pods.len()), Collected::default());
        for pod in pods {
            let is_gone = |known: &Arc<Pod>| !Arc::ptr_eq(known, pod) && known.digest().id <= pod.digest().id;
            while let Some((_, gone)) = before.next_if(|(_, known)| is_gone(known)) {
                self.remove(&gone);
            }
            if let Some((at, known)) = before.next_if(|(_, known)| Arc::ptr_eq(known, pod)) {
                kept.moves(at, all.len());
                all.push(known);
            } else {
                all.push(pod.clone());
                if self.add(pod, usual) {
                    new.push_last(&all, pods.len());
                }
            }
        }
        for (_, gone) in before {
            self.remove(&gone);
        }
        self.unbound = kept.with(new.in_order(&all), &all);
        self.all = Cow::Owned(all);
        self.refresh(snapshot, config);
    }
}

impl<'p> PodsByNode<'p> {
    /// Groups these pods by node. `snapshot` contains the priority classes.
    pub(super) fn new(pods: &'p [Arc<Pod>], snapshot: &Snapshot, config: &Config) -> Self {
        let mut new = Self { all: Cow::Borrowed(pods), ..Self::default() };
        new.nodes.reserve(snapshot.nodes.len());
        let (usual, mut unbound) = (usual(pods, snapshot), Collected::default());
        for (at, pod) in pods.iter().enumerate() {
            if new.add(pod, usual) {
                unbound.push_last(&pods[..=at], pods.len());
            }
        }
        new.unbound = unbound.in_order(pods);
        new.refresh(snapshot, config);
        new
    }

    /// Updates the sums of nodes whose pods have changed.
    fn refresh(&mut self, snapshot: &Snapshot, config: &Config) {
        let priorities = Priorities::new(snapshot, config);
        self.nodes.retain(|_, node| {
            node.refresh(&priorities);
            !node.is_empty()
        });
    }

    /// Adds a pod to its node. Returns whether the pod has no node. `usual` is the number of pods that a new
    /// node gets room for.
    fn add(&mut self, pod: &Arc<Pod>, usual: usize) -> bool {
        // The digest is needed anyway, so for a pending pod nothing else is fetched from memory.
        if pod.digest().marks.waits {
            return true;
        }
        let Some(name) = pod.node.as_deref() else { return true };
        let node = self.nodes.entry_ref(name).or_insert_with(|| NodePods::with_room(usual));
        node.new.push(pod.clone());
        false
    }

    /// Removes a pod from its node, if it has one.
    fn remove(&mut self, pod: &Arc<Pod>) {
        if let Some(node) = pod.node.as_deref().and_then(|name| self.nodes.get_mut(name)) {
            node.remove(pod);
        }
    }

    /// All pods, in the order in which they were passed.
    pub(super) fn all(&self) -> &[Arc<Pod>] {
        &self.all
    }

    /// The pods that have no node, in order of their names.
    pub(super) fn unbound(&self) -> impl ExactSizeIterator<Item = UnboundPod<'_>> {
        self.unbound.of(&self.all)
    }

    /// The pods of a node.
    pub(super) fn on(&self, node: &str) -> &NodePods {
        self.nodes.get(node).unwrap_or(&self.none)
    }

    /// The entry for nodes without pods.
    pub(super) fn on_none(&self) -> &NodePods {
        &self.none
    }

    /// The pods whose nodes are not among these, grouped by node and ordered by node name.
    pub(super) fn elsewhere(&self, nodes: &Named) -> Vec<(&str, &NodePods)> {
        let others = self.nodes.iter().map(|(name, node)| (name.as_str(), node));
        let mut others: Vec<_> = others.filter(|(name, _)| nodes.find(name).is_none()).collect();
        others.sort_by_key(|(name, _)| *name);
        others
    }
}

impl NodePods {
    fn with_room(count: usize) -> Self {
        Self { new: Vec::with_capacity(count), ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.expendable.is_empty()
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        for pods in [Arc::make_mut(&mut self.bound), &mut self.expendable] {
            if let Some(at) = pods.iter().position(|one| Arc::ptr_eq(one, pod)) {
                pods.remove(at);
                self.is_stale = true;
                return;
            }
        }
    }

    /// Adds up the pods, if they have changed.
    fn refresh(&mut self, priorities: &Priorities) {
        if !self.is_stale && self.new.is_empty() {
            return;
        }
        let mut pods = Arc::unwrap_or_clone(std::mem::take(&mut self.bound));
        pods.append(&mut self.expendable);
        if pods.is_empty() {
            pods = std::mem::take(&mut self.new);
        } else {
            pods.append(&mut self.new);
        }
        sort(&mut pods);
        let having = |is: fn(&Digest) -> bool| pods.iter().filter(move |pod| is(pod.digest())).cloned();
        let (annotated, daemons) = (
            having(|digest| digest.marks.annotated).collect(),
            having(|digest| digest.marks.daemon).collect(),
        );
        let statics = learned_allocatable::static_requests(&pods);
        let expendable = pods.extract_if(.., |pod| priorities.expendable(pod)).collect();
        let bound = Arc::new(pods);
        let placed = if bound.iter().any(|pod| pod.is_finished()) {
            Arc::new(bound.iter().filter(|pod| !pod.is_finished()).cloned().collect())
        } else {
            bound.clone()
        };
        *self = Self {
            load: NodeLoad::new(placed),
            requested: Requested::by(&bound),
            asking: bound.iter().filter(|pod| pod.looks().is_some()).cloned().collect(),
            bound,
            expendable,
            statics,
            annotated,
            daemons,
            new: Vec::new(),
            is_stale: false,
        };
    }
}

/// Nodes usually run fewer pods than this (110, if the kubelet's `maxPods` is not set).
const MOST_USUAL: usize = 128;

/// The number of pods on a node, if all pods were spread evenly over the nodes, but not many more than a node
/// usually runs.
fn usual(pods: &[Arc<Pod>], snapshot: &Snapshot) -> usize {
    (pods.len() / snapshot.nodes.len().max(1) + 1).min(MOST_USUAL)
}

/// Sorts pods by name, and by uid among pods of the same name.
fn sort(pods: &mut [Arc<Pod>]) {
    pods.sort_by(order);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use model::pod::PodPhase;
    use proptest::prelude::*;
    use settings::Needs;

    /// Pods with and without a node, some expendable or finished, in two namespaces.
    fn pods() -> Vec<Arc<Pod>> {
        let pod = |number: usize| {
            let mut pod = Pod { name: format!("p{:02}", number % 20), ..Pod::default() };
            pod.uid = format!("u{number}");
            // By namespace, `app` comes before `app-db`. As texts, `app-db/p` comes before `app/p`.
            pod.namespace = if number.is_multiple_of(3) { "app-db" } else { "app" }.to_owned();
            pod.node = ["a", "b", "c"].get(number % 4).map(|&name| name.to_owned());
            pod.phase = if number.is_multiple_of(5) { PodPhase::Failed } else { PodPhase::Running };
            pod.priority = number.is_multiple_of(7).then_some(-1000);
            pod.requests = Resources { cpu_milli: 1 << number, pods: 1, ..Resources::default() };
            Arc::new(pod)
        };
        (0..24).map(pod).collect()
    }

    /// Everything that is known about the pods, with the nodes sorted by name.
    fn known(pods: &PodsByNode) -> String {
        let nodes: BTreeMap<&String, &NodePods> = pods.nodes.iter().collect();
        let unbound: Vec<_> = pods.unbound().collect();
        format!("{:?}\n{unbound:?}\n{nodes:?}", pods.all)
    }

    proptest! {
        #[test]
        fn what_is_known_does_not_depend_on_the_rounds_before(
            rounds in prop::collection::vec(prop::collection::vec(0_usize..24, 0..40), 1..5),
            sorted in prop::collection::vec(any::<bool>(), 5),
        ) {
            let config = settings::parse("test", "", Needs::Plan).unwrap();
            let (snapshot, all) = (Snapshot::default(), pods());
            let mut pods = PodsByNode::default();
            for (mut round, is_sorted) in rounds.into_iter().zip(sorted) {
                if is_sorted {
                    round.sort_unstable();
                    round.dedup();
                }
                let listed: Vec<Arc<Pod>> = round.into_iter().map(|number| all[number].clone()).collect();
                pods.update(&listed, &snapshot, &config);
                prop_assert_eq!(known(&pods), known(&PodsByNode::new(&listed, &snapshot, &config)));
            }
        }
    }
}
