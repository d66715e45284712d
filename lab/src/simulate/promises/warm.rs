//! Promises about warm machines: what must never happen to a warm machine, and its state once the cluster has
//! settled.

use serde_json::Value;

use crate::simulate::checker::Checker;
use crate::simulate::checker::objects::is_kept;
use crate::simulate::drawn::pool_shape::{PoolShape, State};

impl Checker {
    /// The VMIDs of a pool's warm machines.
    pub fn kept(&self, pool: &PoolShape) -> Vec<u32> {
        let ours = self.ours().into_iter().filter(|vmid| pool.vmids.contains(vmid));
        ours.filter(|vmid| self.record(*vmid).is_some_and(|record| is_kept(&record))).collect()
    }

    /// Checks that a warm machine has no token and is not a Node.
    pub fn nothing_joins_unasked(&self) {
        for vmid in self.world.pools.iter().flat_map(|pool| self.kept(pool)) {
            let Some(record) = self.record(vmid) else { continue };
            let older = record["oldTokenIds"].as_array().is_some_and(|ids| !ids.is_empty());
            if older || !record["tokenId"].is_null() {
                self.violated(&format!("VM {vmid} is kept warm, but a token was created for it"));
            }
            let by_hand = self.inner().started.contains(&vmid);
            if let Some(node) = self.node_of(vmid).filter(|_| !by_hand) {
                self.violated(&format!("VM {vmid} is kept warm, but has joined as Node {node}"));
            }
        }
    }

    /// Returns what is wrong with a warm machine, if anything. Called once the cluster has settled.
    pub fn waits_badly(&self, vmid: u32, record: &Value) -> Option<String> {
        let (vm, pool) = (self.world.pve.vm(vmid)?, self.world.pool_of(vmid)?);
        if record["entered"]["Warm"].is_null() {
            return Some(format!("VM {vmid} is not warm yet"));
        }
        let Some(warm) = pool.warm else {
            return Some(format!("VM {vmid} is kept warm, but its pool should have no warm machines"));
        };
        if record["warm"] != warm.state.name() {
            return Some(format!(
                "VM {vmid} is kept {}, but should be {}",
                record["warm"],
                warm.state.name()
            ));
        }
        let lock = vm.config.get("lock").map(String::as_str);
        let expected = match warm.state {
            State::Stopped => (false, None),
            State::Booted => (true, None),
            State::Suspended => (false, Some("suspended")),
        };
        if (vm.running, lock) != expected {
            let name = warm.state.name();
            return Some(format!(
                "VM {vmid} should be kept {name}, but is in the wrong state (running: {}, lock: \
                    {lock:?})",
                vm.running
            ));
        }
        self.other_disk(pool, vmid)
    }

    /// Returns what is wrong with the number of a pool's warm machines, if anything. Called once the cluster
    /// has settled. The number may be lower than in the settings if the pool's maximum leaves no room.
    pub fn keeps_badly(&self, pool: &PoolShape) -> Option<String> {
        let all = self.ours().into_iter().filter(|vmid| pool.vmids.contains(vmid)).count();
        let kept = self.kept(pool).len();
        let wanted = pool.warm.map_or(0, |warm| warm.count).min(pool.max - (all - kept).min(pool.max));
        let full = kept < wanted && !self.has_room(pool, false);
        (kept != wanted && !full)
            .then(|| format!("pool {} keeps {kept} warm machines, but should keep {wanted}", pool.name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_is_kept_until_it_is_asked_or_on_its_way_out() {
        for (record, kept) in [
            (json!({ "intent": { "kind": "create" }, "warm": "stopped" }), true),
            (json!({ "intent": { "kind": "create" }, "asked": "2026-11-21T00:00:00Z" }), false),
            (json!({ "intent": { "kind": "retire" }, "warm": "stopped" }), false),
            (json!({}), false),
        ] {
            assert_eq!(is_kept(&record), kept, "{record}");
        }
    }
}
