//! A demo that is ended from outside leaves no process or file behind.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

const LIMIT: Duration = Duration::from_mins(1);

/// Waits until the condition is met.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "still not true after {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The number of running processes whose arguments contain this folder.
fn processes(folder: &Path) -> usize {
    let folder = folder.to_str().unwrap();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let commands = all.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    commands.filter(|command| String::from_utf8_lossy(command).contains(folder)).count()
}

fn demo(folder: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.arg("demo").env("TMPDIR", folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn a_signal_ends_it_and_nothing_is_left() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = demo(folder.path());
        until("the daemon runs", || processes(folder.path()) > 0).await;
        let sent = Command::new("kill").args([signal, &demo.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let ended = demo.wait().unwrap();
        assert!(ended.success(), "{signal}: {ended}");
        assert_eq!(processes(folder.path()), 0, "{signal}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{signal}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = demo(folder.path());
    drop(demo.stdout.take());
    let ended = demo.wait().unwrap();
    assert_eq!(ended.code(), Some(1));
    assert_eq!(processes(folder.path()), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
