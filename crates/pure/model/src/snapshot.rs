//! Everything that one decision reads.

use crate::vmid::Vmid;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::buffer::{CapacityBuffer, PodTemplate};
use super::devices::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use super::features::Features;
use super::gang::PodGroup;
use super::host_key::HostKey;
use super::machine::{Host, Machine, Slot};
use super::node::Node;
use super::pod::Pod;
use super::power::{PowerFacts, PowerMemory};
use super::prediction::Predictions;
use super::request::{CONSUMES, ProvisioningRequest};
use super::resources::Resources;
use super::text_id::PoolName;
use super::unfinished::Unfinished;
use super::version::KubernetesVersion;
use super::workload::{
    Backoff, Controller, CsiDriver, CsiNode, DaemonSet, DisruptionBudget, Namespace, PersistentVolume,
    PriorityClass, StorageCapacity, StorageClass, VolumeAttachment, VolumeClaim,
};

/// Annotations that decisions read; all others are dropped on arrival.
pub const KNOWN_ANNOTATIONS: &[&str] = &[
    "pve-autoscaler/unneeded-since",
    PINNED,
    PINNED_WHY,
    RETIRE,
    VM_PROTECTED,
    "pve-autoscaler/do-not-disrupt",
    "karpenter.sh/do-not-disrupt",
    "karpenter.sh/do-not-repair",
    "karpenter.sh/disruption-cost",
    "controller.kubernetes.io/pod-deletion-cost",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
    "cluster-autoscaler.kubernetes.io/daemonset-pod",
    "cluster-autoscaler.kubernetes.io/enable-ds-eviction",
    "cluster-autoscaler.kubernetes.io/pod-scale-up-delay",
    "kubernetes.io/config.mirror",
    CONSUMES[0],
    CONSUMES[1],
];

/// The label that makes a Node part of a pool.
pub const POOL_LABEL: &str = "pve-autoscaler/pool";
/// When a node became unneeded (annotation, RFC 3339).
pub const UNNEEDED_SINCE: &str = "pve-autoscaler/unneeded-since";
/// `true` on a Node prevents its removal, even if it is unneeded (annotation). `pin` writes it.
pub const PINNED: &str = "pve-autoscaler/scale-down-disabled";
/// Why an operator pinned a Node, if a reason was given (annotation).
pub const PINNED_WHY: &str = "pve-autoscaler/scale-down-disabled-reason";
/// An operator wants the node removed, for the reason that is the value (annotation). `retire` writes it.
pub const RETIRE: &str = "pve-autoscaler/retire";
/// The taint that keeps pods away from a new Node until the daemon has verified its labels and taints:
/// kubeadm or the kubelet may have dropped some.
pub const STARTING_TAINT: &str = "pve-autoscaler/starting";
/// An administrator has protected the node's VM, so it cannot be removed. This annotation is never written to
/// a Node object; only snapshots of Nodes have it.
pub const VM_PROTECTED: &str = "pve-autoscaler/vm-protected";
/// The taint of a node that is being removed.
pub const BEING_DELETED_TAINT: &str = "pve-autoscaler/being-deleted";
/// Taint of a node whose machine is being given more vCPUs or memory, from before its kubelet restarts until
/// the kubelet has reported the new size. Until the kubelet's own watch shows the new size, it refuses pods
/// that were scheduled to it because of the added resources (`OutOfcpu`).
pub const GROWING_TAINT: &str = "pve-autoscaler/growing";
/// Kubernetes' own taint of a Node that is known to be off: its pods and volumes are released without its
/// kubelet.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// The value of [`OUT_OF_SERVICE_TAINT`] if the daemon has set it.
pub const OUT_OF_SERVICE_BY: &str = "pve-autoscaler";

/// CSI driver → how many of its volumes a node takes, `None` for no limit.
pub type DriverLimits = BTreeMap<String, Option<i64>>;

