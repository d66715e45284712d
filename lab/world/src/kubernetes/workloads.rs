//! The controllers of Deployments, ReplicaSets, StatefulSets and Jobs.

use std::{cmp::Reverse, sync::Arc};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    kinds::{CLAIM, DEPLOYMENT, JOB, Kind, POD, REPLICA_SET, STATEFUL_SET},
    object::{self, Key, list, number, text},
    removal::Options,
    state::State,
};

impl State {
    /// Runs the controller of one workload.
    pub(super) fn tend_workload(&mut self, store: &'static str, key: &Key) {
        match store {
            "deployments" => self.tend_deployment(key),
            "replicasets" => self.tend_replica_set(key),
            "statefulsets" => self.tend_stateful_set(key),
            "daemonsets" => self.tend_daemon_set(key),
            "jobs" => self.tend_job(key),
            _ => {}
        }
    }

    /// The pods that an object controls.
    pub(super) fn pods_of(&self, owner: &Value) -> Vec<Arc<Value>> {
        let keys = self.owned.get(object::uid(owner)).into_iter().flatten();
        keys.filter(|(store, _)| *store == "pods")
            .filter_map(|(_, key)| self.store.get(&POD, &key.0, &key.1))
            .filter(|pod| object::controller(pod).is_some_and(|(_, _, uid)| uid == object::uid(owner)))
            .collect()
    }

    /// Creates a pod from a template. If the pod is refused, the controller tries again at the next change of
    /// the owner.
    pub(super) fn spawn_pod(
        &mut self,
        kind: &Kind,
        owner: &Value,
        template: &Value,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) {
        let mut pod = json!({
            "metadata": template["metadata"],
            "spec": template["spec"],
        });
        if pod["metadata"].is_null() {
            pod["metadata"] = json!({});
        }
        object::set_meta(&mut pod, "name", json!(name));
        let stem = name.rsplit_once('-').map_or(name, |(stem, _)| stem);
        object::set_meta(&mut pod, "generateName", json!(format!("{stem}-")));
        if matches!(kind.plural, "daemonsets" | "statefulsets") {
            let hash = template_hash(template);
            let hash = if kind.plural == "daemonsets" { hash } else { format!("{stem}-{hash}") };
            pod["metadata"]["labels"]["controller-revision-hash"] = json!(hash);
        }
        object::set_meta(&mut pod, "namespace", owner["metadata"]["namespace"].clone());
        let reference = object::owner_reference(&kind.api_version(), owner);
        object::set_meta(&mut pod, "ownerReferences", json!([reference]));
        change(&mut pod);
        super::admission::fresh_status(&POD, &mut pod);
        if self.admit(&POD, None, &mut pod).is_ok() {
            self.create(&POD, pod);
        }
    }

    fn tend_deployment(&mut self, key: &Key) {
        let Some(deployment) = self.store.get(&DEPLOYMENT, &key.0, &key.1) else { return };
        if object::is_terminating(&deployment) {
            return;
        }
        let wanted = number(&deployment, "/spec/replicas").unwrap_or(1);
        let hash = template_hash(&deployment["spec"]["template"]);
        let own: Key = (key.0.clone(), format!("{}-{hash}", key.1));
        if self.store.get(&REPLICA_SET, &own.0, &own.1).is_none() {
            let set = replica_set(&deployment, &hash, &own, wanted);
            self.create(&REPLICA_SET, set);
        }
        self.edit(&REPLICA_SET, &own, |set| set["spec"]["replicas"] = json!(wanted));
        let sets: Vec<Arc<Value>> = self
            .store
            .within(&REPLICA_SET, &key.0)
            .filter(|set| object::controller(set).is_some_and(|(_, _, uid)| uid == object::uid(&deployment)))
            .cloned()
            .collect();
        let ready = |set: &Arc<Value>| number(set, "/status/readyReplicas").unwrap_or(0);
        let new_ready = sets.iter().filter(|set| object::name(set) == own.1).map(ready).sum::<i64>();
        let mut room = (wanted - new_ready).max(0);
        for set in sets.iter().filter(|set| object::name(set) != own.1) {
            let keep = number(set, "/spec/replicas").unwrap_or(0).min(room);
            room -= keep;
            self.edit(&REPLICA_SET, &object::key(set), |set| set["spec"]["replicas"] = json!(keep));
        }
        let total: i64 = sets.iter().map(|set| number(set, "/status/replicas").unwrap_or(0)).sum();
        let ready_total: i64 = sets.iter().map(ready).sum();
        let now = self.stamp();
        self.edit(&DEPLOYMENT, key, |deployment| {
            let generation = deployment["metadata"]["generation"].clone();
            deployment["status"] = with_counts(
                &deployment["status"],
                &[
                    ("observedGeneration", generation.as_i64().unwrap_or(0)),
                    ("replicas", total),
                    ("updatedReplicas", total.min(wanted)),
                    ("readyReplicas", ready_total),
                    ("availableReplicas", ready_total),
                    ("unavailableReplicas", (wanted - ready_total).max(0)),
                ],
            );
            let (status, reason) = if ready_total >= wanted {
                ("True", "MinimumReplicasAvailable")
            } else {
                ("False", "MinimumReplicasUnavailable")
            };
            object::set_condition(
                deployment,
                json!({ "type": "Available", "status": status, "reason": reason }),
                &now,
            );
        });
    }

