//! Decides which removable nodes are removed now, within the limits of a round, and gives the reason for each
//! node that stays.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::budgets::Budgets;
use super::disruptions::Allowed;
use super::facts::{
    node::{being_deleted, is_leaving, pool_of},
    pod::{is_daemon, is_mirror, overdue},
};
use super::headroom::Headroom;
use super::node_state::Drainable;
use super::removal::Moves;
use super::removal_backoff::rests;
use super::scale_up_check::Need;
use super::scale_up_decision::ScaleUpDecision;
use super::view::View;
use super::{cooldowns, health};
use model::PoolName;
use model::drain::{Blocking, NodeReason};
use model::machine::Phase;
use model::plan::{NodeOutcome, NodeVerdict};
use model::pod::Pod;
use scheduling::NodeIndex;

/// Why a node that could be removed is not removed now.
pub(super) struct Deferral {
    verdict: Option<NodeOutcome>,
    reason: Option<NodeReason>,
    pod: Option<String>,
    message: Option<String>,
}

impl Deferral {
    /// Writes the deferral into the node's verdict.
    pub(super) fn apply(self, to: &mut NodeVerdict) {
        if let Some(verdict) = self.verdict {
            to.verdict = verdict;
        }
        to.reason = self.reason;
        to.pod = self.pod;
        to.message = self.message;
    }

    fn because(verdict: NodeOutcome, message: String) -> Self {
        Self { verdict: Some(verdict), reason: None, pod: None, message: Some(message) }
    }

    fn at_minimum(min: u32) -> Self {
        Self::because(NodeOutcome::AtMinimum, format!("the pool is at its minimum of {min}"))
    }

    /// The deferral of a node that stays because it is needed, as found by [`super::scale_up_check`]. `None`
    /// means that the node was not checked.
    pub(super) fn after(need: Option<&Need>) -> Self {
        let message = match need {
            Some(Need::Machine) => "without this node, a new machine would be needed",
            Some(Need::SchedulerChoice) => {
                "its pods fit elsewhere only if kube-scheduler happens to place them as the planner \
                    expects"
            }
            None => {
                return Self::waits(Some(
                    "waiting until it is known whether other nodes can be removed".to_owned(),
                ));
            }
        };
        Self::because(NodeOutcome::NoPlaceToMovePods, message.to_owned())
    }

    /// The deferral of a node that is to be removed later. The node's verdict does not change.
    pub(super) fn waits(message: Option<String>) -> Self {
        Self { verdict: None, reason: None, pod: None, message }
    }
}

/// The limits of one round, updated with each admitted removal.
pub(super) struct Round<'a> {
    /// What `[[disruption]]` allows.
    pub(super) allowed: Allowed<'a>,
    sizes: BTreeMap<PoolName, u32>,
    /// The number of nodes in each pool that have not been ready yet. These nodes do not count towards the
    /// pool's minimum, because a node that never becomes ready is removed.
    joining: BTreeMap<PoolName, u32>,
    unhealthy: BTreeSet<PoolName>,
    /// For each pool, why nothing can be done in the pool's Proxmox VE cluster now.
    out_of_sight: BTreeMap<PoolName, String>,
    cooling: BTreeMap<PoolName, String>,
    /// Drains in progress, including those that begin in this round.
    pub(super) drains: usize,
}

impl<'a> Round<'a> {
    pub(super) fn new(view: &View<'a>, growth: &ScaleUpDecision) -> Self {
        let mut sizes: BTreeMap<PoolName, u32> = BTreeMap::new();
        let mut joining: BTreeMap<PoolName, u32> = BTreeMap::new();
        let names = |is: fn(Phase) -> bool| -> BTreeSet<&str> {
            let machines = view.machines.iter();
            machines.filter(|(_, machine)| is(machine.phase)).map(|(node, _)| *node).collect()
        };
        let coming = names(|phase| phase < Phase::Ready);
        // A machine whose creation was abandoned can still register a Node, without the daemon's taint, until
        // its VM is gone.
        let leaving = names(|phase| phase > Phase::Ready);
        let out_of_sight: BTreeMap<PoolName, String> = (view.snapshot.memory.pools.iter())
            .filter_map(|(pool, memory)| Some((pool.clone(), memory.out_of_sight.clone()?)))
            .collect();
        let mut drains = 0;
        for (at, node) in view.snapshot.nodes.iter().enumerate() {
            let Some(pool) = pool_of(node) else { continue };
            if node.replaced.is_some() {
                continue;
            }
            if is_leaving(node) {
                // Drains of two kinds do not delay others: drains in a Proxmox VE cluster where nothing can
                // be done now, and drains that only wait for overdue pods, which a dead kubelet cannot end.
                let drained =
                    |pod: &Pod| !is_daemon(pod) && !is_mirror(pod) && !overdue(pod, view.snapshot.time);
                let busy = view.on[at].bound.iter().any(|pod| drained(pod));
                drains += usize::from(busy && !out_of_sight.contains_key(pool));
            } else if !being_deleted(node) && !leaving.contains(node.name.as_str()) {
                *sizes.entry(pool.into()).or_default() += 1;
                *joining.entry(pool.into()).or_default() += u32::from(coming.contains(node.name.as_str()));
            }
        }
        let cooling = view.config.pools.iter().filter_map(|pool| {
            let grows = growth.pools.iter().any(|one| one.pool == pool.name);
            Some((pool.name.clone(), cooldowns::removal(view, &pool.name, grows)?))
        });
        Self {
            allowed: Allowed::new(view.snapshot, view.config),
            sizes,
            joining,
            unhealthy: health::unhealthy(view.snapshot, view.config),
            out_of_sight,
            cooling: cooling.collect(),
            drains,
        }
    }

