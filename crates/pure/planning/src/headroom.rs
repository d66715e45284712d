//! Room that stays free on a pool's nodes after a removal, so that the next pods need not wait for a machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::node::{pool_of, ready};
use super::scale_up_decision::ScaleUpDecision;
use super::view::View;
use model::pod::Pod;
use model::quantity;
use scheduling::NodeIndex;
use settings::Room;

/// The free room of pools that keep some room free. It shrinks as removals are admitted.
pub(super) struct Headroom<'a> {
    pools: BTreeMap<&'a str, Kept>,
    /// Pending pods that were placed on nodes, by the index of the node.
    arriving: BTreeMap<NodeIndex, Vec<&'a Arc<Pod>>>,
}

#[derive(Clone, Copy)]
struct Kept {
    kept: Room,
    free: Room,
}

impl Kept {
    /// Whether a removal must wait, because it would use up free room and leave less than the pool must keep
    /// free.
    fn refuses(&self, before: Room) -> bool {
        let short = |left: i64, before: i64, kept: i64| left < kept && left < before;
        short(self.free.cpu_milli, before.cpu_milli, self.kept.cpu_milli)
            || short(self.free.memory, before.memory, self.kept.memory)
    }
}

impl<'a> Headroom<'a> {
    pub(super) fn new(view: &View<'a>, growth: &ScaleUpDecision<'a>) -> Self {
        let keeping = view.config.pools.iter().filter(|pool| pool.headroom != Room::default());
        let mut pools: BTreeMap<&str, Kept> = keeping
            .map(|pool| (pool.name.as_str(), Kept { kept: pool.headroom, free: Room::default() }))
            .collect();
        let mut arriving: BTreeMap<NodeIndex, Vec<&Arc<Pod>>> = BTreeMap::new();
        if !pools.is_empty() {
            for at in 0..view.existing {
                if let Some(pool) = pool_of(&view.snapshot.nodes[at]).and_then(|name| pools.get_mut(name)) {
                    let free = free(view, at);
                    pool.free.cpu_milli += free.cpu_milli;
                    pool.free.memory += free.memory;
                }
            }
            for (pod, at) in &growth.placed {
                arriving.entry(*at).or_default().push(pod);
            }
        }
        Self { pools, arriving }
    }

    /// Counts the node as gone and its pods as moved, or returns why too little room would be left.
    pub(super) fn admit(
        &mut self,
        view: &View,
        at: NodeIndex,
        moves: &[(Arc<Pod>, NodeIndex)],
    ) -> Result<(), String> {
        let before = self.pools.clone();
        let node = &view.snapshot.nodes[at];
        let arriving = self.arriving.get(&at).map(Vec::as_slice).unwrap_or_default();
        // A pod of another node may be moved to this node first, and then away from it. Such a pod is counted
        // with its own node, not here.
        let own = |pod: &Arc<Pod>| {
            pod.node.as_ref() == Some(&node.name) || arriving.iter().any(|one| Arc::ptr_eq(one, pod))
        };
        for (pod, to) in moves.iter().filter(|(pod, _)| own(pod)) {
            let pool = view.snapshot.nodes.get(*to).and_then(|node| pool_of(node));
            if let Some(pool) = pool.and_then(|name| self.pools.get_mut(name)) {
                pool.free.cpu_milli -= pod.requests.cpu_milli;
                pool.free.memory -= pod.requests.memory;
            }
        }
        if let Some(pool) = pool_of(node).and_then(|name| self.pools.get_mut(name)) {
            let free = free(view, at);
            pool.free.cpu_milli -= free.cpu_milli;
            pool.free.memory -= free.memory;
        }
        let short = self.pools.iter().find(|(name, pool)| pool.refuses(before[*name].free));
        let Some((name, pool)) = short else { return Ok(()) };
        let why = format!(
            "pool `{name}` keeps {} free, but only {} would be left",
            room_text(pool.kept),
            room_text(pool.free)
        );
        self.pools = before;
        Err(why)
    }
}

/// The node's room for more pods. A node that accepts no pods has none.
fn free(view: &View, at: NodeIndex) -> Room {
    let node = &view.snapshot.nodes[at];
    if !view.world.node(at).open || node.unschedulable || !ready(node) {
        return Room::default();
    }
    let free = view.world.node(at).free();
    Room { cpu_milli: free.cpu_milli.max(0), memory: free.memory.max(0) }
}

fn room_text(room: Room) -> String {
    format!(
        "{} CPU and {}",
        quantity::from_milli(room.cpu_milli.max(0)),
        quantity::binary(room.memory.max(0))
    )
}
