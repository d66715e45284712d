//! A configuration that is being written. A comment before each line says where the setting comes from. At
//! the end, pve-autoscaler's own parser reads the text, and each line that it refuses is replaced by a
//! comment or a placeholder.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Value;

use super::{Migrated, Origin};
use settings::Needs;

/// The width at which comments are wrapped.
const WIDTH: usize = 118;

/// One line of a table.
#[derive(Clone, Debug)]
enum Line {
    /// A setting.
    Set { key: String, value: Value, why: String, instead: Option<Value> },
    /// A setting that only the operator knows; its value is a placeholder.
    Fill { key: String, value: Value, why: String },
    /// A setting that only the operator knows; a comment shows an example.
    Missing { key: String, example: String, why: String },
    /// A remark.
    Note(String),
}

/// A table of the configuration.
#[derive(Clone, Debug)]
pub(super) struct Table {
    header: String,
    label: String,
    lines: Vec<Line>,
    /// Why the table is left out, if it is.
    refused: Option<String>,
}

impl Table {
    /// A table with this `header`, which includes the brackets. An empty `header` is for the settings before
    /// the first table.
    pub fn new(header: &str) -> Self {
        Self {
            header: header.to_owned(),
            label: header.trim_matches(['[', ']']).to_owned(),
            lines: Vec::new(),
            refused: None,
        }
    }

    /// A table of a pool. Settings to fill in are listed with the pool's name.
    pub fn of_pool(header: &str, pool: &str) -> Self {
        Self { label: format!("pool {pool}"), ..Self::new(header) }
    }

    /// Adds a setting; `why` names its source and any difference from it.
    pub fn set(&mut self, key: &str, value: impl Into<Value>, why: impl Into<String>) {
        self.lines.push(Line::Set {
            key: key.to_owned(),
            value: value.into(),
            why: why.into(),
            instead: None,
        });
    }

    /// Adds a required setting. If pve-autoscaler's parser refuses `value`, `instead` replaces it.
    pub fn must(
        &mut self,
        key: &str,
        value: impl Into<Value>,
        instead: impl Into<Value>,
        why: impl Into<String>,
    ) {
        let (value, instead) = (value.into(), Some(instead.into()));
        self.lines.push(Line::Set { key: key.to_owned(), value, why: why.into(), instead });
    }

    /// Adds a required setting that only the operator knows.
    pub fn fill(&mut self, key: &str, value: impl Into<Value>, why: impl Into<String>) {
        self.lines.push(Line::Fill { key: key.to_owned(), value: value.into(), why: why.into() });
    }

    /// Adds a comment with an example, for a setting that `run` needs and that only the operator knows.
    pub fn missing(&mut self, key: &str, example: &str, why: impl Into<String>) {
        let (key, example) = (key.to_owned(), example.to_owned());
        self.lines.push(Line::Missing { key, example, why: why.into() });
    }

    /// Adds a remark.
    pub fn note(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Note(text.into()));
    }

    /// Whether the table has no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// A configuration that is being written.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    tables: Vec<Table>,
    unneeded: Vec<(String, String)>,
    unknown: Vec<String>,
}

/// The position of a table's line in the text.
struct Place {
    bytes: Range<usize>,
    table: usize,
    /// `None` for the table's header.
    line: Option<usize>,
}

impl Draft {
    /// Adds a table, unless it is empty.
    pub fn push(&mut self, table: Table) {
        if !table.is_empty() {
            self.tables.push(table);
        }
    }

    /// Adds a setting of the other autoscaler that has no counterpart; `why` says why none is needed.
    pub fn unneeded(&mut self, source: impl Into<String>, why: &str) {
        self.unneeded.push((source.into(), why.to_owned()));
    }

    /// Adds unknown settings of the other autoscaler.
    pub fn unknown(&mut self, names: impl IntoIterator<Item = String>) {
        self.unknown.extend(names.into_iter().map(|name| plain(&name)));
    }

