//! Carries out plans on random clusters until nothing is left to do. The real kube-scheduler decides where
//! pods go.
//!
//! `LOOP_WORLDS=5000` plays that many worlds; `LOOP_SEED=17` plays one, reports what happened, and leaves its
//! objects in a file.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::panic,
    reason = "a test may panic on unexpected results, and prints what it skips"
)]

mod cluster;
mod devices;
mod differences;
mod judge;
mod oddities;
mod rounds;
mod worlds;

use std::sync::Mutex;

use crate::judge::Judge;
use crate::rounds::Tally;

/// The number of fixed worlds that each test run plays.
const WORLDS: u64 = 300;
/// The number of additional worlds, which are different in each test run.
const FRESH: u64 = 50;
/// The maximum number of machines created in total, as a percentage of the machines in the first plans.
const PERCENT: usize = 105;

/// The seeds to play: those that were requested, or else the seeds of the fixed and the additional worlds.
fn seeds() -> Vec<u64> {
    let asked = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match (asked("LOOP_SEED"), asked("LOOP_WORLDS")) {
        (Some(seed), None) => vec![seed],
        (first, Some(worlds)) => (first.unwrap_or(1)..).take(usize::try_from(worlds).unwrap()).collect(),
        (None, None) => {
            let fresh = fastrand::u64(WORLDS + 1..u64::from(u32::MAX));
            (1..=WORLDS).chain(fresh..fresh + FRESH).collect()
        }
    }
}

/// At most one in this many removed nodes may leave a pod without a place, because the planner does not try
/// every order in which the scheduler may place pods.
const UNLUCKY: usize = 500;

/// Plays the worlds, two at a time; `None` if there is no judge.
fn play<T: Send>(one: impl Fn(&mut Judge, u64) -> T + Sync) -> Option<Vec<T>> {
    let judges = [Judge::start()?, Judge::start()?];
    let (seeds, all) = (Mutex::new(seeds().into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for mut judge in judges {
            let (seeds, all, one) = (&seeds, &all, &one);
            scope.spawn(move || {
                loop {
                    let next = seeds.lock().unwrap().next();
                    let Some(seed) = next else { return };
                    let result = one(&mut judge, seed);
                    all.lock().unwrap().push(result);
                }
            });
        }
    });
    Some(all.into_inner().unwrap())
}

#[test]
fn what_is_planned_runs_wherever_the_scheduler_puts_it() {
    let Some(tallies) = play(rounds::play) else { return };
    let mut sum = Tally::default();
    for tally in tallies {
        sum.add(tally);
    }
    eprintln!("{sum}");
    assert!(sum.faults.is_empty(), "{}", sum.faults.join("\n"));
    let unlucky = sum.unlucky.len() * UNLUCKY;
    assert!(unlucky <= sum.removed.max(2 * UNLUCKY), "{sum}");
    // With only a few worlds, the percentage means nothing.
    if sum.worlds >= 300 {
        assert!(sum.planned > 1000, "hardly any machines were made: {sum}");
        assert!(sum.made * 100 <= sum.planned * PERCENT, "{sum}");
    }
}

#[test]
fn every_filter_says_what_the_schedulers_says() {
    compare(differences::find);
}

#[test]
fn devices_are_allocated_where_the_scheduler_allocates_them() {
    compare(differences::find_with_claims);
}

fn compare(find: impl Fn(&mut Judge, u64) -> (usize, Vec<String>) + Sync) {
    let Some(found) = play(find) else { return };
    let pairs: usize = found.iter().map(|one| one.0).sum();
    let wrong: Vec<String> = found.into_iter().flat_map(|one| one.1).collect();
    eprintln!("{pairs} pairs, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
