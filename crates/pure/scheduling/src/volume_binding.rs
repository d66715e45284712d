//! VolumeBinding: bound volumes must be usable on the node. For each unbound claim, a volume must be
//! available to the node, or it must be possible to create one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::in_tree::{self, Untranslatable};
use super::refusal::{Refusal, VolumeProblem};
use super::selector::{labels_match, node_matches};
use super::sim_node::SimNode;
use super::volumes::Volumes;
use model::node::Node;
use model::pod::{Pod, VolumeSource};
use model::selector::NodeSelector;
use model::workload::{PersistentVolume, StorageCapacity, StorageClass, VolumeClaim};

/// The pod's claims, divided into bound and waiting ones (`GetPodVolumeClaims`).
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    bound: Vec<Bound>,
    /// Claims that are bound only once the pod has a node, sorted by request, the smallest first.
    waiting: Vec<Waiting>,
    problem: Option<VolumeProblem>,
}

/// The volume that a claim is bound to, if the volume exists.
#[derive(Clone, Debug)]
struct Bound {
    volume: Option<Arc<PersistentVolume>>,
    /// For an in-tree disk: the plugin, and the nodes on which its CSI driver can use the volume.
    served: Option<(&'static str, Result<Option<NodeSelector>, Untranslatable>)>,
}

/// A claim that is bound only once its pod has a node.
#[derive(Clone, Debug)]
struct Waiting {
    claim: Arc<VolumeClaim>,
    class: Arc<StorageClass>,
    /// Volumes that are reserved for the claim. If there are any, the claim binds to no others.
    reserved: Vec<Arc<PersistentVolume>>,
    /// Other volumes that the claim may bind to, the smallest first.
    suitable: Vec<Arc<PersistentVolume>>,
    /// The storage capacities that are large enough for a new volume. `None` if capacity is not checked.
    room: Option<Vec<Arc<StorageCapacity>>>,
}

/// Volumes that are promised to the claims of pods that have been placed but are not running yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Promised {
    /// The promised volumes, by the namespace and name of the claim. Each comes with the number of pods that
    /// use the claim.
    by_claim: BTreeMap<(String, String), (Arc<PersistentVolume>, i64)>,
    /// The names of the promised volumes.
    names: BTreeSet<String>,
}

impl Promised {
    /// Records that `by` copies of `pod` were placed on the node, or removed from it if `by` is negative.
    pub(super) fn count(&mut self, pod: &Pod, sim: &SimNode, by: i64, volumes: &Volumes) {
        // The claims of a running pod are already bound.
        if pod.node.is_some() || !volumes.any_to_bind() {
            return;
        }
        for claim in unbound(pod, volumes) {
            let key = (claim.namespace.clone(), claim.name.clone());
            if let Some((_, users)) = self.by_claim.get_mut(&key) {
                *users += by;
                if *users <= 0
                    && let Some((volume, _)) = self.by_claim.remove(&key)
                {
                    self.names.remove(&volume.name);
                }
            } else if by > 0 {
                // The pod's other claims keep the volumes that are already promised to them.
                let state = prepare(pod, volumes, self);
                let taken = state.matches_on(&sim.node).find(|(one, _)| one.name == claim.name);
                if let Some((_, volume)) = taken {
                    self.names.insert(volume.name.clone());
                    self.by_claim.insert(key, (volume.clone(), by));
                }
            }
        }
    }

    fn of(&self, claim: &VolumeClaim) -> Option<&Arc<PersistentVolume>> {
        if self.by_claim.is_empty() {
            return None;
        }
        self.by_claim.get(&(claim.namespace.clone(), claim.name.clone())).map(|one| &one.0)
    }

    fn holds(&self, volume: &PersistentVolume) -> bool {
        self.names.contains(&volume.name)
    }
}

/// The pod's claims that have no volume yet.
fn unbound<'v>(pod: &'v Pod, volumes: &'v Volumes) -> impl Iterator<Item = &'v Arc<VolumeClaim>> {
    let claims = pod.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim { name, .. } => volumes.claim(&pod.namespace, name.as_str()),
        _ => None,
    });
    claims.map(|claim| &claim.object).filter(|claim| claim.volume.is_none())
}

