//! The configuration's man page (section 5) and reference page, generated from the commented example.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use super::{roff, schema};

/// The beginning of the reference page.
const ABOVE: &str = "\
# Configuration

Every setting of `/etc/pve-autoscaler/config.toml`, with its default, or with an example if it has none. A setting after \"or\" is an alternative to the one before it. This page is generated from
[config.example.toml](../../config.example.toml), and `pve-autoscaler.toml(5)` has the same contents. [Configure](../guides/configure.md) explains in which order to choose settings.

";

/// A table or a group of settings in the example, with the text that describes it.
enum Entry<'a> {
    /// The settings that follow are in this table.
    Table(&'a str, String),
    /// Settings that share a text. Each has a flag that says whether it is an alternative to the one above.
    Settings(Vec<(&'a str, bool)>, String),
}

/// Returns the man page.
pub fn page(example: &str) -> String {
    let (above, entries) = entries(example);
    let mut out = format!(
        ".TH PVE\\-AUTOSCALER.TOML 5 \"\" \"pve\\-autoscaler {}\" \"File Formats\"\n\
         .SH NAME\npve\\-autoscaler.toml \\- configuration of pve\\-autoscaler\n\
         .SH SYNOPSIS\n/etc/pve\\-autoscaler/config.toml\n\
         .SH DESCRIPTION\n\
         A TOML file. Each setting below is shown with its default, or with an example if it has none.\n\
         {}\n.SH TOP LEVEL\n",
        env!("CARGO_PKG_VERSION"),
        roff::text(&above),
    );
    for entry in entries {
        match entry {
            Entry::Table(name, text) => {
                let _ = writeln!(out, ".SH {}", roff::plain(name));
                if !text.is_empty() {
                    let _ = writeln!(out, "{}", roff::text(&text));
                }
            }
            Entry::Settings(settings, text) => {
                for (at, (setting, other)) in settings.into_iter().enumerate() {
                    let tag = if at == 0 { ".TP" } else { ".TQ" };
                    let way = if other { "or: " } else { "" };
                    let _ = writeln!(out, "{tag}\n{way}\\fB{}\\fR", roff::plain(setting));
                }
                let _ = writeln!(out, "{}", roff::text(&text));
            }
        }
    }
    out.push_str(
        ".SH FILES\n\
         .TP\n\\fB/etc/pve\\-autoscaler/config.toml\\fR\nThe configuration. It contains no secrets and may be world-readable.\n\
         .TP\n\\fB/etc/pve\\-autoscaler/credentials/\\fR\n\
         The credentials, one file each (mode 0600), in a folder owned by root (mode 0700). systemd passes\n\
         \\fBpve\\-token\\fR, \\fBkubeconfig\\fR and, if present, \\fBssh\\-key\\fR, \\fBbootstrap\\fR, \\fBbmc\\fR and \\fBpve\\-root\\-ca\\fR to the service.\n\
         Changes take effect after a restart.\n\
         .SH SEE ALSO\npve\\-autoscaler(8), pve\\-autoscaler\\-check(8), systemd.exec(5)\n",
    );
    out
}

/// Returns the reference page.
pub fn reference(example: &str) -> String {
    let (above, entries) = entries(example);
    let mut out = format!("{ABOVE}{above}\n\n## Top level\n\n");
    for entry in entries {
        match entry {
            Entry::Table(name, text) => {
                let _ = writeln!(out, "\n## `{name}`\n");
                if !text.is_empty() {
                    let _ = writeln!(out, "{}\n", linked(&text));
                }
            }
            Entry::Settings(settings, text) => {
                let mut another = true;
                for (at, (setting, other)) in settings.into_iter().enumerate() {
                    let before = match at {
                        0 => "* ",
                        _ if other && !another => ", or ",
                        _ => ", ",
                    };
                    another = other;
                    let _ = write!(out, "{before}`{setting}`");
                }
                let colon = if text.is_empty() { "" } else { ": " };
                let _ = writeln!(out, "{colon}{}", linked(&text));
            }
        }
    }
    out
}

/// Turns the paths of documentation pages in a text into links, for the reference page.
fn linked(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let page = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        match page.strip_prefix("docs/") {
            Some(rest) if page.rsplit_once('.').is_some_and(|(_, kind)| kind == "md") => {
                word.replace(page, &format!("[{page}](../{rest})"))
            }
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the example's introduction, and what the example says about each table and setting.
fn entries(example: &str) -> (String, Vec<Entry<'_>>) {
    let mut lines = example.lines().peekable();
    // The explanation of how the example marks its lines is left out.
    while lines.next_if(|line| !line.starts_with("# Durations")).is_some() {}
    let mut words: Vec<&str> = Vec::new();
    while let Some(line) = lines.next_if(|line| !line.is_empty()) {
        words.extend(line.strip_prefix("# "));
    }
    let above = joined(&mut words);
    let schema = schema::schema();
    let (mut entries, mut table, mut told) = (Vec::new(), "", BTreeSet::new());
    while let Some(line) = lines.next() {
        let Some((setting, _)) = setting(line) else {
            words.extend(line.strip_prefix("# "));
            continue;
        };
        if setting.starts_with('[') {
            table = setting.trim_matches(['[', ']']);
            entries.push(Entry::Table(setting, joined(&mut words)));
            continue;
        }
        // A text applies to all settings that directly follow it.
        let mut settings = Vec::new();
        let mut rest = Some(line);
        while let Some(found) = rest.and_then(self::setting) {
            settings.push(found);
            rest = lines.next_if(|next| self::setting(next).is_some_and(|(next, _)| !next.starts_with('[')));
        }
        let text = joined(&mut words);
        let limits = limits(&schema, table, &settings, &text, &mut told);
        let text = if limits.is_empty() { text } else { format!("{text} {limits}").trim().to_owned() };
        entries.push(Entry::Settings(settings, text));
    }
    (above, entries)
}

/// Describes the limits that only the schema contains: allowed words (each list only once), and ranges that
/// are narrower than the type.
fn limits<'e>(
    schema: &Value,
    table: &str,
    settings: &[(&'e str, bool)],
    text: &str,
    told: &mut BTreeSet<(&'e str, String)>,
) -> String {
    let shown: Vec<&str> = settings.iter().map(|(setting, _)| *setting).chain([text]).collect();
    let keys: BTreeSet<&str> =
        settings.iter().filter_map(|(setting, _)| Some(setting.split_once(" = ")?.0)).collect();
    let mut limits = Vec::new();
    for key in &keys {
        let name = if keys.len() > 1 { format!("`{key}` must be from") } else { "From".to_owned() };
        let found = described(schema, table, key);
        let words: Vec<&str> =
            found["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let new = told.insert((key, words.join(" ")));
        if new && words.len() > 1 && words.iter().any(|word| !shown.iter().any(|it| it.contains(word))) {
            limits.push(format!("`{key}` is {}.", listed(&words)));
        }
        // A single smaller number, such as 0, may be allowed in addition to the range.
        let apart = &found["anyOf"][0]["const"];
        let least = if apart.is_null() { &found["minimum"] } else { &found["anyOf"][1]["minimum"] };
        let most = &found["maximum"];
        let of_a_type = [u16::MAX.into(), u32::MAX, i32::MAX.unsigned_abs()].iter().any(|it| *most == *it);
        if least.is_number() && most.is_number() && !of_a_type {
            let or = if apart.is_null() { String::new() } else { format!(", or {apart}") };
            limits.push(format!("{name} {least} to {most}{or}."));
        }
    }
    limits.join(" ")
}

/// Returns the schema of a key of a table.
fn described<'s>(schema: &'s Value, table: &str, key: &str) -> &'s Value {
    let tables = table.split('.').filter(|name| !name.is_empty());
    let inside = tables.fold(schema, |at, name| {
        let table = &at["properties"][name];
        table.get("items").unwrap_or(table)
    });
    // If a table allows any key, all its keys have the same description.
    let found =
        inside["properties"].get(key).or(inside.get("additionalProperties").filter(|it| it.is_object()));
    found.unwrap_or_else(|| panic!("the schema has no `{key}` in `{table}`: make it first"))
}

/// `"a", "b" or "c"`
fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

/// A setting or the name of a table, and whether it is an alternative to the one above.
fn setting(line: &str) -> Option<(&str, bool)> {
    // A further table is not an alternative to the one above.
    for mark in ["#: ", "#also| ", "#grow| "] {
        if let Some(setting) = line.strip_prefix(mark) {
            return Some((setting, false));
        }
    }
    for mark in ["#| ", "#k3s| ", "#command| ", "#none| ", "#seed| ", "#redfish| ", "#machine| "] {
        if let Some(setting) = line.strip_prefix(mark) {
            return Some((setting, true));
        }
    }
    (!line.is_empty() && !line.starts_with('#')).then_some((line, false))
}

fn joined(words: &mut Vec<&str>) -> String {
    std::mem::take(words).join(" ")
}
