//! Collects an orphan: proves again, from the current state of both clusters, that the VM is an orphan,
//! writes a record for it, and discards it.

use std::time::Duration;

use jiff::Timestamp;
use runtime::boxed;
use tokio::time::Instant;

use super::{Around, Live, Verdict, Vm, pool_of, verdict};
use crate::context::Context;
use crate::machine_handle::MachineHandle;
use crate::ownership::{Owner, is_fresh};
use crate::reports::Reports;
use crate::task;
use kubernetes::{EventKind, Saying, Versioned};
use model::machine::Intent;
use model::node::Node;
use model::{HostKey, Record, Slot, Vmid};
use proxmox::marker::Description;
use proxmox::{TaskFilter, TaskStatus, VmConfig};

/// A VM that is to be collected, and what is known about it.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its VMID.
    pub vmid: Vmid,
    /// The VM's host, with the prefix of the Proxmox VE cluster.
    pub host: HostKey,
    /// The VM's configuration at the time of the verdict.
    pub config: VmConfig,
    /// How long the VM has been seen unchanged.
    pub steady: Duration,
    /// How many times the VM was seen.
    pub looks: u32,
    /// VMIDs of other VMs with the same mark.
    pub twins: Vec<Vmid>,
}

impl Claim {
    /// The record for the orphan, which says that the machine is to be discarded. `None` if the VM has no
    /// mark, no name or no SMBIOS uuid, or if its pool no longer exists.
    pub fn record(&self, config: &settings::Config, now: Timestamp) -> Option<Record> {
        let vm = self.vm(&self.config);
        let Description::Ours(marker) = self.config.owner() else { return None };
        let pool = pool_of(config, vm, &marker)?;
        let host = self.host.host();
        let slot = pool.slots().into_iter().find(|slot| slot.vmid == self.vmid);
        let reason = "it has no record and no Node: it is an orphan (`orphans = \"collect\"`)".to_owned();
        let slot = slot.unwrap_or_else(|| Slot { vmid: self.vmid, ..Slot::default() });
        let name = self.config.get("name")?.to_owned();
        Some(Record {
            region: pool.region.clone(),
            cores: self.config.vcpus().unwrap_or(1),
            memory: self.config.memory().unwrap_or(0),
            intent: Intent::Discard { reason, since: now },
            smbios_uuid: Some(self.config.smbios_uuid()?),
            storages: self.config.storages().into_iter().map(ToOwned::to_owned).collect(),
            ..Record::new(marker.machine, pool.name.clone(), name, slot, host.to_owned(), now)
        })
    }

    fn vm<'a>(&'a self, config: &'a VmConfig) -> Vm<'a> {
        let Self { vmid, host, steady, looks, .. } = self;
        Vm { vmid: *vmid, host, config, steady: *steady, looks: *looks }
    }
}

/// Destroys an orphan: writes a record for it, and then discards it like any other machine. The VM is left
/// alone unless recent answers prove that it is an orphan.
#[boxed]
pub async fn collect(ctx: Context, claim: Claim, record: Record, reports: Reports) {
    match prove(&ctx, &claim, &record).await {
        Ok(proof) => {
            tracing::warn!(
                vmid = claim.vmid.0,
                host = claim.host.as_str(),
                machine = %record.name,
                proof = proof.words(),
                "destroying an orphan"
            );
            match ctx.kubernetes.create_record(&record).await {
                Ok(stored) => discard(&ctx, stored, &proof, &reports).await,
                // The record may have been written nevertheless. If so, it is found when all records are next
                // read, and the removal continues.
                Err(error) => left(&ctx, &claim, &record, &error.to_string()),
            }
        }
        Err(why) => left(&ctx, &claim, &record, &why),
    }
}

fn left(ctx: &Context, claim: &Claim, record: &Record, why: &str) {
    tracing::warn!(vmid = claim.vmid.0, host = claim.host.as_str(), why, "leaving an orphan alone");
    ctx.registry.forget(&record.id, ctx.clock.now());
}

async fn discard(ctx: &Context, stored: Versioned<Record>, proof: &Verdict, reports: &Reports) {
    let record = &stored.record;
    let saying = Saying {
        kind: EventKind::Warning,
        reason: "OrphanCollected",
        action: "Destroying",
        code: record.id.to_string(),
        note: format!("VM {} is being destroyed: {}", record.slot.vmid, proof.words()),
    };
    if let Err(error) = ctx.recorder.event_on_record(&stored, &saying).await {
        tracing::debug!(%error, "an event could not be written");
    }
    let Intent::Discard { reason, .. } = record.intent.clone() else { return };
    let machine = MachineHandle::new(stored, ctx.clock.now());
    task::discarding(ctx, machine, &reason, reports).await;
}

/// Proves again that a VM is an orphan by querying both clusters. Other VMs with the same mark and Nodes with
/// other names are not queried again. These Nodes come from the watches, which must be current. Returns an
/// error if the answers are not recent.
async fn prove(ctx: &Context, claim: &Claim, record: &Record) -> Result<Verdict, String> {
    let asked = Instant::now();
    let (host, vmid) = (record.host.as_str(), claim.vmid);
    let asks =
        |error: &dyn std::fmt::Display| format!("it cannot currently be proven to be an orphan: {error}");
    if !ctx.watches.is_current() {
        return Err("the Kubernetes API does not answer".to_owned());
    }
    let cluster = ctx.proxmox.cluster_status().await.map_err(|error| asks(&error))?;
    let filter = TaskFilter { vmid: Some(vmid), kind: None, since: None, limit: None };
    let tasks = ctx.proxmox.tasks(host, &filter).await.map_err(|error| asks(&error))?;
    let at_work = tasks.iter().filter(|row| row.status == TaskStatus::Running);
    let path = format!("/nodes/{host}");
    let held = ctx.proxmox.privileges_on(&path).await.map_err(|error| asks(&error))?;
    let live = Live {
        quorate: cluster.quorate && cluster.hosts.get(host) == Some(&true),
        status: ctx.proxmox.vm_status(host, vmid).await.map_err(|error| asks(&error))?,
        tasks: at_work.map(|row| row.upid.kind().to_owned()).collect(),
        sees_tasks: held.contains("Sys.Audit"),
    };
    let config = ctx.proxmox.config(host, vmid).await.map_err(|error| asks(&error))?;
    if config.digest() != claim.config.digest() || config.owner() != claim.config.owner() {
        return Err("its configuration was changed in the meantime".to_owned());
    }
    let records = ctx.kubernetes.list_records().await.map_err(|error| asks(&error))?;
    let named = ctx.kubernetes.get_node(&record.name).await.map_err(|error| asks(&error))?;
    let seen = ctx.watches.nodes();
    let nodes: Vec<&Node> = seen.iter().map(|node| &**node).chain(&named).collect();
    let stored: Vec<&Record> = records.readable.iter().map(|one| &one.record).collect();
    let owner: Owner = ctx.owner();
    let settings = ctx.live.borrow().clone();
    let around = Around {
        config: &settings,
        owner: &owner,
        records: &stored,
        unreadable: !records.unreadable.is_empty(),
        nodes: &nodes,
        twins: &claim.twins,
        live: Some(&live),
    };
    let verdict = verdict(claim.vm(&config), &around);
    if let Some(missing) = verdict.missing.first() {
        return Err(missing.to_string());
    }
    if settings.orphans != settings::Orphans::Collect || ctx.paused().is_some() {
        return Err("`orphans` is no longer `collect`, or the daemon is paused".to_owned());
    }
    if !is_fresh(asked) {
        return Err("the answers took too long and may be outdated".to_owned());
    }
    Ok(verdict)
}
