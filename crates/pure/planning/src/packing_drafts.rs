//! Drafts of how to fill new machines with plain pods. Drafts are computed from the number of pods and their
//! requests alone. The best draft is then carried out.

use std::cmp::Reverse;

use super::capacity::{Place, Rooms};
use super::class::Class;
use super::dominant_share::largest_share;
use super::filling::{self, Filling};
use super::packer::Packer;
use super::packing::item;
use super::waiting_stock::{Item, Stock};
use model::Resources;

/// How a machine is filled.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Largest first.
    Largest,
    /// All resources are used up at the same rate.
    Evenly,
}

/// New machines, and the pods that each of them receives.
pub(super) struct Draft {
    /// For each machine: its pool, its place, and the index of its filling in `fillings`.
    pub machines: Vec<(usize, Place, usize)>,
    /// What machines are filled with: classes, and how many pods of each.
    pub fillings: Vec<Vec<(usize, usize)>>,
    /// The classes in the order in which they were drafted.
    order: Vec<usize>,
    /// How many pods of each class did not get a machine. The classes are in the same order as in `order`.
    left: Vec<usize>,
    /// The cost of the machines: the sum of their [`Packer::sizes`].
    cost: i64,
}

/// If more comparisons than this would be needed, only the draft with the largest pods first is computed.
const MANY: usize = 20_000_000;

impl<'a> Packer<'_, 'a> {
    /// Returns the best draft of machines for these classes. The best draft places the most pods, compared
    /// from the highest priority down. If several drafts place equally many, the cheapest one is the best.
    pub(super) fn best_draft(&self, classes: &[Class<'a>], plain: &[usize]) -> Draft {
        let largest = self.draft(classes, plain, Way::Largest, None);
        let pods: usize = plain.iter().map(|&number| classes[number].left()).sum();
        let sizes = self.most_sizes();
        if sizes < 2 && plain.len() < 2 || pods.min(largest.fillings.len() * 100) * plain.len() > MANY {
            return largest;
        }
        let unplaced = |draft: &Draft| {
            let mut by_priority: Vec<(i32, usize)> = Vec::new();
            for (&number, &left) in draft.order.iter().zip(&draft.left) {
                let priority = classes[number].priority;
                match by_priority.last_mut().filter(|last| last.0 == priority) {
                    Some(last) => last.1 += left,
                    None => by_priority.push((priority, left)),
                }
            }
            by_priority
        };
        let preferred = || std::iter::once(None).chain((0..sizes).filter(|_| sizes > 1).map(Some));
        let ways = [Way::Largest, Way::Evenly].into_iter().take(plain.len());
        let others = ways.flat_map(|way| preferred().map(move |size| (way, size))).skip(1);
        let mut best = largest;
        for (way, size) in others {
            let other = self.draft(classes, plain, way, size);
            let key = |draft: &Draft| (unplaced(draft), draft.cost, draft.machines.len());
            if key(&other) < key(&best) {
                best = other;
            }
        }
        best
    }

    fn draft(&self, classes: &[Class<'a>], plain: &[usize], way: Way, size: Option<usize>) -> Draft {
        let mut rooms = self.rooms.clone();
        let plain = &self.ordered(classes, plain, size);
        let items = plain.iter().map(|&number| item(&classes[number], classes[number].left()));
        let mut stock = Stock::new(items.collect());
        let (left, order) = (vec![0; plain.len()], plain.clone());
        let mut draft = Draft { machines: Vec::new(), fillings: Vec::new(), order, left, cost: 0 };
        let mut next = stock.first_from(0);
        while let Some(first) = next {
            if !self.add(plain, &mut stock, way, size, &mut rooms, &mut draft) {
                draft.left[first] = usize::try_from(stock.leave_out(first)).unwrap_or(0);
            }
            next = stock.first_from(first);
        }
        draft
    }

    /// The classes, sorted by descending priority, then by descending size. The size is relative to the nodes
    /// on which the pods will run.
    fn ordered(&self, classes: &[Class<'a>], plain: &[usize], size: Option<usize>) -> Vec<usize> {
        let mut order = plain.to_vec();
        if let Some(size) = size {
            let sized = self.prototypes.iter().enumerate().filter(|(offer, _)| self.is_size(*offer, size));
            let share = largest_share(sized.map(|(_, one)| &one.node.allocatable));
            order.sort_by_cached_key(|&number| {
                let class = &classes[number];
                (Reverse(class.priority), Reverse(share(&class.sample.requests)), class.pods[0])
            });
        }
        order
    }

    /// Adds a machine for the first pending item, and fills the machine from all items. Repeats the same
    /// filling as long as enough pods and room are left. Returns false if no pool can get another machine for
    /// the item.
    fn add(
        &self,
        plain: &[usize],
        stock: &mut Stock,
        way: Way,
        size: Option<usize>,
        rooms: &mut Rooms,
        draft: &mut Draft,
    ) -> bool {
        let ranked = self.rank_sized(stock, size);
        let Some((mut pool, mut place)) = self.pick(rooms, &ranked, |_| true) else { return false };
        let filling = self.filling(pool, stock, way);
        let mut wanted = Resources::default();
        for &(one, count) in &filling {
            wanted.add_times(stock.item(one).wanted, count);
        }
        let alike = |other: usize| {
            other == pool
                || (self.free[other] == self.free[pool]
                    && filling.iter().all(|&(one, _)| self.demands.suits[stock.item(one).row][other]))
        };
        let alike: Vec<bool> = (0..self.prototypes.len()).map(alike).collect();
        let number = draft.fillings.len();
        let counts = filling.iter().map(|&(one, count)| (plain[one], usize::try_from(count).unwrap_or(0)));
        draft.fillings.push(counts.collect());
        loop {
            // A warm machine keeps its size; any other machine gets the smallest size that fits.
            let fitting = if place.woken.is_some() { pool } else { self.smallest(pool, &wanted) };
            rooms.take(&self.pools()[fitting], &place);
            draft.machines.push((fitting, place, number));
            draft.cost += self.sizes[fitting];
            for &(one, count) in &filling {
                stock.take(one, count);
            }
            if filling.iter().any(|&(one, count)| stock.item(one).left < count) {
                return true;
            }
            match self.pick(rooms, &ranked, |other| alike[other]) {
                Some(next) => (pool, place) = next,
                None => return true,
            }
        }
    }

    fn filling(&self, pool: usize, stock: &Stock, way: Way) -> Filling {
        let free = self.free[pool].clone();
        match way {
            Way::Largest => stock.in_order(free, &self.demands.met[pool]).0,
            Way::Evenly => {
                let suits = |one: &(usize, Item)| self.demands.suits[one.1.row][pool];
                let (numbers, items): (Vec<usize>, Vec<Item>) = stock.open().filter(suits).unzip();
                let filling = filling::evenly(free, &self.prototypes[pool].node.allocatable, &items);
                filling.into_iter().map(|(one, count)| (numbers[one], count)).collect()
            }
        }
    }
}
