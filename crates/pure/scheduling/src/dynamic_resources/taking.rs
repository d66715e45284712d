//! Taking devices in a search, and giving them back.

use super::ask::Ask;
use super::capacity;
use super::pools::Candidate;
use super::problem::DeviceProblem;
use super::search::{Search, Step, Stop, tolerates};
use super::slices::DeviceId;
use super::state::{Place, Taken, TakenDevice, Use};
use crate::NodeIndex;
use model::devices::Amounts;
use model::selector::{NodeSelector, NodeSelectorTerm};

impl<'s> Search<'s> {
    pub(super) fn in_use(&self, id: DeviceId) -> bool {
        self.state.is_whole(id) || self.chosen.get(&id).is_some_and(|claims| !claims.is_empty())
    }

    /// The amounts of the device's capacities that the request uses. `None` if the capacities do not suffice.
    pub(super) fn capacity(
        &self,
        ask: &Ask,
        candidate: &Candidate,
    ) -> Result<Option<Amounts>, DeviceProblem> {
        let (capacity, version) = (&candidate.dev.object().capacity, self.facts.version);
        let Some(taken) = capacity::taken(&ask.object.capacity, capacity, version)? else { return Ok(None) };
        let id = candidate.dev.id;
        let before = self.state.used(id).and_then(Use::consumed);
        let now = self.shares.get(&id).map(|(_, amounts)| amounts);
        Ok(capacity::fits(&taken, capacity, &[before, now], version).then_some(taken))
    }

    /// Takes a selectable device, if counters, taints, constraints and capacities allow it. If the request
    /// needs exactly this device, `must` contains the names of the claim and the request, for the error
    /// message.
    pub(super) fn take(
        &mut self,
        step: Step,
        choice: usize,
        (pool, place): (usize, usize),
        must: Option<(&str, &str)>,
    ) -> Result<Option<Undo>, Stop> {
        let ask = self.wanted[step.claim][step.request][choice].ask;
        let candidate = &self.pools[pool].devices[place];
        let (dev, device) = (&candidate.dev, candidate.dev.object());
        let (id, admin) = (dev.id, ask.object.admin);
        let own = self.chosen.get(&id).is_some_and(|claims| claims.contains(&step.claim));
        if admin && own && !device.shared || !admin && self.in_use(id) {
            return Ok(None);
        }
        let mut undo = Undo { step, choice, pool, place, constraints: 0, counted: false, share: false };
        // A device's counters are reduced when its first share is taken, but not for additional shares.
        let consumed_already = device.shared && self.has_shares(id);
        if !consumed_already && !device.consumes.is_empty() {
            if !self.counters.take(pool, &device.consumes) {
                return Ok(None);
            }
            undo.counted = true;
        }
        if !dev.taints.iter().all(|taint| tolerates(&ask.object.tolerations, taint)) {
            self.give_back_early(&undo);
            return Ok(None);
        }
        let (request, sub) = self.names(step, choice);
        for at in 0..self.constraints[step.claim].len() {
            if !self.constraints[step.claim][at].add(request, sub, dev.driver(), device) {
                self.give_back_early(&undo);
                return match must {
                    None => Ok(None),
                    Some((claim, request)) => {
                        let (claim, request) = (claim.to_owned(), request.to_owned());
                        Err(DeviceProblem::Constraint { claim, request }.into())
                    }
                };
            }
            undo.constraints += 1;
        }
        let Some(consumed) = self.capacity(ask, candidate)? else {
            self.give_back_early(&undo);
            return Ok(None);
        };
        let consumed = device.shared.then_some(consumed);
        match &consumed {
            None => self.chosen.entry(id).or_default().push(step.claim),
            Some(consumed) => {
                let (count, sum) = self.shares.entry(id).or_default();
                *count += 1;
                for (name, amount) in consumed {
                    let one = sum.entry(name.clone()).or_default();
                    *one = one.plus(*amount);
                }
                undo.share = true;
            }
        }
        let share = consumed.is_some();
        // In Kubernetes, a share that consumes nothing has no `consumedCapacity`.
        let consumed = consumed.filter(|amounts| !amounts.is_empty());
        self.results[step.claim].push((pool, place, TakenDevice { id, admin, share, consumed }));
        Ok(Some(undo))
    }

