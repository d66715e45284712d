//! Chooses a machine's CPUs and memory on its host. The code has no side effects.
//!
//! * A machine uses whole cores with all their threads, and shares none of them.
//! * Cores are taken from as few NUMA nodes as possible. Among suitable nodes, those with the fewest free
//!   CPUs are chosen, so that larger machines can still use a whole node. If a machine needs several nodes,
//!   its cores are distributed evenly across them.
//! * The lowest cores are reserved for the host.
//! * With NUMA, the guest gets one NUMA node for each NUMA node of the host whose cores it uses. The memory
//!   of such a node is in proportion to its vCPUs, in whole pages.

use std::collections::BTreeMap;

use thiserror::Error;

use super::cpus::Cpus;
use super::topology::{HostNode, Topology};

/// The maximum number of NUMA nodes of a guest: Proxmox VE supports `numa0` to `numa7`.
pub const MOST_GUEST_NODES: usize = 8;
/// The maximum number of the host's NUMA nodes that are considered. Nodes with the most free CPUs are
/// considered first. The number is limited because the code may try all combinations of these nodes.
const MOST_NODES: usize = 16;

/// The resources that a machine needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its vCPUs.
    pub vcpus: u32,
    /// The machine's memory, in MiB.
    pub memory: u64,
    /// Whether the machine's memory should be on the same NUMA nodes as its CPUs.
    pub numa: bool,
    /// The page size of the machine's memory, in MiB.
    pub page: u64,
    /// The number of cores that are reserved for the host.
    pub reserve: u32,
}

/// The host's CPUs and memory that other VMs use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The CPUs that other VMs are pinned to.
    pub cpus: Cpus,
    /// The memory that other VMs have bound on each NUMA node, in MiB.
    pub memory: BTreeMap<u32, u64>,
}

/// The CPUs and memory of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its CPUs.
    pub cpus: Cpus,
    /// The guest's NUMA nodes, starting with `numa0`; empty without NUMA.
    pub nodes: Vec<GuestNode>,
}

/// A NUMA node of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestNode {
    /// The id of the host's NUMA node that this node uses.
    pub host: u32,
    /// Its vCPUs.
    pub vcpus: u32,
    /// The memory of this node, in MiB.
    pub memory: u64,
}

/// Why no CPUs could be chosen for a machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoRoom {
    /// Too few CPUs are free.
    #[error("not enough free CPUs for {wanted} vCPUs (free: {})", in_words(free, ""))]
    Cpus {
        /// The vCPUs that the machine needs.
        wanted: u32,
        /// The number of free CPUs on each NUMA node.
        free: Vec<(u32, usize)>,
    },
    /// Enough CPUs are free, but their NUMA nodes do not have enough free memory.
    #[error(
        "not enough free memory for {wanted} MiB on NUMA nodes with free CPUs (free: {})",
        in_words(room, " MiB")
    )]
    Memory {
        /// The memory that the machine needs, in MiB.
        wanted: u64,
        /// The free memory on each NUMA node, in MiB.
        room: Vec<(u32, u64)>,
    },
    /// The memory is not a multiple of the page size.
    #[error("its memory of {memory} MiB is not a multiple of the page size of {page} MiB")]
    Pages {
        /// The memory that the machine needs, in MiB.
        memory: u64,
        /// The page size in MiB.
        page: u64,
    },
}

fn in_words<N: std::fmt::Display>(nodes: &[(u32, N)], unit: &str) -> String {
    let words = nodes.iter().map(|(id, count)| format!("{count}{unit} on NUMA node {id}"));
    words.collect::<Vec<_>>().join(", ")
}

/// Chooses the CPUs and memory of one machine. The result depends only on the arguments.
///
/// # Errors
/// Returns an error if the machine does not fit on the host.
pub fn choose(topology: &Topology, taken: &Taken, wish: &Wish) -> Result<Choice, NoRoom> {
    if wish.page == 0 || !wish.memory.is_multiple_of(wish.page) {
        return Err(NoRoom::Pages { memory: wish.memory, page: wish.page });
    }
    let open = open(topology, taken, wish.reserve);
    let mut nodes: Vec<&Open<'_>> = open.iter().filter(|node| !node.cores.is_empty()).collect();
    if nodes.len() > MOST_NODES {
        nodes.sort_by_key(|node| (std::cmp::Reverse(node.threads()), node.id));
        nodes.truncate(MOST_NODES);
        nodes.sort_by_key(|node| node.id);
    }
    let most = if wish.numa { nodes.len().min(MOST_GUEST_NODES) } else { nodes.len() };
    let wanted = wish.vcpus as usize;
    for count in 1..=most {
        let sets = (1_u32..1 << nodes.len()).filter(|set| set.count_ones() as usize == count);
        let mut fitting = sets.filter_map(|set| {
            let of: Vec<&Open<'_>> = nodes
                .iter()
                .enumerate()
                .filter(|(at, _)| set & (1 << at) != 0)
                .map(|(_, node)| *node)
                .collect();
            let threads: usize = of.iter().map(|node| node.threads()).sum();
            let ids: Vec<u32> = of.iter().map(|node| node.id).collect();
            (threads >= wanted).then_some((threads, ids, of))
        });
        let mut ordered: Vec<_> = fitting.by_ref().collect();
        ordered.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        for (_, _, of) in ordered {
            if let Some(choice) = laid_out(&dealt(&of, wanted), wish) {
                return Ok(choice);
            }
        }
    }
    let all: usize = nodes.iter().map(|node| node.threads()).sum();
    if all < wanted || wanted == 0 {
        let free = open.iter().map(|node| (node.id, node.threads())).collect();
        return Err(NoRoom::Cpus { wanted: wish.vcpus, free });
    }
    let room = nodes.iter().map(|node| (node.id, node.memory)).collect();
    Err(NoRoom::Memory { wanted: wish.memory, room })
}

