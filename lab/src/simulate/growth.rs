//! Machines that grow where they are: which pools' machines, and how far, drawn from the seed; what a growth
//! has to keep to, and that nothing of it is left once all is calm.

use fastrand::Rng;
use serde_json::Value;
use stage::Call;
use world::proxmox::spec::{ClusterSpec, GIB};

use super::checker::Checker;
use super::places::{GIVEN_UP, vmid};
use super::rules::Bootstrap;
use super::settings::PoolShape;

/// How far a pool's machines may grow.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// `max_cores`.
    pub cores: u32,
    /// `max_memory` in GiB.
    pub gib: u32,
}

impl Growth {
    /// As the settings have it.
    pub fn written(self) -> String {
        format!("[pool.grow]\nmax_cores = {}\nmax_memory = \"{}GiB\"\n", self.cores, self.gib)
    }
}

/// Draws which pools' machines grow. Guests that join by themselves cannot be reached.
pub fn draw(random: &mut Rng, bootstrap: Bootstrap, pools: &mut [PoolShape]) {
    for pool in pools {
        let (grows, more) = (random.u8(..5) < 2, random.u32(0..=4));
        let gib = pool.gib + random.u32(0..=pool.gib);
        let cores = pool.cores + more.max(u32::from(gib == pool.gib));
        pool.grows = (grows && bootstrap != Bootstrap::Nothing).then_some(Growth { cores, gib });
    }
}

/// Gives the token what growth needs.
pub fn allow(cluster: &mut ClusterSpec) {
    cluster.access.roles.entry("KasWorker".into()).or_default().push("VM.Config.HWType".into());
}

impl Checker {
    /// A record that says that its machine grows: no further than the settings allow, and its host has room
    /// for it.
    pub(super) fn must_grow_rightly(&self, who: &str, call: &Call<'_>) {
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
                "{name} is to grow from {least:?} to {:?}, up to {most:?}",
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

    /// What is left of a growth once all is calm.
    pub(super) fn has_grown_badly(&self, vmid: u32, record: &Value) -> Option<String> {
        self.world.pool_of(vmid)?.grows?;
        if !record["growing"].is_null() {
            return Some(format!("VM {vmid} is still to grow"));
        }
        let waiting = self.world.pve.waits_for_start(vmid);
        if let Some(key) = waiting.iter().find(|key| ["vcpus", "memory"].contains(&key.as_str())) {
            return Some(format!("VM {vmid} has another `{key}` at its next start"));
        }
        let guest = self.world.pve.guests().into_iter().find(|guest| guest.vmid == vmid)?;
        let (has, said) = ((guest.cores, guest.memory), size(record));
        (has != said).then(|| format!("VM {vmid} has {has:?}, and its record says {said:?}"))
    }
}

/// vCPUs and bytes of memory that a record's machine has, or is to have.
fn size(record: &Value) -> (u32, u64) {
    let cores = record["cores"].as_u64().and_then(|cores| cores.try_into().ok());
    (cores.unwrap_or(0), record["memory"].as_u64().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::settings;

    #[test]
    fn what_grows_is_larger_afterwards_and_has_a_guest_that_can_be_reached() {
        let mut seen = [false; 3];
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let mut pools = settings::pools(&mut random);
            let bootstrap = if seed % 2 == 0 { Bootstrap::Nothing } else { Bootstrap::Kubeadm };
            draw(&mut random, bootstrap, &mut pools);
            for (pool, grows) in pools.iter().filter_map(|pool| Some((pool, pool.grows?))) {
                assert!(bootstrap != Bootstrap::Nothing, "{pool:?}");
                let more = (grows.cores > pool.cores, grows.gib > pool.gib);
                assert!(more.0 || more.1, "{pool:?}");
                let drawn = [more.0 && more.1, !more.0, !more.1];
                seen.iter_mut().zip(drawn).for_each(|(seen, drawn)| *seen |= drawn);
            }
        }
        assert_eq!(seen, [true; 3]);
    }
}
