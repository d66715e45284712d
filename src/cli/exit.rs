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
/// The output could not be written.
pub const OUTPUT: u8 = 5;

pub(super) const HELP: &str = "Exit status: 0 success; 1 something was found wrong or not found; \
2 wrong command line or configuration; 3 a snapshot that cannot be read; 5 the output could not be written";

/// Why a command ended early.
#[derive(Debug)]
pub(super) enum Failure {
    /// The configuration is wrong.
    Configuration(Report),
    /// The snapshot cannot be read.
    Snapshot(SnapshotError),
    /// The snapshot's file cannot be read.
    File(String, std::io::Error),
    /// The output could not be written.
    Output(std::io::Error),
    /// What was asked for is not there.
    NotFound(String),
}

impl Failure {
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Configuration(_) => USAGE,
            Self::Snapshot(_) | Self::File(..) => SNAPSHOT,
            // A reader that has seen enough (`| head`) is no failure.
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => SUCCESS,
            Self::Output(_) => OUTPUT,
            Self::NotFound(_) => FINDINGS,
        }
    }

    pub(super) fn print(&self) {
        match self {
            Self::Configuration(report) => anstream::eprint!("{}", report.styled()),
            Self::Snapshot(error) => anstream::eprintln!("error: {}", chain(error)),
            Self::File(name, error) => {
                anstream::eprintln!("error: cannot read the snapshot `{name}`: {error}");
            }
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Self::Output(error) => anstream::eprintln!("error: cannot write the output: {error}"),
            Self::NotFound(what) => anstream::eprintln!("error: {what}"),
        }
    }
}

/// An error and what caused it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
