//! `pause` and `resume`: the switch that stops everything.

use std::path::PathBuf;

use clap::Args;

use super::exit::{Failure, SUCCESS};
use super::{input, live};
use observability::{DEFAULT_SOCKET, Order, SocketError, order};

const WHAT: &str = "\
Effects
  while it is paused, no machine is made and none is removed, not even to keep a pool at its minimum
  machines that are being made are finished; those whose clone was not begun wait
  drains are given up: their nodes serve again
  VMs that are being shut down or destroyed are finished
  nodes that are not needed do not come nearer to their end

The switch is kept in Kubernetes (ConfigMap `autoscaler-state`, key `paused`): it holds for all instances, whichever leads, and
over restarts. Only root and the daemon's own user may turn it.";

/// Arguments of `pause`.
#[derive(Debug, Args)]
#[command(after_help = WHAT)]
pub(super) struct Pause {
    /// Why, for those who look at `status` or the log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Where the daemon listens
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub(super) struct Resume {
    /// Where the daemon listens
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn pause(arguments: &Pause) -> Result<u8, Failure> {
    let reason = arguments.reason.trim().to_owned();
    give(&arguments.socket, Order::Pause { reason })?;
    input::text("paused: nothing new is begun until `pve-autoscaler resume`\n")?;
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
