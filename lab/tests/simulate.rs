//! Simulates hours of cluster life, with faults generated from seeds. No promise may be broken, and the same
//! seed must give the same log.

#![expect(
    clippy::disallowed_methods,
    reason = "a test may panic on unexpected results, and fresh seeds come from the clock"
)]

use std::time::{Duration, Instant, SystemTime};

use lab::simulate::play;

/// Seeds that are simulated in every run.
const FIXED: std::ops::RangeInclusive<u64> = 1..=12;
/// Hours of cluster life for each seed.
const HOURS: u64 = 2;
/// The environment variable with the time in seconds during which fresh seeds are simulated too. Fresh seeds
/// are taken from the clock.
const FRESH: &str = "SIMULATE_FRESH_SECONDS";

fn holds(seed: u64, hindered: bool) {
    let outcome = play(seed, HOURS, 1, hindered, false);
    let option = if hindered { " --hindered" } else { "" };
    assert!(
        outcome.is_fine(),
        "{outcome}\nto see its log: `cargo run --release -p lab -- simulate --seed {seed} --hours {HOURS}{option}`"
    );
}

#[test]
fn the_promises_hold_for_the_fixed_seeds() {
    FIXED.for_each(|seed| holds(seed, false));
}

#[test]
fn they_hold_where_others_networks_and_storages_hinder() {
    FIXED.for_each(|seed| holds(seed, true));
}

#[test]
fn the_promises_hold_for_fresh_seeds() {
    let Some(seconds) = std::env::var(FRESH).ok().and_then(|text| text.parse().ok()) else {
        println!("skipped: {FRESH} is not set to the number of seconds during which fresh seeds are started");
        return;
    };
    let begun = Instant::now();
    let first = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut seed = first;
    while begun.elapsed() < Duration::from_secs(seconds) {
        println!("fresh seed {seed}");
        holds(seed, false);
        seed += 1;
    }
}

#[test]
fn the_same_seed_tells_the_same_story_twice() {
    for seed in [2, 11] {
        let (one, other) = (play(seed, 1, 1, true, true), play(seed, 1, 1, true, true));
        assert!(one.log.lines().count() > 50, "{}", one.log);
        let differ = one.log.lines().zip(other.log.lines()).find(|(one, other)| one != other);
        assert_eq!(differ, None);
        assert_eq!(one.log, other.log);
    }
}
