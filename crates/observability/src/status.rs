//! The status of a running daemon, as `status --output json` prints it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use model::machine::WarmState;
use model::snapshot::Decision;
use model::{HostKey, Pause, PoolName, Vmid};

/// Everything that `status` shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// When this status was put together.
    pub time: Timestamp,
    /// The instance's name.
    pub instance: String,
    /// `active` or `observe`.
    pub mode: String,
    /// Whether this instance leads.
    pub leads: bool,
    /// The instance that leads, if known.
    pub leader: String,
    /// The pause, if the daemon is paused; only the leader knows.
    pub paused: Option<Pause>,
    /// Whether everything was seen once and rounds are running.
    pub ready: bool,
    /// The number of rounds.
    pub rounds: u64,
    /// Current problems, by subject.
    pub problems: BTreeMap<String, String>,
    /// Warnings that stop nothing, by subject.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub warnings: BTreeMap<String, String>,
    /// When credentials expire, for those with an expiry time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, Timestamp>,
    /// Pools in the order of the configuration.
    pub pools: Vec<PoolStatus>,
    /// Hosts by name, as they were last seen.
    pub hosts: Vec<HostStatus>,
    /// Machines by name.
    pub machines: Vec<MachineStatus>,
    /// Nodes by name.
    pub nodes: Vec<NodeStatus>,
    /// Pending pods.
    pub pods: Vec<PodStatus>,
    /// VMs that bear this cluster's mark and have no record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<OrphanStatus>,
    /// CapacityBuffers, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<BufferState>,
    /// ProvisioningRequests, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestState>,
    /// The last decisions, latest first.
    pub decisions: Vec<Decision>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// How many Nodes it has.
    pub nodes: u32,
    /// How many of them are ready.
    pub ready: u32,
    /// How many machines are becoming nodes.
    pub coming: u32,
    /// How many warm machines it has, which have not been asked to join.
    pub warm: u32,
    /// How many machines are being removed.
    pub going: u32,
    /// Its minimum at this time.
    pub min: u32,
    /// Its maximum.
    pub max: u32,
    /// Requested share of its nodes' cpu, 0 to 1; `None` without nodes.
    pub cpu_used: Option<f64>,
    /// Requested share of its nodes' memory, 0 to 1; `None` without nodes.
    pub memory_used: Option<f64>,
    /// How many slots are free.
    pub slots_free: u32,
    /// Why no machine is created in it now, if that is so.
    pub backoff: Option<String>,
    /// When the back-off after failures ends; `retry` ends it earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Timestamp>,
    /// What happens next, in words.
    pub next: String,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostStatus {
    /// Its name.
    pub name: HostKey,
    /// Whether it is up and part of the cluster.
    pub online: bool,
    /// Whether it is in maintenance.
    pub maintenance: bool,
    /// The number of its hardware threads.
    pub cores: u32,
    /// The number of vCPUs of all guests that run on it.
    pub cores_assigned: u32,
    /// Its memory in bytes.
    pub memory: i64,
    /// Memory assigned to all guests that run on it, in bytes.
    pub memory_assigned: i64,
    /// Memory in use in bytes.
    pub memory_used: i64,
    /// Its storages by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storages: Vec<StorageStatus>,
    /// Why no new machine is placed on it now, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    /// When the back-off after failures ends; `retry` ends it earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Timestamp>,
    /// The last round's verdict on its power, empty if it is never switched off.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub power: String,
    /// The reason for that verdict, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The earliest time at which an idle host is switched off, or the deadline of a host that is being
    /// switched on or off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
}

/// A storage, as a host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageStatus {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub total: i64,
    /// The used part in bytes.
    pub used: i64,
    /// Whether several hosts share it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl MachineStatus {
    /// Its VMID as text; empty for a bare-metal machine.
    pub fn vmid(&self) -> String {
        if self.vmid.is_bare_metal() { String::new() } else { self.vmid.to_string() }
    }
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: PoolName,
    /// Its VMID; for a bare-metal machine its number, which is greater than any VMID.
    pub vmid: Vmid,
    /// Its host.
    pub host: HostKey,
    /// Its vCPUs.
    pub cores: u32,
    /// Its memory in bytes.
    pub memory: i64,
    /// Its address, empty with DHCP.
    pub address: String,
    /// Its further addresses by device and family, e.g. `net0/ip6`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub further_addresses: BTreeMap<String, IpAddr>,
    /// Its phase.
    pub phase: String,
    /// How it is kept ahead of demand, until it is asked to join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmState>,
    /// When it entered that phase.
    pub since: Timestamp,
    /// When it was requested.
    pub created: Timestamp,
    /// When each phase was entered.
    pub entered: BTreeMap<String, Timestamp>,
    /// Its Node.
    pub node: Option<String>,
    /// What it waits for, or what it was created for.
    pub why: String,
}

/// A VM that bears this cluster's mark and has no record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OrphanStatus {
    /// Its VMID.
    pub vmid: Vmid,
    /// Its host.
    pub host: HostKey,
    /// Its name.
    pub name: String,
    /// Whether it is proven to be left over, except for the checks just before it is destroyed.
    pub proven: bool,
    /// What is proven, in words.
    pub proof: Vec<String>,
    /// What is not proven, in words.
    pub missing: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: Option<PoolName>,
    /// The last round's verdict.
    pub verdict: String,
    /// Its utilization, 0 to 1.
    pub utilization: Option<f64>,
    /// The reason for the verdict, in words.
    pub why: String,
    /// The earliest time at which it may be removed.
    pub removable_at: Option<Timestamp>,
}

/// A pending pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `namespace/name`.
    pub pod: String,
    /// The last round's verdict.
    pub verdict: String,
    /// The reason for the verdict, in words.
    pub why: String,
}

/// A CapacityBuffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BufferState {
    /// `namespace/name`.
    pub buffer: String,
    /// The last round's verdict.
    pub verdict: String,
    /// How many chunks it should have, if known.
    pub chunks: Option<i64>,
    /// How many of them fit on existing nodes.
    pub filled: usize,
    /// The state of its chunks, in words.
    pub why: String,
}

/// A ProvisioningRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestState {
    /// `namespace/name`.
    pub request: String,
    /// The last round's verdict.
    pub verdict: String,
    /// The reason for the verdict, in words.
    pub why: String,
}
