//! The changes from one snapshot to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::patch;
use super::write::{Lists, each_list, own_documents};
use model::Snapshot;

/// Kind, namespace and name of an object.
pub(super) type Key = (String, String, String);

/// The changes from one snapshot to the next. If there is no previous snapshot, they contain the complete
/// snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    /// The time of the snapshot.
    pub time: Timestamp,
    /// Objects that are new.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) put: Vec<Value>,
    /// Objects that have changed, each with a patch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) patch: Vec<(Key, Value)>,
    /// Objects that are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) drop: Vec<Key>,
}

/// The changes from `before` to `after`. Kubernetes objects that both snapshots share (the same `Arc`) are
/// not compared.
pub fn changes(before: Option<&Snapshot>, after: &Snapshot) -> Changes {
    let nothing = Snapshot::default();
    let changes = Changes { time: after.time, ..Changes::default() };
    let mut between = Between { before: before.unwrap_or(&nothing), after, changes };
    let owned = before.map(own_documents).into_iter().flatten().collect();
    between.take(owned, own_documents(after).into());
    each_list(&mut between);
    between.changes
}

/// The kind, namespace and name of an object, from its JSON.
pub(super) fn key(value: &Value) -> Key {
    let field = |name: &str| value.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    (field("/kind"), field("/metadata/namespace"), field("/metadata/name"))
}

struct Between<'s> {
    before: &'s Snapshot,
    after: &'s Snapshot,
    changes: Changes,
}

impl Between<'_> {
    fn take(&mut self, before: Vec<Value>, after: Vec<Value>) {
        let mut known: BTreeMap<Key, Value> = before.into_iter().map(|one| (key(&one), one)).collect();
        for one in after {
            let key = key(&one);
            match known.remove(&key) {
                Some(old) => {
                    self.changes.patch.extend(patch::between(&old, &one).map(|patch| (key, patch)));
                }
                None => self.changes.put.push(one),
            }
        }
        self.changes.drop.extend(known.into_keys());
    }
}

impl Lists for Between<'_> {
    fn list<T: PartialEq>(
        &mut self,
        of: impl Fn(&Snapshot) -> &[Arc<T>],
        write: impl Fn(&T, Timestamp) -> Value,
    ) {
        let (before, after) = (of(self.before), of(self.after));
        let places = |all: &[Arc<T>]| all.iter().map(Arc::as_ptr).collect::<BTreeSet<_>>();
        let other = |all: &[Arc<T>], known: &BTreeSet<*const T>, time: Timestamp| {
            let others = all.iter().filter(|one| !known.contains(&Arc::as_ptr(one)));
            others.map(|one| write(one, time)).collect::<Vec<Value>>()
        };
        let gone = other(before, &places(after), self.before.time);
        let come = other(after, &places(before), self.after.time);
        self.take(gone, come);
    }
}
