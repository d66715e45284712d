//! Selectors, as Kubernetes writes them.

use super::fields::Fields;
use model::selector::{LabelSelector, NodeSelector, NodeSelectorTerm, Operator, Requirement};

fn word(operator: Operator) -> &'static str {
    match operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Gt => "Gt",
        Operator::Lt => "Lt",
    }
}

fn requirement(one: &Requirement) -> Fields {
    Fields::default()
        .with("key", one.key.as_str())
        .with("operator", word(one.operator))
        .list("values", one.values.iter().map(String::as_str))
}

/// The key and value of a requirement, if `matchLabels` can express it.
pub(super) fn equality(one: &Requirement) -> Option<(&str, &str)> {
    match (one.operator, one.values.as_slice()) {
        (Operator::In, [value]) => Some((&one.key, value)),
        _ => None,
    }
}

/// A label selector. Its first requirements become `matchLabels`, as long as each is an equality and their
/// keys ascend. The rest become `matchExpressions`. The reader takes `matchLabels` first, sorted by key, so
/// it restores the same order.
pub(super) fn label_selector(selector: &LabelSelector) -> Fields {
    let all = &selector.requirements;
    let mut labels = Fields::default();
    let mut last = None;
    let mut taken = 0;
    for (key, value) in all.iter().map_while(equality) {
        if last.is_some_and(|last| last >= key) {
            break;
        }
        labels = labels.with(key, value);
        last = Some(key);
        taken += 1;
    }
    Fields::default()
        .part("matchLabels", labels)
        .list("matchExpressions", all.iter().skip(taken).map(requirement))
}

/// A term of a node selector.
pub(super) fn node_term(term: &NodeSelectorTerm) -> Fields {
    Fields::default()
        .list("matchExpressions", term.match_expressions.iter().map(requirement))
        .list("matchFields", term.match_fields.iter().map(requirement))
}

/// A node selector.
pub(super) fn node_selector(selector: &NodeSelector) -> Fields {
    Fields::default().list("nodeSelectorTerms", selector.terms.iter().map(node_term))
}
