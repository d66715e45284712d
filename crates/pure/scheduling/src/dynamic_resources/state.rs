//! The devices that are in use, and the claims that use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OF_NO_WORLD;
use super::facts::{ClaimKey, Facts};
use super::slices::DeviceId;
use crate::NodeIndex;
use crate::selector::node_matches;
use model::devices::{Allocation, Amounts};
use model::node::Node;
use model::selector::NodeSelector;

/// The devices that are in use, and the claims that use them.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    used: BTreeMap<DeviceId, Use>,
    /// For each device, the number of claims that use the whole device. With this number, a search can
    /// quickly rule out most devices.
    whole: Vec<u16>,
    claims: BTreeMap<ClaimKey, Held>,
    /// The next free device number, for a device of a node that does not exist yet.
    next: DeviceId,
}

/// The ways in which a device is in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Use {
    /// The number of claims that use the whole device.
    whole: u16,
    /// The number of claims that use a share of the device.
    shares: u32,
    /// The number of shares that consume capacity.
    counted: u32,
    /// The total amounts that the device's shares consume.
    consumed: Amounts,
}

/// A claim with devices allocated for it.
#[derive(Clone, Debug)]
struct Held {
    /// The number of pods of the world that use the claim.
    users: u32,
    /// The number of pods in `users` that have a node and for which the claim is reserved. `most` is the
    /// maximum of `reserving` so far.
    reserving: u32,
    most: u32,
    /// The number of pods that the claim is reserved for, if the cluster has allocated the claim's devices.
    /// `None` if the devices were allocated in the simulation.
    reserved: Option<usize>,
    taken: Arc<Taken>,
}

/// Devices that are taken together, and where they can be used.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    pub devices: Vec<TakenDevice>,
    pub place: Place,
}

/// A device that is taken.
#[derive(Clone, Debug)]
pub(super) struct TakenDevice {
    pub id: DeviceId,
    /// Whether the device is used with admin access, so that it stays free for other claims.
    pub admin: bool,
    /// Whether only a share of the device is taken.
    pub share: bool,
    pub consumed: Option<Amounts>,
}

/// Where taken devices can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Anywhere,
    /// Only on this node of the world.
    Node(NodeIndex),
    Nodes(NodeSelector),
}

impl Place {
    pub(super) fn includes(&self, at: Option<NodeIndex>, node: &Node) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Node(own) => at == Some(*own),
            Self::Nodes(selector) => node_matches(selector, &node.name, &node.labels),
        }
    }
}

impl Taken {
    fn of(allocation: &Allocation, facts: &Facts) -> Self {
        // Skip devices that are in no slice: they cannot be allocated to another pod anyway.
        let device = |one| {
            let id = facts.slices().id_of(one)?;
            let share = one.share.is_some();
            Some(TakenDevice { id, admin: one.admin, share, consumed: one.consumed.clone() })
        };
        Self {
            devices: allocation.devices.iter().filter_map(device).collect(),
            place: allocation.nodes.clone().map_or(Place::Anywhere, Place::Nodes),
        }
    }
}

impl Use {
    pub(super) fn is_whole(&self) -> bool {
        self.whole > 0
    }

    /// Whether claims use shares of the device.
    pub(super) fn is_shared(&self) -> bool {
        self.shares > 0
    }

    /// The total amounts that shares of the device consume. `None` if no share consumes capacity.
    pub(super) fn consumed(&self) -> Option<&Amounts> {
        (self.counted > 0).then_some(&self.consumed)
    }

    fn is_free(&self) -> bool {
        self.whole == 0 && self.shares == 0
    }

    fn take(&mut self, device: &TakenDevice) {
        if !device.share {
            self.whole = self.whole.saturating_add(1);
            return;
        }
        self.shares += 1;
        if let Some(consumed) = &device.consumed {
            self.counted += 1;
            for (name, amount) in consumed {
                let sum = self.consumed.entry(name.clone()).or_default();
                *sum = sum.plus(*amount);
            }
        }
    }

    fn give_back(&mut self, device: &TakenDevice) {
        if !device.share {
            self.whole = self.whole.saturating_sub(1);
            return;
        }
        self.shares = self.shares.saturating_sub(1);
        if let Some(consumed) = &device.consumed {
            self.counted = self.counted.saturating_sub(1);
            for (name, amount) in consumed {
                if let Some(sum) = self.consumed.get_mut(name) {
                    *sum = sum.minus(*amount);
                }
            }
        }
    }
}

impl State {
    /// The state of the snapshot, before any pod is placed.
    pub(super) fn new(facts: &Facts) -> Self {
        let mut state = Self { next: facts.devices(), ..Self::default() };
        for (key, claim) in facts.claims() {
            if let Some(allocation) = &claim.object.allocation {
                let reserved = Some(claim.object.reserved_for.len());
                let taken = Arc::new(Taken::of(allocation, facts));
                state.take(key.clone(), Held { users: 0, reserving: 0, most: 0, reserved, taken });
            }
        }
        state
    }

