//! DaemonSet pods. On a fresh node, they start before the pods for which the node is created. On a young
//! node, some of them may not have been created yet. kube-scheduler's filters are applied to such nodes as if
//! these pods were already running.
//!
//! A DaemonSet's controller uses node selectors, node affinity and taints to decide where the DaemonSet's
//! pods run (`NodeShouldRunDaemonPod`). kube-scheduler decides everything else. For example, if two pods need
//! the same host port, only one of them runs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::priorities::Priorities;
use super::view::View;
use model::pod::{Pod, Volume, VolumeSource};
use model::pod_spec::PodSpec;
use model::selector::Operator;
use model::workload::DaemonSet;
use scheduling::{NodeIndex, Prepared, Refusal, SimNode, VolumeProblem, World};

/// The pods that DaemonSets create on nodes, sorted by priority, because kube-scheduler places the pods of
/// the highest priority first.
#[derive(Default)]
pub(super) struct Daemons<'a> {
    all: Vec<Daemon<'a>>,
    /// Pods that should run on a node but have no room on it, with the node's index.
    pub without_room: Vec<(Arc<Pod>, NodeIndex)>,
}

struct Daemon<'a> {
    set: &'a DaemonSet,
    /// The pod that the DaemonSet creates on a node, regardless of which node. Its ResourceClaims are assumed
    /// to be satisfied.
    pod: Arc<Pod>,
    /// A copy of the pod without volumes whose claims do not exist yet. Checks use this copy, because such
    /// claims may still be created.
    probe: Prepared,
    /// A pod with the same requests and no constraints. It takes the place of the DaemonSet's pod if pod
    /// affinity or a spread constraint is the only reason why that pod cannot run yet.
    room: Arc<Pod>,
}

impl<'a> Daemons<'a> {
    /// Determines the pods that the snapshot's DaemonSets create. `view` must already contain all running
    /// pods.
    pub(super) fn new(view: &View<'a>) -> Self {
        let sets = view.snapshot.daemon_sets.iter();
        let mut all: Vec<Daemon> = sets.map(|set| Daemon::new(view, set)).collect();
        let priorities = Priorities::new(view.snapshot, view.config);
        all.sort_by_key(|daemon| Reverse(priorities.of(&daemon.pod)));
        Self { all, without_room: Vec::new() }
    }

    /// Adds the pods that DaemonSets will run on the node, which is not in the world yet.
    pub(super) fn settle(&self, world: &World, node: &mut SimNode) {
        for daemon in &self.all {
            if !node.pods.iter().any(|pod| daemon.owns(pod))
                && let Some(pod) = daemon.on_fresh(world, node)
            {
                node.hold(pod);
            }
        }
    }
}

impl<'a> Daemon<'a> {
    fn new(view: &View<'a>, set: &'a DaemonSet) -> Self {
        let mut pod = set.pod.clone();
        // Because of namespace defaults, injected sidecars or pod autoscalers, the pod may request more than
        // its template.
        if let Some(newest) = view.newest.get(set.uid.as_str()) {
            pod.requests.raise_to(&newest.requests);
            if pod.volumes.iter().any(is_ephemeral) {
                // The claims of an existing pod show which storage class its volumes use.
                pod.volumes.clone_from(&newest.volumes);
            }
        }
        pod.resource_claims.clear();
        let mut probe = pod.clone();
        probe.volumes.retain(|volume| is_there(view, &pod, volume));
        let room = PodSpec {
            namespace: pod.namespace.clone(),
            owner: pod.owner.clone(),
            requests: pod.requests.clone(),
            ..PodSpec::default()
        };
        let room = Pod { name: pod.name.clone(), spec: room.into(), ..Pod::default() };
        let probe = view.world.prepare(&Arc::new(probe));
        Self { set, pod: Arc::new(pod), probe, room: Arc::new(room) }
    }

    fn owns(&self, pod: &Pod) -> bool {
        pod.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet" && owner.uid == self.set.uid)
    }

    /// Whether the DaemonSet's controller creates a pod for the node.
    fn is_for(&self, node: &SimNode) -> bool {
        let named = self.set.pod.node.as_ref().is_none_or(|name| *name == node.node.name);
        named && World::accepts(&self.pod, &node.node)
    }

    /// The pod that the DaemonSet will have on a node that is not in the world yet, if any.
    fn on_fresh(&self, world: &World, node: &SimNode) -> Option<&Arc<Pod>> {
        if !self.is_for(node) {
            return None;
        }
        let prepared = self.prepared(world);
        let prepared = prepared.as_ref().unwrap_or(&self.probe);
        match world.check_fresh(prepared, node) {
            Ok(()) => Some(&self.pod),
            // The pods of other DaemonSets were placed before this one, but their real order is unknown. So a
            // pod is expected if it would fit the node alone.
            Err(refusal) if is_room(&refusal) => {
                let alone = world.check_fresh(prepared, &node.emptied());
                (!alone.is_err_and(|refusal| is_room(&refusal))).then_some(&self.pod)
            }
            Err(Refusal::VolumeBinding(problem)) if problem != VolumeProblem::NodeAffinity => Some(&self.pod),
            Err(Refusal::Affinity | Refusal::Spread(_)) => Some(&self.room),
            Err(_) => None,
        }
    }

