//! A pod that is ready to be checked. Everything that depends on the entire world and not on a single node is
//! determined once, in advance.

use std::sync::Arc;

use super::dynamic_resources::Asked;
use super::effort::Price;
use super::refusal::Refusal;
use super::volumes::Mounted;
use super::world::World;
use super::{inter_pod_affinity, pod_topology_spread, volume_binding, volume_zone};
use model::features::Features;
use model::pod::Pod;

/// A pod, prepared against a world (kube-scheduler's PreFilter). The prepared pod becomes stale unless every
/// change of the world is reported to it. [`World::place_prepared`] and similar methods report their own
/// changes. [`World::tell`] reports any other placement or removal of pods.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(super) pod: Arc<Pod>,
    pub(super) price: Price,
    pub(super) spread: pod_topology_spread::State,
    pub(super) affinity: inter_pod_affinity::State,
    /// Whether topology spread or pod affinity matters for the pod.
    pub(super) social: bool,
    pub(super) volumes_matter: bool,
    pub(super) volumes_refused: Option<Refusal>,
    pub(super) claims_refused: Option<Refusal>,
    pub(super) mounted: Mounted,
    pub(super) binding: volume_binding::State,
    pub(super) zones: volume_zone::State,
    /// The features that the scheduler requires of a node's kubelet for the pod.
    pub(super) features: Features,
    /// The devices that the pod asks for, if any.
    pub(super) devices: Option<Arc<Asked>>,
}

impl Prepared {
    /// The pod.
    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// Whether a node that refuses the pod will keep refusing similar pods while pods are only added to the
    /// world. This is true unless the pod has topology spread or pod affinity, which added pods can satisfy.
    pub fn refusals_last(&self) -> bool {
        self.spread.is_empty() && self.pod.affinity.pods.is_empty()
    }

    /// Whether only the node itself matters for the pod, and each additional pod only reduces the node's
    /// room. This is true for plain pods, and for pods with claims of their own if each device belongs to one
    /// node.
    pub fn is_local(&self, world: &World) -> bool {
        let own = |asked: &Asked| asked.is_own() && world.devices_are_local();
        self.refusals_last()
            && self.pod.affinity.anti.is_empty()
            && !self.volumes_matter
            && self.devices.as_deref().is_none_or(own)
            && self.affinity.repels_no_pod(world)
    }
}
