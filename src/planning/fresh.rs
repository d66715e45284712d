//! What a fresh node of a pool looks like.

use std::sync::Arc;

use super::{View, shape};
use crate::config::Pool;
use crate::model::node::Node;
use crate::model::pod::Pod;
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
    let allocatable = shape::of(view.snapshot, view.config, pool, &view.statics);
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

/// Pods that DaemonSets will put on the node: node selector, affinity and taints decide, neither room nor volumes do. One that wants a
/// resource that the node lacks stays pending, and takes nothing.
fn daemons(view: &View, node: &SimNode) -> Vec<Arc<Pod>> {
    let offers = |pod: &Pod| {
        pod.requests.other.iter().all(|(name, wanted)| {
            *wanted == 0 || node.node.allocatable.other.get(name).is_some_and(|there| *there > 0)
        })
    };
    let sets = view.snapshot.daemon_sets.iter();
    sets.filter(|set| World::accepts(&set.pod, &node.node) && offers(&set.pod))
        .map(|set| {
            let mut pod = set.pod.clone();
            // Defaults of the namespace, sidecars that are injected and autoscalers of pods may ask for more than the template does.
            if let Some(newest) = view.daemons.get(set.uid.as_str()) {
                pod.requests.raise_to(&newest.requests);
            }
            Arc::new(pod)
        })
        .collect()
}
