//! `check`: is the configuration right?

use clap::Args;

use super::Output;
use super::exit::{Failure, SUCCESS, USAGE};
use super::input::{self, ConfigFile};
use crate::config;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let loaded = config::load(&arguments.config.config);
    if arguments.output == Output::Json {
        let findings: Vec<_> = match &loaded {
            Ok(_) => Vec::new(),
            Err(report) => report
                .findings()
                .iter()
                .map(|one| serde_json::json!({"level": "error", "message": one.title, "help": one.help}))
                .collect(),
        };
        input::json(&serde_json::json!({"config": arguments.config.config, "findings": findings}))?;
        return Ok(if loaded.is_ok() { SUCCESS } else { USAGE });
    }
    let config = loaded.map_err(Failure::Configuration)?;
    let (least, most) =
        config.pools.iter().fold((0, 0), |(least, most), pool| (least + pool.min, most + pool.max));
    let pools = config.pools.len();
    let plural = if pools == 1 { "" } else { "s" };
    let path = arguments.config.config.display();
    input::text(&format!("config    {path}    ok   {pools} pool{plural}, {least} to {most} nodes\n"))?;
    Ok(SUCCESS)
}
