//! The objects of a snapshot file, parsed only as far as needed to identify them.
//!
//! A JSON object is kept as text until it is needed. Parsing a file of tens of megabytes into values first
//! would need ten times as much memory.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::read::SnapshotError;

/// One object.
pub(super) struct Document<'t> {
    /// The number of the object's document in the stream, starting at 1.
    pub number: usize,
    /// The object's kind. An item of a list such as `PodList` may omit it; its kind then follows from the
    /// list's kind.
    pub kind: Cow<'t, str>,
    /// The object's `apiVersion`. An item of a list may omit it, and then has the list's version.
    pub version: Cow<'t, str>,
    /// The object's namespace; empty if it has none.
    pub namespace: Cow<'t, str>,
    /// Its name.
    pub name: Cow<'t, str>,
    body: Body<'t>,
}

enum Body<'t> {
    Text(&'t str),
    Tree(Value),
    Seen(&'t Value),
}

/// The identifying fields of an object, and the objects of a list.
#[derive(Deserialize)]
struct Head<'t> {
    #[serde(borrow, default)]
    kind: Cow<'t, str>,
    #[serde(borrow, default, rename = "apiVersion")]
    version: Cow<'t, str>,
    #[serde(borrow, default)]
    metadata: Meta<'t>,
    #[serde(borrow, default)]
    items: Vec<&'t RawValue>,
}

#[derive(Default, Deserialize)]
struct Meta<'t> {
    #[serde(borrow, default)]
    namespace: Cow<'t, str>,
    #[serde(borrow, default)]
    name: Cow<'t, str>,
}

/// The kind and version of list items that omit them.
#[derive(Clone, Default)]
struct List<'t> {
    kind: Cow<'t, str>,
    version: Cow<'t, str>,
}

/// All objects in a YAML stream or JSON text. The items of lists are returned one by one.
///
/// # Errors
/// Returns an error if the text is neither YAML nor JSON, or a document is not an object with a kind.
pub(super) fn documents(text: &str) -> Result<Vec<Document<'_>>, SnapshotError> {
    // JSON is tried first, because it is read much faster than YAML. If reading only the identifying fields
    // fails, the full objects are read. A text that begins like JSON may still be YAML in flow style.
    if text.trim_start().starts_with('{') {
        if let Some(found) = of_json(text) {
            return Ok(found);
        }
        let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        if let Ok(values) = values.collect::<Result<Vec<_>, _>>() {
            return of_values(values);
        }
    }
    of_values(yaml(text)?)
}

/// The objects of a JSON text; `None` if the text is not JSON, or an object does not have the expected form.
fn of_json(text: &str) -> Option<Vec<Document<'_>>> {
    let mut found = Vec::new();
    let mut heads = serde_json::Deserializer::from_str(text).into_iter::<Head>();
    let (mut from, mut number) = (0, 0);
    while let Some(head) = heads.next() {
        number += 1;
        let end = heads.byte_offset();
        add_text(text.get(from..end)?, head.ok()?, number, &List::default(), &mut found)?;
        from = end;
    }
    Some(found)
}

fn add_text<'t>(
    text: &'t str,
    head: Head<'t>,
    number: usize,
    list: &List<'t>,
    found: &mut Vec<Document<'t>>,
) -> Option<()> {
    let kind = if head.kind.is_empty() { list.kind.clone() } else { head.kind };
    let version = if head.version.is_empty() { list.version.clone() } else { head.version };
    if kind.is_empty() {
        return None;
    }
    if kind.ends_with("List") {
        let of = List { kind: Cow::Owned(item_kind(&kind).to_owned()), version };
        for item in head.items {
            add_text(item.get(), serde_json::from_str(item.get()).ok()?, number, &of, found)?;
        }
        return Some(());
    }
    let Meta { namespace, name } = head.metadata;
    found.push(Document { number, kind, version, namespace, name, body: Body::Text(text) });
    Some(())
}

fn of_values(values: Vec<Value>) -> Result<Vec<Document<'static>>, SnapshotError> {
    let mut found = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        add_value(value, index + 1, &List::default(), &mut found)?;
    }
    Ok(found)
}

fn add_value(
    mut value: Value,
    number: usize,
    list: &List<'static>,
    found: &mut Vec<Document<'static>>,
) -> Result<(), SnapshotError> {
    let field =
        |name: &str| value.pointer(name).and_then(Value::as_str).map(|text| Cow::Owned(text.to_owned()));
    let kind = field("/kind").unwrap_or_else(|| list.kind.clone());
    let version = field("/apiVersion").unwrap_or_else(|| list.version.clone());
    let (namespace, name) = (field("/metadata/namespace"), field("/metadata/name"));
    if kind.is_empty() {
        return Err(SnapshotError::NoKind { number });
    }
    if kind.ends_with("List") {
        let of = List { kind: Cow::Owned(item_kind(&kind).to_owned()), version };
        if let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) {
            return items.into_iter().try_for_each(|item| add_value(item, number, &of, found));
        }
        return Ok(());
    }
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    found.push(Document { number, kind, version, namespace, name, body: Body::Tree(value) });
    Ok(())
}

