//! `pinning-helper`: the command that `pve-autoscaler-pinning@.service` runs as root for each request. Users
//! do not run it.

use clap::Args;

use super::exit::{Failure, SUCCESS};
use super::input::ConfigFile;
use pinning::helper::{Places, serve_stdin};

/// Arguments of `pinning-helper`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::System("start", error))?;
    let places = Places::of_host(&arguments.config.config);
    let served = runtime.block_on(serve_stdin(&places));
    served.map_err(|error| Failure::System("serve the connection on standard input", error))?;
    Ok(SUCCESS)
}