pub(super) fn prepare(pod: &Pod, volumes: &Volumes, promised: &Promised) -> State {
    let mut state = State::default();
    for volume in &pod.volumes {
        let VolumeSource::Claim { name, ephemeral, .. } = &volume.source else { continue };
        // An earlier filter has already refused a pod whose claim does not exist.
        let Some(claim) = volumes.claim(&pod.namespace, name.as_str()) else { continue };
        let claim = &claim.object;
        if claim.deleted || claim.lost {
            return State { problem: Some(VolumeProblem::ClaimGone), ..state };
        }
        if *ephemeral && claim.owner_uid.as_ref() != Some(&pod.uid) {
            return State { problem: Some(VolumeProblem::ClaimOfAnother), ..state };
        }
        let class = claim.class.as_ref().and_then(|class| volumes.class(class));
        match (&claim.volume, class) {
            (Some(volume), _) if claim.bound => state.bound.push(Bound::new(volumes.persistent(volume))),
            (None, Some(class)) if class.waits_for_consumer => {
                state.waiting.push(Waiting::new(claim, class, volumes, promised));
            }
            _ => return State { problem: Some(VolumeProblem::UnboundImmediate), ..state },
        }
    }
    state.waiting.sort_by_key(|waiting| waiting.claim.request);
    state
}

impl State {
    /// The claims that would be bound to an existing volume on this node, each with this volume.
    fn matches_on(&self, node: &Node) -> impl Iterator<Item = (&VolumeClaim, &Arc<PersistentVolume>)> {
        let mut taken = Vec::new();
        self.waiting.iter().filter(|waiting| waiting.claim.selected_node.is_none()).filter_map(
            move |waiting| {
                let volume = waiting.matching(node, &taken)?;
                taken.push(Arc::as_ptr(volume));
                Some((&*waiting.claim, volume))
            },
        )
    }
}

impl Bound {
    fn new(volume: Option<&Arc<PersistentVolume>>) -> Self {
        let served = volume.and_then(|volume| {
            let disk = volume.in_tree.as_ref()?;
            Some((in_tree::plugin(disk.kind), in_tree::node_affinity(volume, disk)))
        });
        Self { volume: volume.cloned(), served }
    }

    fn check(&self, sim: &SimNode) -> Result<(), VolumeProblem> {
        let volume = self.volume.as_ref().ok_or(VolumeProblem::VolumeMissing)?;
        let by_driver =
            |plugin: &str| sim.csi.as_ref().is_some_and(|csi| csi.migrated.iter().any(|one| one == plugin));
        let required = match &self.served {
            Some((plugin, affinity)) if by_driver(plugin) => {
                affinity.as_ref().map_err(|Untranslatable| VolumeProblem::NodeAffinity)?.as_ref()
            }
            _ => volume.node_affinity.as_ref(),
        };
        if matches(required, &sim.node) { Ok(()) } else { Err(VolumeProblem::NodeAffinity) }
    }
}

impl Waiting {
    fn new(
        claim: &Arc<VolumeClaim>,
        class: &Arc<StorageClass>,
        volumes: &Volumes,
        promised: &Promised,
    ) -> Self {
        let suits = |volume: &&Arc<PersistentVolume>| {
            volume.class == class.name
                && volume.block == claim.block
                && volume.attributes_class == claim.attributes_class
                && volume.capacity >= claim.request
        };
        let for_it =
            |volume: &&Arc<PersistentVolume>| volume.claim_uid.is_empty() || volume.claim_uid == claim.uid;
        let offers = |volume: &&Arc<PersistentVolume>| {
            claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
                && claim.selector.as_ref().is_none_or(|selector| labels_match(selector, &volume.labels))
        };
        let open = |volume: &&Arc<PersistentVolume>| !promised.holds(volume);
        // If pods with this claim were already placed, the volume promised to the claim counts as reserved.
        let reserved = match promised.of(claim) {
            Some(volume) => vec![volume.clone()],
            None => volumes.reserved(claim).iter().filter(suits).filter(for_it).cloned().collect(),
        };
        let free = volumes.free(&class.name).iter();
        Self {
            claim: claim.clone(),
            class: class.clone(),
            reserved,
            suitable: free.filter(suits).filter(offers).filter(open).cloned().collect(),
            room: room(claim, class, volumes),
        }
    }

