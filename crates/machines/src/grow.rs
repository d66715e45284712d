//! Gives a running machine more vCPUs and memory in place.
//!
//! ```text
//!  record (wanted and former size) ─> guest checked ─> plugged, read back ─> used by the guest ─> reported by its Node ─> record
//! ```
//!
//! * The new size is written to the record before any request to Proxmox VE, so that the host's room and all
//!   limits account for it. Each step checks the current state and continues from there.
//! * If Proxmox VE cannot plug a change, it silently defers the change to the VM's next start. So the result
//!   is read back, and deferred changes are reverted.
//! * Whatever goes wrong, the node stays in service. Plugged resources that the Node does not report are
//!   removed from the VM again (`failed_growth`), and the record is set to the resulting size of the VM.
//!   Nothing else ever shrinks a VM. A run that is resumed after a failed growth only reverts changes, and
//!   plugs nothing more.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::failed_growth::{self, given, has};
use super::machine_handle::MachineHandle;
use super::ownership::ours;
use super::proxmox_tasks::{self, CONFIGURE};
use super::reports::{Ending, Reports};
use super::step_error::{StepError, retry_until};
use super::take_up::{self, failed};
use super::vm_size::{MEMORY, VCPUS};
use super::{node, outside_changes, promised_room, reports};
use kubernetes::Versioned;
use model::Record;
use model::machine::{Growing, Phase};
use model::workload::Backoff;
use proxmox::VmConfig;
use runtime::boxed;
use settings::{Grow, Size};

/// Grows a ready machine. `before` is the machine's size and what its Node reports; `to` is the new size.
#[boxed]
pub async fn grow(ctx: Context, stored: Versioned<Record>, before: Growing, to: Size, reports: Reports) {
    let Some(mut machine) = reports::claimed(&ctx, stored) else { return };
    machine.phase = Phase::Ready;
    let wanted = |record: &mut Record| {
        (record.cores, record.memory) = (to.cores, to.memory);
        record.growing = Some(before);
    };
    match machine.change(&ctx, wanted).await {
        Ok(()) => go_on(&ctx, machine, &reports).await,
        Err(trouble) => reports::lost(&ctx, &machine, &trouble, &reports),
    }
}

/// Resumes the growth of a machine that is growing according to its record.
pub(super) async fn go_on(ctx: &Context, mut machine: MachineHandle, reports: &Reports) {
    machine.phase = Phase::Ready;
    machine.node = node::find(ctx, machine.record()).map(|node| node.name.clone()).or(machine.node);
    let size = Size { cores: machine.record().cores, memory: machine.record().memory };
    let (grown, disturbed) = grown(ctx, &mut machine, size).await;
    if matches!(grown, Err(StepError::RecordLost(_))) {
        let trouble = StepError::RecordLost(machine.record().name.clone());
        return reports::lost(ctx, &machine, &trouble, reports);
    }
    // The node is opened for pods before the record says that the growth has ended, so that a run that is
    // resumed after a crash opens the node, too.
    let left = match &grown {
        Ok(()) => take_up::open(ctx, &machine).await.map(|()| None),
        Err(trouble) => taken_back(ctx, &mut machine, (!disturbed).then_some(size), trouble).await,
    };
    let left = match left {
        Ok(left) => left,
        Err(trouble) => return reports::stuck(ctx, &mut machine, &trouble, reports),
    };
    let ending = match grown {
        Ok(()) => {
            note_growth(&mut machine.stored.record);
            Ending::Grown
        }
        Err(trouble) => {
            let left = left.map(|left| format!("; {left}")).unwrap_or_default();
            let record = &mut machine.stored.record;
            let reason = format!("{} could not grow to {}: {trouble}{left}", record.name, size.words());
            let scale_up = &ctx.config.scale_up;
            let lengths = (scale_up.backoff_initial, scale_up.backoff_max);
            record.grow_backoff =
                Some(Backoff::next(record.grow_backoff.as_ref(), &reason, lengths, ctx.clock.now()));
            tracing::warn!(machine = %record.name, reason, "a machine did not grow");
            Ending::NotGrown(reason)
        }
    };
    machine.stored.record.growing = None;
    if let Err(trouble) = machine.save(ctx).await {
        return reports::lost(ctx, &machine, &trouble, reports);
    }
    machine.say(ctx, "");
    reports::tell(ctx, reports, machine.record(), ending);
    ctx.registry.release(&machine.record().id);
}

