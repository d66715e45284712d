//! The result of a decision: the machines to create, the nodes to remove, and a verdict with its reason for
//! each pod and node.
//!
//! Serializes to the format of `plan --output json`.

use crate::vmid::Vmid;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::drain::NodeReason;
use super::gang::{GangReason, GangWait};
use super::host_key::HostKey;
use super::machine::WarmState;
use super::power::HostVerdict;
use super::prediction::Missed;
use super::text_id::PoolName;
use super::unfinished::Unfinished;

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The time of the decision.
    pub time: Timestamp,
    /// Machines to create, by pool.
    pub scale_up: Vec<PoolGrowth>,
    /// Pools that stay below their minimum, and why they get no more machines now.
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
    /// Machines to create ahead of demand, by pool: they are kept warm until they are asked to join.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<PoolGrowth>,
    /// Pools that would keep more warm machines, and why they get none now.
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
    /// What the round could not look at; later rounds will.
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
    /// The object that has it: `pod NAMESPACE/NAME` or `node NAME`.
    pub object: String,
    /// Its key.
    pub annotation: String,
    /// Its value.
    pub value: String,
    /// What is wrong with the value.
    pub why: &'static str,
}

/// The machines that a pool gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolGrowth {
    /// The pool.
    pub pool: PoolName,
    /// Its new machines.
    pub machines: Vec<NewMachine>,
}

/// A machine to create or to wake, in enough detail that no further decision is needed to do so.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewMachine {
    /// Its name, if free slots are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its VMID, if free slots are known. Has no meaning for a bare-metal machine.
    #[serde(skip_serializing_if = "is_no_vmid")]
    pub vmid: Option<Vmid>,
    /// Its address, if free slots are known and the pool has addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its further addresses by device and family, e.g. `net0/ip6`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub further_addresses: BTreeMap<String, IpAddr>,
    /// The host that it is placed on.
    pub host: HostKey,
    /// The storage of its clone, if its pool names any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// vCPUs.
    pub cores: u32,
    /// Memory as a quantity, e.g. `8Gi`.
    pub memory: String,
    /// Its memory in bytes.
    #[serde(skip)]
    pub memory_bytes: i64,
    /// Pods planned on it, `namespace/name`.
    pub pods: Vec<Arc<str>>,
    /// How an existing warm machine, which is now asked to join, was kept; `None`: the machine is new.
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
    /// The size that it is to have.
    pub to: GrownSize,
    /// Why, in words.
    pub reason: String,
    /// Pods that will then fit, `namespace/name`.
    pub pods: Vec<Arc<str>>,
}

/// vCPUs and memory of a machine that grows.
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
    /// In words, e.g. `4 cores and 8Gi`.
    pub fn words(&self) -> String {
        format!("{} cores and {}", self.cores, self.memory)
    }
}

/// Whether the VMID is left out: there is none, or it is the number of a bare-metal machine.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_no_vmid(vmid: &Option<Vmid>) -> bool {
    vmid.is_none_or(Vmid::is_bare_metal)
}

/// A machine that is no longer kept warm: it is destroyed without having been a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unkept {
    /// The machine.
    pub machine: String,
    /// Its pool.
    pub pool: PoolName,
    /// Why, in words.
    pub reason: String,
}

/// What happens to a pending pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum PodOutcome {
    /// A new machine is created for it.
    NewNode,
    /// It fits an existing node.
    ExistingNode,
    /// It fits an existing node once its machine has grown.
    GrownNode,
    /// It fits a machine that is being created.
    UpcomingNode,
    /// It would not fit the nodes of any pool.
    NoPoolFits,
    /// The pools that fit are at their maximum, or have no free slot.
    PoolAtMax,
    /// No host has room for a machine of the pools that fit, or none of their bare-metal machines can be
    /// switched on.
    NoHostCapacity,
    /// Its priority is below the cut-off.
    Expendable,
    /// No node is created for a DaemonSet's pod.
    DaemonSet,
    /// A scheduling gate holds it back.
    Gated,
    /// It is younger than the configured delay.
    TooYoung,
    /// The pools that fit are backing off after failures, or are left alone after a change.
    BackingOff,
    /// kube-scheduler refuses pods like it on a node where the planner found that they fit.
    PredictionMissed,
    /// The round has reached its limit: a later one looks at it.
    Unfinished,
    /// It is part of a ProvisioningRequest for which there is no room yet.
    AwaitsRequest,
    /// It is part of a gang that kube-scheduler would not place yet. No machine is created for a part of a
    /// gang.
    AwaitsGang,
}

