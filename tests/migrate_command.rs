//! Tests of `migrate`. Next to the settings of each autoscaler, a file contains the configuration that
//! `migrate` is expected to write from these settings. `UPDATE=1 cargo test --test migrate_command` updates
//! these files.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The other autoscalers, each with the settings that only the operator knows.
const SOURCES: [(&str, &[&str]); 4] = [
    ("kproximate", &["pool kp-node: vmids"]),
    (
        "proxmox-autoscaler",
        &["proxmox: token_id", "pool autoscaler-node: cores", "pool autoscaler-node: vmids"],
    ),
    ("kubenodesmith", &["proxmox: token_id", "pool proxmox-large: cores", "pool proxmox-large: max"]),
    ("karpenter", &["pool default: vmids", "pool gpu: max", "pool gpu: addresses"]),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migration")
}

fn migrate(from: &str, more: &[&str]) -> Output {
    let file = folder().join(format!("{from}.yaml"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    command.args(["migrate", from]).arg(file).args(more).env_remove("RUST_LOG");
    command.output().unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn each_autoscalers_settings_become_the_configuration_that_is_written_down() {
    for (from, to_fill) in SOURCES {
        let output = migrate(from, &[]);
        let (text, told) = (said(&output.stdout), said(&output.stderr));
        assert!(output.status.success(), "{from}: {told}");
        let path = folder().join(format!("{from}.toml"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&path).unwrap_or_default(), "{from}");
        for key in to_fill {
            assert!(told.contains(&format!("to fill in: {key}\n")), "{from}: {key} is not in\n{told}");
        }
        assert!(told.contains("warning: unknown setting, not converted: "), "{from}: {told}");
        assert!(!format!("{text}{told}").contains("s3cr3t"), "{from} shows a secret");
    }
}

#[test]
fn what_is_written_is_understood_by_check_and_plan() {
    let snapshot = tempfile::NamedTempFile::new().unwrap();
    fs::write(snapshot.path(), "apiVersion: v1\nkind: Node\nmetadata:\n  name: cp\n").unwrap();
    for (from, _) in SOURCES {
        let file = folder().join(format!("{from}.toml"));
        let run = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
            command.args(arguments).arg("--config").arg(&file).output().unwrap()
        };
        let check = run(&["check", "--offline", "--for", "plan"]);
        assert!(check.status.success(), "{from}: {}{}", said(&check.stdout), said(&check.stderr));
        let plan =
            run(&["plan", "--snapshot", snapshot.path().to_str().unwrap(), "--now", "2026-01-01T00:00:00Z"]);
        assert!(plan.status.success(), "{from}: {}", said(&plan.stderr));
    }
}

#[test]
fn with_the_blanks_filled_in_the_daemon_would_take_it() {
    let text = fs::read_to_string(folder().join("kproximate.toml")).unwrap();
    let filled = text.replace("# vmids = \"9100-9149\"", "vmids = \"9100-9149\"");
    assert_ne!(text, filled);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), filled).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    let check = command.args(["check", "--offline", "--config"]).arg(file.path()).output().unwrap();
    assert!(check.status.success(), "{}{}", said(&check.stdout), said(&check.stderr));
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let to = file.to_str().unwrap();
    let first = migrate("kproximate", &["--output", to]);
    assert!(first.status.success() && first.stdout.is_empty(), "{}", said(&first.stderr));
    let written = fs::read_to_string(&file).unwrap();
    let second = migrate("karpenter", &["--output", to]);
    assert_eq!(second.status.code(), Some(1));
    assert!(said(&second.stderr).contains("already exists and is not overwritten"));
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
}
