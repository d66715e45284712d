//! Functions with which a test changes and inspects the cluster without using its API.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Kube,
    kinds::{self, Kind},
    object::{self, Key},
    patch,
    path::{self, Query, Target},
    removal::Options,
    scheduler::Plugin,
    state::{State, Work},
};

/// The maximum number of calls that are recorded.
const LOG: usize = 100_000;

/// A call to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// The time when the call ended.
    pub time: Timestamp,
    /// HTTP method.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// The HTTP status, or 0 if there was no answer.
    pub status: u16,
}

/// What a fault does to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The call is carried out later.
    Delay(Duration),
    /// The call is carried out, but its answer is delayed. The data may be out of date when the answer
    /// arrives.
    WorkThenDelay(Duration),
    /// The call is not carried out. This is its answer.
    Answer {
        /// Status code.
        status: u16,
        /// Body.
        body: Value,
    },
    /// The call is carried out, but its answer is lost.
    WorkThenLose,
    /// The call is lost on its way.
    Lose,
}

/// A fault that applies to the next matching calls.
pub type Fault = crate::fault::Fault<Effect>;

impl State {
    pub(super) fn record(&mut self, record: CallRecord) {
        if self.calls.len() >= LOG {
            self.calls.pop_front();
        }
        self.calls.push_back(record);
    }

    fn kind_of(object: &Value) -> Option<&'static Kind> {
        kinds::by_kind(object["kind"].as_str()?)
    }
}

impl Kube {
    /// Creates an object, or merges it into the existing one, including its status. Returns the stored
    /// object.
    ///
    /// # Errors
    /// Returns an error if the kind is unknown, or the API server's message if the object is invalid.
    pub fn apply(&self, object: &Value) -> Result<Arc<Value>, String> {
        let mut state = self.state();
        let kind = State::kind_of(object).ok_or_else(|| format!("unknown kind {}", object["kind"]))?;
        let mut object = object.clone();
        if kind.namespaced && object::namespace(&object).is_empty() {
            object::set_meta(&mut object, "namespace", json!("default"));
        }
        let key = object::key(&object);
        let old = state.store.get(kind, &key.0, &key.1);
        let mut new = old.as_deref().cloned().unwrap_or_else(|| json!({}));
        patch::merge(&mut new, &object);
        state.admit(kind, old.as_deref(), &mut new).map_err(|refusal| refusal.body().to_string())?;
        Ok(if let Some(old) = old {
            state.replace(kind, &old, new)
        } else {
            if new["status"].is_null() && kind.status {
                super::admission::fresh_status(kind, &mut new);
            }
            state.create(kind, new)
        })
    }

    /// Returns an object by its kind, such as `Node`. The namespace of a cluster-wide object is empty.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.state().store.get(kinds::by_kind(kind)?, namespace, name)
    }

    /// All objects of a kind, sorted by namespace and name.
    pub fn list(&self, kind: &str) -> Vec<Arc<Value>> {
        let state = self.state();
        kinds::by_kind(kind).map(|kind| state.store.all(kind).cloned().collect()).unwrap_or_default()
    }

    /// Returns the version of the latest change to a kind, or 0 before the first change. A caller can poll
    /// this version to detect changes.
    pub fn latest_change(&self, kind: &str) -> u64 {
        kinds::by_kind(kind).map_or(0, |kind| self.state().store.collection(kind).latest_change())
    }

    /// Deletes an object as `kubectl delete` does.
    pub fn remove(&self, kind: &str, namespace: &str, name: &str) {
        if let Some(kind) = kinds::by_kind(kind) {
            self.state().remove(kind, &(namespace.into(), name.into()), &Options::default());
        }
    }

    /// Evicts a pod as `kubectl drain` does. Returns whether the eviction was allowed.
    pub fn evict_by_hand(&self, namespace: &str, name: &str) -> bool {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let Ok(Target::Object(route)) = path::target(&path) else { return false };
        let eviction = json!({ "metadata": { "name": name, "namespace": namespace } }).to_string();
        self.state().evict(&route, &Query::parse(None), eviction.as_bytes()).is_ok()
    }

    /// Applies a merge patch to an object. Returns whether the object exists.
    pub fn patch_by_hand(&self, kind: &str, namespace: &str, name: &str, patch: &Value) -> bool {
        let Some(kind) = kinds::by_kind(kind) else { return false };
        let key: Key = (namespace.into(), name.into());
        self.state().edit(kind, &key, |object| patch::merge(object, patch)).is_some()
    }

    /// Sets the number of replicas of a Deployment. Returns whether the Deployment exists.
    pub fn scale(&self, namespace: &str, name: &str, replicas: u32) -> bool {
        self.patch_by_hand("Deployment", namespace, name, &json!({ "spec": { "replicas": replicas } }))
    }

    /// Adds a fault for the next matching calls.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all faults.
    pub fn forget_faults(&self) {
        self.state().faults.clear();
    }

    /// Makes the API server unreachable and ends its watches, or makes it reachable again. The scheduler, the
    /// controllers and the kubelets keep working.
    pub fn set_away(&self, away: bool) {
        let mut state = self.state();
        state.away = away;
        if away {
            state.cut.give();
        }
    }

    /// The calls so far, the oldest first.
    pub fn calls(&self) -> Vec<CallRecord> {
        self.state().calls.iter().cloned().collect()
    }

    /// Forgets the history of all objects, and ends all watches. Later watches and lists from older versions
    /// are answered with 410.
    pub fn expire_resource_versions(&self) {
        let mut state = self.state();
        state.store.forget();
        state.cut.give();
    }

    /// Cuts a kubelet off from the API server, as a broken network does, or reconnects it.
    pub fn set_kubelet_silent(&self, node: &str, silent: bool) {
        let mut state = self.state();
        if let Some(kubelet) = state.kubelets.get_mut(node) {
            kubelet.silent = silent;
        }
        if !silent {
            state.wake(Work::Beat(node.into()), Duration::ZERO);
        }
    }

    /// Pauses the scheduler, or lets it continue.
    pub fn set_scheduler_rests(&self, rests: bool) {
        let mut state = self.state();
        state.scheduler_rests = rests;
        state.wake(Work::Schedule, Duration::ZERO);
    }

    /// Adds a scheduler filter that no other component knows about, or removes it.
    pub fn set_plugin(&self, plugin: Option<Plugin>) {
        let mut state = self.state();
        state.plugin = plugin;
        state.wake(Work::Schedule, Duration::ZERO);
    }

    /// While `never` is set, pods do not become Ready.
    pub fn set_pods_never_ready(&self, never: bool) {
        self.state().pods_never_ready = never;
    }

    /// While `never` is set, Nodes that register do not become Ready, as if the network plugin did not come
    /// up.
    pub fn set_nodes_never_ready(&self, never: bool) {
        self.state().nodes_never_ready = never;
    }

    /// Sets whether all kubelets request their serving certificates, as with `serverTLSBootstrap` in their
    /// configuration.
    pub fn set_server_tls_bootstrap(&self, on: bool) {
        let mut state = self.state();
        state.server_tls_bootstrap = on;
        let kubelets: Vec<String> = state.kubelets.keys().cloned().collect();
        for node in kubelets {
            state.will_ask_to_serve(&node);
        }
    }

    /// Restarts a kubelet. It registers its Node again if the Node is gone.
    pub fn restart_kubelet(&self, node: &str) {
        let mut state = self.state();
        let delay = state.spec.timings.kubelet_restart;
        state.wake(Work::Register(node.into()), delay);
    }
}
