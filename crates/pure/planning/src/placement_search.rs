//! Where to put equal pods one after the other.

use scheduling::{NodeIndex, Prepared, World};

/// Goes round the nodes that can still take pods of a class. A node that no longer can is not asked again.
pub(super) struct Search {
    open: Vec<NodeIndex>,
    at: usize,
}

/// Marks a node that is not asked again.
const SPENT: NodeIndex = NodeIndex::MAX;

impl Search {
    pub(super) fn new(world: &World, prepared: &Prepared, nodes: impl Iterator<Item = NodeIndex>) -> Self {
        Self { open: nodes.filter(|&at| world.has_room(prepared, at)).collect(), at: 0 }
    }

    /// Adds a node, which is asked next.
    pub(super) fn add(&mut self, node: NodeIndex) {
        self.at = self.open.len();
        self.open.push(node);
    }

    /// The next node that takes the pod: the one that took the last pod, if it can, then those after it.
    pub(super) fn next(&mut self, world: &World, prepared: &Prepared) -> Option<NodeIndex> {
        for asked in 0..self.open.len() {
            // Most are decided by a single look.
            if asked % 16 == 15 {
                world.effort().add(16);
            }
            if self.at >= self.open.len() {
                self.at = 0;
            }
            let node = self.open[self.at];
            if node != SPENT {
                // If many pods repel each other, this is usually the reason.
                if world.keeps_off(prepared, node) {
                    self.open[self.at] = SPENT;
                    self.at += 1;
                    continue;
                }
                match world.check_briefly(prepared, node) {
                    Ok(()) => return Some(node),
                    Err(refusal) if refusal.lasts() => self.open[self.at] = SPENT,
                    Err(_) => {}
                }
            }
            self.at += 1;
        }
        None
    }
}
