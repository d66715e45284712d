//! Objects other than pods and nodes that decisions read, such as controllers of pods, disruption budgets,
//! volumes and classes.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::pod::Pod;
use super::selector::{LabelSelector, Labels, NodeSelector};
pub use super::storage::{CsiDriver, InTreeDisk, InTreeKind, StorageCapacity};

/// An existing workload: a `ReplicaSet`, `ReplicationController`, `StatefulSet`, `Deployment` or `Job`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Controller {
    /// The API group and version, e.g. `apps/v1`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// `spec.replicas` (Job: `spec.parallelism`), 1 if absent.
    pub replicas: i64,
    /// Selects the pods of the workload (for default spread constraints).
    pub selector: Option<LabelSelector>,
    /// Whether the workload is being deleted.
    pub deleted: bool,
    /// An unscheduled pod created from the workload's template. Set only if a CapacityBuffer refers to the
    /// workload.
    pub template: Option<Box<Pod>>,
}

/// A DaemonSet, with the pod that it creates on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonSet {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// An unscheduled pod created from the DaemonSet's template, including the tolerations that the DaemonSet
    /// controller adds.
    pub pod: Pod,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisruptionBudget {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Selects the pods that the budget covers. `None` matches no pod, and an empty selector matches all pods
    /// in the namespace (policy/v1).
    pub selector: Option<LabelSelector>,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i64,
    /// `spec.unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub always_allows_unhealthy: bool,
    /// `status.currentHealthy` and `status.desiredHealthy`.
    pub healthy: (i64, i64),
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeClaim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The name of the bound volume.
    pub volume: Option<String>,
    /// The storage class of the claim. `None` if absent. An empty name means no class.
    pub class: Option<String>,
    /// The volume attributes class of the claim, empty for none.
    pub attributes_class: String,
    /// Whether the claim is fully bound (annotation `pv.kubernetes.io/bind-completed`).
    pub bound: bool,
    /// The requested storage in bytes, 0 if absent.
    pub request: i64,
    /// The access modes, e.g. `ReadWriteOncePod`.
    pub access_modes: Vec<String>,
    /// Annotation `volume.kubernetes.io/selected-node`.
    pub selected_node: Option<String>,
    /// Selects the volumes that the claim may be bound to, by their labels.
    pub selector: Option<LabelSelector>,
    /// `spec.volumeMode: Block`.
    pub block: bool,
    /// Whether the claim is being deleted.
    pub deleted: bool,
    /// `status.phase: Lost`.
    pub lost: bool,
    /// The uid of the claim's controller: the pod of a generic ephemeral volume.
    pub owner_uid: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentVolume {
    /// Its name.
    pub name: String,
    /// The volume's labels. They contain the zones of in-tree volumes. The selectors of claims are matched
    /// against them.
    pub labels: Labels,
    /// The storage class of the volume, empty for none.
    pub class: String,
    /// The volume attributes class of the volume, empty for none.
    pub attributes_class: String,
    /// Capacity in bytes.
    pub capacity: i64,
    /// Access modes.
    pub access_modes: Vec<String>,
    /// Required node affinity.
    pub node_affinity: Option<NodeSelector>,
    /// The claim that the volume is bound to or reserved for, as `namespace/name`.
    pub claim: Option<String>,
    /// The uid of the claim in `claim`, empty if the reference has none. A claim with the same name but a
    /// different uid does not match.
    pub claim_uid: String,
    /// `status.phase: Available`.
    pub available: bool,
    /// The CSI driver and the volume handle.
    pub csi: Option<(String, String)>,
    /// An in-tree disk that a CSI driver handles in place of Kubernetes' own code.
    pub in_tree: Option<InTreeDisk>,
    /// `spec.volumeMode: Block`.
    pub block: bool,
    /// Whether the volume is being deleted.
    pub deleted: bool,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageClass {
    /// Its name.
    pub name: String,
    /// The provisioner of the class. `kubernetes.io/no-provisioner` creates no volumes.
    pub provisioner: String,
    /// `volumeBindingMode: WaitForFirstConsumer`.
    pub waits_for_consumer: bool,
    /// `allowedTopologies`.
    pub allowed_topologies: Vec<NodeSelector>,
    /// Whether this is the default class.
    pub default: bool,
}

/// A CSINode: the CSI drivers on a node, with their limits on attached volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiNode {
    /// The node's name.
    pub name: String,
    /// The maximum number of volumes for each driver. `None` means that the driver has no limit.
    pub limits: BTreeMap<String, Option<i64>>,
    /// In-tree plugins whose disks are handled by CSI drivers on the node (annotation
    /// `storage.alpha.kubernetes.io/migrated-plugins`).
    pub migrated: Vec<String>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAttachment {
    /// Its name.
    pub name: String,
    /// The driver.
    pub attacher: String,
    /// The node.
    pub node: String,
    /// The PersistentVolume.
    pub volume: Option<String>,
    /// `status.attached`.
    pub attached: bool,
}

/// A PriorityClass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityClass {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: i32,
    /// Whether the priority class applies to pods that do not name one.
    pub global_default: bool,
    /// `preemptionPolicy: Never`.
    pub never_preempts: bool,
}

/// A namespace with its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Labels.
    pub labels: Labels,
}

/// A back-off: the time during which something that failed is not tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    /// When it ends.
    pub until: Timestamp,
    /// Why, in words.
    pub reason: String,
    /// The length of this back-off, in seconds. The next one is up to twice as long.
    #[serde(default)]
    pub seconds: i64,
}

impl Backoff {
    /// Returns the back-off after another failure. The first back-off has the initial length. Each later one
    /// is twice as long as the previous one, up to the maximum. Several failures during one back-off count as
    /// one.
    pub fn next(
        before: Option<&Self>,
        reason: &str,
        (first, most): (Duration, Duration),
        now: Timestamp,
    ) -> Self {
        let whole = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX).max(1);
        let (first, most) = (whole(first.min(most)), whole(most));
        if let Some(running) = before.filter(|before| before.runs(now) && before.seconds >= first) {
            return Self { reason: reason.to_owned(), ..running.clone() };
        }
        let last = before.map_or(0, |before| before.seconds);
        let seconds = last.saturating_mul(2).clamp(first, most);
        let until = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        Self { until, reason: reason.to_owned(), seconds }
    }

    /// Shortens the back-off in proportion, if the initial length was reduced from `before` to `first`, and
    /// limits it to `most` (all in seconds). The back-off never gets longer.
    ///
    /// Returns whether the back-off has changed.
    pub fn shorten(&mut self, (before, first): (i64, i64), most: i64) -> bool {
        let scaled = if 0 < first && first < before {
            self.seconds.saturating_mul(first) / before
        } else {
            self.seconds
        };
        let seconds = scaled.clamp(1, most.max(1));
        let cut = self.seconds - seconds;
        if cut <= 0 {
            return false;
        }
        self.seconds = seconds;
        self.until = self.until.saturating_sub(SignedDuration::from_secs(cut)).unwrap_or(Timestamp::MIN);
        true
    }

    /// Whether the back-off is running now. If the remaining time is longer than the back-off itself, the
    /// clock was set back after the back-off began. Such a back-off counts as ended.
    pub fn runs(&self, now: Timestamp) -> bool {
        let left = self.until.duration_since(now);
        left.is_positive() && (self.seconds == 0 || left.as_secs() <= self.seconds)
    }
}
