//! `adopt`: turns an existing worker into a machine of a pool.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::exit::{FINDINGS, Failure, SUCCESS};
use super::input::{self, ConfigFile};
use super::table::plain;
use super::{Output, live};
use machines::adoption::{self, Adoption, AdoptionError, Judgement};
use observability::{DEFAULT_SOCKET, Order, order};
use runtime::clock::{Clock, SystemClock};
use settings::{Config, Mode, Pool};

const HELP: &str = "\
Requirements
  the VM and the Node belong together: the VM's SMBIOS uuid is the Node's systemUUID, and both have the same name
  the VM has a slot in the pool: its VMID is in `vmids`, and the Node has that slot's address (or `addresses = \"dhcp\"`)
  the VM is in the machines' resource pool, is running, and is not locked, protected, managed by HA, or owned by another pve-autoscaler
  the VM has no snapshots, and no other disks that would be destroyed with it, except those in the pool's `extra_disks`
  the Node is ready and not part of the control plane, and the pool has room below `max`

Effects
  the machine's record is written, the VM gets the daemon's mark in its notes and the daemon's tag, and the Node gets the pool's
    labels, taints and annotations; nothing else changes
  from then on the daemon treats the VM like any other machine: once the node is no longer needed, it is drained and ITS VM IS DESTROYED

Without `--yes` nothing is written: the command lists what it would write, or everything that prevents the adoption. It can be run again.";

/// Arguments of `adopt`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The node, as `kubectl get nodes` names it
    #[arg(value_name = "NODE")]
    node: String,
    /// The pool to adopt the node into
    #[arg(long, value_name = "POOL")]
    pool: String,
    /// Adopt the node, so that the daemon destroys its VM once the node is no longer needed
    #[arg(long)]
    yes: bool,
    /// Show what would be written without writing it (the default without `--yes`)
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    config: ConfigFile,
    /// The socket of the daemon to notify
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let config = arguments.config.load()?;
    let pool = config.pools.iter().find(|pool| pool.name == arguments.pool);
    let pool = pool.ok_or_else(|| {
        Failure::NotFound(format!("the configuration has no pool `{}`", plain(&arguments.pool)))
    })?;
    if arguments.yes && config.mode == Mode::Observe {
        return Err(Failure::NotFound(
            "the configuration has `mode = \"observe\"`: no worker can be adopted".to_owned(),
        ));
    }
    // Only the pool's own Proxmox VE cluster is needed.
    let alone = config.alone(&pool.prefix);
    let here = alone.pools.iter().find(|one| one.name == pool.name).unwrap_or(pool);
    live::block_on(adopt(arguments, &alone, here))
}

async fn adopt(arguments: &Arguments, config: &Config, pool: &Pool) -> Result<u8, Failure> {
    let client = live::proxmox(config)?;
    let cluster = live::kubernetes(config).await?;
    let found = adoption::look(&client, &cluster, &arguments.node).await.map_err(failed)?;
    let id = uuid::Uuid::new_v4().to_string();
    let judgement = adoption::judge(config, pool, &found, &id, SystemClock.now());
    let adoption = match judgement {
        Judgement::May(adoption) => adoption,
        Judgement::Already(name) => {
            say(arguments, "already", &[format!("{name} is already a machine of pool `{}`", pool.name)])?;
            return Ok(SUCCESS);
        }
        Judgement::Not(against) => {
            say(arguments, "refused", &against)?;
            return Ok(FINDINGS);
        }
    };
    if !arguments.yes {
        say(arguments, "possible", &proposal(&adoption))?;
        return Ok(SUCCESS);
    }
    adoption::carry_out(&client, &cluster, config, &adoption).await.map_err(failed)?;
    let told = tell(&arguments.socket).await;
    let record = &adoption.record;
    let mut lines =
        vec![format!("{} is now a machine of pool `{}` (VM {})", record.name, pool.name, record.slot.vmid)];
    if !told {
        lines.push(
            "no daemon answered on this host; if the leader runs on another host, it picks up the \
                machine once it sees the node's new label"
                .to_owned(),
        );
    }
    say(arguments, "adopted", &lines)?;
    Ok(SUCCESS)
}

/// Lines that describe what would be written.
fn proposal(adoption: &Adoption) -> Vec<String> {
    let record = &adoption.record;
    let vmid = record.slot.vmid;
    let address = record.slot.address.map_or_else(|| "by DHCP".to_owned(), |address| address.to_string());
    let mut lines = vec![format!(
        "{} can become a machine of pool `{}`: VM {vmid} on {}, address {address}",
        record.name, record.pool, record.host
    )];
    if !adoption.stored {
        lines.push(format!("would write the record machine-{}-{vmid} in Kubernetes", record.pool));
    }
    for (key, value) in &adoption.change {
        let first = value.lines().next().unwrap_or_default();
        let what = if key == "description" {
            format!("{first}, before the existing text")
        } else {
            first.to_owned()
        };
        lines.push(format!("would set `{key}` of VM {vmid}: {what}"));
    }
    let labels = adoption.labels.iter().map(|(key, value)| format!("would label the node: {key}={value}"));
    let taints = adoption.taints.iter().map(|taint| format!("would taint the node: {}", taint.key));
    lines.extend(labels.chain(taints));
    lines.extend(adoption.remarks.iter().map(|remark| format!("note: {remark}")));
    lines.push(
        "once the node is no longer needed, the daemon drains it and DESTROYS ITS VM; to adopt the \
            node, add `--yes`"
            .to_owned(),
    );
    lines
}

fn say(arguments: &Arguments, outcome: &str, lines: &[String]) -> Result<(), Failure> {
    if arguments.output == Output::Json {
        let about =
            json!({ "node": arguments.node, "pool": arguments.pool, "outcome": outcome, "lines": lines });
        return input::json(&about);
    }
    let refused = (outcome == "refused")
        .then(|| format!("{} cannot become a machine of pool `{}`:", arguments.node, arguments.pool));
    let mark = if refused.is_some() { "  " } else { "" };
    let lines: Vec<_> = refused.into_iter().chain(lines.iter().map(|line| format!("{mark}{line}"))).collect();
    let text: String = lines.iter().map(|line| plain(line) + "\n").collect();
    input::text(&text)
}

/// Tells the daemon on this host to read its records again, and returns whether it accepted. A leader on
/// another host reads them again by itself.
async fn tell(socket: &Path) -> bool {
    order(socket, Order::Reread).await.is_ok()
}

fn failed(error: AdoptionError) -> Failure {
    match error {
        AdoptionError::Kubernetes(error) => Failure::Unreachable("Kubernetes".to_owned(), error.into()),
        AdoptionError::Proxmox(error) => Failure::Unreachable("Proxmox VE".to_owned(), error.into()),
        AdoptionError::NoNode(_) => Failure::NotFound(error.to_string()),
        AdoptionError::Record(_) | AdoptionError::Unmarked { .. } | AdoptionError::Unlabelled { .. } => {
            Failure::Unreachable("the adoption was not finished".to_owned(), error.into())
        }
    }
}
