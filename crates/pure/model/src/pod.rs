//! Pods, with the fields that decisions read.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::digest::{Digest, Memo};
use super::node::TaintEffect;
use super::pod_spec::PodSpec;
use super::selector::{LabelSelector, NodeSelector, NodeSelectorTerm};
use super::storage::InTreeDisk;

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PodPhase {
    /// Not all containers have been started yet.
    #[default]
    Pending,
    /// Running.
    Running,
    /// All containers ended successfully.
    Succeeded,
    /// All containers ended, at least one of them with a failure.
    Failed,
    /// The state of the pod is unknown, because its node does not report it.
    Unknown,
}

/// What the scheduler has reported about a pod (condition `PodScheduled`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scheduling {
    /// The pod has no `PodScheduled` condition, because the scheduler has not looked at it yet.
    #[default]
    Unprocessed,
    /// `PodScheduled=False` with the reason `Unschedulable`. Contains the time at which the condition last
    /// changed, if known.
    Unschedulable(Option<Timestamp>),
    /// A scheduling gate holds the pod back.
    Gated,
    /// `PodScheduled=False` for another reason, e.g. `SchedulerError`.
    Refused(String),
    /// `PodScheduled=True`.
    Scheduled,
}

/// The controller of a pod (`metadata.ownerReferences` with `controller: true`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// e.g. `apps/v1`.
    pub api_version: String,
    /// e.g. `ReplicaSet`.
    pub kind: String,
    /// The controller's name. The controller is in the same namespace as the pod.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// `spec.tolerations[]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// The taint key that is tolerated. If the key is empty and the operator is `Exists`, every taint is
    /// tolerated.
    pub key: String,
    /// `Exists` (true) or `Equal` (false).
    pub exists: bool,
    /// Value for `Equal`.
    pub value: String,
    /// The taint effect that is tolerated. `None` means every effect.
    pub effect: Option<TaintEffect>,
}

/// A required or preferred pod (anti-)affinity term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodAffinityTerm {
    /// Selects the pods by their labels. `None` matches no pod. `matchLabelKeys` and `mismatchLabelKeys` are
    /// merged into the selector in the same way as in the API server.
    pub selector: Option<LabelSelector>,
    /// The listed namespaces. If there is neither a list nor a `namespace_selector`, the term applies to the
    /// pod's own namespace.
    pub namespaces: Vec<String>,
    /// Selects namespaces by label. An empty selector selects all namespaces.
    pub namespace_selector: Option<LabelSelector>,
    /// The node label whose values are the topology domains.
    pub topology_key: String,
    /// `matchLabelKeys` as written. The API server merges them into the selector when the pod is created.
    pub match_label_keys: Vec<String>,
    /// `mismatchLabelKeys` as written.
    pub mismatch_label_keys: Vec<String>,
}

/// A preference with its weight (1 to 100).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Weighted<T> {
    /// 1 to 100.
    pub weight: i32,
    /// What is preferred.
    pub term: T,
}

/// `spec.affinity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Affinity {
    /// Required node affinity.
    pub node: Option<NodeSelector>,
    /// Preferred node affinity.
    pub node_preferred: Vec<Weighted<NodeSelectorTerm>>,
    /// Required pod affinity.
    pub pods: Vec<PodAffinityTerm>,
    /// Preferred pod affinity.
    pub pods_preferred: Vec<Weighted<PodAffinityTerm>>,
    /// Required pod anti-affinity.
    pub anti: Vec<PodAffinityTerm>,
    /// Preferred pod anti-affinity.
    pub anti_preferred: Vec<Weighted<PodAffinityTerm>>,
}

