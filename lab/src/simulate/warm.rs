//! Machines that a pool keeps ahead of demand: how many and how, drawn from the seed; what must never be seen
//! of one that waits, and how it looks once all is calm.

use fastrand::Rng;
use serde_json::Value;

use super::checker::Checker;
use super::rules::Bootstrap;
use super::settings::PoolShape;

/// How machines wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never started.
    Stopped,
    /// Up, without having joined.
    Booted,
    /// Its memory on disk.
    Suspended,
}

impl State {
    /// As the settings and the records have it.
    fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Booted => "booted",
            Self::Suspended => "suspended",
        }
    }
}

/// What a pool keeps.
#[derive(Clone, Copy, Debug)]
pub struct Warm {
    /// How many machines.
    pub count: usize,
    /// How they wait.
    pub state: State,
}

impl Warm {
    /// As the settings have it.
    pub fn written(self) -> String {
        format!("warm = {{ count = {}, state = \"{}\" }}", self.count, self.state.name())
    }
}

/// Draws what the pools keep. Machines that join by themselves can only wait before their first boot.
pub fn draw(random: &mut Rng, bootstrap: Bootstrap, pools: &mut [PoolShape]) {
    for pool in pools {
        let (kept, count) = (random.u8(..3) == 0, random.usize(1..=pool.max.min(3)));
        let state = match random.u8(..3) {
            1 if bootstrap != Bootstrap::Nothing => State::Booted,
            2 if bootstrap != Bootstrap::Nothing => State::Suspended,
            _ => State::Stopped,
        };
        pool.warm = kept.then_some(Warm { count, state });
    }
}

/// Whether a record's machine is kept, and has not been asked to join.
pub fn is_kept(record: &Value) -> bool {
    record["intent"]["kind"] == "create" && !record["warm"].is_null()
}

impl Checker {
    /// The VMs of a pool's machines that are kept.
    pub(super) fn kept(&self, pool: &PoolShape) -> Vec<u32> {
        let ours = self.ours().into_iter().filter(|vmid| pool.vmids.contains(vmid));
        ours.filter(|vmid| self.record(*vmid).is_some_and(|record| is_kept(&record))).collect()
    }

    /// One that waits has no token, and is no Node.
    pub(super) fn nothing_joins_unasked(&self) {
        for vmid in self.world.pools.iter().flat_map(|pool| self.kept(pool)) {
            let Some(record) = self.record(vmid) else { continue };
            let older = record["oldTokenIds"].as_array().is_some_and(|ids| !ids.is_empty());
            if older || !record["tokenId"].is_null() {
                self.violated(&format!("VM {vmid} is to wait, and a token was made for it"));
            }
            let by_hand = self.inner().started.contains(&vmid);
            if let Some(node) = self.node_of(vmid).filter(|_| !by_hand) {
                self.violated(&format!("VM {vmid} is to wait, and is the Node {node}"));
            }
        }
    }

    /// What is not as it has to be of one that waits, once all is calm.
    pub(super) fn waits_badly(&self, vmid: u32, record: &Value) -> Option<String> {
        let (vm, pool) = (self.world.pve.vm(vmid)?, self.world.pool_of(vmid)?);
        if record["entered"]["Warm"].is_null() {
            return Some(format!("VM {vmid} does not wait yet"));
        }
        let Some(warm) = pool.warm else { return Some(format!("VM {vmid} waits for no pool")) };
        if record["warm"] != warm.state.name() {
            return Some(format!("VM {vmid} waits {}, not {}", record["warm"], warm.state.name()));
        }
        let lock = vm.config.get("lock").map(String::as_str);
        let expected = match warm.state {
            State::Stopped => (false, None),
            State::Booted => (true, None),
            State::Suspended => (false, Some("suspended")),
        };
        if (vm.running, lock) != expected {
            let name = warm.state.name();
            return Some(format!("VM {vmid} waits {name}: running {}, lock {lock:?}", vm.running));
        }
        self.other_disk(pool, vmid)
    }

    /// What a pool keeps once all is calm: as many as it is to, as far as its maximum leaves room for them.
    pub(super) fn keeps_badly(&self, pool: &PoolShape) -> Option<String> {
        let all = self.ours().into_iter().filter(|vmid| pool.vmids.contains(vmid)).count();
        let kept = self.kept(pool).len();
        let wanted = pool.warm.map_or(0, |warm| warm.count).min(pool.max - (all - kept).min(pool.max));
        let full = kept < wanted && !self.has_room(pool, false);
        (kept != wanted && !full).then(|| format!("pool {} keeps {kept} machines, not {wanted}", pool.name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::simulate::settings;

    #[test]
    fn pools_keep_no_more_than_they_may_have_and_only_what_can_wait() {
        let mut seen = Vec::new();
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let mut pools = settings::pools(&mut random);
            let bootstrap = if seed % 2 == 0 { Bootstrap::Nothing } else { Bootstrap::Kubeadm };
            draw(&mut random, bootstrap, &mut pools);
            for (pool, warm) in pools.iter().filter_map(|pool| Some((pool, pool.warm?))) {
                assert!((1..=pool.max).contains(&warm.count), "{pool:?}");
                assert!(bootstrap != Bootstrap::Nothing || warm.state == State::Stopped, "{pool:?}");
                if !seen.contains(&warm.state) {
                    seen.push(warm.state);
                }
            }
        }
        assert_eq!(seen.len(), 3);
    }

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
