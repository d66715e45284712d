//! Pods of DaemonSets on machines that are planned or being created ([`super::daemons`]).

use std::sync::Arc;

use super::facts::pod::is_mirror;
use super::packer::Packer;
use model::node::Node;
use model::pod::Pod;
use scheduling::{NodeIndex, Prepared, SimNode};

impl Packer<'_, '_> {
    /// Adds to the world a node that is being created: its pods stay on it, and those of DaemonSets are
    /// added. What static pods take of it is not offered.
    pub(super) fn expect_node(&mut self, node: Node, pool: usize, there: Option<NodeIndex>) -> NodeIndex {
        let mut soon = SimNode::empty(Arc::new(node));
        soon.expect(&self.prototypes[pool]);
        if let Some(at) = there {
            // Its slices, including those that it will publish, are known under its own name.
            soon.expect_no_slices();
            let bound = self.view.on[at].bound.iter().filter(|pod| !pod.is_finished() && !is_mirror(pod));
            for pod in bound {
                self.view.world.remove(pod, at);
                soon.hold(pod);
            }
        }
        self.view.daemons.settle(&self.view.world, &mut soon);
        self.adopt(&soon, None)
    }

    /// Whether only a new node's labels, taints and free resources decide whether it takes the pod.
    pub(super) fn is_plain(&self, pod: &Pod) -> bool {
        let world = &self.view.world;
        world.is_plain(pod) && !self.repelling.iter().any(|one| world.repels(one, pod))
    }

    /// The DaemonSet whose pod prevents a new node of this pool from taking the prepared pod.
    pub(super) fn daemon_in_the_way(&self, prepared: &Prepared, pool: usize) -> Option<String> {
        let (world, fresh) = (&self.view.world, &self.prototypes[pool]);
        let refuses = |daemon: Option<&Arc<Pod>>| {
            let mut node = fresh.emptied();
            if let Some(pod) = daemon {
                node.hold(pod);
            }
            world.check_fresh(prepared, &node).is_err()
        };
        let mut those = fresh.pods.iter().filter(|daemon| refuses(Some(daemon)));
        let first = those.next().filter(|_| !refuses(None))?;
        Some(format!("{}/{}", first.namespace, first.owner.as_ref()?.name))
    }
}
