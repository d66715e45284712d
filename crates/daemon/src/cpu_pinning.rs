//! CPUs for machines on this instance's own host: its helper is asked for those that wait, whichever instance
//! leads. Nothing is written here, to neither side: the leader sees in the VM's configuration what has become
//! of it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Deps;
use model::MachineId;
use model::Record;
use observability::{Board, Problem};
use pinning::{Answer, Astray, Request};
use runtime::error_chain::chain;
use settings::Config;

/// How often the daemon looks whether machines wait, while a pool has machines with CPUs of their own.
const BEAT: Duration = Duration::from_secs(2);
/// Until a machine is asked for again: the leader takes a moment to see what has become of it, and a refusal
/// passes seldom.
const AGAIN: Duration = Duration::from_secs(10);
/// How often the helper is asked whether machines run on the CPUs that they are pinned to.
const READ_BACK: Duration = Duration::from_mins(1);
/// After this many failures to find that out, what was found out before is no longer reported.
const FORGOTTEN: u32 = 3;

/// Serves until it is dropped.
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
                        tracing::debug!(why, "cannot tell which CPUs machines run on");
                        failures += 1;
                    }
                }
                // They may have been replaced meanwhile, or run on their own again.
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

/// Asks for each machine that waits and was not asked for just now. What was `refused` is reported for as
/// long as the machine waits.
async fn round(
    deps: &Deps,
    host: &str,
    asked: &mut BTreeMap<MachineId, Instant>,
    refused: &mut BTreeMap<MachineId, String>,
) {
    let waiting: Vec<Record> = match deps.kubernetes.awaiting_cpus(host).await {
        Ok(waiting) => {
            let config = deps.config.borrow();
            // A further cluster may have a host of the same name: its machines are another helper's.
            let is_here =
                |record: &Record| config.is_at_home(config.prefix(record.region.as_deref())) != Some(false);
            waiting.into_iter().filter(is_here).collect()
        }
        Err(error) => {
            tracing::debug!(error = chain(&error), "cannot tell which machines wait for CPUs here");
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

/// Why it has none, if its helper gives it none.
async fn ask(deps: &Deps, record: &Record) -> Result<(), String> {
    let (name, vmid) = (&record.name, record.slot.vmid);
    let request = Request::Pin { vmid: vmid.0, machine: record.id.to_string() };
    let why = match deps.helper.ask(request).await {
        Ok(Answer::Pinned { affinity, changed }) => {
            tracing::info!(machine = %name, vmid = vmid.0, cpus = affinity, changed, "the machine has CPUs of its own");
            return Ok(());
        }
        Ok(Answer::Refused { reason }) => reason,
        Ok(Answer::Free { .. } | Answer::Runs { .. }) => "its answer is not understood".to_owned(),
        Err(error) => chain(&error),
    };
    tracing::warn!(machine = %name, vmid = vmid.0, why, "the machine gets no CPUs of its own");
    Err(format!("{name} gets no CPUs of its own: {why}"))
}

/// A configuration says what Proxmox VE was asked for, and not what came of it: that the kernel knows. If
/// there is no helper, no machine was pinned by it.
async fn read_back(deps: &Deps) -> Result<Vec<Astray>, String> {
    match deps.helper.ask(Request::Runs {}).await {
        Ok(Answer::Runs { astray }) => Ok(astray),
        Ok(Answer::Refused { reason }) => Err(reason),
        Ok(Answer::Pinned { .. } | Answer::Free { .. }) => Err("its answer is not understood".to_owned()),
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
    let more = if more == 0 { String::new() } else { format!(", and {more} more likewise") };
    format!(
        "{name} (VM {vmid}) runs on the CPUs {on} of {host}, and not on those of its own alone (`affinity` is {affinity}){more}: replace \
         it (`pve-autoscaler retire {name}`)"
    )
}

/// One of them stands for the others: they have one helper.
fn show(board: &Board, refused: &BTreeMap<MachineId, String>) {
    match refused.values().next() {
        Some(what) => board.problem(&Problem::Pinning, what),
        None => board.clear(&Problem::Pinning),
    }
}
