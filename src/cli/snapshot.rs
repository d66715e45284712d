//! `snapshot`: what `plan` reads, from the live cluster.

use clap::Args;

use super::exit::{Failure, SUCCESS};
use super::input::{self, ConfigFile};
use super::live;
use crate::snapshot;

/// Arguments of `snapshot`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let config = arguments.config.load()?;
    let seen = live::snapshot(&config, None)?;
    let text = snapshot::write(&seen).map_err(|error| Failure::Output(std::io::Error::other(error)))?;
    input::text(&text)?;
    Ok(SUCCESS)
}
