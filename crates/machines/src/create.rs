//! Turns a machine's record into a ready node or a warm machine. Each step first checks what already exists,
//! unless the record is so new that nothing can exist yet.

use model::MachineKind;
use std::time::Duration;

use tokio::time::Instant;

use super::boot::Boot;
use super::context::Context;
use super::creation_turn::{self, Place};
use super::machine_handle::MachineHandle;
use super::ownership::{Sight, look, ours, still_ours};
use super::proxmox_tasks::{self, CONFIGURE, RESIZE};
use super::reports::Reports;
use super::step_error::{BackoffTarget, StepError, no_pool, retry_until, within};
use super::vm_start::start;
use super::{
    bare_metal, blank, desired_vm_config, firewall, join, nocloud_seed, node, outside_changes, pinning,
    promised_room, vm_search, warm_machine, warm_vm,
};
use model::machine::{Phase, STORED_ON, WarmState};
use proxmox::marker::Marker;
use proxmox::{CloneRequest, Exit, Kind, Power, Upid, VmConfig};
use settings::{CloneKind, Pool};

/// The time between two checks of a clone whose task is not known.
const CLONE_LOOK: Duration = Duration::from_secs(2);

/// The result of creating a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Created {
    /// A ready node.
    Ready,
    /// A warm machine, which waits until pods need it.
    Warm,
}

/// Takes the machine through all steps. `fresh` means that the record was just written, so nothing can exist
/// yet.
pub(super) async fn run(
    ctx: &Context,
    machine: &mut MachineHandle,
    fresh: bool,
    reports: &Reports,
) -> Result<Created, StepError> {
    let made = Box::pin(in_time(ctx, machine, fresh, reports)).await;
    let nothing_known = machine.record().task.is_none() && machine.record().smbios_uuid.is_none();
    // A VM may exist even though the record does not show it. An earlier run may have requested the VM, or
    // the time limit may have ended this run before the answer arrived.
    let cut_off = machine.phase == Phase::Cloning && matches!(made, Err(StepError::Limit { .. }));
    if made.is_err() && nothing_known && (!fresh || cut_off) {
        machine.stored.record.clone_in_doubt = true;
    }
    made
}

/// Runs all steps within their time limit. The time before the first step, such as a pause or the wait for
/// the machine's turn, does not count towards the limit.
async fn in_time(
    ctx: &Context,
    machine: &mut MachineHandle,
    mut fresh: bool,
    reports: &Reports,
) -> Result<Created, StepError> {
    let name = machine.record().pool.clone();
    let pool = ctx.config.pools.iter().find(|pool| pool.name == name).cloned();
    let pool = pool.ok_or_else(|| no_pool(&name))?;
    let mut starts = 0;
    loop {
        creation_turn::not_paused(ctx, machine).await?;
        let id = machine.record().id.clone();
        let made = tokio::select! {
            biased;
            made = in_turn(ctx, machine, &pool, fresh) => Some(made),
            () = outside_changes::noticed(ctx, &id) => None,
        };
        let trouble = match made {
            Some(Ok(Some(made))) => return Ok(made),
            Some(Ok(None)) => continue,
            Some(Err(trouble)) => Some(trouble),
            None => None,
        };
        let is_known = machine.record().smbios_uuid.is_some();
        match trouble {
            Some(trouble) if !is_known || !outside_changes::may_explain(&trouble) => return Err(trouble),
            trouble => outside_changes::go_on(ctx, machine, trouble, &mut starts, reports).await?,
        }
        fresh = false;
    }
}

/// Waits for the machine's turn, then runs the steps that have a time limit. Returns `None` if a pause began
/// before the first step.
async fn in_turn(
    ctx: &Context,
    machine: &mut MachineHandle,
    pool: &Pool,
    fresh: bool,
) -> Result<Option<Created>, StepError> {
    let joins = machine.record().asked.is_some() || (!fresh && node::find(ctx, machine.record()).is_some());
    let place = if joins || machine.record().is_physical() {
        None
    } else {
        let Some(place) = creation_turn::place(ctx, machine, pool).await? else { return Ok(None) };
        Some(place)
    };
    let limit = ctx.config.scale_up.max_node_provision_time;
    let age = ctx.clock.now().duration_since(machine.record().wanted_since()).unsigned_abs();
    let steps = Box::pin(steps(ctx, machine, pool, fresh, place));
    let Ok(made) = tokio::time::timeout(limit.saturating_sub(age), steps).await else {
        return Err(StepError::Limit {
            what: "becoming a ready node".to_owned(),
            limit,
            blame: machine.blame(),
        });
    };
    let made = made?;
    if made == Created::Warm {
        warm_machine::rest(ctx, machine, pool).await?;
    }
    Ok(Some(made))
}

