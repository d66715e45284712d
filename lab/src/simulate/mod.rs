//! Simulates hours of cluster life from one seed within seconds: the real daemon with the embedded clusters
//! in virtual time, a workload that grows and shrinks, faults at any call and at any time, an administrator,
//! and a checker of the daemon's promises.
//!
//! ```text
//!  workload ─┐                          ┌─> world::kubernetes ─┐
//!  faults ───┼─> the clusters <── wire ─┤    ^ storm: a fault  ├─> checker: promises, all the time and at the end
//!  admin ────┘        daemon (troupe) ──┘─> world::proxmox ────┘         └─> log: the same seed, the same lines
//! ```
//!
//! `drawn` contains the settings that are drawn from the seed, `checker` contains what the checker knows, and
//! `promises` contains one file for each promise. All randomness comes from the seed. The computer's clock
//! and its random number generator are not used.

mod admin;
mod checker;
mod databases;
mod drawn;
mod faults;
mod hands;
mod hindrances;
mod log;
mod play;
mod promises;
mod storm;
mod troupe;
mod workload;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use tokio::time::Instant;

pub use play::{Outcome, play};

/// What to simulate.
#[derive(Clone, Debug, Args)]
pub struct Wanted {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Hours of cluster life with faults for each seed; after that, the cluster must settle without faults
    #[arg(long, default_value_t = 3)]
    hours: u64,
    /// Multiply the rate of faults, administrator actions and workload changes by this factor
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10))]
    often: u64,
    /// Add interference: templates with options that no machine should have, missing rights and tags,
    /// storages that are slow or report wrong numbers, a silent pvestatd, and administrators who change a VM
    /// at the same time as the daemon
    #[arg(long)]
    hindered: bool,
    /// Number of seeds, including the first
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Do not start another seed after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Number of seeds to run in parallel
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Print the log of every seed; by default, a log is printed only if a single seed is run and fails
    #[arg(long)]
    log: bool,
    /// Include the daemon's debug messages
    #[arg(long)]
    verbose: bool,
    /// Continue with the remaining seeds after one has failed
    #[arg(long)]
    keep_going: bool,
}

/// Simulates all seeds.
///
/// # Errors
/// Returns an error that lists the seeds for which a promise was broken.
pub fn simulate(wanted: &Wanted) -> anyhow::Result<()> {
    ensure!(wanted.seeds > 0 && wanted.jobs > 0, "`--seeds` and `--jobs` must be at least 1");
    let next = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let begun = Instant::now();
    let late = || wanted.seconds.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds));
    std::thread::scope(|scope| {
        for _ in 0..wanted.jobs.min(usize::try_from(wanted.seeds).unwrap_or(usize::MAX)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let over = number >= wanted.seeds
                        || late()
                        || (!wanted.keep_going && failed.lock().is_ok_and(|failed| !failed.is_empty()));
                    if over {
                        return;
                    }
                    let seed = wanted.seed + number;
                    let outcome = play(seed, wanted.hours, wanted.often, wanted.hindered, wanted.verbose);
                    if !outcome.is_fine()
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.push(seed);
                    }
                    show(seed, wanted, &outcome);
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_unstable();
    if !failed.is_empty() {
        bail!("{} of {} seeds failed: {failed:?}", failed.len(), wanted.seeds);
    }
    Ok(())
}

fn show(seed: u64, wanted: &Wanted, outcome: &Outcome) {
    let mut text = String::new();
    if wanted.log || (!outcome.is_fine() && wanted.seeds == 1) {
        text.push_str(&outcome.log);
    }
    anstream::println!("{text}seed {seed}, {} h: {outcome}", wanted.hours);
}
