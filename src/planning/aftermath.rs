//! What scaling up would do once nodes are gone. A removal after which it would ask for a machine, or after which a pod
//! would wait, would only flap: it does not begin. Placing pods is no exact science, and kube-scheduler looks for room in
//! another order than the search for nodes that can go does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::View;
use super::pending::will_be_made_again;
use super::scale_up::{self, Growth};
use crate::model::Snapshot;
use crate::model::machine::Phase;
use crate::model::plan::PodOutcome;
use crate::model::pod::{Pod, PodPhase, Scheduling};
use crate::scheduling::NodeIndex;

/// So many nodes are found out to be needed in a round; what comes after them waits for the next.
const CULPRITS: usize = 3;

/// What is to be done with nodes that were about to go.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// They may go, all of them together.
    pub go: BTreeSet<NodeIndex>,
    /// Without them, machines would be asked for.
    pub needed: BTreeSet<NodeIndex>,
}

/// How much a growth asks for, and how many pods it leaves waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Demand {
    machines: BTreeMap<String, usize>,
    waiting: usize,
}

impl Demand {
    pub(super) fn of(growth: &Growth) -> Self {
        let stuck = |outcome: PodOutcome| {
            matches!(
                outcome,
                PodOutcome::NoPoolFits
                    | PodOutcome::PoolAtMax
                    | PodOutcome::NoHostCapacity
                    | PodOutcome::BackingOff
            )
        };
        Self {
            machines: growth.pools.iter().map(|pool| (pool.pool.clone(), pool.machines.len())).collect(),
            waiting: growth.verdicts.iter().filter(|one| stuck(one.verdict)).count(),
        }
    }

    pub(super) fn leaves_more_waiting_than(&self, other: &Self) -> bool {
        self.waiting > other.waiting
    }

    pub(super) fn exceeds(&self, other: &Self) -> bool {
        let more = |(pool, count): (&String, &usize)| *count > other.machines.get(pool).copied().unwrap_or(0);
        self.leaves_more_waiting_than(other) || self.machines.iter().any(more)
    }
}

/// Which of these nodes can go, in this order of preference, so that scaling up asks for nothing more than it does now. What
/// is in neither set was not looked at.
pub(super) fn judge(view: &View, growth: &Growth, nodes: &[NodeIndex]) -> Verdicts {
    let now = Demand::of(growth);
    let mut verdicts = Verdicts::default();
    let mut rest = nodes;
    while !rest.is_empty() && verdicts.needed.len() < CULPRITS {
        let quiet = |count: usize| {
            let gone: BTreeSet<NodeIndex> =
                verdicts.go.iter().copied().chain(rest[..count].iter().copied()).collect();
            !without(view, &gone).exceeds(&now)
        };
        let count = most(rest.len(), quiet);
        verdicts.go.extend(&rest[..count]);
        verdicts.needed.extend(rest.get(count));
        rest = rest.get(count + 1..).unwrap_or_default();
    }
    verdicts
}

/// The largest number up to `all` for which `holds`, by halving; it holds for none.
fn most(all: usize, holds: impl Fn(usize) -> bool) -> usize {
    if holds(all) {
        return all;
    }
    let (mut good, mut bad) = (0, all);
    while bad - good > 1 {
        let middle = usize::midpoint(good, bad);
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

/// What scaling up would ask for without these nodes, their pods pending.
fn without(view: &View, gone: &BTreeSet<NodeIndex>) -> Demand {
    let (mut snapshot, pods) = world_without(view, gone);
    let names: BTreeSet<&String> = gone.iter().map(|&at| &view.snapshot.nodes[at].name).collect();
    if let Some(machines) = &mut snapshot.proxmox.machines {
        machines.retain(|one| !names.contains(one.node.as_ref().unwrap_or(&one.name)));
    }
    let mut after = View::new(&snapshot, &pods, view.config, view.offers);
    Demand::of(&scale_up::decide(&mut after))
}

/// The cluster without these nodes, their pods pending. Their machines are there and drained: they hold their hosts' room.
pub(super) fn world_without(view: &View, gone: &BTreeSet<NodeIndex>) -> (Snapshot, Vec<Arc<Pod>>) {
    let names: BTreeSet<&str> = gone.iter().map(|&at| view.snapshot.nodes[at].name.as_str()).collect();
    let lost = |pod: &Pod| pod.node.as_deref().is_some_and(|node| names.contains(node));
    let pods = view.pods.iter().filter_map(|pod| {
        if lost(pod) { will_be_made_again(pod).then(|| Arc::new(made_again(pod))) } else { Some(pod.clone()) }
    });
    let pods = pods.collect();
    let mut snapshot: Snapshot = view.snapshot.clone();
    snapshot.nodes.retain(|node| !names.contains(node.name.as_str()));
    for machine in snapshot.proxmox.machines.iter_mut().flatten() {
        if names.contains(machine.node.as_ref().unwrap_or(&machine.name).as_str()) {
            machine.phase = Phase::Draining;
        }
    }
    (snapshot, pods)
}

/// The pod that its controller makes in place of this one. It may cause a machine at once.
fn made_again(pod: &Pod) -> Pod {
    Pod {
        node: None,
        nominated_node: None,
        phase: PodPhase::Pending,
        scheduling: Scheduling::Unprocessed,
        created: None,
        memo: pod.memo.carried_over(),
        ..pod.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_last_number_that_holds() {
        for (all, limit) in [(1, 0), (1, 1), (7, 0), (7, 3), (7, 6), (7, 7), (1200, 1199)] {
            assert_eq!(most(all, |count| count <= limit), limit.min(all), "{limit} of {all}");
        }
    }
}
