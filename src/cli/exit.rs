//! Exit statuses, and failures that become one.

use std::error::Error;

use crate::config::Report;
use crate::snapshot::SnapshotError;

/// All went well, whatever a plan says.
pub const SUCCESS: u8 = 0;
/// `check` found something; `explain` was asked for something that is not there.
pub const FINDINGS: u8 = 1;
/// Wrong command line or configuration.
pub const USAGE: u8 = 2;
/// A snapshot that cannot be read.
pub const SNAPSHOT: u8 = 3;
/// One of the clusters cannot be reached, or refuses.
pub const UNREACHABLE: u8 = 4;
/// The output could not be written.
pub const OUTPUT: u8 = 5;

pub(super) const HELP: &str = "Exit status: 0 success; 1 something was found wrong or not found; \
2 wrong command line or configuration; 3 a snapshot that cannot be read; 4 a cluster that cannot be reached or refuses; 5 the output could not be written";

/// Why a command ended early.
#[derive(Debug)]
pub(super) enum Failure {
    /// The configuration is wrong.
    Configuration(Report),
    /// The snapshot cannot be read.
    Snapshot(SnapshotError),
    /// The snapshot's file cannot be read.
    File(String, std::io::Error),
    /// The configuration lacks what the command needs.
    Lacking(&'static str),
    /// A secret or a certificate named by the configuration cannot be used.
    Named(String, Box<dyn Error + Send + Sync>),
    /// One of the clusters cannot be reached, or refuses.
    Unreachable(String, Box<dyn Error + Send + Sync>),
    /// The output could not be written.
    Output(std::io::Error),
    /// What was asked for is not there.
    NotFound(String),
}

impl Failure {
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Configuration(_) | Self::Lacking(_) | Self::Named(..) => USAGE,
            Self::Unreachable(..) => UNREACHABLE,
            Self::Snapshot(_) | Self::File(..) => SNAPSHOT,
            // A reader that has seen enough (`| head`) is no failure.
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => SUCCESS,
            Self::Output(_) => OUTPUT,
            Self::NotFound(_) => FINDINGS,
        }
    }

    /// What went wrong, in one line where it has no place in a file.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Named(what, error) | Self::Unreachable(what, error) => {
                format!("{what}: {}", chain(error.as_ref()))
            }
            Self::Lacking(table) => format!("the configuration has no table `[{table}]`"),
            Self::Configuration(report) => report.plain(),
            Self::Snapshot(error) => chain(error),
            Self::File(name, error) => format!("cannot read the snapshot `{name}`: {error}"),
            Self::Output(error) => format!("cannot write the output: {error}"),
            Self::NotFound(what) => what.clone(),
        }
    }

    pub(super) fn print(&self) {
        match self {
            Self::Configuration(report) => anstream::eprint!("{}", report.styled()),
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Self::Lacking(_) => anstream::eprintln!(
                "error: {}, which is needed to look at the live cluster\n\
                 help: add it (see config.example.toml), or give a file with `--snapshot`",
                self.words()
            ),
            _ => anstream::eprintln!("error: {}", self.words()),
        }
    }
}

/// An error and what caused it, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
