//! What the control plane does with Nodes on its own: taints, detection of silent kubelets, evictions, and
//! cleanup after deleted Nodes.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    fit::tolerates,
    kinds::{LEASE, NODE, POD},
    kubelet::has_taint,
    object::{self, Key, list, text},
    removal::Options,
    state::{State, Work},
};

const CONTROLLER: &str = "node-controller";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// How long the taint `unreachable:NoExecute` remains after a kubelet is back.
const LAST_TAINT: Duration = Duration::from_secs(3);

impl State {
    /// Updates a Node's taints from its conditions and its cordon, and assigns its pod network.
    pub(super) fn tend_node(&mut self, name: &str) {
        let key: Key = (String::new(), name.into());
        let Some(node) = self.store.get(&NODE, "", name) else { return };
        let now = self.stamp();
        let cidr = if text(&node, "/spec/podCIDR").is_empty() {
            self.next_cidr += 1;
            Some(format!("10.{}.{}.0/24", 244 + self.next_cidr / 256, self.next_cidr % 256))
        } else {
            None
        };
        let ready = object::condition(&node, "Ready").cloned().unwrap_or(Value::Null);
        let status = text(&ready, "/status").to_owned();
        let since: Option<Timestamp> = text(&ready, "/lastTransitionTime").parse().ok();
        let settled = since.is_none_or(|since| {
            Duration::try_from(self.now().duration_since(since)).is_ok_and(|passed| passed >= LAST_TAINT)
        });
        let lingering = status != "Unknown" && !settled && has_taint(&node, UNREACHABLE, "NoExecute");
        // The controller has two loops. The one for `NoSchedule` taints is faster than the one for
        // `NoExecute` taints.
        let scheduling = [
            (NOT_READY, "NoSchedule", status == "False"),
            (UNREACHABLE, "NoSchedule", status == "Unknown"),
            (UNSCHEDULABLE, "NoSchedule", node["spec"]["unschedulable"] == true),
        ];
        let execution = [(UNREACHABLE, "NoExecute", status == "Unknown" || lingering)];
        let added =
            scheduling.map(|(key, effect, present)| (key, effect, present || has_taint(&node, key, effect)));
        self.edit(&NODE, &key, |node| set_taints(node, &added, &now));
        self.edit(&NODE, &key, |node| set_taints(node, &scheduling, &now));
        self.edit(&NODE, &key, |node| {
            set_taints(node, &execution, &now);
            if let Some(cidr) = &cidr {
                node["spec"]["podCIDR"] = json!(cidr);
                node["spec"]["podCIDRs"] = json!([cidr]);
                node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] = json!("0");
            }
        });
        if lingering {
            self.wake(Work::NodeTaints(name.into()), LAST_TAINT);
        }
        self.watch_service(name);
        for key in self.pods.on(name) {
            self.watch_tolerations(&key, name);
        }
    }

    /// Checks whether a kubelet has been silent for too long.
    pub(super) fn look_for_silence(&mut self, name: &str) {
        let Some(kubelet) = self.kubelets.get(name) else { return };
        let grace = self.spec.timings.monitor_grace;
        let passed = Instant::now().duration_since(kubelet.last_beat);
        if passed < grace {
            self.wake(Work::Silence(name.into()), grace.checked_sub(passed).unwrap_or_default());
            return;
        }
        let own = kubelet.node_uid.clone();
        let known = self.store.get(&NODE, "", name).is_some_and(|node| object::uid(&node) == own);
        if !known {
            return;
        }
        let now = self.stamp();
        self.edit(&NODE, &(String::new(), name.into()), |node| {
            for of in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
                let heartbeat =
                    object::condition(node, of).map_or(Value::Null, |one| one["lastHeartbeatTime"].clone());
                let condition = json!({
                    "type": of,
                    "status": "Unknown",
                    "lastHeartbeatTime": heartbeat,
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                });
                object::set_condition(node, condition, &now);
            }
        });
        let text = format!("Node {name} status is now: NodeNotReady");
        self.note_node_event(name, "NodeNotReady", &text);
        for key in self.pods.on(name) {
            self.edit(&POD, &key, |pod| {
                if object::holds(pod, "Ready") {
                    let generation = pod["metadata"]["generation"].clone();
                    let condition = json!({
                        "type": "Ready",
                        "observedGeneration": generation,
                        "status": "False",
                        "lastProbeTime": null,
                    });
                    object::set_condition(pod, condition, &now);
                }
            });
            if let Some(pod) = self.store.get(&POD, &key.0, &key.1) {
                self.note_plain_event(&pod, "Warning", "NodeNotReady", CONTROLLER, "Node is not ready");
            }
        }
    }

    /// Plans the eviction of a pod whose toleration of a `NoExecute` taint is missing or limited. If the pod
    /// may stay, a planned eviction is cancelled.
    pub(super) fn watch_tolerations(&mut self, key: &Key, node: &str) {
        let (Some(pod), Some(node)) = (self.store.get(&POD, &key.0, &key.1), self.store.get(&NODE, "", node))
        else {
            return;
        };
        let work = Work::TaintEviction(key.clone(), object::uid(&pod).into());
        match stay(&pod, &node) {
            None => self.forget(&work),
            Some(_) if object::is_terminating(&pod) => {}
            Some(time) => self.wake(work, time),
        }
    }

    /// Evicts a pod whose toleration of a taint has run out.
    pub(super) fn evict_for_taint(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.store.get(&POD, &key.0, &key.1) else { return };
        let node = self.store.get(&NODE, "", text(&pod, "/spec/nodeName"));
        if object::uid(&pod) != uid || node.is_none_or(|node| stay(&pod, &node).is_none()) {
            return;
        }
        let text = "Taint manager: deleting due to NoExecute taint";
        let note = format!("Marking for deletion Pod {}/{}", key.0, key.1);
        self.note_plain_event(&pod, "Normal", "TaintManagerEviction", "taint-eviction-controller", &note);
        self.mark_disrupted(key, "DeletionByTaintManager", text, false);
        self.remove(&POD, key, &Options::default());
    }

    /// Marks the pods of a Node that no longer exists as failed, and removes them.
    pub(super) fn collect_pods(&mut self, node: &str) {
        if self.store.get(&NODE, "", node).is_some() {
            return;
        }
        for key in self.pods.on(node) {
            self.mark_disrupted(&key, "DeletionByPodGC", "PodGC: node no longer exists", true);
            self.finish_pod(&key);
        }
    }

    /// Removes the Lease of a Node that is gone.
    pub(super) fn drop_lease(&mut self, node: &str) {
        if self.store.get(&NODE, "", node).is_none() {
            self.erase(&LEASE, &("kube-node-lease".into(), node.into()));
        }
    }

    fn mark_disrupted(&mut self, key: &Key, reason: &str, message: &str, fail: bool) {
        let now = self.stamp();
        self.edit(&POD, key, |pod| {
            if matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
                return;
            }
            let generation = pod["metadata"]["generation"].clone();
            if fail {
                pod["status"]["phase"] = json!("Failed");
                pod["status"]["observedGeneration"] = generation.clone();
            }
            let condition = json!({
                "type": "DisruptionTarget",
                "observedGeneration": generation,
                "status": "True",
                "lastProbeTime": null,
                "reason": reason,
                "message": message,
            });
            object::set_condition(pod, condition, &now);
        });
    }
}