/// The progress line while the machine's VM is created. A resumed machine may already have a VM.
fn cloning(fresh: bool, kind: MachineKind) -> &'static str {
    match (fresh, matches!(kind, MachineKind::Clone(_))) {
        (true, true) => "the clone is being created",
        (true, false) => "the VM is being created",
        (false, true) => "looking for its clone; it will be created if it does not exist",
        (false, false) => "looking for its VM; it will be created if it does not exist",
    }
}

async fn steps(
    ctx: &Context,
    machine: &mut MachineHandle,
    pool: &Pool,
    fresh: bool,
    place: Option<Place<'_>>,
) -> Result<Created, StepError> {
    if machine.record().is_physical() {
        bare_metal::run(ctx, machine).await?;
    } else if let Some(place) = place {
        let is_started = vm(ctx, machine, pool, fresh, place).await?;
        let boot = Boot::new(machine.record(), Instant::now());
        if machine.record().warm.is_some() {
            if is_started {
                join::await_boot(ctx, machine, pool, boot).await?;
            }
            return Ok(Created::Warm);
        }
        join::run(ctx, machine, pool, boot).await?;
    } else if machine.record().asked.is_some() && node::find(ctx, machine.record()).is_none() {
        let boot = warm_machine::wake(ctx, machine).await?;
        join::run(ctx, machine, pool, boot).await?;
    }
    node::settle(ctx, machine, pool).await?;
    Ok(Created::Ready)
}

/// Creates and configures the machine's VM, and starts it if it should run. Returns whether the VM was
/// started. On return, the machine no longer counts as being created, so a booting machine does not delay
/// others.
async fn vm(
    ctx: &Context,
    machine: &mut MachineHandle,
    pool: &Pool,
    fresh: bool,
    place: Place<'_>,
) -> Result<bool, StepError> {
    let limits = &ctx.config.limits;
    machine.enter(ctx, Phase::Cloning, cloning(fresh, machine.record().kind()));
    let cloned = within(limits.clone, "the clone", clone(ctx, machine, pool, fresh)).await?;
    let _permit = place.cloned();
    let suspended = warm_vm::is_suspended(&cloned);
    if !suspended {
        machine.enter(ctx, Phase::Configuring, "its settings and disk size are being applied");
        within(limits.configure, "the configuration", configure(ctx, machine, pool, cloned)).await?;
        let firewall = firewall::apply(ctx, machine, pool);
        within(limits.configure, "the firewall's settings", firewall).await?;
        pinning::settle(ctx, machine, pool).await?;
    }
    if machine.record().warm.is_some() {
        warm_machine::still_wanted(ctx, pool)?;
    }
    let starts = match machine.record().warm {
        None => true,
        Some(WarmState::Stopped) => false,
        Some(WarmState::Booted | WarmState::Suspended) => !suspended,
    };
    if starts {
        promised_room::confirm(ctx, machine, pool).await?;
        machine.enter(ctx, Phase::Starting, "the VM is being started");
        within(limits.start, "the start", start(ctx, machine, fresh)).await?;
    }
    Ok(starts)
}

