//! What kube-scheduler was expected to do with pods, and what it did. This memory shows when a prediction was
//! wrong.
//!
//! All of it is stored by kind of pod ([`kind`]), because individual pods come and go.

use std::fmt::Write;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::devices::PodClaim;
use super::pod::{Pod, VolumeSource};
use super::selector::Labels;
use super::text_id::PoolName;
use super::workload::Backoff;

/// Labels that a controller sets to a different value on each pod or in each run. They do not distinguish
/// kinds.
const OF_ONE_POD: &[&str] = &[
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
];

/// What kube-scheduler is expected to do, and where it did something else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Predictions {
    /// Pods that fit a ready node but are not on it yet, one of each kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<Awaited>,
    /// Machines that were created for pods, until the first of these pods is scheduled there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<MadeFor>,
    /// Predictions that turned out to be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<Missed>,
    /// Nodes that were removed, until their pods run elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
}

impl Predictions {
    /// Whether there are no predictions of any sort.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A pod that fits a ready node, so kube-scheduler is expected to place it there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Awaited {
    /// The pod's kind.
    pub kind: String,
    /// The pod, `namespace/name`.
    pub pod: String,
    /// Its uid.
    pub uid: String,
    /// The node.
    pub node: String,
    /// A fingerprint of the pods on the node. If it changes, the wait begins again: other pods may have taken
    /// the room.
    pub company: String,
    /// When the wait began: since then, every decision has found that the pod fits there, beside the same
    /// pods.
    pub since: Timestamp,
    /// A fingerprint of what kube-scheduler last reported on the pod.
    pub words: String,
    /// When kube-scheduler's report last changed after `since`: it tried again, and refused the pod again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_again: Option<Timestamp>,
}

/// A machine that was created for pods, none of which has been scheduled there yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MadeFor {
    /// The machine.
    pub machine: String,
    /// Its pool.
    pub pool: PoolName,
    /// The kinds of the pods.
    pub kinds: Vec<String>,
    /// When a round first found it.
    pub at: Timestamp,
    /// Its node was ready and empty, but did not get the pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_vain: bool,
}

/// A prediction that turned out to be wrong: kube-scheduler refuses pods of a kind where the planner found
/// that they fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Missed {
    /// The kind of the pods.
    pub kind: String,
    /// One of these pods, `namespace/name`.
    pub pod: String,
    /// The pool that gets no machine for them; `None`: the node is in no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The node.
    pub node: String,
    /// When it was noticed. Nodes that existed then are no longer expected to take the pods.
    pub at: Timestamp,
    /// Why they were expected there.
    pub ours: String,
    /// What kube-scheduler reported, in its own words.
    pub theirs: String,
    /// The time for which the pool gets no machine for such pods. Each further miss makes it longer.
    pub backoff: Backoff,
    /// A fingerprint of the pool's settings.
    pub settings: String,
    /// A fingerprint of the node.
    pub seen: String,
    /// A fingerprint of the pod's volumes; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volumes: String,
    /// The uids of pods of this kind that were pending when the miss was noticed. If there were many, only
    /// some are listed.
    pub waiting: Vec<String>,
}

/// A removed node whose pods are expected to run elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Moved {
    /// The node.
    pub node: String,
    /// Its pool.
    pub pool: PoolName,
    /// The kinds of its pods.
    pub kinds: Vec<String>,
    /// How many pods of these kinds there were in the whole cluster.
    pub pods: usize,
    /// When its removal began.
    pub at: Timestamp,
    /// Set if one of them does not run in time: which one, and why, in words. While it is set, no further
    /// node of the pool is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
}

/// A fingerprint of what scheduling reads of a pod, except what distinguishes it from other pods of its
/// controller. It is the same in each run of the program.
pub fn kind(pod: &Pod) -> String {
    let labels: Labels = pod
        .labels
        .iter()
        .filter(|(key, _)| !OF_ONE_POD.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let volumes: Vec<_> = pod
        .volumes
        .iter()
        .filter(|volume| volume.decides_place())
        .map(|volume| match &volume.source {
            VolumeSource::Claim { ephemeral: true, .. } => (volume.name.as_str(), None),
            // A StatefulSet names a claim after its template and the pod.
            VolumeSource::Claim { name, .. } => {
                (name.strip_suffix(pod.name.as_str()).unwrap_or(name.as_str()), None)
            }
            other => ("", Some(other)),
        })
        .collect();
    let claims: Vec<_> = pod.resource_claims.iter().map(PodClaim::kind).collect();
    fingerprint(&(
        (&pod.namespace, pod.priority, &pod.priority_class, pod.never_preempts),
        (&pod.requests, &pod.node_selector, &pod.affinity, &pod.tolerations),
        (&pod.spread, &pod.host_ports, claims),
        (labels, volumes),
    ))
}

/// A fingerprint of the input: sixteen hexadecimal digits.
pub fn fingerprint(what: &impl Serialize) -> String {
    // If it cannot be serialized, fewer kinds are distinguished, which is harmless.
    let text = serde_json::to_vec(what).unwrap_or_default();
    Sha256::digest(&text)[..8].iter().fold(String::with_capacity(16), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Volume;
    use crate::pod_spec::PodSpec;

    fn pod(name: &str, labels: &[(&str, &str)], claim: &str) -> Pod {
        let source = VolumeSource::Claim { name: claim.to_owned(), ephemeral: false, read_only: false };
        let spec = PodSpec {
            namespace: "default".to_owned(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            volumes: vec![Volume { name: "data".to_owned(), source }],
            ..PodSpec::default()
        };
        Pod { name: name.to_owned(), spec: spec.into(), ..Pod::default() }
    }

    #[test]
    fn the_replicas_of_a_stateful_set_and_the_runs_of_a_cron_job_are_of_one_kind() {
        let replica = |number: &str| {
            let name = format!("db-{number}");
            let labels = [("app", "db"), ("apps.kubernetes.io/pod-index", number)];
            pod(&name, &labels, &format!("data-{name}"))
        };
        assert_eq!(kind(&replica("0")), kind(&replica("1")));
        let run =
            |job: &str| pod(&format!("{job}-x7k2p"), &[("job-name", job), ("controller-uid", job)], "c");
        assert_eq!(kind(&run("nightly-29")), kind(&run("nightly-30")));
    }

    #[test]
    fn whatever_scheduling_depends_on_sets_kinds_apart() {
        let one = pod("a", &[("app", "a")], "shared");
        let mut larger = one.clone();
        larger.requests.cpu_milli += 1;
        let mut chosen = one.clone();
        chosen.node_selector.insert("disk".to_owned(), "ssd".to_owned());
        for other in [larger, chosen, pod("a", &[("app", "b")], "shared"), pod("a", &[("app", "a")], "other")]
        {
            assert_ne!(kind(&one), kind(&other), "{other:?}");
        }
        assert_eq!(kind(&one), kind(&Pod { name: "b".to_owned(), ..one.clone() }));
    }

    /// A later run, perhaps of another build, must recognize the kinds that an earlier run has stored.
    #[test]
    fn a_kind_is_the_same_in_each_run() {
        assert_eq!(fingerprint(&("web", 1)), "e0e4d929f9ebbbcc");
    }
}
