//! Simulates the kubelets' work on pods: starting containers, making pods Ready, and completing and stopping
//! pods.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    kinds::POD,
    object::{self, Key, list, number, text},
    state::{State, Work},
};

/// The interval at which a kubelet checks whether a pod's volumes are attached.
const WAITS: Duration = Duration::from_secs(1);

impl State {
    /// Reacts to the binding of a pod to a node.
    pub(super) fn note_bound(&mut self, key: &Key, node: &str, uid: &str) {
        if self.store.get(&super::kinds::NODE, "", node).is_none() {
            self.wake(Work::PodGc(node.into()), self.spec.timings.pod_gc);
        }
        if self.kubelets.get(node).is_some_and(|kubelet| kubelet.alive) {
            self.wake(Work::Start(key.clone(), uid.into()), self.spec.timings.pod_start);
        }
        self.watch_tolerations(key, node);
    }

    /// Reacts to a pod that has been marked for deletion.
    pub(super) fn note_terminating(&mut self, key: &Key, pod: &Value) {
        let node = text(pod, "/spec/nodeName");
        if !self.hears(node) || number(pod, "/metadata/deletionGracePeriodSeconds") == Some(0) {
            return;
        }
        let grace = number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(30);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        let wait = self.spec.timings.pod_stop.min(grace);
        self.wake(Work::Stop(key.clone(), object::uid(pod).into()), wait);
    }

    /// Lets a node's kubelet resume its work on pods after an interruption.
    pub(super) fn resume_pods(&mut self, node: &str) {
        for key in self.pods.on(node) {
            let Some(pod) = self.store.get(&POD, &key.0, &key.1) else { continue };
            let uid = object::uid(&pod).to_owned();
            let phase = text(&pod, "/status/phase");
            if object::is_terminating(&pod) {
                self.note_terminating(&key, &pod);
            } else if phase == "Pending" {
                self.wake(Work::Start(key, uid), self.spec.timings.pod_start);
            } else if phase == "Running" && !object::holds(&pod, "Ready") {
                self.wake(Work::Ready(key, uid), self.spec.timings.pod_ready);
            }
        }
    }

    /// Returns the pod if it still has this uid, is not being deleted, and its kubelet can reach the API
    /// server.
    fn live(&self, key: &Key, uid: &str) -> Option<Value> {
        let pod = self.store.get(&POD, &key.0, &key.1)?;
        let node = text(&pod, "/spec/nodeName");
        let fit = object::uid(&pod) == uid && !object::is_terminating(&pod) && self.hears(node);
        fit.then(|| (*pod).clone())
    }

    /// Starts the containers of a pod.
    pub(super) fn start_pod(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.live(key, uid) else { return };
        if text(&pod, "/status/phase") != "Pending" {
            return;
        }
        if !self.has_its_volumes(&pod) {
            return self.wake(Work::Start(key.clone(), uid.into()), WAITS);
        }
        let now = self.stamp();
        let node = text(&pod, "/spec/nodeName").to_owned();
        let host =
            self.kubelets.get(&node).map(|kubelet| kubelet.machine.address.clone()).unwrap_or_default();
        let ip = if pod["spec"]["hostNetwork"] == true {
            host.clone()
        } else {
            let number = self.store.revision();
            format!("10.244.{}.{}", number / 250 % 250, number % 250 + 2)
        };
        self.edit(&POD, key, |pod| {
            let statuses: Vec<Value> = list(pod, "/spec/containers")
                .iter()
                .map(|container| {
                    container_status(container, json!({ "running": { "startedAt": now } }), false)
                })
                .collect();
            let status = &mut pod["status"];
            status["phase"] = json!("Running");
            status["hostIP"] = json!(host);
            status["hostIPs"] = json!([{ "ip": host }]);
            status["podIP"] = json!(ip);
            status["podIPs"] = json!([{ "ip": ip }]);
            status["startTime"] = json!(now);
            status["containerStatuses"] = json!(statuses);
            for of in ["PodReadyToStartContainers", "Initialized"] {
                pod_condition(pod, of, true, &now);
            }
            for of in ["Ready", "ContainersReady"] {
                pod_condition(pod, of, false, &now);
            }
        });
        let ready = self.spec.timings.pod_ready;
        self.wake(Work::Ready(key.clone(), uid.into()), ready);
        if object::controller(&pod).is_some_and(|(kind, _, _)| kind == "Job") {
            let run = self.spec.timings.job_run;
            self.wake(Work::Complete(key.clone(), uid.into()), run);
        }
    }

    /// Makes a pod Ready.
    pub(super) fn make_ready(&mut self, key: &Key, uid: &str) {
        if self.pods_never_ready {
            return;
        }
        let Some(pod) = self.live(key, uid) else { return };
        if text(&pod, "/status/phase") != "Running" {
            return;
        }
        let now = self.stamp();
        self.edit(&POD, key, |pod| {
            for status in pod["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
                status["ready"] = json!(true);
                status["started"] = json!(true);
            }
            for of in ["Ready", "ContainersReady"] {
                pod_condition(pod, of, true, &now);
            }
        });
    }

    /// Completes a pod, as if its containers had succeeded by themselves.
    pub(super) fn complete_pod(&mut self, key: &Key, uid: &str) {
        if self.live(key, uid).is_none() {
            return;
        }
        let now = self.stamp();
        self.edit(&POD, key, |pod| end(pod, &now, "Succeeded"));
    }

    /// Stops the containers of a deleted pod.
    pub(super) fn stop_pod(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.store.get(&POD, &key.0, &key.1) else { return };
        if object::uid(&pod) != uid || !self.hears(text(&pod, "/spec/nodeName")) {
            return;
        }
        let now = self.stamp();
        self.edit(&POD, key, |pod| end(pod, &now, "Succeeded"));
        self.finish_pod(key);
    }
}

fn container_status(container: &Value, state: Value, ready: bool) -> Value {
    json!({
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "lastState": {},
        "ready": ready,
        "restartCount": 0,
        "started": ready,
        "state": state,
    })
}

/// Writes the status of a pod whose containers have ended.
fn end(pod: &mut Value, now: &str, phase: &str) {
    if matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
        return;
    }
    let statuses: Vec<Value> = list(pod, "/spec/containers")
        .iter()
        .map(|container| {
            let ended = json!({ "terminated": { "exitCode": 0, "reason": "Completed", "finishedAt": now } });
            container_status(container, ended, false)
        })
        .collect();
    pod["status"]["phase"] = json!(phase);
    pod["status"]["containerStatuses"] = json!(statuses);
    pod_condition(pod, "PodReadyToStartContainers", false, now);
    for (of, holds) in [("Initialized", true), ("Ready", false), ("ContainersReady", false)] {
        pod_condition(pod, of, holds, now);
        for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
            if condition["type"] == of {
                condition["reason"] = json!("PodCompleted");
            }
        }
    }
}

fn pod_condition(pod: &mut Value, of: &str, holds: bool, now: &str) {
    let generation = pod["metadata"]["generation"].clone();
    pod["status"]["observedGeneration"] = generation.clone();
    let mut condition = json!({
        "type": of,
        "observedGeneration": generation.clone(),
        "status": if holds { "True" } else { "False" },
        "lastProbeTime": null,
    });
    if !holds && of != "PodReadyToStartContainers" {
        condition["reason"] = json!("ContainersNotReady");
    }
    object::set_condition(pod, condition, now);
    // Each time a kubelet writes a pod's status, it writes all conditions that it owns, including
    // `PodScheduled`.
    for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "PodScheduled" {
            condition["observedGeneration"] = generation.clone();
        }
    }
}
