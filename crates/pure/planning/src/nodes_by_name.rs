//! Looks up nodes by name, efficiently enough for tens of thousands of pods that each name a node.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use model::node::Node;
use scheduling::NodeIndex;

/// Finds nodes by name.
pub(super) struct Named<'a> {
    nodes: &'a [Arc<Node>],
    /// Only used for lookups: the order of its entries has no effect.
    table: HashTable<NodeIndex>,
}

impl<'a> Named<'a> {
    pub(super) fn new(nodes: &'a [Arc<Node>]) -> Self {
        let mut named = Self { nodes, table: HashTable::with_capacity(nodes.len()) };
        for (at, node) in nodes.iter().enumerate() {
            let number = number(&node.name);
            match named.table.find_mut(number, |&other| nodes[other].name == node.name) {
                Some(other) => *other = at,
                None => {
                    named.table.insert_unique(number, at, |&at| self::number(&nodes[at].name));
                }
            }
        }
        named
    }

    /// The node with this name; the last one, if there are several.
    pub(super) fn find(&self, name: &str) -> Option<NodeIndex> {
        self.table.find(number(name), |&at| self.nodes[at].name == name).copied()
    }
}

/// A hash of the name. Equal names have equal hashes.
fn number(name: &str) -> u64 {
    FixedState::default().hash_one(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_found_by_its_name() {
        let node = |name: &str| Arc::new(Node { name: name.to_owned(), ..Node::default() });
        let nodes = ["a", "b", "c", "a"].map(node);
        let named = Named::new(&nodes);
        let found = ["a", "b", "c", "d", ""].map(|name| named.find(name));
        assert_eq!(found, [Some(3), Some(1), Some(2), None, None]);
    }
}
