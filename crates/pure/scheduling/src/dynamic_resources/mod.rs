//! DynamicResources: it must be possible to allocate devices for the pod's claims, and for the pod's extended
//! resources if a class provides devices for them.
//!
//! Devices are chosen in kube-scheduler's order, so that the same devices are left for the next pod. When a
//! pod is removed in the simulation, its devices are given back, unless another pod may still use the claim.

mod ask;
mod capacity;
mod constraints;
mod counters;
mod facts;
mod pools;
mod problem;
mod search;
mod shortage;
mod slices;
mod state;
mod taking;

use std::sync::{Arc, OnceLock};

use super::sim_node::SimNode;
use super::world::NodeIndex;
use ask::ClaimAsk;
use facts::{ClaimKey, Facts, named_claims};
use model::Snapshot;
use model::devices::{ClaimSource, Made, PodClaim, ResourceClaim, ResourceSlice, may_be_devices};
use model::pod::Pod;
use model::resources::Resources;
use pools::Pool;
pub use problem::{DeviceProblem, Shortage};
use slices::DeviceId;
use state::{Place, State, Taken};

/// The first device number for a node that belongs to no world. None of this node's devices are in use.
const OF_NO_WORLD: DeviceId = DeviceId::MAX / 2;

/// The devices of a world, and the claims for which they are allocated.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    facts: Arc<Facts>,
    state: State,
}

/// The devices of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeDevices {
    /// The slices that a node is expected to have, if the node does not exist yet.
    expected: Option<Arc<[Arc<ResourceSlice>]>>,
    first: Option<DeviceId>,
    /// The pools whose devices the node can use, gathered when first needed.
    pools: OnceLock<Arc<[Pool]>>,
}

/// The claims of a pod and their requests.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    problem: Option<DeviceProblem>,
    claims: Vec<AskedClaim>,
    /// Extended resources for which a class provides devices: the resource, the class and the number of
    /// devices.
    extended: Vec<(String, String, i64)>,
}

#[derive(Clone, Debug)]
struct AskedClaim {
    key: ClaimKey,
    ask: Arc<ClaimAsk>,
    /// Whether the claim belongs to this pod alone. Similar pods have equal claims of their own.
    own: bool,
    /// Where the devices that the cluster has allocated for the claim can be used. `None` if nothing is
    /// allocated.
    place: Option<Place>,
    /// Whether the pod already has a node. If so, the checks determine where the pod could move with its
    /// claims.
    moves: bool,
}

impl NodeDevices {
    /// Sets the slices of a node that does not exist yet.
    pub(super) fn expect(&mut self, slices: &Arc<[Arc<ResourceSlice>]>) {
        *self = Self { expected: Some(slices.clone()), ..Self::default() };
    }

    /// Copies the expected slices of a similar node, unless this node already has expected slices.
    pub(super) fn expect_like(&mut self, other: &Self) {
        if let (None, Some(slices)) = (&self.expected, &other.expected) {
            self.expect(&slices.clone());
        }
    }
}

impl Asked {
    /// Whether all of the pod's claims belong to the pod alone, and their devices can be reallocated on a
    /// different node.
    pub(super) fn is_own(&self) -> bool {
        let own = |claim: &AskedClaim| claim.own && claim.place != Some(Place::Anywhere);
        self.problem.is_none() && self.extended.is_empty() && self.claims.iter().all(own)
    }
}

impl Devices {
    /// Whether each device can be used from one node only.
    pub(super) fn are_local(&self) -> bool {
        self.facts.are_local()
    }

    /// The devices of a snapshot before any pod is placed. `None` if the snapshot has neither slices nor
    /// classes nor claims.
    pub(super) fn of(snapshot: &Snapshot) -> Option<Self> {
        let facts = Arc::new(Facts::of(snapshot)?);
        Some(Self { state: State::new(&facts), facts })
    }

    /// Returns the same devices in their state before any pod is placed.
    pub(super) fn without_pods(&self) -> Self {
        Self { facts: self.facts.clone(), state: State::new(&self.facts) }
    }

    /// Whether a class provides devices for an extended resource.
    pub(super) fn serves(&self, resource: &str) -> bool {
        self.facts.class_of(resource).is_some()
    }

    /// Whether the pod may need devices.
    pub(super) fn concern(&self, pod: &Pod) -> bool {
        !pod.resource_claims.is_empty() || pod.requests.other.keys().any(|name| self.serves(name))
    }

    /// Numbers the expected devices of a node that was added to the world.
    pub(super) fn number(&mut self, node: &mut SimNode) {
        if let Some(slices) = &node.devices.expected {
            let count = slices.iter().map(|slice| slice.devices.len()).sum();
            node.devices.first = Some(self.state.number(count));
            node.devices.pools = OnceLock::new();
        }
    }

