//! Compares the printed help of each command with a stored file, so that any change in what operators see
//! shows up as a difference. `UPDATE_HELP=1 cargo test --test help_texts` updates the files.

use std::path::Path;
use std::process::Command;

const COMMANDS: [&str; 20] = [
    "", "setup", "migrate", "run", "status", "pause", "resume", "retry", "history", "retire", "pin", "unpin",
    "adopt", "orphans", "check", "template", "plan", "snapshot", "simulate", "explain",
];

#[test]
fn every_commands_help_is_as_it_is_written_down() {
    for command in COMMANDS {
        let mut program = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        program
            .env_remove("RUST_LOG")
            .args(Some(command).filter(|command| !command.is_empty()))
            .arg("--help");
        let output = program.output().unwrap();
        assert!(output.status.success(), "{command}");
        let help = String::from_utf8(output.stdout).unwrap();
        let name = if command.is_empty() { "pve-autoscaler" } else { command };
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help").join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_HELP").is_some() {
            std::fs::write(&file, &help).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(help, written, "{} differs", file.display());
    }
}

#[test]
fn every_command_is_listed_above() {
    let output = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    for line in commands.lines() {
        let name = line.split_whitespace().next().unwrap();
        assert!(name == "help" || COMMANDS.contains(&name), "{name}");
    }
}
