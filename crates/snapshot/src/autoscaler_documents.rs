//! The project's own documents in a snapshot file.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use model::devices::ResourceSlice;
use model::machine::{Growing, Host, Machine, Phase, Slot, Storage, WarmState};
use model::pci::HostPci;
use model::power::PowerFacts;
use model::prediction::Predictions;
use model::quantity::{self, QuantityError};
use model::resources::Resources;
use model::snapshot::{
    DeclaredFeatures, DriverLimits, HostMemory, Inventory, Learnt, Memory, NodeMemory, PoolMemory,
};
use model::unfinished::Unfinished;
use model::workload::Backoff;
use model::{HostKey, KubernetesVersion, PoolName, Vmid};

/// `kind: ProxmoxInventory`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InventoryDocument {
    pub time: Option<Timestamp>,
    hosts: Option<Vec<HostDocument>>,
    machines: Option<Vec<MachineDocument>>,
    power: Option<PowerFacts>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HostDocument {
    name: String,
    #[serde(default = "yes")]
    online: bool,
    #[serde(default)]
    maintenance: bool,
    cores: u32,
    memory: Amount,
    #[serde(default)]
    memory_used: Amount,
    #[serde(default)]
    cores_assigned: u32,
    #[serde(default)]
    memory_assigned: Amount,
    #[serde(default)]
    storage: BTreeMap<String, StorageDocument>,
    #[serde(default)]
    pci: HostPci,
}

#[derive(Debug, Deserialize)]
struct StorageDocument {
    total: Amount,
    #[serde(default)]
    used: Amount,
    #[serde(default)]
    shared: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineDocument {
    name: String,
    pool: PoolName,
    #[serde(default)]
    vmid: Vmid,
    #[serde(default)]
    host: HostKey,
    seen_on: Option<HostKey>,
    #[serde(default)]
    cores: u32,
    #[serde(default)]
    memory: Amount,
    #[serde(default)]
    phase: Phase,
    #[serde(default)]
    just_stored: bool,
    since: Option<Timestamp>,
    requested: Option<Timestamp>,
    node: Option<String>,
    #[serde(default)]
    pods: Vec<String>,
    warm: Option<WarmState>,
    growing: Option<Growing>,
    grow_backoff: Option<Backoff>,
    #[serde(default)]
    takes_no_cpus: bool,
    #[serde(default)]
    takes_no_memory: bool,
    #[serde(default)]
    made_of: BTreeMap<String, String>,
}

/// `kind: KubernetesCluster`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterDocument {
    /// The server version that `kubectl version` shows.
    pub version: KubernetesVersion,
    /// Whether the API server serves ProvisioningRequests, even if none exist.
    #[serde(default)]
    pub provisioning_requests: bool,
    /// Whether the API server serves PodGroups, even if none exist.
    #[serde(default)]
    pub pod_groups: bool,
}

