//! The objects, their versions, and the history for watches and for lists of an exact version.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    kinds::{KINDS, Kind},
    object::{self, Key},
    refusal::Refusal,
};
use crate::signal::{Signal, Waiter};

/// The maximum number of changes that are kept for each kind.
const HISTORY: usize = 20_000;

/// One change to one object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The version that the change created.
    pub revision: u64,
    /// The object before the change. `None` if it is new.
    pub old: Option<Arc<Value>>,
    /// The object after the change. A deleted object has the version of its deletion.
    pub new: Arc<Value>,
    /// Whether the change deleted the object.
    pub gone: bool,
}

/// All objects of one kind.
#[derive(Debug)]
pub(super) struct Collection {
    pub objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
    /// Changes up to this version are hidden from new readers.
    forgotten: u64,
    /// The history begins after this version.
    dropped: u64,
    latest: Signal,
}

impl Default for Collection {
    fn default() -> Self {
        let (objects, history, latest) = (BTreeMap::new(), VecDeque::new(), Signal::default());
        Self { objects, history, forgotten: 0, dropped: 0, latest }
    }
}

impl Collection {
    /// A waiter that is notified of every change.
    pub fn subscribe(&self) -> Waiter {
        self.latest.waiter()
    }

    /// Returns the version up to which all changes are forgotten, if the given version is older than that.
    pub fn too_old(&self, revision: u64) -> Option<u64> {
        (revision < self.forgotten).then_some(self.forgotten)
    }

    /// The changes after a version. If some of them are no longer in the history, the error is the version
    /// after which the history begins. A reader that began before changes were forgotten still receives them.
    pub fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, u64> {
        if revision < self.dropped {
            return Err(self.dropped);
        }
        let start = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.history.range(start..))
    }

    /// The objects as they were at a version. `None` if the version is forgotten.
    pub fn at(&self, revision: u64) -> Option<BTreeMap<Key, Arc<Value>>> {
        if revision < self.forgotten {
            return None;
        }
        let mut objects = self.objects.clone();
        for change in self.history.iter().rev().take_while(|change| change.revision > revision) {
            let key = object::key(&change.new);
            match &change.old {
                Some(old) => objects.insert(key, old.clone()),
                None => objects.remove(&key),
            };
        }
        Some(objects)
    }

    /// The version of the latest change, 0 before the first.
    pub fn latest_change(&self) -> u64 {
        self.history.back().map_or(0, |change| change.revision)
    }

    fn note(&mut self, change: Change) {
        if self.history.len() >= HISTORY
            && let Some(first) = self.history.pop_front()
        {
            self.dropped = first.revision;
            self.forgotten = self.forgotten.max(first.revision);
        }
        self.history.push_back(change);
        self.latest.give();
    }
}

/// All objects of all kinds.
#[derive(Debug)]
pub(super) struct Store {
    revision: u64,
    collections: BTreeMap<&'static str, Collection>,
}

impl Default for Store {
    fn default() -> Self {
        let collections = KINDS.iter().map(|kind| (kind.store, Collection::default())).collect();
        Self { revision: 0, collections }
    }
}

impl Store {
    /// The latest version.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The objects of a kind.
    pub fn collection(&mut self, kind: &Kind) -> &mut Collection {
        self.collections.entry(kind.store).or_default()
    }

    /// One object.
    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.collections.get(kind.store)?.objects.get(&(namespace.into(), name.into())).cloned()
    }

    /// All objects of a kind, sorted by namespace and name.
    pub fn all(&self, kind: &Kind) -> impl Iterator<Item = &Arc<Value>> {
        self.collections.get(kind.store).into_iter().flat_map(|found| found.objects.values())
    }

    /// The objects of a kind in one namespace.
    pub fn within<'a>(&'a self, kind: &Kind, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Value>> {
        let first = (namespace.to_owned(), String::new());
        self.collections
            .get(kind.store)
            .into_iter()
            .flat_map(move |found| found.objects.range(first.clone()..))
            .take_while(move |(key, _)| key.0 == namespace)
            .map(|(_, object)| object)
    }

    /// Writes an object with a new version. `None` if the object does not change.
    pub fn put(&mut self, kind: &Kind, mut new: Value) -> Option<Change> {
        let key = object::key(&new);
        let old = self.get(kind, &key.0, &key.1);
        if let Some(old) = &old {
            object::set_meta(&mut new, "resourceVersion", old["metadata"]["resourceVersion"].clone());
            if **old == new {
                return None;
            }
        }
        self.revision += 1;
        object::set_meta(&mut new, "resourceVersion", json!(self.revision.to_string()));
        let new = Arc::new(new);
        let change = Change { revision: self.revision, old, new: new.clone(), gone: false };
        let collection = self.collection(kind);
        collection.objects.insert(key, new);
        collection.note(change.clone());
        Some(change)
    }

    /// Removes an object.
    pub fn erase(&mut self, kind: &Kind, namespace: &str, name: &str) -> Option<Change> {
        let old = self.collection(kind).objects.remove(&(namespace.to_owned(), name.to_owned()))?;
        self.revision += 1;
        let mut gone = (*old).clone();
        object::set_meta(&mut gone, "resourceVersion", json!(self.revision.to_string()));
        let change = Change { revision: self.revision, old: Some(old), new: Arc::new(gone), gone: true };
        self.collection(kind).note(change.clone());
        Some(change)
    }

    /// Forgets the history of all kinds.
    pub fn forget(&mut self) {
        // Creates a version that no client has seen. As a result, even the latest list is too old to start a
        // watch from.
        self.revision += 1;
        let revision = self.revision;
        for collection in self.collections.values_mut() {
            collection.forgotten = revision;
        }
    }

    /// Compares the version that a writer sent with the version of the object.
    ///
    /// # Errors
    /// Returns 409 if the versions differ.
    pub fn check_version(kind: &Kind, old: &Value, given: &Value) -> Result<(), Refusal> {
        match given["metadata"]["resourceVersion"].as_str() {
            Some(given) if !given.is_empty() && old["metadata"]["resourceVersion"] != given => {
                Err(Refusal::modified(kind, object::name(old)))
            }
            _ => Ok(()),
        }
    }
}