/// Creates the machine's VM, unless it already exists, and waits until it is unlocked.
async fn clone(
    ctx: &Context,
    machine: &mut MachineHandle,
    pool: &Pool,
    fresh: bool,
) -> Result<VmConfig, StepError> {
    let mut look_first = !fresh;
    let mut maybe_sent: Option<Instant> = None;
    loop {
        if let Some(upid) = machine.record().task.as_deref().and_then(Upid::parse) {
            let exit = proxmox_tasks::finish(
                ctx,
                proxmox_tasks::making(machine.record()),
                &upid,
                ctx.config.limits.clone,
            )
            .await?;
            machine.stored.record.task = None;
            match exit {
                Exit::Ok | Exit::Warnings(_) | Exit::Unknown => {}
                Exit::Failed(ref text) if exit.problem() == Some(Kind::Exists) => {
                    had_before(ctx, machine, text).await?;
                }
                Exit::Failed(_) => {
                    // The failed task may have left a locked VM behind.
                    machine.stored.record.clone_in_doubt = true;
                    return Err(proxmox_tasks::failed(proxmox_tasks::making(machine.record()), &upid, &exit));
                }
            }
            machine.stored.record.clone_in_doubt |= exit == Exit::Unknown;
            look_first = true;
        }
        if look_first {
            let sight = retry_until!(ctx.config.limits.clone, machine.seed(), {
                Ok(look(&ctx.proxmox, &ctx.owner(), machine.record()).await?)
            });
            match sight.await? {
                Sight::Ours(config) if config.lock().is_none() || warm_vm::is_suspended(&config) => {
                    return Ok(*config);
                }
                Sight::Ours(_) | Sight::BeingCloned => {
                    machine.say(ctx, "the clone is still locked");
                    tokio::time::sleep(CLONE_LOOK).await;
                    continue;
                }
                Sight::Foreign(what) => {
                    return Err(StepError::Foreign { vmid: machine.record().slot.vmid, what });
                }
                // The request may still take effect, so it is only repeated after a while. If both requests
                // take effect, the second one finds the VMID taken, and the mark shows whose VM it is.
                Sight::Absent
                    if maybe_sent.is_some_and(|sent| sent.elapsed() < proxmox_tasks::ON_ITS_WAY) =>
                {
                    tokio::time::sleep(CLONE_LOOK).await;
                    continue;
                }
                // The guest of the removed VM may have registered a Node that has not been seen yet. The Node
                // has to be deleted before another machine gets the same name.
                Sight::Absent | Sight::BeingDestroyed if machine.record().smbios_uuid.is_some() => {
                    let what = "its VM was removed by another client".to_owned();
                    return Err(StepError::Failed { what, blame: BackoffTarget::Other });
                }
                Sight::BeingDestroyed => {
                    let what = "it is being destroyed, or its destruction was interrupted".to_owned();
                    return Err(StepError::Foreign { vmid: machine.record().slot.vmid, what });
                }
                Sight::Absent => {}
            }
        }
        // A resumed run does not know what the previous run has requested.
        let mut doubt = !fresh;
        let template = template_now(ctx, machine).await;
        machine.stored.record.made_of.extend(template.map(|print| (TEMPLATE.to_owned(), print)));
        let sent = retry_until!(ctx.config.limits.clone, machine.seed(), {
            let sent = send_clone(ctx, machine, pool).await;
            // If the host died during the call, the clone may have begun.
            doubt |= sent.as_ref().is_err_and(StepError::leaves_doubt);
            sent
        })
        .await;
        // Even a started task may fail because an earlier clone request has taken the VMID.
        machine.stored.record.clone_in_doubt |= doubt;
        match sent? {
            Sent::Started(upid) => machine.change(ctx, |record| record.task = Some(upid.to_string())).await?,
            Sent::Unknown => {
                machine.stored.record.clone_in_doubt = true;
                maybe_sent = Some(Instant::now());
            }
            Sent::Taken(text) => had_before(ctx, machine, &text).await?,
        }
        look_first = true;
    }
}

/// The maximum time for which a clone is delayed in order to read its template again.
const TEMPLATE_READ: Duration = Duration::from_secs(1);
/// The key in a record's `made_of` under which the template's identity is stored.
const TEMPLATE: &str = "template";

