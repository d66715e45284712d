//! Determines which resources a fresh node of a pool offers to pods.
//!
//! How much a kubelet reserves depends on the pool's settings. So nodes that were created with earlier
//! settings are ignored.
//!
//! The requests of a node's static pods are subtracted, because every node runs the static pods of the
//! template.
//!
//! The resources are those that the pool's settings declare. If they declare none, the first of these methods
//! that is possible is used: learn them from a ready node whose machine has the same size, derive them from
//! another size of the pool, or compute them from the VM's size alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::machine::{ByNode, by_node};
use super::facts::{
    node::{pool_of, ready},
    pod::is_mirror,
};
use super::features;
use model::machine::Machine;
use model::node::Node;
use model::pod::Pod;
use model::snapshot::{Learnt, Memory};
use model::{Resources, Snapshot};
use settings::{Config, Pool};

/// Remembers what ready nodes offer. For each size, the newest node is used, because the template may have
/// changed. Forgets sizes that are no longer in the pool's configuration. Returns whether anything changed.
pub fn learn(memory: &mut Memory, snapshot: &Snapshot, config: &Config) -> bool {
    let mut changed = false;
    let statics = statics(&snapshot.pods);
    let machines = by_node(snapshot.proxmox.machines.as_deref());
    for pool in &config.pools {
        changed |= features::learn(memory, snapshot, &machines, pool);
    }
    for pool in config.pools.iter().filter(|pool| pool.allocatable.is_none()) {
        let own = memory.pools.get(&pool.name);
        let mut sizes = own.map(|memory| memory.learnt_sizes.clone()).unwrap_or_default();
        let kubelet = pool.kubelet.words();
        let offered = |one: &Learnt| {
            one.kubelet == kubelet
                && pool.sizes.iter().any(|size| (size.cores, size.memory) == (one.cores, one.memory))
        };
        sizes.retain(offered);
        for seen in live(snapshot, &machines, &pool.name, &statics).into_iter().filter(offered) {
            match sizes.iter_mut().find(|one| (one.cores, one.memory) == (seen.cores, seen.memory)) {
                Some(known) => *known = seen,
                None => sizes.push(seen),
            }
        }
        sizes.sort_by_key(|one| (one.cores, one.memory));
        let same = sizes.iter().find(|one| (one.cores, one.memory) == (pool.cores, pool.memory));
        let same = same.map(|one| one.allocatable.clone());
        let before = own.map(|own| (&own.learnt_allocatable, &own.learnt_sizes));
        if before == Some((&same, &sizes)) || before.is_none() && sizes.is_empty() {
            continue;
        }
        let own = memory.pools.entry(pool.name.clone()).or_default();
        (own.learnt_allocatable, own.learnt_sizes) = (same, sizes);
        changed = true;
    }
    changed
}

/// The requests of static pods, by node name.
pub(super) type Statics<'a> = BTreeMap<&'a str, Resources>;

/// The requests of the static pods among these pods, by node name.
pub(super) fn statics(pods: &[Arc<Pod>]) -> Statics<'_> {
    let mut all = Statics::new();
    for pod in pods {
        count_static(&mut all, pod);
    }
    all
}

/// Sums the requests of the static pods among these pods, which are all on one node. Returns `None` if none
/// of them is static.
pub(super) fn static_requests(pods: &[Arc<Pod>]) -> Option<Resources> {
    statics(pods).into_values().next()
}

/// Adds the pod's requests to its node, if it is a static pod.
fn count_static<'a>(all: &mut Statics<'a>, pod: &'a Pod) {
    if is_mirror(pod)
        && !pod.is_finished()
        && let Some(node) = pod.node.as_deref()
    {
        all.entry(node).or_default().add(&pod.requests);
    }
}

/// What a node offers to pods that are not static.
fn beside(node: &Node, statics: &Statics) -> Resources {
    let mut offered = node.allocatable.clone();
    if let Some(taken) = statics.get(node.name.as_str()) {
        offered.subtract(taken);
    }
    offered
}

