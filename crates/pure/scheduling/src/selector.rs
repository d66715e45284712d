//! Matching of labels and selectors (`k8s.io/apimachinery/pkg/labels`,
//! `k8s.io/component-helpers/scheduling/corev1`).

use model::names::{is_key, is_value};
use model::selector::{LabelSelector, Labels, NodeSelector, Operator, Requirement};

/// Whether the labels satisfy every requirement of the selector.
pub fn labels_match(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.requirements.iter().all(|one| requirement_matches(one, labels.get(&one.key).map(String::as_str)))
}

/// Whether one of the terms matches a node with this name and these labels. A term matches nothing if it has
/// no requirements, or has a requirement that kube-scheduler cannot parse (`labels.NewRequirement`).
pub fn node_matches(selector: &NodeSelector, name: &str, labels: &Labels) -> bool {
    selector.terms.iter().any(|term| {
        let empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
        let by_label = |one: &Requirement| requirement_matches(one, labels.get(&one.key).map(String::as_str));
        let by_field = |one: &Requirement| one.key == "metadata.name" && requirement_matches(one, Some(name));
        !empty
            && term.match_expressions.iter().all(by_label)
            && term.match_fields.iter().all(by_field)
            && term.match_expressions.iter().all(is_readable)
    })
}

/// Whether a requirement on a label is valid. The API server refuses new objects with invalid requirements,
/// but existing objects may still contain them.
fn is_readable(requirement: &Requirement) -> bool {
    let count = requirement.values.len();
    let counts = match requirement.operator {
        Operator::In | Operator::NotIn => count > 0,
        Operator::Exists | Operator::DoesNotExist => count == 0,
        Operator::Gt | Operator::Lt => count == 1,
    };
    counts && is_key(&requirement.key) && requirement.values.iter().all(|value| is_value(value))
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

/// Returns the label value and the bound that `Gt` or `Lt` compares. If either of them is not an integer,
/// returns `None`, and the requirement is not met.
fn compare(requirement: &Requirement, value: Option<&str>) -> Option<(i64, i64)> {
    let [bound] = requirement.values.as_slice() else { return None };
    Some((value?.parse().ok()?, bound.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::selector::NodeSelectorTerm;

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
            let requirement = requirement("k", operator, values);
            assert_eq!(requirement_matches(&requirement, value), expected, "{requirement:?} {value:?}");
        }
    }

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        Requirement { key: key.to_owned(), operator, values }
    }

    #[test]
    fn a_term_that_cannot_be_read_matches_nothing_and_the_others_still_do() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let labels = Labels::from([("num".to_owned(), "10".to_owned())]);
        let long = "x".repeat(64);
        let term =
            |one: Requirement| NodeSelectorTerm { match_expressions: vec![one], match_fields: Vec::new() };
        for one in [
            requirement("num", Gt, &["-5"]),
            requirement("num", Lt, &["11", "12"]),
            requirement("num", In, &["10", "a b"]),
            requirement("num", In, &["10", &long]),
            requirement("num", NotIn, &[]),
            requirement("num", Exists, &["10"]),
            requirement("-disk", DoesNotExist, &[]),
        ] {
            let mut selector = NodeSelector { terms: vec![term(one)] };
            assert!(!node_matches(&selector, "n", &labels), "{selector:?}");
            selector.terms.push(term(requirement("num", In, &["10", ""])));
            assert!(node_matches(&selector, "n", &labels), "{selector:?}");
        }
    }
}
