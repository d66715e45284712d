//! What a fresh node of a pool looks like.

use std::sync::Arc;

use super::{View, shape};
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
    let allocatable = shape::of(view.snapshot, view.config, pool);
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
