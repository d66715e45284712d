//! A cluster that can be changed in thought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::refusal::Refusal;
use super::{
    inter_pod_affinity, node_affinity, node_ports, node_resources_fit, node_unschedulable,
    node_volume_limits, pod_topology_spread, taint_toleration, volume_binding, volume_restrictions,
    volume_zone,
};
use crate::model::Snapshot;
use crate::model::node::Node;
use crate::model::pod::{HostPort, Pod, PodPhase};
use crate::model::resources::Resources;
use crate::model::selector::Labels;
use crate::model::workload::{CsiNode, PersistentVolume, StorageClass, VolumeAttachment, VolumeClaim};

/// A node's place in its world; stays valid while the world lives.
pub type NodeIndex = usize;

/// Volumes and what belongs to them, by name. They do not change while a decision is made.
#[derive(Debug, Default)]
pub struct Volumes {
    pub(super) claims: BTreeMap<(String, String), Arc<VolumeClaim>>,
    pub(super) persistent: BTreeMap<String, Arc<PersistentVolume>>,
    pub(super) classes: BTreeMap<String, Arc<StorageClass>>,
    pub(super) csi_nodes: BTreeMap<String, Arc<CsiNode>>,
    pub(super) attachments: Vec<Arc<VolumeAttachment>>,
}

/// A node with the pods that are placed on it.
#[derive(Clone, Debug)]
pub struct SimNode {
    /// The node.
    pub node: Arc<Node>,
    /// Its pods.
    pub pods: Vec<Arc<Pod>>,
    /// What they request in sum.
    pub used: Resources,
    pub(super) ports: Vec<HostPort>,
    /// It takes pods. A ghost does not: it only keeps its domain known to topology spread.
    pub open: bool,
    pub(super) counts_for_spread: bool,
}

/// A cluster that can be changed in thought. Cloning it forks it; nodes and pods are shared.
#[derive(Clone, Debug)]
pub struct World {
    nodes: Vec<SimNode>,
    namespaces: Arc<BTreeMap<String, Labels>>,
    volumes: Arc<Volumes>,
    /// Nodes that have (or had) pods with required anti-affinity.
    anti: BTreeSet<NodeIndex>,
    claims_in_use: BTreeMap<(String, String), u32>,
}

/// A pod, prepared against a world (kube-scheduler's PreFilter). Stale once the world changes other than by
/// [`World::place`] and [`World::remove`] with this preparation told of it.
#[derive(Clone, Debug)]
pub struct Prepared {
    pod: Arc<Pod>,
    spread: pod_topology_spread::State,
    affinity: inter_pod_affinity::State,
    binding: volume_binding::State,
    volumes_refused: Option<Refusal>,
}

