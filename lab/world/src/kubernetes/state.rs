//! The cluster's state, and the agenda of work that results from changes to it.
//!
//! Every write goes through [`State::put`] and [`State::erase`]. They update the indexes, and put the
//! consequences of the change on the agenda. The controllers, the scheduler and the kubelets run as entries
//! on the agenda. Each entry runs to completion under the lock, and never waits.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, broadcast},
    time::Instant,
};

use super::{
    KubeEvent, admission,
    hands::{CallRecord, Fault},
    kinds::Kind,
    kubelet::Kubelet,
    metal::{Metal, Reset},
    object::{self, Key},
    pods::Pods,
    scheduler::Plugin,
    spec::KubeSpec,
    store::{Change, Store},
    volumes::Unneeded,
};
use crate::{clock::WorldClock, signal::Signal};

/// An entry on the agenda. Equal entries appear only once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Updates the taints of a Node from its conditions and its cordon.
    NodeTaints(String),
    /// Runs one pass of the scheduler.
    Schedule,
    /// Updates the status of the budgets of a namespace.
    Budgets(String),
    /// Runs the controller of a workload, identified by the `store` of its kind and by its key.
    Workload(&'static str, Key),
    /// Runs the controller for all DaemonSets after a change to the Nodes.
    DaemonSets,
    /// Updates the signatures of bootstrap tokens, and removes expired tokens.
    Tokens,
    /// Adds the missing tokens to the Secrets of service accounts.
    AccountTokens,
    /// Starts the containers of a pod.
    Start(Key, String),
    /// Makes a pod Ready.
    Ready(Key, String),
    /// Completes a Job's pod, whose containers end by themselves.
    Complete(Key, String),
    /// Stops the containers of a deleted pod.
    Stop(Key, String),
    /// Registers a kubelet's Node.
    Register(String),
    /// Sends a kubelet's first complete report.
    NodeReady(String),
    /// Creates a kubelet's Lease.
    Lease(String),
    /// Sends a kubelet's heartbeat.
    Beat(String),
    /// Checks whether a kubelet is silent.
    Silence(String),
    /// Evicts a pod whose toleration of a taint has run out.
    TaintEviction(Key, String),
    /// Removes the Lease of a Node that is gone.
    LeaseGone(String),
    /// Removes the pods of a Node that is gone.
    PodGc(String),
    /// Releases the pods and volumes of a Node that is out of service.
    OutOfService(String),
    /// Attaches and detaches volumes.
    Volumes,
    /// Removes objects whose owner is gone.
    Orphans(String),
    /// Requests a kubelet's serving certificate.
    AskToServe(String),
    /// Signs a request for a certificate.
    Sign(String),
    /// Completes the boot or the shutdown of a machine that is not a VM.
    Power(String),
    /// Empties a namespace that is being deleted.
    NamespaceGone(String),
}

/// The state of the cluster.
pub(super) struct State {
    pub spec: KubeSpec,
    pub store: Store,
    pub pods: Pods,
    /// The objects of each owner, by the owner's uid. Each object is identified by the `store` of its kind
    /// and by its key.
    pub owned: BTreeMap<String, BTreeSet<(&'static str, Key)>>,
    /// For each Job's uid, the uids of its pods that have succeeded, whether or not the pods still exist.
    pub succeeded: BTreeMap<String, BTreeSet<String>>,
    pub kubelets: BTreeMap<String, Kubelet>,
    pub metal: BTreeMap<String, Metal>,
    pub resets: Vec<Reset>,
    pub unneeded: Unneeded,
    pub pods_never_ready: bool,
    pub scheduler_rests: bool,
    pub plugin: Option<Plugin>,
    pub nodes_never_ready: bool,
    /// Whether the cluster's kubelet configuration sets `serverTLSBootstrap`.
    pub server_tls_bootstrap: bool,
    pub next_cidr: u32,
    pub faults: Vec<Fault>,
    pub calls: VecDeque<CallRecord>,
    pub away: bool,
    /// The signal that ends all watches.
    pub cut: Signal,
    pub random: fastrand::Rng,
    pub events: broadcast::Sender<KubeEvent>,
    pub clock: WorldClock,
    pub heart: Arc<Notify>,
    agenda: BTreeMap<(Instant, u64), Work>,
    entries: BTreeMap<Work, (Instant, u64)>,
    sequence: u64,
}

impl State {
    pub fn new(
        spec: KubeSpec,
        clock: WorldClock,
        seed: u64,
        heart: Arc<Notify>,
        events: broadcast::Sender<KubeEvent>,
    ) -> Self {
        Self {
            spec,
            store: Store::default(),
            pods: Pods::default(),
            owned: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            kubelets: BTreeMap::new(),
            metal: BTreeMap::new(),
            resets: Vec::new(),
            unneeded: Unneeded::default(),
            pods_never_ready: false,
            scheduler_rests: false,
            plugin: None,
            nodes_never_ready: false,
            server_tls_bootstrap: false,
            next_cidr: 0,
            faults: Vec::new(),
            calls: VecDeque::new(),
            away: false,
            cut: Signal::default(),
            random: fastrand::Rng::with_seed(seed),
            events,
            clock,
            heart,
            agenda: BTreeMap::new(),
            entries: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Wall-clock time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The wall-clock time in whole seconds, in the format of most fields.
    pub fn stamp(&self) -> String {
        object::stamp(self.now())
    }

    /// A fresh uid.
    pub fn new_uid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.random.u128(..).to_be_bytes()).into_uuid().to_string()
    }

