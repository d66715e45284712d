//! A view of the same cluster without some of its nodes. Many such views are needed to determine which nodes
//! can be removed, and most pods stay where they are. What is known about the pods is therefore copied, so
//! that they are not examined again.

use std::collections::BTreeSet;

use super::View;
use crate::priorities::Priorities;
use model::Snapshot;
use scheduling::NodeIndex;

impl View<'_> {
    /// Returns this view without the nodes named in `gone`. `snapshot` is this view's snapshot without these
    /// nodes. Controllers will recreate the nodes' pods, so the new view has the recreated pods as pending.
    pub(crate) fn beside<'v>(&'v self, snapshot: &'v Snapshot, gone: &BTreeSet<&str>) -> View<'v> {
        let world = self.world.without_pods_beside(snapshot);
        let mut view = View::empty(world, snapshot, self.by_node, self.config, self.offers, &self.allowance);
        view.take_over(self, gone);
        view.place();
        view.settle();
        view
    }
}

impl<'v> View<'v> {
    /// Copies what another view knows about its pods. These pods do not have to be announced to this view's
    /// world, because it was derived from the other view's world.
    fn take_over(&mut self, other: &'v View<'v>, gone: &BTreeSet<&str>) {
        let leaves = |at: &NodeIndex| gone.contains(other.snapshot.nodes[*at].name.as_str());
        let (left, kept): (Vec<NodeIndex>, Vec<NodeIndex>) = (0..other.existing).partition(leaves);
        self.on = kept.into_iter().map(|at| other.on[at]).collect();
        self.annotated.clone_from(&other.annotated);
        self.newest.clone_from(&other.newest);
        self.statics.clone_from(&other.statics);
        let priorities = Priorities::new(self.snapshot, self.config);
        for pod in other.by_node.unbound().filter(|pod| pod.marks.waits) {
            self.take_in_waiting(pod, &priorities);
        }
        for pod in left.into_iter().flat_map(|at| other.on[at].bound.iter()) {
            self.take_in_evicted(pod, &priorities);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::allowance::{Allowance, Limits};
    use crate::pods_by_node::PodsByNode;
    use crate::sizes;
    use model::node::Node;
    use model::pod::{Owner, Pod, PodPhase};
    use model::resources::Resources;
    use scheduling::Effort;
    use settings::Needs;

    fn pod(name: &str, node: Option<&str>, change: impl Fn(&mut Pod)) -> Arc<Pod> {
        let mut pod = Pod { name: name.to_owned(), node: node.map(ToOwned::to_owned), ..Pod::default() };
        pod.phase = if node.is_some() { PodPhase::Running } else { PodPhase::Pending };
        pod.requests = Resources { cpu_milli: 100, memory: 100, pods: 1, ..Resources::default() };
        owned_by("ReplicaSet", "rs", &mut pod);
        change(&mut pod);
        Arc::new(pod)
    }

    fn owned_by(kind: &str, uid: &str, pod: &mut Pod) {
        let (api_version, name) = ("apps/v1".to_owned(), uid.to_owned());
        pod.owner = Some(Owner { api_version, kind: kind.to_owned(), name, uid: uid.to_owned() });
    }

    /// Pods of all kinds: on each node, on a node that does not exist, and without a node.
    fn pods() -> Vec<Arc<Pod>> {
        let mut all = Vec::new();
        for node in ["c", "a", "b", "elsewhere"] {
            let pod =
                |what: &str, change: &dyn Fn(&mut Pod)| pod(&format!("{what}-{node}"), Some(node), change);
            all.push(pod("plain", &|_| {}));
            all.push(pod("alone", &|pod| pod.owner = None));
            all.push(pod("daemon", &|pod| owned_by("DaemonSet", "ds", pod)));
            all.push(pod("yields", &|pod| pod.priority = Some(-1000)));
            all.push(pod("over", &|pod| pod.phase = PodPhase::Succeeded));
            let mirror = ("kubernetes.io/config.mirror".to_owned(), "x".to_owned());
            all.push(pod("static", &|pod| pod.annotations.extend([mirror.clone()])));
        }
        all.push(pod("waits", None, |_| {}));
        all.push(pod("waits-and-yields", None, |pod| pod.priority = Some(-1000)));
        all
    }

    /// What a view knows about its pods.
    fn known(view: &View) -> Vec<String> {
        let names = |pods: &[Arc<Pod>]| pods.iter().map(|pod| pod.id()).collect::<Vec<_>>();
        let mut known: Vec<String> = view
            .waiting
            .iter()
            .map(|one| {
                let group = view.groups.samples()[one.group].digest().class == one.pod.digest().class;
                format!("{} {:?} {} {group}", one.pod.id(), one.settled, one.listed)
            })
            .collect();
        for (at, node) in view.world.nodes().iter().enumerate() {
            let (bound, expendable) = (names(&view.on[at].bound), names(&view.on[at].expendable));
            let placed = node.pods.iter().map(|pod| pod.id()).collect::<Vec<_>>();
            known.push(format!("{} {bound:?} {expendable:?} {placed:?} {:?}", node.node.name, node.used));
        }
        // The order of the annotated pods has no effect.
        let annotated = view.annotated.iter().map(|pod| pod.id()).collect::<BTreeSet<_>>();
        known.push(format!("{:?} {:?} {:?}", annotated, view.newest, view.statics));
        known
    }

    #[test]
    fn what_is_taken_over_is_what_a_look_at_each_pod_finds() {
        let node = |name: &str| Arc::new(Node { name: name.to_owned(), ..Node::default() });
        let snapshot = Snapshot { nodes: ["a", "b", "c"].map(node).to_vec(), ..Snapshot::default() };
        let config = settings::parse(
            "test",
            "[[pool]]\nname = \"w\"\nmax = 9\ncores = 2\nmemory = \"4GiB\"\n",
            Needs::Plan,
        )
        .unwrap();
        let (offers, all) = (sizes::offers(&config, &snapshot), pods());
        let pods = PodsByNode::new(&all, &snapshot, &config);
        let allowance = Allowance::new(&Effort::default(), Limits::default());
        let view = View::new(&snapshot, &pods, &config, &offers, &allowance);
        for gone in [&[][..], &["a"], &["b", "c"], &["a", "b", "c"]] {
            let gone: BTreeSet<&str> = gone.iter().copied().collect();
            let mut left = snapshot.clone();
            left.nodes.retain(|node| !gone.contains(node.name.as_str()));
            let beside = view.beside(&left, &gone);
            let looked_at = View::without(&left, &pods, &config, &offers, &gone, &allowance);
            assert_eq!(known(&beside), known(&looked_at), "without {gone:?}");
        }
    }
}
