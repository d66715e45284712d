//! Decides which nodes are replaced next. Keeps count of what the disruption limits, the pools' limits and
//! `replace.max_parallel` still allow in this round.

use std::collections::{BTreeMap, BTreeSet};

use super::disruptions::{Allowed, leaving};
use super::drain::Drain;
use super::facts::{
    machine::is_kept,
    node::{being_deleted, pool_of, ready, stays, unrepaired},
    time::after,
};
use super::health;
use super::removal_backoff::rests;
use super::replacement_due::Due;
use model::machine::Phase;
use model::{PoolName, Snapshot};
use settings::{Config, Pool};

/// What a round still allows.
pub(super) struct Turns<'a> {
    allowed: Allowed<'a>,
    unhealthy: BTreeSet<PoolName>,
    /// How many nodes of each pool are leaving, including those whose turn it is.
    leaving: BTreeMap<PoolName, usize>,
    /// How many nodes of each pool are already being removed.
    on_their_way: BTreeMap<PoolName, usize>,
    /// How many machines each pool has, including those that are being created or removed.
    machines: BTreeMap<PoolName, usize>,
    /// How many ready nodes of each pool stay.
    serving: BTreeMap<PoolName, usize>,
    /// How many machines of each pool are being created.
    coming: BTreeMap<PoolName, usize>,
    /// Pools that already have a replacement node, or have one being created.
    pub(super) spare: BTreeSet<PoolName>,
}

impl<'a> Turns<'a> {
    pub(super) fn new(snapshot: &Snapshot, config: &'a Config) -> Self {
        let on_their_way: BTreeMap<PoolName, usize> =
            leaving(snapshot).into_iter().map(|(pool, count)| (pool.into(), count)).collect();
        let mut turns = Self {
            allowed: Allowed::new(snapshot, config),
            unhealthy: health::unhealthy(snapshot, config),
            leaving: on_their_way.clone(),
            on_their_way,
            machines: BTreeMap::new(),
            serving: BTreeMap::new(),
            coming: BTreeMap::new(),
            spare: BTreeSet::new(),
        };
        for node in &snapshot.nodes {
            let Some(pool) = pool_of(node) else { continue };
            let leaves = being_deleted(node);
            *turns.serving.entry(pool.into()).or_default() += usize::from(ready(node) && !leaves);
            if snapshot.proxmox.machines.is_none() {
                *turns.machines.entry(pool.into()).or_default() += 1;
            }
        }
        for machine in snapshot.proxmox.machines.iter().flatten() {
            // A warm machine is not counted, because it can be used as a replacement.
            if machine.phase.is_over() || is_kept(machine) {
                continue;
            }
            *turns.machines.entry(machine.pool.clone()).or_default() += 1;
            *turns.coming.entry(machine.pool.clone()).or_default() +=
                usize::from(machine.phase < Phase::Ready);
        }
        turns
    }

    /// Why the node is not replaced now. `None`: the node's turn has come.
    pub(super) fn held(
        &mut self,
        snapshot: &Snapshot,
        config: &Config,
        at: usize,
        due: &Due,
        drain: Option<&Result<Drain, String>>,
    ) -> Option<String> {
        let node = &snapshot.nodes[at];
        let pool = pool_of(node).and_then(|name| config.pools.iter().find(|pool| pool.name == name))?;
        let kept = || stays(node).or_else(|| Some(format!("annotation {}", unrepaired(node)?)));
        let decided = due.held.clone().or_else(kept);
        let drain = match drain? {
            Ok(drain) => drain,
            Err(why) => return decided.or_else(|| Some(why.clone())),
        };
        let held = decided
            .or_else(|| self.pool_rests(snapshot, config, pool))
            .or_else(|| rests(snapshot, node))
            .or_else(|| drain.awaited.as_ref().map(|pod| format!("waiting for {pod} to end")))
            .or_else(|| self.no_room(pool, ready(node), drain))
            .or_else(|| self.others_first(config, pool))
            .or_else(|| self.allowed.refuses(due.reason, &pool.name));
        if held.is_none() {
            self.allowed.take(&pool.name);
            *self.leaving.entry(pool.name.clone()).or_default() += 1;
            if let Some(serving) = self.serving.get_mut(&pool.name) {
                *serving = serving.saturating_sub(usize::from(ready(node)));
            }
        }
        held
    }

    fn pool_rests(&self, snapshot: &Snapshot, config: &Config, pool: &Pool) -> Option<String> {
        if !config.scale_down.enabled {
            return Some("removals are switched off (`scale_down.enabled`)".to_owned());
        }
        if self.unhealthy.contains(&pool.name) {
            return Some("too many of the pool's nodes are not ready".to_owned());
        }
        let memory = snapshot.memory.pools.get(&pool.name)?;
        let backoff = memory.backoff.as_ref().filter(|backoff| backoff.runs(snapshot.time));
        if let Some(backoff) = backoff {
            return Some(format!("the pool is left alone after a failure: {}", backoff.reason));
        }
        let rests = after(memory.last_removal_failure?, config.scale_down.delay_after_failure);
        (rests > snapshot.time).then(|| format!("waiting until {rests} after a failed removal"))
    }

    /// Why the node cannot be replaced, if its pool is at its maximum and a replacement is needed.
    fn no_room(&self, pool: &Pool, serves: bool, drain: &Drain) -> Option<String> {
        let count = |of: &BTreeMap<PoolName, usize>| of.get(&pool.name).copied().unwrap_or(0);
        let can_do_without = drain.moves.is_empty() && count(&self.serving) > pool.min as usize;
        let full = count(&self.machines) >= pool.max as usize;
        // A replacement takes the place of only one node. If it counted for two nodes, they could wait for
        // each other, and both would stay.
        let left = (count(&self.serving) + count(&self.coming)).saturating_sub(usize::from(serves));
        let stands_in = self.spare.contains(&pool.name) && left >= pool.min as usize;
        // A leaving machine makes room for the next replacement, once its removal has begun.
        let in_its_place = stands_in || count(&self.on_their_way) > 0;
        (full && !can_do_without && !in_its_place)
            .then(|| format!("`max` of {} leaves no room for its replacement", pool.max))
    }

    fn others_first(&self, config: &Config, pool: &Pool) -> Option<String> {
        let leaving = self.leaving.get(&pool.name).copied().unwrap_or(0);
        (leaving >= config.replace.max_parallel).then(|| {
            format!(
                "only {} of its pool's nodes may be replaced at a time (`replace.max_parallel`)",
                config.replace.max_parallel
            )
        })
    }
}