    /// Returns a random suffix for a generated name. It uses the API server's alphabet.
    pub fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5)
            .map(|_| {
                let at = self.random.usize(..ALPHABET.len());
                ALPHABET.get(at).map_or('x', |byte| char::from(*byte))
            })
            .collect()
    }

    /// Puts an entry on the agenda. If the agenda already contains it, the earlier time wins.
    pub fn wake(&mut self, work: Work, delay: Duration) {
        let due = Instant::now() + delay;
        if let Some(known) = self.entries.get(&work).copied() {
            if known.0 <= due {
                return;
            }
            self.agenda.remove(&known);
        }
        self.sequence += 1;
        let entry = (due, self.sequence);
        self.agenda.insert(entry, work.clone());
        self.entries.insert(work, entry);
        if self.agenda.first_key_value().is_some_and(|(first, _)| *first == entry) {
            self.heart.notify_one();
        }
    }

    /// Removes an entry from the agenda.
    pub fn forget(&mut self, work: &Work) {
        if let Some(entry) = self.entries.remove(work) {
            self.agenda.remove(&entry);
        }
    }

    /// When the next entry is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.agenda.first_key_value().map(|((due, _), _)| *due)
    }

    /// Removes and returns the first entry, if it is due.
    pub fn take_due(&mut self) -> Option<Work> {
        let entry = self.agenda.first_entry()?;
        if entry.key().0 > Instant::now() {
            return None;
        }
        let work = entry.remove();
        self.entries.remove(&work);
        Some(work)
    }

    /// Writes an object and reacts to the change. Returns the stored object.
    pub fn put(&mut self, kind: &'static Kind, object: Value) -> Arc<Value> {
        let key = object::key(&object);
        match self.store.put(kind, object) {
            Some(change) => {
                let new = change.new.clone();
                self.follow(kind, &change);
                new
            }
            None => self.store.get(kind, &key.0, &key.1).unwrap_or_default(),
        }
    }

    /// Removes an object and reacts to the change. Returns the object with the version of its deletion.
    pub fn erase(&mut self, kind: &'static Kind, key: &Key) -> Option<Arc<Value>> {
        let change = self.store.erase(kind, &key.0, &key.1)?;
        let gone = change.new.clone();
        self.follow(kind, &change);
        Some(gone)
    }

    /// Creates an object for a test or a controller, and sets its uid, creation time and generation.
    pub fn create(&mut self, kind: &'static Kind, mut object: Value) -> Arc<Value> {
        self.stamp_new(kind, &mut object);
        self.put(kind, object)
    }

    /// Sets the fields of a new object that the server assigns.
    pub fn stamp_new(&mut self, kind: &'static Kind, object: &mut Value) {
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
        let (uid, now) = (self.new_uid(), self.stamp());
        object::set_meta(object, "uid", json!(uid));
        object::set_meta(object, "creationTimestamp", json!(now));
        if kind.plural == "pods" && !object::list(object, "/spec/schedulingGates").is_empty() {
            admission::mark_gated(object, &now);
        }
        object::drop_meta(object, "resourceVersion");
        if kind.generation {
            object::set_meta(object, "generation", json!(1));
        }
    }

    /// Changes an object, and increments its generation if its spec changes. `None` if the object does not
    /// exist.
    pub fn edit(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        change: impl FnOnce(&mut Value),
    ) -> Option<Arc<Value>> {
        let old = self.store.get(kind, &key.0, &key.1)?;
        let mut new = (*old).clone();
        change(&mut new);
        Some(self.replace(kind, &old, new))
    }

    /// Writes the new state of an object. Increments its generation if its spec changes, and removes the
    /// object if its last finalizer is gone.
    pub fn replace(&mut self, kind: &'static Kind, old: &Value, mut new: Value) -> Arc<Value> {
        // Binding a pod does not count as a change to the pod's spec.
        let bound =
            kind.plural == "pods" && old["spec"]["nodeName"].is_null() && !new["spec"]["nodeName"].is_null();
        let changed = |part: &str| old[part] != new[part];
        if kind.generation && (changed("spec") || changed("template")) && !bound {
            let generation = object::number(old, "/metadata/generation").unwrap_or(0) + 1;
            object::set_meta(&mut new, "generation", json!(generation));
        }
        let finished = object::is_terminating(&new)
            && object::list(&new, "/metadata/finalizers").is_empty()
            && !object::list(old, "/metadata/finalizers").is_empty()
            && (kind.plural != "pods" || new["metadata"]["deletionGracePeriodSeconds"] == 0);
        let stored = self.put(kind, new);
        if finished { self.erase(kind, &object::key(&stored)).unwrap_or(stored) } else { stored }
    }

    /// Sends an event to live displays.
    pub fn announce(&self, event: KubeEvent) {
        // An error means that there is no listener, which is fine.
        let _ = self.events.send(event);
    }

    fn follow(&mut self, kind: &'static Kind, change: &Change) {
        let key = object::key(&change.new);
        if let Some(old) = &change.old {
            for owner in object::list(old, "/metadata/ownerReferences") {
                let uid = object::text(owner, "/uid");
                if let Some(owned) = self.owned.get_mut(uid) {
                    owned.remove(&(kind.store, key.clone()));
                    if owned.is_empty() {
                        self.owned.remove(uid);
                    }
                }
            }
        }
        if change.gone {
            let uid = object::uid(&change.new).to_owned();
            if self.owned.contains_key(&uid) {
                let delay = self.spec.timings.controller;
                self.wake(Work::Orphans(uid), delay);
            }
        } else {
            for owner in object::list(&change.new, "/metadata/ownerReferences") {
                let uid = object::text(owner, "/uid").to_owned();
                self.owned.entry(uid).or_default().insert((kind.store, key.clone()));
            }
        }
        self.react(kind, &key, change);
    }
}