/// What is remembered of a pool between rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolMemory {
    /// The last time that a machine was requested, or that one began to grow.
    pub last_add: Option<Timestamp>,
    /// The last time a node was removed.
    pub last_removal: Option<Timestamp>,
    /// The last time a removal failed.
    pub last_removal_failure: Option<Timestamp>,
    /// Until this back-off ends, no machine is created in the pool.
    pub backoff: Option<Backoff>,
    /// Hosts on which only the creation of a machine of this pool failed, perhaps because a storage or a
    /// bridge is broken. Until the given time, the pool tries them last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_on: BTreeMap<HostKey, Timestamp>,
    /// Until this back-off ends, no running machine of the pool grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grow_backoff: Option<Backoff>,
    /// What a ready node with the pool's own `cores` and `memory` offers.
    pub learnt_allocatable: Option<Resources>,
    /// What ready nodes of each size offer, by size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learnt_sizes: Vec<Learnt>,
    /// The CSI drivers of its nodes, with their limits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub csi_limits: DriverLimits,
    /// The ResourceSlices of one of its nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_slices: Vec<ResourceSlice>,
    /// The fingerprint of the devices that the pool declared when `device_slices` was stored; empty: it
    /// declared none. If the fingerprint has changed, the slices are not used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub declared_devices: String,
    /// The features that its nodes declare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredFeatures>,
    /// The hosts on which its template can be cloned, if that is known. Machines are placed on no others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Vec<HostKey>>,
    /// Those of the hosts in `reach` that have no template of their own. A clone to another host must be on a
    /// storage that the hosts share (`POST /nodes/{node}/qemu/{vmid}/clone` with `target`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub across: Vec<HostKey>,
    /// Its back-off exists because none of its templates can be cloned now. Switching on a host that has a
    /// template would end it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_template: bool,
    /// Why nothing can be done in its Proxmox VE cluster now, if that is so. The pool gets no machine and
    /// loses no node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_sight: Option<String>,
    /// Bytes that a full clone of its template takes on its storage; of several templates, the one with the
    /// largest disks counts. 0 if the size is not known, or if clones are linked.
    #[serde(skip_serializing_if = "is_zero")]
    pub clone_bytes: i64,
    /// Fingerprints of its current templates; empty: not all of them could be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<String>,
    /// Its bare-metal machines that must not be switched on now, and why: a phrase that follows the machine's
    /// name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub out_of_service: BTreeMap<String, String>,
}

/// What a ready node of a pool declares (`status.declaredFeatures`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeclaredFeatures {
    /// Those of its features that the scheduler requires for some pods.
    pub features: Features,
    /// The kubelet's settings, as in the machine's record.
    pub kubelet: String,
}

/// What a ready node on a machine of this size offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Learnt {
    /// vCPUs of the machine.
    pub cores: u32,
    /// Its memory in bytes.
    pub memory: i64,
    /// What its node offers.
    pub allocatable: Resources,
    /// The kubelet's settings, as in the machine's record.
    pub kubelet: String,
}

/// Something that was decided, or that happened to a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decision {
    /// When it happened.
    pub time: Timestamp,
    /// What happened, in words.
    pub what: String,
}

/// What is remembered of a host between rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostMemory {
    /// Until this back-off ends, no new machines are placed on the host.
    pub backoff: Option<Backoff>,
    /// Until this back-off ends, it is not emptied to be switched off, because an earlier attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emptying_backoff: Option<Backoff>,
    /// When it ceased to be needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// The progress of switching it off or on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerMemory>,
}

/// What is remembered of a node (part of `kind: AutoscalerState`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeMemory {
    /// Its pool.
    pub pool: PoolName,
    /// Its removal was given up: the next attempt does not begin before this back-off ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal_backoff: Option<Backoff>,
    /// When it was first seen not ready, by the clock of the instance that saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unready_since: Option<Timestamp>,
}

/// What the daemon remembers because no object shows it (`kind: AutoscalerState`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// When the last round ran. If that was more than three scan intervals ago, the gap does not count for
    /// timers.
    pub last_round: Option<Timestamp>,
    /// What is remembered of each pool.
    pub pools: BTreeMap<PoolName, PoolMemory>,
    /// What is remembered of each host.
    pub hosts: BTreeMap<HostKey, HostMemory>,
    /// What is remembered of nodes that are not ready, or whose removal was given up.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, NodeMemory>,
    /// Free slots by pool, in the order in which they should be used. `None`: unknown, so new machines get no
    /// name.
    pub free_slots: Option<BTreeMap<PoolName, Vec<Slot>>>,
    /// Seed of the names of new machines.
    pub name_seed: u64,
    /// Times of the latest removals, for the hourly limit.
    pub removals: Vec<Timestamp>,
    /// When the latest orphan was collected, for the limit on collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphan_collected: Option<Timestamp>,
    /// What kube-scheduler is expected to do, and where it did something else.
    #[serde(skip_serializing_if = "Predictions::is_empty")]
    pub predictions: Predictions,
    /// What the last round could not look at.
    #[serde(skip_serializing_if = "Unfinished::is_empty")]
    pub unfinished: Unfinished,
    /// The setting `backoff_initial`, in seconds, that the current back-offs are based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_initial: Option<i64>,
    /// The latest decisions, oldest first, for people who ask what happened. Decisions do not depend on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

