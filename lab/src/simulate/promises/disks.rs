//! Checks how much of each storage clones and other clients use, and finds leftover disks of VMs that no
//! longer exist. Leftover disks are logged when they appear, because the final state does not show how they
//! came about.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use world::proxmox::spec::GIB;

use crate::simulate::checker::memory::AsOf;
use crate::simulate::checker::objects::{name, vmid};
use crate::simulate::checker::{Checker, Promise};
use crate::simulate::drawn::pool_shape::Places;
use crate::simulate::promises::room::GROWS;

/// How long the daemon may still rely on a storage's wrong numbers after the storage reports correct ones
/// again.
const BELIEVED: Duration = Duration::from_mins(4);

/// Leftover disks of destroyed VMs are logged.
pub struct Disks;

impl Promise for Disks {
    fn throughout(&self, checker: &Checker) {
        checker.look_at_disks();
    }
}

impl Checker {
    /// Called when a storage begins to report wrong numbers, or reports correct ones again.
    pub fn storage_lies(&self, storage: &str, lies: bool) {
        let until = (!lies).then(|| Instant::now() + BELIEVED);
        self.inner().lies.0.insert(storage.to_owned(), until);
    }

    /// Logs disks that belong to no VM and no record.
    pub fn look_at_disks(&self) {
        let [vms, _, volumes] = self.world.pve.changes();
        let now = Some([vms, volumes, self.world.kube.latest_change("ConfigMap")]);
        if std::mem::replace(&mut self.inner().looked_at.disks, now) == now {
            return;
        }
        let alone = self.world.pve.volumes_without_vm();
        let ours = |vmid| self.world.pool_of(vmid).is_some() && self.record(vmid).is_none();
        let left: BTreeSet<String> =
            alone.into_iter().filter(|(vmid, _)| ours(*vmid)).map(|(_, volume)| volume).collect();
        let before = std::mem::replace(&mut self.inner().disks_left, left.clone());
        for volume in left.difference(&before) {
            self.log.say("disk", &format!("{volume} is left behind"));
        }
    }

    /// Returns the VMID, storage and record of each existing or upcoming machine whose clone is on a storage
    /// that a pool names. Omits records whose VMID an unmanaged VM has taken, because no clone will be
    /// created for them.
    fn stored(&self) -> Vec<(u32, String, Value)> {
        let maps = self.world.kube.list("ConfigMap");
        let records = maps.iter().filter(|map| name(map).starts_with("machine-"));
        let stored = records.filter_map(|map| {
            let record = serde_json::from_str::<Value>(map["data"]["record"].as_str()?).ok()?;
            let storage = record["madeOf"]["stored_on"].as_str()?.to_owned();
            let vmid = vmid(&record).filter(|vmid| !self.is_foreign(*vmid))?;
            Some((vmid, storage, record))
        });
        stored.collect()
    }

    /// Returns the used bytes of each storage that a pool names, by storage and host. The machines' own
    /// clones are not included.
    pub fn others_on_storages(&self) -> Vec<((String, String), u64)> {
        let named = self.world.pools.iter().flat_map(|pool| &pool.places.storages);
        let places: Vec<_> =
            named.flat_map(|storage| self.world.hosts.iter().map(move |host| (*storage, host))).collect();
        if places.is_empty() {
            return Vec::new();
        }
        let stored = self.stored();
        let used = places.into_iter().filter_map(|(storage, host)| {
            let there = self.world.pve.storage_on(storage, host)?;
            let clones = stored
                .iter()
                .filter(|(_, on, record)| on == storage && (there.shared || record["host"] == host.as_str()));
            let own: u64 = clones.map(|(vmid, ..)| self.world.pve.allocated(*vmid, storage)).sum();
            Some(((storage.to_owned(), host.clone()), there.used.saturating_sub(own)))
        });
        used.collect()
    }

    /// The reason why the storage has no room for a new machine's clone, if any.
    pub fn stores_badly(&self, host: &str, record: &Value, as_of: AsOf<'_>) -> Option<String> {
        let storage = record["madeOf"]["stored_on"].as_str()?;
        if self.inner().lies.knows_nothing_of(storage) {
            return None;
        }
        let there = self.world.pve.storage_on(storage, host)?;
        let own: u64 = self
            .stored()
            .iter()
            .filter(|(_, on, other)| on == storage && (there.shared || other["host"] == host))
            .map(|(vmid, _, other)| {
                let known = self.is_written(*vmid, as_of);
                // The daemon does not recreate a VM that another client has deleted.
                let comes = other["intent"]["kind"] == "create" && other["smbiosUuid"].is_null() && known;
                let planned = if comes { disk(other) } else { 0 };
                planned.max(self.world.pve.allocated(*vmid, storage))
            })
            .sum();
        let place = (storage.to_owned(), host.to_owned());
        let seen = self.inner().sights.others.get(&place)?.iter().map(|(_, used)| *used).min()?;
        // The daemon may already know about space that was freed since the last check.
        let now = self.others_on_storages().into_iter().find(|(other, _)| *other == place);
        let others = now.map_or(seen, |(_, used)| used.min(seen));
        let sum = others + own + disk(record) + Places::STORAGE_RESERVE;
        (sum > there.size + GROWS).then(|| {
            format!(
                "would need {sum} bytes on {storage} (including the reserve and {own} bytes for other \
                    clones), but has only {} bytes there",
                there.size
            )
        })
    }
}

/// The disk size of a record's machine, in bytes.
fn disk(record: &Value) -> u64 {
    let text = record["madeOf"]["disk"].as_str().unwrap_or_default();
    let gib = text.split(' ').nth(1).and_then(|size| size.strip_suffix("Gi")?.parse::<u64>().ok());
    gib.unwrap_or(0) * GIB
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_says_how_large_its_disk_is() {
        assert_eq!(disk(&json!({ "madeOf": { "disk": "scsi0 14Gi" } })), 14 * GIB);
        assert_eq!(disk(&json!({ "madeOf": { "disk": "as in the template" } })), 0);
    }
}
