//! Pins machines on this instance's own host to CPUs. For each machine that is waiting for CPUs, this
//! instance asks the host's helper to pin the VM, even if another instance leads. The leader then sees the
//! result in the VM's configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Deps;
use model::{MachineId, Record};
use observability::{Board, Problem};
use pinning::{Answer, Astray, Request};
use runtime::error_chain::chain;
use settings::Config;

/// How often the daemon checks for waiting machines, if any pool pins its machines to CPUs.
const BEAT: Duration = Duration::from_secs(2);
/// The minimum time between two requests to the helper for the same machine. The leader takes a moment to see
/// the result, and a refusal is rarely temporary.
const AGAIN: Duration = Duration::from_secs(10);
/// How often the helper is asked whether machines run on the CPUs to which they are pinned.
const READ_BACK: Duration = Duration::from_mins(1);
/// After this many failed checks in a row, the result of the last successful one is no longer reported.
const FORGOTTEN: u32 = 3;

/// Asks the helper periodically; never ends.
pub(super) async fn serve(deps: &Deps) {
    let host = super::host_of(&deps.instance);
    let mut config = deps.config.clone();
    let mut asked = BTreeMap::new();
    let mut refused = BTreeMap::new();
    let mut read: Option<Instant> = None;
    let mut failures = 0;
    loop {
        if wanted(&config.borrow_and_update()) {
            round(deps, host, &mut asked, &mut refused).await;
            if read.is_none_or(|at| at.elapsed() >= READ_BACK) {
                match read_back(deps).await {
                    Ok(astray) => {
                        failures = 0;
                        show_astray(&deps.board, &astray, host);
                    }
                    Err(why) => {
                        tracing::debug!(why, "cannot determine which CPUs the machines run on");
                        failures += 1;
                    }
                }
                // The last report is too old: the machines in it may have been replaced, or may run on their
                // own CPUs again.
                if failures >= FORGOTTEN {
                    deps.board.clear(&Problem::PinningAstray);
                }
                read = Some(Instant::now());
            }
            tokio::time::sleep(BEAT).await;
        } else {
            refused.clear();
            show(&deps.board, &refused);
            deps.board.clear(&Problem::PinningAstray);
            if config.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn wanted(config: &Config) -> bool {
    config.pools.iter().any(|pool| pool.pinning.is_some())
}

/// Asks the helper for CPUs for each waiting machine, unless it was recently asked for the same machine. A
/// refusal is kept in `refused`, and is reported for as long as the machine waits.
async fn round(
    deps: &Deps,
    host: &str,
    asked: &mut BTreeMap<MachineId, Instant>,
    refused: &mut BTreeMap<MachineId, String>,
) {
    let waiting: Vec<Record> = match deps.kubernetes.awaiting_cpus(host).await {
        Ok(waiting) => {
            let config = deps.config.borrow();
            // Another cluster may have a host of the same name, whose machines are handled by another helper.
            let is_here =
                |record: &Record| config.is_at_home(config.prefix(record.region.as_deref())) != Some(false);
            waiting.into_iter().filter(is_here).collect()
        }
        Err(error) => {
            tracing::debug!(
                error = chain(&error),
                "cannot determine which machines are waiting for CPUs on this host"
            );
            return;
        }
    };
    let waits = |id: &MachineId| waiting.iter().any(|record| record.id == *id);
    asked.retain(|id, at| at.elapsed() < AGAIN && waits(id));
    refused.retain(|id, _| waits(id));
    for record in &waiting {
        if asked.contains_key(&record.id) {
            continue;
        }
        match ask(deps, record).await {
            Ok(()) => refused.remove(&record.id),
            Err(why) => refused.insert(record.id.clone(), why),
        };
        asked.insert(record.id.clone(), Instant::now());
    }
    show(&deps.board, refused);
}

/// Asks the helper to pin one machine. The error is the reason why the machine is not pinned: the helper
/// refused, or gave no usable answer.
async fn ask(deps: &Deps, record: &Record) -> Result<(), String> {
    let (name, vmid) = (&record.name, record.slot.vmid);
    let request = Request::Pin { vmid: vmid.0, machine: record.id.to_string() };
    let why = match deps.helper.ask(request).await {
        Ok(Answer::Pinned { affinity, changed }) => {
            tracing::info!(machine = %name, vmid = vmid.0, cpus = affinity, changed, "the machine is pinned to dedicated CPUs");
            return Ok(());
        }
        Ok(Answer::Refused { reason }) => reason,
        Ok(Answer::Free { .. } | Answer::Runs { .. }) => {
            "the helper's answer does not match the request".to_owned()
        }
        Err(error) => chain(&error),
    };
    tracing::warn!(machine = %name, vmid = vmid.0, why, "the machine could not be pinned to dedicated CPUs");
    Err(format!("{name} could not be pinned to dedicated CPUs: {why}"))
}

/// Asks the helper which machines run on CPUs other than their own. The helper reads this from the kernel,
/// because a VM's configuration only shows which CPUs were requested from Proxmox VE.
async fn read_back(deps: &Deps) -> Result<Vec<Astray>, String> {
    match deps.helper.ask(Request::Runs {}).await {
        Ok(Answer::Runs { astray }) => Ok(astray),
        Ok(Answer::Refused { reason }) => Err(reason),
        Ok(Answer::Pinned { .. } | Answer::Free { .. }) => {
            Err("the helper's answer does not match the request".to_owned())
        }
        Err(error) => Err(chain(&error)),
    }
}

fn show_astray(board: &Board, astray: &[Astray], host: &str) {
    match astray.first() {
        Some(one) => board.problem(&Problem::PinningAstray, &on_others(one, host, astray.len() - 1)),
        None => board.clear(&Problem::PinningAstray),
    }
}

fn on_others(one: &Astray, host: &str, more: usize) -> String {
    let Astray { vmid, name, affinity, on } = one;
    let more = if more == 0 { String::new() } else { format!(", as do {more} more") };
    format!(
        "{name} (VM {vmid}) runs on CPUs {on} of {host}, not only on its own CPUs (`affinity` is \
            {affinity}){more}: replace the machine (`pve-autoscaler retire {name}`)"
    )
}

/// Reports only one refusal, even if several machines were refused, because all refusals come from the same
/// helper.
fn show(board: &Board, refused: &BTreeMap<MachineId, String>) {
    match refused.values().next() {
        Some(what) => board.problem(&Problem::Pinning, what),
        None => board.clear(&Problem::Pinning),
    }
}
