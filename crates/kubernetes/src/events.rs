//! Events on pods, nodes and machine records, which show the daemon's decisions in `kubectl describe`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use runtime::boxed;

use super::MANAGED_BY;
use super::cluster::Cluster;
use super::error::Error;
use super::records::{self, Versioned};
use model::{Node, Pod, Record};

/// The time for which an event is not repeated.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// The time after which an event that the API server could not accept may be sent again. In the meantime,
/// other events are sent.
const RETRY_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// The maximum number of remembered events. If there are more, the oldest are forgotten.
const REMEMBERED: usize = 4096;
/// The API server's limit for a note, in bytes.
const LONGEST_NOTE: usize = 1024;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// No action is needed.
    Normal,
    /// Something that an administrator should look at.
    Warning,
}

/// An event about a pod, a node or a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saying {
    /// Its type.
    pub kind: EventKind,
    /// The reason, one word in CamelCase.
    pub reason: &'static str,
    /// The action that was taken or decided.
    pub action: &'static str,
    /// Distinguishes events with the same object and reason: an event with a new code is sent immediately.
    /// The code contains no figures, because figures may change constantly.
    pub code: String,
    /// The message, which may contain figures.
    pub note: String,
}

/// Sends events about pods, nodes and machines, and limits repetitions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    cluster: Cluster,
    instance: Arc<str>,
    said: Arc<Mutex<Said>>,
}

#[derive(Debug, Default)]
struct Said {
    /// For each event, the time from which it may be sent again.
    fresh: BTreeMap<Key, Timestamp>,
    count: u64,
}

/// Identifies an event: the object's uid, the reason and the code.
type Key = (String, &'static str, String);

impl Said {
    fn is_fresh(&self, key: &Key, now: Timestamp) -> bool {
        self.fresh.get(key).is_some_and(|until| now < *until && until.duration_since(now) <= REPEAT_AFTER)
    }
}

impl Recorder {
    /// Creates a recorder whose events name `instance` (e.g. the name of its host) as the sender.
    pub fn new(cluster: Cluster, instance: &str) -> Self {
        Self { cluster, instance: instance.into(), said: Arc::default() }
    }

    /// Whether this event about the pod or node with this uid was sent too recently to be sent again now.
    pub fn has_said(&self, uid: &str, reason: &'static str, code: &str) -> bool {
        let key = (uid.to_owned(), reason, code.to_owned());
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.is_fresh(&key, self.cluster.clock.now())
    }

    /// Sends an event about a pod. An event that the API server refuses is not repeated sooner than one that
    /// it accepts.
    ///
    /// # Errors
    /// Returns an error if the call fails. Nothing depends on an event: log the error and continue.
    #[boxed]
    pub async fn event_on_pod(&self, pod: &Pod, saying: &Saying) -> Result<(), Error> {
        self.say(reference("Pod", Some(&pod.namespace), &pod.name, &pod.uid), saying).await
    }

    /// Sends an event about a node. Like the kubelet's events, it is created in the namespace `default`.
    ///
    /// # Errors
    /// Returns an error if the call fails. Nothing depends on an event: log the error and continue.
    #[boxed]
    pub async fn event_on_node(&self, node: &Node, saying: &Saying) -> Result<(), Error> {
        self.say(reference("Node", None, &node.name, &node.uid), saying).await
    }

    /// Sends an event about a machine. The event refers to the ConfigMap with the machine's record.
    ///
    /// # Errors
    /// Returns an error if the call fails. Nothing depends on an event: log the error and continue.
    #[boxed]
    pub async fn event_on_record(&self, stored: &Versioned<Record>, saying: &Saying) -> Result<(), Error> {
        let namespace = Some(self.cluster.namespace());
        let name = records::name(&stored.record);
        self.say(reference("ConfigMap", namespace, &name, &stored.uid), saying).await
    }

    async fn say(&self, about: ObjectReference, saying: &Saying) -> Result<(), Error> {
        let now = self.cluster.clock.now();
        let key = (about.uid.clone().unwrap_or_default(), saying.reason, saying.code.clone());
        let Some(number) = self.remember(&key, now) else { return Ok(()) };
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = about.name.clone().unwrap_or_default();
        let word = match saying.kind {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        };
        let event = Event {
            metadata: ObjectMeta {
                // The event's name consists of the object's name, followed by the time in hexadecimal, as in
                // client-go. The number at the end distinguishes two events with the same time.
                name: Some(format!("{name}.{:x}.{number:x}", now.as_nanosecond())),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            regarding: Some(about),
            reporting_controller: Some(MANAGED_BY.to_owned()),
            reporting_instance: Some(self.instance.to_string()),
            type_: Some(word.to_owned()),
            reason: Some(saying.reason.to_owned()),
            action: Some(saying.action.to_owned()),
            note: Some(shortened(&saying.note)),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.cluster.client.clone(), &namespace);
        let action = format!("send an event about `{name}`");
        let outcome = self.cluster.call(action, events.create(&PostParams::default(), &event)).await;
        if let Err(error) = &outcome
            && !error.is_refusal()
        {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if error.was_answered() {
                said.fresh.insert(key, now.saturating_add(RETRY_AFTER).unwrap_or(Timestamp::MAX));
            } else {
                said.fresh.remove(&key);
            }
        }
        outcome.map(|_| ())
    }

    /// Remembers an event and returns its number. Returns `None` if the same event was sent recently.
    fn remember(&self, key: &Key, now: Timestamp) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_fresh(key, now) {
            return None;
        }
        if said.fresh.len() >= REMEMBERED
            && let Some(oldest) =
                said.fresh.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone())
        {
            said.fresh.remove(&oldest);
        }
        said.fresh.insert(key.clone(), now.saturating_add(REPEAT_AFTER).unwrap_or(Timestamp::MAX));
        said.count += 1;
        Some(said.count)
    }
}

fn reference(kind: &str, namespace: Option<&str>, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: namespace.map(ToOwned::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn shortened(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let mut end = LONGEST_NOTE - '…'.len_utf8();
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &note[..end])
}
