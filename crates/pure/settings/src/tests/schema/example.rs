//! What config.example.toml says about each key, and what the checks report if a value in the example is
//! changed.

use std::collections::BTreeMap;

use serde_json::Number;
use toml::Value;

use super::super::{POOL, example, marked, method};
use crate::{Config, Finding, Needs, parse};

pub(super) const EXAMPLE: &str = include_str!("../../../../../../config.example.toml");

/// Pairs of tables with the same keys. The example explains only the second of each pair.
const TWINS: [(&str, &str); 3] =
    [("proxmox.also", "proxmox"), ("pool.machine.redfish", "host.redfish"), ("pool.bootstrap", "bootstrap")];

/// The comments in the example, by the table or the key below them.
#[derive(Default)]
pub(super) struct Texts {
    of_tables: BTreeMap<String, String>,
    /// For each key, the index of its comment in `groups`.
    of_keys: BTreeMap<String, usize>,
    /// The value of each key.
    values: BTreeMap<String, String>,
    /// Each comment with the keys below it, in the order of the example.
    groups: Vec<(String, Vec<String>)>,
}

impl Texts {
    pub fn read() -> Self {
        let mut texts = Self::default();
        let (mut table, mut words) = (String::new(), Vec::new());
        // The first paragraph explains how the example marks its lines. It belongs to no key.
        for line in EXAMPLE.lines().skip_while(|line| !line.is_empty()) {
            if let Some(text) = line.strip_prefix("# ") {
                words.push(text);
            } else if let Some(header) = setting(line).and_then(|setting| setting.strip_prefix('[')) {
                header.trim_matches(['[', ']']).clone_into(&mut table);
                texts.of_tables.entry(table.clone()).or_insert(words.join(" "));
                texts.groups.push((String::new(), Vec::new()));
                words.clear();
            } else if let Some((key, value)) = setting(line).and_then(|setting| setting.split_once(" = ")) {
                if !words.is_empty() {
                    texts.groups.push((words.join(" "), Vec::new()));
                    words.clear();
                }
                texts.add(&table, key);
                texts.values.entry(inside(&table, key)).or_insert(value.to_owned());
            }
        }
        texts
    }

    /// Adds a key below the last comment.
    fn add(&mut self, table: &str, key: &str) {
        let number = self.groups.len() - 1;
        let (_, keys) = &mut self.groups[number];
        if !keys.iter().any(|other| other == key) {
            keys.push(key.to_owned());
        }
        self.of_keys.entry(inside(table, key)).or_insert(number);
    }

    /// Returns the comment on a key or a table. If there is none, returns the first of the following comments
    /// that exists: a comment in the same table that names the key, the comment on the same key in a table
    /// with the same keys, or the comment on the enclosing table.
    pub fn of(&self, path: &str) -> String {
        let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
        if let Some(text) = self.own(path).or_else(|| self.beside(table, key)) {
            return text;
        }
        match twin(path) {
            Some(twin) => self.of(&twin),
            None if table.is_empty() => String::new(),
            None => self.of(table),
        }
    }

    /// Whether the example shows a key, or names it in a comment of its table.
    pub fn name(&self, path: &str) -> bool {
        let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
        self.of_keys.contains_key(path)
            || self.of_tables.contains_key(path)
            || self.beside(table, key).is_some()
            || self.values.get(table).is_some_and(|value| value.contains(&format!("{key} = ")))
            || self.own(table).is_some_and(|text| text.contains(&format!("`{key}`")))
            || twin(path).is_some_and(|twin| self.name(&twin))
    }

    fn own(&self, path: &str) -> Option<String> {
        let of_key = self.of_keys.get(path).map(|number| {
            let (text, keys) = &self.groups[*number];
            let names: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            // A comment for several keys may refer to "the first" and "the second", so the names of the keys
            // are put before the comment.
            if names.len() > 1 && !text.is_empty() {
                format!("{}: {text}", names.join(", "))
            } else {
                text.clone()
            }
        });
        of_key.or_else(|| self.of_tables.get(path).cloned()).filter(|text| !text.is_empty())
    }

    /// Returns a comment from `table` that mentions `key`.
    fn beside(&self, table: &str, key: &str) -> Option<String> {
        let (name, set) = (format!("`{key}`"), format!("`{key} = "));
        let mut here =
            self.of_keys.keys().filter(|path| path.rsplit_once('.').is_some_and(|(it, _)| it == table));
        here.find_map(|path| self.own(path).filter(|text| text.contains(&name) || text.contains(&set)))
    }
}

/// The path of the same key in the table that the example explains.
fn twin(path: &str) -> Option<String> {
    let (twin, rest) = TWINS.iter().find_map(|(table, twin)| Some((twin, path.strip_prefix(table)?)))?;
    rest.starts_with('.').then(|| format!("{twin}{rest}"))
}

/// The setting in a line of the example, without the mark before it; `None` if the line is not a setting.
fn setting(line: &str) -> Option<&str> {
    let Some(marked) = line.strip_prefix('#') else { return (!line.is_empty()).then_some(line) };
    let (mark, setting) = marked.split_once(' ')?;
    (mark == ":" || mark.ends_with('|')).then_some(setting)
}

