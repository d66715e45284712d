//! Section 8 of the manual: the commands.

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
    // The lines that define the apostrophe `\*(Aq` are left out, and groff's `\(aq` is used instead.
    let rendered = String::from_utf8(rendered).unwrap();
    for line in rendered.lines().filter(|line| !line.starts_with(".ie ") && !line.starts_with(".el ")) {
        let _ = writeln!(out, "{}", bold(line.trim_end()).replace("\\*(Aq", "\\(aq"));
    }
    out.push_str(&sections(&extra));
    let _ = writeln!(out, ".SH SEE ALSO\n{}", roff::plain(&others.join(", ")));
    out
}

/// Makes text in backticks bold.
fn bold(line: &str) -> String {
    let mut parts = line.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (number, part) in parts.enumerate() {
        out.push_str(if number % 2 == 0 { "\\fB" } else { "\\fR" });
        out.push_str(part);
    }
    out
}

/// Converts the text below the options in a command's help. A `Heading` with indented rows below it becomes a
/// section, and other text becomes paragraphs.
fn sections(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut page = Below::default();
    for (number, line) in lines.iter().enumerate() {
        let next = lines.get(number + 1).copied().unwrap_or_default();
        page.add(line, next);
    }
    page.out
}

/// The sections that are built, line by line, from the text below the options of a command's help.
#[derive(Default)]
struct Below {
    out: String,
    /// Whether the last line belonged to a paragraph.
    in_paragraph: bool,
    /// The column at which the text of the last row begins.
    column: usize,
}

impl Below {
    fn add(&mut self, line: &str, next: &str) {
        let indent = line.len() - line.trim_start().len();
        let row = line.trim_start();
        match indent {
            0 if row.is_empty() => self.in_paragraph = false,
            0 if next.starts_with("  ") && !row.ends_with('.') => self.heading(row),
            0 => self.paragraph(row),
            2 => self.row(row),
            // A row that is indented deeper than the text above it is a command to copy. It stays on its own
            // line.
            _ if indent > self.column => {
                let _ = writeln!(self.out, ".nf\n{}\n.fi", roff::plain(row));
            }
            _ => {
                let _ = writeln!(self.out, "{}", roff::text(row));
            }
        }
    }

    fn heading(&mut self, row: &str) {
        let _ = writeln!(self.out, ".SH {}", roff::plain(&row.trim_end_matches(':').to_uppercase()));
        self.in_paragraph = false;
    }

    fn paragraph(&mut self, row: &str) {
        if self.out.is_empty() {
            self.out.push_str(".SH NOTES\n");
        } else if !self.in_paragraph {
            self.out.push_str(".PP\n");
        }
        let _ = writeln!(self.out, "{}", roff::text(row));
        self.in_paragraph = true;
    }

    /// Converts a row: `term  meaning`, or an item without a term.
    fn row(&mut self, row: &str) {
        if let Some((term, meaning)) = row.split_once("  ") {
            let meaning = meaning.trim_start();
            self.column = 2 + row.len() - meaning.len();
            let _ = writeln!(self.out, ".TP\n\\fB{}\\fR\n{}", roff::plain(term), roff::text(meaning));
        } else {
            self.column = 4;
            let _ = writeln!(self.out, ".IP \\(bu 2\n{}", roff::text(row));
        }
    }
}

#[test]
fn only_short_lines_become_headings() {
    let below = "What happens\n  one thing\n    and more of it\n  another\n\nA sentence with `code`,\nover two lines.\n";
    let expected = ".SH WHAT HAPPENS\n.IP \\(bu 2\none thing\nand more of it\n.IP \\(bu 2\nanother\n.PP\nA sentence with \
                    \\fBcode\\fR,\nover two lines.\n";
    assert_eq!(sections(below), expected);
    assert!(sections("No heading at all.\n").starts_with(".SH NOTES\n"));
    for (name, page) in all(super::shown()) {
        for heading in page.lines().filter_map(|line| line.strip_prefix(".SH ")) {
            assert!(heading.len() <= 50 && !heading.ends_with('.'), "{name}: {heading}");
        }
    }
}