/// The kind of a list's items: `Pod` for `PodList`, empty for `List`.
fn item_kind(list: &str) -> &str {
    list.strip_suffix("List").unwrap_or_default()
}

fn yaml(text: &str) -> Result<Vec<Value>, SnapshotError> {
    // Snapshots of large clusters are large files, so the parser's limits against hostile input are set far
    // above the size of such files.
    let options = serde_saphyr::options! {
        // As in YAML 1.2, `y` is a string: a pod may have that name.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_events: 500_000_000,
            max_nodes: 500_000_000,
            max_documents: 10_000_000,
            max_total_scalar_bytes: 4 << 30,
        },
    };
    let values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| SnapshotError::Syntax(error.to_string().into()))?;
    Ok(values.into_iter().filter(|value| !value.is_null()).collect())
}

impl<'t> Document<'t> {
    /// A document that refers to this object; `None` if the object has no kind.
    pub(super) fn of(value: &'t Value) -> Option<Self> {
        let field = |name: &str| value.pointer(name).and_then(Value::as_str).map(Cow::Borrowed);
        Some(Self {
            number: 1,
            kind: field("/kind")?,
            version: field("/apiVersion").unwrap_or_default(),
            namespace: field("/metadata/namespace").unwrap_or_default(),
            name: field("/metadata/name").unwrap_or_default(),
            body: Body::Seen(value),
        })
    }
}

impl Document<'_> {
    /// Whether the object has this `apiVersion`.
    pub(super) fn is(&self, version: &str) -> bool {
        self.version == version
    }

    /// The object's API group; empty for the core group.
    pub(super) fn group(&self) -> &str {
        self.version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Parses the object according to its kind.
    ///
    /// # Errors
    /// Returns an error if the object does not have the fields of its kind.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, SnapshotError> {
        let parsed = match &self.body {
            // If this fails, the text is parsed again as a value, so that the error contains no line and
            // column. They would be relative to the start of the object, not of the file.
            Body::Text(text) => serde_json::from_str(text)
                .or_else(|_| serde_json::from_str::<Value>(text).and_then(serde_json::from_value)),
            Body::Tree(value) => T::deserialize(value),
            Body::Seen(value) => T::deserialize(*value),
        };
        parsed.map_err(|source| SnapshotError::Shape {
            kind: self.kind.clone().into_owned(),
            name: self.title(),
            number: self.number,
            source,
        })
    }

    /// The object's namespace and name, as far as it has them.
    pub(super) fn title(&self) -> String {
        match self.namespace.as_ref() {
            "" => self.name.clone().into_owned(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let words = |one: Document| format!("{} {} {} {}", one.number, one.version, one.kind, one.title());
        documents(text).unwrap().into_iter().map(words).collect()
    }

    #[test]
    fn objects_say_the_same_of_themselves_in_json_as_in_yaml() {
        for text in [
            r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"}}"#,
            r#"{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "p"}}, {"kind": "Node"}]}"#,
            r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "NodeList", "items": [{}]}]}"#,
            r#"{"kind": "PodList", "items": null}"#,
            r#"{"kind": "PodList"}"#,
            r#"{"items": [{"kind": "Pod"}], "kind": "List"}"#,
            r#"{"kind": "Pod", "metadata": {"name": "p\u00e4\n", "namespace": null}}"#,
            r#"{"kind": "Playlist", "items": [1]}"#,
            "{\"kind\": \"A\"}\n{\"kind\": \"B\"}",
        ] {
            let values: Result<Vec<Value>, _> =
                serde_json::Deserializer::from_str(text).into_iter().collect();
            let of_values = of_values(values.unwrap()).unwrap();
            let words =
                |one: Document| format!("{} {} {} {}", one.number, one.version, one.kind, one.title());
            let expected: Vec<String> = of_values.into_iter().map(words).collect();
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn objects_without_a_kind_are_refused_in_either() {
        for text in [
            r#"{"apiVersion": "v1"}"#,
            r#"{"kind": 7}"#,
            r#"{"kind": "List", "items": [{}]}"#,
            "a: b",
            "{a: b}",
        ] {
            assert!(matches!(documents(text), Err(SnapshotError::NoKind { number: 1 })), "{text}");
        }
    }

    #[test]
    fn an_object_is_read_as_its_kind_whatever_it_was_kept_as() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Named {
            n: u8,
        }
        for text in [r#"{"kind": "A", "n": 7, "n": 8}"#, "{\"kind\": \"A\", \"n\": 8}", "kind: A\nn: 8"] {
            let found = documents(text).unwrap();
            assert_eq!(found[0].parse::<Named>().unwrap(), Named { n: 8 }, "{text}");
        }
        let error = documents(r#"{"kind": "A", "n": 256}"#).unwrap()[0].parse::<Named>().unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap();
        assert_eq!(source, "invalid value: integer `256`, expected u8");
    }
}
