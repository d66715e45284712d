//! The status of a running daemon, as `status --output json` prints it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use model::HostKey;
use model::PoolName;
use model::snapshot::Decision;
use model::{Pause, Vmid};

/// Everything that `status` shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// When it was put together.
    pub time: Timestamp,
    /// The instance's name.
    pub instance: String,
    /// `active` or `observe`.
    pub mode: String,
    /// It is the instance that acts, of those that there are.
    pub leads: bool,
    /// The instance that leads, as far as it is known.
    pub leader: String,
    /// Nothing new is begun, if so; known to who leads.
    pub paused: Option<Pause>,
    /// Everything was seen once and rounds run.
    pub ready: bool,
    /// How many rounds there were.
    pub rounds: u64,
    /// What is wrong now, by what it concerns.
    pub problems: BTreeMap<String, String>,
    /// What stops nothing and should be known, by what it concerns.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub warnings: BTreeMap<String, String>,
    /// When credentials end, of those that say so.
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
    /// Pods that wait.
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
    /// Its Nodes.
    pub nodes: u32,
    /// Those that are ready.
    pub ready: u32,
    /// Machines that become nodes.
    pub coming: u32,
    /// Machines that are kept ahead of demand and wait to be asked to join.
    pub warm: u32,
    /// Machines on their way out.
    pub going: u32,
    /// Its minimum at this time.
    pub min: u32,
    /// Its maximum.
    pub max: u32,
    /// Requested share of its nodes' cpu, 0 to 1; `None` without nodes.
    pub cpu_used: Option<f64>,
    /// Requested share of its nodes' memory, 0 to 1; `None` without nodes.
    pub memory_used: Option<f64>,
    /// Free slots.
    pub slots_free: u32,
    /// Why it does not grow now, if so.
    pub backoff: Option<String>,
    /// Until when it is left alone after failures; `retry` ends that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Timestamp>,
    /// What comes next, in words.
    pub next: String,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostStatus {
    /// Its name.
    pub name: HostKey,
    /// It is up and part of the cluster.
    pub online: bool,
    /// It is in maintenance.
    pub maintenance: bool,
    /// Its threads.
    pub cores: u32,
    /// vCPUs of all guests that run on it.
    pub cores_assigned: u32,
    /// Its memory in bytes.
    pub memory: i64,
    /// Memory in bytes that all guests that run on it were given.
    pub memory_assigned: i64,
    /// Memory in use in bytes.
    pub memory_used: i64,
    /// Its storages by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storages: Vec<StorageStatus>,
    /// Why nothing new is put on it now, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    /// Until when it is left alone after failures; `retry` ends that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Timestamp>,
    /// The last round's verdict on its power, empty if it is never switched off.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub power: String,
    /// Why, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// When an idle host goes at the earliest, and by when one that was asked has to have done it.
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
    /// What is used of it in bytes.
    pub used: i64,
    /// Every host sees the same one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl MachineStatus {
    /// Its VMID in words; a bare-metal machine has none.
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
    /// Its VMID; of a bare-metal machine its number, which is greater than any.
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
    /// Where it is in its life.
    pub phase: String,
    /// Since when.
    pub since: Timestamp,
    /// When it was asked for.
    pub created: Timestamp,
    /// When each phase was entered.
    pub entered: BTreeMap<String, Timestamp>,
    /// Its Node.
    pub node: Option<String>,
    /// What it waits for, or what it was made for.
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
    /// Whether everything is proven that can be without asking for it at the last moment.
    pub proven: bool,
    /// What is proven, in words.
    pub proof: Vec<String>,
    /// What is not.
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
    /// Why, in words.
    pub why: String,
    /// When it may go at the earliest.
    pub removable_at: Option<Timestamp>,
}

/// A pod that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `namespace/name`.
    pub pod: String,
    /// The last round's verdict.
    pub verdict: String,
    /// Why, in words.
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
    /// How many chunks it is to have, if that is known.
    pub chunks: Option<i64>,
    /// How many of them fit nodes that are there.
    pub filled: usize,
    /// What becomes of its chunks, in words.
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
    /// Why, in words.
    pub why: String,
}