    /// Whether shares of the device are in use.
    fn has_shares(&self, id: DeviceId) -> bool {
        self.shares.contains_key(&id) || self.state.used(id).is_some_and(Use::is_shared)
    }

    /// The name of the request and, for `firstAvailable`, the name of the alternative.
    fn names(&self, step: Step, choice: usize) -> (&'s str, Option<&'s str>) {
        let request = &self.claims[step.claim].requests[step.request];
        let sub = request.prioritized.then(|| request.asks[choice].object.name.as_str());
        (&request.name, sub)
    }

    pub(super) fn give_back(&mut self, undo: &Undo) {
        let Some((_, _, device)) = self.results[undo.step.claim].pop() else { return };
        if undo.share {
            if let Some((count, sum)) = self.shares.get_mut(&device.id) {
                *count -= 1;
                for (name, amount) in device.consumed.iter().flatten() {
                    if let Some(one) = sum.get_mut(name) {
                        *one = one.minus(*amount);
                    }
                }
                if *count == 0 {
                    self.shares.remove(&device.id);
                }
            }
        } else if let Some(claims) = self.chosen.get_mut(&device.id) {
            claims.retain(|claim| *claim != undo.step.claim);
        }
        self.give_back_early(undo);
    }

    /// Undoes the first part of taking a device: the changes to constraints and counters.
    fn give_back_early(&mut self, undo: &Undo) {
        let (request, sub) = self.names(undo.step, undo.choice);
        for at in (0..undo.constraints).rev() {
            self.constraints[undo.step.claim][at].remove(request, sub);
        }
        if undo.counted {
            let device = self.pools[undo.pool].devices[undo.place].dev.object();
            self.counters.give_back(undo.pool, &device.consumes);
        }
    }

    /// The devices that were found, by claim.
    pub(super) fn taken(self, at: Option<NodeIndex>) -> Vec<Taken> {
        let pools = self.pools;
        let one = |chosen: Vec<(usize, usize, TakenDevice)>| {
            let candidates = chosen.iter().map(|(pool, place, _)| &pools[*pool].devices[*place]);
            let place = place(candidates, at);
            Taken { devices: chosen.into_iter().map(|(_, _, device)| device).collect(), place }
        };
        self.results.into_iter().map(one).collect()
    }
}

/// What must be undone to give back a device.
pub(super) struct Undo {
    step: Step,
    choice: usize,
    pool: usize,
    place: usize,
    /// The number of constraints that the device was added to.
    constraints: usize,
    counted: bool,
    share: bool,
}

/// The nodes on which all of the devices can be used.
fn place<'c>(candidates: impl Iterator<Item = &'c Candidate>, at: Option<NodeIndex>) -> Place {
    let mut term = NodeSelectorTerm::default();
    for candidate in candidates {
        let reach = candidate.reach();
        if reach.node.is_some() || candidate.dev.object().binds_to_node {
            return Place::Node(at.unwrap_or(NodeIndex::MAX));
        }
        for one in reach.selector.iter().flat_map(|selector| selector.terms.iter().take(1)) {
            let (fields, labels) = (&one.match_fields, &one.match_expressions);
            for (all, more) in [(&mut term.match_fields, fields), (&mut term.match_expressions, labels)] {
                for requirement in more {
                    if !all.contains(requirement) {
                        all.push(requirement.clone());
                    }
                }
            }
        }
    }
    if term == NodeSelectorTerm::default() {
        Place::Anywhere
    } else {
        Place::Nodes(NodeSelector { terms: vec![term] })
    }
}
