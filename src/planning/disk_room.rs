//! Room on storages for the disks of new machines: where the configuration says which storage they are on, and what they take.

use std::collections::BTreeMap;

use crate::config::Pool;
use crate::model::machine::{Host, Machine, Phase, STORED_ON, Storage};
use crate::model::quantity;

/// What is left of a host's storages.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskRoom(BTreeMap<String, Storage>);

/// What a machine of the pool takes at once of the storage of its clone: a full clone of a pool that says how large its disk
/// is. How large the template's disk is, `check` looks at.
fn clone_bytes(pool: &Pool) -> i64 {
    pool.disk.as_ref().map_or(0, |disk| disk.bytes)
}

/// What its further disks take of each storage.
fn extra(pool: &Pool) -> BTreeMap<&str, i64> {
    let mut all: BTreeMap<&str, i64> = BTreeMap::new();
    for disk in &pool.extra_disks {
        let sum = all.entry(&disk.storage).or_default();
        *sum = sum.saturating_add(disk.gib.saturating_mul(1 << 30));
    }
    all
}

impl DiskRoom {
    pub(super) fn new(host: &Host) -> Self {
        Self(host.storage.clone())
    }

    /// The storage for the clone of the next machine of the pool (`None`: the template's), the one with the most free space
    /// of those that have enough; or which storage lacks what, in words. What comes `across` from the template of another host
    /// can only be put on a storage that hosts share.
    pub(super) fn choose(&self, pool: &Pool, across: bool) -> Result<Option<String>, String> {
        let extra = extra(pool);
        for (storage, bytes) in &extra {
            self.check(storage, *bytes, pool)?;
        }
        if pool.storages.is_empty() {
            return Ok(None);
        }
        let mut refusals = Vec::new();
        let mut best: Option<(i64, &String)> = None;
        for storage in &pool.storages {
            let bytes = clone_bytes(pool).saturating_add(extra.get(storage.as_str()).copied().unwrap_or(0));
            let kept_apart = across && self.0.get(storage).is_some_and(|seen| !seen.shared);
            if kept_apart {
                let why = format!("has no template of its own, and storage `{storage}` is not shared");
                refusals.push(why);
                continue;
            }
            match self.check(storage, bytes, pool) {
                // The first of equally empty ones.
                Ok(free) if best.is_none_or(|(most, _)| free > most) => best = Some((free, storage)),
                Ok(_) => {}
                Err(why) => refusals.push(why),
            }
        }
        best.map(|(_, storage)| Some(storage.clone())).ok_or_else(|| refusals.join(" and "))
    }

    /// How much is free of a storage that has so much left for the pool. One that a host does not show cannot be used; where no
    /// storage is known at all, nothing is known to be full.
    fn check(&self, storage: &str, bytes: i64, pool: &Pool) -> Result<i64, String> {
        if self.0.is_empty() {
            return Ok(i64::MAX);
        }
        let Some(seen) = self.0.get(storage) else { return Err(format!("has no storage `{storage}`")) };
        let free = seen.total.saturating_sub(seen.used).saturating_sub(pool.storage_reserve);
        if free < bytes {
            let (free, bytes) = (quantity::binary(free.max(0)), quantity::binary(bytes));
            return Err(format!("has {free} left on storage `{storage}`, and a machine takes {bytes}"));
        }
        Ok(free)
    }

    /// Counts a machine of the pool; `here`: it is on this host, else only storages that hosts share have less left.
    pub(super) fn take(&mut self, pool: &Pool, clone: Option<&str>, here: bool) {
        let clone = clone.map(|storage| (storage, clone_bytes(pool)));
        for (storage, bytes) in extra(pool).into_iter().chain(clone) {
            if let Some(seen) = self.0.get_mut(storage).filter(|seen| here || seen.shared) {
                seen.used = seen.used.saturating_add(bytes);
            }
        }
    }

    /// Counts the machines whose disks may not have been allocated yet.
    pub(super) fn count_coming(&mut self, host: &str, machines: &[Machine], pools: &[Pool]) {
        for machine in machines.iter().filter(|machine| machine.phase <= Phase::Configuring) {
            if let Some(pool) = pools.iter().find(|pool| pool.name == machine.pool) {
                let clone = machine.made_of.get(STORED_ON).or_else(|| pool.storages.first());
                let clone = clone.filter(|storage| pool.storages.contains(storage));
                self.take(pool, clone.map(String::as_str), machine.host == host);
            }
        }
    }
}
