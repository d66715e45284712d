//! `adopt`: a worker that others made becomes a machine of a pool.

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
  the VM and the Node are one: the VM's SMBIOS uuid is the Node's systemUUID, and both have one name
  the VM has a slot in the pool: its VMID is one of `vmids`, the Node's address the one that goes with it (or `addresses = \"dhcp\"`)
  it is in the resource pool of the machines, runs, and is not locked, protected, managed by HA, or of another autoscaler of this kind
  no snapshot and no disk that would be destroyed with it, unless the pool names that in `extra_disks`
  it is ready, no node of the control plane, and the pool has room below `max`

Effects
  it writes the machine's record, our mark and tag into the VM's notes and tags, and the pool's labels, taints and annotations onto
    the Node; nothing else is changed
  from then on the daemon treats it as any machine of its own: a node that is no longer needed is drained, and ITS VM IS DESTROYED

Without `--yes` nothing is written: it says what would be, or everything that speaks against it. It may be repeated.";

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
    /// Do it: from then on the VM may be destroyed once no pod needs the node
    #[arg(long)]
    yes: bool,
    /// Say what would be written, and write nothing, as without `--yes`
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    config: ConfigFile,
    /// Where the daemon listens, to notify it
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// How to print
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
            "the configuration says `mode = \"observe\"`: nothing is taken over".to_owned(),
        ));
    }
    // What is looked at is the cluster that the pool is on.
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
            say(arguments, "already", &[format!("{name} is a machine of pool `{}` already", pool.name)])?;
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
        vec![format!("{} is a machine of pool `{}` now (VM {})", record.name, pool.name, record.slot.vmid)];
    if !told {
        lines.push(
            "no daemon answered here: one that leads elsewhere takes it up once it sees the node's new label"
                .to_owned(),
        );
    }
    say(arguments, "adopted", &lines)?;
    Ok(SUCCESS)
}

/// What would be written, for a person.
fn proposal(adoption: &Adoption) -> Vec<String> {
    let record = &adoption.record;
    let vmid = record.slot.vmid;
    let address = record.slot.address.map_or_else(|| "by DHCP".to_owned(), |address| address.to_string());
    let mut lines = vec![format!(
        "{} may become a machine of pool `{}`: VM {vmid} on {}, address {address}",
        record.name, record.pool, record.host
    )];
    if !adoption.stored {
        lines.push(format!("would write the record machine-{}-{vmid} in Kubernetes", record.pool));
    }
    for (key, value) in &adoption.change {
        let first = value.lines().next().unwrap_or_default();
        let what =
            if key == "description" { format!("{first}, before what is there") } else { first.to_owned() };
        lines.push(format!("would set `{key}` of VM {vmid}: {what}"));
    }
    let labels = adoption.labels.iter().map(|(key, value)| format!("would label the node: {key}={value}"));
    let taints = adoption.taints.iter().map(|taint| format!("would taint the node: {}", taint.key));
    lines.extend(labels.chain(taints));
    lines.extend(adoption.remarks.iter().map(|remark| format!("note: {remark}")));
    lines.push(
        "once it is no longer needed, it is drained and ITS VM IS DESTROYED; `--yes` does it".to_owned(),
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

/// Has the daemon on this host read its records again; a daemon that leads elsewhere does so by itself.
async fn tell(socket: &Path) -> bool {
    order(socket, Order::Reread).await.is_ok()
}

fn failed(error: AdoptionError) -> Failure {
    match error {
        AdoptionError::Kubernetes(error) => Failure::Unreachable("Kubernetes".to_owned(), error.into()),
        AdoptionError::Proxmox(error) => Failure::Unreachable("Proxmox VE".to_owned(), error.into()),
        AdoptionError::NoNode(_) => Failure::NotFound(error.to_string()),
        AdoptionError::Record(_) | AdoptionError::Unmarked { .. } | AdoptionError::Unlabelled { .. } => {
            Failure::Unreachable("it was not finished".to_owned(), error.into())
        }
    }
}
