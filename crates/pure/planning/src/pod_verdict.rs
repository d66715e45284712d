//! The verdict of each pending pod.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use super::capacity::NoRoom;
use super::packer::Packer;
use super::pod_place::PodPlace;
use super::waiting::Waiting;
use model::plan::{MissedPrediction, PodOutcome, PodVerdict, PoolReason};
use scheduling::NodeIndex;

/// Why a pod could not be placed.
pub(super) struct Nowhere {
    outcome: PodOutcome,
    pub reasons: Vec<PoolReason>,
    pub missed: Option<Arc<MissedPrediction>>,
}

/// The verdicts, and the pods of each new machine.
pub(super) fn pods(packer: &Packer) -> (Vec<PodVerdict>, Vec<Vec<Arc<str>>>) {
    // Equal pods have equal reasons, so the reasons are determined once per group.
    let mut known: BTreeMap<usize, Nowhere> = BTreeMap::new();
    let mut verdicts = Vec::with_capacity(packer.pods.len());
    let mut on = empty_lists(packer);
    let names: Vec<Arc<str>> = packer.view.offers.iter().map(|pool| Arc::from(pool.name.as_str())).collect();
    for (index, waiting, spot) in listed(packer) {
        let mut verdict = PodVerdict {
            pod: waiting.pod.digest().id.clone(),
            verdict: PodOutcome::NoPoolFits,
            pool: None,
            node: None,
            machine: None,
            reasons: Vec::new(),
            missed: None,
            gang: None,
        };
        match (waiting.settled, *spot) {
            (Some(settled), _) => {
                verdict.verdict = settled;
                if let Some(waits) = packer.gangs.waits(index) {
                    verdict.gang = Some(waits.gang.clone());
                    verdict.reasons.clone_from(&waits.reasons);
                    verdict.missed.clone_from(&waits.missed);
                }
            }
            (None, PodPlace::Node(node)) => match packer.machine_at(node) {
                Some(machine) => {
                    verdict.verdict = PodOutcome::NewNode;
                    verdict.pool = Some(names[packer.planned[machine].pool].clone());
                    let woken = packer.planned[machine].place.woken.as_ref();
                    verdict.machine = woken.map(|woken| Arc::from(woken.name.as_str()));
                    on[machine].push(verdict.pod.clone());
                }
                None => place(packer, node, index, &mut verdict),
            },
            (None, PodPlace::None) => {
                let why = known.entry(waiting.group).or_insert_with(|| why_nowhere(packer, waiting));
                verdict.verdict = why.outcome;
                verdict.reasons.clone_from(&why.reasons);
                verdict.missed.clone_from(&why.missed);
            }
        }
        verdicts.push(verdict);
    }
    (verdicts, on)
}

/// The pods that receive a verdict, each with its index and its place.
fn listed<'p, 'a>(
    packer: &'p Packer<'_, 'a>,
) -> impl Iterator<Item = (usize, &'p Waiting<'a>, &'p PodPlace)> {
    let all = packer.pods.iter().zip(&packer.spots).enumerate();
    all.filter(|(_, (waiting, _))| waiting.listed).map(|(index, (waiting, spot))| (index, waiting, spot))
}

/// An empty list for each new machine, with capacity for all of its pods.
fn empty_lists(packer: &Packer) -> Vec<Vec<Arc<str>>> {
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

/// Writes the verdict of a pod on an existing node, or on one that is being created.
fn place(packer: &Packer, node: NodeIndex, pod: usize, verdict: &mut PodVerdict) {
    if let Some(machine) = packer.upcoming.get(&node) {
        verdict.verdict = PodOutcome::UpcomingNode;
        verdict.machine = Some(Arc::from(machine.as_str()));
    } else {
        let grown = packer.growths.pods.contains(&pod);
        verdict.verdict = if grown { PodOutcome::GrownNode } else { PodOutcome::ExistingNode };
        verdict.node = Some(Arc::from(packer.view.world.node(node).node.name.as_str()));
    }
}

/// Why a pod could not be placed. Either it fits no pool, or the pools that it fits are at their maximum,
/// have no host with room, or back off. If the pools have different reasons, the reason that is expected to
/// end soonest determines the outcome.
pub(super) fn why_nowhere(packer: &Packer, waiting: &Waiting) -> Nowhere {
    // A real pod gets its reason even if not all imagined pods were looked at.
    let cut = if waiting.pod.chunk { packer.cut } else { packer.spent };
    if cut || packer.view.allowance.is_spent() {
        return Nowhere { outcome: PodOutcome::Unfinished, reasons: Vec::new(), missed: None };
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
    Nowhere { outcome, reasons, missed: shown.and_then(|hold| hold.missed().cloned()) }
}