    fn pools<'n>(&self, node: &'n SimNode) -> &'n [Pool] {
        node.devices.pools.get_or_init(|| {
            let first = node.devices.first.unwrap_or(OF_NO_WORLD);
            match &node.devices.expected {
                Some(slices) => pools::gather(&self.facts, &node.node, &self.facts.local(slices, first)),
                None => pools::gather(&self.facts, &node.node, self.facts.slices().of_node(&node.node.name)),
            }
        })
    }

    /// Looks up the claims of a pod and the devices that they ask for.
    fn asked(&self, pod: &Pod) -> Asked {
        let mut asked = Asked { problem: None, claims: Vec::new(), extended: Vec::new() };
        for claim in &pod.resource_claims {
            match self.asked_claim(pod, claim) {
                Ok(found) => asked.claims.extend(found),
                Err(problem) => {
                    asked.problem = Some(problem);
                    return asked;
                }
            }
        }
        asked.extended = self.extended(pod);
        let left = self.facts.extended_claim(&pod.uid).filter(|_| !asked.extended.is_empty());
        if let Some(claim) = left.and_then(|key| self.facts.claim(key)) {
            let asks = !claim.object.requests.is_empty();
            asked.problem = asks.then(|| DeviceProblem::ExtendedClaimLeft(claim.ask.name.clone()));
        }
        asked
    }

    fn asked_claim(&self, pod: &Pod, claim: &PodClaim) -> Result<Option<AskedClaim>, DeviceProblem> {
        let (name, own) = match &claim.source {
            ClaimSource::Named(name) => (name, false),
            ClaimSource::Template { made: Made::As(name), .. } => (name, true),
            ClaimSource::Template { made: Made::None, .. } => return Ok(None),
            ClaimSource::Template { made: Made::NotYet, .. } => {
                return Err(DeviceProblem::ClaimNotMade(claim.name.clone()));
            }
            ClaimSource::Unknown => return Err(DeviceProblem::ClaimUnknown(claim.name.clone())),
        };
        let key = (pod.namespace.clone(), name.clone());
        let words = || format!("{}/{name}", pod.namespace);
        let Some(found) = self.facts.claim(&key) else { return Err(DeviceProblem::ClaimMissing(words())) };
        if found.object.deleted {
            return Err(DeviceProblem::ClaimDeleted(words()));
        }
        if own && !is_of(&found.object, pod) {
            return Err(DeviceProblem::ClaimOfAnother(words()));
        }
        let place = self.state.allocated_for(&key).map(|taken| taken.place.clone());
        Ok(Some(AskedClaim { key, ask: found.ask.clone(), own, place, moves: pod.node.is_some() }))
    }

    /// The pod's extended resources for which classes provide devices.
    fn extended(&self, pod: &Pod) -> Vec<(String, String, i64)> {
        let mut all = Vec::new();
        for (resource, total) in pod.requests.other.iter().filter(|(_, total)| **total > 0) {
            let class = Some(resource).filter(|name| may_be_devices(name));
            let Some(class) = class.and_then(|name| self.facts.class_of(name)) else { continue };
            let by_container = pod.extended.iter().filter(|one| one.resource == *resource);
            let before = all.len();
            all.extend(by_container.map(|one| (resource.clone(), class.to_owned(), one.count)));
            if all.len() == before {
                all.push((resource.clone(), class.to_owned(), *total));
            }
        }
        all
    }

    /// Checks whether devices can be allocated on a node. `at` is the node's index, if the node is in the
    /// world. If `wants_to_know` is false, the error does not name the missing devices.
    pub(super) fn check(
        &self,
        asked: &Asked,
        pod: &Pod,
        (node, at): (&SimNode, Option<NodeIndex>),
        wants_to_know: bool,
    ) -> Result<(), DeviceProblem> {
        if let Some(problem) = &asked.problem {
            return Err(problem.clone());
        }
        let mut open = Vec::with_capacity(asked.claims.len());
        for claim in &asked.claims {
            let now = || self.state.taken_for(&claim.key).map(|taken| &taken.place);
            match if claim.own { claim.place.as_ref() } else { now() } {
                None => open.push(claim.ask.clone()),
                Some(place) if place.includes(at, &node.node) => {}
                Some(_) if claim.moves && (claim.own || !self.state.is_used(&claim.key)) => {
                    open.push(claim.ask.clone());
                }
                Some(_) => return Err(DeviceProblem::Elsewhere(claim.ask.name.clone())),
            }
        }
        open.extend(extended_ask(&asked.extended, pod, &node.node.allocatable));
        if open.is_empty() {
            return Ok(());
        }
        let pools = self.pools(node);
        match search::search(&self.facts, &self.state, pools, &open, at)? {
            Some(_) => Ok(()),
            None if !wants_to_know => Err(DeviceProblem::Together(Vec::new())),
            None => Err(shortage::find(&self.facts, &self.state, pools, &open)),
        }
    }

    /// Allocates devices for a pod on a node of the world, as far as possible.
    pub(super) fn place(&mut self, pod: &Pod, node: &SimNode, at: NodeIndex) {
        if !self.concern(pod) {
            return;
        }
        let mut open: Vec<(ClaimKey, Arc<ClaimAsk>)> = Vec::new();
        let mut keys: Vec<_> = named_claims(pod).collect();
        let extended = extended_ask(&self.extended(pod), pod, &node.node.allocatable);
        if extended.is_some() {
            keys.push(self.extended_key(pod));
        }
        let is_home = pod.node.as_deref() == Some(&node.node.name);
        for key in keys {
            if pod.node.is_some() && !is_home {
                self.state.void(&key);
            }
            if self.state.join(&key, self.is_reserving(pod, &key)) {
                continue;
            }
            let home = self.state.home(&key, &self.facts);
            if let Some(home) = home.filter(|home| home.place.includes(Some(at), &node.node)) {
                self.state.hold(key, home);
                continue;
            }
            // A pod that already runs on this node has only the devices that the cluster reports.
            if is_home {
                continue;
            }
            let known = self.facts.claim(&key).filter(|claim| !claim.object.extended);
            if let Some(ask) = known.map(|claim| claim.ask.clone()).or_else(|| extended.clone()) {
                open.push((key, ask));
            }
        }
        if open.is_empty() {
            return;
        }
        let asks: Vec<_> = open.iter().map(|(_, ask)| ask.clone()).collect();
        let found = search::search(&self.facts, &self.state, self.pools(node), &asks, Some(at));
        let mut taken = found.ok().flatten().unwrap_or_default().into_iter();
        for (key, _) in open {
            let nothing = || Taken { devices: Vec::new(), place: Place::Node(at) };
            self.state.hold(key, taken.next().unwrap_or_else(nothing));
        }
    }

    /// Gives back the devices of a pod that is removed from its node.
    pub(super) fn remove(&mut self, pod: &Pod) {
        if !self.concern(pod) {
            return;
        }
        let own = (!self.extended(pod).is_empty()).then(|| self.extended_key(pod));
        for key in named_claims(pod).chain(own) {
            self.state.leave(&key, self.is_reserving(pod, &key));
        }
    }

    /// Whether the pod has a node, and the claim is reserved for the pod.
    fn is_reserving(&self, pod: &Pod, key: &ClaimKey) -> bool {
        let reserved =
            || self.facts.claim(key).is_some_and(|claim| claim.object.reserved_for.contains(&pod.uid));
        pod.node.is_some() && reserved()
    }

    /// The key of the claim for the pod's extended resources, even if the claim does not exist yet.
    fn extended_key(&self, pod: &Pod) -> ClaimKey {
        let made = self.facts.extended_claim(&pod.uid).filter(|_| !pod.uid.is_empty());
        made.cloned().unwrap_or_else(|| (pod.namespace.clone(), format!("<extended-resources> {}", pod.name)))
    }
}

