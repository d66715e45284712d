//! Everything that changes, and the agenda of what is to be done about it.
//!
//! Every write goes through [`State::put`] and [`State::erase`]: they keep the indexes and put on the agenda
//! what follows from the change. Controllers, scheduler, and kubelets are entries of the agenda; each runs
//! whole, under the lock, and never waits.

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

/// Something to be done at some time. Each stands on the agenda at most once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Taints that follow from a Node's conditions and its cordon.
    NodeTaints(String),
    /// One pass of the scheduler.
    Schedule,
    /// The status of the budgets of a namespace.
    Budgets(String),
    /// The controller of a workload: its kind's store, namespace and name.
    Workload(&'static str, Key),
    /// All DaemonSets, after a change of the Nodes.
    DaemonSets,
    /// Signatures and expiry of bootstrap tokens.
    Tokens,
    /// Tokens in the Secrets of service accounts.
    AccountTokens,
    /// The containers of a pod start.
    Start(Key, String),
    /// A pod becomes Ready.
    Ready(Key, String),
    /// The containers of a Job's pod end by themselves.
    Complete(Key, String),
    /// The containers of a deleted pod end.
    Stop(Key, String),
    /// A kubelet registers its Node.
    Register(String),
    /// A kubelet becomes ready.
    NodeReady(String),
    /// A kubelet makes its Lease.
    Lease(String),
    /// A kubelet's beat.
    Beat(String),
    /// A look at whether a kubelet is silent.
    Silence(String),
    /// A pod's toleration of a taint ends.
    TaintEviction(Key, String),
    /// A dead Node's Lease goes.
    LeaseGone(String),
    /// Pods of a Node that is gone.
    PodGc(String),
    /// What a Node that is out of service lets go of.
    OutOfService(String),
    /// Volumes that are to be attached or detached.
    Volumes,
    /// Objects whose owner is gone.
    Orphans(String),
    /// A kubelet asks for its serving certificate.
    AskToServe(String),
    /// A request for a certificate is signed.
    Sign(String),
    /// A machine that is no VM has booted, or has shut down.
    Power(String),
    /// A namespace that is being deleted.
    NamespaceGone(String),
}

/// The state of the cluster.
pub(super) struct State {
    pub spec: KubeSpec,
    pub store: Store,
    pub pods: Pods,
    /// Objects by the uids of their owners: their kind's store and key.
    pub owned: BTreeMap<String, BTreeSet<(&'static str, Key)>>,
    /// By the uids of Jobs, the uids of their pods that have succeeded, be they there or not.
    pub succeeded: BTreeMap<String, BTreeSet<String>>,
    pub kubelets: BTreeMap<String, Kubelet>,
    pub metal: BTreeMap<String, Metal>,
    pub resets: Vec<Reset>,
    pub unneeded: Unneeded,
    pub pods_never_ready: bool,
    pub scheduler_rests: bool,
    pub plugin: Option<Plugin>,
    pub nodes_never_ready: bool,
    /// The kubelets' configuration says `serverTLSBootstrap`.
    pub server_tls_bootstrap: bool,
    pub next_cidr: u32,
    pub faults: Vec<Fault>,
    pub calls: VecDeque<CallRecord>,
    pub away: bool,
    /// Watches end when this changes.
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

    /// Wall-clock time in whole seconds, as most fields have it.
    pub fn stamp(&self) -> String {
        object::stamp(self.now())
    }

    /// A fresh uid.
    pub fn new_uid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.random.u128(..).to_be_bytes()).into_uuid().to_string()
    }

    /// A random end for a generated name, in the alphabet of the API server.
    pub fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5)
            .map(|_| {
                let at = self.random.usize(..ALPHABET.len());
                ALPHABET.get(at).map_or('x', |byte| char::from(*byte))
            })
            .collect()
    }

    /// Puts something on the agenda, at the earlier time where it is there already.
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

    /// Takes something off the agenda.
    pub fn forget(&mut self, work: &Work) {
        if let Some(entry) = self.entries.remove(work) {
            self.agenda.remove(&entry);
        }
    }

    /// When the next entry is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.agenda.first_key_value().map(|((due, _), _)| *due)
    }

    /// The first entry that is due.
    pub fn take_due(&mut self) -> Option<Work> {
        let entry = self.agenda.first_entry()?;
        if entry.key().0 > Instant::now() {
            return None;
        }
        let work = entry.remove();
        self.entries.remove(&work);
        Some(work)
    }

    /// Writes an object and sees to what follows. Returns what is stored.
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

    /// Removes an object and sees to what follows. Returns it with the version of its deletion.
    pub fn erase(&mut self, kind: &'static Kind, key: &Key) -> Option<Arc<Value>> {
        let change = self.store.erase(kind, &key.0, &key.1)?;
        let gone = change.new.clone();
        self.follow(kind, &change);
        Some(gone)
    }

    /// Makes an object by hand or by a controller: gives it uid, time and generation.
    pub fn create(&mut self, kind: &'static Kind, mut object: Value) -> Arc<Value> {
        self.stamp_new(kind, &mut object);
        self.put(kind, object)
    }

    /// Sets what the server sets in a new object.
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

    /// Changes an object; counts its generation if its spec changes. `None` if it is not there.
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

    /// Writes the successor of an object: counts its generation, removes it with its last finalizer.
    pub fn replace(&mut self, kind: &'static Kind, old: &Value, mut new: Value) -> Arc<Value> {
        // A binding is no change of the spec.
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

    /// Announces something for a live display.
    pub fn announce(&self, event: KubeEvent) {
        // There may be no listener; that is fine.
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
