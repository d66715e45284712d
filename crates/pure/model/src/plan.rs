//! The result of a decision: the machines to create, the nodes to remove, and a verdict on each pod and node
//! with the reason for it.
//!
//! A plan serializes to the format of `plan --output json`.

use crate::vmid::Vmid;
use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Serialize;

use super::drain::NodeReason;
use super::host_key::HostKey;
use super::machine::WarmState;
use super::pod_id::PodId;
use super::power::HostVerdict;
use super::text_id::PoolName;
use super::unfinished::Unfinished;

pub use pod_verdict::{Destination, MissedPrediction, PodOutcome, PodVerdict, WhyPending};

mod pod_verdict;

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The time of the decision.
    pub time: Timestamp,
    /// Machines to create or wake, by pool.
    pub scale_up: Vec<PoolGrowth>,
    /// Pools that stay below their minimum, and why no machines are created for them now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub below_minimum: Vec<PoolReason>,
    /// Running machines that are given more vCPUs or memory in place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grow: Vec<GrownMachine>,
    /// The verdict on each pending pod.
    pub pods: Vec<PodVerdict>,
    /// Nodes to remove.
    pub scale_down: Vec<Removal>,
    /// The verdict on each node.
    pub nodes: Vec<NodeVerdict>,
    /// Machines to create ahead of demand, by pool. They are kept warm until they are asked to join.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<PoolGrowth>,
    /// Pools that should keep more warm machines, and why none are created now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_refused: Vec<PoolReason>,
    /// Machines that are no longer kept warm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unkept: Vec<Unkept>,
    /// Annotations that are ignored because their values cannot be parsed. If there are many, only the first
    /// ones are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_annotations: Vec<IgnoredAnnotation>,
    /// The verdict on each host that may be switched off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostVerdict>,
    /// The verdict on each CapacityBuffer, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<BufferVerdict>,
    /// The verdict on each chunk of a CapacityBuffer. Chunks are not pods, but are handled like pods.
    #[serde(skip)]
    pub chunks: Vec<PodVerdict>,
    /// The pods and nodes that the round could not check because it reached its limit. Later rounds check
    /// them.
    #[serde(skip_serializing_if = "Unfinished::is_empty")]
    pub unfinished: Unfinished,
    /// The verdict on each ProvisioningRequest, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestVerdict>,
}

/// An annotation whose value cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredAnnotation {
    /// The object that has the annotation: `pod NAMESPACE/NAME` or `node NAME`.
    pub object: String,
    /// Its key.
    pub annotation: String,
    /// Its value.
    pub value: String,
    /// What is wrong with the value.
    pub why: &'static str,
}

/// The machines to create or wake in a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolGrowth {
    /// The pool.
    pub pool: PoolName,
    /// Its new machines.
    pub machines: Vec<NewMachine>,
}

/// A machine to create or wake. Contains all details that this requires, so that no further decision is
/// needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewMachine {
    /// The name of the machine, if free slots are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The VMID of the machine, if free slots are known. Has no meaning for a bare-metal machine.
    #[serde(skip_serializing_if = "is_no_vmid")]
    pub vmid: Option<Vmid>,
    /// The address of the machine, if free slots are known and the pool has addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Other addresses of the machine, by device and family, e.g. `net0/ip6`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub further_addresses: BTreeMap<String, IpAddr>,
    /// The host that the machine is placed on.
    pub host: HostKey,
    /// The storage for the machine's clone, if the pool lists any storages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// vCPUs.
    pub cores: u32,
    /// The memory as a quantity, e.g. `8Gi`.
    pub memory: String,
    /// The memory in bytes.
    #[serde(skip)]
    pub memory_bytes: i64,
    /// The pods planned on the machine, as `namespace/name`.
    pub pods: Vec<PodId>,
    /// How the machine was kept warm, if it is an existing machine that is now asked to join. `None` if the
    /// machine is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub woken: Option<WarmState>,
}

