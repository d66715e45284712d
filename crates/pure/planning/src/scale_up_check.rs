//! Checks what scaling up would do once nodes are gone. A removal does not begin if scaling up would then
//! create a machine, or if a pod would stay pending. Otherwise the number of nodes could flap. The check is
//! needed because scaling up and kube-scheduler look for room in a different order from the search for
//! removable nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node_state::Drainable;
use super::packer::Packer;
use super::pod_place::PodPlace;
use super::scale_up;
use super::scale_up_decision::ScaleUpDecision;
use super::spread_check;
use super::view::View;
use super::waiting::Waiting;
use model::machine::{Machine, Phase};
use model::plan::PodOutcome;
use model::{PoolName, Snapshot};
use scheduling::NodeIndex;

/// Once this many nodes are found to be needed in a round, the nodes after them wait for the next round.
const CULPRITS: usize = 3;

/// What happens to nodes that were about to be removed.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// Nodes that may be removed, all of them together.
    pub go: BTreeSet<NodeIndex>,
    /// Nodes that stay, and why.
    pub needed: BTreeMap<NodeIndex, Need>,
}

/// Why a node stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// If the node were removed, scaling up would create more machines or leave more pods pending.
    Machine,
    /// The node's pods fit elsewhere, but kube-scheduler may place them in a way that leaves a pod without
    /// room.
    SchedulerChoice,
}

/// How many machines of each pool scaling up creates, and how many pods it leaves pending.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Demand {
    machines: BTreeMap<PoolName, usize>,
    waiting: usize,
}

impl Demand {
    pub(super) fn of(growth: &ScaleUpDecision) -> Self {
        Self {
            machines: growth.pools.iter().map(|pool| (pool.pool.clone(), pool.machines.len())).collect(),
            waiting: growth.verdicts.iter().filter(|one| is_stuck(one.verdict)).count(),
        }
    }

    /// Like [`Self::of`], but for pods that have no verdicts yet. If some pods were not looked at, they may
    /// be the ones that need the nodes. The number of pending pods is then set to `usize::MAX`.
    pub(super) fn placed(packer: &Packer) -> Self {
        let mut machines: BTreeMap<PoolName, usize> = BTreeMap::new();
        let made = packer.planned.iter().enumerate().filter(|(number, _)| !packer.dropped.contains(number));
        for (_, planned) in made {
            *machines.entry(packer.pools()[planned.pool].name.clone()).or_default() += 1;
        }
        let stuck = |waiting: &Waiting, spot: &PodPlace| match waiting.settled {
            Some(settled) => is_stuck(settled),
            // Why the pod has no place does not matter.
            None => *spot == PodPlace::None,
        };
        let listed = packer.pods.iter().zip(&packer.spots).filter(|(waiting, _)| waiting.listed);
        let waiting = listed.filter(|(waiting, spot)| stuck(waiting, spot)).count();
        Self { machines, waiting: if packer.cut { usize::MAX } else { waiting } }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.machines.is_empty() && self.waiting == 0
    }

    pub(super) fn leaves_more_waiting_than(&self, other: &Self) -> bool {
        self.waiting > other.waiting
    }

    pub(super) fn exceeds(&self, other: &Self) -> bool {
        let more = |(pool, count): (&PoolName, &usize)| {
            *count > other.machines.get(pool.as_str()).copied().unwrap_or(0)
        };
        self.leaves_more_waiting_than(other) || self.machines.iter().any(more)
    }
}

/// Whether a pod with this outcome is pending because there is no room for it.
fn is_stuck(outcome: PodOutcome) -> bool {
    matches!(
        outcome,
        PodOutcome::NoPoolFits
            | PodOutcome::PoolAtMax
            | PodOutcome::NoHostCapacity
            | PodOutcome::BackingOff
            | PodOutcome::AwaitsGang
            // The pod would fit a node, but kube-scheduler has refused such pods there.
            | PodOutcome::PredictionMissed
    )
}