/// What a fresh node of the pool offers at this size.
pub(super) fn allocatable_for(
    snapshot: &Snapshot,
    machines: &ByNode,
    config: &Config,
    pool: &Pool,
    statics: &Statics,
) -> Resources {
    let mut offered = without_devices(snapshot, machines, config, pool, statics);
    // Device plugins only start once a node is ready, so the learned amounts may lack the devices' resources.
    let resources = devices(pool);
    offered.other.retain(|name, _| !resources.contains_key(name.as_str()));
    offered.other.extend(resources.into_iter().map(|(name, amount)| (name.to_owned(), amount)));
    offered
}

/// The extended resources that a node of the pool offers once its device plugins run.
pub(super) fn devices(pool: &Pool) -> BTreeMap<&str, i64> {
    let mut all: BTreeMap<&str, i64> = BTreeMap::new();
    for (name, amount) in pool.pci.iter().filter_map(|one| one.resource.as_ref()) {
        *all.entry(name).or_default() += amount;
    }
    all
}

fn without_devices(
    snapshot: &Snapshot,
    machines: &ByNode,
    config: &Config,
    pool: &Pool,
    statics: &Statics,
) -> Resources {
    if let Some(declared) = &pool.allocatable {
        return declared.clone();
    }
    let mut known =
        snapshot.memory.pools.get(&pool.name).map(|memory| memory.learnt_sizes.clone()).unwrap_or_default();
    known.extend(live(snapshot, machines, &pool.name, statics));
    let kubelet = pool.kubelet.words();
    known.retain(|one| one.kubelet == kubelet);
    let same = known.iter().find(|one| (one.cores, one.memory) == (pool.cores, pool.memory));
    let mut offered = same
        .map(|one| one.allocatable.clone())
        .or_else(|| of_unknown_size(snapshot, machines, config, pool, statics))
        .or_else(|| carried_over(&known, pool))
        .unwrap_or_else(|| computed(pool));
    if let Some(most) = pool.max_pods {
        offered.pods = most.into();
    }
    offered
}

/// For each size of the pool's machines, what the newest ready node offers. The result does not depend on the
/// order of the nodes.
fn live(snapshot: &Snapshot, machines: &ByNode, pool: &str, statics: &Statics) -> Vec<Learnt> {
    let mut newest: BTreeMap<(u32, i64), &Arc<Node>> = BTreeMap::new();
    for (node, machine) in ready_nodes(snapshot, pool, machines) {
        // A node whose machine is growing offers neither its old nor its new size.
        let Some(machine) = machine.filter(|machine| machine.growing.is_none()) else { continue };
        let best = newest.entry((machine.cores, machine.memory)).or_insert(node);
        if (node.created, &node.name) > (best.created, &best.name) {
            *best = node;
        }
    }
    let kubelet = |node: &Node| machines.get(node.name.as_str())?.made_of.get("kubelet").cloned();
    let learnt = |((cores, memory), node): ((u32, i64), &Arc<Node>)| Learnt {
        cores,
        memory,
        allocatable: beside(node, statics),
        kubelet: kubelet(node).unwrap_or_default(),
    };
    newest.into_iter().map(learnt).collect()
}

/// Ready nodes of the pool that report what they offer, each with its machine if the machine and its size are
/// known.
fn ready_nodes<'s>(
    snapshot: &'s Snapshot,
    pool: &str,
    machines: &ByNode<'s>,
) -> Vec<(&'s Arc<Node>, Option<&'s Machine>)> {
    let of_pool =
        |node: &&Arc<Node>| pool_of(node) == Some(pool) && ready(node) && node.allocatable.cpu_milli > 0;
    let sized = |node: &Node| machines.get(node.name.as_str()).copied().filter(|one| one.cores > 0);
    snapshot.nodes.iter().filter(of_pool).map(|node| (node, sized(node))).collect()
}

