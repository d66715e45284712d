//! A Node that prevents its machine's removal.

use model::node::Node;

/// A Node that stays in service, and why.
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