/// A running machine that is given more vCPUs or memory in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrownMachine {
    /// The machine.
    pub machine: String,
    /// Its pool.
    pub pool: PoolName,
    /// Its Node.
    pub node: String,
    /// Its size now.
    pub from: GrownSize,
    /// The new size of the machine.
    pub to: GrownSize,
    /// Why, in words.
    pub reason: String,
    /// The pods that will fit on the grown machine, as `namespace/name`.
    pub pods: Vec<PodId>,
}

/// The vCPUs and memory of a machine that grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GrownSize {
    /// vCPUs.
    pub cores: u32,
    /// Memory, e.g. `8Gi`.
    pub memory: String,
    /// Memory in bytes.
    #[serde(skip)]
    pub memory_bytes: i64,
}

impl GrownSize {
    /// The size as text, e.g. `4 cores and 8Gi`.
    pub fn words(&self) -> String {
        format!("{} cores and {}", self.cores, self.memory)
    }
}

/// Whether serialization leaves out the VMID. It does if there is no VMID, or if the VMID is the number of a
/// bare-metal machine.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_no_vmid(vmid: &Option<Vmid>) -> bool {
    vmid.is_none_or(Vmid::is_bare_metal)
}

/// A machine that is no longer kept warm. It is destroyed without having been a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unkept {
    /// The machine.
    pub machine: String,
    /// Its pool.
    pub pool: PoolName,
    /// Why, in words.
    pub reason: String,
}

/// The verdict on a ProvisioningRequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum RequestOutcome {
    /// There is room for all pods of the request.
    Found,
    /// Machines are being created for the pods of the request.
    Provisioned,
    /// There is no room for the pods of the request, and no machine is created.
    NotFound,
    /// The round reached its limit, or a missing PodTemplate may still arrive. A later round checks the
    /// request.
    Unfinished,
    /// Room is reserved for the pods of the request.
    Booked,
    /// The reservation of the request has expired.
    BookingExpired,
    /// All pods of the request have a node.
    Consumed,
    /// The final result of the request has already been reported.
    Over,
    /// No room was found for the request in time.
    Expired,
    /// One of the request's PodTemplates does not exist, or the request is for too many pods.
    Broken,
    /// The class of the request belongs to another autoscaler.
    NotOurs,
}

crate::codes!(
    RequestOutcome {
        Found => "Found",
        Provisioned => "Provisioned",
        NotFound => "NotFound",
        Unfinished => "Unfinished",
        Booked => "Booked",
        BookingExpired => "BookingExpired",
        Consumed => "Consumed",
        Over => "Over",
        Expired => "Expired",
        Broken => "Broken",
        NotOurs => "NotOurs",
    }
);

/// A ProvisioningRequest's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestVerdict {
    /// `namespace/name`.
    pub request: String,
    /// The outcome for the request.
    pub verdict: RequestOutcome,
    /// Why, in words.
    pub message: String,
    /// The total number of pods in the request.
    pub pods: i64,
    /// The number of the request's pods that are planned on machines that this plan creates or wakes.
    pub on_new_machines: usize,
    /// Why no machine is created for the first pod for which there is no room, by pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<PoolReason>,
}

/// The verdict on a CapacityBuffer: how far it is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum BufferOutcome {
    /// All chunks of the buffer fit existing nodes.
    Filled,
    /// Some chunks of the buffer wait for machines that are being created, or that are about to be.
    Filling,
    /// There is no room for some chunks of the buffer, and no machine is created for them now.
    Short,
    /// The buffer has no chunks.
    Empty,
    /// The chunks of the buffer are not known.
    NotReady,
    /// The strategy of the buffer belongs to another autoscaler.
    NotOurs,
}

crate::codes!(
    BufferOutcome {
        Filled => "Filled",
        Filling => "Filling",
        Short => "Short",
        Empty => "Empty",
        NotReady => "NotReady",
        NotOurs => "NotOurs",
    }
);