/// Returns the template's identity just before the template is cloned. Returns `None` if the identity in the
/// record is kept.
async fn template_now(ctx: &Context, machine: &MachineHandle) -> Option<String> {
    let record = machine.record();
    let MachineKind::Clone(template) = record.kind() else { return None };
    if !record.made_of.contains_key(TEMPLATE) {
        return None;
    }
    let asked = Instant::now();
    let read = ctx.proxmox.config(&record.template_host, template);
    match tokio::time::timeout(TEMPLATE_READ, read).await {
        Ok(Ok(vm)) => Some(ctx.templates.is_now(template, &vm, asked)),
        Ok(Err(error)) => {
            tracing::debug!(machine = %record.name, %error, "its template cannot be read at the moment");
            None
        }
        Err(_) => None,
    }
}

enum Sent {
    Started(Upid),
    Unknown,
    /// The VMID is taken. Contains Proxmox VE's error message.
    Taken(String),
}

/// The maximum number of pods that a VM's notes name.
const PODS_SAID: usize = 5;

async fn send_clone(ctx: &Context, machine: &MachineHandle, pool: &Pool) -> Result<Sent, StepError> {
    let record = machine.record();
    let marker = Marker {
        cluster: ctx.config.cluster.clone(),
        region: record.region.clone(),
        pool: pool.name.clone(),
        machine: record.id.clone(),
        kubernetes: ctx.watches.kubernetes_uid(),
    };
    let made_for = match record.pods.as_slice() {
        [] if record.warm.is_some() => "Created ahead of demand.".to_owned(),
        [] => "Created to meet the pool's minimum, or to replace a node that is being removed.".to_owned(),
        pods if pods.len() > PODS_SAID => {
            format!("Created for {} and {} more.", pods[..PODS_SAID].join(", "), pods.len() - PODS_SAID)
        }
        pods => format!("Created for {}.", pods.join(", ")),
    };
    let description = marker.describe(&format!(
        "Worker of Kubernetes cluster {}, pool {}.\n{made_for}",
        ctx.config.cluster, pool.name
    ));
    let MachineKind::Clone(template) = record.kind() else {
        return sent(blank::send(ctx, record, pool, description).await);
    };
    let request = CloneRequest {
        template_host: record.template_host.clone(),
        template,
        vmid: record.slot.vmid,
        name: record.name.clone(),
        description,
        pool: ctx.config.proxmox.as_ref().and_then(|proxmox| proxmox.resource_pool.clone()),
        target: (record.host != record.template_host).then(|| record.host.clone()),
        full: pool.clone == CloneKind::Full,
        storage: record.made_of.get(STORED_ON).or_else(|| pool.storages.first()).cloned(),
    };
    sent(ctx.proxmox.clone_vm(&request).await)
}

/// The result of the call that creates a VM.
fn sent(answer: Result<Upid, proxmox::Error>) -> Result<Sent, StepError> {
    match answer {
        Ok(upid) => Ok(Sent::Started(upid)),
        Err(error) => match error.kind {
            Kind::OutcomeUnknown => Ok(Sent::Unknown),
            Kind::Exists => Ok(Sent::Taken(error.text)),
            Kind::NotFound if error.meaning().is_none() => {
                Err(StepError::pool(format!("the template cannot be cloned: {}", error.text)))
            }
            _ => Err(error.into()),
        },
    }
}

/// Handles a VMID that is already taken. If the VM with this VMID is, or may be, the machine's own, returns
/// `Ok`, and the caller checks again. Otherwise, returns an error.
async fn had_before(ctx: &Context, machine: &mut MachineHandle, said: &str) -> Result<(), StepError> {
    match look(&ctx.proxmox, &ctx.owner(), machine.record()).await? {
        Sight::Ours(_) | Sight::BeingCloned => Ok(()),
        // An earlier run may have requested the clone whose task is still running.
        Sight::Absent
            if machine.record().clone_in_doubt
                && proxmox_tasks::is_cloning(ctx, machine.record()).await? =>
        {
            machine.say(ctx, "waiting for a running clone task that may be creating this machine's VM");
            tokio::time::sleep(CLONE_LOOK).await;
            Ok(())
        }
        Sight::Foreign(_) | Sight::BeingDestroyed | Sight::Absent => taken(ctx, machine, said).await,
    }
}

