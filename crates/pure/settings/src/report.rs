//! Errors in a configuration, shown at their places in the file.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::secret::own_file;

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The error, in one line.
    pub title: String,
    /// The byte range of the error in the file, and what is allowed at this place.
    pub at: Option<(Range<usize>, String)>,
    /// The byte range of the setting that conflicts with this one.
    pub because: Option<Range<usize>>,
    /// How to fix the error.
    pub help: Option<String>,
}

/// All errors in a configuration.
#[derive(Debug)]
pub struct Report {
    source: String,
    text: String,
    findings: Vec<Finding>,
}

impl Report {
    /// Creates a report. Findings are sorted by their place in the file, and those without a place come
    /// first.
    pub(super) fn new(source: &str, text: &str, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.at.as_ref().map(|(span, _)| span.start));
        Self { source: source.to_owned(), text: masked(text), findings }
    }

    /// A report whose only finding is that the file cannot be read.
    pub fn unreadable(source: &str, error: &std::io::Error) -> Self {
        let help = match error.kind() {
            ErrorKind::NotFound => "create it from config.example.toml, or name another file with `--config`",
            ErrorKind::IsADirectory => "name a file in this directory",
            ErrorKind::PermissionDenied => "run the command as a user who may read the file",
            ErrorKind::InvalidData => "the file is not UTF-8 text: name another file with `--config`",
            _ => "name another file with `--config`",
        };
        let finding = Finding {
            title: format!("cannot read `{source}`: {error}"),
            at: None,
            because: None,
            help: Some(help.to_owned()),
        };
        Self::new(source, "", vec![finding])
    }

    pub(super) fn syntax(source: &str, text: &str, error: &toml::de::Error) -> Self {
        let message = error.message();
        let label = message.split_once(", expected").map_or("", |(_, allowed)| allowed).trim();
        let label = match label {
            // serde's message lists all valid keys, and some tables have dozens. So the list is not shown.
            _ if message.starts_with("unknown field") => "not a key of this table".to_owned(),
            "" => "here".to_owned(),
            label => format!("expected {}", kind_text(label)),
        };
        let finding = Finding {
            title: message.split(", expected").next().unwrap_or(message).to_owned(),
            at: error.span().map(|span| (span, label)),
            because: None,
            help: suggestion(message)
                .or_else(|| unknown_key(message))
                .or_else(|| shape(masked(text).get(error.span()?)?.trim(), message)),
        };
        Self::new(source, text, vec![finding])
    }

    /// The findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The line and column of a finding. Both start at 1, and columns are counted in characters.
    pub fn position(&self, finding: &Finding) -> Option<(usize, usize)> {
        let (span, _) = finding.at.as_ref()?;
        let before = self.text.get(..span.start)?;
        let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
        Some((before.matches('\n').count() + 1, line.chars().count() + 1))
    }

    /// The report without colours.
    pub fn plain(&self) -> String {
        self.render(&Renderer::plain())
    }

    /// The report with colours, for a terminal.
    pub fn styled(&self) -> String {
        self.render(&Renderer::styled())
    }

    fn render(&self, renderer: &Renderer) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            let mut group = Group::with_title(Level::ERROR.primary_title(&finding.title));
            if let Some((span, label)) = &finding.at {
                let mut snippet = Snippet::source(&self.text)
                    .path(&self.source)
                    .annotation(AnnotationKind::Primary.span(span.clone()).label(label));
                if let Some(because) = &finding.because {
                    snippet = snippet
                        .annotation(AnnotationKind::Context.span(because.clone()).label("because of this"));
                }
                group = group.element(snippet);
            }
            if let Some(help) = &finding.help {
                group = group.element(Level::HELP.message(help));
            }
            out.push_str(&renderer.render(&[group]));
            out.push('\n');
        }
        out
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain())
    }
}

impl std::error::Error for Report {}

/// Returns the name of a type, as shown to users.
fn kind_text(kind: &str) -> &str {
    match kind {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "usize" => "a whole number, not less than zero",
        "i32" => "a whole number",
        "f64" => "a number",
        "a boolean" => "`true` or `false`",
        "a sequence" => "a list: `[…, …]`",
        other => other,
    }
}

