//! The tables of the status page.

use super::html::Table;
use super::view::View;
use crate::{Decision, Status};

/// The maximum number of rows in the longer tables.
const LISTED: usize = 100;
/// The number of decisions at the top of the page, and the maximum number of earlier decisions at the end of
/// the page.
const LATEST: usize = 8;
const EARLIER: usize = 50;

pub(super) fn pools(status: &Status, out: &mut String) {
    let table = Table::new(&[
        "pool",
        "ready",
        "nodes",
        "starting",
        "leaving",
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
    table.rows(rows, LISTED).section("pools", "Pools", "No decisions yet.", out);
}

pub(super) fn pods(status: &Status, out: &mut String) {
    let rows =
        status.pods.iter().map(|pod| vec![pod.pod.clone(), verdict_text(&pod.verdict), pod.why.clone()]);
    let table = Table::new(&["pod", "verdict", "why"]).rows(rows, LISTED);
    table.section("pods", "Pending pods", "No pod is pending.", out);
}

/// Appends the table of CapacityBuffers. Appends nothing if there are none, which is the case in most
/// clusters.
pub(super) fn buffers(status: &Status, out: &mut String) {
    if status.buffers.is_empty() {
        return;
    }
    let rows = status
        .buffers
        .iter()
        .map(|one| vec![one.buffer.clone(), verdict_text(&one.verdict), one.why.clone()]);
    let table = Table::new(&["buffer", "verdict", "chunks"]).rows(rows, LISTED);
    table.section("buffers", "Capacity buffers", "", out);
}

/// Appends the latest decisions.
pub(super) fn decisions(status: &Status, view: &View<'_>, out: &mut String) {
    let latest = status.decisions.get(..LATEST).unwrap_or(&status.decisions);
    let title = "Decisions and their outcomes";
    told(latest, view).section("decisions", title, "No decisions yet.", out);
}

/// Appends the earlier decisions, if there are any.
pub(super) fn earlier(status: &Status, view: &View<'_>, out: &mut String) {
    if let Some(earlier) = status.decisions.get(LATEST..).filter(|earlier| !earlier.is_empty()) {
        told(earlier, view).section("earlier", "Earlier decisions", "", out);
    }
}

fn told(decisions: &[Decision], view: &View<'_>) -> Table {
    let today = view.now.to_zoned(view.zone.clone()).date();
    let rows = decisions.iter().map(|one| {
        let time = one.time.to_zoned(view.zone.clone());
        let pattern = if time.date() == today { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
        vec![time.strftime(pattern).to_string(), one.what.clone()]
    });
    Table::new(&["time", "what"]).rows(rows, EARLIER)
}

/// A verdict in words: `NoPlaceToMovePods` becomes `no place to move pods`.
pub(super) fn verdict_text(verdict: &str) -> String {
    let mut out = String::new();
    for c in verdict.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.extend(c.to_lowercase());
    }
    out
}

pub(super) fn percent(share: Option<f64>) -> String {
    share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default()
}
