//! Counters that the devices of a pool share (partitionable devices).

use std::collections::BTreeMap;

use super::pools::Pool;
use super::state::State;
use model::amount::Amount;
use model::devices::CounterSet;

/// The names of a counter set and of a counter in the set.
type Key = (String, String);

/// The remaining amounts of the counters of all pools.
pub(super) struct Counters<'s> {
    state: &'s State,
    pools: &'s [Pool],
    /// The remaining amounts in each pool, computed when first needed.
    left: Vec<Option<BTreeMap<Key, Amount>>>,
}

impl<'s> Counters<'s> {
    pub(super) fn new(state: &'s State, pools: &'s [Pool]) -> Self {
        Self { state, pools, left: vec![None; pools.len()] }
    }

    /// Reduces the counters by the amounts that a device consumes, if all of the pool's counters are large
    /// enough. Returns whether they are.
    pub(super) fn take(&mut self, pool: usize, consumes: &[CounterSet]) -> bool {
        let left = self.left(pool);
        subtract(left, consumes);
        let suffice = left.values().all(|amount| amount.sign() >= 0);
        if !suffice {
            self.give_back(pool, consumes);
        }
        suffice
    }

    /// Increases the counters by the amounts that a device consumed.
    pub(super) fn give_back(&mut self, pool: usize, consumes: &[CounterSet]) {
        let left = self.left(pool);
        for_each(left, consumes, Amount::plus);
    }

    fn left(&mut self, pool: usize) -> &mut BTreeMap<Key, Amount> {
        let (state, pools) = (self.state, self.pools);
        self.left[pool].get_or_insert_with(|| {
            let pool = &pools[pool];
            let mut left = pool.counters.clone();
            let all = pool.devices.iter().map(|candidate| &candidate.dev).chain(&pool.others);
            for dev in all.filter(|dev| state.used(dev.id).is_some()) {
                subtract(&mut left, &dev.object().consumes);
            }
            left
        })
    }
}

fn subtract(left: &mut BTreeMap<Key, Amount>, consumes: &[CounterSet]) {
    for_each(left, consumes, Amount::minus);
}

fn for_each(left: &mut BTreeMap<Key, Amount>, consumes: &[CounterSet], change: fn(Amount, Amount) -> Amount) {
    for set in consumes {
        for (counter, amount) in &set.counters {
            if let Some(one) = left.get_mut(&(set.name.clone(), counter.clone())) {
                *one = change(*one, *amount);
            }
        }
    }
}
