//! Randomly drawn settings for warm machines.

use fastrand::Rng;

use crate::simulate::drawn::pool_shape::{PoolShape, State, Warm};
use crate::simulate::drawn::rules::Bootstrap;

/// Draws the pools' warm machines. Machines that join by themselves can only be kept stopped, because they
/// join at their first boot.
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

#[cfg(test)]
mod tests {

    use super::*;
    use crate::simulate::drawn::settings;

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
}