/// Adds each of the given taints that is wanted, and removes each that is not.
fn set_taints(node: &mut Value, wanted: &[(&str, &str, bool)], now: &str) {
    let mut taints = list(node, "/spec/taints").to_vec();
    for (key, effect, present) in wanted {
        let same = |one: &Value| one["key"] == *key && one["effect"] == *effect;
        if !present {
            taints.retain(|one| !same(one));
        } else if !taints.iter().any(same) {
            taints.push(json!({ "key": key, "effect": effect, "timeAdded": now }));
        }
    }
    node["spec"]["taints"] = json!(taints);
    if taints.is_empty()
        && let Some(spec) = node["spec"].as_object_mut()
    {
        spec.remove("taints");
    }
}

/// How long a pod may stay on a node with `NoExecute` taints. `None` if it may stay forever.
fn stay(pod: &Value, node: &Value) -> Option<Duration> {
    let tolerations = list(pod, "/spec/tolerations");
    let mut least: Option<Duration> = None;
    for taint in list(node, "/spec/taints").iter().filter(|taint| taint["effect"] == "NoExecute") {
        let mut seconds: Option<Option<i64>> = None;
        for toleration in tolerations.iter().filter(|one| tolerates(one, taint)) {
            let own = toleration["tolerationSeconds"].as_i64();
            seconds = Some(match (seconds, own) {
                (Some(Some(known)), Some(own)) => Some(known.min(own)),
                (Some(Some(known)), None) => Some(known),
                (_, own) => own,
            });
        }
        let time = match seconds {
            None => Duration::ZERO,
            Some(None) => continue,
            Some(Some(seconds)) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        };
        least = Some(least.map_or(time, |known| known.min(time)));
    }
    least
}
