//! Nodes by name, for tens of thousands of pods that each name theirs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::model::node::Node;
use crate::scheduling::NodeIndex;

/// Finds nodes by name: numbers are compared, and of all names only the one that is asked for.
pub(super) struct Named<'a> {
    nodes: &'a [Arc<Node>],
    /// Sorted.
    numbers: Vec<(u64, NodeIndex)>,
}

impl<'a> Named<'a> {
    pub(super) fn new(nodes: &'a [Arc<Node>]) -> Self {
        let mut numbers: Vec<_> =
            nodes.iter().enumerate().map(|(at, node)| (number(&node.name), at)).collect();
        numbers.sort_unstable();
        Self { nodes, numbers }
    }

    /// The node of this name; of several the last.
    pub(super) fn find(&self, name: &str) -> Option<NodeIndex> {
        let number = number(name);
        let from = self.numbers.partition_point(|one| one.0 < number);
        let alike = self.numbers[from..].iter().take_while(|one| one.0 == number);
        alike.map(|one| one.1).filter(|&at| self.nodes[at].name == name).last()
    }
}

/// The same for equal names.
fn number(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
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
