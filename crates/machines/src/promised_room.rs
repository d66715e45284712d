//! Checks how much room on a host the daemons of other Kubernetes clusters have promised to their machines.
//! Just before a machine starts, its daemon checks that enough room is left.
//!
//! Each daemon makes its machine visible (tag, memory, CPUs) before it checks the room. So if two machines
//! compete for the last room on a host, at least one daemon sees the other daemon's machine. If each daemon
//! sees the other's machine, the machine with the higher VMID withdraws (its creation fails), and the other
//! machine waits for that. A machine also withdraws if the other machine already runs or does not withdraw in
//! time. So no machine is started without room for it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::ownership::{promise, starts};
use super::promise::Promise;
use super::registry::MachineView;
use super::step_error::{BackoffTarget, StepError};
use model::machine::Phase;
use model::{Record, Vmid, quantity};
use proxmox::marker::Description;
use proxmox::{ClusterResources, Guest, Power, TAG};
use settings::Pool;

/// How long a machine waits for other machines to withdraw, and the time between two checks.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_secs(2);
/// The maximum number of machines of other clusters that the error names.
const NAMED: usize = 3;

/// Waits until the host has room for this machine in addition to the machines of other clusters. If the host
/// has no machines of other clusters, no check is needed, because the planner has already made sure that
/// there is room.
pub(super) async fn confirm(
    ctx: &Context,
    machine: &mut MachineHandle,
    pool: &Pool,
) -> Result<(), StepError> {
    let until = Instant::now() + PATIENCE;
    loop {
        // If the list cannot be read, the machine starts anyway, because no lack of room is known.
        let Ok(seen) = ctx.proxmox.resources().await else { return Ok(()) };
        let (own, record) = (own(ctx, machine.record()), machine.record());
        let others: Vec<&Guest> = others(&seen, &record.host, &own).collect();
        if others.is_empty() {
            return Ok(());
        }
        let promised = promised(ctx, &others).await;
        let Some(lack) = lacks(ctx, pool, record, &seen, &own, &promised) else { return Ok(()) };
        let is_first = promised.keys().next().is_some_and(|first| record.slot.vmid < *first);
        if !is_first || Instant::now() >= until {
            let names: Vec<String> = others.iter().take(NAMED).map(|one| one.vmid.to_string()).collect();
            let more = if others.len() > NAMED { ", …" } else { "" };
            let what = format!(
                "{} {lack}, because machines of another Kubernetes cluster are there (VMs {}{more})",
                record.host,
                names.join(", ")
            );
            return Err(StepError::Failed { what, blame: BackoffTarget::Host });
        }
        machine.say(ctx, "waiting for another Kubernetes cluster to withdraw its machines from the host");
        tokio::time::sleep(LOOK).await;
    }
}

/// The machines of this daemon in the same Proxmox VE cluster, by their VMIDs.
fn own(ctx: &Context, record: &Record) -> BTreeMap<Vmid, MachineView> {
    let all = ctx.registry.all().into_iter();
    let here = all.filter(|view| !view.record.is_physical() && view.record.region == record.region);
    here.map(|view| (view.record.slot.vmid, view)).collect()
}

/// Machines of other daemons on a host, recognized by their tag.
fn others<'a>(
    seen: &'a ClusterResources,
    host: &'a str,
    own: &'a BTreeMap<Vmid, MachineView>,
) -> impl Iterator<Item = &'a Guest> {
    seen.guests.values().filter(move |guest| {
        guest.host == host
            && !guest.template
            && !guest.container
            && guest.tags.iter().any(|tag| tag == TAG)
            && !own.contains_key(&guest.vmid)
    })
}

/// Returns the resources that were promised to other clusters' machines, by VMID. Machines that are already
/// running according to `others` are not included. A machine that is kept stopped has no promise, but it may
/// have been started since the list was read, so its power state is queried.
async fn promised(ctx: &Context, others: &[&Guest]) -> BTreeMap<Vmid, Promise> {
    let (mut all, owner) = (BTreeMap::new(), ctx.owner());
    for guest in others.iter().filter(|guest| !guest.running) {
        // A machine that is gone by now occupies no room.
        let Ok(config) = ctx.proxmox.config(&guest.host, guest.vmid).await else { continue };
        let Description::Ours(marker) = config.owner() else { continue };
        if !owner.is_not(&marker) {
            continue;
        }
        let runs = || ctx.proxmox.power(&guest.host, guest.vmid);
        if starts(&config) || runs().await.is_ok_and(|power| power == Power::Running) {
            all.insert(guest.vmid, promise(&config));
        }
    }
    all
}

/// Describes the resource that the host would lack if this machine ran in addition to the running VMs, the
/// daemon's other machines that are about to run, and the VMs with `promised` resources. Returns `None` if
/// there is room.
fn lacks(
    ctx: &Context,
    pool: &Pool,
    record: &Record,
    seen: &ClusterResources,
    own: &BTreeMap<Vmid, MachineView>,
    promised: &BTreeMap<Vmid, Promise>,
) -> Option<String> {
    let host = seen.hosts.get(&record.host)?;
    // `total`: the vCPUs and memory of all VMs that run or are about to run. `coming`: the memory that will
    // be used in addition to the memory that is in use now.
    let (mut total, mut coming) = (Promise::default(), 0_i64);
    let running = |vmid: &Vmid| seen.guests.get(vmid).is_some_and(|guest| guest.running);
    for guest in seen.guests.values().filter(|guest| guest.running && guest.host == record.host) {
        if guest.vmid == record.slot.vmid {
            // This machine already runs and will grow. Its current memory is already counted as used.
            coming = coming.saturating_sub(guest.memory);
            continue;
        }
        total.add(Promise { cores: guest.cores, memory: guest.memory });
    }
    let mut take = |promise: Promise| {
        total.add(promise);
        coming = coming.saturating_add(promise.memory);
    };
    take(Promise { cores: record.cores, memory: record.memory });
    let is_coming = |view: &&MachineView| {
        let rests = view.record.warm.is_some_and(|state| !state.runs());
        view.record.host == record.host
            && view.record.id != record.id
            && !rests
            && (Phase::Configuring..=Phase::Draining).contains(&view.phase)
            && !running(&view.record.slot.vmid)
    };
    for MachineView { record, .. } in own.values().filter(is_coming) {
        take(Promise { cores: record.cores, memory: record.memory });
    }
    for promise in promised.values() {
        take(*promise);
    }
    let own = ctx.config.hosts.get(record.host.as_str());
    let reserve = own.and_then(|own| own.memory_reserve).unwrap_or(pool.memory_reserve);
    // As in the planner, the promised memory may not exceed the host's memory times `memory_overcommit`, less
    // the reserve. The used memory may not exceed the host's memory, less the reserve.
    let promised = total.memory - quantity::share(host.memory, pool.memory_overcommit);
    let used = host.memory_used.saturating_add(coming) - host.memory;
    let lacking = promised.max(used).saturating_add(reserve);
    if lacking > 0 {
        return Some(format!("lacks {} of memory", quantity::binary(lacking)));
    }
    let threads = host.cores.saturating_sub(own.map_or(0, |own| own.cpu_reserve));
    let cores = f64::from(threads) * pool.cpu_overcommit;
    (f64::from(total.cores) > cores)
        .then(|| format!("lacks {:.0} vCPUs", (f64::from(total.cores) - cores).ceil()))
}
