//! Runs the conformance cases in `tests/fixtures` against the real binary, with the cases' own runners.
//!
//! Both runners are Python programs without dependencies. If `python3` is not installed, the tests report
//! that they were skipped.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may panic on unexpected results, and prints what it skips"
)]

use std::path::Path;
use std::process::Command;

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

#[test]
fn every_pair_in_worlds_with_newer_features_gets_the_verdict_of_1_37() {
    run("scheduler/compare_scheduler.py", &["scheduler-1.37"]);
}

#[test]
fn every_pair_in_worlds_of_one_rule_gets_the_verdict_of_1_37() {
    run("scheduler/compare_scheduler.py", &["scheduler-1.37-hand"]);
}