/// Grows the machine, unless the growth was already abandoned. Also returns whether another client has
/// changed the VM in the meantime.
async fn grown(ctx: &Context, machine: &mut MachineHandle, size: Size) -> (Result<(), StepError>, bool) {
    let given_up = machine.record().growing.as_ref().and_then(|growing| growing.failed.clone());
    if let Some(why) = given_up {
        return (Err(failed(why)), false);
    }
    machine.say(ctx, &format!("growing to {}", size.words()));
    let id = machine.record().id.clone();
    tokio::select! {
        biased;
        grown = Box::pin(run(ctx, machine)) => (grown, false),
        () = outside_changes::noticed(ctx, &id) => {
            (Err(failed("another client has stopped, moved or removed its VM".to_owned())), true)
        }
    }
}

/// Reverts a failed growth, and opens the machine's node for pods once the node reports the actual size.
/// Returns a description of the result.
async fn taken_back(
    ctx: &Context,
    machine: &mut MachineHandle,
    plugged: Option<Size>,
    why: &StepError,
) -> Result<Option<String>, StepError> {
    if plugged.is_some() {
        let given_up = |growing: &mut Growing| _ = growing.failed.get_or_insert_with(|| why.to_string());
        machine.change(ctx, |record| record.growing.iter_mut().for_each(given_up)).await?;
    }
    match failed_growth::take(ctx, machine, plugged).await {
        Ok(left) => take_up::open(ctx, machine).await.map(|()| left),
        Err(trouble) => {
            take_up::open_if_true(ctx, machine).await?;
            Err(trouble)
        }
    }
}

/// Records that the guest uses the plugged resources. If only CPUs or only memory was plugged, what is
/// recorded about the other stays unchanged.
fn note_growth(record: &mut Record) {
    let Some(before) = &record.growing else { return };
    record.takes_no_cpus &= record.cores <= before.cores;
    record.takes_no_memory &= record.memory <= before.memory;
    if !record.takes_no_cpus && !record.takes_no_memory {
        record.grow_backoff = None;
    }
}

async fn run(ctx: &Context, machine: &mut MachineHandle) -> Result<(), StepError> {
    let name = machine.record().pool.clone();
    let pool = ctx.config.pools.iter().find(|pool| pool.name == name);
    let none = || failed(format!("pool `{name}` no longer grows machines"));
    let (pool, grow) = pool.and_then(|pool| Some((pool, pool.grow.as_ref()?))).ok_or_else(none)?;
    let permit = ctx.creating.acquire().await;
    let service = take_up::service(ctx, pool, grow)?;
    take_up::can_grow(ctx, machine, &service).await?;
    promised_room::confirm(ctx, machine, pool).await?;
    plug(ctx, machine, grow).await?;
    // From here on, only the guest is working, so the machine gives up its place for the next one.
    drop(permit);
    take_up::taken_up(ctx, machine, &service).await
}

/// Plugs vCPUs and memory until the VM has the size in its record. If the VM is larger, the record is set to
/// the VM's size.
async fn plug(ctx: &Context, machine: &mut MachineHandle, grow: &Grow) -> Result<(), StepError> {
    let limit = ctx.config.limits.configure;
    let record = machine.record().clone();
    let (host, vmid) = (&record.host, record.slot.vmid);
    machine.say(ctx, "vCPUs and memory are being hot-plugged");
    let asked = retry_until!(limit, machine.seed(), {
        let waiting = ctx.proxmox.pending(host, vmid).await?;
        let now = ctx.proxmox.current_config(host, vmid).await?;
        let next = ours(ctx, &record).await?;
        let Wanted { set, asked } = wanted(&record, grow, &now, &next, &waiting)?;
        if !set.is_empty() {
            let digest = now.digest().unwrap_or_default();
            if let Some(upid) = ctx.proxmox.set_config(host, vmid, &set, &[], digest, 20).await? {
                proxmox_tasks::succeed(ctx, CONFIGURE, &upid, limit).await?;
            }
        }
        Ok(asked)
    });
    let asked = asked.await?;
    let waiting = retry_until!(limit, machine.seed(), Ok(ctx.proxmox.pending(host, vmid).await?)).await?;
    let kept: Vec<&str> = asked.into_iter().filter(|key| waiting.contains(*key)).collect();
    if kept.is_empty() {
        // Other deferred changes are ignored, because they have not reached the guest. For example, an
        // administrator may have raised `cores`.
        let now =
            retry_until!(limit, machine.seed(), Ok(ctx.proxmox.current_config(host, vmid).await?)).await?;
        let Size { cores, memory } = has(&now, Size { cores: record.cores, memory: record.memory });
        return machine.change(ctx, |record| (record.cores, record.memory) = (cores, memory)).await;
    }
    Err(failed(format!(
        "Proxmox VE keeps the new `{}` of VM {vmid} for its next start: the VM's `hotplug` or `numa` \
            was changed, or QEMU refused the change; see `qm config {vmid} --current` on {host}, or \
            replace the node",
        kept.join("` and `")
    )))
}

