//! Brings machines that are created ahead of demand to their waiting state, and wakes them when they are
//! needed.
//!
//! The record contains the intent: `warm` is the waiting state until the machine is asked to join, and
//! `asked` is the time at which the machine was asked. Asking a machine takes a single write to its record. A
//! crash before the write leaves a waiting machine, and a crash after the write leaves a joining machine. A
//! waiting machine has no bootstrap token.

use model::Vmid;
use tokio::time::Instant;

use super::boot::Boot;
use super::context::Context;
use super::machine_handle::MachineHandle;
use super::ownership::{Sight, look, ours, still_ours};
use super::proxmox_tasks::{self, CONFIGURE, SUSPEND};
use super::step_error::{BackoffTarget, StepError, no_pool, retry_until, within};
use super::warm_vm::{ONBOOT, SUSPENDED, is_suspended, with_host};
use super::{creation_turn, node, promised_room, vm_search, vm_start};
use model::machine::{Phase, WarmState};
use proxmox::{Kind, Power, VmConfig};
use settings::{BootstrapMethod, Pool};

/// Brings a machine to its waiting state. The machine's VM has already been configured and, if required, has
/// booted.
pub(super) async fn rest(ctx: &Context, machine: &mut MachineHandle, pool: &Pool) -> Result<(), StepError> {
    let Some(state) = machine.record().warm else { return Ok(()) };
    if state == WarmState::Suspended {
        let host = machine.record().host.clone();
        machine.say(ctx, &format!("waiting for its turn to be suspended on {host}"));
        let _turn = creation_turn::to_suspend(ctx, &host).await?;
        still_wanted(ctx, pool)?;
        suspend(ctx, machine).await?;
    }
    let words = format!("kept {} until it is needed", state.name());
    machine.enter(ctx, Phase::Warm, &words);
    machine.stored.record.task = None;
    machine.save(ctx).await
}

/// Returns an error if the machine's pool no longer exists: creating the machine and writing its memory to
/// disk would be useless.
pub(super) fn still_wanted(ctx: &Context, pool: &Pool) -> Result<(), StepError> {
    if ctx.has_pool(&pool.name) {
        return Ok(());
    }
    Err(no_pool(&pool.name))
}

/// Writes the guest's memory to disk and ends QEMU.
async fn suspend(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    // Suspending writes about as much data as a small clone, so it has the same time limit.
    let limit = ctx.config.limits.clone;
    machine.say(ctx, "its memory is being written to disk");
    let (host, vmid) = (machine.record().host.clone(), machine.record().slot.vmid);
    retry_until!(limit, machine.seed(), {
        let asked = Instant::now();
        // An earlier request may have succeeded although its answer was lost.
        match ours(ctx, machine.record()).await?.lock() {
            Some(SUSPENDED) => return Ok(()),
            Some(lock) => return Err(still(vmid, lock)),
            None => {}
        }
        let upid = still_ours(ctx, machine.record(), asked).await?.suspend_to_disk(&host, vmid).await?;
        proxmox_tasks::succeed(ctx, SUSPEND, &upid, limit).await
    })
    .await
}

fn still(vmid: Vmid, lock: &str) -> StepError {
    StepError::Proxmox(proxmox::Error {
        kind: Kind::Busy,
        call: format!("{} of VM {vmid}", SUSPEND.name),
        status: None,
        text: format!("the VM is locked ({lock})"),
    })
}

/// Starts or resumes a machine that was asked to join.
pub(super) async fn wake(ctx: &Context, machine: &mut MachineHandle) -> Result<Boot, StepError> {
    machine.enter(ctx, Phase::Starting, "it is being woken");
    let limit = ctx.config.limits.start;
    let (config, power) = kept(ctx, machine).await?;
    if power == Power::Running {
        come_up_with_host(ctx, machine, Some(*config)).await?;
        let boot = Boot::up(machine.record());
        // An earlier run may have resumed the VM.
        let was_suspended = machine.record().kept == Some(WarmState::Suspended);
        return Ok(if was_suspended { boot.with_old_clock() } else { boot });
    }
    // Daemons of other clusters see from `onboot` that the machine will run, so `onboot` is set first. A
    // suspended VM cannot be changed before it is resumed.
    let suspended = is_suspended(&config);
    if !suspended {
        come_up_with_host(ctx, machine, Some(*config)).await?;
    }
    let name = machine.record().pool.clone();
    if let Some(pool) = ctx.config.pools.iter().find(|pool| pool.name == name) {
        promised_room::confirm(ctx, machine, pool).await?;
    }
    within(limit, "the start", vm_start::start(ctx, machine, true)).await?;
    if !suspended {
        return Ok(Boot::new(machine.record(), Instant::now()));
    }
    come_up_with_host(ctx, machine, None).await?;
    Ok(Boot::up(machine.record()).with_old_clock())
}

