//! CPUs for machines on this instance's own host: its helper is asked for those that wait, whoever leads. Nothing is written here, to
//! neither side: the leader sees in the VM's configuration what has become of it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Deps;
use crate::causes::chain;
use crate::config::Config;
use crate::model::Record;
use crate::observability::Board;
use crate::pinning::{Answer, Request};

/// How often it is looked whether machines wait, while a pool has machines with CPUs of their own.
const BEAT: Duration = Duration::from_secs(2);
/// Until a machine is asked for again: the leader takes a moment to see what has become of it, and a refusal passes seldom.
const AGAIN: Duration = Duration::from_secs(10);
/// What the board calls trouble with the helper.
const PROBLEM: &str = "pinning";

/// Serves until it is dropped.
pub(super) async fn serve(deps: &Deps) {
    let host = super::host_of(&deps.instance);
    let mut config = deps.config.clone();
    let mut asked = BTreeMap::new();
    let mut refused = BTreeMap::new();
    loop {
        if wanted(&config.borrow_and_update()) {
            round(deps, host, &mut asked, &mut refused).await;
            tokio::time::sleep(BEAT).await;
        } else {
            refused.clear();
            show(&deps.board, &refused);
            if config.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn wanted(config: &Config) -> bool {
    config.pools.iter().any(|pool| pool.pinning.is_some())
}

/// Asks for each machine that waits and was not asked for just now. What was `refused` is told for as long as the machine waits.
async fn round(
    deps: &Deps,
    host: &str,
    asked: &mut BTreeMap<String, Instant>,
    refused: &mut BTreeMap<String, String>,
) {
    let waiting = match deps.kubernetes.awaiting_cpus(host).await {
        Ok(waiting) => waiting,
        Err(error) => {
            tracing::debug!(error = chain(&error), "which machines wait for CPUs here is not known");
            return;
        }
    };
    let waits = |id: &String| waiting.iter().any(|record| record.id == *id);
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

/// Why it has none, where its helper gives it none.
async fn ask(deps: &Deps, record: &Record) -> Result<(), String> {
    let (name, vmid) = (&record.name, record.slot.vmid);
    let request = Request::Pin { vmid, machine: record.id.clone() };
    let why = match deps.helper.ask(request).await {
        Ok(Answer::Pinned { affinity, changed }) => {
            tracing::info!(machine = %name, vmid, cpus = affinity, changed, "the machine has CPUs of its own");
            return Ok(());
        }
        Ok(Answer::Refused { reason }) => reason,
        Ok(Answer::Free { .. }) => "it answers something else".to_owned(),
        Err(error) => chain(&error),
    };
    tracing::warn!(machine = %name, vmid, why, "the machine gets no CPUs of its own");
    Err(format!("{name} gets no CPUs of its own: {why}"))
}

/// One of them stands for the others: they have one helper.
fn show(board: &Board, refused: &BTreeMap<String, String>) {
    match refused.values().next() {
        Some(what) => board.problem(PROBLEM, what),
        None => board.clear(PROBLEM),
    }
}