fn inside(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// What the checks reveal about a key, in addition to its type.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The value that applies if a configuration does not set the key.
    pub default: Option<Value>,
    /// A value in the example.
    pub example: Option<Value>,
    /// The pattern that valid texts match.
    pub pattern: Option<String>,
    /// The only valid texts; empty: any text is valid.
    pub words: Vec<String>,
    pub least: Option<Number>,
    pub most: Option<Number>,
    /// A number below `least` that is also valid.
    pub apart: Option<Number>,
}

/// A configuration that is made from the example, with its settings enabled.
struct Document {
    lines: Vec<String>,
    /// The checked configuration in its debug format.
    config: String,
}

/// A line that sets a key in one of the documents.
#[derive(Clone, Copy)]
struct Line {
    document: usize,
    line: usize,
}

/// All configurations that `texts` makes from the example, and the lines that set each key.
pub(super) struct Documents {
    all: Vec<Document>,
    places: BTreeMap<String, Vec<Line>>,
}

impl Documents {
    pub fn read() -> Self {
        let mut documents = Self { all: Vec::new(), places: BTreeMap::new() };
        for text in texts() {
            documents.add(&text);
        }
        documents
    }

    fn add(&mut self, text: &str) {
        let lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        let config = checked(text).unwrap_or_else(|findings| panic!("{findings:?}\n{text}"));
        let mut table = String::new();
        for (line, setting) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            if setting.starts_with('[') {
                table = setting.trim_matches(['[', ']']).to_owned();
            } else if let Some((key, _)) = setting.split_once(" = ") {
                let path = inside(&table, key);
                let place = Line { document: self.all.len(), line };
                // A line that occurs in several documents is tested in only one of them.
                let same = |known: &Line| {
                    self.all.get(known.document).is_some_and(|other| other.lines[known.line] == *setting)
                };
                if !self.places.get(&path).is_some_and(|known| known.iter().any(same)) {
                    self.places.entry(path).or_default().push(place);
                }
            }
        }
        self.all.push(Document { lines, config });
    }

    /// Returns what the checks reveal about a key.
    pub fn facts(&self, path: &str, kind: Kind) -> Facts {
        let mut facts = Facts::default();
        if path.contains('*') {
            return facts;
        }
        let Some((places, rest)) = self.places_of(path) else {
            return twin(path).map(|twin| self.facts(&twin, kind)).unwrap_or_default();
        };
        if rest.is_empty() {
            self.values(places, &mut facts);
        }
        for place in places {
            for probe in kind.probes() {
                for finding in self.findings(*place, &rest, probe) {
                    facts.learn(&finding);
                }
            }
        }
        facts
    }

    /// Returns the lines that set a key or a table around it, and the remaining keys on the path to the key.
    fn places_of<'p>(&self, path: &'p str) -> Option<(&[Line], Vec<&'p str>)> {
        let (mut line, mut rest) = (path, Vec::new());
        loop {
            if let Some(places) = self.places.get(line) {
                return Some((places, rest));
            }
            let (table, key) = line.rsplit_once('.')?;
            rest.insert(0, key);
            line = table;
        }
    }

    /// Finds an example value and the default. A line's value is a default if the configuration is the same
    /// without the line. If several lines qualify and their values differ, there is no default.
    fn values(&self, places: &[Line], facts: &mut Facts) {
        let mut defaults: Vec<Value> = Vec::new();
        for place in places {
            let value = self.value(*place);
            if checked(&self.text(*place, "")).is_ok_and(|config| config == self.all[place.document].config) {
                defaults.push(value.clone());
            }
            facts.example.get_or_insert(value);
        }
        if let Some(first) = defaults.first().filter(|first| defaults.iter().all(|one| one == *first)) {
            facts.default = Some(first.clone());
        }
    }

    fn value(&self, place: Line) -> Value {
        let line = &self.all[place.document].lines[place.line];
        let table: toml::Table = toml::from_str(line).unwrap();
        table.into_iter().next().unwrap().1
    }

    /// The text of a document with one of its lines replaced.
    fn text(&self, place: Line, line: &str) -> String {
        let mut lines = self.all[place.document].lines.clone();
        line.clone_into(&mut lines[place.line]);
        lines.join("\n")
    }

    /// Returns the errors that are reported at a line if its key is set to `probe`.
    fn findings(&self, place: Line, rest: &[&str], probe: Value) -> Vec<Finding> {
        let mut value = self.value(place);
        put(&mut value, rest, probe);
        let line = &self.all[place.document].lines[place.line];
        let (key, _) = line.split_once(" = ").unwrap();
        let line = format!("{key} = {value}");
        let text = self.text(place, &line);
        let start: usize = text.split_inclusive('\n').take(place.line).map(str::len).sum();
        let range = start..start + line.len();
        let mut findings = checked(&text).err().unwrap_or_default();
        findings.retain(|finding| {
            finding.because.is_none() && finding.at.as_ref().is_some_and(|(at, _)| range.contains(&at.start))
        });
        findings
    }
}

