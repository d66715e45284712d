//! Label selectors, as text and as objects, and field selectors.

use serde_json::Value;

use super::{
    kinds::Kind,
    object::{list, text},
    refusal::Refusal,
};

/// The selectors that restrict a list or a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl Requirement {
    /// Whether a set of labels meets the requirement.
    pub fn matches(&self, labels: &Value) -> bool {
        let found = labels.get(&self.key).and_then(Value::as_str);
        let compare = |wanted: fn(i64, i64) -> bool| {
            let limit = self.values.first().and_then(|text| text.parse().ok());
            matches!((found.and_then(|text| text.parse().ok()), limit), (Some(a), Some(b)) if wanted(a, b))
        };
        match self.operator {
            Operator::In => found.is_some_and(|value| self.values.iter().any(|one| one == value)),
            Operator::NotIn => !found.is_some_and(|value| self.values.iter().any(|one| one == value)),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::Gt => compare(|a, b| a > b),
            Operator::Lt => compare(|a, b| a < b),
        }
    }

    /// Reads a requirement from `{key, operator, values}`. `None` if the operator is unknown.
    pub fn from_expression(expression: &Value) -> Option<Self> {
        let operator = match text(expression, "/operator") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        let values = list(expression, "/values").iter().filter_map(Value::as_str).map(String::from).collect();
        Some(Self { key: text(expression, "/key").to_owned(), operator, values })
    }
}

/// Whether a `LabelSelector` object selects these labels. A missing selector selects nothing, an empty one
/// everything.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    if !selector.is_object() {
        return false;
    }
    let equal = selector["matchLabels"]
        .as_object()
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)));
    equal
        && list(selector, "/matchExpressions")
            .iter()
            .all(|one| Requirement::from_expression(one).is_some_and(|one| one.matches(labels)))
}

impl Selection {
    /// Parses the values of `labelSelector` and `fieldSelector`.
    ///
    /// # Errors
    /// Returns 400 with the API server's message if a selector is invalid.
    pub fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Refusal> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(kind, fields)? })
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|one| one.matches(&object["metadata"]["labels"]))
            && self.fields.iter().all(|(path, equal, value)| (field(object, path) == *value) == *equal)
    }
}

fn field(object: &Value, path: &str) -> String {
    let pointer = match path {
        "reportingComponent" | "reason" | "type" | "source" => {
            let component = text(object, "/reportingComponent");
            let found = match path {
                "source" => text(object, "/source/component"),
                "reportingComponent" => component,
                "type" => text(object, "/type"),
                _ => text(object, "/reason"),
            };
            return found.to_owned();
        }
        _ => format!("/{}", path.replace('.', "/")),
    };
    match object.pointer(&pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Number(value)) => value.to_string(),
        _ if path == "spec.unschedulable" || path == "spec.hostNetwork" => "false".into(),
        _ => String::new(),
    }
}

fn supported(kind: &Kind, path: &str) -> bool {
    if path == "metadata.name" || (path == "metadata.namespace" && kind.namespaced) {
        return true;
    }
    match kind.plural {
        "pods" => matches!(
            path,
            "spec.nodeName"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "spec.serviceAccountName"
                | "spec.hostNetwork"
                | "status.phase"
                | "status.podIP"
                | "status.nominatedNodeName"
        ),
        "nodes" => path == "spec.unschedulable",
        "secrets" => path == "type",
        "certificatesigningrequests" => path == "spec.signerName",
        "namespaces" => path == "status.phase",
        "replicasets" | "replicationcontrollers" => path == "status.replicas",
        "jobs" => path == "status.successful",
        "events" => {
            path.starts_with("involvedObject.")
                || path.starts_with("regarding.")
                || matches!(path, "reason" | "reportingComponent" | "source" | "type")
        }
        _ => false,
    }
}

fn parse_fields(kind: &Kind, fields: &str) -> Result<Vec<(String, bool, String)>, Refusal> {
    let mut parsed = Vec::new();
    for term in fields.split(',').filter(|term| !term.is_empty()) {
        let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
            (path, false, value)
        } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (path, true, value)
        } else {
            let text = format!("invalid selector: '{fields}'; can't understand '{term}'");
            return Err(Refusal::bad_request(text));
        };
        if !supported(kind, path) {
            return Err(Refusal::bad_request(format!("field label not supported: {path}")));
        }
        let path = path.replace("regarding.", "involvedObject.");
        parsed.push((path, equal, value.to_owned()));
    }
    Ok(parsed)
}

fn parse_labels(selector: &str) -> Result<Vec<Requirement>, Refusal> {
    let mut terms = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in selector.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(selector.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(selector.get(start..).unwrap_or_default());
    terms.into_iter().map(str::trim).filter(|term| !term.is_empty()).map(requirement).collect()
}

fn requirement(term: &str) -> Result<Requirement, Refusal> {
    let make = |key: &str, operator, values: Vec<String>| {
        let key = key.trim();
        let wrong = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
        if key.is_empty() || key.contains(wrong) {
            let text = format!("unable to parse requirement: found '{term}', expected: identifier");
            return Err(Refusal::bad_request(text));
        }
        Ok(Requirement { key: key.to_owned(), operator, values })
    };
    if let Some(key) = term.strip_prefix('!') {
        return make(key, Operator::DoesNotExist, Vec::new());
    }
    for (word, operator) in [(" notin ", Operator::NotIn), (" in ", Operator::In)] {
        let spaced = term.replacen('(', " (", 1);
        if let Some((key, rest)) = spaced.split_once(word) {
            let Some(values) = rest.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else {
                let text = "unable to parse requirement: found '', expected: ',', ')' or identifier";
                return Err(Refusal::bad_request(text));
            };
            return make(key, operator, values.split(',').map(|value| value.trim().to_owned()).collect());
        }
    }
    for (sign, operator) in [
        ("!=", Operator::NotIn),
        ("==", Operator::In),
        ("=", Operator::In),
        (">", Operator::Gt),
        ("<", Operator::Lt),
    ] {
        if let Some((key, value)) = term.split_once(sign) {
            return make(key, operator, vec![value.trim().to_owned()]);
        }
    }
    make(term, Operator::Exists, Vec::new())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::kinds::POD, Selection, selects};

    #[test]
    fn label_selectors_select_as_written() {
        let pod = json!({ "metadata": { "labels": { "app": "a", "n": "5" } } });
        let table = [
            ("app=a", true),
            ("app==b", false),
            ("app!=b", true),
            ("gone!=b", true),
            ("app", true),
            ("!gone", true),
            ("app in (a,x),app!=x,!gone", true),
            ("app notin (a, b)", false),
            ("n>4", true),
            ("n<4", false),
        ];
        for (text, expected) in table {
            let selection = Selection::parse(&POD, text, "").expect(text);
            assert_eq!(selection.matches(&pod), expected, "{text}");
        }
        assert!(Selection::parse(&POD, "a in (", "").is_err());
    }

    #[test]
    fn a_missing_selector_object_selects_nothing_and_an_empty_one_everything() {
        assert!(!selects(&json!(null), &json!({ "a": "b" })));
        assert!(selects(&json!({}), &json!({ "a": "b" })));
        let expressions =
            json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["b"] }] });
        assert!(!selects(&expressions, &json!({ "a": "b" })));
    }
}