    /// How many nodes of the pool stay according to the decisions so far.
    pub(super) fn size(&self, pool: &str) -> u32 {
        self.sizes.get(pool).copied().unwrap_or(0)
    }

    /// How many nodes of the pool count towards its minimum: those that stay and have been ready.
    pub(super) fn established(&self, pool: &str) -> u32 {
        self.size(pool).saturating_sub(self.joining.get(pool).copied().unwrap_or(0))
    }

    /// Why no node of the pool may be removed now, or `None` if nothing about the pool prevents it.
    pub(super) fn closed(&self, pool: &str) -> Option<Deferral> {
        if self.unhealthy.contains(pool) {
            let message = "too many of the pool's nodes are not ready".to_owned();
            return Some(Deferral::because(NodeOutcome::PoolUnhealthy, message));
        }
        if let Some(why) = self.out_of_sight.get(pool) {
            return Some(Deferral::because(NodeOutcome::PoolUnhealthy, why.clone()));
        }
        let why = self.cooling.get(pool)?;
        Some(Deferral::because(NodeOutcome::CoolingDown, why.clone()))
    }

    /// Why a node stays if its pool is at its minimum. If the node has been unready for too long, the reason
    /// also says whether the node will be replaced.
    pub(super) fn why_kept(&self, node: &Drainable, now: Timestamp) -> Deferral {
        let (pool, min) = (node.pool, node.pool.min);
        if node.ready || node.removable_at > now {
            return Deferral::at_minimum(min);
        }
        let next = if self.size(&pool.name) >= pool.max {
            "`max` leaves no room for the node's replacement"
        } else {
            "the node will be removed once its replacement is ready"
        };
        let message = format!("the pool is at its minimum of {min}; {next}");
        Deferral::because(NodeOutcome::AtMinimum, message)
    }

    /// Admits the node's removal in this round, or returns why it is not admitted.
    pub(super) fn admit(
        &mut self,
        view: &View,
        at: NodeIndex,
        node: &Drainable,
        budgets: &mut Budgets,
        headroom: &mut Headroom,
        moves: &Moves,
    ) -> Result<(), Deferral> {
        let pool = &node.pool.name;
        if self.established(pool) <= node.pool.min {
            return Err(Deferral::at_minimum(node.pool.min));
        }
        if let Some(pod) = &node.drain.awaited {
            return Err(Deferral::waits(Some(format!("waiting for {pod} to end"))));
        }
        if node.removable_at > view.snapshot.time {
            return Err(Deferral::waits(None));
        }
        if let Some(why) = self.closed(pool) {
            return Err(why);
        }
        if let Some(why) = rests(view.snapshot, &view.snapshot.nodes[at]) {
            // The outcome is `Blocked` so that consolidation does not wait for the node. It may be a long
            // time before the node can be removed.
            let blocked = Deferral::because(NodeOutcome::Blocked, why);
            return Err(Deferral { reason: Some(NodeReason::RemovalGivenUp), ..blocked });
        }
        if let Some(why) = self.allowed.refuses(node.reason(), pool) {
            return Err(Deferral::because(NodeOutcome::CoolingDown, why));
        }
        let drains = !node.drain.moves.is_empty();
        let most = view.config.scale_down.max_parallel_drains;
        if drains && self.drains >= most {
            return Err(Deferral::waits(Some(format!(
                "waiting for its turn: at most {most} drains at a time"
            ))));
        }
        debug_assert!(at < view.existing, "only existing nodes are removed");
        if let Err(pod) = budgets.allow(node.drain.asked()) {
            return Err(Deferral {
                verdict: Some(NodeOutcome::Blocked),
                reason: Some(NodeReason::Pod(Blocking::NotEnoughPdb)),
                pod: Some(pod),
                message: None,
            });
        }
        if let Err(why) = headroom.admit(view, at, moves) {
            return Err(Deferral::because(NodeOutcome::AtMinimum, why));
        }
        budgets.take(node.drain.asked());
        self.allowed.take(pool);
        self.drains += usize::from(drains);
        if let Some(size) = self.sizes.get_mut(pool) {
            *size -= 1;
        }
        Ok(())
    }
}
