//! Checks that simulating a recording with the configuration that was in force at the time reproduces the
//! recorded results.
//!
//! By default, the test runs two seeds of six hours. For more seeds and whole days: `RECORD_SEEDS=10
//! RECORD_HOURS=24 cargo test -p lab --test record -- --nocapture`.

use std::process::Command;

use serde_json::Value;

/// A number from an environment variable, or the default.
fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Whether two figures differ by at most five percent, or by at most one.
fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= (0.05 * one).max(1.0)
}

#[test]
fn the_configuration_that_was_in_force_gives_what_happened() {
    let hours = asked("RECORD_HOURS", 6);
    for seed in 1..=asked("RECORD_SEEDS", 2) {
        let folder = tempfile::TempDir::new().unwrap();
        let config = lab::record::live(seed, hours, folder.path()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.args(["daemon", "simulate", "--output", "json", "--records"]).arg(folder.path());
        let said = command.arg("--config").arg(config).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let said: Value = serde_json::from_slice(&said.stdout).unwrap();
        let (happened, simulated) = (&said["configurations"][0], &said["configurations"][1]);
        for figure in ["made", "removed", "nodeHours"] {
            let of = |one: &Value| one[figure].as_f64().unwrap();
            println!("seed {seed}: {figure}: recorded {}, simulated {}", of(happened), of(simulated));
            assert!(near(of(happened), of(simulated)), "seed {seed}: {figure} differs");
        }
        assert!(happened["made"].as_u64().unwrap() > 5, "nothing happened: {happened}");
        let waited = |one: &Value| {
            (one["waited"]["pods"].as_f64().unwrap(), one["waited"]["p95Seconds"].as_f64().unwrap())
        };
        let (then, now) = (waited(happened), waited(simulated));
        println!(
            "seed {seed}: recorded {} waiting pods with a p95 of {} s, simulated {} pods and {} s",
            then.0, then.1, now.0, now.1
        );
        assert!(
            (then.0 - now.0).abs() <= (0.15 * then.0).max(3.0),
            "seed {seed}: the number of pods that waited differs"
        );
        assert!((then.1 - now.1).abs() <= 10.0, "seed {seed}: the waiting time of pods differs");
    }
}