/// `spec.topologySpreadConstraints[]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpreadConstraint {
    /// `maxSkew`.
    pub max_skew: i32,
    /// `minDomains`, 1 if absent.
    pub min_domains: i32,
    /// The node label whose values are the topology domains.
    pub topology_key: String,
    /// `whenUnsatisfiable: DoNotSchedule` (true) or `ScheduleAnyway` (false).
    pub hard: bool,
    /// Selects the pods that count towards the skew. `None` matches no pod.
    pub selector: Option<LabelSelector>,
    /// `matchLabelKeys`.
    pub match_label_keys: Vec<String>,
    /// `nodeAffinityPolicy: Honor` (true, the default) or `Ignore`.
    pub honor_node_affinity: bool,
    /// `nodeTaintsPolicy: Honor` or `Ignore` (false, the default).
    pub honor_node_taints: bool,
}

/// A host port that a container uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// `hostIP`, `0.0.0.0` if absent.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The port.
    pub port: i32,
}

/// One of `spec.volumes[]`. Volumes that matter neither for scheduling nor for draining are left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Volume {
    /// The volume's name in the pod.
    pub name: String,
    /// Its source.
    pub source: VolumeSource,
}

impl Volume {
    /// Whether any scheduling filter checks this volume. Volumes that contain tokens, configuration or
    /// scratch space can be used on any node.
    pub fn decides_place(&self) -> bool {
        matches!(
            self.source,
            VolumeSource::Claim { .. } | VolumeSource::Exclusive { .. } | VolumeSource::InTree(_)
        )
    }
}

/// A volume's source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VolumeSource {
    /// A PersistentVolumeClaim by name. For a generic ephemeral volume, the claim is named `POD-VOLUME` and
    /// `ephemeral` is true.
    Claim {
        /// The claim's name.
        name: String,
        /// Whether the claim belongs to this pod alone.
        ephemeral: bool,
        /// `readOnly`.
        read_only: bool,
    },
    /// `emptyDir`. `memory` is true for `medium: Memory`.
    EmptyDir {
        /// Backed by memory.
        memory: bool,
    },
    /// `hostPath`.
    HostPath,
    /// An inline CSI volume with its driver.
    Csi {
        /// The driver's name.
        driver: String,
    },
    /// An in-tree disk that pods on the same node can share only if all of them mount it read-only (GCE PD,
    /// AWS EBS, iSCSI, RBD). The VolumeRestrictions filter compares `kind` and `identity`.
    Exclusive {
        /// e.g. `gcePersistentDisk`.
        kind: String,
        /// The text that identifies the disk.
        identity: String,
        /// `readOnly`.
        read_only: bool,
    },
    /// Another in-tree disk, which counts as a volume of the CSI driver that handles it.
    InTree(InTreeDisk),
}

/// A deletion in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// `metadata.deletionTimestamp`: the time at which the grace period ends.
    pub at: Timestamp,
    /// `metadata.deletionGracePeriodSeconds`, if known.
    pub grace_seconds: Option<i64>,
}

/// A pod. Fields that it shares with similar pods are in `spec`, but can be read as if they were the pod's
/// own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `status.startTime`: the time at which the kubelet first acknowledged the pod.
    pub started: Option<Timestamp>,
    /// The deletion of the pod, if it is being deleted.
    pub deletion: Option<Deletion>,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<String>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// What the scheduler has reported about the pod.
    pub scheduling: Scheduling,
    /// The message with which the scheduler refuses the pod (`message` of the condition `PodScheduled`).
    /// Empty if the scheduler does not refuse the pod.
    pub refusal: String,
    /// Condition `Ready`.
    pub ready: bool,
    /// Whether the pod is a chunk of a CapacityBuffer or belongs to a ProvisioningRequest. True only during a
    /// decision. Such a pod yields to every real pod.
    #[serde(skip)]
    pub chunk: bool,
    /// The shared fields.
    pub spec: Arc<PodSpec>,
    /// Computed values that decisions often need ([`Pod::digest`]).
    #[serde(skip)]
    pub memo: Memo<Digest>,
}

impl Pod {
    /// `namespace/name`: identifies the pod in plans and messages.
    pub fn id(&self) -> String {
        [self.namespace.as_str(), self.name.as_str()].join("/")
    }

    /// Whether all of the pod's containers have ended for good. Such a pod needs no room.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }
}