impl World {
    /// The cluster of a snapshot: its nodes in their order, each with the pods bound to it. Finished pods count nowhere.
    pub fn new(snapshot: &Snapshot) -> Self {
        let volumes = Volumes {
            claims: snapshot
                .claims
                .iter()
                .map(|claim| ((claim.namespace.clone(), claim.name.clone()), claim.clone()))
                .collect(),
            persistent: snapshot.volumes.iter().map(|volume| (volume.name.clone(), volume.clone())).collect(),
            classes: snapshot
                .storage_classes
                .iter()
                .map(|class| (class.name.clone(), class.clone()))
                .collect(),
            csi_nodes: snapshot.csi_nodes.iter().map(|csi| (csi.name.clone(), csi.clone())).collect(),
            attachments: snapshot.attachments.clone(),
        };
        let namespaces =
            snapshot.namespaces.iter().map(|one| (one.name.clone(), one.labels.clone())).collect();
        let mut world = Self {
            nodes: Vec::with_capacity(snapshot.nodes.len()),
            namespaces: Arc::new(namespaces),
            volumes: Arc::new(volumes),
            anti: BTreeSet::new(),
            claims_in_use: BTreeMap::new(),
        };
        let mut index = BTreeMap::new();
        for node in &snapshot.nodes {
            index.insert(node.name.as_str(), world.add_node(node.clone()));
        }
        for pod in &snapshot.pods {
            if matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed) {
                continue;
            }
            if let Some(&node) = pod.node.as_deref().and_then(|name| index.get(name)) {
                world.place(pod, node);
            }
        }
        world
    }

    /// All nodes, ghosts included.
    pub fn nodes(&self) -> &[SimNode] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, index: NodeIndex) -> &SimNode {
        &self.nodes[index]
    }

    pub(super) fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub(super) fn claim_in_use(&self, key: &(String, String)) -> bool {
        self.claims_in_use.get(key).is_some_and(|users| *users > 0)
    }

    pub(super) fn namespace_labels(&self, name: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(name).unwrap_or(&NONE)
    }

    pub(super) fn nodes_with_anti_affinity(&self) -> impl Iterator<Item = &SimNode> {
        self.anti.iter().map(|&index| &self.nodes[index])
    }

    /// Adds an empty node.
    pub fn add_node(&mut self, node: Arc<Node>) -> NodeIndex {
        self.nodes.push(SimNode::empty(node));
        self.nodes.len() - 1
    }

    /// Takes a node out of use: it takes no pods any more. Its domain stays known to topology spread, as it does for
    /// kube-scheduler until the Node object is gone. Its pods stay where they are until they are removed.
    pub fn close(&mut self, node: NodeIndex) {
        self.nodes[node].open = false;
    }

    /// Lets a closed node take pods again.
    pub fn open(&mut self, node: NodeIndex) {
        self.nodes[node].open = true;
    }

    /// Makes a closed node's domain unknown, as when the Node object is gone.
    pub fn forget(&mut self, node: NodeIndex) {
        self.nodes[node].open = false;
        self.nodes[node].counts_for_spread = false;
    }

    /// Places a pod without checking it.
    pub fn place(&mut self, pod: &Arc<Pod>, node: NodeIndex) {
        let sim = &mut self.nodes[node];
        sim.used.add(&pod.requests);
        sim.ports.extend(pod.host_ports.iter().cloned());
        sim.pods.push(pod.clone());
        if !pod.affinity.anti.is_empty() {
            self.anti.insert(node);
        }
        for claim in volume_restrictions::claims(pod) {
            *self.claims_in_use.entry((pod.namespace.clone(), claim.to_owned())).or_default() += 1;
        }
    }

    /// Takes a pod off a node; nothing happens where it is not there.
    pub fn remove(&mut self, pod: &Arc<Pod>, node: NodeIndex) {
        let sim = &mut self.nodes[node];
        let Some(at) = sim.pods.iter().rposition(|one| Arc::ptr_eq(one, pod)) else { return };
        sim.pods.remove(at);
        sim.used.subtract(&pod.requests);
        for port in &pod.host_ports {
            if let Some(at) = sim.ports.iter().position(|one| one == port) {
                sim.ports.remove(at);
            }
        }
        for claim in volume_restrictions::claims(pod) {
            if let Some(users) = self.claims_in_use.get_mut(&(pod.namespace.clone(), claim.to_owned())) {
                *users = users.saturating_sub(1);
            }
        }
    }

    /// Prepares a pod: what the whole world means for it.
    pub fn prepare(&self, pod: &Arc<Pod>) -> Prepared {
        Prepared {
            pod: pod.clone(),
            spread: pod_topology_spread::prepare(pod, &self.nodes),
            affinity: inter_pod_affinity::prepare(pod, self),
            binding: volume_binding::prepare(pod, &self.volumes),
            volumes_refused: volume_restrictions::prepare(pod, self),
        }
    }

    /// Whether the node takes the pod: the first filter that refuses, in kube-scheduler's order.
    pub fn check(&self, prepared: &Prepared, node: NodeIndex) -> Result<(), Refusal> {
        self.check_node(prepared, &self.nodes[node], false)
    }

    /// The same for a node that is not in the world yet, as if it were.
    pub fn check_fresh(&self, prepared: &Prepared, node: &SimNode) -> Result<(), Refusal> {
        self.check_node(prepared, node, true)
    }

    fn check_node(&self, prepared: &Prepared, sim: &SimNode, fresh: bool) -> Result<(), Refusal> {
        let pod = prepared.pod.as_ref();
        if pod.resource_claims {
            return Err(Refusal::DynamicResources);
        }
        node_unschedulable::check(pod, &sim.node)?;
        taint_toleration::check(pod, &sim.node)?;
        node_affinity::check(pod, &sim.node)?;
        node_ports::check(pod, &sim.ports)?;
        node_resources_fit::check(&pod.requests, &sim.node.allocatable, &sim.used)?;
        if !pod.volumes.is_empty() {
            let others = sim.pods.iter().map(AsRef::as_ref);
            volume_restrictions::check(pod, prepared.volumes_refused.as_ref(), others.clone())?;
            node_volume_limits::check(pod, &sim.node.name, others, &self.volumes)?;
            volume_binding::check(&prepared.binding, &sim.node, &self.volumes)?;
            volume_zone::check(pod, &sim.node, &self.volumes)?;
        }
        prepared.spread.check(pod, sim, fresh)?;
        prepared.affinity.check(pod, &sim.node)
    }

    /// Places a pod like the prepared one (same labels, affinity, namespace), and tells the preparation of it.
    pub fn place_prepared(&mut self, prepared: &mut Prepared, pod: &Arc<Pod>, node: NodeIndex) {
        self.place(pod, node);
        self.tell(prepared, pod, node, 1);
    }

    /// Adds a node and tells the preparation of it.
    pub fn add_node_prepared(&mut self, prepared: &mut Prepared, node: Arc<Node>) -> NodeIndex {
        let index = self.add_node(node);
        if !prepared.spread.is_empty() {
            prepared.spread.add_node(&prepared.pod, &self.nodes[index]);
        }
        index
    }

    /// Tells a preparation that a pod came to (`by` 1) or left (`by` −1) a node.
    pub fn tell(&self, prepared: &mut Prepared, other: &Arc<Pod>, node: NodeIndex, by: i64) {
        let sim = &self.nodes[node];
        if !prepared.spread.is_empty() && sim.counts_for_spread {
            prepared.spread.count(&prepared.pod, other, sim, by);
        }
        let pod = &prepared.pod;
        if !pod.affinity.pods.is_empty() || !pod.affinity.anti.is_empty() || !other.affinity.anti.is_empty() {
            prepared.affinity.count(pod, other, sim, self, by);
        }
        if !pod.volumes.is_empty() {
            prepared.volumes_refused = volume_restrictions::prepare(pod, self);
        }
    }
}

impl SimNode {
    /// A node without pods.
    pub fn empty(node: Arc<Node>) -> Self {
        Self {
            node,
            pods: Vec::new(),
            used: Resources::default(),
            ports: Vec::new(),
            open: true,
            counts_for_spread: true,
        }
    }

    /// Places a pod without checking it, on a node that is in no world.
    pub fn hold(&mut self, pod: &Arc<Pod>) {
        self.used.add(&pod.requests);
        self.ports.extend(pod.host_ports.iter().cloned());
        self.pods.push(pod.clone());
    }
}

impl Prepared {
    /// The pod.
    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// Whether a node that refuses the pod goes on refusing pods like it while the world only fills up: true without
    /// topology spread and pod affinity, which other pods can satisfy.
    pub fn refusals_last(&self) -> bool {
        self.spread.is_empty() && self.pod.affinity.pods.is_empty()
    }

    /// Whether nothing but the node itself decides, so that equal nodes take equal sets of such pods.
    pub fn is_plain(&self) -> bool {
        self.refusals_last()
            && self.pod.affinity.anti.is_empty()
            && self.pod.volumes.is_empty()
            && self.affinity.repels_nobody()
    }
}
