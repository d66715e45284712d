//! Do these labels match this selector? (`k8s.io/apimachinery/pkg/labels`, `k8s.io/component-helpers/scheduling/corev1`)

use crate::model::selector::{LabelSelector, Labels, NodeSelector, Operator, Requirement};

/// Whether the labels satisfy every requirement of the selector.
pub fn labels_match(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.requirements.iter().all(|one| requirement_matches(one, labels.get(&one.key).map(String::as_str)))
}

/// Whether one of the terms matches a node of this name with these labels. A term without requirements matches nothing.
pub fn node_matches(selector: &NodeSelector, name: &str, labels: &Labels) -> bool {
    selector.terms.iter().any(|term| {
        let empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
        let by_label = |one: &Requirement| requirement_matches(one, labels.get(&one.key).map(String::as_str));
        let by_field = |one: &Requirement| one.key == "metadata.name" && requirement_matches(one, Some(name));
        !empty && term.match_expressions.iter().all(by_label) && term.match_fields.iter().all(by_field)
    })
}

fn requirement_matches(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|one| one == value);
    match requirement.operator {
        Operator::In => value.is_some_and(listed),
        Operator::NotIn => !value.is_some_and(listed),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compare(requirement, value).is_some_and(|(value, bound)| value > bound),
        Operator::Lt => compare(requirement, value).is_some_and(|(value, bound)| value < bound),
    }
}

/// `Gt` and `Lt` compare integers; anything else matches nothing.
fn compare(requirement: &Requirement, value: Option<&str>) -> Option<(i64, i64)> {
    let [bound] = requirement.values.as_slice() else { return None };
    Some((value?.parse().ok()?, bound.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_compare_as_kubernetes_does() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let cases = [
            (In, &["a", "b"][..], Some("a"), true),
            (In, &["a"], Some("c"), false),
            (In, &["a"], None, false),
            (NotIn, &["a"], Some("b"), true),
            (NotIn, &["a"], None, true),
            (NotIn, &["a"], Some("a"), false),
            (Exists, &[], Some(""), true),
            (Exists, &[], None, false),
            (DoesNotExist, &[], None, true),
            (Gt, &["3"], Some("4"), true),
            (Gt, &["3"], Some("3"), false),
            (Gt, &["3"], Some("x"), false),
            (Lt, &["3"], Some("-2"), true),
            (Lt, &["3", "4"], Some("1"), false),
            (Lt, &["3"], None, false),
        ];
        for (operator, values, value, expected) in cases {
            let values = values.iter().map(|&value| value.to_owned()).collect();
            let requirement = Requirement { key: "k".to_owned(), operator, values };
            assert_eq!(requirement_matches(&requirement, value), expected, "{requirement:?} {value:?}");
        }
    }
}