/// What a node of unknown size offers, as remembered or as seen now. Such amounts are only used for the
/// pool's own size.
fn of_unknown_size(
    snapshot: &Snapshot,
    machines: &ByNode,
    config: &Config,
    pool: &Pool,
    statics: &Statics,
) -> Option<Resources> {
    let own = config.pools.iter().find(|own| own.name == pool.name)?;
    if (own.cores, own.memory) != (pool.cores, pool.memory) {
        return None;
    }
    let memory = snapshot.memory.pools.get(&pool.name);
    // If any sizes have been learned, the pool's own size has already been looked up among them.
    let memory = memory.filter(|memory| memory.learnt_sizes.is_empty());
    let learnt = memory.and_then(|memory| memory.learnt_allocatable.clone());
    let seen = || {
        let nodes = ready_nodes(snapshot, &pool.name, machines).into_iter();
        let mut unsized_ones = nodes.filter(|(_, machine)| machine.is_none() && pool.sizes.len() < 2);
        unsized_ones.next().map(|(node, _)| beside(node, statics))
    };
    learnt.or_else(seen)
}

/// What a fresh node offers, derived from the most similar known size. The reserved CPU and memory stay the
/// same, except for the kernel's share of all memory.
fn carried_over(known: &[Learnt], pool: &Pool) -> Option<Resources> {
    let nearest = known.iter().min_by_key(|one| {
        (one.cores.abs_diff(pool.cores), one.memory.abs_diff(pool.memory), one.cores, one.memory)
    })?;
    let kept_cpu = i64::from(nearest.cores) * 1000 - nearest.allocatable.cpu_milli;
    let kept_memory = nearest.memory - kernel(nearest.memory) - nearest.allocatable.memory;
    let offered = Resources {
        cpu_milli: i64::from(pool.cores) * 1000 - kept_cpu,
        memory: pool.memory - kernel(pool.memory) - kept_memory,
        ..nearest.allocatable.clone()
    };
    (offered.cpu_milli > 0 && offered.memory > 0).then_some(offered)
}

/// Approximately how much of its memory a guest's kernel reserves, in bytes.
fn kernel(memory: i64) -> i64 {
    memory / 50
}

/// What a fresh node offers, computed from the VM's size alone. The guest's kernel takes about 2 % of the
/// memory plus 64 MiB. From the rest, the kubelet reserves the amount that the pool's settings require. By
/// default, this is the eviction threshold of 100 MiB. A node takes 110 pods unless the pool sets a different
/// number.
fn computed(pool: &Pool) -> Resources {
    let capacity = pool.memory - kernel(pool.memory) - (64 << 20);
    let memory = capacity - pool.kubelet.kept_memory(capacity);
    Resources {
        cpu_milli: i64::from(pool.cores) * 1000 - pool.kubelet.kept_cpu(),
        memory: if memory > 0 { memory } else { pool.memory },
        pods: 110,
        ephemeral_storage: ephemeral(pool),
        ..Resources::default()
    }
}

