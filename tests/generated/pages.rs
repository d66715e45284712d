//! Section 8: the commands.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::Command;
use clap_mangen::Man;

use super::roff;

/// Every command's page by file name.
pub fn all(mut command: Command) -> BTreeMap<String, String> {
    command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = BTreeMap::new();
    let names: Vec<String> =
        command.get_subcommands().map(|one| format!("pve-autoscaler-{}", one.get_name())).collect();
    for one in command.get_subcommands() {
        let name = format!("pve-autoscaler-{}", one.get_name());
        let others = ["pve-autoscaler(8)", "pve-autoscaler.toml(5)"].map(ToOwned::to_owned);
        pages.insert(format!("{name}.8"), page(one.clone(), &name, &others));
    }
    let others: Vec<String> =
        names.iter().map(|name| format!("{name}(8)")).chain(["pve-autoscaler.toml(5)".to_owned()]).collect();
    pages.insert("pve-autoscaler.8".to_owned(), page(command, "pve-autoscaler", &others));
    pages
}

fn page(mut command: Command, name: &str, others: &[String]) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let extra = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_commands = command.get_subcommands().next().is_some();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let man = Man::new(command).section("8");
    let mut out = format!(
        ".TH {} 8 \"\" \"pve\\-autoscaler {}\" \"System Administration\"\n\
         .SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n",
        name.to_uppercase().replace('-', "\\-"),
        env!("CARGO_PKG_VERSION"),
        roff::plain(name),
        roff::plain(&about).replace('`', ""),
        roff::plain(usage),
    );
    let mut rendered = Vec::new();
    man.render_description_section(&mut rendered).unwrap();
    man.render_options_section(&mut rendered).unwrap();
    if has_commands {
        man.render_subcommands_section(&mut rendered).unwrap();
    }
    // The first lines define characters for pages that quote; these pages do not.
    let rendered = String::from_utf8(rendered).unwrap();
    for line in rendered.lines().filter(|line| !line.starts_with(".ie ") && !line.starts_with(".el ")) {
        let _ = writeln!(out, "{}", bold(line.trim_end()).replace("\\*(Aq", "\\(aq"));
    }
    out.push_str(&sections(&extra));
    let _ = writeln!(out, ".SH SEE ALSO\n{}", roff::plain(&others.join(", ")));
    out
}

/// What is in backticks, bold.
fn bold(line: &str) -> String {
    let mut parts = line.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (number, part) in parts.enumerate() {
        out.push_str(if number % 2 == 0 { "\\fB" } else { "\\fR" });
        out.push_str(part);
    }
    out
}

/// What stands below a help, `Heading:` and below it `  term  meaning`, as sections.
fn sections(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Some(row) = line.strip_prefix("  ") else {
            let _ = writeln!(out, ".SH {}", roff::plain(&line.trim_end_matches(':').to_uppercase()));
            continue;
        };
        match row.split_once("  ") {
            Some((term, meaning)) if !row.starts_with(' ') => {
                let _ = writeln!(out, ".TP\n\\fB{}\\fR\n{}", roff::plain(term), roff::text(meaning.trim()));
            }
            _ => {
                let _ = writeln!(out, "{}", roff::text(row.trim()));
            }
        }
    }
    out
}
