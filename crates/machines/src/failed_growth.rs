//! Cleans up after a failed growth. Changes that wait for the VM's next start are reverted. Plugged vCPUs and
//! memory that the Node does not report are unplugged, so that the record, the VM and the Node agree. If the
//! guest does not release these resources, the VM keeps them, and the record is updated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::ownership::ours;
use super::proxmox_tasks::{self, CONFIGURE};
use super::returned_nodes::node as node_now;
use super::step_error::{BackoffTarget, StepError, retry_until};
use super::take_up;
use super::vm_search::{self, VmSearch};
use super::vm_size::{CORES, MEMORY, VCPUS};
use model::dimms;
use model::machine::{Growing, NO_MORE};
use model::resources::Resources;
use proxmox::VmConfig;
use settings::Size;

/// Shrinks the VM to the size that its Node reports, makes sure that the Node reports no more than the VM's
/// size, and updates the record. The VM may be on any host. `plugged` is the size to which the VM was grown.
/// If another client has changed the VM since, `plugged` is `None`, and nothing is unplugged. If the VM is
/// gone or cannot be proven to be ours, the former size is written to the record, so that no pods wait for
/// the new size. The machine is then handled like any other. Returns a description of the result.
///
/// # Errors
/// Returns an error if the VM's size cannot be determined now, or if its Node reports more than that size.
/// The record then still says that the machine is growing, and this function is called again later.
pub(super) async fn take(
    ctx: &Context,
    machine: &mut MachineHandle,
    plugged: Option<Size>,
) -> Result<Option<String>, StepError> {
    let Some(before) = machine.record().growing.clone() else { return Ok(None) };
    let host = machine.record().host.clone();
    let (mut now, is_there) = counted(ctx, machine, &before).await?;
    // The Node is read directly, because kube-scheduler relies on what the kubelet reported last.
    let said = node_now(ctx, machine).await?.map(|node| node.capacity);
    let mut left = None;
    if let Some(said) = said.filter(|_| is_there) {
        let had = now;
        // If the VM was moved in the meantime, it is unknown how much its guest can use. Nothing is
        // unplugged; instead, the kubelet is restarted, so that it counts the resources again.
        let plugged = plugged.filter(|_| machine.record().host == host);
        let keeps_more = plugged.is_none() && before.missing((now.cores, now.memory), &said) != (0, 0);
        let back = plugged.map(|plugged| back(&before, plugged, now, &said)).unwrap_or_default();
        if !back.is_empty() {
            machine.say(ctx, "unplugging vCPUs and memory that its Node does not report");
            let refused = plug_out(ctx, machine, &back).await.err();
            now = counted(ctx, machine, &before).await?.0;
            left = Some(failure_text(machine, now, refused.as_ref()));
        }
        // If the kubelet was just starting, it may have counted resources that have been unplugged since.
        if now != had || keeps_more || before.says_more((now.cores, now.memory), &said) {
            take_up::settle(ctx, machine, &before, now).await?;
        }
    }
    (machine.stored.record.cores, machine.stored.record.memory) = (now.cores, now.memory);
    Ok(left)
}

/// Reverts the changes that the growth has made for the VM's next start. Returns the resulting size of the
/// VM, and whether the VM exists.
async fn counted(
    ctx: &Context,
    machine: &mut MachineHandle,
    before: &Growing,
) -> Result<(Size, bool), StepError> {
    let wanted = Size { cores: machine.record().cores, memory: machine.record().memory };
    let (before, vmid) = (Size { cores: before.cores, memory: before.memory }, machine.record().slot.vmid);
    let stock = retry_until!(ctx.config.limits.configure, machine.seed(), {
        let config = match vm_search::find(ctx, machine).await? {
            VmSearch::There(config) => config,
            // If the VM becomes visible again, it keeps its size, even if that is larger.
            VmSearch::Gone | VmSearch::NotOurs | VmSearch::Hidden => return Ok((before, false)),
            VmSearch::BeingCloned | VmSearch::BeingDestroyed => {
                let what =
                    format!("another client is creating or destroying a VM with the machine's VMID {vmid}");
                return Err(StepError::Failed { what, blame: BackoffTarget::Other });
            }
        };
        let host = machine.record().host.as_str();
        let waiting = ctx.proxmox.pending(host, vmid).await?;
        let asked = asked(before, wanted, &config, &waiting);
        if !asked.is_empty() {
            let digest = config.digest().unwrap_or_default();
            ctx.proxmox.revert(host, vmid, &asked, digest).await?;
        }
        let now = ctx.proxmox.current_config(host, vmid).await?;
        Ok((has(&now, before), true))
    });
    stock.await
}

