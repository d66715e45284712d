//! The conformance cases under `tests/fixtures`, run by their own runners on the real binary.
//!
//! Both runners are Python programs without dependencies; where there is no `python3` the tests say that they were skipped.
//! Snapshots of families that are not simulated yet are left out, and named here.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may stop at what it did not expect, and says what it skips"
)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// What the names of snapshots in `scheduler-1.37` begin with that are left out.
const FAMILIES_LEFT_OUT: [&str; 1] = ["dra-"];
/// The same of `scheduler-1.37-hand`.
const HAND_MADE_LEFT_OUT: [&str; 2] = ["10-", "11-"];

fn run(runner: &str, arguments: &[&str]) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: {runner} needs python3");
        return;
    }
    let output = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(fixtures.join(runner))
        .arg(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args(arguments)
        .current_dir(&fixtures)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let last = said.lines().last().unwrap_or_default();
    assert!(last.ends_with(" 0 failed") && !last.starts_with("0 passed"), "{last}");
}

#[test]
fn every_decision_is_the_expected_one_and_the_same_twice() {
    run("run_fixtures.py", &[".", "--twice", "--timeout", "300"]);
}

#[test]
fn every_pair_of_pod_and_node_gets_the_real_schedulers_verdict() {
    run("scheduler/compare_scheduler.py", &["scheduler"]);
}

/// Compares what the snapshots in this folder are answered, but for those whose names begin so.
fn compare(folder: &str, left_out: &[&str]) {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
    let chosen = TempDir::new().unwrap();
    for entry in std::fs::read_dir(&all).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !left_out.iter().any(|prefix| name.starts_with(prefix)) {
            symlink(all.join(&name), chosen.path().join(&name)).unwrap();
        }
    }
    run("scheduler/compare_scheduler.py", &[chosen.path().to_str().unwrap()]);
}

#[test]
fn every_pair_in_worlds_with_newer_features_gets_the_verdict_of_1_37() {
    compare("scheduler-1.37", &FAMILIES_LEFT_OUT);
}

#[test]
fn every_pair_in_worlds_of_one_rule_gets_the_verdict_of_1_37() {
    compare("scheduler-1.37-hand", &HAND_MADE_LEFT_OUT);
}