/// A template that the inventory found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSeen {
    /// The pool that uses it.
    pub pool: PoolName,
    /// Its VMID; `None`: machines of the pool have no template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmid: Option<Vmid>,
    /// The host that holds it.
    pub host: HostKey,
    /// Hosts on which it can be cloned.
    pub hosts: Vec<HostKey>,
}

/// The Proxmox side (`kind: ProxmoxInventory`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// The hosts. `None`: unlimited room on one host called `pve`.
    pub hosts: Option<Vec<Host>>,
    /// Every machine of the pools. `None`: only the Nodes are known.
    pub machines: Option<Vec<Machine>>,
    /// Templates found, by pool; empty in a snapshot file.
    #[serde(default)]
    pub templates: Vec<TemplateSeen>,
    /// What is known of hosts that may be switched off; `None`: nothing is known, so no host is switched off.
    #[serde(default)]
    pub power: Option<PowerFacts>,
}

/// Everything that one decision reads. Objects are shared with the caches that they come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The time of the decision.
    pub time: Timestamp,
    /// The version of the control plane.
    pub kubernetes: KubernetesVersion,
    /// Nodes, by name.
    pub nodes: Vec<Arc<Node>>,
    /// Pods of all namespaces.
    pub pods: Vec<Arc<Pod>>,
    /// Namespaces.
    pub namespaces: Vec<Arc<Namespace>>,
    /// Controllers of pods.
    pub controllers: Vec<Arc<Controller>>,
    /// DaemonSets.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// PodDisruptionBudgets.
    pub budgets: Vec<Arc<DisruptionBudget>>,
    /// PersistentVolumes.
    pub volumes: Vec<Arc<PersistentVolume>>,
    /// PersistentVolumeClaims.
    pub claims: Vec<Arc<VolumeClaim>>,
    /// StorageClasses.
    pub storage_classes: Vec<Arc<StorageClass>>,
    /// CSIDrivers.
    pub csi_drivers: Vec<Arc<CsiDriver>>,
    /// CSINodes.
    pub csi_nodes: Vec<Arc<CsiNode>>,
    /// CSIStorageCapacities.
    pub storage_capacities: Vec<Arc<StorageCapacity>>,
    /// VolumeAttachments.
    pub attachments: Vec<Arc<VolumeAttachment>>,
    /// PriorityClasses.
    pub priority_classes: Vec<Arc<PriorityClass>>,
    /// ResourceClaims.
    pub resource_claims: Vec<Arc<ResourceClaim>>,
    /// DeviceClasses.
    pub device_classes: Vec<Arc<DeviceClass>>,
    /// ResourceSlices.
    pub resource_slices: Vec<Arc<ResourceSlice>>,
    /// DeviceTaintRules.
    pub device_taint_rules: Vec<Arc<DeviceTaintRule>>,
    /// CapacityBuffers.
    pub buffers: Vec<Arc<CapacityBuffer>>,
    /// ProvisioningRequests; `None`: the API server does not know the resource.
    pub requests: Option<Vec<Arc<ProvisioningRequest>>>,
    /// PodGroups; `None`: the API server does not know the resource, or does not return it.
    pub pod_groups: Option<Vec<Arc<PodGroup>>>,
    /// PodTemplates, as far as buffers may refer to them.
    pub pod_templates: Vec<Arc<PodTemplate>>,
    /// The Proxmox side.
    pub proxmox: Arc<Inventory>,
    /// What the daemon remembers.
    pub memory: Memory,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(bytes: &i64) -> bool {
    *bytes == 0
}
