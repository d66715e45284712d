//! Our own documents.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::{Fields, amounts};
use model::machine::{Host, Machine, Slot, Storage};
use model::quantity;
use model::snapshot::{DriverLimits, Inventory, Learnt, Memory, PoolMemory};
use model::workload::Backoff;
use model::{HostKey, KubernetesVersion, PoolName};

const VERSION: &str = "pve-autoscaler/v1";

fn collected<'a, K: AsRef<str> + 'a, T: 'a>(
    map: impl IntoIterator<Item = (&'a K, &'a T)>,
    write: impl Fn(&T) -> Fields,
) -> Fields {
    map.into_iter().fold(Fields::default(), |all, (key, value)| all.with(key.as_ref(), write(value)))
}

/// `kind: ProxmoxInventory`. If the hosts or machines are unknown, their list is left out; if there are none,
/// the list is empty.
pub(super) fn inventory(inventory: &Inventory, time: Timestamp) -> Value {
    let hosts = |hosts: &Vec<Host>| hosts.iter().map(|one| host(one).into()).collect::<Vec<Value>>();
    let machines =
        |machines: &Vec<Machine>| machines.iter().map(|one| machine(one).into()).collect::<Vec<Value>>();
    Fields::object(VERSION, "ProxmoxInventory")
        .time("time", Some(time))
        .some("hosts", inventory.hosts.as_ref().map(hosts))
        .some("machines", inventory.machines.as_ref().map(machines))
        .some("power", inventory.power.as_ref().and_then(|facts| serde_json::to_value(facts).ok()))
        .into()
}

fn host(host: &Host) -> Fields {
    Fields::default()
        .with("name", host.name.as_str())
        .with("online", host.online)
        .when(host.maintenance, "maintenance", true)
        .with("cores", host.cores)
        .with("memory", quantity::binary(host.memory))
        .with("memoryUsed", quantity::binary(host.memory_used))
        .when(host.cores_assigned != 0, "coresAssigned", host.cores_assigned)
        .when(host.memory_assigned != 0, "memoryAssigned", quantity::binary(host.memory_assigned))
        .part("storage", collected(&host.storage, storage))
        .some(
            "pci",
            Some(&host.pci).filter(|pci| !pci.is_empty()).and_then(|pci| serde_json::to_value(pci).ok()),
        )
}

fn storage(storage: &Storage) -> Fields {
    Fields::default()
        .with("total", quantity::binary(storage.total))
        .with("used", quantity::binary(storage.used))
        .when(storage.shared, "shared", true)
}

fn machine(machine: &Machine) -> Fields {
    Fields::default()
        .with("name", machine.name.as_str())
        .with("pool", machine.pool.as_str())
        .with("vmid", machine.vmid.0)
        .with("host", machine.host.as_str())
        .some("seenOn", machine.seen_on.as_deref())
        .with("cores", machine.cores)
        .with("memory", quantity::binary(machine.memory))
        .with("phase", machine.phase.code())
        .when(machine.just_stored, "justStored", true)
        .time("since", machine.since)
        .time("requested", machine.requested)
        .some("node", machine.node.as_deref())
        .list("pods", machine.pods.iter().map(String::as_str))
        .some("warm", machine.warm.map(model::machine::WarmState::name))
        .some("growing", machine.growing.as_ref().and_then(|growing| serde_json::to_value(growing).ok()))
        .some("growBackoff", machine.grow_backoff.as_ref().map(backoff))
        .when(machine.takes_no_cpus, "takesNoCpus", true)
        .when(machine.takes_no_memory, "takesNoMemory", true)
        .part(
            "madeOf",
            machine.made_of.iter().fold(Fields::default(), |all, (key, value)| all.with(key, value.as_str())),
        )
}

/// `kind: KubernetesCluster`.
pub(super) fn cluster(version: KubernetesVersion, has_requests: bool, has_groups: bool) -> Value {
    Fields::object(VERSION, "KubernetesCluster")
        .with("version", version.to_string())
        .when(has_requests, "provisioningRequests", true)
        .when(has_groups, "podGroups", true)
        .into()
}

