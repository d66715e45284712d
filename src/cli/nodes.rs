//! `retire`, `pin` and `unpin`: commands for a single node.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::exit::Failure;
use super::exit::SUCCESS;
use super::table::plain;
use super::{Output, input, pause};
use observability::{DEFAULT_SOCKET, Order};

const RETIRE: &str = "\
Effects
  the order is refused if, by the rules of `[scale_down]`, a pod must stay; the answer names the pod and the rule
  another machine is created first, up to `max`, if the pool is at its minimum or the node's pods fit on no other node
  the node is cordoned and drained as in any removal: disruption budgets are respected, and the drain is given up if a
    new pod must stay
  the node's machine is shut down and destroyed
  if the drain is given up, the node stays in service and is not retired again: `history NODE` shows why

Unlike a removal that the daemon decides on, this removal waits for no timer or cool-down.
The order is kept on the Node (annotation `pve-autoscaler/retire`): it applies to all instances and survives restarts. `pin` revokes
the order.";

const PIN: &str = "\
The Node gets the annotation `pve-autoscaler/scale-down-disabled=true`, which applies to all instances and survives restarts. The
node is then not removed, even if it is unneeded or not ready, and a drain that has begun is given up. Pods can still be scheduled
to the node: for maintenance, cordon it as well (`kubectl cordon`).";

/// Arguments of `retire`.
#[derive(Debug, Args)]
#[command(after_help = RETIRE)]
pub(super) struct Retire {
    #[command(flatten)]
    node: Named,
    /// The reason, shown in `status` and the log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Arguments of `pin`.
#[derive(Debug, Args)]
#[command(after_help = PIN)]
pub(super) struct Pin {
    #[command(flatten)]
    node: Named,
    /// The reason, shown in `history` and on the Node (annotation
    /// `pve-autoscaler/scale-down-disabled-reason`)
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Arguments of `unpin`.
#[derive(Debug, Args)]
#[command(after_help = PIN)]
pub(super) struct Node {
    #[command(flatten)]
    node: Named,
}

#[derive(Debug, Args)]
struct Named {
    /// The node, as `kubectl get nodes` names it
    #[arg(value_name = "NODE")]
    node: String,
    /// The socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn retire(arguments: &Retire) -> Result<u8, Failure> {
    let node = arguments.node.node.clone();
    let order = Order::Retire { node, reason: arguments.reason.trim().to_owned() };
    let words = "is retired as soon as its pool can spare it (`status` shows the progress)";
    give(&arguments.node, order, "retire", words)
}

pub(super) fn pin(arguments: &Pin) -> Result<u8, Failure> {
    let node = arguments.node.node.clone();
    let order = Order::Pin { node, reason: arguments.reason.trim().to_owned() };
    give(&arguments.node, order, "pin", "is kept until `pve-autoscaler unpin` releases it")
}

pub(super) fn unpin(arguments: &Node) -> Result<u8, Failure> {
    let order = Order::Unpin { node: arguments.node.node.clone() };
    give(&arguments.node, order, "unpin", "is treated like any other node again")
}

fn give(named: &Named, order: Order, name: &str, words: &str) -> Result<u8, Failure> {
    let socket: &Path = &named.socket;
    pause::give(socket, order)?;
    match named.output {
        Output::Json => input::json(&json!({ "order": name, "node": named.node, "accepted": true }))?,
        Output::Text => input::text(&format!("{} {words}\n", plain(&named.node)))?,
    }
    Ok(SUCCESS)
}
