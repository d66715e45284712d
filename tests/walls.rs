//! The walls of the house: what is pure stays pure, and each client library is named in one place only.

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect, and says what it skips")]

use std::fs;
use std::path::{Path, PathBuf};

/// Names whose appearance in code means I/O, a clock, randomness or a client library.
const IMPURE: &[&str] = &[
    "tokio",
    "kube",
    "k8s_openapi",
    "reqwest",
    "hyper",
    "futures",
    "fastrand",
    "std::fs",
    "std::net::Tcp",
    "std::time::Instant",
    "SystemTime",
    "Timestamp::now",
    "crate::clock",
    "std::env",
    "std::thread",
    "HashMap",
    "HashSet",
];

fn sources(below: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(below)];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The code of a file: comments and everything below `#[cfg(test)]` are left out.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default().to_owned()))
        .collect()
}

fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
        !part(before) && !part(after)
    })
}

fn offences(folders: &[&str], words: &[&str]) -> Vec<String> {
    let mut offences = Vec::new();
    for path in folders.iter().flat_map(|folder| sources(folder)) {
        for (number, line) in code(&path) {
            for word in words.iter().filter(|word| names(&line, word)) {
                offences.push(format!("{}:{number}: names `{word}`", path.display()));
            }
        }
    }
    offences
}

#[test]
fn the_planner_and_what_it_stands_on_are_pure() {
    // Who gets which CPUs is decided the same way.
    let choice = ["src/pinning/choice.rs", "src/pinning/settings.rs", "src/pinning/cpus.rs"];
    let pure = [&["src/model", "src/scheduling", "src/planning", "src/replay"][..], &choice].concat();
    let found = offences(&pure, IMPURE);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn only_the_kubernetes_side_names_kube() {
    let others: Vec<_> = [
        "src/bootstrap",
        "src/cli",
        "src/config",
        "src/daemon",
        "src/machines",
        "src/observability",
        "src/proxmox",
        "src/redfish",
    ]
    .into();
    let found = offences(&others, &["kube", "k8s_openapi"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn only_the_proxmox_side_names_reqwest() {
    let others: Vec<_> = [
        "src/bootstrap",
        "src/cli",
        "src/config",
        "src/daemon",
        "src/kubernetes",
        "src/machines",
        "src/observability",
        "src/redfish",
    ]
    .into();
    let found = offences(&others, &["reqwest"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn only_the_ssh_side_of_bootstrapping_names_russh() {
    let ours = ["src/bootstrap/ssh.rs", "src/bootstrap/ssh_keys.rs"];
    let mut found = offences(&["src"], &["russh"]);
    found.retain(|offence| !ours.iter().any(|file| offence.contains(file)));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_labs_world_knows_nothing_of_the_daemon() {
    let found = offences(&["lab/world/src"], &["pve_autoscaler", "k8s_openapi"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
    // Without the dependency nothing of it can be named; a variable may well be called `kube`.
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/world/Cargo.toml")).unwrap();
    for dependency in ["pve-autoscaler", "stage", "kube", "k8s-openapi"] {
        let is_it = |line: &str| line.split([' ', '.', '=']).next() == Some(dependency);
        assert!(!manifest.lines().any(is_it), "lab/world must not depend on {dependency}");
    }
}

#[test]
fn the_search_finds_whole_words_only() {
    let cases = [
        ("use tokio::time;", "tokio", true),
        ("let tokio_like = 1;", "tokio", false),
        ("use kube::Client;", "kube", true),
        ("kubernetes::Cluster", "kube", false),
        ("namespace == \"kube-system\"", "kube", false),
    ];
    for (line, word, expected) in cases {
        assert_eq!(names(line, word), expected, "{line}");
    }
}
