//! Tests the choice of CPUs and memory with examples on common hosts, and with rules that must hold on any
//! host.

use proptest::prelude::*;

use super::*;

const GIB: u64 = 1024;

/// A host with `nodes` NUMA nodes. Each has `memory` MiB and `cores` cores with `threads` threads. The second
/// threads of all cores are numbered after all first threads.
fn host(nodes: u32, cores: u32, threads: u32, memory: u64) -> Topology {
    let node = |id: u32| HostNode {
        id,
        memory,
        cores: (0..cores)
            .map(|core| (0..threads).map(|thread| thread * nodes * cores + id * cores + core).collect())
            .collect(),
    };
    Topology { nodes: (0..nodes).map(node).collect() }
}

fn wish(vcpus: u32, memory: u64) -> Wish {
    Wish { vcpus, memory, numa: true, page: 1, reserve: 1 }
}

fn taken(cpus: &str, memory: &[(u32, u64)]) -> Taken {
    Taken { cpus: cpus.parse().unwrap(), memory: memory.iter().copied().collect() }
}

fn words(choice: &Choice) -> String {
    let nodes = choice.nodes.iter().map(|node| format!("; {}: {} + {}", node.host, node.vcpus, node.memory));
    format!("{}{}", choice.cpus, nodes.collect::<String>())
}