/// The keys that the growth itself has set among the changes that wait for the VM's next start (`next`). The
/// other changes were made by other clients.
fn asked(before: Size, wanted: Size, next: &VmConfig, waiting: &BTreeSet<String>) -> Vec<&'static str> {
    let (cores, memory) = given(next);
    let all = [
        (VCPUS, cores, i64::from(before.cores)..=i64::from(wanted.cores)),
        (MEMORY, memory, before.memory >> 20..=wanted.memory >> 20),
    ];
    let is_asked = |next: Option<i64>, range: &RangeInclusive<i64>| {
        range.start() < range.end() && next.is_some_and(|next| range.contains(&next))
    };
    let asked = all.into_iter().filter(|(key, next, range)| waiting.contains(*key) && is_asked(*next, range));
    asked.map(|(key, ..)| key).collect()
}

/// The settings that shrink the VM to the size that its Node reports. Only plugged resources are removed, not
/// those that other clients added to the VM.
fn back(before: &Growing, plugged: Size, now: Size, said: &Resources) -> BTreeMap<String, String> {
    let (cpu, memory) = before.missing((now.cores, now.memory), said);
    let mut set = BTreeMap::new();
    if cpu > 0 && now.cores == plugged.cores && now.cores > before.cores {
        let more = (said.cpu_milli - before.node_cpu_milli).max(0) / 1000;
        let to = before.cores.saturating_add(u32::try_from(more).unwrap_or(0));
        if to < now.cores {
            set.insert(VCPUS.to_owned(), to.to_string());
        }
    }
    if memory > 0 && now.memory == plugged.memory && now.memory > before.memory {
        let more = said.memory - before.node_memory;
        let to = if more < NO_MORE { Some(before.memory) } else { dimms::at_least(before.memory + more) };
        if let Some(to) = to.filter(|to| *to < now.memory) {
            set.insert(MEMORY.to_owned(), (to >> 20).to_string());
        }
    }
    set
}

/// Applies these settings: Proxmox VE asks the guest to release vCPUs and memory, and gives up after about
/// twenty seconds.
async fn plug_out(
    ctx: &Context,
    machine: &MachineHandle,
    set: &BTreeMap<String, String>,
) -> Result<(), StepError> {
    let limit = ctx.config.limits.configure;
    let record = machine.record();
    let (host, vmid) = (&record.host, record.slot.vmid);
    let done = retry_until!(limit, machine.seed(), {
        let config = ours(ctx, record).await?;
        let digest = config.digest().unwrap_or_default();
        if let Some(upid) = ctx.proxmox.set_config(host, vmid, set, &[], digest, 20).await? {
            proxmox_tasks::succeed(ctx, CONFIGURE, &upid, limit).await?;
        }
        Ok(())
    });
    done.await
}

fn failure_text(machine: &MachineHandle, now: Size, refused: Option<&StepError>) -> String {
    let record = machine.record();
    let (vmid, has) = (record.slot.vmid, now.words());
    match refused {
        None => format!("VM {vmid} was restored to {has}, as reported by its Node"),
        Some(trouble) => {
            let node = machine.node.as_deref().unwrap_or(&record.name);
            format!(
                "VM {vmid} keeps {has}, more than its Node reports, because its guest does not release \
                    the difference ({trouble}): to replace the node, run `pve-autoscaler retire {node}`"
            )
        }
    }
}

