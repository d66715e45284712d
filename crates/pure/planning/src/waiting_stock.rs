//! Pending pods in the order in which they are packed. Equal pods form one item. The next item that fits is
//! found without looking at every item.

use super::filling::Filling;
use model::Resources;

/// Equal pending pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'p> {
    /// What one of the pods requests.
    pub wanted: &'p Resources,
    /// How many of the pods are pending.
    pub left: i64,
    /// The row of the pods' demands ([`super::classes::Demands`]).
    pub row: usize,
}

/// A list of items with a search tree above it. Each branch holds the smallest needs among its items.
#[derive(Clone, Debug)]
pub(super) struct Stock<'p> {
    items: Vec<Item<'p>>,
    /// The root is number 1, the branches of number `n` are `2n` and `2n + 1`.
    tree: Vec<Least>,
    /// The number of the first item in the tree.
    first: usize,
}

/// The smallest needs among a branch's items, and the rows of these items.
#[derive(Clone, Copy, Debug)]
struct Least {
    cpu_milli: i64,
    memory: i64,
    /// The demand rows of the items, as a bit set: bit `n` stands for every row whose number modulo 64 is
    /// `n`.
    rows: u64,
}

/// The needs of a branch without items: nothing fits.
const NOTHING: Least = Least { cpu_milli: i64::MAX, memory: i64::MAX, rows: 0 };

impl Least {
    fn of(item: &Item) -> Self {
        if item.left <= 0 {
            return NOTHING;
        }
        let least = |wanted: i64| if wanted > 0 { wanted } else { i64::MIN };
        Self {
            cpu_milli: least(item.wanted.cpu_milli),
            memory: least(item.wanted.memory),
            rows: bit(item.row),
        }
    }

    fn both(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.min(other.cpu_milli),
            memory: self.memory.min(other.memory),
            rows: self.rows | other.rows,
        }
    }

    fn may_fit(self, free: &Resources, rows: u64) -> bool {
        self.cpu_milli <= free.cpu_milli && self.memory <= free.memory && self.rows & rows != 0
    }
}

fn bit(row: usize) -> u64 {
    1 << (row % 64)
}

/// Which rows of demands a pool meets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Met {
    bits: u64,
    rows: Vec<bool>,
}

impl Met {
    pub(super) fn new(rows: Vec<bool>) -> Self {
        let bits = rows.iter().enumerate().filter(|(_, met)| **met).fold(0, |bits, (row, _)| bits | bit(row));
        Self { bits, rows }
    }
}

impl<'p> Stock<'p> {
    pub(super) fn new(items: Vec<Item<'p>>) -> Self {
        let first = items.len().next_power_of_two();
        let mut tree = vec![NOTHING; 2 * first];
        for (number, item) in items.iter().enumerate() {
            tree[first + number] = Least::of(item);
        }
        for branch in (1..first).rev() {
            tree[branch] = tree[2 * branch].both(tree[2 * branch + 1]);
        }
        Self { items, tree, first }
    }

