//! The findings of `check`: one line for each subject, or for each problem with it.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::cli::exit::SUCCESS;
use crate::cli::plan_text::count;
use crate::cli::table::plain;
use model::PoolName;
use settings::{Finding, Report};

const GOOD: Style = AnsiColor::Green.on_default();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
const WRONG: Style = AnsiColor::Red.on_default();
/// The maximum width of the subject column. If a subject is longer, its verdict is not aligned with the
/// others.
const WIDEST: usize = 60;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    /// The daemon works, but perhaps not as its administrator intends.
    Warning,
    Error,
}

/// One line of the output.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    /// The pool that the line is about; none if it concerns all pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The subject.
    pub what: String,
    pub level: Level,
    /// False if the level is an error, otherwise true.
    pub ok: bool,
    pub message: String,
    /// The setting to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'static str>,
    /// How to fix the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The place in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Place>,
    /// How many findings the line stands for.
    #[serde(skip)]
    pub stands_for: usize,
}

/// A place in the configuration: line and column, counted from 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Place {
    line: usize,
    column: usize,
}

/// All findings, and the resulting exit status.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub lines: Vec<Line>,
    pub status: u8,
}

impl Line {
    fn new(what: impl Into<String>, level: Level, message: impl Into<String>) -> Self {
        Self {
            pool: None,
            what: what.into(),
            level,
            ok: level != Level::Error,
            message: message.into(),
            key: None,
            help: None,
            at: None,
            stands_for: 1,
        }
    }

    pub(super) fn good(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(what, Level::Ok, message)
    }

    pub(super) fn doubtful(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(what, Level::Warning, message)
    }

    pub(super) fn wrong(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(what, Level::Error, message)
    }

    pub(super) fn finding(path: &str, finding: &Finding, report: &Report) -> Self {
        let at = report.position(finding).map(|(line, column)| Place { line, column });
        Self { at, help: finding.help.clone(), ..Self::wrong(format!("config {path}"), &finding.title) }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Sets how many findings the line stands for.
    pub(super) fn counts(self, stands_for: usize) -> Self {
        Self { stands_for, ..self }
    }

    pub(super) fn key(self, key: &'static str) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(super) fn of(self, pool: &str) -> Self {
        Self { pool: Some(pool.into()), ..self }
    }
}

impl Answer {
    /// Adds a line. If it is an error, raises the exit status to at least `status`.
    pub(super) fn say(&mut self, line: Line, status: u8) {
        if line.level == Level::Error {
            self.status = self.status.max(status);
        }
        self.lines.push(line);
    }

    /// Adds the problems of one subject, or `good` if there are none.
    pub(super) fn say_all(&mut self, wrong: Vec<Line>, good: Line, status: u8) {
        if wrong.is_empty() {
            self.say(good, SUCCESS);
        }
        for line in wrong {
            self.say(line, status);
        }
    }

    pub(super) fn render(&self) -> String {
        let subject =
            |line: &Line| if line.pool.is_some() { format!("  {}", line.what) } else { line.what.clone() };
        let width =
            self.lines.iter().map(|line| subject(line).chars().count()).filter(|width| *width <= WIDEST);
        let width = width.max().unwrap_or(0);
        let mut out = String::new();
        let mut before: Option<&Line> = None;
        for line in &self.lines {
            if let Some(pool) =
                line.pool.as_ref().filter(|pool| before.and_then(|it| it.pool.as_ref()) != Some(pool))
            {
                let _ = writeln!(out, "pool {pool}");
            }
            let (style, verdict) = match line.level {
                Level::Ok => (GOOD, "ok     "),
                Level::Warning => (DOUBTFUL, "warning"),
                Level::Error => (WRONG, "error  "),
            };
            let _ = writeln!(
                out,
                "{:width$}   {style}{verdict}{style:#}   {}",
                plain(&subject(line)),
                plain(&line.message)
            );
            if let Some(help) = &line.help {
                let _ = writeln!(out, "    help: {}", plain(help));
            }
            before = Some(line);
        }
        self.conclude(&mut out);
        out
    }

    /// Writes the number of errors and warnings, and what follows from them.
    fn conclude(&self, out: &mut String) {
        let of_level = |level| self.lines.iter().filter(move |line| line.level == level);
        let number = |level| of_level(level).map(|line| line.stands_for).sum();
        let counts: [(usize, &str); 2] =
            [(number(Level::Error), "error"), (number(Level::Warning), "warning")];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| count(number, what))
            .collect();
        if counts.is_empty() {
            return;
        }
        let _ = write!(out, "\n{}", counts.join(", "));
        let general = self.lines.iter().any(|line| line.level == Level::Error && line.pool.is_none());
        let mut pools: Vec<String> = self
            .lines
            .iter()
            .filter(|line| line.level == Level::Error)
            .filter_map(|line| line.pool.as_ref().map(|pool| format!("`{pool}`")))
            .collect();
        pools.dedup();
        if !general && !pools.is_empty() {
            let one = if pools.len() == 1 { "pool" } else { "pools" };
            let _ = write!(
                out,
                ": `run` would start, but {one} {} would not work as configured",
                pools.join(", ")
            );
        }
        out.push('\n');
    }
}
