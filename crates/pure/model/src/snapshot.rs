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

/// The annotations that decisions read. All others are dropped when an object arrives.
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
/// Node annotation: the time at which the Node became unneeded (RFC 3339).
pub const UNNEEDED_SINCE: &str = "pve-autoscaler/unneeded-since";
/// Node annotation: `true` prevents the removal of the Node, even if it is unneeded. The `pin` command sets
/// this annotation.
pub const PINNED: &str = "pve-autoscaler/scale-down-disabled";
/// Node annotation: the reason that an administrator gave for pinning the Node, if any.
pub const PINNED_WHY: &str = "pve-autoscaler/scale-down-disabled-reason";
/// Node annotation: an administrator wants the Node removed. The value is the reason. The `retire` command
/// sets this annotation.
pub const RETIRE: &str = "pve-autoscaler/retire";
/// The taint that keeps pods away from a new Node until the daemon has verified the Node's labels and taints,
/// because kubeadm or the kubelet may have dropped some.
pub const STARTING_TAINT: &str = "pve-autoscaler/starting";
/// Node annotation: an administrator has protected the node's VM, so the node cannot be removed. The
/// annotation exists only on the Nodes in a snapshot, and is never written to the Node object.
pub const VM_PROTECTED: &str = "pve-autoscaler/vm-protected";
/// The taint of a node that is being removed.
pub const BEING_DELETED_TAINT: &str = "pve-autoscaler/being-deleted";
/// The taint of a node whose machine is being given more vCPUs or memory. It is set before the kubelet
/// restarts, and removed once the kubelet has reported the new size. Until the kubelet has received the new
/// size through its own watch, it refuses pods that were scheduled because of the added resources
/// (`OutOfcpu`).
pub const GROWING_TAINT: &str = "pve-autoscaler/growing";
/// Kubernetes' own taint for a Node that is known to be off. If a Node has this taint, Kubernetes releases
/// the Node's pods and volumes without waiting for its kubelet.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// The value that the daemon gives to the taint [`OUT_OF_SERVICE_TAINT`].
pub const OUT_OF_SERVICE_BY: &str = "pve-autoscaler";

/// The maximum number of volumes on a node for each CSI driver. `None` means that the driver has no limit.
pub type DriverLimits = BTreeMap<String, Option<i64>>;

/// What the daemon remembers about a pool between rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolMemory {
    /// The last time that a machine of the pool was requested or began to grow.
    pub last_add: Option<Timestamp>,
    /// The last time that a node of the pool was removed.
    pub last_removal: Option<Timestamp>,
    /// The last time that the removal of a node failed.
    pub last_removal_failure: Option<Timestamp>,
    /// The pool's back-off. No machine is created in the pool until it ends.
    pub backoff: Option<Backoff>,
    /// Hosts on which creating machines failed for this pool but not for others, perhaps because a storage or
    /// a bridge is broken. Until the given time, the pool tries these hosts last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_on: BTreeMap<HostKey, Timestamp>,
    /// The pool's back-off for growing. No running machine of the pool grows until it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grow_backoff: Option<Backoff>,
    /// The allocatable resources of a ready node with the pool's own `cores` and `memory`.
    pub learnt_allocatable: Option<Resources>,
    /// The allocatable resources of ready nodes, by machine size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learnt_sizes: Vec<Learnt>,
    /// The CSI drivers of the pool's nodes, with their limits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub csi_limits: DriverLimits,
    /// The ResourceSlices of one of the pool's nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_slices: Vec<ResourceSlice>,
    /// The fingerprint of the devices that the pool declared when `device_slices` was stored. Empty if it
    /// declared none. If the fingerprint has changed, the slices are not used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub declared_devices: String,
    /// The features that the pool's nodes declare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredFeatures>,
    /// The hosts on which the pool's template can be cloned, if known. Machines are placed only on these
    /// hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Vec<HostKey>>,
    /// The hosts in `reach` that have no template of their own. A clone to another host must be on a storage
    /// that the hosts share (`POST /nodes/{node}/qemu/{vmid}/clone` with `target`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub across: Vec<HostKey>,
    /// Whether the pool backs off because none of its templates can be cloned now. Switching on a host that
    /// has a template would end this back-off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_template: bool,
    /// The reason why the pool's Proxmox VE cluster cannot be used now, if that is the case. While this is
    /// set, no machine of the pool is created, and none of its nodes is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_sight: Option<String>,
    /// The size of a full clone of the pool's template on its storage, in bytes. If the pool has several
    /// templates, the one with the largest disks determines this size. 0 if the size is unknown, or if clones
    /// are linked.
    #[serde(skip_serializing_if = "is_zero")]
    pub clone_bytes: i64,
    /// The fingerprints of the pool's current templates. Empty if not all of them could be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<String>,
    /// The pool's bare-metal machines that must not be switched on now, and why. The reason is a phrase that
    /// follows the machine's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub out_of_service: BTreeMap<String, String>,
}

