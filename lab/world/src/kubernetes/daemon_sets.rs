//! The DaemonSet controller (`pkg/controller/daemon`).

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    fit::{selected, tolerates},
    kinds::{DAEMON_SET, NODE, POD},
    object::{self, Key, list, number, text},
    removal::Options,
    state::State,
    workloads::is_active,
};

/// Taints that every daemon pod tolerates: key and effect.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

impl State {
    /// Runs the controller of all DaemonSets.
    pub(super) fn tend_daemon_sets(&mut self) {
        let keys: Vec<Key> = self.store.all(&DAEMON_SET).map(|one| object::key(one)).collect();
        for key in keys {
            self.tend_daemon_set(&key);
        }
    }

    /// Runs the controller for one DaemonSet. It keeps one pod on each node that should have one.
    pub(super) fn tend_daemon_set(&mut self, key: &Key) {
        let Some(set) = self.store.get(&DAEMON_SET, &key.0, &key.1) else { return };
        if object::is_terminating(&set) {
            return;
        }
        let template = daemon_template(&set);
        let nodes: Vec<Arc<Value>> = self.store.all(&NODE).cloned().collect();
        let pods = self.pods_of(&set);
        let (mut desired, mut current, mut ready) = (0_i64, 0_i64, 0_i64);
        for node in &nodes {
            let name = object::name(node);
            let mine: Vec<&Arc<Value>> = pods.iter().filter(|pod| target(pod) == name).collect();
            let (run, stay) = wanted_on(&template["spec"], node);
            desired += i64::from(run);
            for pod in &mine {
                if text(pod, "/status/phase") == "Failed" || (!stay && is_active(pod)) {
                    self.remove(&POD, &object::key(pod), &Options::default());
                }
                ready += i64::from(is_active(pod) && object::holds(pod, "Ready"));
                current += i64::from(is_active(pod));
            }
            if run && mine.is_empty() {
                let pod_name = format!("{}-{}", key.1, self.suffix());
                let node_name = name.to_owned();
                self.spawn_pod(&DAEMON_SET, &set, &template, &pod_name, |pod| pin(pod, &node_name));
                current += 1;
            }
        }
        self.edit(&DAEMON_SET, key, |set| {
            let generation = number(set, "/metadata/generation").unwrap_or(0);
            set["status"] = json!({
                "observedGeneration": generation,
                "currentNumberScheduled": current,
                "desiredNumberScheduled": desired,
                "updatedNumberScheduled": current,
                "numberMisscheduled": 0,
                "numberReady": ready,
                "numberAvailable": ready,
                "numberUnavailable": (desired - ready).max(0),
            });
        });
    }
}

/// The pod template of a DaemonSet, with the tolerations that the controller adds.
fn daemon_template(set: &Value) -> Value {
    let mut template = set["spec"]["template"].clone();
    let mut tolerations = list(&template, "/spec/tolerations").to_vec();
    let mut added: Vec<(&str, &str)> = TOLERATED.to_vec();
    if template["spec"]["hostNetwork"] == true {
        added.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    for (key, effect) in added {
        tolerations.push(json!({ "key": key, "operator": "Exists", "effect": effect }));
    }
    template["spec"]["tolerations"] = json!(tolerations);
    template
}

/// Whether a node should get a new daemon pod, and whether an existing one may stay.
fn wanted_on(spec: &Value, node: &Value) -> (bool, bool) {
    if !selected(spec, node) {
        return (false, false);
    }
    let tolerations = list(spec, "/tolerations");
    let refused = |effects: &[&str]| {
        list(node, "/spec/taints")
            .iter()
            .filter(|taint| effects.contains(&text(taint, "/effect")))
            .any(|taint| !tolerations.iter().any(|one| tolerates(one, taint)))
    };
    (!refused(&["NoSchedule", "NoExecute"]), !refused(&["NoExecute"]))
}

/// Pins a daemon pod to its node by node affinity. The scheduler then binds it.
fn pin(pod: &mut Value, node: &str) {
    let term = json!({
        "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }],
    });
    let required = json!({ "nodeSelectorTerms": [term] });
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
}

/// The node that a daemon pod is bound or pinned to.
fn target(pod: &Value) -> &str {
    let pinned = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    match text(pod, "/spec/nodeName") {
        "" => text(pod, pinned),
        node => node,
    }
}
