//! Kubernetes nodes, with the fields that decisions read.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::features::Features;
use super::plan::RemovalReason;
use super::resources::Resources;
use super::selector::Labels;

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// New pods are not scheduled to the node.
    NoSchedule,
    /// New pods are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// New pods are not scheduled to the node, and running ones are evicted.
    NoExecute,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// The value of the taint, empty if it has none.
    pub value: String,
    /// Its effect.
    pub effect: TaintEffect,
    /// The time at which the taint was added, if known.
    pub time_added: Option<Timestamp>,
}

/// A node condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// `Ready`, `DiskPressure`, …
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The time at which the condition's status last changed.
    pub last_transition: Option<Timestamp>,
}

/// A Kubernetes node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`, empty in a snapshot file.
    pub resource_version: String,
    /// Labels.
    pub labels: Labels,
    /// The annotations that decisions read (see `model::snapshot::KNOWN_ANNOTATIONS`). Others are dropped.
    pub annotations: Labels,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp`.
    pub deleted: Option<Timestamp>,
    /// `spec.unschedulable` (cordoned).
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`, lower case, empty if unknown.
    pub system_uuid: String,
    /// `status.addresses` of type InternalIP.
    pub internal_ips: Vec<String>,
    /// `status.capacity`.
    pub capacity: Resources,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// The features in `status.declaredFeatures` that the scheduler requires for some pods.
    pub features: Features,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// The names in `status.volumesAttached`.
    pub volumes_attached: Vec<String>,
    /// The reason for the node's replacement, if the planner should decide as if the node were being
    /// replaced. Set only during a decision, and never stored in a file.
    #[serde(skip)]
    pub replaced: Option<RemovalReason>,
}
