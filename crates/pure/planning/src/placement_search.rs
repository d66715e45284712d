//! Finds nodes for equal pods, one pod after the other.

use std::ops::Range;

use scheduling::{NodeIndex, Prepared, World};

/// Cycles through the nodes that can still take pods of a class. A node that can take no more is not tried
/// again.
pub(super) struct Search {
    open: Vec<NodeIndex>,
    at: usize,
    /// How many entries of `open` are not `SPENT`.
    left: usize,
    /// Nodes that have not been looked at yet. Most pods find a place without them.
    rest: Range<NodeIndex>,
}

/// In `Search::open`, replaces a node that is not tried again.
const SPENT: NodeIndex = NodeIndex::MAX;

impl Search {
    pub(super) fn new(world: &World, prepared: &Prepared, nodes: impl Iterator<Item = NodeIndex>) -> Self {
        let open: Vec<NodeIndex> = nodes.filter(|&at| world.has_room(prepared, at)).collect();
        Self { at: 0, left: open.len(), open, rest: 0..0 }
    }

    /// Like [`Self::new`], for a range of consecutive nodes in the world.
    pub(super) fn among(nodes: Range<NodeIndex>) -> Self {
        Self { open: Vec::new(), at: 0, left: 0, rest: nodes }
    }

    /// Adds a node, which is tried next. The nodes before it have been tried.
    pub(super) fn add(&mut self, node: NodeIndex) {
        self.at = self.open.len();
        self.take_in(node);
    }

    fn take_in(&mut self, node: NodeIndex) {
        self.open.push(node);
        self.left += 1;
    }

    fn leave_out(&mut self, at: usize) {
        self.open[at] = SPENT;
        self.left -= 1;
    }

    /// The next node that takes the pod. The node that took the last pod is tried first, then those after it.
    pub(super) fn next(&mut self, world: &World, prepared: &Prepared) -> Option<NodeIndex> {
        let mut asked = 0;
        loop {
            if self.at >= self.open.len() {
                match self.rest.find(|&at| world.has_room(prepared, at)) {
                    Some(next) => self.take_in(next),
                    None => self.at = 0,
                }
            }
            if asked == self.open.len() {
                return None;
            }
            if self.left == 0 && self.rest.is_empty() {
                // No node is left that could take the pod. The effort is counted as if the rest of the list
                // had been looked at.
                let glances = self.open.len() / 16 - asked / 16;
                world.effort().add(16 * u64::try_from(glances).unwrap_or(u64::MAX));
                return None;
            }
            asked += 1;
            // Most nodes need only a single look, which counts as one unit. The units are added 16 at a time.
            if asked.is_multiple_of(16) {
                world.effort().add(16);
            }
            let node = self.open[self.at];
            if node != SPENT {
                // This check comes first: if many pods repel each other, it usually refuses the node.
                if world.keeps_off(prepared, node) {
                    self.leave_out(self.at);
                    self.at += 1;
                    continue;
                }
                match world.check_briefly(prepared, node) {
                    Ok(()) => return Some(node),
                    Err(refusal) if refusal.lasts() => self.leave_out(self.at),
                    Err(_) => {}
                }
            }
            self.at += 1;
        }
    }
}
