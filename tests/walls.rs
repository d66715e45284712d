//! The walls between crates: pure code stays pure, and each client library is named by only one crate. Cargo
//! and clippy enforce most of this (`crates/pure/clippy.toml`); these tests check the rest.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results, and prints what it skips")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
fn who_gets_which_cpus_is_decided_without_looking_at_the_world() {
    let found = offences(
        &["crates/pinning/src/choice.rs", "crates/pinning/src/settings.rs", "crates/pinning/src/cpus.rs"],
        IMPURE,
    );
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// All crates that a crate is built from, including indirect dependencies.
fn tree(package: &str) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "-p",
        ])
        .arg(package)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    tree.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

/// The names in a crate's own `[dependencies]`.
fn dependencies(manifest: &Path) -> Vec<String> {
    let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
    manifest.get("dependencies").into_iter().flat_map(|own| own.as_table().unwrap().keys().cloned()).collect()
}

fn manifests() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml")).unwrap().parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let members = members.iter().map(|member| member.as_str().unwrap());
    members
        .filter(|member| !member.starts_with("lab"))
        .map(|member| root.join(member).join("Cargo.toml"))
        .collect()
}

#[test]
fn nothing_below_the_pure_crates_acts_or_waits() {
    for package in ["model", "scheduling", "settings", "planning", "replay"] {
        let tree = tree(&format!("pve-autoscaler-{package}"));
        assert!(tree.iter().any(|name| name == "serde"), "{package}: {tree:?}");
        for impure in
            ["tokio", "kube", "k8s-openapi", "reqwest", "hyper", "futures", "russh", "fastrand", "getrandom"]
        {
            assert!(!tree.iter().any(|name| name == impure), "{package} must not depend on {impure}");
        }
    }
}

#[test]
fn each_client_library_is_named_by_one_crate() {
    for (library, only) in [
        ("kube", "crates/kubernetes"),
        ("k8s-openapi", "crates/kubernetes"),
        ("reqwest", "crates/proxmox"),
        ("russh", "crates/bootstrap"),
    ] {
        let naming: Vec<PathBuf> = manifests()
            .into_iter()
            .filter(|path| dependencies(path).iter().any(|name| name == library))
            .collect();
        let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join(only).join("Cargo.toml");
        assert_eq!(naming, [expected], "{library}");
    }
}

#[test]
fn each_crate_of_the_daemon_is_known_to_its_log() {
    let mut names: Vec<String> = manifests()
        .iter()
        .map(|path| {
            let manifest: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
            let name = manifest["package"]["name"].as_str().unwrap();
            manifest
                .get("lib")
                .map_or_else(|| name.replace('-', "_"), |lib| lib["name"].as_str().unwrap().to_owned())
        })
        .collect();
    names.sort();
    assert_eq!(names, pve_autoscaler::CRATES);
}

/// Without a box, the body of an async function is compiled again in each crate that awaits it. Functions
/// with `impl` or type parameters are compiled in the calling crate in any case. Two crates are exempt: no
/// other crate awaits the inner functions of `crates/daemon`, and those of `crates/runtime` are small.
#[test]
fn async_functions_that_other_crates_call_are_boxed() {
    let mut found = Vec::new();
    for path in sources("crates") {
        let lines = code(&path);
        let inner =
            ["daemon/src", "runtime/src", "/tests/"].iter().any(|part| path.to_string_lossy().contains(part));
        for (at, (number, line)) in lines.iter().enumerate().filter(|_| !inner) {
            let signature: String = lines[at..].iter().map(|(_, line)| line.as_str()).take(12).collect();
            let signature = signature.split(['{', ';']).next().unwrap_or_default();
            let generic = signature.contains("impl ") || signature.split('(').next().unwrap().contains('<');
            let boxed = at > 0 && lines[at - 1].1.trim() == "#[boxed]";
            if line.trim_start().starts_with("pub async fn") && !generic && !boxed {
                found.push(format!("{}:{number}: add `#[boxed]` (runtime::boxed)", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_labs_world_knows_nothing_of_the_daemon() {
    let found = offences(&["lab/world/src"], &["pve_autoscaler", "k8s_openapi"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
    // A variable may be called `kube`, so the code is not searched for this name. Without a dependency in the
    // manifest, nothing from it can be used.
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