/// Returns the error for a VMID that is used by another VM. If that VM is visible, the error names it.
/// Returns `Ok` if the machine's own VM has appeared since the last check.
async fn taken(ctx: &Context, machine: &MachineHandle, said: &str) -> Result<(), StepError> {
    let vmid = machine.record().slot.vmid;
    match look(&ctx.proxmox, &ctx.owner(), machine.record()).await {
        Ok(Sight::Ours(_) | Sight::BeingCloned) => Ok(()),
        Ok(Sight::Foreign(what)) => Err(StepError::Foreign { vmid, what }),
        _ if machine.record().clone_in_doubt => Err(vm_search::in_doubt(ctx, machine)),
        _ if ctx.proxmox.vmid_taken(vmid).await? => {
            Err(StepError::Foreign { vmid, what: "it existed before this machine".to_owned() })
        }
        // No VM has the VMID, but a disk or a file with this VMID was left behind.
        _ => Err(StepError::Foreign {
            vmid,
            what: format!("that VM no longer exists, but it left a disk or a file behind: {said}"),
        }),
    }
}

/// Sets the VM's options, then the disk's size. Values that are already right are not written again.
async fn configure(
    ctx: &Context,
    machine: &mut MachineHandle,
    pool: &Pool,
    cloned: VmConfig,
) -> Result<(), StepError> {
    let limit = ctx.config.limits.configure;
    let record = machine.record().clone();
    // If the VM runs, an earlier run has configured and started it. Settings that were changed after
    // that apply only to later machines.
    if record.smbios_uuid.is_some() {
        let (host, vmid) = (&record.host, record.slot.vmid);
        let power = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.power(host, vmid).await?));
        if power.await? == Power::Running {
            return Ok(());
        }
    }
    nocloud_seed::provide(ctx, machine, pool, &cloned).await?;
    set_options(ctx, machine, pool, &cloned).await?;
    if let Some(disk) = &pool.disk {
        let present = cloned.drive_size(&disk.device).ok_or_else(|| {
            StepError::pool(format!(
                "the template has no disk `{}`: set the pool's `disk_device`",
                disk.device
            ))
        })?;
        if present < disk.bytes {
            retry_until!(limit, machine.seed(), {
                let asked = Instant::now();
                ours(ctx, &record).await?;
                let (host, vmid) = (&record.host, record.slot.vmid);
                let (device, bytes) = (&disk.device, disk.bytes);
                let upid = still_ours(ctx, &record, asked).await?.resize(host, vmid, device, bytes).await?;
                proxmox_tasks::succeed(ctx, RESIZE, &upid, limit).await
            })
            .await?;
        }
    }
    let uuid = cloned.smbios_uuid();
    machine
        .change(ctx, |record| {
            record.smbios_uuid = uuid;
            record.task = None;
        })
        .await
}

/// Sets the VM's options until they match the pool's settings. An option that blocks other changes is changed
/// first.
async fn set_options(
    ctx: &Context,
    machine: &MachineHandle,
    pool: &Pool,
    cloned: &VmConfig,
) -> Result<(), StepError> {
    let (limit, record) = (ctx.config.limits.configure, machine.record());
    let tags = ctx.templates.tags();
    let mut known = Some(cloned.clone());
    retry_until!(limit, machine.seed(), {
        loop {
            let config = match known.take() {
                Some(config) => config,
                None => ours(ctx, record).await?,
            };
            let (change, is_last) = desired_vm_config::next(pool, record, &config, tags.as_ref());
            if !change.is_empty() {
                let (host, vmid) = (&record.host, record.slot.vmid);
                let digest = config.digest().unwrap_or_default();
                let delete: Vec<&str> = change.delete.iter().map(String::as_str).collect();
                if let Some(upid) =
                    ctx.proxmox.set_config(host, vmid, &change.set, &delete, digest, 20).await?
                {
                    proxmox_tasks::succeed(ctx, CONFIGURE, &upid, limit).await?;
                }
            }
            if is_last {
                return Ok(());
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_that_may_be_there_is_not_said_to_be_made() {
        for kind in [MachineKind::Clone(model::Vmid(9000)), MachineKind::Blank] {
            assert!(cloning(true, kind).ends_with("is being created"));
            assert!(cloning(false, kind).contains("looking for"));
        }
    }
}
