//! Adopts a worker that the daemon did not create: its VM and its Node become a machine of a pool.
//!
//! An adopted machine is drained and destroyed like any other once it is unneeded. Therefore, everything is
//! checked first, and all obstacles are reported together ([`judge`]). Then the record is written, which
//! claims the slot and identifies the VM by its SMBIOS uuid. After that, the mark in the VM's notes and the
//! daemon's tag are written. Last, the pool's labels, taints and annotations are added to the Node. Nothing
//! else in the VM is changed. An interrupted adoption can be repeated, which completes the remaining steps.
//!
//! The record states that the machine's Node has registered. Otherwise, the daemon might mistake the machine
//! for one whose creation timed out.

mod obstacles;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use runtime::boxed;
use thiserror::Error;

pub(super) use obstacles::of_disks as disks_that_go_with_it;
use obstacles::{of_disks, of_node, of_pool, of_vm, slot, unseen};

use super::node;
use kubernetes::{Cluster, RecordError};
use model::machine::Phase;
use model::node::{Node, Taint};
use model::selector::Labels;
use model::{Record, Slot, Vmid};
use proxmox::marker::{Description, Marker};
use proxmox::{Client, Guest, TAG, VmConfig, VmStatus};
use settings::{Config, Pool, TemplateRef};

/// How many seconds Proxmox VE may take to write the notes before it turns the call into a task.
const WAIT: u8 = 20;

/// A VM that may belong to the Node.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The VM's entry in Proxmox VE's list, with its host.
    pub guest: Guest,
    /// Its configuration.
    pub config: VmConfig,
    /// Its status.
    pub status: VmStatus,
}

/// All data that is needed to decide about an adoption.
#[derive(Clone, Debug)]
pub struct Found {
    /// The Node.
    pub node: Node,
    /// VMs that the token can see and whose SMBIOS uuid is the Node's `systemUUID`.
    pub vms: Vec<Candidate>,
    /// Other guests with the Node's name.
    pub namesakes: Vec<Vmid>,
    /// All readable records.
    pub records: Vec<Record>,
    /// The names of unreadable records.
    pub unreadable: Vec<String>,
    /// Whether the Proxmox VE cluster is quorate.
    pub quorate: bool,
    /// The resource pools whose members the token may see (`Pool.Audit`).
    pub pools: BTreeSet<String>,
}

/// What has to be written to adopt a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// The machine's record.
    pub record: Record,
    /// Whether the record is already stored.
    pub stored: bool,
    /// Changes to the VM's configuration; empty if the VM already has the mark.
    pub change: BTreeMap<String, String>,
    /// The digest of the configuration that the decision is based on.
    pub digest: String,
    /// Labels to add to the Node.
    pub labels: Labels,
    /// Taints to add to the Node.
    pub taints: Vec<Taint>,
    /// Annotations to add to the Node.
    pub annotations: Labels,
    /// What an administrator should know before the adoption.
    pub remarks: Vec<String>,
}

/// Whether a worker may be adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The worker may be adopted, or an earlier adoption of it is incomplete.
    May(Box<Adoption>),
    /// The worker is already a machine of the pool, with this name.
    Already(String),
    /// The worker cannot be adopted, for these reasons.
    Not(Vec<String>),
}