    /// Checks whether the claim can be bound on the node, or a volume can be created for the claim on that
    /// node.
    fn check(&self, sim: &SimNode, taken: &mut Vec<*const PersistentVolume>) -> Result<(), VolumeProblem> {
        let node = &*sim.node;
        if let Some(chosen) = &self.claim.selected_node {
            if *chosen != node.name {
                return Err(VolumeProblem::NodeAffinity);
            }
        } else if let Some(volume) = self.matching(node, taken) {
            taken.push(Arc::as_ptr(volume));
            return Ok(());
        }
        self.can_provision(sim)
    }

    /// The volume that the claim would bind to on this node: one that is reserved for the claim or, if none
    /// is, the smallest suitable one (`FindMatchingVolume`).
    fn matching(&self, node: &Node, taken: &[*const PersistentVolume]) -> Option<&Arc<PersistentVolume>> {
        let open = |volume: &&Arc<PersistentVolume>| !taken.contains(&Arc::as_ptr(volume));
        let here = |volume: &&Arc<PersistentVolume>| matches(volume.node_affinity.as_ref(), node);
        if let Some(reserved) = self.reserved.iter().find(open) {
            return Some(reserved).filter(here);
        }
        self.suitable.iter().filter(open).find(here)
    }

    fn can_provision(&self, sim: &SimNode) -> Result<(), VolumeProblem> {
        let (node, provisioner) = (&*sim.node, &self.class.provisioner);
        let makes = !provisioner.is_empty() && provisioner != "kubernetes.io/no-provisioner";
        let topologies = &self.class.allowed_topologies;
        if !makes || !topologies.is_empty() && !topologies.iter().any(|term| matches(Some(term), node)) {
            return Err(VolumeProblem::NothingToBind);
        }
        let reaches = |capacity: &Arc<StorageCapacity>| {
            capacity.nodes.as_ref().is_some_and(|nodes| labels_match(nodes, &node.labels))
        };
        match &self.room {
            Some(room) if !room.iter().any(reaches) && !sim.room_unknown.contains(provisioner) => {
                Err(VolumeProblem::NoRoom)
            }
            _ => Ok(()),
        }
    }
}

/// The storage capacities that are large enough for the claim's new volume. `None` if capacity is not
/// checked.
fn room(claim: &VolumeClaim, class: &StorageClass, volumes: &Volumes) -> Option<Vec<Arc<StorageCapacity>>> {
    let asks = claim.request > 0
        && volumes.csi_driver(&class.provisioner).is_some_and(|driver| driver.storage_capacity);
    let holds = |capacity: &&Arc<StorageCapacity>| capacity.holds(claim.request);
    asks.then(|| volumes.capacities(&class.name).iter().filter(holds).cloned().collect())
}

pub(super) fn check(state: &State, sim: &SimNode) -> Result<(), Refusal> {
    find(state, sim).map_err(Refusal::VolumeBinding)
}

fn find(state: &State, sim: &SimNode) -> Result<(), VolumeProblem> {
    if let Some(problem) = state.problem {
        return Err(problem);
    }
    state.bound.iter().try_for_each(|bound| bound.check(sim))?;
    let mut taken = Vec::new();
    state.waiting.iter().try_for_each(|waiting| waiting.check(sim, &mut taken))
}

/// Whether the node's labels match the selector, if there is one. As in kube-scheduler, the node's name is
/// not compared.
fn matches(required: Option<&NodeSelector>, node: &Node) -> bool {
    required.is_none_or(|required| node_matches(required, "", &node.labels))
}
