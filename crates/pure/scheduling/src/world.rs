//! The simulated cluster: nodes and pods that can be added and removed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::crowd::{Around, Crowd};
use super::dynamic_resources::{self, Devices};
use super::effort::{self, Effort, Price};
use super::free::Free;
use super::node_load::NodeLoad;
use super::node_volume_limits::Held;
use super::prepared::Prepared;
use super::refusal::Refusal;
use super::sim_node::SimNode;
use super::spreads::Spreads;
use super::terms::{Namespaces, Terms};
use super::topology::{Key, Topologies};
use super::volumes::Volumes;
use super::{
    inter_pod_affinity, node_affinity, node_declared_features, node_ports, node_resources_fit,
    node_unschedulable, node_volume_limits, pod_topology_spread, preferences, taint_toleration,
    volume_binding, volume_restrictions, volume_zone,
};
use model::node::Node;
use model::pod::{Pod, PodPhase};
use model::resources::Resources;
use model::{KubernetesVersion, Snapshot};

/// The label that makes each node its own domain.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The index of a node in its world. It stays valid as long as the world exists.
pub type NodeIndex = usize;

/// A cluster that can be changed in a simulation. A clone is a fork, which shares nodes and pods with the
/// original.
#[derive(Clone, Debug)]
pub struct World {
    /// The total cost of the queries to this world.
    effort: Effort,
    /// The version of Kubernetes whose rules apply.
    version: KubernetesVersion,
    nodes: Vec<SimNode>,
    /// The free resources of each node, stored compactly, so that most nodes can be ruled out without reading
    /// the nodes themselves.
    free: Vec<Free>,
    namespaces: Arc<Namespaces>,
    volumes: Arc<Volumes>,
    topologies: Topologies,
    /// The terms of the announced pods: what these pods require of other pods.
    terms: Arc<Terms>,
    spreads: Arc<Spreads>,
    /// The counts of the world's pods. They are computed when first needed, and are updated from then on.
    crowd: OnceLock<Crowd>,
    /// The number of pods with required anti-affinity.
    anti: i64,
    /// For each claim that only one pod at a time may use, by namespace and name: the number of pods that use
    /// it.
    claims_in_use: BTreeMap<(String, String), i64>,
    promised: volume_binding::Promised,
    /// The devices that are allocated dynamically. `None` if nothing is known about them.
    devices: Option<Box<Devices>>,
}

