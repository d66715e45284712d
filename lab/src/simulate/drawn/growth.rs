//! Randomly drawn settings for machines that may grow.

use fastrand::Rng;
use world::proxmox::spec::ClusterSpec;

use crate::simulate::drawn::pool_shape::{Growth, PoolShape};
use crate::simulate::drawn::rules::Bootstrap;

/// Draws the pools whose machines grow. If guests join by themselves, no machines grow, because the daemon
/// cannot reach such guests.
pub fn draw(random: &mut Rng, bootstrap: Bootstrap, pools: &mut [PoolShape]) {
    for pool in pools {
        let (grows, more) = (random.u8(..5) < 2, random.u32(0..=4));
        let gib = pool.gib + random.u32(0..=pool.gib);
        let cores = pool.cores + more.max(u32::from(gib == pool.gib));
        pool.grows = (grows && bootstrap != Bootstrap::Nothing).then_some(Growth { cores, gib });
    }
}

/// Grants the token the rights that growth requires.
pub fn allow(cluster: &mut ClusterSpec) {
    cluster.access.roles.entry("KasWorker".into()).or_default().push("VM.Config.HWType".into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::drawn::settings;

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
