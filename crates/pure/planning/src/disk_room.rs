//! The room on storages for the disks of new machines and for the saved memory of suspended machines. Room is
//! only checked if the storages and the required sizes are known.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::PoolName;
use model::machine::{Host, Machine, Phase, STORED_ON, Storage};
use model::quantity;
use model::snapshot::Snapshot;
use settings::Pool;

/// The VM option that names the storage for saved memory.
const STATE_STORAGE: &str = "vmstatestorage";

/// What is left of a host's storages.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskRoom {
    storages: BTreeMap<String, Storage>,
    clones: Arc<CloneBytes>,
}

/// For each pool, how many bytes a full clone takes on its storage.
#[derive(Clone, Debug, Default)]
pub(super) struct CloneBytes(BTreeMap<PoolName, i64>);

impl CloneBytes {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let pools = snapshot.memory.pools.iter().filter(|(_, memory)| memory.clone_bytes != 0);
        Self(pools.map(|(pool, memory)| (pool.clone(), memory.clone_bytes)).collect())
    }

    /// The size of a full clone, in bytes: at least the disk size that the pool sets, because a snapshot may
    /// not contain the size of the template.
    fn of(&self, pool: &Pool) -> i64 {
        let asked = pool.disk.as_ref().map_or(0, |disk| disk.bytes);
        self.0.get(&pool.name).copied().unwrap_or_default().max(asked)
    }
}

/// How many bytes a machine takes on each storage.
type Needs<'a> = BTreeMap<&'a str, i64>;

fn add<'a>(needs: &mut Needs<'a>, storage: &'a str, bytes: i64) {
    let sum = needs.entry(storage).or_default();
    *sum = sum.saturating_add(bytes);
}

impl DiskRoom {
    pub(super) fn new(host: &Host, clones: Arc<CloneBytes>) -> Self {
        Self { storages: host.storage.clone(), clones }
    }

    /// How many bytes the disks of a machine need on each storage, if its clone is on the storage `clone`.
    fn disks<'a>(&self, pool: &'a Pool, clone: Option<&'a str>) -> Needs<'a> {
        let mut all = Needs::new();
        for disk in &pool.extra_disks {
            add(&mut all, &disk.storage, disk.gib.saturating_mul(1 << 30));
        }
        if let Some(clone) = clone {
            add(&mut all, clone, self.clones.of(pool));
        }
        all
    }

    /// Chooses the storage for the clone of the pool's next machine: the storage with the most free space,
    /// among those that have enough room. `None` means the template's storage. The error says what each
    /// storage lacks. If the template is on another host (`across`), the clone must be on a shared storage.
    /// `state` is the disk space for the machine's saved memory, in bytes.
    pub(super) fn choose(&self, pool: &Pool, across: bool, state: i64) -> Result<Option<String>, String> {
        self.check_all(pool, None, state)?;
        if pool.storages.is_empty() {
            return Ok(None);
        }
        let mut refusals = Vec::new();
        let mut best: Option<(i64, &String)> = None;
        for storage in &pool.storages {
            let kept_apart = across && self.storages.get(storage).is_some_and(|seen| !seen.shared);
            if kept_apart {
                let why = format!("has no template of its own, and storage `{storage}` is not shared");
                refusals.push(why);
                continue;
            }
            let free = self.check_all(pool, Some(storage), state).map(|()| self.free(storage, pool));
            match free {
                // Of storages with equal free space, the first is chosen.
                Ok(free) if best.is_none_or(|(most, _)| free > most) => best = Some((free, storage)),
                Ok(_) => {}
                Err(why) => refusals.push(why),
            }
        }
        best.map(|(_, storage)| Some(storage.clone())).ok_or_else(|| refusals.join(" and "))
    }

