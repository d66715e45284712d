//! Checks that machines grow only within their limits, and that no growth is unfinished once the cluster has
//! settled.

use serde_json::Value;
use stage::Call;
use world::proxmox::spec::GIB;

use crate::simulate::checker::memory::GIVEN_UP;
use crate::simulate::checker::objects::vmid;
use crate::simulate::checker::{Checker, Promise};

/// Machines grow only within their limits.
pub struct Growth;

impl Promise for Growth {
    fn on_call(&self, checker: &Checker, who: &str, call: &Call<'_>) {
        checker.must_grow_rightly(who, call);
    }
}

impl Checker {
    /// Called when a record is written. If the record orders its machine to grow, the new size must be within
    /// the limits of the settings, and the host must have room.
    pub fn must_grow_rightly(&self, who: &str, call: &Call<'_>) {
        let Some((before, written)) = self.change_of_record(call) else { return };
        if written["growing"].is_null() || !before["growing"].is_null() {
            return;
        }
        let (Some(vmid), Some(host)) = (vmid(&written), written["host"].as_str()) else { return };
        let Some(pool) = self.world.pool_of(vmid) else { return };
        let ((cores, memory), name) = (size(&written), &written["name"]);
        self.inner().figures.growths += 1;
        let most = pool.grows.map_or((0, 0), |grows| (grows.cores, u64::from(grows.gib) * GIB));
        let least = size(&before);
        if cores > most.0 || memory > most.1 || cores < least.0 || memory < least.1 {
            self.violated(&format!(
                "{name} is to grow from {least:?} to {:?}, but the limit is {most:?}",
                (cores, memory)
            ));
        }
        if self.world.rules.closed_host == Some(host) {
            self.violated(&format!("{name} is to grow on {host}, which is closed"));
        }
        let as_of = self.as_of(who, call.sent);
        if call.sent.elapsed() >= GIVEN_UP || !self.runs_where_it_did(vmid, host, as_of) {
            return;
        }
        let added = (cores.saturating_sub(least.0), memory.saturating_sub(least.1));
        if let Some(lacks) = self.lacks(host, pool, added, Some(as_of), None) {
            self.violated(&format!("{name} is to grow on {host}, which {lacks}"));
        }
    }

    /// Returns what is wrong with a machine that may grow, if anything. Called once the cluster has settled.
    pub fn has_grown_badly(&self, vmid: u32, record: &Value) -> Option<String> {
        self.world.pool_of(vmid)?.grows?;
        if !record["growing"].is_null() {
            return Some(format!("VM {vmid} has not finished growing"));
        }
        let waiting = self.world.pve.waits_for_start(vmid);
        if let Some(key) = waiting.iter().find(|key| ["vcpus", "memory"].contains(&key.as_str())) {
            return Some(format!(
                "VM {vmid} has a change to `{key}` that takes effect only at its next \
                start"
            ));
        }
        let guest = self.world.pve.guests().into_iter().find(|guest| guest.vmid == vmid)?;
        let (has, said) = ((guest.cores, guest.memory), size(record));
        (has != said).then(|| {
            format!(
                "VM {vmid} has {has:?} (vCPUs, bytes of memory), but its record \
            contains {said:?}"
            )
        })
    }
}

/// The number of vCPUs and bytes of memory that a machine has or should have, according to its record.
fn size(record: &Value) -> (u32, u64) {
    let cores = record["cores"].as_u64().and_then(|cores| cores.try_into().ok());
    (cores.unwrap_or(0), record["memory"].as_u64().unwrap_or(0))
}