/// A VM's size. Each value is at least the corresponding value of `least`.
pub(super) fn has(config: &VmConfig, least: Size) -> Size {
    let (cores, memory) = given(config);
    let cores = cores.and_then(|cores| u32::try_from(cores).ok()).unwrap_or(0);
    let memory = memory.map_or(0, |mib| mib << 20);
    Size { cores: cores.max(least.cores), memory: memory.max(least.memory) }
}

/// The number of vCPUs, and the memory in MiB, in a configuration.
pub(super) fn given(config: &VmConfig) -> (Option<i64>, Option<i64>) {
    // Memory may be written as a property (`current=2048`).
    let plain = |value: &str| value.trim_start_matches("current=").parse().ok();
    let number = |key: &str| config.get(key).and_then(plain);
    (number(VCPUS).or_else(|| number(CORES)), number(MEMORY))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    #[test]
    fn only_what_the_growth_has_asked_for_is_taken_back() {
        let before = Size { cores: 2, memory: 4 * GIB };
        let asked = |wanted: (u32, i64), next: serde_json::Value, waiting: &[&str]| {
            let waiting = waiting.iter().copied().map(String::from).collect();
            let next = VmConfig::read(&next).unwrap();
            asked(before, Size { cores: wanted.0, memory: wanted.1 }, &next, &waiting)
        };
        let next =
            |vcpus: u32, memory: &str| serde_json::json!({"cores": 6, "vcpus": vcpus, "memory": memory});
        let both = [MEMORY, VCPUS];
        assert_eq!(asked((3, 5 * GIB), next(3, "5120"), &both), [VCPUS, MEMORY]);
        assert_eq!(asked((3, 5 * GIB), next(2, "4096"), &[VCPUS]), [VCPUS], "a deferred unplug");
        assert_eq!(asked((3, 5 * GIB), next(5, "current=8192"), &both), [""; 0], "another client set more");
        assert_eq!(asked((3, 4 * GIB), next(3, "8192"), &both), [VCPUS], "only CPUs were plugged");
    }

    #[test]
    fn only_what_was_plugged_and_is_not_reported_goes_back() {
        let before = Growing {
            cores: 2,
            memory: 2 * GIB,
            node_cpu_milli: 2000,
            node_memory: 1900 << 20,
            ..Growing::default()
        };
        let plugged = Size { cores: 4, memory: 3 * GIB };
        let back = |now: (u32, i64), cpu_milli, more: i64| {
            let said = Resources { cpu_milli, memory: (1900 + more) << 20, ..Resources::default() };
            let set = back(&before, plugged, Size { cores: now.0, memory: now.1 }, &said);
            (set.get(VCPUS).cloned(), set.get(MEMORY).cloned())
        };
        let text = |text: &str| Some(text.to_owned());
        let all = (4, 3 * GIB);
        assert_eq!(back(all, 4000, 1010), (None, None), "the Node reports all that was plugged");
        assert_eq!(back(all, 2000, 0), (text("2"), text("2048")), "the Node reports nothing new");
        assert_eq!(back(all, 2000, 1010), (text("2"), None), "the Node reports only the memory");
        assert_eq!(
            back(all, 3000, 3),
            (text("3"), text("2048")),
            "the Node reports one of two CPUs, and 3 MiB, which is less than a DIMM"
        );
        assert_eq!(back(all, 4000, 500), (None, text("2560")), "the Node reports one of two DIMMs");
        assert_eq!(back((2, 2 * GIB), 2000, 0), (None, None), "nothing was plugged");
        assert_eq!(back((6, 8 * GIB), 2000, 0), (None, None), "an administrator has enlarged the VM");
    }
}
