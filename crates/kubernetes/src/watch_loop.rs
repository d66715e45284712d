//! One watch: list, follow, convert, and start over after any failure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::call_error::{CallError, kind_of_status};
use super::convert::ConvertError;
use super::error::ErrorKind;
use super::object_cache::Store;
use super::wake_signals::Worth;
use super::watch_health::Board;
use runtime::error_chain::chain;

/// The duration of one watch request; the next request resumes where it ended. This limits how long a dead
/// connection goes unnoticed.
pub(super) const WATCH_SECONDS: u32 = 60;
/// The number of objects in one page of a list.
const PAGE: u32 = 500;
/// The initial and the maximum wait after a failure.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// The wait before a kind that the API server does not serve, or refuses, is read again.
pub(super) const GIVEN_UP_WAIT: Duration = Duration::from_mins(5);

/// Converts an object to plain data.
pub(super) type Convert<K, T> = Box<dyn Fn(&K) -> Result<T, ConvertError> + Send + Sync>;

/// A watch of one kind of object.
pub(super) struct Feed<K, T> {
    pub kind: &'static str,
    pub api: Api<DeserializeGuard<K>>,
    /// A field selector, if not all objects of the kind are followed.
    pub fields: Option<&'static str>,
    pub convert: Convert<K, T>,
    /// How urgent a change is.
    pub worth: fn(Option<&T>, Option<&T>) -> Worth,
    pub store: Store<T>,
    pub board: Board,
}

/// A list that is still being received.
struct Incoming<T> {
    objects: BTreeMap<String, Arc<T>>,
    malformed: BTreeSet<String>,
}

impl<T> Default for Incoming<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), malformed: BTreeSet::new() }
    }
}

impl<K, T> Feed<K, T>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
    T: PartialEq + Send + Sync + 'static,
{
    /// Follows the kind until the future is dropped.
    ///
    /// After any failure, this function waits, each time twice as long as before. It then lists all objects
    /// again instead of resuming the watch. A resumed watch is silent until something changes, so only a list
    /// proves that the connection works again.
    pub(super) async fn follow(self) {
        let mut waits = Waits::new(self.kind);
        loop {
            let mut settings = watcher::Config::default().page_size(PAGE).timeout(WATCH_SECONDS);
            if let Some(fields) = self.fields {
                settings = settings.fields(fields);
            }
            let mut events = pin!(watcher(self.api.clone(), settings));
            let mut incoming = Incoming::default();
            let mut given_up = false;
            let begun = Instant::now();
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => self.take(event, &mut incoming),
                    Err(error) => {
                        let (kind, what) = summary(error);
                        if kind != Some(ErrorKind::Expired) {
                            given_up = self.board.failed(self.kind, kind, what);
                        }
                        break;
                    }
                }
            }
            if begun.elapsed() >= WAITS.1 {
                waits.reset();
            }
            sleep(if given_up { GIVEN_UP_WAIT } else { waits.next() }).await;
        }
    }

    fn take(&self, event: Event<DeserializeGuard<K>>, incoming: &mut Incoming<T>) {
        match event {
            Event::Init => *incoming = Incoming::default(),
            Event::InitApply(object) => self.list(object, incoming),
            Event::InitDone => self.swap(std::mem::take(incoming)),
            Event::Apply(object) => {
                let key = key(object.meta());
                if let Some(new) = self.read(&key, object) {
                    let new = Arc::new(new);
                    let old = self.store.put(key, new.clone());
                    self.signal(old.as_deref(), Some(&new));
                }
            }
            Event::Delete(object) => {
                let key = key(object.meta());
                self.board.well_formed(self.kind, &key);
                let old = self.store.take(&key);
                self.signal(old.as_deref(), None);
            }
        }
    }

    /// Takes in an object of a new list. If the object is unchanged, the stored copy is kept. If it is
    /// malformed, its last good version is kept, so that a pod does not seem to be gone.
    fn list(&self, object: DeserializeGuard<K>, incoming: &mut Incoming<T>) {
        let key = key(object.meta());
        let known = self.store.get(&key);
        let object = if let Some(new) = self.read(&key, object) {
            known.filter(|known| **known == new).unwrap_or_else(|| Arc::new(new))
        } else {
            incoming.malformed.insert(key.clone());
            let Some(known) = known else { return };
            known
        };
        incoming.objects.insert(key, object);
    }

    fn swap(&self, incoming: Incoming<T>) {
        self.board.keep_malformed(self.kind, |object| incoming.malformed.contains(object));
        let new = incoming.objects.clone();
        let old = self.store.replace(incoming.objects);
        self.board.live(self.kind);
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let changes = keys.into_iter().map(|key| {
            let (old, new) = (old.get(key).map(AsRef::as_ref), new.get(key).map(AsRef::as_ref));
            if old == new { Worth::Nothing } else { (self.worth)(old, new) }
        });
        self.board.bump(changes.max().unwrap_or(Worth::Nothing));
    }

    fn read(&self, key: &str, object: DeserializeGuard<K>) -> Option<T> {
        let converted = match object.0 {
            Ok(object) => (self.convert)(&object).map_err(|error| error.to_string()),
            Err(invalid) => Err(invalid.error),
        };
        match converted {
            Ok(object) => {
                self.board.well_formed(self.kind, key);
                Some(object)
            }
            Err(why) => {
                self.board.malformed(self.kind, key, &why);
                None
            }
        }
    }

    fn signal(&self, old: Option<&T>, new: Option<&T>) {
        if old.is_some() || new.is_some() {
            self.board.bump((self.worth)(old, new));
        }
    }
}

/// `namespace/name`, or the name alone.
pub(super) fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn summary(error: watcher::Error) -> (Option<ErrorKind>, String) {
    match error {
        watcher::Error::InitialListFailed(inner)
        | watcher::Error::WatchStartFailed(inner)
        | watcher::Error::WatchFailed(inner) => {
            let inner = CallError::from(inner);
            (Some(inner.kind()), chain(&inner))
        }
        watcher::Error::WatchError(status) => (Some(kind_of_status(&status)), status.message.clone()),
        watcher::Error::NoResourceVersion => {
            (None, "the API server returned a list without a `resourceVersion`".to_owned())
        }
    }
}

/// Waits that double each time, with a jitter that depends only on the kind. The jitter prevents all watches
/// from reconnecting at the same time.
pub(super) struct Waits {
    next: Duration,
    jitter: fastrand::Rng,
}

impl Waits {
    pub(super) fn new(kind: &str) -> Self {
        let seed = kind.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Self { next: WAITS.0, jitter: fastrand::Rng::with_seed(seed) }
    }

    pub(super) fn reset(&mut self) {
        self.next = WAITS.0;
    }

    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.75 + self.jitter.f64() / 2.0);
        self.next = (self.next * 2).min(WAITS.1);
        wait
    }
}