/// Why an adoption failed.
#[derive(Debug, Error)]
pub enum AdoptionError {
    /// Kubernetes does not answer, or refuses the request.
    #[error("Kubernetes cannot be queried")]
    Kubernetes(#[from] kubernetes::Error),
    /// Proxmox VE does not answer, or refuses the request.
    #[error("Proxmox VE cannot be queried")]
    Proxmox(#[from] proxmox::Error),
    /// No Node has this name.
    #[error("there is no node `{0}`")]
    NoNode(String),
    /// The record could not be written, so nothing was changed.
    #[error("the record could not be written")]
    Record(#[from] RecordError),
    /// The record exists, but the mark could not be written.
    #[error(
        "the record of VM {vmid} was written, but the mark could not be added to the VM's notes: repeat \
            the command"
    )]
    Unmarked {
        /// The VMID.
        vmid: Vmid,
        /// The error from Proxmox VE.
        #[source]
        source: Option<proxmox::Error>,
    },
    /// The record and the mark exist, but the Node lacks some of the pool's labels or taints.
    #[error("node `{name}` did not get all of its pool's labels and taints: repeat the command")]
    Unlabelled {
        /// The Node.
        name: String,
        /// What Kubernetes said.
        #[source]
        source: kubernetes::Error,
    },
}

/// Reads all data that is needed to decide about an adoption.
///
/// # Errors
/// Returns an error if the Node does not exist, or if one of the clusters does not answer.
#[boxed]
pub async fn look(client: &Client, cluster: &Cluster, name: &str) -> Result<Found, AdoptionError> {
    let node = cluster.get_node(name).await?.ok_or_else(|| AdoptionError::NoNode(name.to_owned()))?;
    let records = cluster.list_records().await?;
    let seen = client.resources().await?;
    let guests: Vec<&Guest> =
        seen.guests.values().filter(|guest| !guest.container && !guest.template).collect();
    let mut vms = Vec::new();
    for guest in guests.into_iter().filter(|_| !node.system_uuid.is_empty()) {
        let config = match client.config(&guest.host, guest.vmid).await {
            Ok(config) => config,
            // The list may contain VMs that the token has no right to read.
            Err(error) if matches!(error.kind, proxmox::Kind::Forbidden | proxmox::Kind::NotFound) => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if config.smbios_uuid().as_deref() == Some(node.system_uuid.as_str()) {
            let status = client.vm_status(&guest.host, guest.vmid).await?;
            vms.push(Candidate { guest: guest.clone(), config, status });
        }
    }
    let own: BTreeSet<Vmid> = vms.iter().map(|one| one.guest.vmid).collect();
    let same_name = |guest: &&Guest| guest.name.as_deref() == Some(name) && !own.contains(&guest.vmid);
    Ok(Found {
        namesakes: seen.guests.values().filter(same_name).map(|guest| guest.vmid).collect(),
        node,
        vms,
        records: records.readable.into_iter().map(|stored| stored.record).collect(),
        unreadable: records.unreadable.into_iter().map(|one| one.name).collect(),
        quorate: client.quorate().await?,
        pools: client.pool_names().await?,
    })
}

/// Decides whether the Node and its VM may become a machine of the pool. `id` is the machine id to use in a
/// new record.
pub fn judge(config: &Config, pool: &Pool, found: &Found, id: &str, now: Timestamp) -> Judgement {
    let mut against = of_node(pool, found);
    let vm = match found.vms.as_slice() {
        [vm] => vm,
        [] => {
            against.push(unseen(config, &found.node));
            return Judgement::Not(against);
        }
        several => {
            let ids: Vec<_> = several.iter().map(|one| one.guest.vmid.to_string()).collect();
            against.push(format!(
                "several VMs ({}) have the node's systemUUID as their SMBIOS uuid, so the node's own VM \
                    cannot be determined",
                ids.join(", ")
            ));
            return Judgement::Not(against);
        }
    };
    let known =
        found.records.iter().find(|record| record.smbios_uuid.as_deref() == Some(&found.node.system_uuid));
    if let Some(record) = known.filter(|record| record.pool != pool.name) {
        return Judgement::Not(vec![format!("it is machine `{}` of pool `{}`", record.name, record.pool)]);
    }
    let marked = matches!(vm.config.owner(), Description::Ours(marker)
        if known.is_some_and(|record| marker.machine == record.id) && marker.cluster == config.cluster);
    against.extend(of_vm(config, vm, known, &found.pools));
    against.extend(of_disks(pool, &vm.config));
    if !found.quorate {
        against.push("the Proxmox VE cluster is not quorate".to_owned());
    }
    let slot = slot(config, pool, found, vm, known).map_err(|why| against.push(why)).ok();
    if known.is_none() {
        against.extend(of_pool(pool, found, vm));
    }
    let Some(slot) = slot.filter(|_| against.is_empty()) else { return Judgement::Not(against) };
    let record = known.cloned().unwrap_or_else(|| record(pool, &found.node, vm, slot, id, now));
    let node = &found.node;
    let labels = node::missing_labels(&node::wanted_labels(&record, pool), node);
    let lacks =
        |taint: &&Taint| !node.taints.iter().any(|own| (&own.key, own.effect) == (&taint.key, taint.effect));
    let taints: Vec<Taint> = pool.taints.iter().filter(lacks).cloned().collect();
    if marked && labels.is_empty() && taints.is_empty() {
        return Judgement::Already(record.name);
    }
    Judgement::May(Box::new(Adoption {
        change: if marked { BTreeMap::new() } else { marked_as(config, &record, &vm.config) },
        digest: vm.config.digest().unwrap_or_default().to_owned(),
        annotations: pool.annotations_for(&record.host, &record.name, record.slot.vmid),
        remarks: remarks(pool, &record, found),
        stored: known.is_some(),
        labels,
        taints,
        record,
    }))
}

/// Writes the record and the mark, verifies the mark, and then labels the Node.
///
/// # Errors
/// Returns [`AdoptionError::Record`] if nothing was done. After [`AdoptionError::Unmarked`] or
/// [`AdoptionError::Unlabelled`], repeat the call.
#[boxed]
pub async fn carry_out(
    client: &Client,
    cluster: &Cluster,
    config: &Config,
    adoption: &Adoption,
) -> Result<(), AdoptionError> {
    let record = &adoption.record;
    if !adoption.stored {
        cluster.create_record(record).await?;
    }
    let (host, vmid) = (&record.host, record.slot.vmid);
    let unmarked = |source| AdoptionError::Unmarked { vmid, source };
    if !adoption.change.is_empty() {
        let written = client.set_config(host, vmid, &adoption.change, &[], &adoption.digest, WAIT).await;
        if let Some(upid) = written.map_err(|error| unmarked(Some(error)))? {
            // The task's result is ignored, because the configuration is read back.
            let _ = client.wait_task(&upid, config.limits.configure, config.limits.task_poll).await;
        }
    }
    let read = client.config(host, vmid).await.map_err(|error| unmarked(Some(error)))?;
    if !matches!(read.owner(), Description::Ours(marker) if marker.machine == record.id) {
        return Err(unmarked(None));
    }
    label(cluster, adoption)
        .await
        .map_err(|source| AdoptionError::Unlabelled { name: record.name.clone(), source })
}

/// Adds the pool's taints, annotations and labels to the Node. The labels come last, because one of them
/// assigns the Node to the pool.
async fn label(cluster: &Cluster, adoption: &Adoption) -> Result<(), kubernetes::Error> {
    let name = &adoption.record.name;
    for taint in &adoption.taints {
        cluster.add_taint(name, taint).await?;
    }
    for (key, value) in &adoption.annotations {
        cluster.annotate_node(name, key, Some(value)).await?;
    }
    if adoption.labels.is_empty() {
        return Ok(());
    }
    cluster.set_labels(name, &adoption.labels).await
}

fn record(pool: &Pool, node: &Node, vm: &Candidate, slot: Slot, id: &str, now: Timestamp) -> Record {
    let cores = vm.config.vcpus().unwrap_or(1);
    let memory = vm.config.memory().unwrap_or(vm.guest.memory);
    let template = match &pool.template {
        Some(TemplateRef::Vmid(vmid)) => Some(*vmid),
        _ => None,
    };
    let created = node.created.unwrap_or(now);
    let (name, host) = (node.name.clone(), vm.guest.host.clone());
    Record {
        region: pool.region.clone(),
        template,
        cores,
        memory,
        smbios_uuid: Some(node.system_uuid.clone()),
        node_uid: Some(node.uid.clone()),
        storages: vm.config.storages().into_iter().map(ToOwned::to_owned).collect(),
        entered: BTreeMap::from([(Phase::Requested, created), (Phase::Ready, now)]),
        // The machine's template and settings are unknown, so the machine never counts as drifted.
        made_of: BTreeMap::new(),
        ..Record::new(id.into(), pool.name.clone(), name, slot, host, created)
    }
}

/// The changes that add the mark at the beginning of the VM's notes, and the daemon's tag to the VM's own
/// tags.
fn marked_as(config: &Config, record: &Record, vm: &VmConfig) -> BTreeMap<String, String> {
    let marker = Marker {
        cluster: config.cluster.clone(),
        region: record.region.clone(),
        pool: record.pool.clone(),
        machine: record.id.clone(),
        kubernetes: None,
    };
    let notes = vm.get("description").unwrap_or_default().trim_end();
    let mut tags: Vec<&str> =
        vm.get("tags").unwrap_or_default().split([';', ',', ' ']).filter(|tag| !tag.is_empty()).collect();
    tags.push(TAG);
    tags.sort_unstable();
    tags.dedup();
    BTreeMap::from([("description".to_owned(), marker.describe(notes)), ("tags".to_owned(), tags.join(";"))])
}

/// What an administrator should know before the adoption.
fn remarks(pool: &Pool, record: &Record, found: &Found) -> Vec<String> {
    let mut remarks = Vec::new();
    let fits = pool.sizes.iter().any(|size| (size.cores, size.memory) == (record.cores, record.memory));
    if !fits {
        remarks.push(format!(
            "it has {} vCPUs and {} MiB, which matches none of the pool's sizes",
            record.cores,
            record.memory >> 20
        ));
    }
    let labels = pool.labels_for(&record.host, &record.name, record.slot.vmid);
    let other = |(key, value): (&String, &String)| {
        found
            .node
            .labels
            .get(key)
            .filter(|own| *own != value)
            .map(|own| format!("its label {key}={own} becomes {value}"))
    };
    remarks.extend(labels.iter().filter_map(other));
    let new = |taint: &&Taint| !found.node.taints.iter().any(|own| own.key == taint.key);
    remarks.extend(
        pool.taints.iter().filter(new).map(|taint| format!("it gets the pool's taint {}", taint.key)),
    );
    if found.node.unschedulable {
        remarks.push("it is cordoned and stays cordoned".to_owned());
    }
    remarks
}

#[cfg(test)]
mod tests;
