//! `plan`: what the daemon would decide, and why.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;

use super::exit::{Failure, SUCCESS};
use super::input::{self, ConfigFile};
use super::{Output, live, plan_text};

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// A file of Kubernetes objects as kubectl prints them, or `-` for standard input (default: the live
    /// cluster)
    #[arg(long)]
    snapshot: Option<PathBuf>,
    /// The time of the decision, in RFC 3339 (default: the snapshot's time, else the current time)
    #[arg(long)]
    now: Option<Timestamp>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let config = arguments.config.load()?;
    let snapshot = match &arguments.snapshot {
        Some(file) => input::snapshot(file, arguments.now)?,
        None => live::snapshot(&config, arguments.now)?,
    };
    let plan = planning::plan(&snapshot, &config);
    match arguments.output {
        Output::Json => input::json(&plan)?,
        Output::Text => input::text(&plan_text::render(&plan))?,
    }
    Ok(SUCCESS)
}
