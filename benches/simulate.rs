//! Measures how long `simulate` takes for one day of a cluster, and how large the day's recording is. The
//! cluster has 50 nodes and 1500 pods, and one pod is replaced every ten seconds. A smaller `ROUNDS` makes
//! the day shorter.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints, measures real time, and may panic on unexpected results"
)]

#[path = "../tests/recordings/cluster.rs"]
mod cluster;

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use cluster::Cluster;
use pve_autoscaler::recording::{Recording, Writer};
use pve_autoscaler::replay::{Demand, Simulation, Watcher, WhatIf};
use pve_autoscaler::settings::{self, Needs};

/// The settings of the pool to which the machines of [`Cluster`] belong.
const POOL: &str = r#"
[[pool]]
name = "workers"
max = 60
cores = 8
memory = "32GiB"
vmids = "9100-9199"
"#;
/// The number of rounds in a day.
const DAY: u64 = 8640;
/// The maximum size of a day's recording, in bytes.
const MOST_BYTES: u64 = 20_000_000;

fn main() {
    let rounds = std::env::var("ROUNDS").map_or(DAY, |text| text.parse().unwrap());
    let folder = tempfile::TempDir::new().unwrap();
    let (mut cluster, mut writer) = (Cluster::new(50, 1500), Writer::default());
    for _ in 0..rounds {
        writer.keep(folder.path(), (7, 1 << 30), &cluster.next_round()).unwrap();
    }
    let files = fs::read_dir(folder.path()).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    println!("{rounds} rounds: {bytes} bytes");
    assert!(bytes < MOST_BYTES);

    let recording = Recording::open(folder.path()).unwrap();
    let (begun, mut all, mut watcher) = (Instant::now(), recording.rounds(), Watcher::default());
    while all.next_round() {
        watcher.round(&all.fold().snapshot());
    }
    let facts = Arc::new(watcher.finish());
    println!("first reading: {:.1} s", begun.elapsed().as_secs_f64());
    assert_eq!(facts.rounds, rounds);

    let config = settings::parse("bench.toml", POOL, Needs::Plan).unwrap();
    let mut simulation = Simulation::new(config, facts, WhatIf::default());
    let (begun, mut all, mut demand) = (Instant::now(), recording.rounds(), Demand::default());
    while all.next_round() {
        let round = all.fold().snapshot();
        let events = demand.round(&round);
        simulation.round(&round, &events);
    }
    let figures = simulation.finish();
    println!("simulation: {:.1} s, {} decisions", begun.elapsed().as_secs_f64(), figures.decisions);
    assert!(figures.decisions >= rounds, "each round has changes");
}
