//! An object under construction: absent or empty fields are left out, as in the API server's objects.

use jiff::Timestamp;
use serde_json::{Map, Value};

use model::quantity;
use model::resources::Resources;
use model::selector::Labels;

/// The fields of an object.
#[derive(Debug, Default)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// A Kubernetes object (or a document of this project) with this version and kind.
    pub(super) fn object(api_version: &str, kind: &str) -> Self {
        Self::default().with("apiVersion", api_version).with("kind", kind)
    }

    /// Metadata with a name, and a namespace unless it is empty.
    pub(super) fn named(namespace: &str, name: &str) -> Self {
        Self::default().text("namespace", namespace).text("name", name)
    }

    /// Adds a field that is always written.
    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a field that may be absent.
    pub(super) fn some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Adds a field that is written if `condition` is true.
    pub(super) fn when(self, condition: bool, key: &str, value: impl Into<Value>) -> Self {
        self.some(key, condition.then_some(value))
    }

    /// Adds a string, unless it is empty.
    pub(super) fn text(self, key: &str, text: &str) -> Self {
        self.when(!text.is_empty(), key, text)
    }

    /// Adds a time in RFC 3339, if there is one.
    pub(super) fn time(self, key: &str, time: Option<Timestamp>) -> Self {
        self.some(key, time.map(|time| time.to_string()))
    }

    /// Adds a list, unless it is empty.
    pub(super) fn list<T: Into<Value>>(self, key: &str, items: impl IntoIterator<Item = T>) -> Self {
        let items: Vec<Value> = items.into_iter().map(Into::into).collect();
        self.when(!items.is_empty(), key, items)
    }

    /// Adds a nested object, unless it has no fields.
    pub(super) fn part(self, key: &str, part: Self) -> Self {
        self.when(!part.0.is_empty(), key, part)
    }

    /// Adds labels or annotations, if there are any.
    pub(super) fn labels(self, key: &str, labels: &Labels) -> Self {
        let all = labels.iter().fold(Self::default(), |all, (name, value)| all.with(name, value.as_str()));
        self.part(key, all)
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        Self::Object(fields.0)
    }
}

/// The amounts of resources as quantities, by resource name. For a pod's requests, `pods` must be zero,
/// because a pod always counts as one pod.
pub(super) fn amounts(resources: &Resources) -> Fields {
    let bytes =
        |fields: Fields, name: &str, amount: i64| fields.when(amount != 0, name, quantity::binary(amount));
    let fields =
        Fields::default().when(resources.cpu_milli != 0, "cpu", quantity::from_milli(resources.cpu_milli));
    let fields = bytes(fields, "memory", resources.memory);
    let fields = bytes(fields, "ephemeral-storage", resources.ephemeral_storage);
    let fields = fields.when(resources.pods != 0, "pods", resources.pods.to_string());
    resources.other.iter().fold(fields, |fields, (name, amount)| {
        let huge = name.starts_with("hugepages-");
        fields.with(name, if huge { quantity::binary(*amount) } else { amount.to_string() })
    })
}
