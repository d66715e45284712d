//! `retire`, `pin` and `unpin`: what an operator wants of a single node.

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
  it is refused if a pod must stay by the rules of `[scale_down]`, with the pod and the rule
  if its pool is at its minimum, or its pods fit on no other node, another machine is made first, provided that `max` allows one
  the node is closed and drained as at any removal: disruption budgets are respected, and a pod that must stay and came since ends the drain
  its machine is shut down and destroyed
  a drain that is given up leaves the node in service, and is not tried again: `history NODE` says why

Other than a removal that the daemon decides on, it waits for no timer or cool-down.
The wish is kept on the Node (annotation `pve-autoscaler/retire`): it holds for all instances and over restarts; `pin` takes it
back.";

const PIN: &str = "\
The Node gets the annotation `pve-autoscaler/scale-down-disabled=true`, which holds for all instances and over restarts. The node
is not removed then, neither because it is unneeded nor because it is not ready; a drain that has begun is given up. Pods still
come to it: for maintenance, cordon it as well (`kubectl cordon`).";

/// Arguments of `retire`.
#[derive(Debug, Args)]
#[command(after_help = RETIRE)]
pub(super) struct Retire {
    #[command(flatten)]
    node: Named,
    /// Why, for those who look at `status` or the log
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Arguments of `pin`.
#[derive(Debug, Args)]
#[command(after_help = PIN)]
pub(super) struct Pin {
    #[command(flatten)]
    node: Named,
    /// Why, for those who look at `history` or the Node (annotation
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
    /// Where the daemon listens
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn retire(arguments: &Retire) -> Result<u8, Failure> {
    let node = arguments.node.node.clone();
    let order = Order::Retire { node, reason: arguments.reason.trim().to_owned() };
    let words = "is retired as soon as its pool can do without it (`status` shows how far it is)";
    give(&arguments.node, order, "retire", words)
}

pub(super) fn pin(arguments: &Pin) -> Result<u8, Failure> {
    let node = arguments.node.node.clone();
    let order = Order::Pin { node, reason: arguments.reason.trim().to_owned() };
    give(&arguments.node, order, "pin", "stays until `pve-autoscaler unpin`")
}

pub(super) fn unpin(arguments: &Node) -> Result<u8, Failure> {
    let order = Order::Unpin { node: arguments.node.node.clone() };
    give(&arguments.node, order, "unpin", "is treated as any other again")
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
