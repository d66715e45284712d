//! The expanders, which choose the pool that grows.

use super::capacity::{Place, Rooms};
use super::class::Class;
use super::filling;
use super::packer::Packer;
use super::waiting_stock::Stock;
use model::Resources;
use settings::Expander;

/// A pool whose fresh node could take a pod, and its rank: smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ranked {
    rank: (i64, i64),
    waste: i64,
    pub pool: usize,
}

/// Which pods a fresh node would take, and how much of the node would stay idle.
#[derive(Clone, Copy, Debug)]
struct Trial {
    pods: i64,
    /// Whether the node is too small for its average share of the pending pods.
    short: bool,
    waste: i64,
}

impl Ranked {
    /// Lowers the pool's rank by one step: it then comes after all pools that had the same rank, even after
    /// those that waste more.
    fn later(mut self) -> Self {
        self.rank.1 += 1;
        self
    }
}

impl Packer<'_, '_> {
    /// Like [`Self::rank`], but of the pools that the expander ranks equally, those whose size has the index
    /// `size` come first.
    pub(super) fn rank_sized(&self, items: &Stock, size: Option<usize>) -> Vec<Ranked> {
        let ranked = self.rank(items);
        let Some(size) = size else { return ranked };
        let mut ranked: Vec<Ranked> = ranked
            .into_iter()
            .map(|one| if self.is_size(one.pool, size) { one } else { one.later() })
            .collect();
        ranked.sort_unstable();
        ranked
    }

    /// The pools whose empty nodes would take the first of these items, best first.
    pub(super) fn rank(&self, items: &Stock) -> Vec<Ranked> {
        let Some(first) = items.first_from(0).map(|first| items.item(first)) else { return Vec::new() };
        self.ranked(first.row, first.wanted, |pool| {
            let (taken, free) = items.in_order(self.free[pool].clone(), &self.demands.met[pool]);
            let waste = filling::idle(&free, &self.prototypes[pool].node.allocatable);
            Trial { pods: taken.iter().map(|one| one.1).sum(), short: false, waste }
        })
    }

    /// Ranks the pools for pods that each need a separate node. `nodes` is the number of these nodes that
    /// other pods will share. `others` contains the requests of those other pods, by row of demands.
    pub(super) fn rank_for_loners(&self, class: &Class, nodes: usize, others: &[Resources]) -> Vec<Ranked> {
        let nodes = i64::try_from(nodes.max(1)).unwrap_or(i64::MAX);
        let wanted = self.view.world.amounts(class.sample);
        self.ranked(class.demands, &wanted, |pool| {
            let mut free = self.free[pool].clone();
            free.add_times(&wanted, -1);
            let mut share = Resources::default();
            for (suits, demand) in self.demands.suits.iter().zip(others) {
                if suits[pool] {
                    share.add(demand);
                }
            }
            let part = |amount: i64| amount / nodes + amount / nodes / SLACK;
            free.cpu_milli -= part(share.cpu_milli);
            free.memory -= part(share.memory);
            free.pods -= part(share.pods);
            let short = free.cpu_milli < 0 || free.memory < 0 || free.pods < 0;
            let idle = filling::idle(&free, &self.prototypes[pool].node.allocatable);
            // If the nodes of all pools are too small, the pool whose node lacks the least is the best.
            let lack = idle.saturating_sub(free.cpu_milli.min(0)).saturating_sub(free.memory.min(0) >> 20);
            Trial { pods: 1, short, waste: if short { lack } else { idle } }
        })
    }

    fn ranked(&self, demands: usize, wanted: &Resources, trial: impl Fn(usize) -> Trial) -> Vec<Ranked> {
        let suits = |&pool: &usize| self.demands.suits[demands][pool] && self.free[pool].fits(wanted);
        let mut trials: Vec<Option<Trial>> = vec![None; self.prototypes.len()];
        let mut ranked: Vec<Ranked> = (0..self.prototypes.len())
            .filter(suits)
            .map(|pool| {
                let twin = self.demands.twins[pool];
                let trial = *trials[twin].get_or_insert_with(|| trial(twin));
                let rank = match self.view.config.scale_up.expander {
                    Expander::LeastWaste => 0,
                    Expander::MostPods => -trial.pods,
                    Expander::Priority => -i64::from(self.view.offers[pool].priority),
                };
                Ranked { rank: (rank, i64::from(trial.short)), waste: trial.waste, pool }
            })
            .collect();
        ranked.sort_unstable();
        ranked
    }

    /// Returns the best pool that `takes` accepts and that has room for another machine. If several pools are
    /// equally good, returns the one with the fewest machines.
    pub(super) fn pick(
        &self,
        rooms: &Rooms,
        ranked: &[Ranked],
        takes: impl Fn(usize) -> bool,
    ) -> Option<(usize, Place)> {
        let equal = |a: &Ranked, b: &Ranked| (a.rank, a.waste) == (b.rank, b.waste);
        ranked.chunk_by(equal).find_map(|group| {
            // If a pool has several sets of hosts, the set with the best host is chosen.
            let key = |(pool, place): &(usize, Place)| {
                let name = &self.view.offers[*pool].name;
                (rooms.count(name), name, place.rank)
            };
            let fitting = group.iter().map(|one| one.pool).filter(|&pool| takes(pool));
            let open = fitting.filter_map(|pool| {
                let place = rooms.next(&self.view.offers[pool]).ok()?;
                Some((pool, place))
            });
            open.min_by(|a, b| key(a).cmp(&key(b)))
        })
    }
}

/// A shared node is expected to take its average share of the other pods, increased by 1/`SLACK`, because
/// pods rarely fit exactly.
const SLACK: i64 = 8;