    /// The text, without anything that pve-autoscaler's own parser refuses.
    pub fn finish(mut self, origin: Origin) -> Migrated {
        // Each iteration replaces at least one line, or is the last.
        let most: usize = self.tables.iter().map(|table| table.lines.len() + 1).sum();
        for _ in 0..=most {
            let (text, places) = self.render(origin);
            let Err(report) = settings::parse("migrated", &text, Needs::Plan) else { break };
            let mut refused = BTreeMap::new();
            for finding in report.findings() {
                let Some((at, _)) = &finding.at else { continue };
                let place = places.iter().find(|place| place.bytes.contains(&at.start));
                if let Some(place) = place {
                    refused.insert((place.table, place.line), finding.title.clone());
                }
            }
            if refused.is_empty() {
                break;
            }
            for ((table, line), title) in refused {
                self.refuse(table, line, &title);
            }
        }
        let (text, _) = self.render(origin);
        let to_fill = self.tables.iter().flat_map(Table::to_fill).collect();
        Migrated { text, to_fill, unknown: self.unknown }
    }

    fn refuse(&mut self, table: usize, line: Option<usize>, title: &str) {
        let Some(table) = self.tables.get_mut(table) else { return };
        let Some(line) = line.and_then(|line| table.lines.get_mut(line)) else {
            table.refused = Some(plain(title));
            return;
        };
        *line = match line {
            Line::Set { key, instead: Some(value), why, .. } => {
                let why = format!("{why}: not converted ({})", plain(title));
                Line::Fill { key: key.clone(), value: value.clone(), why }
            }
            Line::Set { why, .. } | Line::Fill { why, .. } | Line::Missing { why, .. } | Line::Note(why) => {
                Line::Note(format!("{why}: not converted ({})", plain(title)))
            }
        };
    }

    fn render(&self, origin: Origin) -> (String, Vec<Place>) {
        let mut out = format!("{}\n", crate::SCHEMA_LINE);
        let head = format!(
            "Created by `pve-autoscaler migrate` from settings of {}. All other settings use their \
                defaults; pve-autoscaler.toml(5) lists them. The comment before a line says where the \
                setting comes from and what differs. Fill in each value that is marked FILL IN.",
            origin.name()
        );
        comment(&mut out, &head);
        let mut places = Vec::new();
        for (index, table) in self.tables.iter().enumerate() {
            table.render(index, &mut out, &mut places);
        }
        if !self.unneeded.is_empty() {
            out.push_str("\n# Settings without a counterpart:\n");
            for (source, why) in &self.unneeded {
                comment(&mut out, &format!("{source}: {why}"));
            }
        }
        if !self.unknown.is_empty() {
            out.push_str("\n# Unknown settings, not converted:\n");
            for name in &self.unknown {
                comment(&mut out, name);
            }
        }
        (out, places)
    }
}

impl Table {
    fn render(&self, index: usize, out: &mut String, places: &mut Vec<Place>) {
        out.push('\n');
        if let Some(title) = &self.refused {
            comment(out, &format!("{} is left out: {title}", self.header));
            for line in &self.lines {
                line.comment(out);
            }
            return;
        }
        if !self.header.is_empty() {
            let from = out.len();
            out.push_str(&self.header);
            out.push('\n');
            places.push(Place { bytes: from..out.len(), table: index, line: None });
        }
        for (number, line) in self.lines.iter().enumerate() {
            line.comment(out);
            if let Line::Set { key, value, .. } | Line::Fill { key, value, .. } = line {
                let from = out.len();
                out.extend([&quoted_key(key), " = ", &value.to_string(), "\n"]);
                places.push(Place { bytes: from..out.len(), table: index, line: Some(number) });
            }
        }
    }

    fn to_fill(&self) -> Vec<String> {
        let key = |line: &Line| match line {
            Line::Fill { key, .. } | Line::Missing { key, .. } => Some(format!("{}: {key}", self.label)),
            _ => None,
        };
        self.lines.iter().filter_map(key).collect()
    }
}

impl Line {
    fn comment(&self, out: &mut String) {
        match self {
            Self::Set { why, .. } => comment(out, why),
            Self::Fill { why, .. } => comment(out, &format!("FILL IN: {why}")),
            Self::Missing { key, example, why } => {
                comment(out, &format!("FILL IN: {why}"));
                out.extend(["# ", key, " = ", example, "\n"]);
            }
            Self::Note(text) => comment(out, text),
        }
    }
}

/// Writes a comment, wrapped.
fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in plain(text).split(' ').filter(|word| !word.is_empty()) {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// The text without characters that would end a comment or move a terminal's cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn quoted_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        Value::String(key.to_owned()).to_string()
    }
}
