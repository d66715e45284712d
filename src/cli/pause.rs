//! `pause` and `resume`: stop all new work, and resume it.

use std::path::PathBuf;

use clap::Args;

use super::exit::{Failure, SUCCESS};
use super::{input, live};
use observability::{DEFAULT_SOCKET, Order, SocketError, order};

const WHAT: &str = "\
Effects
  no machine is added, not even to keep a pool at its minimum, and no removal begins
  machines whose cloning has begun are completed; the others wait
  drains are given up, and the nodes return to service
  VM shutdowns and removals already in progress are completed
  unneeded nodes come no closer to removal during the pause

The pause is kept in Kubernetes (ConfigMap `autoscaler-state`, key `paused`): it applies to all instances, whichever leads, and
survives restarts. Only root and the daemon's own user may pause and resume.";

/// Arguments of `pause`.
#[derive(Debug, Args)]
#[command(after_help = WHAT)]
pub(super) struct Pause {
    /// The reason, shown in `status` and the log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// The socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub(super) struct Resume {
    /// The socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn pause(arguments: &Pause) -> Result<u8, Failure> {
    let reason = arguments.reason.trim().to_owned();
    give(&arguments.socket, Order::Pause { reason })?;
    input::text("paused: starting nothing new until `pve-autoscaler resume`\n")?;
    Ok(SUCCESS)
}

pub(super) fn resume(arguments: &Resume) -> Result<u8, Failure> {
    give(&arguments.socket, Order::Resume)?;
    input::text("resumed\n")?;
    Ok(SUCCESS)
}

pub(super) fn give(socket: &std::path::Path, what: Order) -> Result<(), Failure> {
    let refused = |error| match error {
        SocketError::Refused { reason } => Failure::Refused(reason),
        other => Failure::NotRunning(other),
    };
    live::block_on(async { order(socket, what).await.map_err(refused) })
}
