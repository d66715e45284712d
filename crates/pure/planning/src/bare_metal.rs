//! Determines which bare-metal machines may be switched on next.
//!
//! A machine is free if it has no record, is not known to be on, is not closed or out of service, and is not
//! backing off after a failure. If a snapshot does not list the free slots, a slot is free if no machine and
//! no Node has its name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::capacity::NoRoom;
use super::view::View;
use model::machine::Phase;
use model::workload::Backoff;
use model::{PoolName, Slot};
use settings::Pool;

/// The machines of a pool that can still be switched on, and why others cannot.
#[derive(Clone, Debug, Default)]
struct Left {
    free: VecDeque<Slot>,
    /// Why the other machines are not free.
    shut: Vec<String>,
    /// Why the first machine that is backing off after a failure is not used.
    resting: Option<String>,
}

/// The bare-metal machines that can still be switched on, by pool name.
#[derive(Clone, Debug, Default)]
pub(super) struct Machines(BTreeMap<PoolName, Left>);

impl Machines {
    pub(super) fn new(view: &View, holds: &impl Fn(Option<&Backoff>) -> Option<String>) -> Self {
        let memory = &view.snapshot.memory;
        let of_pool = |pool: &Pool| {
            let mut left = Left::default();
            let known =
                memory.free_slots.as_ref().map(|all| all.get(&pool.name).cloned().unwrap_or_default());
            let out_of_service = memory.pools.get(&pool.name).map(|memory| &memory.out_of_service);
            for slot in known.unwrap_or_else(|| unnamed(view, pool)) {
                let Some(machine) = slot.machine.as_deref().and_then(|name| pool.physical(name)) else {
                    continue;
                };
                let name = &machine.name;
                let backoff = memory.hosts.get(name.as_str()).and_then(|memory| memory.backoff.as_ref());
                if machine.closed {
                    left.shut.push(format!("{name} is closed"));
                } else if let Some(why) = out_of_service.and_then(|all| all.get(name)) {
                    left.shut.push(format!("{name} {why}"));
                } else if let Some(why) = holds(backoff) {
                    left.resting.get_or_insert_with(|| format!("{name}: {why}"));
                } else {
                    left.free.push_back(slot);
                }
            }
            (pool.name.clone(), left)
        };
        Self(view.config.pools.iter().filter(|pool| pool.is_physical()).map(of_pool).collect())
    }

    /// The pool's next machine, or why there is none.
    pub(super) fn next(&self, pool: &Pool) -> Result<Slot, NoRoom> {
        let none = Left::default();
        let left = self.0.get(&pool.name).unwrap_or(&none);
        match (left.free.front(), &left.resting) {
            (Some(slot), _) => Ok(slot.clone()),
            (None, Some(why)) => Err(NoRoom::BackingOff(why.clone())),
            (None, None) => Err(NoRoom::NoMachine(left.shut.clone())),
        }
    }

    /// Counts a machine as switched on.
    pub(super) fn take(&mut self, pool: &Pool, slot: Option<&Slot>) {
        if let (Some(left), Some(slot)) = (self.0.get_mut(&pool.name), slot) {
            left.free.retain(|one| one.vmid != slot.vmid);
        }
    }
}

/// The pool's slots whose names are not used by any machine or Node.
fn unnamed(view: &View, pool: &Pool) -> Vec<Slot> {
    let machines = view.snapshot.proxmox.machines.iter().flatten();
    let there = machines.filter(|machine| machine.phase != Phase::Gone);
    let mut taken: BTreeSet<&str> = there.map(|machine| machine.name.as_str()).collect();
    taken.extend(view.snapshot.nodes.iter().map(|node| node.name.as_str()));
    let free = |slot: &Slot| slot.machine.as_deref().is_some_and(|name| !taken.contains(name));
    pool.slots().into_iter().filter(free).collect()
}
