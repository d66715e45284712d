//! The log of a run. The same seed always gives the same lines. The log also receives everything that the
//! daemon logs, so that leaked secrets are detected.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Length of a bootstrap token's secret.
const SECRET: usize = 16;
/// The text that precedes a command for an administrator in the daemon's reports.
const COMMAND: &str = "to fix it: ";

/// The log of one run. Clones share it.
#[derive(Clone, Debug)]
pub struct Log(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    text: String,
    verbose: bool,
    /// Words that look like a token's secret, and the lines that contain them.
    suspects: BTreeMap<String, String>,
    leaks: Vec<String>,
    commands: Vec<String>,
}

impl Log {
    /// Creates an empty log whose time starts now. If `verbose` is set, the log includes the daemon's debug
    /// messages. Must be called inside a tokio runtime.
    pub fn new(verbose: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            began: Instant::now(),
            text: String::new(),
            verbose,
            suspects: BTreeMap::new(),
            leaks: Vec::new(),
            commands: Vec::new(),
        })))
    }

    /// Adds a line.
    pub fn say(&self, who: &str, what: &str) {
        let mut inner = self.inner();
        let passed = inner.began.elapsed().as_millis();
        let (hours, minutes, seconds, millis) =
            (passed / 3_600_000, passed / 60_000 % 60, passed / 1000 % 60, passed % 1000);
        let _ = writeln!(inner.text, "{hours:02}:{minutes:02}:{seconds:02}.{millis:03} {who:<9} {what}");
    }

    /// All lines so far.
    pub fn text(&self) -> String {
        self.inner().text.clone()
    }

    /// The commands in the daemon's reports since the last call.
    pub fn commands(&self) -> Vec<String> {
        std::mem::take(&mut self.inner().commands)
    }

    /// The number of texts that may contain a secret. The number never decreases.
    pub fn suspicious(&self) -> usize {
        let inner = self.inner();
        inner.suspects.len() + inner.leaks.len()
    }

    /// Returns the daemon's log lines that contain one of `secrets`, or a secret that is the same in every
    /// run.
    pub fn leaks(&self, secrets: &BTreeSet<String>) -> Vec<String> {
        let inner = self.inner();
        let found = inner.suspects.iter().filter(|(word, _)| secrets.contains(*word));
        inner.leaks.iter().cloned().chain(found.map(|(_, line)| line.clone())).collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch_for_secrets(&self, line: &str, always_secret: &[&str]) {
        let mut inner = self.inner();
        if always_secret.iter().any(|secret| line.contains(secret)) {
            inner.leaks.push(line.to_owned());
        }
        for word in line.split(|c: char| !c.is_ascii_alphanumeric()) {
            let like_one = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            if word.len() == SECRET && word.chars().all(like_one) {
                inner.suspects.entry(word.to_owned()).or_insert_with(|| line.to_owned());
            }
        }
    }
}

/// Receives the daemon's `tracing` events.
#[derive(Debug)]
pub struct Ear {
    /// The log to which the events are added.
    pub log: Log,
    /// Secrets that are the same in every run.
    pub always_secret: Vec<&'static str>,
}

impl<S: Subscriber> Layer<S> for Ear {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{}{}", line.message, line.fields);
        self.log.watch_for_secrets(&text, &self.always_secret);
        let meta = event.metadata();
        if !pve_autoscaler::is_own(meta.target()) {
            return;
        }
        let asks = *meta.level() <= Level::WARN;
        if let Some((_, command)) = text.split_once(COMMAND).filter(|_| asks) {
            self.log.inner().commands.push(command.to_owned());
        }
        let verbose = self.log.inner().verbose;
        if *meta.level() <= Level::INFO || verbose {
            self.log.say(&meta.level().as_str().to_lowercase(), &text);
        }
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            let _ = write!(self.fields, " {}={value:?}", field.name());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.fields, " {}={value}", field.name());
    }
}
