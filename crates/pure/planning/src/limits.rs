//! Limits on the number of machines, vCPUs and memory, for each pool and for the entire cluster.

use super::facts::node::pool_of;
use super::view::View;
use model::machine::Machine;
use model::node::Node;
use model::quantity;
use settings::{Pool, ScaleUp};

/// The total number, vCPUs and memory of existing and planned machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub machines: u32,
    cores: u64,
    /// In bytes.
    memory: i64,
}

/// The vCPUs and bytes of memory of one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub cores: u32,
    pub memory: i64,
}

impl From<&Machine> for Shape {
    fn from(machine: &Machine) -> Self {
        Self { cores: machine.cores, memory: machine.memory }
    }
}

impl From<&Pool> for Shape {
    fn from(pool: &Pool) -> Self {
        Self { cores: pool.cores, memory: pool.memory }
    }
}

impl Sum {
    pub(super) fn add(&mut self, shape: Shape) {
        self.machines += 1;
        self.cores += u64::from(shape.cores);
        self.memory = self.memory.saturating_add(shape.memory);
    }

    /// Updates the sum for one machine that grows from the size `from` to the size `to`.
    pub(super) fn grow(&mut self, from: Shape, to: Shape) {
        self.cores += u64::from(to.cores.saturating_sub(from.cores));
        self.memory = self.memory.saturating_add(to.memory - from.memory);
    }

    /// Whether this sum is smaller than the other in at least one amount, and larger in none.
    pub(super) fn is_less_than(self, other: Self) -> bool {
        self != other
            && self.machines <= other.machines
            && self.cores <= other.cores
            && self.memory <= other.memory
    }

    /// Cores and memory as one number. Each is weighted relative to the largest amount in these offers.
    pub(super) fn cost(self, offers: &[Pool]) -> i128 {
        let cores = offers.iter().map(|pool| pool.cores).max().unwrap_or(1);
        let memory = offers.iter().map(|pool| pool.memory).max().unwrap_or(1);
        i128::from(self.cores) * i128::from(memory) + i128::from(self.memory) * i128::from(cores)
    }
}

/// The size of a Node's machine. It is taken from the machine's record, or else from what the Node reports,
/// or else from the Node's pool.
pub(super) fn shape(view: &View, node: &Node, machine: Option<&Machine>) -> Shape {
    if let Some(machine) = machine.filter(|machine| machine.cores > 0) {
        return machine.into();
    }
    let offers = if node.capacity.cpu_milli > 0 { &node.capacity } else { &node.allocatable };
    let seen = Shape {
        cores: u32::try_from(offers.cpu_milli.saturating_add(999) / 1000).unwrap_or(u32::MAX),
        memory: offers.memory,
    };
    let pool = pool_of(node).and_then(|name| view.config.pools.iter().find(|pool| pool.name == name));
    // If the Node does not report its capacity, the pool's size is used, because the Node's allocatable
    // amounts are smaller than its capacity.
    match pool {
        Some(pool) if node.capacity.cpu_milli == 0 => pool.into(),
        _ => seen,
    }
}

/// Which limit one more machine of this size would exceed, or `None` if it exceeds none. `own` is what the
/// pool has, and `all` is what the cluster has.
pub(super) fn broken(pool: &Pool, settings: &ScaleUp, own: Sum, all: Sum) -> Option<String> {
    let shape = Shape::from(pool);
    if own.machines >= pool.max {
        return Some(format!("at its maximum of {}", pool.max));
    }
    if let Some(most) = pool.max_cores.filter(|most| too_many(own, shape, *most)) {
        return Some(format!(
            "one more machine would exceed the pool's maximum of {most} cores; the pool \
            has {}",
            own.cores
        ));
    }
    if let Some(most) = pool.max_memory.filter(|most| too_much(own, shape, *most)) {
        return Some(format!(
            "one more machine would exceed the pool's maximum of {} of memory; the pool has {}",
            quantity::binary(most),
            quantity::binary(own.memory)
        ));
    }
    if let Some(most) = settings.max_nodes_total.filter(|most| all.machines >= *most) {
        return Some(format!("the cluster is at its `max_nodes_total` of {most}"));
    }
    if let Some(most) = settings.max_cores_total.filter(|most| too_many(all, shape, *most)) {
        return Some(format!(
            "one more machine would exceed the cluster's maximum of {most} cores; the \
            cluster has {}",
            all.cores
        ));
    }
    let most = settings.max_memory_total.filter(|most| too_much(all, shape, *most))?;
    Some(format!(
        "one more machine would exceed the cluster's maximum of {} of memory; the cluster has {}",
        quantity::binary(most),
        quantity::binary(all.memory)
    ))
}

/// Whether the limits allow one machine of the pool to grow from the size `from` to the size `to`. `own` is
/// what the pool has, and `all` is what the cluster has.
pub(super) fn allow_growth(
    pool: &Pool,
    settings: &ScaleUp,
    own: Sum,
    all: Sum,
    from: Shape,
    to: Shape,
) -> bool {
    let more = Shape { cores: to.cores - from.cores, memory: to.memory - from.memory };
    let cores =
        |sum: Sum, most: Option<u32>| more.cores == 0 || most.is_none_or(|most| !too_many(sum, more, most));
    let memory =
        |sum: Sum, most: Option<i64>| more.memory == 0 || most.is_none_or(|most| !too_much(sum, more, most));
    cores(own, pool.max_cores)
        && memory(own, pool.max_memory)
        && cores(all, settings.max_cores_total)
        && memory(all, settings.max_memory_total)
}

fn too_many(sum: Sum, shape: Shape, most: u32) -> bool {
    sum.cores + u64::from(shape.cores) > u64::from(most)
}

fn too_much(sum: Sum, shape: Shape, most: i64) -> bool {
    sum.memory.saturating_add(shape.memory) > most
}
