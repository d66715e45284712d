//! Checks whether the storage for the memory of suspended machines exists and has room.

use std::collections::BTreeSet;

use super::findings::Line;
use super::hosts::in_range;
use super::proxmox_view::Pve;
use super::template::binary;
use crate::cli::plan_text::count;
use machines::{SUSPENDED, Usable};
use proxmox::{Drive, Guest, StorageConfig, VmConfig};
use settings::{CloneKind, Pool};

/// The VM option that names the storage for saved memory.
const NAMED: &str = "vmstatestorage";
/// The storage that is used if the VM has no disk.
const FALLBACK: &str = "local";

/// Returns the storages on which the pool's machines can save their memory. The set is empty if the pool
/// keeps no suspended machines.
pub(super) fn storages(pve: &Pve, pool: &Pool, vm: &VmConfig) -> BTreeSet<String> {
    if pool.warm.count == 0 || pool.warm.state.state_bytes(pool.memory) == 0 {
        return BTreeSet::new();
    }
    if let Some(named) = pool.vm_options.get(NAMED) {
        return [named.clone()].into();
    }
    let extra: BTreeSet<&str> = pool.extra_disks.iter().map(|disk| disk.storage.as_str()).collect();
    let with = |clones: BTreeSet<&str>| taken(pve, &clones.union(&extra).copied().collect());
    if pool.clone == CloneKind::Full && !pool.storages.is_empty() {
        return pool.storages.iter().map(|storage| with([storage.as_str()].into())).collect();
    }
    if let Some(named) = vm.get(NAMED) {
        return [named.to_owned()].into();
    }
    let of_template = vm.disks().map(Drive::storage);
    [with(of_template.collect())].into()
}

/// Returns the storage that Proxmox VE chooses from the storages of a VM's disks (`find_vmstate_storage` in
/// qemu-server's `QemuConfig`). It prefers shared storages to local ones, and within each of these two
/// groups it prefers file-based storages.
fn taken(pve: &Pve, used: &BTreeSet<&str>) -> String {
    let known = || used.iter().filter_map(|name| pve.storages.get(*name));
    let of = |shared: bool| {
        known().filter(|one| one.shared == shared).fold(
            None,
            |found: Option<&StorageConfig>, one| match found {
                Some(_) if !one.is_file_based() => found,
                _ => Some(one),
            },
        )
    };
    let found = of(true).or_else(|| of(false)).map(|one| one.name.as_str());
    found.or_else(|| used.first().copied()).unwrap_or(FALLBACK).to_owned()
}

/// Returns the reasons why suspending a machine would fail. The caller fills in each line's `what`.
pub(super) fn unfit(pve: &Pve, pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let mut wrong = Vec::new();
    let one = pool.warm.state.state_bytes(pool.memory);
    // The storage's used space already includes the memory of suspended machines.
    let is_there = |guest: &&Guest| in_range(pool, guest.vmid) && guest.lock.as_deref() == Some(SUSPENDED);
    let there = pve.seen.guests.values().filter(is_there).count();
    let more = pool.warm.count.saturating_sub(u32::try_from(there).unwrap_or(u32::MAX));
    for storage in storages(pve, pool, vm) {
        let of = format!("storage `{storage}`, which stores the memory of suspended machines,");
        let Some(known) = pve.storages.get(&storage).filter(|one| one.holds_disks()) else {
            let message = format!("{of} is not visible to the token, or accepts no VM disks");
            let help = format!("set `{NAMED}` in `vm_options` to another storage");
            wrong.push(Line::wrong("", message).key("warm").help(help));
            continue;
        };
        let all = one.saturating_mul(i64::from(more));
        for host in pve.allowed(pool).filter(|host| usable.reach.contains(*host)) {
            if let Some(free) = pve.free(pool, host, &storage).filter(|free| *free < all) {
                let (free, all, one) = (binary(free), binary(all), binary(one));
                let message = if there == 0 {
                    format!("{of} has {free} left on {host}, but {more} suspended machines need {all}")
                } else {
                    let more = count(more as usize, "more machine");
                    format!("{of} has {free} left on {host}, but suspending {more} needs {all}")
                };
                let help = format!("each suspended machine takes {one}: twice its memory plus 500 MiB");
                wrong.push(Line::doubtful("", message).key("warm").help(help));
                // A shared storage has the same free space on every host, so one finding is enough.
                if known.shared {
                    break;
                }
            }
        }
    }
    wrong
}
