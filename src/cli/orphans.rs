//! `orphans`: VMs with this cluster's mark but no record, and the evidence that they are left over.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;

use super::exit::{Failure, SUCCESS};
use super::table::plain;
use super::{Output, input, live};
use observability::{DEFAULT_SOCKET, OrphanStatus, Status, ask};

const WHAT: &str = "\
Causes
  a machine's record (a ConfigMap) was deleted by hand
  etcd was restored from a backup older than the machine
  an administrator copied a machine's VM with its notes

Outcomes
  with `orphans = \"report\"`, the default, such VMs are left alone
  with `orphans = \"collect\"`, at most one an hour is destroyed, and only if all the evidence is available and still holds
    right before the VM is destroyed
  to keep such a VM, remove the first line of the VM's notes: then it no longer counts as a machine";

/// Arguments of `orphans`.
#[derive(Debug, Args)]
#[command(after_help = WHAT)]
pub(super) struct Arguments {
    /// The socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let asked = async { ask(&arguments.socket).await.map_err(Failure::NotRunning) };
    let status = live::block_on(asked)?;
    match arguments.output {
        Output::Json => input::json(&status.orphans)?,
        Output::Text => input::text(&render(&status))?,
    }
    Ok(SUCCESS)
}

fn render(status: &Status) -> String {
    let mut out = String::new();
    if !status.leads {
        let leader = &status.leader;
        let name = if leader.is_empty() { String::new() } else { format!(" ({})", plain(leader)) };
        let _ =
            writeln!(out, "this instance does not lead, so it has no list of orphans: ask the leader{name}");
    } else if status.orphans.is_empty() {
        out.push_str("every VM with this cluster's mark has a record\n");
    }
    for orphan in &status.orphans {
        one(orphan, &mut out);
    }
    out
}

fn one(orphan: &OrphanStatus, out: &mut String) {
    let OrphanStatus { vmid, host, name, proven, proof, missing } = orphan;
    let how = if *proven { "proven: left over" } else { "not proven" };
    let _ = writeln!(out, "VM {vmid} `{}` on {}: {how}", plain(name), plain(host));
    for what in proof {
        let _ = writeln!(out, "  proven   {}", plain(what));
    }
    for what in missing {
        let _ = writeln!(out, "  missing  {}", plain(what));
    }
}

#[cfg(test)]
mod tests {
    use model::Vmid;

    use super::*;

    #[test]
    fn each_has_its_proof_and_what_is_missing() {
        let orphan = OrphanStatus {
            vmid: Vmid(9100),
            host: "pve1".into(),
            name: "workers-b2x9k".to_owned(),
            proven: false,
            proof: vec!["no record refers to it".to_owned()],
            missing: vec!["it is protected (`protection`)".to_owned()],
        };
        let mut status = Status { leads: true, ..Status::default() };
        assert_eq!(render(&status), "every VM with this cluster's mark has a record\n");
        status.orphans = vec![orphan];
        assert_eq!(
            render(&status),
            "VM 9100 `workers-b2x9k` on pve1: not proven\n  proven   no record refers to it\n  missing  it is protected (`protection`)\n"
        );
        let status = Status { leader: "pve2".to_owned(), ..Status::default() };
        assert_eq!(
            render(&status),
            "this instance does not lead, so it has no list of orphans: ask the leader (pve2)\n"
        );
    }
}
