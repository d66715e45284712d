//! Selectors.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::ConvertError;
use model::selector::{LabelSelector, NodeSelector, NodeSelectorTerm, Operator, Requirement};

fn operator(field: &str, word: &str) -> Result<Operator, ConvertError> {
    Ok(match word {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => return Err(ConvertError::Word { field: format!("{field}.operator"), value: word.to_owned() }),
    })
}

pub(super) fn equals(key: &str, value: &str) -> Requirement {
    Requirement { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] }
}

pub(super) fn label_selector(
    field: &str,
    selector: Option<&meta::LabelSelector>,
) -> Result<Option<LabelSelector>, ConvertError> {
    let Some(selector) = selector else { return Ok(None) };
    let mut requirements: Vec<_> =
        selector.match_labels.iter().flatten().map(|(key, value)| equals(key, value)).collect();
    for expression in selector.match_expressions.iter().flatten() {
        requirements.push(Requirement {
            key: expression.key.clone(),
            operator: operator(field, &expression.operator)?,
            values: expression.values.clone().unwrap_or_default(),
        });
    }
    Ok(Some(LabelSelector { requirements }))
}

fn requirements(
    field: &str,
    list: Option<&Vec<core::NodeSelectorRequirement>>,
) -> Result<Vec<Requirement>, ConvertError> {
    list.into_iter()
        .flatten()
        .map(|one| {
            Ok(Requirement {
                key: one.key.clone(),
                operator: operator(field, &one.operator)?,
                values: one.values.clone().unwrap_or_default(),
            })
        })
        .collect()
}

pub(super) fn node_term(
    field: &str,
    term: &core::NodeSelectorTerm,
) -> Result<NodeSelectorTerm, ConvertError> {
    Ok(NodeSelectorTerm {
        match_expressions: requirements(field, term.match_expressions.as_ref())?,
        match_fields: requirements(field, term.match_fields.as_ref())?,
    })
}

pub(super) fn node_selector(
    field: &str,
    selector: &core::NodeSelector,
) -> Result<NodeSelector, ConvertError> {
    let terms =
        selector.node_selector_terms.iter().map(|term| node_term(field, term)).collect::<Result<_, _>>()?;
    Ok(NodeSelector { terms })
}

pub(super) fn topology_term(term: &core::TopologySelectorTerm) -> NodeSelector {
    let match_expressions = term
        .match_label_expressions
        .iter()
        .flatten()
        .map(|one| Requirement { key: one.key.clone(), operator: Operator::In, values: one.values.clone() })
        .collect();
    NodeSelector { terms: vec![NodeSelectorTerm { match_expressions, match_fields: Vec::new() }] }
}
