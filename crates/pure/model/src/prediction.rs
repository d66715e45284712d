//! Predictions of where kube-scheduler will place pods, including those that turned out to be wrong.
//!
//! Predictions are stored by kind of pod ([`kind`]), because individual pods come and go.

use std::fmt::Write;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::devices::PodClaim;
use super::features::Features;
use super::pod::{Pod, VolumeSource};
use super::selector::Labels;
use super::text_id::PoolName;
use super::workload::Backoff;

/// Labels that a controller sets to a different value on each pod or in each run. They are ignored when pods
/// are grouped by kind.
const OF_ONE_POD: &[&str] = &[
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
];

/// Predictions of what kube-scheduler will do, both open ones and those that turned out to be wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Predictions {
    /// Pods that fit a ready node but have not been scheduled to it yet. Contains one pod of each kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<Awaited>,
    /// Machines that were created for pods. An entry is kept until the first of these pods is scheduled to
    /// the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<MadeFor>,
    /// Predictions that turned out to be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<Missed>,
    /// Removed nodes. An entry is kept until the pods of the node run elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
}

impl Predictions {
    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A pod that fits a ready node, so kube-scheduler is expected to place it on that node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Awaited {
    /// The pod's kind.
    pub kind: String,
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// Its uid.
    pub uid: String,
    /// The node.
    pub node: String,
    /// A fingerprint of the pods on the node. If it changes, the wait for kube-scheduler restarts, because
    /// other pods may have taken the room.
    pub company: String,
    /// The time at which the wait for kube-scheduler began. Since then, the pods on the node have not
    /// changed, and every decision has found that the pod fits the node.
    pub since: Timestamp,
    /// A fingerprint of kube-scheduler's last report on the pod.
    pub words: String,
    /// The time at which kube-scheduler's report last changed, if it has changed since `since`. A change
    /// means that kube-scheduler tried to place the pod again, and refused it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_again: Option<Timestamp>,
}

/// A machine that was created for certain pods, none of which has been scheduled to it yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MadeFor {
    /// The machine.
    pub machine: String,
    /// Its pool.
    pub pool: PoolName,
    /// The kinds of the pods.
    pub kinds: Vec<String>,
    /// The time at which a round first saw the machine.
    pub at: Timestamp,
    /// Whether the machine's node was ready and empty, but kube-scheduler did not place the pods on it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_vain: bool,
}

/// A wrong prediction: kube-scheduler refuses pods of a kind on a node on which the planner expected them to
/// fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Missed {
    /// The kind of the pods.
    pub kind: String,
    /// One of the pods of this kind, as `namespace/name`.
    pub pod: String,
    /// The pool in which no machine is created for these pods. `None` if the node is in no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The node.
    pub node: String,
    /// The time at which the wrong prediction was noticed. Nodes that existed at that time are no longer
    /// expected to take the pods.
    pub at: Timestamp,
    /// Why the pods were expected on the node.
    pub ours: String,
    /// The message with which kube-scheduler refused the pod.
    pub theirs: String,
    /// The time during which no machine is created in the pool for such pods. Each additional wrong
    /// prediction makes it longer.
    pub backoff: Backoff,
    /// A fingerprint of the DaemonSets and of the settings for the pool's fresh nodes. If it changes, this
    /// entry is dropped.
    pub settings: String,
    /// A fingerprint of the node's labels, taints, allocatable resources and CSI drivers. If it changes, this
    /// entry is dropped.
    pub seen: String,
    /// A fingerprint of the pod's volumes, empty if the pod has none. If it changes, this entry is dropped.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volumes: String,
    /// The uids of the pods of this kind that were pending when the wrong prediction was noticed. If there
    /// were many, only some are listed.
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
    /// The kinds of the node's pods.
    pub kinds: Vec<String>,
    /// The number of pods of these kinds in the whole cluster at the time of the removal.
    pub pods: usize,
    /// The time at which the node's removal began.
    pub at: Timestamp,
    /// Set if one of the pods does not start running in time: the pod's name, and why it does not run. While
    /// this is set, no other node of the pool is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
}

/// The kind of a pod: a fingerprint of the properties that scheduling reads, except those that differ between
/// pods of the same controller. The fingerprint is the same in each run of the program.
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
            // A StatefulSet names each claim after the claim template and the pod.
            VolumeSource::Claim { name, .. } => {
                (name.strip_suffix(pod.name.as_str()).unwrap_or(name.as_str()), None)
            }
            other => ("", Some(other)),
        })
        .collect();
    let claims: Vec<_> = pod.resource_claims.iter().map(PodClaim::kind).collect();
    let all = (
        (&pod.namespace, pod.priority, &pod.priority_class, pod.never_preempts),
        (&pod.requests, &pod.node_selector, &pod.affinity, &pod.tolerations),
        (&pod.spread, &pod.host_ports, claims),
        (labels, volumes),
    );
    // Rare properties are included only for pods that have them, so that the kinds of all other pods are the
    // same as in earlier versions.
    let rare = (pod.features, &pod.extended, pod.scheduling_group.is_some());
    if rare == (Features::default(), &Vec::new(), false) {
        fingerprint(&all)
    } else {
        fingerprint(&(all, rare))
    }
}

/// A fingerprint of the input, as sixteen hexadecimal digits.
pub fn fingerprint(what: &impl Serialize) -> String {
    // If serialization fails, fewer kinds are distinguished, which is harmless.
    let text = serde_json::to_vec(what).unwrap_or_default();
    Sha256::digest(&text)[..8].iter().fold(String::with_capacity(16), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::ExtendedRequest;
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
        let mut featured = one.clone();
        featured.features = Features::named(["VolumeBindMountOptions"]);
        let mut by_container = one.clone();
        by_container.extended = vec![ExtendedRequest { resource: "x.example.com/gpu".to_owned(), count: 1 }];
        let mut of_gang = one.clone();
        of_gang.scheduling_group = Some("g".to_owned());
        let labelled = pod("a", &[("app", "b")], "shared");
        let claiming = pod("a", &[("app", "a")], "other");
        for other in [larger, chosen, featured, by_container, of_gang, labelled, claiming] {
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
