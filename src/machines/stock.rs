//! What a VM has whose growth has failed. What waits for its next start is taken back; what was plugged and its Node does not report is
//! plugged out again, so that record, VM and Node agree. A guest may refuse that: its VM then keeps it, and the record says so.

use std::collections::BTreeMap;

use super::Context;
use super::finding::{self, Found};
use super::grow::{CORES, MEMORY, VCPUS};
use super::jobs::{self, CONFIGURE};
use super::node;
use super::ownership::ours;
use super::tracked::Tracked;
use super::trouble::{Blame, Trouble, insist};
use crate::config::Size;
use crate::model::dimms;
use crate::model::machine::Growing;
use crate::model::resources::Resources;
use crate::proxmox::VmConfig;

/// Less memory than this is no more of a Node: kernels differ a little in what they keep from start to start.
const NO_MORE: i64 = 64 << 20;

/// Brings the VM back to what its Node reports, and the record to what the VM has then, wherever it is by now. `plugged`: the size that it
/// was given; `None` where somebody else is at work on the VM, which is then left as it is. Returns what came of it, in words. A VM that
/// is gone, or cannot be seen as ours, ends with what it had: pods do not wait for it, and the rest is seen to as of any other.
///
/// # Errors
/// What the VM has cannot be told for now: the record goes on saying that it grows, and it is tried again.
pub(super) async fn take(
    ctx: &Context,
    machine: &mut Tracked,
    plugged: Option<Size>,
) -> Result<Option<String>, Trouble> {
    let Some(before) = machine.record().growing.clone() else { return Ok(None) };
    let host = machine.record().host.clone();
    let mut now = counted(ctx, machine, &before).await?;
    // One that was moved meanwhile says nothing of what its guest takes.
    let plugged = plugged.filter(|_| machine.record().host == host);
    let said = node::find(ctx, machine.record()).map(|node| node.capacity.clone());
    let mut left = None;
    if let (Some(plugged), Some(said)) = (plugged, said) {
        let back = back(&before, plugged, now, &said);
        let record = &mut machine.stored.record;
        record.takes_no_cpus |= back.contains_key(VCPUS);
        record.takes_no_memory |= back.contains_key(MEMORY);
        if !back.is_empty() {
            machine.say(ctx, "what its Node does not report is taken out of its VM again");
            let refused = plug_out(ctx, machine, &back).await.err();
            now = counted(ctx, machine, &before).await?;
            left = Some(words(machine, now, refused.as_ref()));
        }
    }
    (machine.stored.record.cores, machine.stored.record.memory) = (now.cores, now.memory);
    Ok(left)
}

/// Takes back what waits for the VM's next start, and looks at what it has without.
async fn counted(ctx: &Context, machine: &mut Tracked, before: &Growing) -> Result<Size, Trouble> {
    let (before, vmid) = (Size { cores: before.cores, memory: before.memory }, machine.record().slot.vmid);
    let stock = insist!(ctx.config.limits.configure, machine.seed(), {
        let config = match finding::find(ctx, machine).await? {
            Found::There(config) => config,
            // Should it be seen again, it is never set to less than it has.
            Found::Gone | Found::NotOurs => return Ok(before),
            Found::BeingCloned | Found::BeingDestroyed => {
                let what = format!("somebody makes or destroys a VM with its VMID {vmid}");
                return Err(Trouble::Failed { what, blame: Blame::Nobody });
            }
        };
        let host = machine.record().host.as_str();
        let waiting = ctx.proxmox.pending(host, vmid).await?;
        let kept: Vec<&str> = [VCPUS, MEMORY].into_iter().filter(|key| waiting.contains(*key)).collect();
        if !kept.is_empty() {
            let digest = config.digest().unwrap_or_default();
            ctx.proxmox.revert(host, vmid, &kept, digest).await?;
        }
        let now = ctx.proxmox.current_config(host, vmid).await?;
        Ok(has(&now, before))
    });
    stock.await
}

/// What is set so that the VM has what its Node reports: of what was plugged, and of nothing that others gave it.
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

/// Sets that: Proxmox VE asks the guest to let go of it, and gives up after some twenty seconds.
async fn plug_out(ctx: &Context, machine: &Tracked, set: &BTreeMap<String, String>) -> Result<(), Trouble> {
    let limit = ctx.config.limits.configure;
    let record = machine.record();
    let (host, vmid) = (&record.host, record.slot.vmid);
    let done = insist!(limit, machine.seed(), {
        let config = ours(ctx, record).await?;
        let digest = config.digest().unwrap_or_default();
        if let Some(upid) = ctx.proxmox.set_config(host, vmid, set, &[], digest, 20).await? {
            jobs::succeed(ctx, CONFIGURE, &upid, limit).await?;
        }
        Ok(())
    });
    done.await
}

fn words(machine: &Tracked, now: Size, refused: Option<&Trouble>) -> String {
    let record = machine.record();
    let (vmid, has) = (record.slot.vmid, now.words());
    match refused {
        None => format!("VM {vmid} has {has} again, as its Node reports"),
        Some(trouble) => {
            let node = machine.node.as_deref().unwrap_or(&record.name);
            format!(
                "VM {vmid} keeps {has}, which its Node does not report, for its guest does not let go of it ({trouble}): \
                 `pve-autoscaler retire {node}` replaces it"
            )
        }
    }
}

/// What a VM has: never less than so much.
pub(super) fn has(config: &VmConfig, least: Size) -> Size {
    let (cores, memory) = given(config);
    let cores = cores.and_then(|cores| u32::try_from(cores).ok()).unwrap_or(0);
    let memory = memory.map_or(0, |mib| mib << 20);
    Size { cores: cores.max(least.cores), memory: memory.max(least.memory) }
}

/// The vCPUs, and the memory in MiB, that a configuration gives.
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
        assert_eq!(back(all, 4000, 1010), (None, None), "the Node reports all of it");
        assert_eq!(back(all, 2000, 0), (text("2"), text("2048")), "it reports none of it");
        assert_eq!(back(all, 2000, 1010), (text("2"), None), "its memory came");
        assert_eq!(back(all, 3000, 3), (text("3"), text("2048")), "one CPU came, and its kernel keeps less");
        assert_eq!(back(all, 4000, 500), (None, text("2560")), "one of two DIMMs came");
        assert_eq!(back((2, 2 * GIB), 2000, 0), (None, None), "nothing was plugged");
        assert_eq!(back((6, 8 * GIB), 2000, 0), (None, None), "somebody gave it more by hand");
    }
}