    fn tend_replica_set(&mut self, key: &Key) {
        let Some(set) = self.store.get(&REPLICA_SET, &key.0, &key.1) else { return };
        if object::is_terminating(&set) {
            return;
        }
        let wanted = usize::try_from(number(&set, "/spec/replicas").unwrap_or(1)).unwrap_or(0);
        let mut active = self.pods_of(&set);
        active.retain(|pod| is_active(pod));
        for _ in active.len()..wanted {
            let name = format!("{}-{}", key.1, self.suffix());
            self.spawn_pod(&REPLICA_SET, &set, &set["spec"]["template"], &name, |_| {});
        }
        if active.len() > wanted {
            active.sort_by_cached_key(|pod| removal_rank(pod));
            for pod in active.iter().take(active.len() - wanted) {
                self.remove(&POD, &object::key(pod), &Options::default());
            }
        }
        let mut active = self.pods_of(&set);
        active.retain(|pod| is_active(pod));
        let ready = active.iter().filter(|pod| object::holds(pod, "Ready")).count();
        self.edit(&REPLICA_SET, key, |set| {
            let generation = number(set, "/metadata/generation").unwrap_or(0);
            set["status"] = with_counts(
                &set["status"],
                &[
                    ("observedGeneration", generation),
                    ("replicas", count(active.len())),
                    ("fullyLabeledReplicas", count(active.len())),
                    ("readyReplicas", count(ready)),
                    ("availableReplicas", count(ready)),
                ],
            );
        });
    }

    fn tend_stateful_set(&mut self, key: &Key) {
        let Some(set) = self.store.get(&STATEFUL_SET, &key.0, &key.1) else { return };
        if object::is_terminating(&set) {
            return;
        }
        let wanted = usize::try_from(number(&set, "/spec/replicas").unwrap_or(1)).unwrap_or(0);
        let ordered = text(&set, "/spec/podManagementPolicy") != "Parallel";
        let pods = self.pods_of(&set);
        let ordinal =
            |pod: &Value| object::name(pod).rsplit('-').next().and_then(|text| text.parse::<usize>().ok());
        for at in 0..wanted {
            let found = pods.iter().find(|pod| ordinal(pod) == Some(at));
            match found {
                None => {
                    self.spawn_ordinal(&set, at);
                    if ordered {
                        break;
                    }
                }
                Some(pod) if matches!(text(pod, "/status/phase"), "Failed" | "Succeeded") => {
                    self.remove(&POD, &object::key(pod), &Options::default());
                    break;
                }
                Some(pod) if ordered && (object::is_terminating(pod) || !object::holds(pod, "Ready")) => {
                    break;
                }
                Some(_) => {}
            }
        }
        let mut surplus: Vec<&Arc<Value>> =
            pods.iter().filter(|pod| ordinal(pod).is_some_and(|at| at >= wanted)).collect();
        surplus.sort_by_key(|pod| Reverse(ordinal(pod)));
        let going = surplus.iter().any(|pod| object::is_terminating(pod));
        for pod in surplus.iter().filter(|_| !ordered || !going).take(if ordered { 1 } else { usize::MAX }) {
            self.remove(&POD, &object::key(pod), &Options::default());
        }
        let mut pods = self.pods_of(&set);
        pods.retain(|pod| is_active(pod));
        let ready = pods.iter().filter(|pod| object::holds(pod, "Ready")).count();
        self.edit(&STATEFUL_SET, key, |set| {
            let generation = number(set, "/metadata/generation").unwrap_or(0);
            set["status"] = with_counts(
                &set["status"],
                &[
                    ("observedGeneration", generation),
                    ("replicas", count(pods.len())),
                    ("currentReplicas", count(pods.len())),
                    ("readyReplicas", count(ready)),
                    ("availableReplicas", count(ready)),
                ],
            );
        });
    }

