//! docs/compare.md: what each autoscaler for Proxmox VE does, from `compare.toml` beside this file. A row without its test fails.

use std::fmt::Write as _;
use std::fs;

use serde::Deserialize;

use super::folder;

const HEAD: &str = "\
# Compared with the other autoscalers for Proxmox VE

As their sources were in the summer of 2026: kproximate 0.3.1, proxmox-autoscaler (Python, of January 2023), KubeNodeSmith (of
January 2026), karpenter-provider-proxmox 0.12. They were read, not run. ✔ yes · ◐ partly · ✘ no. Each ✔ of ours has the test
that proves it. How to move over: [migration.md](migration.md).
";

#[derive(Deserialize)]
struct Comparison {
    group: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    title: String,
    rows: Vec<(String, String, String, String, String)>,
}

fn sign(letter: char) -> &'static str {
    match letter {
        '+' => "✔",
        '~' => "◐",
        '-' => "✘",
        '.' => "–",
        other => panic!("{other:?} is none of the signs"),
    }
}

/// The page; a row that names a test that is not there, or a ✔ without one, is a failure.
pub fn page(source: &str) -> String {
    let comparison: Comparison = toml::from_str(source).unwrap();
    let mut page = HEAD.to_owned();
    for group in comparison.group {
        let title = group.title;
        writeln!(page, "\n## {title}\n").unwrap();
        page.push_str(
            "| | kproximate | proxmox-autoscaler | KubeNodeSmith | karpenter | pve-autoscaler | |\n",
        );
        page.push_str("|---|---|---|---|---|---|---|\n");
        for (about, peers, ours, how, test) in group.rows {
            assert_eq!((peers.chars().count(), ours.chars().count()), (4, 1), "{about}");
            let peers: Vec<&str> = peers.chars().map(sign).collect();
            let ours = ours.chars().map(sign).collect::<String>();
            assert!(!test.is_empty() || ours != "✔", "nothing proves {about:?}");
            let proof = if test.is_empty() { String::new() } else { proof(&about, &test) };
            let last =
                [how, proof].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ");
            writeln!(page, "| {about} | {} | {ours} | {last} |", peers.join(" | ")).unwrap();
        }
    }
    page
}

/// A link to the test.
fn proof(about: &str, test: &str) -> String {
    let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{about:?} names no test: {test}"));
    let text = fs::read_to_string(folder(file)).unwrap_or_else(|error| panic!("{about:?}: {file}: {error}"));
    let line = text.lines().position(|line| line.contains(&format!("fn {name}(")));
    assert!(line.is_some(), "{about:?}: {file} has no test {name}");
    format!("[test](../{file})")
}