    pub(super) fn item(&self, number: usize) -> Item<'p> {
        self.items[number]
    }

    /// The items with pending pods, with their numbers.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, Item<'p>)> {
        self.items.iter().copied().enumerate().filter(|(_, item)| item.left > 0)
    }

    /// The number of the first item with pending pods, starting at this number.
    pub(super) fn first_from(&self, number: usize) -> Option<usize> {
        (number..self.items.len()).find(|&one| self.items[one].left > 0)
    }

    /// Takes this many pods of an item.
    pub(super) fn take(&mut self, number: usize, count: i64) {
        self.items[number].left -= count;
        if self.items[number].left <= 0 {
            self.update(number);
        }
    }

    /// Leaves an item out from now on; returns how many of its pods are pending.
    pub(super) fn leave_out(&mut self, number: usize) -> i64 {
        let left = std::mem::take(&mut self.items[number].left);
        self.update(number);
        left
    }

    fn update(&mut self, number: usize) {
        let mut branch = self.first + number;
        self.tree[branch] = Least::of(&self.items[number]);
        while branch > 1 {
            branch /= 2;
            self.tree[branch] = self.tree[2 * branch].both(self.tree[2 * branch + 1]);
        }
    }

    /// Fills the free resources with as many pods as possible of each item in turn. Also returns the
    /// resources that are left.
    pub(super) fn in_order(&self, mut free: Resources, met: &Met) -> (Filling, Resources) {
        let mut filling = Filling::new();
        let mut from = 0;
        while free.pods > 0
            && let Some((number, copies)) = self.next(from, &free, met)
        {
            let item = &self.items[number];
            let count = copies.min(item.left);
            free.add_times(item.wanted, -count);
            filling.push((number, count));
            from = number + 1;
        }
        (filling, free)
    }

    /// The number of the first item that fits, starting at `from`, and how many copies of it fit.
    fn next(&self, from: usize, free: &Resources, met: &Met) -> Option<(usize, i64)> {
        let mut at = self.first + from;
        if from >= self.items.len() {
            return None;
        }
        loop {
            if self.tree[at].may_fit(free, met.bits) {
                if at < self.first {
                    at *= 2;
                    continue;
                }
                let item = &self.items[at - self.first];
                let copies = if met.rows[item.row] { free.copies(item.wanted) } else { 0 };
                if copies > 0 {
                    return Some((at - self.first, copies));
                }
            }
            // Go to the next branch to the right. If several branches begin at the same item, take the
            // highest one.
            at += 1;
            if at.is_power_of_two() {
                return None;
            }
            while at.is_multiple_of(2) {
                at /= 2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop};
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    /// The reference for [`Stock::in_order`]: looks at each item.
    fn one_by_one(items: &[Item], mut free: Resources, met: &Met) -> (Filling, Resources) {
        let mut filling = Filling::new();
        for (number, item) in items.iter().enumerate() {
            let count = free.copies(item.wanted).min(item.left);
            if free.pods > 0 && met.rows[item.row] && count > 0 {
                free.add_times(item.wanted, -count);
                filling.push((number, count));
            }
        }
        (filling, free)
    }

    fn resources() -> impl Strategy<Value = Resources> {
        (0..9_i64, 0..9_i64, 0..3_i64, 0..3_i64).prop_map(|(cpu_milli, memory, storage, gpus)| Resources {
            cpu_milli,
            memory,
            ephemeral_storage: storage,
            pods: 1,
            other: (gpus > 0).then(|| ("gpu".to_owned(), gpus)).into_iter().collect(),
        })
    }

    proptest! {
        #[test]
        fn what_fits_is_found_as_by_a_look_at_each(
            all in prop::collection::vec((resources(), 0..4_i64, 0..70_usize), 1..40),
            offered in prop::collection::vec(resources(), 1..20),
            rows in prop::collection::vec(any::<bool>(), 70),
        ) {
            let mut items: Vec<Item> =
                all.iter().map(|(wanted, left, row)| Item { wanted, left: *left, row: *row }).collect();
            let mut stock = Stock::new(items.clone());
            let met = Met::new(rows);
            for (number, one) in offered.iter().enumerate() {
                let mut free = Resources { pods: 9, ..Resources::default() };
                free.add_times(one, 3);
                let expected = one_by_one(&items, free.clone(), &met);
                prop_assert_eq!(&stock.in_order(free, &met), &expected);
                for (taken, count) in expected.0 {
                    items[taken].left -= count;
                    stock.take(taken, count);
                }
                if number == 3 {
                    let last = items.len() - 1;
                    prop_assert_eq!(stock.leave_out(last), std::mem::take(&mut items[last].left));
                }
                let open = items.iter().position(|item| item.left > 0);
                prop_assert_eq!(stock.first_from(0), open);
            }
        }
    }
}