/// A CapacityBuffer's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BufferVerdict {
    /// `namespace/name`.
    pub buffer: String,
    /// How far the buffer is filled.
    pub verdict: BufferOutcome,
    /// Why the buffer is not ready, as a code, e.g. `PodTemplateNotFound`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Why the buffer is not ready, or what happens to its chunks, as text.
    pub message: String,
    /// The desired number of chunks, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<i64>,
    /// The number of chunks that fit existing nodes.
    pub on_nodes: usize,
    /// The number of chunks that fit machines that are being created, or that grow.
    pub on_machines: usize,
    /// The number of chunks that are planned on machines that this plan creates or wakes.
    pub on_new_machines: usize,
    /// The number of chunks for which there is no room.
    pub nowhere: usize,
    /// The name of the PodTemplate that was used, and its generation.
    #[serde(skip)]
    pub template: Option<(String, i64)>,
    /// The verdict on the first chunk for which there is no room.
    #[serde(skip)]
    pub nowhere_because: Option<PodOutcome>,
    /// Why no machine is created for the first chunk for which there is no room, by pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<PoolReason>,
}

/// Why no machine is created in a pool, for example for a certain pod or to reach the pool's minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolReason {
    /// The pool.
    pub pool: PoolName,
    /// The reason as a stable code, e.g. `InsufficientCpu`.
    pub reason: &'static str,
    /// The reason as text, with numbers.
    pub message: String,
}

/// A pod of a removed node, and the node that can take the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// `namespace/name`.
    pub pod: String,
    /// The node that can take the pod.
    pub to: String,
}

/// Why a node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum RemovalReason {
    /// No pod on the node needs to be moved.
    Empty,
    /// The node is below the utilization threshold, and its pods fit elsewhere.
    Underutilized,
    /// The node has been unready for too long.
    Unready,
    /// Fewer or smaller machines would be enough for the pods.
    Consolidation,
    /// The machine was created from settings that have changed since.
    Drifted,
    /// Older than allowed.
    Expired,
    /// The machine's host is in maintenance.
    Maintenance,
    /// The machine's host is to be shut down.
    HostOff,
}

crate::codes!(
    RemovalReason {
        Empty => "Empty",
        Underutilized => "Underutilized",
        Unready => "Unready",
        Consolidation => "Consolidation",
        Drifted => "Drifted",
        Expired => "Expired",
        Maintenance => "Maintenance",
        HostOff => "HostOff",
    }
);

/// A node to remove.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// The node.
    pub node: String,
    /// Why.
    pub reason: RemovalReason,
    /// The node's utilization, rounded to four decimal places.
    pub utilization: f64,
    /// The node's pods, and the nodes that can take them.
    pub moves: Vec<Move>,
}

/// The verdict on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum NodeOutcome {
    /// The node is not in a managed pool.
    NotManaged,
    /// The node's utilization is above the threshold, or its machine is growing.
    Utilized,
    /// A pod prevents the node's removal.
    Blocked,
    /// The node's pods fit on no other node.
    NoPlaceToMovePods,
    /// Without the node, the pool would be below its minimum or its headroom.
    AtMinimum,
    /// The node is unneeded, but may not be removed yet.
    Unneeded,
    /// A cool-down is running, or a disruption limit has been reached.
    CoolingDown,
    /// Too many nodes in the node's pool are not ready, or the pool's Proxmox VE cluster cannot be used.
    PoolUnhealthy,
    /// An annotation forbids the node's removal, or removals are switched off.
    Disabled,
    /// The node is not ready, but may not be removed yet.
    Unready,
    /// Already being removed.
    BeingDeleted,
    /// It is removed.
    Remove,
}

crate::codes!(
    NodeOutcome {
        NotManaged => "NotManaged",
        Utilized => "Utilized",
        Blocked => "Blocked",
        NoPlaceToMovePods => "NoPlaceToMovePods",
        AtMinimum => "AtMinimum",
        Unneeded => "Unneeded",
        CoolingDown => "CoolingDown",
        PoolUnhealthy => "PoolUnhealthy",
        Disabled => "Disabled",
        Unready => "Unready",
        BeingDeleted => "BeingDeleted",
        Remove => "Remove",
    }
);

/// A node's verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeVerdict {
    /// The node.
    pub node: String,
    /// Its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The node's utilization, rounded to four decimal places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// The verdict.
    pub verdict: NodeOutcome,
    /// The reason for the verdict, if the verdict alone does not explain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<NodeReason>,
    /// The pod that prevents the node's removal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Details of the verdict, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time at which the node became unneeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The earliest time at which the node may be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removable_at: Option<Timestamp>,
}
