//! The tables of the status page.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::html::{Table, span};
use crate::Status;

/// Rows of the longer tables.
const LISTED: usize = 100;
const DECISIONS: usize = 30;

pub(super) fn pools(status: &Status, out: &mut String) {
    let table = Table::new(&[
        "pool",
        "ready",
        "nodes",
        "coming",
        "going",
        "min",
        "max",
        "free slots",
        "cpu",
        "memory",
        "next",
    ]);
    let rows = status.pools.iter().map(|pool| {
        let next = pool.backoff.as_ref().unwrap_or(&pool.next);
        let numbers = [pool.ready, pool.nodes, pool.coming, pool.going, pool.min, pool.max, pool.slots_free];
        let mut row = vec![pool.name.clone()];
        row.extend(numbers.iter().map(ToString::to_string));
        row.extend([percent(pool.cpu_used), percent(pool.memory_used), next.clone()]);
        row
    });
    table.rows(rows, LISTED).section("pools", "Pools", "Nothing was decided yet.", out);
}

pub(super) fn pods(status: &Status, out: &mut String) {
    let rows = status.pods.iter().map(|pod| vec![pod.pod.clone(), words(&pod.verdict), pod.why.clone()]);
    let table = Table::new(&["pod", "verdict", "why"]).rows(rows, LISTED);
    table.section("pods", "Pods that wait", "No pod waits for a node.", out);
}

/// Nothing if there is no buffer: most clusters have none.
pub(super) fn buffers(status: &Status, out: &mut String) {
    if status.buffers.is_empty() {
        return;
    }
    let rows =
        status.buffers.iter().map(|one| vec![one.buffer.clone(), words(&one.verdict), one.why.clone()]);
    let table = Table::new(&["buffer", "verdict", "chunks"]).rows(rows, LISTED);
    table.section("buffers", "Capacity buffers", "", out);
}

pub(super) fn machines(status: &Status, now: Timestamp, out: &mut String) {
    let table = Table::new(&["machine", "VMID", "host", "address", "phase", "for", "why"]);
    let rows = status.machines.iter().map(|machine| {
        vec![
            machine.name.clone(),
            machine.vmid(),
            machine.host.clone(),
            machine.address.clone(),
            machine.phase.clone(),
            span(now.duration_since(machine.since)),
            machine.why.clone(),
        ]
    });
    table.rows(rows, LISTED).section("machines", "Machines", "There is no machine.", out);
}

pub(super) fn nodes(status: &Status, now: Timestamp, out: &mut String) {
    let table = Table::new(&["node", "pool", "used", "verdict", "may go", "why"]);
    let rows = status.nodes.iter().map(|node| {
        let wait = node.removable_at.map(|at| at.duration_since(now));
        let may_go = match wait {
            Some(wait) if wait > SignedDuration::ZERO => format!("in {}", span(wait)),
            Some(_) => "now".to_owned(),
            None => String::new(),
        };
        let pool = node.pool.clone().unwrap_or_default();
        vec![
            node.name.clone(),
            pool,
            percent(node.utilization),
            words(&node.verdict),
            may_go,
            node.why.clone(),
        ]
    });
    table.rows(rows, LISTED).section("nodes", "Nodes, and why they stay", "No node was seen yet.", out);
}

pub(super) fn decisions(status: &Status, now: Timestamp, zone: &TimeZone, out: &mut String) {
    let today = now.to_zoned(zone.clone()).date();
    let rows = status.decisions.iter().map(|one| {
        let time = one.time.to_zoned(zone.clone());
        let pattern = if time.date() == today { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
        vec![time.strftime(pattern).to_string(), one.what.clone()]
    });
    let table = Table::new(&["time", "what"]).rows(rows, DECISIONS);
    table.section("decisions", "Decisions, and what became of them", "Nothing was decided yet.", out);
}

/// `NoPlaceToMovePods` as `no place to move pods`.
fn words(verdict: &str) -> String {
    let mut out = String::new();
    for c in verdict.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.extend(c.to_lowercase());
    }
    out
}

fn percent(share: Option<f64>) -> String {
    share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default()
}