#[test]
fn machines_get_whole_cores_of_as_few_nodes_as_can_be() {
    let two = host(2, 4, 2, 16 * GIB);
    for (topology, taken, wish, expected) in [
        // Node 0 has three free cores and node 1 has four. The machine needs two, so the node with fewer free
        // cores is chosen.
        (&two, taken("", &[]), wish(4, 8 * GIB), "1-2,9-10; 0: 4 + 8192"),
        (&two, taken("", &[]), wish(8, 8 * GIB), "4-7,12-15; 1: 8 + 8192"),
        // The first core stays reserved for the host, even if the machine needs all the others.
        (&two, taken("", &[]), wish(14, 14 * GIB), "1-7,9-15; 0: 6 + 6144; 1: 8 + 8192"),
        // A core is not used if another VM is pinned to one of its threads.
        (&two, taken("9", &[]), wish(4, GIB), "2-3,10-11; 0: 4 + 1024"),
        // Three vCPUs need two cores, including all their threads.
        (&two, taken("", &[]), wish(3, GIB), "1-2,9-10; 0: 3 + 1024"),
        // If a node is short of memory, the machine uses the other node, or both nodes.
        (&two, taken("", &[(0, 12 * GIB)]), wish(4, 8 * GIB), "4-5,12-13; 1: 4 + 8192"),
        (
            &two,
            taken("", &[(0, 10 * GIB), (1, 10 * GIB)]),
            wish(4, 8 * GIB),
            "1,4,9,12; 0: 2 + 4096; 1: 2 + 4096",
        ),
        // The remainder of the memory goes to the first node.
        (&host(2, 2, 1, GIB), taken("", &[]), wish(3, 1000), "1-3; 0: 1 + 334; 1: 2 + 666"),
        // Without NUMA, free memory is not checked.
        (&two, taken("", &[(0, 16 * GIB)]), Wish { numa: false, ..wish(2, 99 * GIB) }, "1,9"),
        (&two, taken("", &[]), Wish { reserve: 0, ..wish(2, GIB) }, "0,8; 0: 2 + 1024"),
        (&two, taken("", &[]), Wish { reserve: 4, ..wish(2, GIB) }, "4,12; 1: 2 + 1024"),
        // With pages of 1 GiB, 3 GiB cannot be split into two equal halves.
        (
            &two,
            taken("", &[(0, 14 * GIB), (1, 14 * GIB)]),
            Wish { page: GIB, ..wish(4, 3 * GIB) },
            "1,4,9,12; 0: 2 + 2048; 1: 2 + 1024",
        ),
    ] {
        let choice = choose(topology, &taken, &wish);
        assert_eq!(choice.as_ref().map(words).as_deref(), Ok(expected), "{wish:?}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let two = host(2, 2, 2, 4 * GIB);
    for (taken, wish, expected) in [
        (
            taken("1,5", &[]),
            wish(6, GIB),
            "not enough free CPUs for 6 vCPUs (free: 0 on NUMA node 0, 4 on NUMA node 1)",
        ),
        (
            taken("", &[(1, 4 * GIB)]),
            wish(4, 6 * GIB),
            "not enough free memory for 6144 MiB on NUMA nodes with free CPUs (free: 4096 MiB on NUMA node 0, 0 MiB \
            on NUMA node 1)",
        ),
        (
            taken("", &[]),
            Wish { page: 2, ..wish(2, 1025) },
            "its memory of 1025 MiB is not a multiple of the page size of 2 MiB",
        ),
    ] {
        assert_eq!(choose(&two, &taken, &wish).unwrap_err().to_string(), expected);
    }
}

#[test]
fn what_is_right_is_kept_and_nothing_else() {
    let two = host(2, 4, 2, 16 * GIB);
    let none = Taken::default();
    let keeps = |taken: &Taken, wish: &Wish, cpus: &str| {
        keeps(&two, taken, wish, &cpus.parse().unwrap()).as_ref().map(words)
    };
    // `choose` would now choose other CPUs, but these CPUs follow the rules.
    assert_eq!(keeps(&none, &wish(4, GIB), "6-7,14-15").as_deref(), Some("6-7,14-15; 1: 4 + 1024"));
    for (why, taken, wish, cpus) in [
        ("no CPUs", none.clone(), wish(2, GIB), ""),
        ("one thread of each core", none.clone(), wish(2, GIB), "1-2"),
        ("a reserved core", none.clone(), wish(2, GIB), "0,8"),
        ("a core of another VM", taken("9", &[]), wish(2, GIB), "1,9"),
        ("too few cores", none.clone(), wish(4, GIB), "1,9"),
        ("too many cores", none.clone(), wish(2, GIB), "1-2,9-10"),
        ("a CPU that does not exist", none.clone(), wish(2, GIB), "1,9,99"),
        ("no free memory on the NUMA node", taken("", &[(0, 16 * GIB)]), wish(2, GIB), "1,9"),
    ] {
        assert_eq!(keeps(&taken, &wish, cpus), None, "{why}");
    }
}

/// Hosts whose cores have one or two threads, in any mixture.
fn hosts() -> impl Strategy<Value = Topology> {
    let node = (prop::collection::vec(1_u32..=2, 0..6), 1_u64..64);
    prop::collection::vec(node, 1..5).prop_map(|nodes| {
        let mut next = 0..;
        let node = |(id, (cores, memory)): (usize, (Vec<u32>, u64))| HostNode {
            id: u32::try_from(id).unwrap(),
            memory: memory * GIB,
            cores: cores.iter().map(|threads| next.by_ref().take(*threads as usize).collect()).collect(),
        };
        Topology { nodes: nodes.into_iter().enumerate().map(node).collect() }
    })
}

fn wishes() -> impl Strategy<Value = Wish> {
    (1_u32..9, 1_u64..40, any::<bool>(), prop::sample::select(vec![1, 2, GIB]), 0_u32..3)
        .prop_map(|(vcpus, gib, numa, page, reserve)| Wish { vcpus, memory: gib * GIB, numa, page, reserve })
}

/// The smallest number of nodes that have enough free threads, without regard to memory.
fn fewest(topology: &Topology, taken: &Taken, wish: &Wish) -> usize {
    let mut free: Vec<usize> =
        free_cpus(topology, taken, wish.reserve).into_iter().map(|(_, count)| count).collect();
    free.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    let mut sum = 0;
    free.iter()
        .position(|count| {
            sum += count;
            sum >= wish.vcpus as usize
        })
        .map_or(usize::MAX, |at| at + 1)
}

proptest! {
    #[test]
    fn no_cpu_is_given_twice_and_every_promise_holds(
        topology in hosts(),
        wishes in prop::collection::vec(wishes(), 1..8),
    ) {
        let mut taken = Taken::default();
        for wish in &wishes {
            let choice = choose(&topology, &taken, wish);
            prop_assert_eq!(&choice, &choose(&topology, &taken, wish));
            let free: usize = free_cpus(&topology, &taken, wish.reserve).iter().map(|(_, count)| count).sum();
            let Ok(choice) = choice else {
                // Without NUMA, a choice can only fail because too few CPUs are free.
                prop_assert!(wish.numa || free < wish.vcpus as usize);
                continue;
            };
            prop_assert!(!choice.cpus.meets(&taken.cpus), "a CPU of another machine");
            let cores = || topology.nodes.iter().flat_map(|node| &node.cores);
            let mut lowest: Vec<_> = cores().collect();
            lowest.sort_by_key(|core| core.first());
            prop_assert!(lowest.iter().take(wish.reserve as usize).all(|core| !core.meets(&choice.cpus)), "a reserved core");
            prop_assert!(cores().all(|core| core.is_within(&choice.cpus) || !core.meets(&choice.cpus)), "part of a core");
            prop_assert!(choice.cpus.len() >= wish.vcpus as usize, "too few CPUs");
            let on = topology.nodes.iter().filter(|node| node.cores.iter().any(|core| core.meets(&choice.cpus))).count();
            let least = fewest(&topology, &taken, wish);
            prop_assert!(if wish.numa { on >= least } else { on == least }, "{} nodes, not {}", on, least);
            prop_assert_eq!(keeps(&topology, &taken, wish, &choice.cpus), Some(choice.clone()));
            if wish.numa {
                prop_assert_eq!(choice.nodes.len(), on);
                prop_assert_eq!(choice.nodes.iter().map(|node| node.vcpus).sum::<u32>(), wish.vcpus);
                prop_assert_eq!(choice.nodes.iter().map(|node| node.memory).sum::<u64>(), wish.memory);
                for node in &choice.nodes {
                    prop_assert!(node.vcpus > 0 && node.memory > 0 && node.memory % wish.page == 0);
                    let there = topology.nodes.iter().find(|there| there.id == node.host).unwrap();
                    let used = taken.memory.entry(node.host).or_default();
                    *used += node.memory;
                    prop_assert!(*used <= there.memory, "more memory than the node has");
                }
            } else {
                prop_assert!(choice.nodes.is_empty());
            }
            taken.cpus.add(&choice.cpus);
        }
    }
}