crate::codes!(
    PodOutcome {
        NewNode => "NewNode",
        ExistingNode => "ExistingNode",
        GrownNode => "GrownNode",
        UpcomingNode => "UpcomingNode",
        NoPoolFits => "NoPoolFits",
        PoolAtMax => "PoolAtMax",
        NoHostCapacity => "NoHostCapacity",
        Expendable => "Expendable",
        DaemonSet => "DaemonSet",
        Gated => "Gated",
        TooYoung => "TooYoung",
        BackingOff => "BackingOff",
        PredictionMissed => "PredictionMissed",
        Unfinished => "Unfinished",
        AwaitsRequest => "AwaitsRequest",
        AwaitsGang => "AwaitsGang",
    }
);

/// What happens to a ProvisioningRequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum RequestOutcome {
    /// There is room for all of its pods.
    Found,
    /// Machines are being created for its pods.
    Provisioned,
    /// There is no room, and no machine is created.
    NotFound,
    /// The round has reached its limit, or a PodTemplate may still arrive: a later round looks at it.
    Unfinished,
    /// Room is reserved for it.
    Booked,
    /// Its reservation has expired.
    BookingExpired,
    /// All of its pods have a node.
    Consumed,
    /// Its final result has already been reported.
    Over,
    /// No room was found in time.
    Expired,
    /// One of its PodTemplates does not exist, or it is for too many pods.
    Broken,
    /// Its class belongs to another autoscaler.
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
    /// What happens to it.
    pub verdict: RequestOutcome,
    /// Why, in words.
    pub message: String,
    /// How many pods it is for.
    pub pods: i64,
    /// How many of them get machines that are created now.
    pub on_new_machines: usize,
    /// Why no pool gets a machine for the first pod that finds no room.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<PoolReason>,
}

/// How far a CapacityBuffer is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum BufferOutcome {
    /// All of its chunks fit existing nodes.
    Filled,
    /// Some of its chunks wait for machines that are being created, or that are about to be.
    Filling,
    /// Some of its chunks find no room, and no machine is created for them now.
    Short,
    /// It has no chunks.
    Empty,
    /// It is not known what its chunks are.
    NotReady,
    /// Its strategy belongs to another autoscaler.
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
    /// How far it is filled.
    pub verdict: BufferOutcome,
    /// Why it is not ready, as a code, e.g. `PodTemplateNotFound`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Why it is not ready, or what happens to its chunks, in words.
    pub message: String,
    /// How many chunks it is to have, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<i64>,
    /// How many of them fit existing nodes.
    pub on_nodes: usize,
    /// How many fit machines that are being created, or that grow.
    pub on_machines: usize,
    /// How many get machines that are created now.
    pub on_new_machines: usize,
    /// How many find no room.
    pub nowhere: usize,
    /// The PodTemplate that was used, and its generation.
    #[serde(skip)]
    pub template: Option<(String, i64)>,
    /// The verdict of the first chunk that finds no room.
    #[serde(skip)]
    pub nowhere_because: Option<PodOutcome>,
    /// Why the pools do not take that chunk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<PoolReason>,
}

/// Why a pool gets no machine, for example for a certain pod or to reach its minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolReason {
    /// The pool.
    pub pool: PoolName,
    /// The reason as a stable code, e.g. `InsufficientCpu`.
    pub reason: &'static str,
    /// The reason in words, with numbers.
    pub message: String,
}

/// A prediction that turned out to be wrong: kube-scheduler refuses pods on a node where the planner found
/// that they fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissedPrediction {
    /// The node that they were expected on.
    pub node: String,
    /// The node's pool, which gets no machine for them for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// When it was noticed.
    pub at: Timestamp,
    /// Until when the pool gets no machine for them.
    pub until: Timestamp,
    /// Why they were expected there.
    pub ours: String,
    /// What kube-scheduler reported, in its own words.
    pub theirs: String,
}

