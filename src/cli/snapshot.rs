//! `snapshot`: writes the input of `plan`, from the live cluster or a recording.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;

use super::exit::{Failure, SUCCESS};
use super::input::{self, ConfigFile};
use super::live;
use model::Snapshot;
use recording::Recording;

/// Arguments of `snapshot`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// Read this folder of recorded rounds (`[record] days`) instead of the live cluster
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Use the last recorded round at or before this time, in RFC 3339 (default: the last one)
    #[arg(long, value_name = "TIME", requires = "records")]
    at: Option<Timestamp>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let seen = match &arguments.records {
        Some(folder) => recorded(folder, arguments.at)?,
        None => live::snapshot(&arguments.config.load()?, None)?,
    };
    let text = snapshot::write(&seen).map_err(|error| Failure::Output(std::io::Error::other(error)))?;
    input::text(&text)?;
    Ok(SUCCESS)
}

fn recorded(folder: &Path, at: Option<Timestamp>) -> Result<Snapshot, Failure> {
    let recording = Recording::open(folder).map_err(Failure::Recording)?;
    let (seen, damages) = recording.at(at.unwrap_or(Timestamp::MAX)).map_err(Failure::Recording)?;
    for damage in damages {
        anstream::eprintln!("warning: {damage}");
    }
    Ok(seen)
}