/// `kind: AutoscalerState`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StateDocument {
    last_round: Option<Timestamp>,
    #[serde(default)]
    pools: BTreeMap<PoolName, PoolDocument>,
    #[serde(default)]
    hosts: BTreeMap<HostKey, HostMemory>,
    #[serde(default)]
    nodes: BTreeMap<String, NodeMemory>,
    free_slots: Option<BTreeMap<PoolName, Vec<Slot>>>,
    #[serde(default)]
    name_seed: u64,
    #[serde(default)]
    removals: Vec<Timestamp>,
    #[serde(default)]
    predictions: Predictions,
    #[serde(default)]
    unfinished: Unfinished,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolDocument {
    last_add: Option<Timestamp>,
    last_removal: Option<Timestamp>,
    last_removal_failure: Option<Timestamp>,
    backoff: Option<Backoff>,
    #[serde(default)]
    failed_on: BTreeMap<HostKey, Timestamp>,
    grow_backoff: Option<Backoff>,
    learnt_allocatable: Option<BTreeMap<String, Amount>>,
    #[serde(default)]
    learnt_sizes: Vec<LearntDocument>,
    #[serde(default)]
    csi_limits: DriverLimits,
    #[serde(default)]
    device_slices: Vec<ResourceSlice>,
    #[serde(default)]
    declared_devices: String,
    declared: Option<DeclaredFeatures>,
    reach: Option<Vec<HostKey>>,
    #[serde(default)]
    across: Vec<HostKey>,
    #[serde(default)]
    without_template: bool,
    out_of_sight: Option<String>,
    #[serde(default)]
    clone_bytes: i64,
    #[serde(default)]
    templates: Vec<String>,
    #[serde(default)]
    out_of_service: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct LearntDocument {
    cores: u32,
    memory: Amount,
    allocatable: BTreeMap<String, Amount>,
    #[serde(default)]
    kubelet: String,
}

/// A quantity, written as a string or as a number.
#[derive(Clone, Debug)]
pub(super) struct Amount(String);

impl Default for Amount {
    fn default() -> Self {
        Self("0".to_owned())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        match value {
            serde_json::Value::String(text) => Ok(Self(text)),
            serde_json::Value::Number(number) => Ok(Self(number.to_string())),
            other => {
                Err(serde::de::Error::custom(format!("expected a quantity such as `8Gi`, found {other}")))
            }
        }
    }
}

impl Amount {
    fn units(&self) -> Result<i64, QuantityError> {
        quantity::units(&self.0)
    }
}

fn yes() -> bool {
    true
}

impl InventoryDocument {
    pub(super) fn into_model(self) -> Result<Inventory, QuantityError> {
        let hosts = self.hosts.map(|hosts| hosts.into_iter().map(HostDocument::into_model).collect());
        let machines =
            self.machines.map(|machines| machines.into_iter().map(MachineDocument::into_model).collect());
        Ok(Inventory {
            hosts: hosts.transpose()?,
            machines: machines.transpose()?,
            templates: Vec::new(),
            power: self.power,
        })
    }
}

impl HostDocument {
    fn into_model(self) -> Result<Host, QuantityError> {
        let mut storage = BTreeMap::new();
        for (name, one) in self.storage {
            let seen = Storage { total: one.total.units()?, used: one.used.units()?, shared: one.shared };
            storage.insert(name, seen);
        }
        Ok(Host {
            name: HostKey::from(self.name),
            online: self.online,
            maintenance: self.maintenance,
            cores: self.cores,
            memory: self.memory.units()?,
            memory_used: self.memory_used.units()?,
            cores_assigned: self.cores_assigned,
            memory_assigned: self.memory_assigned.units()?,
            storage,
            pci: self.pci,
        })
    }
}

impl MachineDocument {
    fn into_model(self) -> Result<Machine, QuantityError> {
        Ok(Machine {
            name: self.name,
            pool: self.pool,
            vmid: self.vmid,
            host: self.host,
            seen_on: self.seen_on,
            cores: self.cores,
            memory: self.memory.units()?,
            phase: self.phase,
            just_stored: self.just_stored,
            since: self.since,
            requested: self.requested,
            node: self.node,
            pods: self.pods,
            warm: self.warm,
            growing: self.growing,
            grow_backoff: self.grow_backoff,
            takes_no_cpus: self.takes_no_cpus,
            takes_no_memory: self.takes_no_memory,
            made_of: self.made_of,
        })
    }
}

impl StateDocument {
    pub(super) fn into_model(self) -> Result<Memory, QuantityError> {
        let mut pools = BTreeMap::new();
        for (name, pool) in self.pools {
            pools.insert(name, pool.into_model()?);
        }
        Ok(Memory {
            last_round: self.last_round,
            pools,
            hosts: self.hosts,
            nodes: self.nodes,
            free_slots: self.free_slots,
            name_seed: self.name_seed,
            removals: self.removals,
            orphan_collected: None,
            predictions: self.predictions,
            unfinished: self.unfinished,
            backoff_initial: None,
            decisions: Vec::new(),
        })
    }
}

impl PoolDocument {
    fn into_model(self) -> Result<PoolMemory, QuantityError> {
        let sizes = self.learnt_sizes.into_iter().map(|one| {
            let memory = one.memory.units()?;
            let (cores, kubelet) = (one.cores, one.kubelet);
            Ok(Learnt { cores, memory, allocatable: resources(one.allocatable)?, kubelet })
        });
        Ok(PoolMemory {
            last_add: self.last_add,
            last_removal: self.last_removal,
            last_removal_failure: self.last_removal_failure,
            backoff: self.backoff,
            failed_on: self.failed_on,
            grow_backoff: self.grow_backoff,
            learnt_allocatable: self.learnt_allocatable.map(resources).transpose()?,
            learnt_sizes: sizes.collect::<Result<_, QuantityError>>()?,
            csi_limits: self.csi_limits,
            device_slices: self.device_slices,
            declared_devices: self.declared_devices,
            declared: self.declared,
            reach: self.reach,
            across: self.across,
            without_template: self.without_template,
            out_of_sight: self.out_of_sight,
            clone_bytes: self.clone_bytes,
            templates: self.templates,
            out_of_service: self.out_of_service,
        })
    }
}

fn resources(list: BTreeMap<String, Amount>) -> Result<Resources, QuantityError> {
    let mut sum = Resources::default();
    for (name, amount) in list {
        match name.as_str() {
            "cpu" => sum.cpu_milli = quantity::milli(&amount.0)?,
            "memory" => sum.memory = amount.units()?,
            "ephemeral-storage" => sum.ephemeral_storage = amount.units()?,
            "pods" => sum.pods = amount.units()?,
            _ => {
                sum.other.insert(name, amount.units()?);
            }
        }
    }
    Ok(sum)
}
