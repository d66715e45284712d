//! The pods of each node. From one round to the next, the pods of most nodes stay the same. So the sums over
//! a node's pods are kept, and are only computed again if one of the pods has changed.
//!
//! The result depends only on the pods that were passed last, and not on the rounds before.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::learned_allocatable;
use super::nodes_by_name::Named;
use super::priorities::Priorities;
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
    /// The pods that have no node, in order of their names.
    unbound: Vec<Arc<Pod>>,
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
    /// Whether a pod was added or removed since the sums were last computed.
    is_stale: bool,
}

impl PodsByNode<'static> {
    /// Replaces the pods. `snapshot` contains the priority classes. If both the old and the new list are
    /// ordered by pod name, only pods that have changed are looked at.
    pub(super) fn update(&mut self, pods: &[Arc<Pod>], snapshot: &Snapshot, config: &Config) {
        let priorities = (snapshot.priority_classes.clone(), config.scale_up.expendable_pods_priority_cutoff);
        if self.priorities != priorities {
            *self = Self { priorities, ..Self::default() };
        }
        let mut unbound = UnboundChanges::default();
        let mut before = std::mem::take(&mut self.all).into_owned().into_iter().peekable();
        let mut all = Vec::with_capacity(pods.len());
        for pod in pods {
            let is_gone = |known: &Arc<Pod>| !Arc::ptr_eq(known, pod) && known.digest().id <= pod.digest().id;
            while let Some(gone) = before.next_if(is_gone) {
                self.remove(gone, &mut unbound);
            }
            let same = before.next_if(|known| Arc::ptr_eq(known, pod));
            all.push(same.unwrap_or_else(|| {
                self.add(pod, &mut unbound);
                pod.clone()
            }));
        }
        for gone in before {
            self.remove(gone, &mut unbound);
        }
        self.all = Cow::Owned(all);
        self.refresh(unbound, snapshot, config);
    }
}

impl<'p> PodsByNode<'p> {
    /// Groups these pods by node. `snapshot` contains the priority classes.
    pub(super) fn new(pods: &'p [Arc<Pod>], snapshot: &Snapshot, config: &Config) -> Self {
        let mut new = Self { all: Cow::Borrowed(pods), ..Self::default() };
        new.nodes.reserve(snapshot.nodes.len());
        let mut unbound = UnboundChanges::default();
        for pod in pods {
            new.add(pod, &mut unbound);
        }
        new.refresh(unbound, snapshot, config);
        new
    }

    /// Updates the sums of nodes whose pods have changed.
    fn refresh(&mut self, unbound: UnboundChanges, snapshot: &Snapshot, config: &Config) {
        unbound.apply(&mut self.unbound);
        let priorities = Priorities::new(snapshot, config);
        self.nodes.retain(|_, node| {
            node.refresh(&priorities);
            !node.is_empty()
        });
    }

    fn add(&mut self, pod: &Arc<Pod>, unbound: &mut UnboundChanges) {
        match pod.node.as_deref() {
            Some(name) => self.nodes.entry_ref(name).or_default().add(pod.clone()),
            None => unbound.add(pod.clone()),
        }
    }

    fn remove(&mut self, pod: Arc<Pod>, unbound: &mut UnboundChanges) {
        match pod.node.as_deref() {
            Some(name) => {
                if let Some(node) = self.nodes.get_mut(name) {
                    node.remove(&pod);
                }
            }
            None => unbound.gone.push(pod),
        }
    }

    /// All pods, in the order in which they were passed.
    pub(super) fn all(&self) -> &[Arc<Pod>] {
        &self.all
    }

    /// The pods that have no node, in order of their names.
    pub(super) fn unbound(&self) -> &[Arc<Pod>] {
        &self.unbound
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

/// The pods to add to and remove from the list of pods without a node.
#[derive(Default)]
struct UnboundChanges {
    new: Vec<Arc<Pod>>,
    /// Whether the pods in `new` are not in order.
    is_mixed: bool,
    gone: Vec<Arc<Pod>>,
}

impl UnboundChanges {
    /// Compares each pod with the one before while both are in the processor's cache. A separate pass over
    /// tens of thousands of pods would fetch them from memory again.
    fn add(&mut self, pod: Arc<Pod>) {
        self.is_mixed = self.is_mixed || self.new.last().is_some_and(|last| order(last, &pod).is_gt());
        self.new.push(pod);
    }

    fn apply(self, pods: &mut Vec<Arc<Pod>>) {
        if self.new.is_empty() && self.gone.is_empty() {
            return;
        }
        if pods.is_empty() && self.gone.is_empty() && !self.is_mixed {
            *pods = self.new;
            return;
        }
        let mut gone: BTreeMap<*const Pod, usize> = BTreeMap::new();
        for pod in &self.gone {
            *gone.entry(Arc::as_ptr(pod)).or_default() += 1;
        }
        pods.retain(|pod| match gone.get_mut(&Arc::as_ptr(pod)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        });
        pods.extend(self.new);
        sort(pods);
    }
}

impl NodePods {
    fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.expendable.is_empty()
    }

    fn add(&mut self, pod: Arc<Pod>) {
        Arc::make_mut(&mut self.bound).push(pod);
        self.is_stale = true;
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
        if !self.is_stale {
            return;
        }
        let mut pods = Arc::unwrap_or_clone(std::mem::take(&mut self.bound));
        pods.append(&mut self.expendable);
        sort(&mut pods);
        let having = |is: fn(&Digest) -> bool| pods.iter().filter(move |pod| is(pod.digest())).cloned();
        let (annotated, daemons) =
            (having(|digest| digest.annotated).collect(), having(|digest| digest.daemon).collect());
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
            is_stale: false,
        };
    }
}

/// Sorts pods by name, and by uid among pods of the same name.
fn sort(pods: &mut [Arc<Pod>]) {
    pods.sort_by(order);
}

fn order(a: &Arc<Pod>, b: &Arc<Pod>) -> Ordering {
    a.digest().compare(b.digest()).then_with(|| a.uid.cmp(&b.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::pod::PodPhase;
    use proptest::prelude::*;
    use settings::Needs;

    /// Pods with and without a node, some expendable or finished; two have the same name.
    fn pods() -> Vec<Arc<Pod>> {
        let pod = |number: usize| {
            let mut pod = Pod { name: format!("p{:02}", number % 20), ..Pod::default() };
            pod.uid = format!("u{number}");
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
        format!("{:?}\n{:?}\n{nodes:?}", pods.all, pods.unbound)
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
