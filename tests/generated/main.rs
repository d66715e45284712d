//! Generates man pages and completions from the program's own help, the configuration's man page and
//! reference from its example, the comparison with other autoscalers, and the page about what machines
//! inherit. The files are kept in the repository, so that the package can be built without generating them.
//! The tests fail if a file differs. `UPDATE=1 cargo test --test generated` updates the files.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may panic on unexpected results, and prints what it skips"
)]

mod compare;
mod completions;
mod configuration;
mod inherited;
mod pages;
mod roff;
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use clap_complete::Shell;
use pve_autoscaler::cli::Arguments;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Asserts that a folder contains these files and no others.
fn holds(name: &str, files: &BTreeMap<String, String>) {
    let folder = folder(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
    }
    for (file, text) in files {
        let written = fs::read_to_string(folder.join(file)).unwrap_or_default();
        assert!(*text == written, "{name}/{file} differs: UPDATE=1 cargo test --test generated");
    }
    for there in fs::read_dir(&folder).unwrap() {
        let there = there.unwrap().file_name().into_string().unwrap();
        assert!(files.contains_key(&there), "{name}/{there} is not generated: delete it");
    }
}

/// Returns the program's commands, without those that are hidden from users.
fn shown() -> clap::Command {
    let all = Arguments::command();
    let commands = all.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    clap::Command::new("pve-autoscaler")
        .version(env!("CARGO_PKG_VERSION"))
        .about(text(all.get_about()))
        .after_help(text(all.get_after_help()))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(all.get_arguments().filter(|one| one.is_global_set()).cloned().collect::<Vec<_>>())
        .subcommands(commands.collect::<Vec<_>>())
}

fn man_pages() -> BTreeMap<String, String> {
    let mut files = pages::all(shown());
    let example = include_str!("../../config.example.toml");
    files.insert("pve-autoscaler.toml.5".to_owned(), configuration::page(example));
    files
}

#[test]
fn man_pages_are_as_the_program_says() {
    holds("docs/man", &man_pages());
}

#[test]
fn completions_are_as_the_program_says() {
    let mut files = BTreeMap::new();
    for (shell, name) in [
        (Shell::Bash, "pve-autoscaler"),
        (Shell::Zsh, "_pve-autoscaler"),
        (Shell::Fish, "pve-autoscaler.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut shown(), "pve-autoscaler", &mut text);
        let text = String::from_utf8(text).unwrap();
        // In one of two places, the generator for bash takes the hyphen in the program's name for the start
        // of a subcommand.
        let text = text.replace("pve__subcmd__autoscaler", "pve__autoscaler");
        files.insert(name.to_owned(), completions::with_names(shell, &text));
    }
    holds("packaging/completions", &files);
}

/// Asserts that a page of the documentation equals the generated one.
fn is_made(name: &str, page: &str) {
    let path = folder("docs").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, page).unwrap();
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(page == written, "docs/{name} differs: UPDATE=1 cargo test --test generated");
}

#[test]
fn the_comparison_names_tests_that_are_there() {
    is_made("concepts/compare.md", &compare::page(include_str!("compare.toml")));
}

#[test]
fn the_page_of_what_is_inherited_is_as_the_rules_are() {
    is_made("reference/inherited.md", &inherited::page());
}

#[test]
fn the_reference_of_the_configuration_is_as_the_example() {
    let example = include_str!("../../config.example.toml");
    is_made("reference/configuration.md", &configuration::reference(example));
}

/// Asserts that a program reports nothing about any of these files. Does nothing if the program is not
/// installed.
fn says_nothing(program: &str, arguments: &[&str], folder_name: &str, pick: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder(folder_name)).unwrap() {
        let path = entry.unwrap().path();
        if !pick(path.file_name().unwrap().to_str().unwrap()) {
            continue;
        }
        let Ok(output) = Command::new(program).args(arguments).arg(&path).output() else {
            eprintln!("skipped: {program} is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", path.display());
    }
}

#[test]
fn man_pages_are_rendered_without_warnings() {
    // The warnings that lintian checks man pages for.
    says_nothing("groff", &["-man", "-Tutf8", "-wall", "-rLL=80n", "-z"], "docs/man", |_| true);
}

#[test]
fn completions_are_understood_by_their_shells() {
    says_nothing("bash", &["-n"], "packaging/completions", |name| name == "pve-autoscaler");
    says_nothing("zsh", &["-n"], "packaging/completions", |name| name.starts_with('_'));
    says_nothing("fish", &["--no-execute"], "packaging/completions", |name| name == "pve-autoscaler.fish");
}

#[test]
fn bash_completes_commands_and_options() {
    let script = folder("packaging/completions").join("pve-autoscaler");
    let ask = |words: &[&str]| {
        let program = format!(
            "pve-autoscaler() {{ echo \"w-$2-${{@: -1}}\"; }}; source '{}'; COMP_WORDS=({}); COMP_CWORD={}; \
             _pve__autoscaler pve-autoscaler \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len() - 1,
        );
        let output = Command::new("bash").args(["-c", &program]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(&["pve-autoscaler", "sta"]).trim(), "status");
    assert!(ask(&["pve-autoscaler", "plan", "--"]).contains("--snapshot"));
    assert_eq!(ask(&["pve-autoscaler", "status", "--output", ""]).trim(), "text json");
    // The script passes the command line to the program, which prints the names.
    let asked = ["pve-autoscaler", "--cluster", "shop", "retire", "w"];
    assert_eq!(ask(&asked).trim(), "w-nodes-retire");
    assert_eq!(ask(&["pve-autoscaler", "retry", "w"]).trim(), "w-places-retry");
    assert_eq!(ask(&["pve-autoscaler", "explain", "--node", ""]).trim(), "w-nodes---node");
    assert_eq!(ask(&["pve-autoscaler", "--cluster", ""]).trim(), "w-clusters---cluster");
    assert!(!ask(&["pve-autoscaler", "retire", "--"]).contains("w-nodes"));
}
