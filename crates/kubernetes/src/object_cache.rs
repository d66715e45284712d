//! Caches the API server's objects of one kind as plain data.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Objects by `namespace/name` (or by name), shared with the snapshots that contain them.
#[derive(Debug)]
pub(super) struct Store<T> {
    objects: Arc<Mutex<BTreeMap<String, Arc<T>>>>,
    listed: Arc<AtomicBool>,
    /// The number of lists stored so far.
    lists: watch::Sender<u64>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), listed: self.listed.clone(), lists: self.lists.clone() }
    }
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { objects: Arc::default(), listed: Arc::default(), lists: watch::Sender::default() }
    }
}

impl<T> Store<T> {
    /// All objects, ordered by key.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.lock().values().cloned().collect()
    }

    /// One object.
    pub(super) fn get(&self, key: &str) -> Option<Arc<T>> {
        self.lock().get(key).cloned()
    }

    /// Stores an object and returns the previous one.
    pub(super) fn put(&self, key: String, object: Arc<T>) -> Option<Arc<T>> {
        self.lock().insert(key, object)
    }

    /// Removes an object.
    pub(super) fn take(&self, key: &str) -> Option<Arc<T>> {
        self.lock().remove(key)
    }

    /// Replaces all objects with those of a new list, and returns the previous objects.
    pub(super) fn replace(&self, objects: BTreeMap<String, Arc<T>>) -> BTreeMap<String, Arc<T>> {
        let before = std::mem::replace(&mut *self.lock(), objects);
        self.listed.store(true, Ordering::Release);
        self.lists.send_modify(|lists| *lists += 1);
        before
    }

    /// Forgets all objects, as if no list had ever been stored.
    pub(super) fn forget(&self) -> BTreeMap<String, Arc<T>> {
        let before = std::mem::take(&mut *self.lock());
        self.listed.store(false, Ordering::Release);
        before
    }

    /// Whether a complete list was stored.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// A number that changes with every list that is stored.
    pub(super) fn lists(&self) -> watch::Receiver<u64> {
        self.lists.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<T>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