    fn spawn_ordinal(&mut self, set: &Value, at: usize) {
        let name = format!("{}-{at}", object::name(set));
        let mut volumes = Vec::new();
        for template in list(set, "/spec/volumeClaimTemplates") {
            let claim_name = format!("{}-{name}", object::name(template));
            volumes.push(json!({
                "name": object::name(template),
                "persistentVolumeClaim": { "claimName": claim_name },
            }));
            if self.store.get(&CLAIM, object::namespace(set), &claim_name).is_none() {
                let claim = json!({
                    "metadata": { "name": claim_name, "namespace": object::namespace(set) },
                    "spec": template["spec"],
                    "status": { "phase": "Pending" },
                });
                self.create(&CLAIM, claim);
            }
        }
        self.spawn_pod(&STATEFUL_SET, set, &set["spec"]["template"], &name.clone(), |pod| {
            pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
            pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(at.to_string());
            pod["spec"]["hostname"] = json!(name);
            if !volumes.is_empty() {
                let mut all = list(pod, "/spec/volumes").to_vec();
                all.extend(volumes);
                pod["spec"]["volumes"] = json!(all);
            }
        });
    }

    fn tend_job(&mut self, key: &Key) {
        let Some(job) = self.store.get(&JOB, &key.0, &key.1) else { return };
        if object::is_terminating(&job) || object::holds(&job, "Complete") {
            return;
        }
        let size = |pointer: &str| usize::try_from(number(&job, pointer).unwrap_or(1)).unwrap_or(0);
        let (parallel, completions) = (size("/spec/parallelism"), size("/spec/completions"));
        let pods = self.pods_of(&job);
        // A pod's success still counts after the pod is gone.
        let counted = self.succeeded.entry(object::uid(&job).to_owned()).or_default();
        let successes = pods.iter().filter(|pod| text(pod, "/status/phase") == "Succeeded");
        counted.extend(successes.map(|pod| object::uid(pod).to_owned()));
        let succeeded = counted.len();
        let failed = pods.iter().filter(|pod| text(pod, "/status/phase") == "Failed").count();
        let active = pods.iter().filter(|pod| is_active(pod)).count();
        let wanted = parallel.min(completions.saturating_sub(succeeded));
        for _ in active..wanted {
            let name = format!("{}-{}", key.1, self.suffix());
            self.spawn_pod(&JOB, &job, &job["spec"]["template"], &name, |pod| {
                pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] = json!(key.1);
                if pod["spec"]["restartPolicy"] == "Always" || pod["spec"]["restartPolicy"].is_null() {
                    pod["spec"]["restartPolicy"] = json!("Never");
                }
            });
        }
        let now = self.stamp();
        let active = active.max(wanted);
        self.edit(&JOB, key, |job| {
            let counts =
                [("active", count(active)), ("succeeded", count(succeeded)), ("failed", count(failed))];
            job["status"] = with_counts(&job["status"], &counts);
            if succeeded >= completions {
                job["status"]["active"] = json!(0);
                object::set_condition(job, json!({ "type": "Complete", "status": "True" }), &now);
            }
        });
        if succeeded >= completions {
            self.succeeded.remove(object::uid(&job));
        }
    }
}

/// Whether a pod counts as one of its owner's replicas: it is neither finished nor being deleted.
pub(super) fn is_active(pod: &Value) -> bool {
    !object::is_terminating(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Returns the rank of a surplus pod. Pods with the lowest rank are removed first. The criteria are, in this
/// order: not bound, pending, not ready, low deletion cost, young (`ActivePodsWithRanks`).
fn removal_rank(pod: &Value) -> (bool, bool, bool, i64, Reverse<String>, String) {
    let cost = pod
        .pointer("/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    (
        !text(pod, "/spec/nodeName").is_empty(),
        text(pod, "/status/phase") == "Running",
        object::holds(pod, "Ready"),
        cost,
        Reverse(text(pod, "/metadata/creationTimestamp").to_owned()),
        object::name(pod).to_owned(),
    )
}

fn template_hash(template: &Value) -> String {
    let digest = Sha256::digest(template.to_string());
    let start = digest.iter().take(5).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{start:010x}")
}

fn replica_set(deployment: &Value, hash: &str, key: &Key, replicas: i64) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"]["pod-template-hash"] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"]["pod-template-hash"] = json!(hash);
    json!({
        "metadata": {
            "name": key.1,
            "namespace": key.0,
            "labels": template["metadata"]["labels"],
            "ownerReferences": [object::owner_reference("apps/v1", deployment)],
        },
        "spec": { "replicas": replicas, "selector": selector, "template": template },
        "status": { "replicas": 0 },
    })
}

fn with_counts(status: &Value, counts: &[(&str, i64)]) -> Value {
    let mut status = if status.is_object() { status.clone() } else { json!({}) };
    for (name, value) in counts {
        status[*name] = json!(value);
    }
    status
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