/// The features that a ready node of a pool declares (`status.declaredFeatures`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeclaredFeatures {
    /// The declared features that the scheduler requires for some pods.
    pub features: Features,
    /// The kubelet's settings, as in the machine's record.
    pub kubelet: String,
}

/// The allocatable resources of a ready node on a machine of this size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Learnt {
    /// The number of vCPUs of the machine.
    pub cores: u32,
    /// The memory of the machine, in bytes.
    pub memory: i64,
    /// The allocatable resources of the node.
    pub allocatable: Resources,
    /// The kubelet's settings, as in the machine's record.
    pub kubelet: String,
}

/// Something that the daemon decided, or that happened to a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decision {
    /// When it happened.
    pub time: Timestamp,
    /// What happened, as text for users.
    pub what: String,
}

/// What the daemon remembers about a host between rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostMemory {
    /// The host's back-off. No new machines are placed on the host until it ends.
    pub backoff: Option<Backoff>,
    /// The back-off after a failed attempt to empty the host in order to switch it off. There is no new
    /// attempt until this back-off ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emptying_backoff: Option<Backoff>,
    /// The time at which the host ceased to be needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// The progress of switching the host off or on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerMemory>,
}

/// What the daemon remembers about a node (part of `kind: AutoscalerState`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeMemory {
    /// Its pool.
    pub pool: PoolName,
    /// Set if the removal of the node was given up. The next attempt does not begin before this back-off
    /// ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal_backoff: Option<Backoff>,
    /// The time at which a daemon instance first saw that the node was not ready, by that instance's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unready_since: Option<Timestamp>,
}

/// What the daemon remembers between rounds (`kind: AutoscalerState`), because no other object contains it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// The time of the last round. If that was more than three scan intervals ago, timers do not include the
    /// gap.
    pub last_round: Option<Timestamp>,
    /// What the daemon remembers about each pool.
    pub pools: BTreeMap<PoolName, PoolMemory>,
    /// What the daemon remembers about each host.
    pub hosts: BTreeMap<HostKey, HostMemory>,
    /// What the daemon remembers about nodes that are not ready, or whose removal was given up.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, NodeMemory>,
    /// Free slots by pool, in the order in which they should be used. `None` if they are not known, in which
    /// case new machines get no name.
    pub free_slots: Option<BTreeMap<PoolName, Vec<Slot>>>,
    /// The seed for the names of new machines.
    pub name_seed: u64,
    /// The times of the latest removals, for the hourly limit.
    pub removals: Vec<Timestamp>,
    /// The time at which the latest orphan was collected, for the limit on collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphan_collected: Option<Timestamp>,
    /// Predictions of what kube-scheduler will do, both open ones and those that turned out to be wrong.
    #[serde(skip_serializing_if = "Predictions::is_empty")]
    pub predictions: Predictions,
    /// The pods and nodes that the last round could not look at.
    #[serde(skip_serializing_if = "Unfinished::is_empty")]
    pub unfinished: Unfinished,
    /// The value of the setting `backoff_initial`, in seconds, that the current back-offs are based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_initial: Option<i64>,
    /// The latest decisions, oldest first, for users who want to know what happened. Later decisions do not
    /// depend on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

/// A template that the inventory found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSeen {
    /// The pool that uses the template.
    pub pool: PoolName,
    /// The VMID of the template. `None` if the pool's machines have no template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmid: Option<Vmid>,
    /// The host that holds the template.
    pub host: HostKey,
    /// The hosts on which the template can be cloned.
    pub hosts: Vec<HostKey>,
}

/// What is known about Proxmox VE (`kind: ProxmoxInventory`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// The hosts. `None` means a single host called `pve` with unlimited room.
    pub hosts: Option<Vec<Host>>,
    /// All machines of the pools. `None` if only the Nodes are known.
    pub machines: Option<Vec<Machine>>,
    /// The templates that were found, by pool. Empty in a snapshot file.
    #[serde(default)]
    pub templates: Vec<TemplateSeen>,
    /// The facts about hosts that may be switched off. `None` if nothing is known, in which case no host is
    /// switched off.
    #[serde(default)]
    pub power: Option<PowerFacts>,
}

/// Everything that one decision reads. The objects are shared with the caches from which they come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The time of the decision.
    pub time: Timestamp,
    /// The version of the control plane.
    pub kubernetes: KubernetesVersion,
    /// Nodes, by name.
    pub nodes: Vec<Arc<Node>>,
    /// The pods of all namespaces.
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
    /// All ProvisioningRequests. `None` if the API server does not know the resource.
    pub requests: Option<Vec<Arc<ProvisioningRequest>>>,
    /// All PodGroups. `None` if the API server does not know the resource, or does not return it.
    pub pod_groups: Option<Vec<Arc<PodGroup>>>,
    /// The PodTemplates that buffers may refer to.
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