/// Creates requests for devices for the pod's extended resources, except those that the node itself offers.
fn extended_ask(extended: &[(String, String, i64)], pod: &Pod, offered: &Resources) -> Option<Arc<ClaimAsk>> {
    let lacks = |(name, ..): &&(String, String, i64)| offered.other.get(name).is_none_or(|count| *count == 0);
    let wanted: Vec<_> = extended.iter().filter(lacks).cloned().collect();
    (!wanted.is_empty()).then(|| ClaimAsk::of_classes(format!("pod {}", pod.id()), wanted))
}

/// The devices that a pod asks for. `None` if the pod needs none.
pub(super) fn prepare(devices: Option<&Devices>, pod: &Pod) -> Option<Arc<Asked>> {
    let asked = match devices {
        Some(devices) if devices.concern(pod) => devices.asked(pod),
        None if !pod.resource_claims.is_empty() => {
            let name = match &pod.resource_claims[0].source {
                ClaimSource::Named(name) | ClaimSource::Template { made: Made::As(name), .. } => name,
                _ => &pod.resource_claims[0].name,
            };
            let problem = Some(DeviceProblem::ClaimMissing(format!("{}/{name}", pod.namespace)));
            Asked { problem, claims: Vec::new(), extended: Vec::new() }
        }
        _ => return None,
    };
    let nothing = asked.problem.is_none() && asked.claims.is_empty() && asked.extended.is_empty();
    (!nothing).then(|| Arc::new(asked))
}

/// Refuses a pod that has claims, in a world without devices.
pub(super) fn refuse(asked: &Asked) -> Result<(), DeviceProblem> {
    asked.problem.clone().map_or(Ok(()), Err)
}

/// Whether the claim was created for the pod.
fn is_of(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.owner.as_ref().is_some_and(|owner| owner.uid == pod.uid)
}

#[cfg(test)]
mod tests;
