//! Randomly drawn host sizes, and the pools' settings for machine placement.

use fastrand::Rng;
use world::proxmox::spec::{GIB, HostSpec};

use crate::simulate::drawn::pool_shape::PoolShape;
use crate::simulate::drawn::rules::Rules;

/// The hosts.
pub const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];

/// Possible thread counts of small hosts.
const CORES: [u32; 4] = [8, 12, 16, 32];

/// Possible memory sizes of small hosts, in GiB.
const MEMORY: [u64; 4] = [24, 32, 48, 128];

/// Draws the pools' settings for machine placement.
pub fn draw(random: &mut Rng, rules: &mut Rules, pools: &mut [PoolShape]) {
    rules.count_stopped = random.u8(..4) == 0;
    for pool in pools {
        let places = &mut pool.places;
        if random.u8(..3) == 0 {
            // Chooses two of the three hosts, so that the pool still has a host if one of the two is closed
            // to new machines.
            let without = random.usize(..HOSTS.len());
            places.hosts =
                HOSTS.into_iter().enumerate().filter(|(at, _)| *at != without).map(|it| it.1).collect();
        }
        places.most = (random.u8(..3) == 0).then(|| random.usize(1..=2));
        if random.bool() {
            places.cpu_halves = random.u32(2..=4);
            places.memory_halves = random.u64(1..=4);
            places.reserve = random.u64(1..=12);
        }
    }
}

/// Makes the hosts small for half of the seeds.
pub fn make_small(random: &mut Rng, hosts: &mut [HostSpec]) {
    if random.bool() {
        for host in hosts {
            host.cores = CORES.get(random.usize(..CORES.len())).copied().unwrap_or(host.cores);
            host.memory = MEMORY.get(random.usize(..MEMORY.len())).map_or(host.memory, |gib| gib * GIB);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::drawn::settings;

    #[test]
    fn places_are_drawn_and_written_as_the_settings_have_them() {
        let mut seen = [false; 5];
        for seed in 0..100 {
            let mut random = Rng::with_seed(seed);
            let mut pools = settings::pools(&mut random);
            let mut rules = settings::rules(&mut random, &mut pools);
            draw(&mut random, &mut rules, &mut pools);
            for places in pools.iter().map(|pool| &pool.places) {
                let (text, odd) = (places.written(), places.memory_halves % 2 == 1);
                assert_eq!(text.contains("max_per_host"), places.most.is_some(), "{text}");
                assert!(!odd || text.contains(".5\n"), "{text}");
                assert!(HOSTS.iter().filter(|host| places.allows(host)).count() >= 2, "{places:?}");
                let drawn = [
                    places.most.is_some(),
                    !places.hosts.is_empty(),
                    odd,
                    places.reserve > 2,
                    rules.count_stopped,
                ];
                seen.iter_mut().zip(drawn).for_each(|(seen, drawn)| *seen |= drawn);
            }
        }
        assert_eq!(seen, [true; 5]);
    }
}
