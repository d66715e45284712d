//! A compact copy of the free resources of a node.

use super::sim_node::SimNode;
use model::resources::Resources;

/// The free CPU, memory and pod slots of a node, and whether the node takes pods at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    cpu_milli: i64,
    memory: i64,
    pods: i64,
    pub open: bool,
}

impl Free {
    #[inline]
    pub fn of(sim: &SimNode) -> Self {
        let offered = &sim.node.allocatable;
        Self {
            cpu_milli: offered.cpu_milli - sim.used.cpu_milli,
            memory: offered.memory - sim.used.memory,
            pods: offered.pods - sim.used.pods,
            open: sim.open,
        }
    }

    /// Whether CPU, memory and pod slots are enough for a pod with these requests.
    #[inline]
    pub fn holds(self, wanted: &Resources) -> bool {
        (wanted.cpu_milli == 0 || wanted.cpu_milli <= self.cpu_milli)
            && (wanted.memory == 0 || wanted.memory <= self.memory)
            && self.pods > 0
    }
}
