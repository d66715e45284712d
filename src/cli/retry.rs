//! `retry`: back-offs end.

use std::path::PathBuf;

use clap::Args;

use super::exit::{Failure, SUCCESS};
use super::table::plain;
use super::{input, pause};
use observability::{DEFAULT_SOCKET, Order};

const WHAT: &str = "\
After a failure, a host or pool is left alone for `backoff_initial`, longer each time up to `backoff_max`; `status` says for how
long, and why. Once the cause is mended, this ends the waiting: of one host or pool, or of all. The next failure begins with the
first length again.

It may be given at any instance, whichever leads. Only root and the daemon's own user may do so.";

/// Arguments of `retry`.
#[derive(Debug, Args)]
#[command(after_help = WHAT)]
pub(super) struct Arguments {
    /// The host or pool, as `status` names it; all of them unless given
    #[arg(value_name = "HOST|POOL")]
    name: Option<String>,
    /// Where the daemon listens
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    pause::give(&arguments.socket, Order::Retry { name: arguments.name.clone() })?;
    let what = arguments.name.as_deref().map_or_else(|| "everything".to_owned(), plain);
    input::text(&format!("{what} that is left alone is tried again now; `status` shows what comes of it\n"))?;
    Ok(SUCCESS)
}
