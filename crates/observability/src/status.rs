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
    /// When this status was generated.
    pub time: Timestamp,
    /// The instance's name.
    pub instance: String,
    /// `active` or `observe`.
    pub mode: String,
    /// Whether this instance leads.
    pub leads: bool,
    /// The instance that leads, if known.
    pub leader: String,
    /// The current pause, if the daemon is paused. Only the leader reports it.
    pub paused: Option<Pause>,
    /// Whether Kubernetes and Proxmox VE have been read, and rounds are running.
    pub ready: bool,
    /// The number of rounds so far.
    pub rounds: u64,
    /// Current problems, by subject.
    pub problems: BTreeMap<String, String>,
    /// Warnings that do not stop the daemon's work, by subject.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub warnings: BTreeMap<String, String>,
    /// The expiry times of credentials, by name. Credentials that do not expire are not listed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, Timestamp>,
    /// Pools in the order of the configuration.
    pub pools: Vec<PoolStatus>,
    /// Hosts by name, as last reported by Proxmox VE.
    pub hosts: Vec<HostStatus>,
    /// Machines by name.
    pub machines: Vec<MachineStatus>,
    /// Nodes by name.
    pub nodes: Vec<NodeStatus>,
    /// Pending pods.
    pub pods: Vec<PodStatus>,
    /// VMs that bear this cluster's mark but have no record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<OrphanStatus>,
    /// CapacityBuffers, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<BufferState>,
    /// ProvisioningRequests, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestState>,
    /// The most recent decisions, latest first.
    pub decisions: Vec<Decision>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// The number of Nodes in the pool.
    pub nodes: u32,
    /// The number of Nodes in the pool that are ready.
    pub ready: u32,
    /// The number of machines that are becoming nodes.
    pub coming: u32,
    /// The number of warm machines in the pool that have not been asked to join the cluster.
    pub warm: u32,
    /// The number of machines that are being removed.
    pub going: u32,
    /// The minimum number of nodes in the pool that applies at this time.
    pub min: u32,
    /// Its maximum.
    pub max: u32,
    /// The share of the pool nodes' CPU that pods request, from 0 to 1. `None` if the pool has no nodes.
    pub cpu_used: Option<f64>,
    /// The share of the pool nodes' memory that pods request, from 0 to 1. `None` if the pool has no nodes.
    pub memory_used: Option<f64>,
    /// The number of free slots.
    pub slots_free: u32,
    /// The reason why no machines are currently created in the pool, if there is one.
    pub backoff: Option<String>,
    /// When the back-off after failures ends; `retry` ends it earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Timestamp>,
    /// The next action in this pool, in words.
    pub next: String,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostStatus {
    /// Its name.
    pub name: HostKey,
    /// Whether the host is up and part of the Proxmox VE cluster.
    pub online: bool,
    /// Whether the host is in maintenance.
    pub maintenance: bool,
    /// The number of the host's hardware threads.
    pub cores: u32,
    /// The total number of vCPUs of the guests that run on the host.
    pub cores_assigned: u32,
    /// The host's memory, in bytes.
    pub memory: i64,
    /// The total memory assigned to the guests that run on the host, in bytes.
    pub memory_assigned: i64,
    /// The host's memory in use, in bytes.
    pub memory_used: i64,
    /// The host's storages, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storages: Vec<StorageStatus>,
    /// The reason why no new machines are currently placed on the host, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    /// When the back-off after failures ends; `retry` ends it earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Timestamp>,
    /// The last round's verdict on whether the host should be powered on; empty if the host is never switched
    /// off.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub power: String,
    /// The reason for the verdict in `power`, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The earliest time at which an idle host is switched off. For a host that is being switched on or off,
    /// the deadline for this change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
}

/// A storage, as seen from a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageStatus {
    /// Its name.
    pub name: String,
    /// The storage's size, in bytes.
    pub total: i64,
    /// The storage's used space, in bytes.
    pub used: i64,
    /// Whether the storage is shared between hosts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl MachineStatus {
    /// The machine's VMID as text; empty for a bare-metal machine.
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
    /// The machine's VMID. For a bare-metal machine, its number, which is greater than any VMID.
    pub vmid: Vmid,
    /// Its host.
    pub host: HostKey,
    /// Its vCPUs.
    pub cores: u32,
    /// The machine's memory, in bytes.
    pub memory: i64,
    /// The machine's address; empty if DHCP assigns it.
    pub address: String,
    /// The machine's other addresses by device and family, e.g. `net0/ip6`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub further_addresses: BTreeMap<String, IpAddr>,
    /// Its phase.
    pub phase: String,
    /// The state in which the machine is kept warm. Only set until the machine is asked to join the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmState>,
    /// When the machine entered its phase.
    pub since: Timestamp,
    /// When the machine was requested.
    pub created: Timestamp,
    /// When the machine entered each phase.
    pub entered: BTreeMap<String, Timestamp>,
    /// Its Node.
    pub node: Option<String>,
    /// What the machine is waiting for, or what it was created for.
    pub why: String,
}

/// A VM that bears this cluster's mark but has no record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OrphanStatus {
    /// Its VMID.
    pub vmid: Vmid,
    /// Its host.
    pub host: HostKey,
    /// Its name.
    pub name: String,
    /// Whether the VM is proven to be an orphan. Before the VM is destroyed, further checks are made.
    pub proven: bool,
    /// The facts that are proven, in words.
    pub proof: Vec<String>,
    /// The facts that are not proven, in words.
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
    /// The last round's verdict on the node.
    pub verdict: String,
    /// The node's utilization, 0 to 1.
    pub utilization: Option<f64>,
    /// The reason for the verdict, in words.
    pub why: String,
    /// The earliest time at which the node may be removed.
    pub removable_at: Option<Timestamp>,
}

/// A pending pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `namespace/name`.
    pub pod: String,
    /// The last round's verdict on the pod.
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
    /// The last round's verdict on the buffer.
    pub verdict: String,
    /// The number of chunks that the buffer should have, if known.
    pub chunks: Option<i64>,
    /// The number of chunks that fit on existing nodes.
    pub filled: usize,
    /// The state of the buffer's chunks, in words.
    pub why: String,
}

/// A ProvisioningRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestState {
    /// `namespace/name`.
    pub request: String,
    /// The last round's verdict on the request.
    pub verdict: String,
    /// The reason for the verdict, in words.
    pub why: String,
}
