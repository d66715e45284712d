//! Pools whose machines may have several sizes: each size is a separate offer, and each machine gets the
//! smallest that holds its pods.

use std::sync::Arc;

use super::dominant_share::largest_share;
use super::packer::Packer;
use super::pod_place::PodPlace;
use model::machine::Machine;
use model::{Resources, Snapshot};
use scheduling::NodeIndex;
use settings::{Config, Pool};

/// Returns each pool once for each size and each set of hosts with different labels, smallest size first.
pub(super) fn offers(config: &Config, snapshot: &Snapshot) -> Vec<Pool> {
    let of_pool = |pool: &Pool| -> Vec<Pool> {
        let sized = |size: &settings::Size| Pool { cores: size.cores, memory: size.memory, ..pool.clone() };
        pool.sizes.iter().flat_map(|size| super::zones::split(sized(size), snapshot)).collect()
    };
    config.pools.iter().flat_map(of_pool).collect()
}

/// The cost of a machine of each offer, in millionths: its cores relative to the offer with the most cores,
/// plus its memory relative to the offer with the most memory. The allocatable resources are not used,
/// because each node reserves a part of its resources, and small machines would seem cheaper than they are.
pub(super) fn costs(offers: &[Pool]) -> Vec<i64> {
    let machine = |pool: &Pool| Resources {
        cpu_milli: i64::from(pool.cores) * 1000,
        memory: pool.memory,
        ..Resources::default()
    };
    let machines: Vec<Resources> = offers.iter().map(machine).collect();
    machines.iter().map(largest_share(machines.iter())).collect()
}

impl Packer<'_, '_> {
    /// The offer from which a machine was created, or the pool's smallest one if the machine's size is no
    /// longer offered.
    pub(super) fn offer_of(&self, pool: &str, machine: Option<&Machine>) -> Option<usize> {
        let offers = || self.pools().iter().enumerate().filter(|(_, one)| one.name == pool);
        let same = || {
            let of_size = move |one: &Pool, machine: &Machine| {
                (one.cores, one.memory) == (machine.cores, machine.memory)
            };
            offers().filter(move |(_, one)| machine.is_some_and(|machine| of_size(one, machine)))
        };
        let here = |one: &Pool| machine.is_some_and(|machine| one.hosts.contains(&machine.host));
        let found = same().find(|(_, one)| here(one)).or_else(|| same().next());
        found.or_else(|| offers().next()).map(|(index, _)| index)
    }

    /// The largest number of sizes that any pool has.
    pub(super) fn most_sizes(&self) -> usize {
        self.view.config.pools.iter().map(|pool| pool.sizes.len()).max().unwrap_or(1)
    }

    /// Whether an offer has the size with this index in its pool, or the largest size if the pool has fewer
    /// sizes.
    pub(super) fn is_size(&self, offer: usize, number: usize) -> bool {
        let pool = &self.pools()[offer];
        let own = pool.sizes.iter().position(|size| (size.cores, size.memory) == (pool.cores, pool.memory));
        own == Some(number.min(pool.sizes.len().saturating_sub(1)))
    }

    /// The offer of the same pool with the cheapest size that holds these resources.
    pub(super) fn smallest(&self, offer: usize, wanted: &Resources) -> usize {
        if self.pools()[offer].sizes.len() < 2 {
            return offer;
        }
        let Pool { name, hosts, .. } = &self.pools()[offer];
        let holds = |other: &usize| {
            self.pools()[*other].name == *name
                && self.pools()[*other].hosts == *hosts
                && self.sizes[*other] <= self.sizes[offer]
                && self.pools()[*other].cores <= self.pools()[offer].cores
                && self.pools()[*other].memory <= self.pools()[offer].memory
                && holds(self.prototypes[*other].free(), wanted)
        };
        let fitting = (0..self.prototypes.len()).filter(holds);
        fitting.min_by_key(|&other| (self.sizes[other], other)).unwrap_or(offer)
    }

    /// Gives each planned machine the smallest size that holds what was placed on it.
    pub(super) fn fit_sizes(&mut self) {
        if self.most_sizes() < 2 {
            return;
        }
        let mut wanted = vec![Resources::default(); self.planned.len()];
        for (waiting, spot) in self.pods.iter().zip(&self.spots) {
            if let PodPlace::Node(node) = spot
                && let Some(machine) = self.machine_at(*node)
            {
                wanted[machine].add(&waiting.pod.requests);
            }
        }
        for (machine, wanted) in wanted.iter().enumerate() {
            if self.planned[machine].place.woken.is_some() {
                continue;
            }
            let (from, to) = (self.planned[machine].pool, self.smallest(self.planned[machine].pool, wanted));
            if self.same_daemons(from, to) || self.only_plain_on(self.planned[machine].node) {
                self.planned[machine].pool = to;
            }
        }
    }

    /// Whether nodes of both offers run the same DaemonSet pods. They may differ, because a pod may be too
    /// large for the smaller offer.
    fn same_daemons(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.prototypes[a].pods, &self.prototypes[b].pods);
        a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    fn only_plain_on(&self, node: NodeIndex) -> bool {
        let mut pods = self.pods.iter().zip(&self.spots).filter(|(_, spot)| **spot == PodPlace::Node(node));
        pods.all(|(waiting, _)| self.is_plain(waiting.pod))
    }
}

/// Whether the free resources cover the wanted ones (kube-scheduler's `fitsRequest`).
fn holds(free: Resources, wanted: &Resources) -> bool {
    free.pods >= wanted.pods
        && (wanted.cpu_milli <= 0 || free.cpu_milli >= wanted.cpu_milli)
        && (wanted.memory <= 0 || free.memory >= wanted.memory)
        && (wanted.ephemeral_storage <= 0 || free.ephemeral_storage >= wanted.ephemeral_storage)
        && wanted
            .other
            .iter()
            .all(|(name, amount)| *amount <= 0 || free.other.get(name).is_some_and(|free| free >= amount))
}
