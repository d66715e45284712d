//! What a test does to the cluster, past its API.

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

/// Calls that are remembered.
const LOG: usize = 100_000;

/// A call that was answered, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// When its answer was there.
    pub time: Timestamp,
    /// HTTP method.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// Status, 0 if there was no answer.
    pub status: u16,
}

/// What a fault does to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The call is carried out later.
    Delay(Duration),
    /// The call is carried out, and its answer is this long on its way: what was read may be out of date by
    /// then.
    WorkThenDelay(Duration),
    /// Nothing is done, and this is the answer.
    Answer {
        /// Status code.
        status: u16,
        /// Body.
        body: Value,
    },
    /// The call is carried out, its answer is lost.
    WorkThenLose,
    /// The call is lost on its way.
    Lose,
}

/// A fault for the next matching calls.
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
    /// Makes an object, or merges it into the one that is there; its status too. Returns what is stored, or
    /// why it was refused.
    ///
    /// # Errors
    /// The kind is unknown, or the object is invalid: the API server's message.
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

    /// One object by its kind, such as `Node`. The namespace of a cluster-wide one is empty.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.state().store.get(kinds::by_kind(kind)?, namespace, name)
    }

    /// All objects of a kind by namespace and name.
    pub fn list(&self, kind: &str) -> Vec<Arc<Value>> {
        let state = self.state();
        kinds::by_kind(kind).map(|kind| state.store.all(kind).cloned().collect()).unwrap_or_default()
    }

    /// The version of the latest change of a kind, 0 before the first: a reader that looks all the time sees
    /// whether there is anything new.
    pub fn latest_change(&self, kind: &str) -> u64 {
        kinds::by_kind(kind).map_or(0, |kind| self.state().store.collection(kind).latest_change())
    }

    /// Deletes an object as `kubectl delete` does.
    pub fn remove(&self, kind: &str, namespace: &str, name: &str) {
        if let Some(kind) = kinds::by_kind(kind) {
            self.state().remove(kind, &(namespace.into(), name.into()), &Options::default());
        }
    }

    /// Evicts a pod as `kubectl drain` does; says whether it was allowed.
    pub fn evict_by_hand(&self, namespace: &str, name: &str) -> bool {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let Ok(Target::Object(route)) = path::target(&path) else { return false };
        let eviction = json!({ "metadata": { "name": name, "namespace": namespace } }).to_string();
        self.state().evict(&route, &Query::parse(None), eviction.as_bytes()).is_ok()
    }

    /// Changes an object by a merge patch; says whether it is there.
    pub fn patch_by_hand(&self, kind: &str, namespace: &str, name: &str, patch: &Value) -> bool {
        let Some(kind) = kinds::by_kind(kind) else { return false };
        let key: Key = (namespace.into(), name.into());
        self.state().edit(kind, &key, |object| patch::merge(object, patch)).is_some()
    }

    /// Sets the replicas of a Deployment.
    pub fn scale(&self, namespace: &str, name: &str, replicas: u32) -> bool {
        self.patch_by_hand("Deployment", namespace, name, &json!({ "spec": { "replicas": replicas } }))
    }

    /// Adds a fault for the next matching calls.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Takes back all faults.
    pub fn forget_faults(&self) {
        self.state().faults.clear();
    }

    /// Makes the API server unreachable and ends its watches, or ends that. Scheduler, controllers and
    /// kubelets go on.
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

    /// Forgets the past of all objects, so that watches and lists from before are answered with 410.
    pub fn expire_resource_versions(&self) {
        let mut state = self.state();
        state.store.forget();
        state.cut.give();
    }

    /// Makes a kubelet silent as a broken network does, or lets it be heard again.
    pub fn set_kubelet_silent(&self, node: &str, silent: bool) {
        let mut state = self.state();
        if let Some(kubelet) = state.kubelets.get_mut(node) {
            kubelet.silent = silent;
        }
        if !silent {
            state.wake(Work::Beat(node.into()), Duration::ZERO);
        }
    }

    /// Keeps the scheduler from looking at any pod, or lets it go on.
    pub fn set_scheduler_rests(&self, rests: bool) {
        let mut state = self.state();
        state.scheduler_rests = rests;
        state.wake(Work::Schedule, Duration::ZERO);
    }

    /// Gives the scheduler a filter that no other component knows of, or takes it away.
    pub fn set_plugin(&self, plugin: Option<Plugin>) {
        let mut state = self.state();
        state.plugin = plugin;
        state.wake(Work::Schedule, Duration::ZERO);
    }

    /// Makes the pods of all kubelets never become Ready, or ends that.
    pub fn set_pods_never_ready(&self, never: bool) {
        self.state().pods_never_ready = never;
    }

    /// Keeps Nodes that register from becoming Ready, as a network plugin that does not come up, or ends
    /// that.
    pub fn set_nodes_never_ready(&self, never: bool) {
        self.state().nodes_never_ready = never;
    }

    /// Lets all kubelets ask for the certificates that they serve with, as `serverTLSBootstrap` in their
    /// configuration does, or ends that.
    pub fn set_server_tls_bootstrap(&self, on: bool) {
        let mut state = self.state();
        state.server_tls_bootstrap = on;
        let kubelets: Vec<String> = state.kubelets.keys().cloned().collect();
        for node in kubelets {
            state.will_ask_to_serve(&node);
        }
    }

    /// Restarts a kubelet: it registers its Node again if that is gone.
    pub fn restart_kubelet(&self, node: &str) {
        let mut state = self.state();
        let delay = state.spec.timings.kubelet_restart;
        state.wake(Work::Register(node.into()), delay);
    }
}