/// `kind: AutoscalerState`.
pub(super) fn state(memory: &Memory) -> Value {
    let slots = |pools: &std::collections::BTreeMap<PoolName, Vec<Slot>>| {
        pools.iter().fold(Fields::default(), |all, (pool, slots)| {
            all.with(pool, slots.iter().map(|one| slot(one).into()).collect::<Vec<Value>>())
        })
    };
    let hosts = collected(&memory.hosts, |host| {
        Fields::default()
            .some("backoff", host.backoff.as_ref().map(backoff))
            .some("emptyingBackoff", host.emptying_backoff.as_ref().map(backoff))
            .time("idleSince", host.idle_since)
            .some("power", host.power.as_ref().and_then(|power| serde_json::to_value(power).ok()))
    });
    let nodes = collected(&memory.nodes, |node| {
        Fields::default()
            .with("pool", node.pool.as_str())
            .some("removalBackoff", node.removal_backoff.as_ref().map(backoff))
            .time("unreadySince", node.unready_since)
    });
    Fields::object(VERSION, "AutoscalerState")
        .time("lastRound", memory.last_round)
        .part("pools", collected(&memory.pools, pool))
        .part("hosts", hosts)
        .part("nodes", nodes)
        .some("freeSlots", memory.free_slots.as_ref().map(slots))
        .with("nameSeed", memory.name_seed)
        .list("removals", memory.removals.iter().map(ToString::to_string))
        .some("predictions", predictions(memory))
        .some("unfinished", unfinished(memory))
        .into()
}

fn predictions(memory: &Memory) -> Option<Value> {
    let followed = Some(&memory.predictions).filter(|predictions| !predictions.is_empty())?;
    serde_json::to_value(followed).ok()
}

fn unfinished(memory: &Memory) -> Option<Value> {
    let unfinished = Some(&memory.unfinished).filter(|unfinished| !unfinished.is_empty())?;
    serde_json::to_value(unfinished).ok()
}

fn pool(pool: &PoolMemory) -> Fields {
    let failed_on = pool.failed_on.iter();
    let failed_on = failed_on.fold(Fields::default(), |all, (host, until)| all.time(host, Some(*until)));
    Fields::default()
        .time("lastAdd", pool.last_add)
        .time("lastRemoval", pool.last_removal)
        .time("lastRemovalFailure", pool.last_removal_failure)
        .some("backoff", pool.backoff.as_ref().map(backoff))
        .part("failedOn", failed_on)
        .some("growBackoff", pool.grow_backoff.as_ref().map(backoff))
        .some("learntAllocatable", pool.learnt_allocatable.as_ref().map(amounts))
        .list("learntSizes", pool.learnt_sizes.iter().map(learnt))
        .part("csiLimits", csi_limits(&pool.csi_limits))
        .list("deviceSlices", pool.device_slices.iter().filter_map(|one| serde_json::to_value(one).ok()))
        .when(!pool.declared_devices.is_empty(), "declaredDevices", pool.declared_devices.as_str())
        .some("declared", pool.declared.as_ref().and_then(|declared| serde_json::to_value(declared).ok()))
        .some("reach", pool.reach.as_ref().map(|reach| reach.iter().map(HostKey::as_str).collect::<Vec<_>>()))
        .list("across", pool.across.iter().map(HostKey::as_str))
        .when(pool.without_template, "withoutTemplate", true)
        .when(pool.clone_bytes != 0, "cloneBytes", pool.clone_bytes)
        .some("outOfSight", pool.out_of_sight.as_deref())
        .list("templates", pool.templates.iter().map(String::as_str))
        .part(
            "outOfService",
            pool.out_of_service
                .iter()
                .fold(Fields::default(), |all, (name, why)| all.with(name, why.as_str())),
        )
}

/// The maximum number of volumes for each CSI driver; null if the driver has no limit.
fn csi_limits(limits: &DriverLimits) -> Fields {
    limits.iter().fold(Fields::default(), |all, (driver, most)| all.with(driver, *most))
}

fn learnt(learnt: &Learnt) -> Value {
    Fields::default()
        .with("cores", learnt.cores)
        .with("memory", quantity::binary(learnt.memory))
        .with("allocatable", amounts(&learnt.allocatable))
        .when(!learnt.kubelet.is_empty(), "kubelet", learnt.kubelet.as_str())
        .into()
}

fn backoff(backoff: &Backoff) -> Fields {
    Fields::default().time("until", Some(backoff.until)).with("reason", backoff.reason.as_str()).when(
        backoff.seconds != 0,
        "seconds",
        backoff.seconds,
    )
}

fn slot(slot: &Slot) -> Fields {
    let further = slot.further.iter();
    let further = further.fold(Fields::default(), |all, (key, address)| all.with(key, address.to_string()));
    Fields::default()
        .with("vmid", slot.vmid.0)
        .some("machine", slot.machine.as_deref())
        .some("address", slot.address.map(|address| address.to_string()))
        .part("further", further)
}