impl MissedPrediction {
    /// Converts the daemon's memory of a missed prediction.
    pub fn of(missed: &Missed) -> Self {
        Self {
            node: missed.node.clone(),
            pool: missed.pool.clone(),
            at: missed.at,
            until: missed.backoff.until,
            ours: missed.ours.clone(),
            theirs: missed.theirs.clone(),
        }
    }

    /// In one sentence: why they were expected on the node, and what kube-scheduler reported.
    pub fn words(&self) -> String {
        format!("{}, but kube-scheduler says: {}", self.ours, self.theirs)
    }
}

/// A pending pod's verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodVerdict {
    /// `namespace/name`.
    pub pod: Arc<str>,
    /// What happens to it.
    pub verdict: PodOutcome,
    /// The pool of its new machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Arc<str>>,
    /// If it fits an existing node: the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// If it fits a machine that is being created: the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Arc<str>>,
    /// Why the pools do not take it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<PoolReason>,
    /// If its verdict is `PredictionMissed`: where it was expected, and what kube-scheduler reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<Arc<MissedPrediction>>,
    /// If its verdict is `AwaitsGang`: why its gang is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<Arc<GangWait>>,
}

impl PodVerdict {
    /// Whether it is pending because its gang has no room.
    pub fn awaits_room_with_gang(&self) -> bool {
        self.missed.is_none() && self.gang.as_ref().is_some_and(|gang| gang.reason == GangReason::NoRoom)
    }

    /// Why no machine is created for it, in words; empty if no reason is known, for example because there is
    /// no pool.
    pub fn why(&self) -> String {
        let reasons: Vec<String> =
            self.reasons.iter().map(|one| format!("{}: {}", one.pool, one.message)).collect();
        let reasons = match &self.missed {
            Some(missed) if reasons.is_empty() => missed.words(),
            _ => reasons.join("; "),
        };
        match &self.gang {
            Some(gang) if reasons.is_empty() => gang.message.clone(),
            Some(gang) => format!("{} ({reasons})", gang.message),
            None => reasons,
        }
    }
}

/// A pod of a removed node, and a node that can take it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// `namespace/name`.
    pub pod: String,
    /// The node that can take it.
    pub to: String,
}

/// Why a node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum RemovalReason {
    /// No pod on it needs to be moved.
    Empty,
    /// Below the threshold, and its pods fit elsewhere.
    Underutilized,
    /// Not ready for too long.
    Unready,
    /// Fewer or smaller machines are enough.
    Consolidation,
    /// Created from settings that have changed since.
    Drifted,
    /// Older than allowed.
    Expired,
    /// Its host is in maintenance.
    Maintenance,
    /// Its host is to be shut down.
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
    /// Its utilization, rounded to four decimal places.
    pub utilization: f64,
    /// Its pods, and the nodes that can take them.
    pub moves: Vec<Move>,
}

/// The verdict on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum NodeOutcome {
    /// Not in a managed pool.
    NotManaged,
    /// Its utilization is above the threshold, or its machine is growing.
    Utilized,
    /// A pod prevents its removal.
    Blocked,
    /// Its pods fit nowhere else.
    NoPlaceToMovePods,
    /// Without it, its pool would be below its minimum or its headroom.
    AtMinimum,
    /// It is unneeded, but may not be removed yet.
    Unneeded,
    /// A cool-down is running, or a disruption limit has been reached.
    CoolingDown,
    /// Too many nodes of its pool are not ready, or the pool's Proxmox VE cluster cannot be used.
    PoolUnhealthy,
    /// An annotation forbids its removal, or removals are switched off.
    Disabled,
    /// It is not ready, but may not be removed yet.
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
    /// Its utilization, rounded to four decimal places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// The verdict.
    pub verdict: NodeOutcome,
    /// The reason for the verdict, if the verdict alone does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<NodeReason>,
    /// The pod that blocks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// More about the verdict, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it became unneeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it may be removed at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removable_at: Option<Timestamp>,
}
