//! The verdict of each pending pod.

use std::sync::Arc;

use super::classes::alike;
use super::rooms::Full;
use super::scale_up::Packer;
use crate::model::plan::{PodOutcome, PodVerdict, PoolReason};
use crate::model::pod::Pod;
use crate::scheduling::NodeIndex;

/// Where a pod was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// Nowhere.
    None,
    /// On this node of the world: an existing one, one on its way, or a new one.
    Node(NodeIndex),
}

pub(super) fn pods(packer: &Packer) -> Vec<PodVerdict> {
    // Equal pods that wait next to each other have equal reasons.
    let mut last: Option<(&Arc<Pod>, PodOutcome, Vec<PoolReason>)> = None;
    let mut verdicts = Vec::new();
    for (waiting, spot) in packer.pods.iter().zip(&packer.spots).filter(|(waiting, _)| waiting.listed) {
        let mut verdict = PodVerdict {
            pod: waiting.pod.id(),
            verdict: PodOutcome::NoPoolFits,
            pool: None,
            node: None,
            machine: None,
            reasons: Vec::new(),
        };
        match (waiting.settled, *spot) {
            (Some(settled), _) => verdict.verdict = settled,
            (None, Spot::Node(node)) => place(packer, node, &mut verdict),
            (None, Spot::None) => {
                let known = last.take().filter(|(pod, ..)| alike(pod, waiting.pod));
                let (outcome, reasons) = match known {
                    Some((_, outcome, reasons)) => (outcome, reasons),
                    None => why_nowhere(packer, waiting.pod),
                };
                verdict.verdict = outcome;
                verdict.reasons.clone_from(&reasons);
                last = Some((waiting.pod, outcome, reasons));
            }
        }
        verdicts.push(verdict);
    }
    verdicts
}

fn place(packer: &Packer, node: NodeIndex, verdict: &mut PodVerdict) {
    if let Some(machine) = packer.upcoming.get(&node) {
        verdict.verdict = PodOutcome::UpcomingNode;
        verdict.machine = Some(machine.clone());
    } else if node < packer.view.existing {
        verdict.verdict = PodOutcome::ExistingNode;
        verdict.node = Some(packer.view.world.node(node).node.name.clone());
    } else {
        verdict.verdict = PodOutcome::NewNode;
        let pool = packer.machine_at(node).map(|machine| packer.planned[machine].pool);
        verdict.pool = pool.map(|pool| packer.view.config.pools[pool].name.clone());
    }
}

/// No pool fits; or those that do are at their maximum, find no host, or back off: then the one that passes soonest counts.
fn why_nowhere(packer: &Packer, pod: &Arc<Pod>) -> (PodOutcome, Vec<PoolReason>) {
    let mut outcome = PodOutcome::NoPoolFits;
    let mut reasons = Vec::new();
    for (index, answer) in packer.refusals(pod) {
        let pool = packer.view.config.pools[index].name.clone();
        match answer {
            Err(refusal) => {
                reasons.push(PoolReason { pool, reason: refusal.reason(), message: refusal.to_string() });
            }
            Ok(full) => {
                let own = match &full {
                    Full::BackingOff(_) => PodOutcome::BackingOff,
                    Full::NoHost => PodOutcome::NoHostCapacity,
                    Full::AtMax(_) | Full::NoSlot => PodOutcome::PoolAtMax,
                };
                if outcome == PodOutcome::NoPoolFits || own > outcome || outcome == PodOutcome::PoolAtMax {
                    outcome = own;
                }
                reasons.push(PoolReason { pool, reason: full.reason(), message: full.message() });
            }
        }
    }
    (outcome, reasons)
}
