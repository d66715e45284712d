//! A Node that keeps its machine.

use model::node::Node;

/// A Node in service that keeps its machine, and why.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    pub node: Box<Node>,
    pub why: String,
}

impl Kept {
    pub(super) fn new(node: Node, why: impl Into<String>) -> Self {
        Self { node: Box::new(node), why: why.into() }
    }
}