    /// Returns the pod, prepared for this world, if its checks depend on other pods. Returns `None` if they
    /// do not, in which case `probe` can be used in any world.
    fn prepared(&self, world: &World) -> Option<Prepared> {
        let own = self.probe.pod();
        let looks = !own.affinity.pods.is_empty() || !own.affinity.anti.is_empty() || !own.spread.is_empty();
        looks.then(|| world.prepare(own))
    }
}

/// The pods on these nodes that have anti-affinity to other pods, without duplicates.
pub(super) fn repelling(prototypes: &[SimNode]) -> Vec<Arc<Pod>> {
    let all = prototypes.iter().flat_map(|node| node.pods.iter()).filter(|pod| !pod.affinity.anti.is_empty());
    let once: BTreeMap<*const Pod, &Arc<Pod>> = all.map(|pod| (Arc::as_ptr(pod), pod)).collect();
    once.into_values().cloned().collect()
}

fn is_room(refusal: &Refusal) -> bool {
    refusal.filter() == "NodeResourcesFit"
}

fn is_ephemeral(volume: &Volume) -> bool {
    matches!(volume.source, VolumeSource::Claim { ephemeral: true, .. })
}

/// Whether the volume needs no claim, or refers to a claim that exists, so that a filter can check it.
fn is_there(view: &View, pod: &Pod, volume: &Volume) -> bool {
    let VolumeSource::Claim { name, ephemeral, .. } = &volume.source else { return true };
    let mut claims = view.snapshot.claims.iter();
    !ephemeral && claims.any(|claim| claim.namespace == pod.namespace && claim.name == *name)
}

/// Adds to the world the DaemonSet pods that existing nodes do not run yet. These are pending pods and, on
/// young nodes, also pods that have not been created yet. If a pod does not exist on an older node, it is no
/// longer expected.
pub(super) fn expect(view: &mut View) {
    let mut there: BTreeSet<(NodeIndex, &str)> = BTreeSet::new();
    let waiting = expect_waiting(view, &mut there);
    let young = if view.daemons.all.is_empty() { Vec::new() } else { young(view) };
    for &at in &young {
        let own = view.on[at];
        for pod in own.bound.iter().chain(&own.expendable) {
            there.extend(pod.owner.as_ref().map(|owner| (at, owner.uid.as_str())));
        }
    }
    let mut without_room = waiting;
    for at in young {
        for daemon in &view.daemons.all {
            if there.contains(&(at, daemon.set.uid.as_str())) || !daemon.is_for(view.world.node(at)) {
                continue;
            }
            let prepared = view.world.prepare(daemon.probe.pod());
            match view.world.check(&prepared, at) {
                Ok(()) => view.world.place(&daemon.pod, at),
                Err(refusal) if is_room(&refusal) => without_room.push((daemon.pod.clone(), at)),
                Err(_) => {}
            }
        }
    }
    view.daemons.without_room = without_room;
}

/// Places DaemonSets' pending pods on the nodes that they were created for, if they fit. Returns the pods for
/// which there is no room.
fn expect_waiting<'a>(
    view: &mut View<'a>,
    there: &mut BTreeSet<(NodeIndex, &'a str)>,
) -> Vec<(Arc<Pod>, NodeIndex)> {
    let mut without_room = Vec::new();
    for waiting in &view.waiting {
        if !waiting.marks.daemon || waiting.marks.gated {
            continue;
        }
        let at = meant_for(waiting.pod).and_then(|name| view.named.find(name));
        let (Some(at), Some(owner)) = (at, &waiting.pod.owner) else { continue };
        there.insert((at, &owner.uid));
        let met = || {
            let mut pod = waiting.pod.as_ref().clone();
            pod.resource_claims.clear();
            Arc::new(pod)
        };
        let pod = if waiting.pod.resource_claims.is_empty() { waiting.pod.clone() } else { met() };
        if !view.world.node(at).open {
            continue;
        }
        let prepared = view.world.prepare(&pod);
        match view.world.check(&prepared, at) {
            Ok(()) => view.world.place(&pod, at),
            Err(refusal) if is_room(&refusal) => without_room.push((pod, at)),
            Err(_) => {}
        }
    }
    without_room
}

/// The name of the node that a DaemonSet's pod was created for.
fn meant_for(pod: &Pod) -> Option<&str> {
    let fields = pod.affinity.node.as_ref()?.terms.iter().flat_map(|term| &term.match_fields);
    let mut names = fields.filter(|one| one.key == "metadata.name" && one.operator == Operator::In);
    names.next()?.values.first().map(String::as_str)
}

/// Nodes that accept pods and are younger than `max_node_provision_time`.
pub(super) fn young(view: &View) -> Vec<NodeIndex> {
    let (now, patience) = (view.snapshot.time, view.config.scale_up.max_node_provision_time);
    let young = |at: &NodeIndex| {
        let created = view.snapshot.nodes[*at].created;
        created.is_some_and(|created| now.duration_since(created).unsigned_abs() < patience)
    };
    (0..view.existing).filter(|at| view.world.node(*at).open && young(at)).collect()
}