/// Returns the choice with exactly these CPUs, or `None` if they break a rule. The CPUs must be whole cores
/// that no other VM uses and that are not reserved for the host. There must be no more cores than the machine
/// needs. With NUMA, their nodes must have enough free memory.
pub fn keeps(topology: &Topology, taken: &Taken, wish: &Wish, cpus: &Cpus) -> Option<Choice> {
    let open = open(topology, taken, wish.reserve);
    let mut had: Vec<Open<'_>> = Vec::new();
    for node in &open {
        let cores: Vec<&Cpus> = node.cores.iter().copied().filter(|core| core.is_within(cpus)).collect();
        if !cores.is_empty() {
            had.push(Open { id: node.id, memory: node.memory, cores });
        }
    }
    let cores: Vec<&Cpus> = had.iter().flat_map(|node| node.cores.iter().copied()).collect();
    let threads: usize = cores.iter().map(|core| core.len()).sum();
    let largest = cores.iter().map(|core| core.len()).max()?;
    let wanted = wish.vcpus as usize;
    let right = threads == cpus.len() && threads >= wanted && threads - largest < wanted;
    (right && wish.page != 0 && wish.memory.is_multiple_of(wish.page)).then(|| laid_out(&had, wish)).flatten()
}

/// The number of free CPUs on each NUMA node of the host.
pub fn free_cpus(topology: &Topology, taken: &Taken, reserve: u32) -> Vec<(u32, usize)> {
    open(topology, taken, reserve).iter().map(|node| (node.id, node.threads())).collect()
}

/// The free cores and memory of one of the host's NUMA nodes.
struct Open<'t> {
    id: u32,
    memory: u64,
    cores: Vec<&'t Cpus>,
}

impl Open<'_> {
    fn threads(&self) -> usize {
        self.cores.iter().map(|core| core.len()).sum()
    }
}

fn open<'t>(topology: &'t Topology, taken: &Taken, reserve: u32) -> Vec<Open<'t>> {
    let mut all: Vec<&Cpus> = topology.nodes.iter().flat_map(|node| &node.cores).collect();
    all.sort_by_key(|core| core.first());
    let kept: Vec<&Cpus> = all.into_iter().take(reserve as usize).collect();
    let open = |node: &'t HostNode| Open {
        id: node.id,
        memory: node.memory.saturating_sub(taken.memory.get(&node.id).copied().unwrap_or(0)),
        cores: node.cores.iter().filter(|core| !kept.contains(core) && !core.meets(&taken.cpus)).collect(),
    };
    topology.nodes.iter().map(open).collect()
}

/// Takes the lowest free core of each node in turn, until there are enough threads.
fn dealt<'t>(nodes: &[&Open<'t>], wanted: usize) -> Vec<Open<'t>> {
    let mut hands: Vec<Open<'t>> =
        nodes.iter().map(|node| Open { id: node.id, memory: node.memory, cores: Vec::new() }).collect();
    let (mut threads, mut round) = (0, 0);
    while threads < wanted {
        let before = threads;
        for (hand, node) in hands.iter_mut().zip(nodes) {
            if let Some(core) = node.cores.get(round).filter(|_| threads < wanted) {
                hand.cores.push(core);
                threads += core.len();
            }
        }
        if threads == before {
            break;
        }
        round += 1;
    }
    hands
}

/// Distributes vCPUs and memory over the nodes of these cores. Returns `None` if a node would receive no
/// vCPUs or memory, or does not have enough memory.
fn laid_out(nodes: &[Open<'_>], wish: &Wish) -> Option<Choice> {
    let mut cpus = Cpus::default();
    for core in nodes.iter().flat_map(|node| &node.cores) {
        cpus.add(core);
    }
    if !wish.numa {
        return Some(Choice { cpus, nodes: Vec::new() });
    }
    let mut vcpus: Vec<u32> = Vec::new();
    for node in nodes {
        vcpus.push(u32::try_from(node.threads()).ok()?);
    }
    // The cores may have more threads than are needed, because only whole cores are assigned.
    let mut spare = vcpus.iter().sum::<u32>().checked_sub(wish.vcpus)?;
    for own in vcpus.iter_mut().rev() {
        let less = spare.min(own.saturating_sub(1));
        *own -= less;
        spare -= less;
    }
    if spare > 0 || vcpus.contains(&0) {
        return None;
    }
    let memory = shares(wish.memory / wish.page, &vcpus);
    let guest = nodes.iter().zip(&vcpus).zip(memory).map(|((node, vcpus), pages)| {
        let memory = pages * wish.page;
        (memory > 0 && memory <= node.memory).then_some(GuestNode { host: node.id, vcpus: *vcpus, memory })
    });
    Some(Choice { cpus, nodes: guest.collect::<Option<_>>()? })
}

/// Splits pages in proportion to vCPUs; the remainder goes to the first nodes.
fn shares(pages: u64, vcpus: &[u32]) -> Vec<u64> {
    let all: u64 = vcpus.iter().map(|count| u64::from(*count)).sum();
    let mut shares: Vec<u64> = vcpus.iter().map(|count| pages * u64::from(*count) / all.max(1)).collect();
    let mut rest = pages - shares.iter().sum::<u64>();
    for share in &mut shares {
        let one = rest.min(1);
        *share += one;
        rest -= one;
    }
    shares
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
