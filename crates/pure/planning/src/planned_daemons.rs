//! Pods of DaemonSets on machines that are planned or being created ([`super::daemons`]).

use std::sync::Arc;

use super::facts::pod::is_mirror;
use super::packer::Packer;
use model::node::Node;
use model::pod::Pod;
use scheduling::{NodeIndex, Prepared, SimNode};

impl Packer<'_, '_> {
    /// Adds to the world a node whose machine is being created. The node contains the pods that it already
    /// has, and the DaemonSet pods that are still expected. The resources that static pods use are already
    /// subtracted.
    pub(super) fn expect_node(&mut self, node: Node, pool: usize, there: Option<NodeIndex>) -> NodeIndex {
        let mut soon = SimNode::empty(Arc::new(node));
        soon.expect(&self.prototypes[pool]);
        if let Some(at) = there {
            // The world already contains the node's ResourceSlices, including those still to be published,
            // under the node's own name.
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

    /// Whether a new node's labels, taints and free resources alone decide whether it takes the pod.
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