/// The part of the root disk that pods can use. The kubelet's eviction threshold takes a tenth, and file
/// systems reserve some. If the pool sets no disk size, anything is assumed to fit until the first node shows
/// the size of the template's disk.
fn ephemeral(pool: &Pool) -> i64 {
    pool.disk.as_ref().map_or(i64::MAX / 4, |disk| disk.bytes / 20 * 17)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::machine::Phase;
    use model::snapshot::POOL_LABEL;
    use settings::Needs;

    const GIB: i64 = 1 << 30;

    fn config(own: &str) -> Config {
        let text = format!("[[pool]]\nname = \"w\"\nmax = 9\n{own}\n");
        settings::parse("test", &text, Needs::Plan).unwrap()
    }

    /// A ready node of pool `w` that was created at second `age` and offers `cpu_milli` thousandths of a core
    /// and `gib` GiB of memory.
    fn node(name: &str, cpu_milli: i64, gib: i64, age: i64) -> Arc<Node> {
        let mut node = Node { name: name.to_owned(), ..Node::default() };
        node.labels.insert(POOL_LABEL.to_owned(), "w".to_owned());
        node.created = Some(jiff::Timestamp::from_second(age).unwrap());
        node.allocatable = Resources { cpu_milli, memory: gib * GIB, pods: 110, ..Resources::default() };
        Arc::new(node)
    }

    fn machine(name: &str, cores: u32, gib: i64) -> Machine {
        let node = Some(name.to_owned());
        let memory = gib * GIB;
        Machine {
            name: name.to_owned(),
            pool: "w".into(),
            cores,
            memory,
            phase: Phase::Ready,
            node,
            ..Machine::default()
        }
    }

    fn snapshot(nodes: &[Arc<Node>], machines: Vec<Machine>) -> Snapshot {
        let mut snapshot = Snapshot { nodes: nodes.to_vec(), ..Snapshot::default() };
        Arc::make_mut(&mut snapshot.proxmox).machines = Some(machines);
        snapshot
    }

    fn cpu_and_memory(snapshot: &Snapshot, config: &Config) -> (i64, i64) {
        let machines = by_node(snapshot.proxmox.machines.as_deref());
        let statics = statics(&snapshot.pods);
        let offered = allocatable_for(snapshot, &machines, config, &config.pools[0], &statics);
        (offered.cpu_milli, offered.memory)
    }

    #[test]
    fn what_was_learnt_of_one_shape_is_not_taken_for_another() {
        let small = config("cores = 2\nmemory = \"4GiB\"");
        let mut seen = snapshot(&[node("a", 1900, 3, 0)], vec![machine("a", 2, 4)]);
        let mut memory = Memory::default();
        assert!(learn(&mut memory, &seen, &small));
        assert!(!learn(&mut memory, &seen, &small), "a second call changes nothing");
        assert_eq!(memory.pools["w"].learnt_allocatable.as_ref().unwrap().cpu_milli, 1900);
        let large = config("cores = 8\nmemory = \"16GiB\"");
        assert!(learn(&mut memory, &seen, &large));
        assert_eq!(memory.pools["w"].learnt_allocatable, None);
        // The node of the old size still shows how much a kubelet reserves.
        seen.memory = memory.clone();
        let kept = 4 * GIB - 4 * GIB / 50 - 3 * GIB;
        assert_eq!(cpu_and_memory(&seen, &large), (7900, 16 * GIB - 16 * GIB / 50 - kept));
        seen.nodes.push(node("b", 7500, 15, 1));
        Arc::make_mut(&mut seen.proxmox).machines.as_mut().unwrap().push(machine("b", 8, 16));
        assert!(learn(&mut memory, &seen, &large));
        assert_eq!(memory.pools["w"].learnt_allocatable.as_ref().unwrap().cpu_milli, 7500);
        // The learned amounts are still remembered after the node is gone.
        let gone = Snapshot { memory, ..Snapshot::default() };
        assert_eq!(cpu_and_memory(&gone, &large), (7500, 15 * GIB));
    }

    #[test]
    fn each_size_is_learnt_by_itself_from_its_newest_node() {
        let config = config("cores = 2\nmemory = \"4GiB\"\nsizes = [{ cores = 4, memory = \"8GiB\" }]");
        let nodes =
            [node("a", 1900, 3, 0), node("b", 3800, 7, 5), node("c", 3700, 6, 9), node("d", 1, 1, 99)];
        let machines = vec![machine("a", 2, 4), machine("b", 4, 8), machine("c", 4, 8), machine("d", 3, 3)];
        let mut memory = Memory::default();
        assert!(learn(&mut memory, &snapshot(&nodes, machines), &config));
        let learnt: Vec<(u32, i64)> =
            memory.pools["w"].learnt_sizes.iter().map(|one| (one.cores, one.allocatable.cpu_milli)).collect();
        assert_eq!(learnt, [(2, 1900), (4, 3700)], "a size that the pool does not offer is not learned");
        assert_eq!(memory.pools["w"].learnt_allocatable.as_ref().unwrap().cpu_milli, 1900);
    }

    #[test]
    fn nodes_without_a_machine_teach_a_pool_of_one_size_only() {
        let one = config("cores = 2\nmemory = \"4GiB\"");
        let several = config("cores = 2\nmemory = \"4GiB\"\nsizes = [{ cores = 4, memory = \"8GiB\" }]");
        let seen = snapshot(&[node("a", 1234, 3, 0)], Vec::new());
        assert_eq!(cpu_and_memory(&seen, &one), (1234, 3 * GIB));
        assert_eq!(cpu_and_memory(&seen, &several).0, 2000);
    }

    #[test]
    fn a_pools_number_of_pods_wins_over_what_an_older_node_has() {
        let config = config("cores = 2\nmemory = \"4GiB\"\nmax_pods = 30");
        let seen = snapshot(&[node("a", 1900, 3, 0)], vec![machine("a", 2, 4)]);
        let machines = by_node(seen.proxmox.machines.as_deref());
        let offered = allocatable_for(&seen, &machines, &config, &config.pools[0], &Statics::new());
        assert_eq!(offered.pods, 30);
    }

    #[test]
    fn what_kubelets_are_set_to_keep_is_reckoned_with_and_nodes_of_before_teach_nothing() {
        let shape = "cores = 2\nmemory = \"4GiB\"\n";
        let plain = config(shape);
        let reserved = "[pool.kubelet]\nsystemReserved = { cpu = \"250m\", memory = \"1Gi\" }\n";
        let set = config(&format!("{shape}{reserved}"));
        let capacity = 4 * GIB - 4 * GIB / 50 - (64 << 20);
        let computed = (1750, capacity - GIB - (100 << 20));
        assert_eq!(cpu_and_memory(&Snapshot::default(), &set), computed);
        // A node that was created with different settings does not show what a fresh node offers, whether the
        // node still exists or is only remembered.
        let mut seen = snapshot(&[node("a", 1900, 3, 0)], vec![machine("a", 2, 4)]);
        let mut memory = Memory::default();
        assert!(learn(&mut memory, &seen, &plain));
        seen.memory = memory.clone();
        assert_eq!(cpu_and_memory(&seen, &plain), (1900, 3 * GIB));
        assert_eq!(cpu_and_memory(&seen, &set), computed);
        assert!(learn(&mut memory, &seen, &set), "what was learned with other settings is forgotten");
        // A node that was created with the current settings is learned from.
        let mut made = machine("b", 2, 4);
        made.made_of.insert("kubelet".to_owned(), set.pools[0].kubelet.words());
        let seen = snapshot(&[node("b", 1700, 2, 0)], vec![made]);
        assert!(learn(&mut memory, &seen, &set));
        assert_eq!(cpu_and_memory(&Snapshot { memory, ..Snapshot::default() }, &set), (1700, 2 * GIB));
    }

    #[test]
    fn a_shape_that_nothing_is_known_of_is_computed_or_declared() {
        let unknown = config("cores = 2\nmemory = \"4GiB\"");
        assert_eq!(
            cpu_and_memory(&Snapshot::default(), &unknown),
            (2000, 4 * GIB - 4 * GIB / 50 - (164 << 20))
        );
        let declared =
            config("cores = 2\nmemory = \"4GiB\"\nallocatable = { cpu = \"1\", memory = \"1Gi\", pods = 9 }");
        let seen = snapshot(&[node("a", 1900, 3, 0)], vec![machine("a", 2, 4)]);
        assert_eq!(cpu_and_memory(&seen, &declared), (1000, GIB));
    }
}