/// The VM of a warm machine, and whether it runs. If the VM was moved to another host, the search continues
/// on that host.
async fn kept(ctx: &Context, machine: &mut MachineHandle) -> Result<(Box<VmConfig>, Power), StepError> {
    let limit = ctx.config.limits.start;
    loop {
        let (host, vmid) = (machine.record().host.clone(), machine.record().slot.vmid);
        let seen = retry_until!(limit, machine.seed(), {
            let sight = look(&ctx.proxmox, &ctx.owner(), machine.record()).await?;
            // The power state is not queried for a VM that does not exist or is not ours.
            let power = match &sight {
                Sight::Ours(_) => ctx.proxmox.power(&host, vmid).await?,
                _ => Power::Stopped,
            };
            Ok((sight, power))
        });
        match seen.await? {
            (Sight::Ours(config), power) => return Ok((config, power)),
            (Sight::Foreign(what), _) => return Err(StepError::Foreign { vmid, what }),
            (Sight::Absent | Sight::BeingCloned | Sight::BeingDestroyed, _) => {
                if !matches!(vm_search::find(ctx, machine).await?, vm_search::VmSearch::There(_)) {
                    let what = "the warm machine's VM has disappeared".to_owned();
                    return Err(StepError::Failed { what, blame: BackoffTarget::Other });
                }
            }
        }
    }
}

/// Configures a machine's VM to be started with its host from now on. This must not be done for a stopped or
/// suspended warm machine: it would join by itself, or look as if an administrator had started it.
pub(super) async fn come_up_with_host(
    ctx: &Context,
    machine: &MachineHandle,
    mut known: Option<VmConfig>,
) -> Result<(), StepError> {
    let limit = ctx.config.limits.configure;
    let record = machine.record().clone();
    retry_until!(limit, machine.seed(), {
        let config = match known.take() {
            Some(config) => config,
            None => ours(ctx, &record).await?,
        };
        if config.get(ONBOOT) == Some(with_host(true)) {
            return Ok(());
        }
        let set = [(ONBOOT.to_owned(), with_host(true).to_owned())].into();
        let digest = config.digest().unwrap_or_default();
        match ctx.proxmox.set_config(&record.host, record.slot.vmid, &set, &[], digest, 20).await? {
            Some(upid) => proxmox_tasks::succeed(ctx, CONFIGURE, &upid, limit).await,
            None => Ok(()),
        }
    })
    .await
}

/// The state in which a waiting machine is found.
pub(super) enum WarmSight {
    /// The machine's VM exists, is ours, and runs only if it should.
    AsItWas,
    /// The machine runs although it should not, and has joined or will join without being asked.
    Joins,
    /// Anything else.
    Otherwise,
}

/// Determines the state of a waiting machine.
pub(super) async fn found(ctx: &Context, machine: &mut MachineHandle) -> Result<WarmSight, StepError> {
    let vm_search::VmSearch::There(config) = vm_search::find(ctx, machine).await? else {
        return Ok(WarmSight::Otherwise);
    };
    let (host, vmid) = (machine.record().host.clone(), machine.record().slot.vmid);
    let power = ctx.proxmox.power(&host, vmid).await?;
    let as_it_was = match machine.record().warm {
        Some(WarmState::Stopped) => power == Power::Stopped && config.lock().is_none(),
        Some(WarmState::Booted) => power == Power::Running,
        Some(WarmState::Suspended) => power == Power::Stopped && is_suspended(&config),
        None => true,
    };
    let by_itself = || {
        let pool = ctx.config.pools.iter().find(|pool| pool.name == machine.record().pool);
        let bootstrap = pool.and_then(|pool| ctx.config.bootstrap_of(pool));
        bootstrap.is_some_and(|bootstrap| matches!(bootstrap.method, BootstrapMethod::None))
    };
    let joins = || power == Power::Running && (by_itself() || node::find(ctx, machine.record()).is_some());
    Ok(match as_it_was {
        true => WarmSight::AsItWas,
        false if joins() => WarmSight::Joins,
        false => WarmSight::Otherwise,
    })
}
