//! A pod, as far as decisions read it.

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
    /// Not all containers run yet.
    #[default]
    Pending,
    /// Running.
    Running,
    /// All containers ended successfully.
    Succeeded,
    /// All containers ended, at least one of them with a failure.
    Failed,
    /// The node does not report.
    Unknown,
}

/// What the scheduler has reported about a pod (condition `PodScheduled`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scheduling {
    /// No `PodScheduled` condition: the scheduler has not looked at it yet.
    #[default]
    Unprocessed,
    /// `PodScheduled=False`, reason `Unschedulable`, and when the condition last changed, if known.
    Unschedulable(Option<Timestamp>),
    /// Held back by a scheduling gate.
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
    /// Its name, in the pod's namespace.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// `spec.tolerations[]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// Key. If it is empty and the operator is `Exists`, every taint is tolerated.
    pub key: String,
    /// `Exists` (true) or `Equal` (false).
    pub exists: bool,
    /// Value for `Equal`.
    pub value: String,
    /// Effect; `None` means every effect.
    pub effect: Option<TaintEffect>,
}

/// A required or preferred pod (anti-)affinity term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodAffinityTerm {
    /// Which pods are meant; `None` matches none. `matchLabelKeys` and `mismatchLabelKeys` are merged in, as
    /// by the API server.
    pub selector: Option<LabelSelector>,
    /// The listed namespaces. With neither a list nor a `namespace_selector`, the pod's own namespace is
    /// meant.
    pub namespaces: Vec<String>,
    /// Namespaces by label; an empty selector means all.
    pub namespace_selector: Option<LabelSelector>,
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// `matchLabelKeys` as written (the API server merges them into the selector when the pod is created).
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
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// `whenUnsatisfiable: DoNotSchedule` (true) or `ScheduleAnyway` (false).
    pub hard: bool,
    /// Which pods are counted; `None` matches none.
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

/// One of `spec.volumes[]`. Volumes that neither scheduling nor draining looks at are left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Volume {
    /// The volume's name in the pod.
    pub name: String,
    /// Its source.
    pub source: VolumeSource,
}

impl Volume {
    /// Whether any filter looks at this volume. Tokens, configuration and scratch space can be used on any
    /// node.
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
    /// A PersistentVolumeClaim by name (generic ephemeral volumes: `POD-VOLUME`, with `ephemeral` true).
    Claim {
        /// The claim's name.
        name: String,
        /// It belongs to this pod alone.
        ephemeral: bool,
        /// `readOnly`.
        read_only: bool,
    },
    /// `emptyDir`; `memory` for `medium: Memory`.
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
    /// An in-tree disk that pods on the same node cannot share, except if all of them only read it (GCE PD,
    /// AWS EBS, iSCSI, RBD). VolumeRestrictions compares its kind and identity.
    Exclusive {
        /// e.g. `gcePersistentDisk`.
        kind: String,
        /// What identifies the disk.
        identity: String,
        /// `readOnly`.
        read_only: bool,
    },
    /// Another in-tree disk, which counts as a volume of the CSI driver that serves it.
    InTree(InTreeDisk),
}

/// A deletion in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// `metadata.deletionTimestamp`: when the grace period ends.
    pub at: Timestamp,
    /// `metadata.deletionGracePeriodSeconds`, if known.
    pub grace_seconds: Option<i64>,
}

/// A pod: its own fields, and those that it shares with similar pods, which can be read as if they were its
/// own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `status.startTime`: when its kubelet first acknowledged it.
    pub started: Option<Timestamp>,
    /// Set while it is being deleted.
    pub deletion: Option<Deletion>,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<String>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// What the scheduler reported.
    pub scheduling: Scheduling,
    /// Why the scheduler refuses the pod, in its own words (`message` of the condition `PodScheduled`); empty
    /// if it does not.
    pub refusal: String,
    /// Condition `Ready`.
    pub ready: bool,
    /// True only during a decision, for a chunk of a CapacityBuffer or a pod of a ProvisioningRequest. It
    /// yields to every real pod.
    #[serde(skip)]
    pub chunk: bool,
    /// The shared fields.
    pub spec: Arc<PodSpec>,
    /// Computed values that decisions often need ([`Pod::digest`]).
    #[serde(skip)]
    pub memo: Memo<Digest>,
}

impl Pod {
    /// `namespace/name`, the pod's name in plans and messages.
    pub fn id(&self) -> String {
        [self.namespace.as_str(), self.name.as_str()].join("/")
    }

    /// Whether all its containers have ended for good, so that it occupies no room.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }
}