impl World {
    /// Creates a world from a snapshot, with the nodes in the snapshot's order. Each node has the pods that
    /// are bound to it, except finished ones.
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut world = Self::without_pods(snapshot);
        let index: BTreeMap<&str, NodeIndex> =
            snapshot.nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
        for pod in &snapshot.pods {
            world.announce(pod);
            if matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed) {
                continue;
            }
            if let Some(&node) = pod.node.as_deref().and_then(|name| index.get(name)) {
                world.place(pod, node);
            }
        }
        world
    }

    /// Creates a world from a snapshot, with the nodes in the snapshot's order but without pods.
    pub fn without_pods(snapshot: &Snapshot) -> Self {
        let devices = Devices::of(snapshot).map(Box::new);
        Self::with_volumes(snapshot, Arc::new(Volumes::new(snapshot)), devices)
    }

    /// Like [`Self::without_pods`], for a snapshot with different nodes. The volumes and devices are those of
    /// this world.
    pub fn without_pods_beside(&self, snapshot: &Snapshot) -> Self {
        let devices = self.devices.as_ref().map(|devices| Box::new(devices.without_pods()));
        let mut world = Self::with_volumes(snapshot, self.volumes.clone(), devices);
        world.effort = self.effort.clone();
        // The pods' requirements of each other are the same in both worlds, so the new world shares the terms
        // and spreads.
        for key in self.topologies.keys() {
            world.topologies.announce(key, &world.nodes);
        }
        world.terms = self.terms.clone();
        world.spreads = self.spreads.clone();
        if let Some(crowd) = self.crowd.get() {
            world.crowd = OnceLock::from(crowd.without_pods());
        }
        world
    }

    fn with_volumes(snapshot: &Snapshot, volumes: Arc<Volumes>, devices: Option<Box<Devices>>) -> Self {
        let mut world = Self {
            effort: Effort::default(),
            version: snapshot.kubernetes,
            nodes: Vec::with_capacity(snapshot.nodes.len()),
            free: Vec::with_capacity(snapshot.nodes.len()),
            namespaces: Arc::new(
                snapshot.namespaces.iter().map(|one| (one.name.clone(), one.labels.clone())).collect(),
            ),
            volumes,
            topologies: Topologies::default(),
            terms: Arc::default(),
            spreads: Arc::default(),
            crowd: OnceLock::new(),
            anti: 0,
            claims_in_use: BTreeMap::new(),
            promised: volume_binding::Promised::default(),
            devices,
        };
        for node in &snapshot.nodes {
            world.add_node(node.clone());
        }
        world
    }

    /// Announces that pods like this one will be prepared or placed. From then on, the world counts the pods
    /// that their affinity, anti-affinity and topology spread select.
    pub fn announce(&mut self, pod: &Pod) {
        if !self.terms.lacks(pod) && !self.spreads.lacks(pod) {
            return;
        }
        let affinity = pod.affinity.pods.iter().chain(&pod.affinity.anti).map(|term| &term.topology_key);
        let spread = pod.spread.iter().filter(|one| one.hard).map(|one| &one.topology_key);
        for key in affinity.chain(spread) {
            self.topologies.announce(key, &self.nodes);
        }
        let known = (self.terms.count(), self.spreads.count());
        if self.terms.lacks(pod) {
            Arc::make_mut(&mut self.terms).announce(pod, &self.topologies);
        }
        if self.spreads.lacks(pod) {
            Arc::make_mut(&mut self.spreads).announce(pod, &self.topologies);
        }
        if known != (self.terms.count(), self.spreads.count())
            && let Some(mut crowd) = self.crowd.take()
        {
            crowd.learn(self.around());
            self.crowd = OnceLock::from(crowd);
        }
    }

    /// From now on, adds the cost of all queries to `effort`, which other worlds may share.
    pub fn counts_in(&mut self, effort: &Effort) {
        self.effort = effort.clone();
    }

    /// The total cost of the queries so far.
    pub fn effort(&self) -> &Effort {
        &self.effort
    }

    /// All nodes, including closed ones.
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

    pub(super) fn claim_in_use(&self, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.claims_in_use.get(&key).is_some_and(|users| *users > 0)
    }

    /// Whether each device can be used from one node only.
    pub(super) fn devices_are_local(&self) -> bool {
        self.devices.as_ref().is_none_or(|devices| devices.are_local())
    }

    /// Whether any pod has required anti-affinity.
    pub(super) fn has_anti_affinity(&self) -> bool {
        self.anti > 0
    }

    /// Counts the world's pods now, if any pod has anti-affinity, so that forks share the counts.
    pub fn count_crowd(&self) {
        if self.has_anti_affinity() {
            self.crowd();
        }
    }

    pub(super) fn crowd(&self) -> &Crowd {
        self.crowd.get_or_init(|| Crowd::new(self.around()))
    }

    /// The parts of the world that are needed to count the world's pods.
    pub(super) fn around(&self) -> Around<'_> {
        Around {
            nodes: &self.nodes,
            topologies: &self.topologies,
            namespaces: &self.namespaces,
            terms: &self.terms,
            spreads: &self.spreads,
        }
    }

    /// Whether any pod uses host names as domains. If not, nodes that differ only in their names are equal
    /// for every pod.
    pub fn tells_hosts_apart(&self) -> bool {
        self.topologies.knows(HOSTNAME)
    }

    /// Whether placing the pod on a node depends only on the node's own properties and free resources, not on
    /// other pods, volumes or devices. If so, equal nodes take equal sets of such pods.
    pub fn is_plain(&self, pod: &Pod) -> bool {
        pod.affinity.pods.is_empty()
            && pod.affinity.anti.is_empty()
            && pod.host_ports.is_empty()
            && pod.spread.iter().all(|one| !one.hard)
            && !pod.spec.digest().has_volumes
            && pod.resource_claims.is_empty()
            && !self.devices.as_ref().is_some_and(|devices| devices.concern(pod))
            && (!self.has_anti_affinity() || !self.crowd().repels(pod, self.around()))
    }

    /// The pod's requests, without extended resources for which devices may be allocated.
    pub fn amounts<'p>(&self, pod: &'p Pod) -> Cow<'p, Resources> {
        let served = |name: &String| self.devices.as_ref().is_some_and(|devices| devices.serves(name));
        if !pod.requests.other.keys().any(served) {
            return Cow::Borrowed(&pod.requests);
        }
        let mut amounts = pod.requests.clone();
        amounts.other.retain(|name, _| !served(name));
        Cow::Owned(amounts)
    }

    /// How many pods like this one fit into the node's free resources.
    pub fn room_for(&self, pod: &Pod, node: NodeIndex) -> i64 {
        let sim = &self.nodes[node];
        let mut free = sim.node.allocatable.clone();
        free.subtract(&sim.used_for(pod));
        free.copies(&pod.requests)
    }

    /// Returns the nodes' ranks by the pod's preferences, from 0 to 400, based on kube-scheduler's scores.
    /// `None` if the pod has no preferences.
    pub fn preferences(&self, pod: &Pod, nodes: &[NodeIndex]) -> Option<Vec<i64>> {
        preferences::scores(pod, nodes, self)
    }

    /// Adds an empty node.
    pub fn add_node(&mut self, node: Arc<Node>) -> NodeIndex {
        self.topologies.add_node(&node.labels);
        let mut sim = SimNode::empty(node);
        sim.csi = self.volumes.csi_node(&sim.node.name).cloned();
        sim.held = Held::new(self.volumes.attached(&sim.node.name));
        self.free.push(Free::of(&sim));
        self.nodes.push(sim);
        if let Some(crowd) = self.crowd.get_mut() {
            crowd.counts.forget();
        }
        self.nodes.len() - 1
    }

    /// Assumes that a node that does not exist yet will have the same storage and devices as `like`.
    pub fn expect(&mut self, node: NodeIndex, like: &SimNode) {
        self.nodes[node].expect(like);
        if let Some(devices) = &mut self.devices {
            devices.number(&mut self.nodes[node]);
        }
    }

    /// Closes a node: from then on, [`Self::takes`] returns false for it. Topology spread still takes the
    /// node's domain into account, as kube-scheduler does until the Node object is gone. Pods stay on the
    /// node until they are removed.
    pub fn close(&mut self, node: NodeIndex) {
        self.switch(node, false);
    }

    /// Lets a closed node take pods again.
    pub fn open(&mut self, node: NodeIndex) {
        self.switch(node, true);
    }

    fn switch(&mut self, node: NodeIndex, open: bool) {
        self.nodes[node].open = open;
        self.free[node].open = open;
        if let Some(crowd) = self.crowd.get_mut() {
            crowd.counts.forget_taints(&self.spreads);
        }
    }

    /// Closes a node and hides it from topology spread, as if its Node object were gone.
    pub fn forget(&mut self, node: NodeIndex) {
        self.nodes[node].open = false;
        self.free[node].open = false;
        self.nodes[node].counts_for_spread = false;
        if let Some(crowd) = self.crowd.get_mut() {
            crowd.counts.forget();
        }
    }

    /// Increases a node's capacity and allocatable resources by the given CPU, in thousandths of a core, and
    /// memory, in bytes.
    pub fn extend(&mut self, node: NodeIndex, cpu_milli: i64, memory: i64) {
        let sim = &mut self.nodes[node];
        let own = Arc::make_mut(&mut sim.node);
        for amounts in [&mut own.allocatable, &mut own.capacity] {
            amounts.cpu_milli += cpu_milli;
            amounts.memory += memory;
        }
        self.free[node] = Free::of(sim);
    }

    /// Places a pod on a node without checking whether it fits.
    pub fn place(&mut self, pod: &Arc<Pod>, node: NodeIndex) {
        self.nodes[node].hold(pod);
        self.take_note(pod, node);
    }

    /// Notes that a node holds one more pod.
    fn take_note(&mut self, pod: &Arc<Pod>, node: NodeIndex) {
        self.count(pod, node, 1);
        if let Some(devices) = &mut self.devices {
            devices.place(pod, &self.nodes[node], node);
        }
    }

    /// Places all pods of a node. The node must have no pods yet. The result is the same as placing each pod
    /// with [`Self::place`].
    pub fn place_all(&mut self, load: &NodeLoad, node: NodeIndex) {
        if self.crowd.get().is_some() {
            // Place the pods one by one, so that each of them is added to the world's counts.
            Arc::make_mut(&mut self.nodes[node].pods).reserve(load.pods.len());
            for pod in load.pods.iter() {
                self.place(pod, node);
            }
            return;
        }
        let sim = &mut self.nodes[node];
        sim.pods = load.pods.clone();
        sim.used.clone_from(&load.used);
        sim.ports.clone_from(&load.ports);
        self.free[node] = Free::of(sim);
        for pod in &load.far_reaching {
            self.take_note(pod, node);
        }
    }

    /// Places `count` copies of `pod` without checking whether they fit. The copies cannot be removed again.
    pub fn place_copies(&mut self, pod: &Arc<Pod>, count: i64, node: NodeIndex) {
        self.nodes[node].hold_copies(pod, count);
        self.count(pod, node, count);
    }

    /// Places a preemptible pod on the node. Its requests reduce the free resources only for pods that never
    /// preempt others (`preemptionPolicy: Never`).
    pub fn place_yielding(&mut self, pod: &Pod, node: NodeIndex) {
        self.nodes[node].yielded.add(&pod.requests);
    }

    /// Removes a pod from a node. Does nothing if the pod is not on the node.
    pub fn remove(&mut self, pod: &Arc<Pod>, node: NodeIndex) {
        let sim = &mut self.nodes[node];
        let Some(at) = sim.pods.iter().rposition(|one| Arc::ptr_eq(one, pod)) else { return };
        Arc::make_mut(&mut sim.pods).remove(at);
        sim.used.subtract(&pod.requests);
        for port in &pod.host_ports {
            if let Some(at) = sim.ports.iter().position(|one| one == port) {
                sim.ports.remove(at);
            }
        }
        self.count(pod, node, -1);
        if let Some(devices) = &mut self.devices {
            devices.remove(pod);
        }
    }

    fn count(&mut self, pod: &Arc<Pod>, node: NodeIndex, by: i64) {
        self.free[node] = Free::of(&self.nodes[node]);
        if pod.looks().is_some() {
            self.effort.add(effort::SOCIAL);
            self.anti += if pod.affinity.anti.is_empty() { 0 } else { by };
            if self.terms.lacks(pod) {
                self.announce(pod);
            }
        }
        if let Some(crowd) = self.crowd.get_mut() {
            let around = Around {
                nodes: &self.nodes,
                topologies: &self.topologies,
                namespaces: &self.namespaces,
                terms: &self.terms,
                spreads: &self.spreads,
            };
            crowd.add(pod, node, by, around);
        }
        if pod.spec.digest().has_volumes {
            self.nodes[node].held.count(&self.volumes.mounted(pod), by);
            self.promised.count(pod, &self.nodes[node], by, &self.volumes);
            for claim in volume_restrictions::exclusive_claims(pod, &self.volumes) {
                *self.claims_in_use.entry((pod.namespace.clone(), claim.to_owned())).or_default() += by;
            }
        }
    }

    /// Prepares a pod for checks: determines everything that depends on the entire world and not on a single
    /// node.
    pub fn prepare(&self, pod: &Arc<Pod>) -> Prepared {
        let spread = pod_topology_spread::prepare(pod, self);
        let affinity = inter_pod_affinity::prepare(pod, self);
        let price = Price::of(pod, self.nodes.len());
        self.effort.add(price.preparation);
        Prepared {
            pod: pod.clone(),
            price,
            social: !spread.is_empty() || !pod.affinity.pods.is_empty() || affinity.speaks(),
            spread,
            affinity,
            volumes_matter: pod.spec.digest().has_volumes,
            volumes_refused: volume_restrictions::prepare(pod, self),
            claims_refused: node_volume_limits::prepare(pod, &self.volumes),
            mounted: self.volumes.mounted(pod),
            binding: volume_binding::prepare(pod, &self.volumes, &self.promised),
            zones: volume_zone::prepare(pod, &self.volumes),
            features: pod.features.asked_by(self.version),
            devices: dynamic_resources::prepare(self.devices.as_deref(), pod),
        }
    }

    /// Checks whether the node takes the pod. Returns the refusal of the first filter that refuses, in
    /// kube-scheduler's order.
    pub fn check(&self, prepared: &Prepared, node: NodeIndex) -> Result<(), Refusal> {
        self.checked(prepared, node, true)
    }

    /// Like [`Self::check`], but does not determine which devices are missing, because that is expensive.
    pub fn check_briefly(&self, prepared: &Prepared, node: NodeIndex) -> Result<(), Refusal> {
        self.checked(prepared, node, false)
    }

    fn checked(&self, prepared: &Prepared, node: NodeIndex, wants_to_know: bool) -> Result<(), Refusal> {
        let sim = &self.nodes[node];
        self.effort.add(prepared.price.check);
        self.check_alone(prepared, sim, &sim.held)?;
        self.check_others(prepared, node)?;
        self.check_last(prepared, (sim, Some(node)), wants_to_know)
    }

    /// Runs the filters that look at pods on all nodes.
    fn check_others(&self, prepared: &Prepared, node: NodeIndex) -> Result<(), Refusal> {
        if !prepared.social {
            return Ok(());
        }
        let domain = |key: &Key| self.topologies.of(key, node, &self.nodes);
        prepared.spread.check(&prepared.pod, &self.nodes[node], false, &domain)?;
        prepared.affinity.check(&domain, self)
    }

    /// Whether one of the node's domains now has more pods than the pod's topology spread allows. This can
    /// happen to a placed pod when another domain becomes known later.
    pub fn exceeds_spread(&self, prepared: &Prepared, node: NodeIndex) -> bool {
        prepared.spread.is_exceeded(&|key: &Key| self.around().domain(key, node))
    }

    /// Whether the node is open and has enough free CPU, memory and pod slots for the pod. The node may still
    /// refuse the pod for another reason.
    pub fn has_room(&self, prepared: &Prepared, node: NodeIndex) -> bool {
        let free = self.free[node];
        free.open && free.holds(&prepared.pod.requests)
    }

    /// Whether the node is open and takes the pod. The filters do not run in kube-scheduler's order: those
    /// that refuse most nodes with room, and cost least, run first.
    pub fn takes(&self, prepared: &Prepared, node: NodeIndex) -> bool {
        if !self.has_room(prepared, node) {
            return false;
        }
        let sim = &self.nodes[node];
        self.effort.add(prepared.price.check);
        self.check_others(prepared, node).is_ok()
            && self.check_alone(prepared, sim, &sim.held).is_ok()
            && self.check_last(prepared, (sim, Some(node)), false).is_ok()
    }

    /// Like [`Self::check`], for a node that is not in the world yet. The node is checked as if it and its
    /// pods had been added.
    pub fn check_fresh(&self, prepared: &Prepared, node: &SimNode) -> Result<(), Refusal> {
        let mut held = Held::default();
        for pod in node.pods.iter().filter(|_| prepared.volumes_matter) {
            held.count(&self.volumes.mounted(pod), 1);
        }
        self.effort.add(prepared.price.check);
        self.check_alone(prepared, node, &held)?;
        let keeps_away = |pod: &Pod| !pod.affinity.anti.is_empty();
        let meets = keeps_away(&prepared.pod) && !node.pods.is_empty();
        if prepared.social || meets || node.pods.iter().any(|pod| keeps_away(pod)) {
            let domain = |key: &Key| self.topologies.of_labels(key, &node.node.labels, &self.nodes);
            prepared.spread.check(&prepared.pod, node, true, &domain)?;
            prepared.affinity.check_fresh(&prepared.pod, node, &domain, self)?;
        }
        self.check_last(prepared, (node, None), true)
    }

    /// Runs the filters that kube-scheduler runs last.
    fn check_last(
        &self,
        prepared: &Prepared,
        (sim, at): (&SimNode, Option<NodeIndex>),
        wants_to_know: bool,
    ) -> Result<(), Refusal> {
        node_declared_features::check(prepared.features, &sim.node)?;
        let Some(asked) = &prepared.devices else { return Ok(()) };
        let found = match &self.devices {
            Some(devices) => devices.check(asked, &prepared.pod, (sim, at), wants_to_know),
            None => dynamic_resources::refuse(asked),
        };
        found.map_err(|problem| Refusal::DynamicResources(Box::new(problem)))
    }

    /// Whether the required anti-affinity of `one` selects `other`.
    pub fn repels(&self, one: &Pod, other: &Pod) -> bool {
        inter_pod_affinity::repels(one, other, None, &self.namespaces)
    }

    /// Whether the pod tolerates the node's taints and cordon, and its selectors match the node's labels.
    /// Free resources are not checked.
    pub fn accepts(pod: &Pod, node: &Node) -> bool {
        node_unschedulable::check(pod, node).is_ok()
            && taint_toleration::check(pod, node).is_ok()
            && node_affinity::check(pod, node).is_ok()
    }

    /// Like [`Self::accepts`], but the node's kubelet must also have the features that the scheduler requires
    /// for the pod.
    pub fn suits(&self, pod: &Pod, node: &Node) -> bool {
        Self::accepts(pod, node)
            && node_declared_features::check(pod.features.asked_by(self.version), node).is_ok()
    }

    /// Whether required anti-affinity with host names as domains keeps the two pods off the same node.
    pub fn repel(&self, a: &Pod, b: &Pod) -> bool {
        let repels = |a, b| inter_pod_affinity::repels(a, b, Some(HOSTNAME), &self.namespaces);
        repels(a, b) || repels(b, a)
    }

    /// Whether anti-affinity, of the pod or of other pods, keeps the pod off the node. This check is cheap,
    /// because it runs no other filter.
    pub fn keeps_off(&self, prepared: &Prepared, node: NodeIndex) -> bool {
        let domain = |key: &Key| self.topologies.of(key, node, &self.nodes);
        prepared.social && prepared.affinity.check_anti_affinity(&domain, self).is_err()
    }

    /// Returns two lists of terms with host names as domains: the pod's own anti-affinity terms, and all
    /// terms that select the pod. Two announced pods repel each other on a host if a term is in the first
    /// list of one pod and in the second list of the other.
    pub fn repels_on_hosts(&self, pod: &Pod) -> (Vec<usize>, Vec<usize>) {
        let over_hosts = |term: &usize| *self.terms.get(*term).key.name == *HOSTNAME;
        let own = self.terms.own(pod).into_iter().flat_map(|own| own.anti.iter().copied());
        let about = self.terms.about(pod, &self.namespaces);
        (own.filter(over_hosts).collect(), about.into_iter().filter(over_hosts).collect())
    }

    /// Runs the filters that look only at the node and its own pods.
    fn check_alone(&self, prepared: &Prepared, sim: &SimNode, held: &Held) -> Result<(), Refusal> {
        let pod = prepared.pod.as_ref();
        node_unschedulable::check(pod, &sim.node)?;
        taint_toleration::check(pod, &sim.node)?;
        node_affinity::check(pod, &sim.node)?;
        node_ports::check(pod, &sim.ports)?;
        let served = |name: &str| self.devices.as_ref().is_some_and(|devices| devices.serves(name));
        node_resources_fit::check(&pod.requests, &sim.node.allocatable, &sim.used_for(pod), &served)?;
        if prepared.volumes_matter {
            let others = sim.pods.iter().map(AsRef::as_ref);
            volume_restrictions::check(pod, prepared.volumes_refused.as_ref(), others)?;
            if let Some(refusal) = &prepared.claims_refused {
                return Err(refusal.clone());
            }
            node_volume_limits::check(&prepared.mounted, sim, held, &self.volumes)?;
            volume_binding::check(&prepared.binding, sim)?;
            volume_zone::check(&prepared.zones, &sim.node)?;
        }
        Ok(())
    }

    /// Places a pod, and updates `prepared` with the change.
    pub fn place_prepared(&mut self, prepared: &mut Prepared, pod: &Arc<Pod>, node: NodeIndex) {
        let handed_back = self.hand_back(prepared);
        self.place(pod, node);
        self.tell_of(prepared, pod, (node, 1), handed_back);
    }

    /// Places `count` copies of `pod`, and updates `prepared` with the change. The copies cannot be removed
    /// again.
    pub fn place_copies_prepared(
        &mut self,
        prepared: &mut Prepared,
        pod: &Arc<Pod>,
        count: i64,
        node: NodeIndex,
    ) {
        let handed_back = self.hand_back(prepared);
        self.place_copies(pod, count, node);
        self.tell_of(prepared, pod, (node, count), handed_back);
    }

    /// Drops the counts that the preparation shares with the world. Returns the number of the spread that
    /// these counts belong to, or `None` if no counts are shared.
    fn hand_back(&self, prepared: &mut Prepared) -> Option<usize> {
        prepared.spread.hand_back(self.crowd.get()?)
    }

    /// Adds a node, and updates `prepared` with the change.
    pub fn add_node_prepared(&mut self, prepared: &mut Prepared, node: Arc<Node>) -> NodeIndex {
        let index = self.add_node(node);
        if !prepared.spread.is_empty() {
            prepared.spread.add_node(&prepared.pod, index, self.around());
        }
        index
    }

    /// Updates `prepared` after `by` copies of `other` were added to a node, or removed from it if `by` is
    /// negative.
    pub fn tell(&self, prepared: &mut Prepared, other: &Arc<Pod>, node: NodeIndex, by: i64) {
        self.tell_of(prepared, other, (node, by), None);
    }

    /// Like [`Self::tell`], for a preparation that may have dropped its shared counts. If it has,
    /// `handed_back` is the number of the spread that these counts belong to.
    fn tell_of(
        &self,
        prepared: &mut Prepared,
        other: &Arc<Pod>,
        (node, by): (NodeIndex, i64),
        handed_back: Option<usize>,
    ) {
        if let Some(number) = handed_back {
            prepared.spread.take(self.crowd().spread(number, self.around()));
        } else if !prepared.spread.is_empty() {
            prepared.spread.count(&prepared.pod, other, node, self.around(), by);
        }
        let pod = &prepared.pod;
        if !pod.affinity.pods.is_empty() || !pod.affinity.anti.is_empty() || !other.affinity.anti.is_empty() {
            prepared.affinity.tell(pod, other, self);
            prepared.social = true;
        }
        if prepared.volumes_matter {
            prepared.volumes_refused = volume_restrictions::prepare(pod, self);
            if self.volumes.any_to_bind() {
                prepared.binding = volume_binding::prepare(pod, &self.volumes, &self.promised);
            }
        }
    }
}
