//! Label selectors and node selectors, as in Kubernetes objects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// How a requirement compares a label's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The value is not one of those listed, or the key is absent.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer greater than the one listed (node selectors only).
    Gt,
    /// The value is an integer less than the one listed (node selectors only).
    Lt,
}

/// One requirement on one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// The label's key, or a field's name in `matchFields`.
    pub key: String,
    /// How to compare.
    pub operator: Operator,
    /// The values to compare with.
    pub values: Vec<String>,
}

/// A label selector: all requirements must match. Without requirements, it matches everything.
///
/// In fields that hold an optional selector, `None` matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabelSelector {
    /// `matchLabels` and `matchExpressions`, in this order.
    pub requirements: Vec<Requirement>,
}

/// One term of a node selector. All requirements on labels and fields must match. An empty term matches
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSelectorTerm {
    /// Requirements on the node's labels.
    pub match_expressions: Vec<Requirement>,
    /// Requirements on the node's fields; only `metadata.name` exists.
    pub match_fields: Vec<Requirement>,
}

/// A node selector: at least one of the terms must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSelector {
    /// The alternatives.
    pub terms: Vec<NodeSelectorTerm>,
}
