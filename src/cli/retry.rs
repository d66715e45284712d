//! `retry`: ends back-offs.

use std::path::PathBuf;

use clap::Args;

use super::exit::{Failure, SUCCESS};
use super::table::plain;
use super::{input, pause};
use observability::{DEFAULT_SOCKET, Order};

const WHAT: &str = "\
After a failure, a host or pool is in back-off for `backoff_initial`. Each further failure makes the back-off longer, up to
`backoff_max`. `status` shows how long the back-off lasts, and why. Once the cause is fixed, this command ends the back-off of
one host or pool, or of all. After the next failure, the back-off lasts `backoff_initial` again.

Any instance accepts this command, even if it does not lead. Only root and the daemon's own user may run it.";

/// Arguments of `retry`.
#[derive(Debug, Args)]
#[command(after_help = WHAT)]
pub(super) struct Arguments {
    /// The host or pool, as `status` names it (default: all of them)
    #[arg(value_name = "HOST|POOL")]
    name: Option<String>,
    /// The socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    pause::give(&arguments.socket, Order::Retry { name: arguments.name.clone() })?;
    let what = arguments.name.as_deref().map_or_else(|| "every host and pool in back-off".to_owned(), plain);
    input::text(&format!("{what} is retried now; `status` shows the result\n"))?;
    Ok(SUCCESS)
}
