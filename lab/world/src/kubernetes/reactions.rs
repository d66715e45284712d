//! The work that each change to an object puts on the cluster's agenda.

use std::time::Duration;

use serde_json::Value;

use super::{
    KubeEvent,
    kinds::{self, Kind},
    object::{self, Key, text},
    state::{State, Work},
    store::Change,
};

/// The time from the deletion of a Node to the deletion of its Lease.
const LEASE_GONE: Duration = Duration::from_millis(10);

impl State {
    /// Puts the consequences of a change on the agenda.
    pub(super) fn react(&mut self, kind: &'static Kind, key: &Key, change: &Change) {
        let old = change.old.as_deref();
        let new = (!change.gone).then_some(&*change.new);
        match kind.store {
            "pods" => self.pod_changed(key, old, new),
            "nodes" => self.node_changed(&key.1, old, new),
            "secrets" if new.is_some_and(super::accounts::lacks_token) => {
                self.wake(Work::AccountTokens, self.spec.timings.controller);
            }
            "secrets" if key.0 == "kube-system" => self.wake(Work::Tokens, self.spec.timings.signer),
            "configmaps" if key.0 == "kube-public" => self.wake(Work::Tokens, self.spec.timings.signer),
            "poddisruptionbudgets"
                if (old.map(|old| &old["spec"]) != new.map(|new| &new["spec"])
                    || old.map(|old| &old["status"]) != new.map(|new| &new["status"])) =>
            {
                self.wake(Work::Budgets(key.0.clone()), self.spec.timings.budget);
            }
            "deployments" | "replicasets" | "statefulsets" | "daemonsets" | "jobs" => {
                let owner = object::controller(&change.new).map(|(_, name, _)| name.to_owned());
                if kind.store == "replicasets"
                    && let Some(owner) = owner
                {
                    self.wake_workload("deployments", (key.0.clone(), owner));
                }
                if new.is_some() {
                    self.wake_workload(kind.store, key.clone());
                }
                self.wake(Work::Budgets(key.0.clone()), self.spec.timings.budget);
            }
            "persistentvolumes"
            | "persistentvolumeclaims"
            | "storageclasses"
            | "csinodes"
            | "resourceslices"
            | "resourceclaims"
            | "podgroups" => {
                self.wake(Work::Schedule, self.spec.timings.scheduler);
            }
            "certificatesigningrequests" => self.request_changed(key, new),
            "namespaces" if new.is_some_and(object::is_terminating) => {
                self.wake(Work::NamespaceGone(key.1.clone()), self.spec.timings.controller);
            }
            _ => {}
        }
    }

    /// Puts a workload's controller on the agenda.
    pub(super) fn wake_workload(&mut self, store: &'static str, key: Key) {
        let delay = self.spec.timings.controller;
        self.wake(Work::Workload(store, key), delay);
    }

    fn pod_changed(&mut self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        self.pods.note(key, old, new);
        let either = new.or(old).unwrap_or(&Value::Null);
        let owner = object::controller(either).map(|(kind, name, _)| (kind.to_owned(), name.to_owned()));
        if let Some((kind, name)) = owner
            && let Some(kind) = kinds::by_kind(&kind)
        {
            self.wake_workload(kind.store, (key.0.clone(), name));
        }
        if self.store.within(&kinds::BUDGET, &key.0).next().is_some() {
            self.wake(Work::Budgets(key.0.clone()), self.spec.timings.budget);
        }
        self.pod_has_volumes(either);
        if new.is_none() {
            self.give_devices_back(either);
        }
        let ended = |pod: &Value| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let Some(new) = new else {
            // The deleted pod has freed the resources that it used, or that were reserved for it.
            self.wake(Work::Schedule, self.spec.timings.scheduler);
            return;
        };
        if (ended(new) && !old.is_some_and(ended))
            || self.pods.is_waiting(key) && changed_for_scheduler(old, new)
        {
            self.wake(Work::Schedule, self.spec.timings.scheduler);
        }
        let node = text(new, "/spec/nodeName").to_owned();
        if node.is_empty() {
            return;
        }
        let uid = object::uid(new).to_owned();
        if old.is_none_or(|old| text(old, "/spec/nodeName").is_empty()) {
            self.announce(KubeEvent::PodBound {
                pod: format!("{}/{}", key.0, key.1),
                node: node.clone(),
                at: self.now(),
            });
            self.note_bound(key, &node, &uid);
        }
        let phase = text(new, "/status/phase");
        if phase == "Running" && old.is_none_or(|old| text(old, "/status/phase") != "Running") {
            self.announce(KubeEvent::PodRunning {
                pod: format!("{}/{}", key.0, key.1),
                node,
                at: self.now(),
            });
        }
        if object::is_terminating(new) {
            self.note_terminating(key, new);
        }
    }

    fn node_changed(&mut self, name: &str, old: Option<&Value>, new: Option<&Value>) {
        let timings = self.spec.timings.clone();
        let same = |part: &str| match (old, new) {
            (Some(old), Some(new)) => old.pointer(part) == new.pointer(part),
            _ => false,
        };
        let for_scheduler = !["/spec", "/metadata/labels", "/status/allocatable", "/metadata/uid"]
            .iter()
            .all(|part| same(part));
        if for_scheduler {
            // The deletion of a Node does not help a waiting pod.
            if new.is_some() {
                self.wake(Work::Schedule, timings.scheduler);
            }
            self.wake(Work::DaemonSets, timings.controller);
        }
        let ready = |node: Option<&Value>| node.is_some_and(|node| object::holds(node, "Ready"));
        match (old, new) {
            (None, Some(_)) => {
                self.announce(KubeEvent::NodeAdded { node: name.into(), at: self.now() });
                let text = format!("Node {name} event: Registered Node {name} in Controller");
                self.note_node_event(name, "RegisteredNode", &text);
            }
            (_, None) => {
                let text = format!("Node {name} event: Removing Node {name} from Controller");
                self.note_node_event(name, "RemovingNode", &text);
                self.announce(KubeEvent::NodeRemoved { node: name.into(), at: self.now() });
                self.wake(Work::LeaseGone(name.into()), LEASE_GONE);
                self.wake(Work::PodGc(name.into()), timings.pod_gc);
            }
            _ => {}
        }
        if ready(new) && !ready(old) {
            self.announce(KubeEvent::NodeReady { node: name.into(), at: self.now() });
        }
        if new.is_some() {
            self.forget(&Work::PodGc(name.into()));
            self.forget(&Work::LeaseGone(name.into()));
            if !(same("/spec") && same("/status/conditions")) {
                self.wake(Work::NodeTaints(name.into()), timings.node_taints);
            }
        }
    }
}

/// Whether a change to a waiting pod is a reason to schedule the pod again. A change to its conditions is
/// not.
fn changed_for_scheduler(old: Option<&Value>, new: &Value) -> bool {
    old.is_none_or(|old| {
        old["spec"] != new["spec"]
            || old["metadata"]["labels"] != new["metadata"]["labels"]
            || old["metadata"]["uid"] != new["metadata"]["uid"]
    })
}
