//! What is wrong with a configuration, shown at its place in the file.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong, in one line.
    pub title: String,
    /// Where, in bytes of the file, and what is allowed there.
    pub at: Option<(Range<usize>, String)>,
    /// What it clashes with.
    pub because: Option<Range<usize>>,
    /// A way out.
    pub help: Option<String>,
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub struct Report {
    source: String,
    text: String,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(source: &str, text: &str, findings: Vec<Finding>) -> Self {
        Self { source: source.to_owned(), text: masked(text), findings }
    }

    pub(super) fn unreadable(source: &str, error: &std::io::Error) -> Self {
        let help = "create it from the commented example, or name another file with `--config`".to_owned();
        let finding = Finding {
            title: format!("cannot read `{source}`: {error}"),
            at: None,
            because: None,
            help: Some(help),
        };
        Self::new(source, "", vec![finding])
    }

    pub(super) fn syntax(source: &str, text: &str, error: &toml::de::Error) -> Self {
        let message = error.message();
        let label = message.split_once(", expected").map_or("", |(_, allowed)| allowed).trim();
        let label = if label.is_empty() { "here".to_owned() } else { format!("expected {label}") };
        let finding = Finding {
            title: message.split(", expected").next().unwrap_or(message).to_owned(),
            at: error.span().map(|span| (span, label)),
            because: None,
            help: suggestion(message),
        };
        Self::new(source, text, vec![finding])
    }

    /// The findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
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

/// Keys under which somebody might write a secret into the file.
fn is_secret(key: &str) -> bool {
    ["token", "secret", "password", "token_secret", "api_token", "kubeconfig"].contains(&key)
}

/// The text with what may be a secret replaced by as many asterisks, so that no report shows it: the rest of a line from
/// the value of such a key on, and what follows a second `=` of a token's id.
fn masked(text: &str) -> String {
    let mask = |secret: &str| "*".repeat(secret.len());
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let mut from = None;
        for (at, _) in body.match_indices('=') {
            let key = body[..at].trim_end().trim_end_matches(['"', '\'']);
            let word = key
                .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .map_or(key, |cut| &key[cut + 1..]);
            let in_id = key.contains('!') && body[..at].contains("token_id");
            if is_secret(word) || in_id {
                from = Some(at + 1);
                break;
            }
        }
        let (shown, hidden) = body.split_at(from.unwrap_or(body.len()));
        out.extend([shown, &mask(hidden), end]);
    }
    out
}

/// The known key that is closest to an unknown one, from serde's own message.
fn suggestion(message: &str) -> Option<String> {
    let words: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    let (unknown, known) = words.split_first()?;
    if !message.starts_with("unknown field") {
        return None;
    }
    if is_secret(unknown) {
        return Some(
            "put the secret into a file of its own with mode 0600 and name it with `token_file`".to_owned(),
        );
    }
    let closest = known
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(unknown, a).total_cmp(&strsim::jaro_winkler(unknown, b)))?;
    (strsim::jaro_winkler(unknown, closest) > 0.8).then(|| format!("did you mean `{closest}`?"))
}