/// Returns how to fix a value of the wrong type.
fn shape(value: &str, message: &str) -> Option<String> {
    let (found, wanted) = message.strip_prefix("invalid type: ")?.split_once(", expected ")?;
    if value.len() > 60 || value.contains('\n') {
        return None;
    }
    let (table, number) =
        (value.starts_with('['), found.starts_with("integer") || found.starts_with("float"));
    match wanted {
        "a sequence" if table => Some(format!("the table may occur several times: write `[{value}]`")),
        "a sequence" => Some(format!("put it in brackets: `[{value}]`")),
        "a string" if number => {
            Some("put the value in quotes, with its unit if it has one, e.g. \"8GiB\" or \"10m\"".to_owned())
        }
        _ if found.starts_with("string") && reads_bare(value, wanted) => {
            Some("write it without quotes".to_owned())
        }
        _ => None,
    }
}

/// Whether a value in quotes would be of this type without the quotes.
fn reads_bare(value: &str, wanted: &str) -> bool {
    let bare = value.trim_matches(['"', '\'']);
    let table = format!("it = {bare}").parse::<toml::Table>().unwrap_or_default();
    match (wanted, table.get("it")) {
        ("u8" | "u16" | "u32" | "u64" | "usize", Some(toml::Value::Integer(number))) => *number >= 0,
        ("i32" | "i64", Some(toml::Value::Integer(_)))
        | ("f64", Some(toml::Value::Integer(_) | toml::Value::Float(_)))
        | ("a boolean", Some(toml::Value::Boolean(_))) => true,
        _ => false,
    }
}

/// Whether a user might write a secret into the file under this key.
fn is_secret(key: &str) -> bool {
    const KEYS: [&str; 9] = [
        "token",
        "secret",
        "password",
        "token_secret",
        "api_token",
        "kubeconfig",
        "ssh_key",
        "private_key",
        "bootstrap_token",
    ];
    KEYS.contains(&key)
}

/// Replaces everything that may be a secret with asterisks, so that reports do not reveal secrets. The
/// following parts are replaced: the values of keys that hold secrets (up to the end of the line or of a
/// multi-line text), everything after the second `=` in a line with a token ID, and private keys. Byte
/// positions do not change.
fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // The delimiter that ends a secret from an earlier line; `None` if the line does not continue a secret.
    let mut until: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let from = if until.is_some() { 0 } else { hidden_from(body).unwrap_or(body.len()) };
        let (shown, hidden) = body.split_at(from);
        until = match until {
            Some(mark) => Some(mark).filter(|mark| !hidden.contains(mark)),
            None if hidden.contains(KEY_BEGINS) && !hidden.contains(KEY_ENDS) => Some(KEY_ENDS),
            None => ["\"\"\"", "'''"].into_iter().find(|quotes| hidden.matches(quotes).count() == 1),
        };
        out.extend([shown, &"*".repeat(hidden.len()), end]);
    }
    out
}

const KEY_BEGINS: &str = "-----BEGIN";
const KEY_ENDS: &str = "-----END";

/// Returns the position at which a secret may begin in the line; `None` if the line contains none.
fn hidden_from(line: &str) -> Option<usize> {
    if let Some(at) = line.find(KEY_BEGINS).filter(|_| line.contains("PRIVATE KEY")) {
        return Some(at);
    }
    for (at, _) in line.match_indices('=') {
        let key = line[..at].trim_end().trim_end_matches(['"', '\'']);
        let word = key.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or(key);
        let source = ["\"api\"", "\"ssh\""].contains(&line[at + 1..].trim());
        let in_id = key.contains('!') && line[..at].contains("token_id");
        if (is_secret(word) && !source) || in_id {
            return Some(at + 1);
        }
    }
    None
}

/// Returns a hint that says where all keys are listed, if the error is about an unknown key.
fn unknown_key(message: &str) -> Option<String> {
    let help = "pve-autoscaler.toml(5) and config.example.toml list all keys of each table";
    message.starts_with("unknown field").then(|| help.to_owned())
}

/// Returns the known key or value that is closest to an unknown one. Both come from serde's message.
fn suggestion(message: &str) -> Option<String> {
    let words: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    let (unknown, known) = words.split_first()?;
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        return None;
    }
    if is_secret(unknown) {
        let mut keys = known.iter().filter_map(|key| key.strip_suffix("_credential"));
        let first = keys.clone().next().unwrap_or("token");
        return Some(own_file(keys.find(|key| key == unknown).unwrap_or(first)));
    }
    let closest = known
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(unknown, a).total_cmp(&strsim::jaro_winkler(unknown, b)))?;
    (strsim::jaro_winkler(unknown, closest) > 0.8).then(|| format!("did you mean `{closest}`?"))
}