    /// Checks whether there is room for a machine whose clone is on this storage. A storage that the host
    /// does not report cannot be used. If no storage is known at all, room is assumed.
    fn check_all(&self, pool: &Pool, clone: Option<&str>, state: i64) -> Result<(), String> {
        if self.storages.is_empty() {
            return Ok(());
        }
        let mut needs = self.disks(pool, clone);
        let remembering = if state > 0 { self.state_storages(pool, clone) } else { Vec::new() };
        for storage in &remembering {
            add(&mut needs, storage, state);
        }
        for (storage, bytes) in needs {
            if !self.storages.contains_key(storage) {
                return Err(format!("has no storage `{storage}`"));
            }
            let free = self.free(storage, pool);
            if free < bytes {
                let (free, bytes) = (quantity::binary(free.max(0)), quantity::binary(bytes));
                let memory = if remembering.contains(&storage) { ", including its memory" } else { "" };
                return Err(format!(
                    "has {free} left on storage `{storage}`, but a machine needs {bytes}{memory}"
                ));
            }
        }
        Ok(())
    }

    /// How many bytes of a storage the pool may still use.
    fn free(&self, storage: &str, pool: &Pool) -> i64 {
        let left = |seen: &Storage| seen.total.saturating_sub(seen.used).saturating_sub(pool.storage_reserve);
        self.storages.get(storage).map_or(i64::MAX, left)
    }

    /// The storages on which a suspended machine's memory may be saved, as far as they are known. If the VM's
    /// options name a storage, it is the only one. Otherwise, they are the shared storages of the VM's disks,
    /// or all storages of its disks if none is shared (`find_vmstate_storage` in qemu-server's `QemuConfig`).
    /// If there are several, Proxmox VE chooses by storage type, so all of them must have room.
    fn state_storages<'a>(&self, pool: &'a Pool, clone: Option<&'a str>) -> Vec<&'a str> {
        if let Some(named) = pool.vm_options.get(STATE_STORAGE) {
            return vec![named];
        }
        // If the storage of a disk is unknown, the storage of the saved memory is unknown too.
        let Some(clone) = clone else { return Vec::new() };
        let mut all: Vec<&str> = self.disks(pool, Some(clone)).into_keys().collect();
        let shared = |storage: &&str| self.storages.get(*storage).is_some_and(|seen| seen.shared);
        if all.iter().any(shared) {
            all.retain(shared);
        }
        all
    }

    /// Counts the disk space of a machine of the pool. `state` is the size of its saved memory, in bytes. If
    /// the machine is on another host (`here` is false), it only takes room on shared storages.
    pub(super) fn take(&mut self, pool: &Pool, clone: Option<&str>, state: i64, here: bool) {
        self.count(self.disks(pool, clone), here);
        self.count_state(pool, clone, state, here);
    }

    fn count_state(&mut self, pool: &Pool, clone: Option<&str>, state: i64, here: bool) {
        if state > 0 {
            let storages = self.state_storages(pool, clone);
            self.count(storages.into_iter().map(|storage| (storage, state)).collect(), here);
        }
    }

    fn count(&mut self, needs: Needs, here: bool) {
        for (storage, bytes) in needs {
            if let Some(seen) = self.storages.get_mut(storage).filter(|seen| here || seen.shared) {
                seen.used = seen.used.saturating_add(bytes);
            }
        }
    }

    /// Counts machines whose disks or saved memory may not be included in the reported storage usage yet.
    pub(super) fn count_coming(&mut self, host: &str, machines: &[Machine], pools: &[Pool]) {
        let coming = |machine: &&Machine| machine.phase <= Phase::Booting || machine.just_stored;
        for machine in machines.iter().filter(coming) {
            let Some(pool) = pools.iter().find(|pool| pool.name == machine.pool) else { continue };
            let clone = machine.made_of.get(STORED_ON).or_else(|| pool.storages.first());
            let clone = clone.filter(|storage| pool.storages.contains(storage)).map(String::as_str);
            let here = machine.hosts().any(|one| *one == host);
            if machine.phase <= Phase::Configuring || machine.just_stored {
                self.count(self.disks(pool, clone), here);
            }
            let remembers =
                machine.phase <= Phase::Booting && (machine.phase != Phase::Warm || machine.just_stored);
            if let Some(state) = machine.warm.filter(|_| remembers) {
                self.count_state(pool, clone, state.state_bytes(machine.memory), here);
            }
        }
    }
}