/// Decides which of these nodes can be removed so that scaling up would not create more machines or leave
/// more pods pending than now. This must hold both immediately after the removal and after kube-scheduler has
/// placed the nodes' pods. `nodes` is in order of preference. Nodes in neither set of the result were not
/// looked at.
pub(super) fn judge(view: &View, growth: &ScaleUpDecision, nodes: &[(NodeIndex, &Drainable)]) -> Verdicts {
    if nodes.is_empty() {
        return Verdicts::default();
    }
    let now = Demand::of(growth);
    let with = |verdicts: &Verdicts, more: &[(NodeIndex, &Drainable)]| -> BTreeSet<NodeIndex> {
        verdicts.go.iter().copied().chain(more.iter().map(|one| one.0)).collect()
    };
    let lucky = |gone: &BTreeSet<NodeIndex>| {
        // Pods of a lost node are left out. They do not run, so keeping the node would not help them.
        let going = nodes.iter().filter(|one| gone.contains(&one.0) && one.1.ready);
        let evicted = going.flat_map(|(at, node)| node.drain.moves.iter().map(|pod| (*at, pod)));
        let waiting = growth.placed.iter().filter(|one| gone.contains(&one.1)).map(|(pod, at)| (*at, *pod));
        !spread_check::all_find_room(view, growth, gone, &evicted.chain(waiting).collect::<Vec<_>>())
    };
    let mut verdicts = Verdicts::default();
    let mut rest = nodes;
    while !rest.is_empty() && verdicts.needed.len() < CULPRITS {
        // By count: whether scaling up would create more machines, or leave more pods pending, if the first
        // `count` nodes of the list were removed.
        let mut asks: BTreeMap<usize, bool> = BTreeMap::new();
        let quiet = |count: usize| {
            let gone = with(&verdicts, &rest[..count]);
            // The cheaper check comes first.
            if view.allowance.is_spent() || lucky(&gone) {
                return false;
            }
            !*asks.entry(count).or_insert_with(|| asks_more_without(view, &gone, &now))
        };
        let count = most(rest.len(), quiet);
        if view.allowance.is_spent() {
            // The results so far remain valid. Nothing is known about the other nodes.
            verdicts.go.extend(rest[..count].iter().map(|one| one.0));
            return verdicts;
        }
        if let Some((culprit, _)) = rest.get(count) {
            // Repeating the scale-up decision is the most expensive check, so an earlier result is reused.
            let ask = || asks_more_without(view, &with(&verdicts, &rest[..=count]), &now);
            let asked = asks.get(&(count + 1)).copied().unwrap_or_else(ask);
            verdicts.needed.insert(*culprit, if asked { Need::Machine } else { Need::SchedulerChoice });
        }
        verdicts.go.extend(rest[..count].iter().map(|one| one.0));
        rest = rest.get(count + 1..).unwrap_or_default();
    }
    verdicts
}

/// The largest number up to `all` for which `holds` is true, found by bisection. `holds(0)` is assumed to be
/// true.
fn most(all: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
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

/// Whether scaling up would create more machines, or leave more pods pending, than `now` if these nodes were
/// gone and their pods pending.
fn asks_more_without(view: &View, gone: &BTreeSet<NodeIndex>, now: &Demand) -> bool {
    let names = names(view, gone);
    let mut snapshot = world_without(view, &names);
    if let Some(machines) = &mut Arc::make_mut(&mut snapshot.proxmox).machines {
        machines.retain(|one| !names.contains(one.node.as_ref().unwrap_or(&one.name).as_str()));
    }
    scale_up::asks_more(&mut view.beside(&snapshot, &names), now)
}

/// The names of these nodes.
pub(super) fn names<'v>(view: &View<'v>, nodes: &BTreeSet<NodeIndex>) -> BTreeSet<&'v str> {
    nodes.iter().map(|&at| view.snapshot.nodes[at].name.as_str()).collect()
}

/// The cluster without the nodes of these names. Their machines still exist and are being drained, so they
/// occupy room on their hosts.
pub(super) fn world_without(view: &View, names: &BTreeSet<&str>) -> Snapshot {
    let mut snapshot: Snapshot = view.snapshot.clone();
    snapshot.nodes.retain(|node| !names.contains(node.name.as_str()));
    let leaves = |machine: &Machine| names.contains(machine.node.as_ref().unwrap_or(&machine.name).as_str());
    if snapshot.proxmox.machines.iter().flatten().any(leaves) {
        let machines = Arc::make_mut(&mut snapshot.proxmox).machines.iter_mut().flatten();
        machines.filter(|machine| leaves(machine)).for_each(|machine| machine.phase = Phase::Draining);
    }
    snapshot
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
