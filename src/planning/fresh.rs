//! What a fresh node of a pool looks like.

use std::sync::Arc;

use super::{View, pool_of, ready};
use crate::config::Pool;
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::resources::Resources;
use crate::model::snapshot::POOL_LABEL;
use crate::scheduling::{SimNode, World};

/// A fresh node of this name, with the DaemonSets' pods that it will run.
pub(super) fn node(view: &View, pool: &Pool, name: &str) -> SimNode {
    let mut labels = pool.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", "amd64"),
        (POOL_LABEL, pool.name.as_str()),
    ] {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let allocatable = shape(view, pool);
    let node = Arc::new(Node {
        name: name.to_owned(),
        labels,
        taints: pool.taints.clone(),
        capacity: allocatable.clone(),
        allocatable,
        ..Node::default()
    });
    let mut sim = SimNode::empty(node);
    for pod in daemons(view, &sim) {
        sim.hold(&pod);
    }
    sim
}

/// Declared, else learnt (by the daemon, or from a ready node of the pool), else computed from the VM.
fn shape(view: &View, pool: &Pool) -> Resources {
    if let Some(declared) = &pool.allocatable {
        return declared.clone();
    }
    if pool.sizes.len() > 1 {
        return of_size(view, pool).unwrap_or_else(|| computed(pool));
    }
    let learnt =
        view.snapshot.memory.pools.get(&pool.name).and_then(|memory| memory.learnt_allocatable.clone());
    let live = || {
        let of_pool = |node: &&Arc<Node>| pool_of(node) == Some(&pool.name) && ready(node);
        view.snapshot.nodes.iter().find(of_pool).map(|node| node.allocatable.clone())
    };
    learnt.or_else(live).unwrap_or_else(|| computed(pool))
}

/// What a ready node of this size of the pool offers.
fn of_size(view: &View, pool: &Pool) -> Option<Resources> {
    let machines = view.snapshot.proxmox.machines.iter().flatten().filter(|machine| {
        (&machine.pool, machine.cores, machine.memory) == (&pool.name, pool.cores, pool.memory)
    });
    let names: Vec<&String> = machines.filter_map(|machine| machine.node.as_ref()).collect();
    let live = view.snapshot.nodes.iter().find(|node| ready(node) && names.contains(&&node.name));
    live.map(|node| node.allocatable.clone())
}

/// What a kubelet with default settings leaves of a VM: the guest's kernel keeps about 2 % of the memory and 64 MiB, the
/// eviction threshold 100 MiB; all of the CPU; 110 pods unless it is told another number.
fn computed(pool: &Pool) -> Resources {
    let memory = pool.memory - pool.memory / 50 - (64 << 20) - (100 << 20);
    Resources {
        cpu_milli: i64::from(pool.cores) * 1000,
        memory: if memory > 0 { memory } else { pool.memory },
        pods: pool.max_pods.map_or(110, i64::from),
        ..Resources::default()
    }
}

/// Pods that DaemonSets will put on the node: node selector, affinity and taints decide, room does not.
fn daemons(view: &View, node: &SimNode) -> Vec<Arc<Pod>> {
    let mut roomy = node.node.as_ref().clone();
    roomy.allocatable = Resources {
        cpu_milli: i64::MAX / 4,
        memory: i64::MAX / 4,
        ephemeral_storage: i64::MAX / 4,
        pods: i64::MAX / 4,
        other: roomy.allocatable.other.keys().map(|name| (name.clone(), i64::MAX / 4)).collect(),
    };
    let roomy = SimNode::empty(Arc::new(roomy));
    let empty = World::new(&crate::model::Snapshot::default());
    view.snapshot
        .daemon_sets
        .iter()
        .map(|set| Arc::new(set.pod.clone()))
        .filter(|pod| empty.check_fresh(&empty.prepare(pod), &roomy).is_ok())
        .collect()
}
