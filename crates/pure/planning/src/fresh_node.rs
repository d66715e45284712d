//! A fresh node of a pool.

use std::sync::Arc;

use super::facts::machine::{ByNode, by_node};
use super::learned_allocatable::Statics;
use super::view::View;
use super::{features, learned_allocatable, sizes};
use model::Snapshot;
use model::machine::Machine;
use model::node::Node;
use model::snapshot::POOL_LABEL;
use scheduling::SimNode;
use settings::{Config, Pool};

/// The Node that the planner expects the machine to become, or `None` if the machine's pool does not have
/// this size.
pub fn expected(snapshot: &Snapshot, config: &Config, machine: &Machine) -> Option<Node> {
    let mut offers = sizes::offers(config, snapshot);
    let shape = (machine.cores, machine.memory);
    offers.retain(|pool| pool.name == machine.pool && (pool.cores, pool.memory) == shape);
    let here = offers.iter().position(|pool| pool.hosts.contains(&machine.host));
    let pool = offers.get(here.unwrap_or(0))?;
    let machines = by_node(snapshot.proxmox.machines.as_deref());
    let statics = learned_allocatable::statics(&snapshot.pods);
    Some(bare(snapshot, &machines, config, pool, &statics, &machine.name))
}

/// A fresh node of the pool with this name, and with the DaemonSets' pods that it will run.
pub(super) fn node(view: &View, pool: &Pool, name: &str) -> SimNode {
    let node = Arc::new(bare(view.snapshot, &view.machines, view.config, pool, &view.statics, name));
    let mut sim = SimNode::empty(node);
    sim.csi = view.drivers.of_fresh(pool, &view.snapshot.memory);
    if let Some(slices) = view.slices.of_fresh(pool, &view.snapshot.memory, name) {
        sim.expect_slices(&slices);
    }
    sim.room_unknown = Arc::new(view.storage_room.unknown_on(&sim.node.labels));
    view.daemons.settle(&view.world, &mut sim);
    sim
}

fn bare(
    snapshot: &Snapshot,
    machines: &ByNode,
    config: &Config,
    pool: &Pool,
    statics: &Statics,
    name: &str,
) -> Node {
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
    let allocatable = learned_allocatable::allocatable_for(snapshot, machines, config, pool, statics);
    Node {
        name: name.to_owned(),
        labels,
        taints: pool.taints.clone(),
        capacity: allocatable.clone(),
        allocatable,
        features: features::declared_by_fresh_nodes(snapshot, machines, pool),
        ..Node::default()
    }
}
