//! What a fresh node of a pool looks like.

use std::sync::Arc;

use super::{View, features, shape};
use crate::config::Pool;
use crate::model::node::Node;
use crate::model::snapshot::POOL_LABEL;
use crate::scheduling::SimNode;

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
    let allocatable = shape::of(view.snapshot, view.config, pool, &view.statics);
    let node = Arc::new(Node {
        name: name.to_owned(),
        labels,
        taints: pool.taints.clone(),
        capacity: allocatable.clone(),
        allocatable,
        features: features::of(view.snapshot, pool),
        ..Node::default()
    });
    let mut sim = SimNode::empty(node);
    sim.csi = view.drivers.of_fresh(pool, &view.snapshot.memory);
    if let Some(slices) = view.slices.of_fresh(pool, &view.snapshot.memory, name) {
        sim.expect_slices(&slices);
    }
    sim.room_unknown = Arc::new(view.storage_room.unknown_on(&sim.node.labels));
    view.daemons.settle(&view.world, &mut sim);
    sim
}