/// The type of a key, for choosing test values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Text,
    /// A whole number between two bounds.
    Whole(i64, i64),
    Fraction,
    Other,
}

impl Kind {
    /// Values to test the checks with.
    fn probes(self) -> Vec<Value> {
        match self {
            Self::Text => vec![Value::from("?")],
            Self::Whole(least, most) => [least, 0, most].map(Value::from).into(),
            Self::Fraction => [-1e9, 0.0, 1e9].map(Value::from).into(),
            Self::Other => Vec::new(),
        }
    }
}

impl Facts {
    fn learn(&mut self, finding: &Finding) {
        let label = finding.at.as_ref().map(|(_, label)| label.as_str()).unwrap_or_default();
        if finding.title.ends_with("is not a duration") {
            self.pattern = Some(super::DURATION.to_owned());
        } else if finding.title.ends_with("is not a size") {
            self.pattern = Some(super::SIZE.to_owned());
        } else if let Some(start) = label.strip_prefix("must begin with `") {
            self.pattern = Some(format!("^{}", start.trim_end_matches('`')));
        } else if label.starts_with("must be ") || label.starts_with('"') {
            self.words_of(label);
            self.numbers_of(label);
        }
    }

    /// Reads the valid words from a label such as `must be "api" or "ssh"`.
    fn words_of(&mut self, label: &str) {
        let words: Vec<&str> = label.split('"').skip(1).step_by(2).collect();
        let between: String = label.split('"').step_by(2).collect();
        if !words.is_empty() && between.split([' ', ',']).all(|it| ["", "must", "be", "or"].contains(&it)) {
            self.words = words.into_iter().map(ToOwned::to_owned).collect();
        }
    }

    /// Reads the bounds from a label such as `must be from 1 to 4094`, `must be at least 1`, or `must be from
    /// 1280 to 65520, or 1 for the bridge's`. If labels contain different maximums, the largest is used.
    fn numbers_of(&mut self, label: &str) {
        let words: Vec<&str> = label.split([' ', ',']).collect();
        let after = |word: &str| {
            words.iter().position(|it| *it == word).and_then(|at| words.get(at + 1)?.parse().ok())
        };
        let least: Option<Number> = after("from").or(after("least"));
        if let Some(least) = least {
            self.least = Some(least);
            self.apart = after("or");
        }
        let most: Option<Number> = after("to").or(after("most"));
        if let Some(most) = most
            && self.most.as_ref().is_none_or(|before| before.as_f64() < most.as_f64())
        {
            self.most = Some(most);
        }
    }
}

/// Configurations that together use every key.
pub(super) fn texts() -> Vec<String> {
    let secret = |text: &str, name: &str, file: &str| {
        let from = format!("{name}_credential = \"{file}\"");
        text.replace(&from, &format!("{name}_file = \"/etc/pve-autoscaler/credentials/{file}\""))
    };
    let proxmox = "[proxmox]\nregion = \"home\"\nendpoints = [\"https://a\"]\ntoken_id = \"a@pve!b\"\ntoken_file = \"/t\"\n";
    let host = "[[host]]\nname = \"pve1\"\n";
    let other = example(true);
    let ssh = other.split("[bootstrap]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    let redfish = secret(&marked("redfish"), "password", "bmc");
    let trusted = |line: &str| redfish.replace("ca_file = \"/etc/pve-autoscaler/controllers.pem\"", line);
    let mut texts = vec![
        example(false),
        other.clone(),
        secret(&format!("[bootstrap]{ssh}\n"), "ssh_key", "ssh-key"),
        format!("{proxmox}ca = \"system\"\n{}\n", marked("also")),
        POOL.replace("10.0.0.5", "fd00::5").replace("24", "64"),
        format!("{POOL}[pool.cloud_init]\n{}\n", marked("seed")),
        format!("{POOL}{}\n", marked("grow")),
        marked("machine"),
        format!("{host}{}\n", marked("redfish")),
        method("none"),
    ];
    for (name, what) in [("k3s", "server_token"), ("command", "input")] {
        texts.extend([method(name), secret(&method(name), what, "bootstrap")]);
    }
    let pairs: Vec<String> = (0..32).map(|pair| format!("{:02X}", pair * 7)).collect();
    for trust in ["ca = \"system\"", &format!("fingerprint = \"{}\"", pairs.join(":"))] {
        texts.extend([format!("{proxmox}{trust}\n"), format!("{host}{}\n", trusted(trust))]);
    }
    texts
}

/// Returns the checked settings in their debug format, or the errors.
fn checked(text: &str) -> Result<String, Vec<Finding>> {
    let words = |config: Config| format!("{config:?}");
    parse("c.toml", text, Needs::Plan).map(words).map_err(|report| report.findings().to_vec())
}

/// Replaces the value at a path of keys. In a list, the first element is used.
fn put(value: &mut Value, rest: &[&str], new: Value) {
    let Some((key, rest)) = rest.split_first() else {
        *value = new;
        return;
    };
    let table = match value {
        Value::Array(list) => list.first_mut().unwrap(),
        table => table,
    };
    let table = table.as_table_mut().unwrap();
    put(table.entry(*key).or_insert(Value::from(0)), rest, new);
}