/// The changes that a growth requests from Proxmox VE.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    set: BTreeMap<String, String>,
    /// The keys of this request, and the keys of an earlier request that still wait for the VM's next start.
    asked: Vec<&'static str>,
}

/// The settings to change if the VM's current size (`now`) is smaller than its record says. A larger VM keeps
/// what another client added.
///
/// # Errors
/// Returns an error if another client has set a different value for the VM's next start.
fn wanted(
    record: &Record,
    grow: &Grow,
    now: &VmConfig,
    next: &VmConfig,
    waiting: &BTreeSet<String>,
) -> Result<Wanted, StepError> {
    let ((cores, memory), (next_cores, next_memory)) = (given(now), given(next));
    let all = [
        (grow.grows_cores, VCPUS, i64::from(record.cores), cores, next_cores),
        (grow.grows_memory, MEMORY, record.memory >> 20, memory, next_memory),
    ];
    let mut wanted = Wanted::default();
    for (_, key, to, _, next) in
        all.into_iter().filter(|(grows, _, to, now, _)| *grows && now.is_none_or(|now| now < *to))
    {
        if !waiting.contains(key) {
            wanted.set.insert(key.to_owned(), to.to_string());
        } else if next != Some(to) {
            let (vmid, next) =
                (record.slot.vmid, next.map_or_else(|| "nothing".to_owned(), |next| next.to_string()));
            return Err(failed(format!(
                "another client has set `{key}` of VM {vmid} to {next} for its next start: to undo \
                    that, run `qm set {vmid} --revert {key}`"
            )));
        }
        wanted.asked.push(key);
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GIB: i64 = 1 << 30;

    fn growing() -> Record {
        let growing = Growing { cores: 2, memory: 4 * GIB, ..Growing::default() };
        Record { cores: 3, memory: 5 * GIB, growing: Some(growing), ..Record::example() }
    }

    #[test]
    fn only_what_was_plugged_and_came_is_taken_again() {
        let told = |cores, memory| {
            let mut record =
                Record { cores, memory, takes_no_cpus: true, takes_no_memory: true, ..growing() };
            record.grow_backoff = Some(Backoff::default());
            note_growth(&mut record);
            (record.takes_no_cpus, record.takes_no_memory, record.grow_backoff.is_some())
        };
        assert_eq!(told(3, 5 * GIB), (false, false, false));
        assert_eq!(told(2, 5 * GIB), (true, false, true), "plugged memory proves nothing about CPUs");
        assert_eq!(told(3, 4 * GIB), (false, true, true));
    }

    #[test]
    fn what_waits_by_the_will_of_others_is_neither_set_nor_taken_for_refused() {
        let grow =
            Grow { max_cores: 6, max_memory: 12 * GIB, grows_cores: true, grows_memory: true, service: None };
        let config = |vcpus: u32, memory: u32| {
            VmConfig::read(&json!({"cores": 6, "vcpus": vcpus, "memory": memory.to_string()})).unwrap()
        };
        let (now, record) = (config(2, 4096), growing());
        let asked = |next: &VmConfig, waiting: &[&str]| {
            let waiting = waiting.iter().copied().map(String::from).collect();
            let all = wanted(&record, &grow, &now, next, &waiting).map_err(|trouble| trouble.to_string())?;
            Ok::<_, String>((all.set.into_iter().collect::<Vec<_>>(), all.asked))
        };
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let all = vec![text(MEMORY, "5120"), text(VCPUS, "3")];
        assert_eq!(asked(&now, &[]), Ok((all, vec![VCPUS, MEMORY])));
        let set = vec![text(VCPUS, "3")];
        assert_eq!(
            asked(&config(2, 5120), &[MEMORY]),
            Ok((set, vec![VCPUS, MEMORY])),
            "the memory was requested earlier"
        );
        let refused = asked(&config(2, 8192), &[MEMORY]).unwrap_err();
        assert!(refused.contains("another client has set `memory`") && refused.contains("8192"), "{refused}");
        let record = Record { memory: 4 * GIB, ..growing() };
        let waiting = BTreeSet::from([MEMORY.to_owned()]);
        let cpus = wanted(&record, &grow, &now, &config(2, 8192), &waiting).unwrap();
        assert_eq!(cpus.asked, [VCPUS], "only CPUs grow: the deferred memory change is ignored");
    }
}
