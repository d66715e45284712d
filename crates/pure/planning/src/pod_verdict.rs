//! The verdict of each pending pod.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use super::capacity::NoRoom;
use super::packer::Packer;
use super::pod_place::PodPlace;
use super::waiting::Waiting;
use model::plan::{Destination, PodOutcome, PodVerdict, PoolReason, WhyPending};
use model::pod_id::PodId;
use scheduling::NodeIndex;

/// Why a pod could not be placed.
pub(super) struct Nowhere {
    outcome: PodOutcome,
    pub why: Arc<WhyPending>,
}

/// The verdicts, and the pods of each new machine.
pub(super) fn pods(packer: &Packer) -> (Vec<PodVerdict>, Vec<Vec<PodId>>) {
    // Equal pods have equal reasons, so the reasons are determined once per group.
    let mut known: BTreeMap<usize, Nowhere> = BTreeMap::new();
    let mut verdicts = Vec::with_capacity(packer.pods.len());
    let mut on = empty_lists(packer);
    let mut destinations = Destinations { packer, of: Vec::new() };
    for (index, waiting, spot) in listed(packer) {
        let pod = PodId::of(waiting.pod);
        let (verdict, destination, pending) = match (waiting.settled, *spot) {
            (Some(settled), _) => (settled, None, packer.gangs.waits(index).cloned()),
            (None, PodPlace::Node(node)) => {
                if let Some(machine) = packer.machine_at(node) {
                    on[machine].push(pod.clone());
                }
                (outcome(packer, node, index), Some(destinations.of(node)), None)
            }
            (None, PodPlace::None) => {
                let nowhere = known.entry(waiting.group).or_insert_with(|| why_nowhere(packer, waiting));
                (nowhere.outcome, None, Some(nowhere.why.clone()))
            }
        };
        verdicts.push(PodVerdict { pod, verdict, destination, pending });
    }
    (verdicts, on)
}

/// The outcome for a pod that was placed on a node.
fn outcome(packer: &Packer, node: NodeIndex, pod: usize) -> PodOutcome {
    if packer.machine_at(node).is_some() {
        PodOutcome::NewNode
    } else if packer.upcoming.contains_key(&node) {
        PodOutcome::UpcomingNode
    } else if packer.growths.pods.contains(&pod) {
        PodOutcome::GrownNode
    } else {
        PodOutcome::ExistingNode
    }
}

/// What the verdicts of pods on each node give as their destination.
struct Destinations<'p, 'v, 'a> {
    packer: &'p Packer<'v, 'a>,
    /// By node, if it was asked for before.
    of: Vec<Option<Arc<Destination>>>,
}

impl Destinations<'_, '_, '_> {
    fn of(&mut self, node: NodeIndex) -> Arc<Destination> {
        if self.of.len() <= node {
            self.of.resize(node + 1, None);
        }
        self.of[node].get_or_insert_with(|| Arc::new(destination(self.packer, node))).clone()
    }
}

/// What the verdict of a pod on this node gives as its destination.
fn destination(packer: &Packer, node: NodeIndex) -> Destination {
    if let Some(machine) = packer.machine_at(node) {
        let planned = &packer.planned[machine];
        let woken = planned.place.woken.as_ref();
        Destination {
            pool: Some(packer.view.offers[planned.pool].name.to_string()),
            machine: woken.map(|woken| woken.name.clone()),
            node: None,
        }
    } else if let Some(machine) = packer.upcoming.get(&node) {
        Destination { machine: Some(machine.clone()), ..Destination::default() }
    } else {
        let name = packer.view.world.node(node).node.name.clone();
        Destination { node: Some(name), ..Destination::default() }
    }
}

/// The pods that receive a verdict, each with its index and its place.
fn listed<'p, 'a>(
    packer: &'p Packer<'_, 'a>,
) -> impl Iterator<Item = (usize, &'p Waiting<'a>, &'p PodPlace)> {
    let all = packer.pods.iter().zip(&packer.spots).enumerate();
    all.filter(|(_, (waiting, _))| waiting.listed).map(|(index, (waiting, spot))| (index, waiting, spot))
}

/// An empty list for each new machine, with capacity for all of its pods.
fn empty_lists(packer: &Packer) -> Vec<Vec<PodId>> {
    let mut counts = vec![0; packer.planned.len()];
    for (_, _, spot) in listed(packer) {
        if let PodPlace::Node(node) = spot
            && let Some(machine) = packer.machine_at(*node)
        {
            counts[machine] += 1;
        }
    }
    counts.into_iter().map(Vec::with_capacity).collect()
}

/// Why a pod could not be placed. Either it fits no pool, or the pools that it fits are at their maximum,
/// have no host with room, or back off. If the pools have different reasons, the reason that is expected to
/// end soonest determines the outcome.
pub(super) fn why_nowhere(packer: &Packer, waiting: &Waiting) -> Nowhere {
    // A real pod gets its reason even if not all imagined pods were looked at.
    let cut = if waiting.pod.chunk { packer.cut } else { packer.spent };
    if cut || packer.view.allowance.is_spent() {
        return Nowhere { outcome: PodOutcome::Unfinished, why: Arc::default() };
    }
    let (pod, hold) = (waiting.pod, packer.holds.get(&waiting.group));
    let mut outcome = PodOutcome::NoPoolFits;
    let mut reasons = Vec::new();
    let prepared = packer.view.world.prepare(pod);
    for (index, answer) in packer.refusals(&prepared, hold.map(AsRef::as_ref)) {
        let pool = packer.view.offers[index].name.clone();
        match answer {
            Err(refusal) => {
                let mut message = refusal.to_string();
                if let Some(daemon) = packer.daemon_in_the_way(&prepared, index) {
                    let _ = write!(message, ": each new node runs a pod of DaemonSet {daemon}");
                }
                reasons.push(PoolReason { pool, reason: refusal.reason(), message });
            }
            Ok(full) => {
                let own = match &full {
                    NoRoom::BackingOff(_) | NoRoom::Settling(_) => PodOutcome::BackingOff,
                    NoRoom::NoHost(_) | NoRoom::NoMachine(_) => PodOutcome::NoHostCapacity,
                    NoRoom::AtMax(_) | NoRoom::NoSlot => PodOutcome::PoolAtMax,
                    NoRoom::Missed(_) => PodOutcome::PredictionMissed,
                };
                if outcome == PodOutcome::NoPoolFits || own > outcome || outcome == PodOutcome::PoolAtMax {
                    outcome = own;
                }
                reasons.push(full.of(pool));
            }
        }
    }
    // No pool can take the pod. By the planner's own checks, however, it would fit an existing node.
    if outcome == PodOutcome::NoPoolFits && hold.is_some_and(|hold| packer.would_fit(hold, pod)) {
        outcome = PodOutcome::PredictionMissed;
    }
    let shown = hold.filter(|_| outcome == PodOutcome::PredictionMissed);
    let missed = shown.and_then(|hold| hold.missed().cloned());
    Nowhere { outcome, why: Arc::new(WhyPending { reasons, missed, gang: None }) }
}
