//! A node in a simulated cluster, with the pods placed on it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::dynamic_resources::NodeDevices;
use super::node_volume_limits::Held;
use model::devices::ResourceSlice;
use model::node::Node;
use model::pod::{HostPort, Pod};
use model::resources::Resources;
use model::workload::CsiNode;

/// A node in a simulated cluster, with the pods placed on it.
#[derive(Clone, Debug)]
pub struct SimNode {
    /// The node.
    pub node: Arc<Node>,
    /// The pods on the node, without those in `copies`. Forks of a world share the list until they change it.
    pub pods: Arc<Vec<Arc<Pod>>>,
    /// Groups of equal pods that were placed together. Each entry contains one pod of the group and the
    /// number of pods. These pods cannot be removed again.
    pub copies: Vec<(Arc<Pod>, i64)>,
    /// The total requests of all pods on the node.
    pub used: Resources,
    /// The total requests of pods that others may preempt. This total reduces the free resources only for
    /// pods that never preempt others.
    pub(super) yielded: Resources,
    pub(super) ports: Vec<HostPort>,
    /// The node's CSI drivers, with their limits.
    pub csi: Option<Arc<CsiNode>>,
    /// The CSI drivers that have not yet reported how much storage capacity is available to the node for new
    /// volumes.
    pub room_unknown: Arc<BTreeSet<String>>,
    pub(super) held: Held,
    pub(super) devices: NodeDevices,
    /// Whether the node takes pods. A closed node takes none, but topology spread may still take its domain
    /// into account.
    pub open: bool,
    pub(super) counts_for_spread: bool,
}

impl SimNode {
    /// A node without pods.
    pub fn empty(node: Arc<Node>) -> Self {
        Self {
            node,
            pods: Arc::default(),
            copies: Vec::new(),
            used: Resources::default(),
            yielded: Resources::default(),
            ports: Vec::new(),
            csi: None,
            room_unknown: Arc::default(),
            held: Held::default(),
            devices: NodeDevices::default(),
            open: true,
            counts_for_spread: true,
        }
    }

    /// The same node without its pods.
    pub fn emptied(&self) -> Self {
        let mut emptied = Self::empty(self.node.clone());
        emptied.expect(self);
        emptied
    }

    /// Assumes that this node has the same storage and devices as `other`.
    pub fn expect(&mut self, other: &Self) {
        self.devices.expect_like(&other.devices);
        if let Some(csi) = &other.csi {
            self.csi.get_or_insert_with(|| csi.clone());
        }
        self.room_unknown.clone_from(&other.room_unknown);
    }

    /// Sets the ResourceSlices that are expected for a node that does not exist yet.
    pub fn expect_slices(&mut self, slices: &Arc<[Arc<ResourceSlice>]>) {
        self.devices.expect(slices);
    }

    /// Drops the expected ResourceSlices. The node then has only the snapshot's slices that name this node.
    pub fn expect_no_slices(&mut self) {
        self.devices = NodeDevices::default();
    }

    /// The node's free resources: its allocatable resources, less the requests of its pods.
    pub fn free(&self) -> Resources {
        let mut free = self.node.allocatable.clone();
        free.subtract(&self.used);
        free
    }

    /// Returns the node's resources that are in use from the pod's point of view. If the pod never preempts
    /// others, they include the requests of preemptible pods.
    pub(super) fn used_for(&self, pod: &Pod) -> Cow<'_, Resources> {
        if !pod.never_preempts || self.yielded.pods == 0 {
            return Cow::Borrowed(&self.used);
        }
        let mut used = self.used.clone();
        used.add(&self.yielded);
        Cow::Owned(used)
    }

    /// Places `count` copies of `pod`, as [`World::place_copies`](super::World::place_copies) does.
    pub fn hold_copies(&mut self, pod: &Arc<Pod>, count: i64) {
        self.used.add_times(&pod.requests, count);
        for _ in 0..count {
            self.ports.extend(pod.host_ports.iter().cloned());
        }
        self.copies.push((pod.clone(), count));
    }

    /// Places a pod on the node without checking whether it fits. For a node in a world, use
    /// [`World::place`](super::World::place).
    pub fn hold(&mut self, pod: &Arc<Pod>) {
        self.used.add(&pod.requests);
        self.ports.extend(pod.host_ports.iter().cloned());
        Arc::make_mut(&mut self.pods).push(pod.clone());
    }
}