    /// Whether a claim uses the whole device.
    pub(super) fn is_whole(&self, device: DeviceId) -> bool {
        usize::try_from(device).is_ok_and(|at| self.whole.get(at).is_some_and(|count| *count > 0))
    }

    pub(super) fn used(&self, device: DeviceId) -> Option<&Use> {
        self.used.get(&device)
    }

    /// The devices that are allocated for a claim.
    pub(super) fn taken_for(&self, claim: &ClaimKey) -> Option<&Taken> {
        self.claims.get(claim).map(|held| held.taken.as_ref())
    }

    /// The devices that the cluster has allocated for a claim, if the claim still has them.
    pub(super) fn allocated_for(&self, claim: &ClaimKey) -> Option<&Taken> {
        self.claims.get(claim).filter(|held| held.reserved.is_some()).map(|held| held.taken.as_ref())
    }

    /// Whether pods of the world use a claim.
    pub(super) fn is_used(&self, claim: &ClaimKey) -> bool {
        self.claims.get(claim).is_some_and(|held| held.users > 0)
    }

    /// The devices that the snapshot shows as allocated for a claim. `None` if there are none, or if one of
    /// them can no longer be taken in this world.
    pub(super) fn home(&self, claim: &ClaimKey, facts: &Facts) -> Option<Taken> {
        let taken = Taken::of(facts.claim(claim)?.object.allocation.as_ref()?, facts);
        let is_free = |device: &TakenDevice| {
            let used = self.used.get(&device.id);
            device.admin || used.is_none_or(|used| used.is_free() || device.share && !used.is_whole())
        };
        taken.devices.iter().all(is_free).then_some(taken)
    }

    /// Assigns numbers to `count` devices of a node that does not exist yet. Returns the first number.
    pub(super) fn number(&mut self, count: usize) -> DeviceId {
        let first = self.next;
        self.next = self.next.saturating_add(DeviceId::try_from(count).unwrap_or(DeviceId::MAX));
        first
    }

    /// Notes that another pod uses a claim. `reserving` is true if the pod already has a node and the claim
    /// is reserved for the pod. Returns false if nothing is allocated for the claim.
    pub(super) fn join(&mut self, claim: &ClaimKey, reserving: bool) -> bool {
        let Some(held) = self.claims.get_mut(claim) else { return false };
        held.users += 1;
        held.reserving += u32::from(reserving);
        held.most = held.most.max(held.reserving);
        true
    }

    /// Takes devices for a claim that one pod uses.
    pub(super) fn hold(&mut self, claim: ClaimKey, taken: Taken) {
        self.take(claim, Held { users: 1, reserving: 0, most: 0, reserved: None, taken: Arc::new(taken) });
    }

    fn take(&mut self, claim: ClaimKey, held: Held) {
        for device in held.taken.devices.iter().filter(|device| !device.admin) {
            let used = self.used.entry(device.id).or_default();
            used.take(device);
            let count = used.whole;
            self.count(device.id, count);
        }
        self.claims.insert(claim, held);
    }

    /// Notes that a pod no longer uses a claim. Once no pod of the world uses the claim, its devices are free
    /// again, with one exception: devices that the cluster has allocated stay allocated if the claim is
    /// reserved for no pod, or for a pod that has not run in this world. Therefore, a pod that was only tried
    /// on a node keeps its reservation.
    pub(super) fn leave(&mut self, claim: &ClaimKey, reserving: bool) {
        let Some(held) = self.claims.get_mut(claim) else { return };
        held.users = held.users.saturating_sub(1);
        held.reserving = held.reserving.saturating_sub(u32::from(reserving));
        let most = usize::try_from(held.most).unwrap_or(usize::MAX);
        let keeps = held.reserved.is_some_and(|reserved| reserved == 0 || most < reserved);
        if held.users > 0 || keeps {
            return;
        }
        self.give_back(claim);
    }

    /// Frees the devices that the cluster has allocated for a claim that moves to another node with its pod.
    /// Does nothing if a pod of the world uses the claim.
    pub(super) fn void(&mut self, claim: &ClaimKey) {
        if self.allocated_for(claim).is_some() && !self.is_used(claim) {
            self.give_back(claim);
        }
    }

    fn give_back(&mut self, claim: &ClaimKey) {
        let Some(held) = self.claims.remove(claim) else { return };
        for device in held.taken.devices.iter().filter(|device| !device.admin) {
            let Some(used) = self.used.get_mut(&device.id) else { continue };
            used.give_back(device);
            let (count, free) = (used.whole, used.is_free());
            self.count(device.id, count);
            if free {
                self.used.remove(&device.id);
            }
        }
    }

    fn count(&mut self, device: DeviceId, count: u16) {
        let Some(at) = usize::try_from(device).ok().filter(|_| device < OF_NO_WORLD) else { return };
        if self.whole.len() <= at {
            self.whole.resize(at + 1, 0);
        }
        self.whole[at] = count;
    }
}
