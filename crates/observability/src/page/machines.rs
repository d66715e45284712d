//! One table of machines and nodes, grouped by pool. Each row is a machine with its node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::html::{Cell, Table, span};
use super::tables::{percent, verdict_text};
use super::view::View;
use crate::{MachineStatus, NodeStatus, PoolStatus, Status};

/// The approximate maximum number of rows in total, and the number of rows that each pool may have even if
/// the total is exceeded.
const LISTED: usize = 300;
const EACH: usize = 10;

/// A machine, its node, or both.
type Row<'s> = (Option<&'s MachineStatus>, Option<&'s NodeStatus>);

pub(super) fn section(status: &Status, view: &View<'_>, out: &mut String) {
    let mut table = Table::new(&["machine", "VM", "host", "address", "phase", "used", "verdict", "why"]);
    let mut groups = grouped(status);
    let most = (LISTED / groups.len().max(1)).max(EACH);
    let named = status.pools.iter().map(|pool| (pool.name.as_str(), Some(pool)));
    let configured: Vec<_> =
        named.filter_map(|(name, pool)| Some((name, pool, groups.remove(name)?))).collect();
    // Rows without a pool come last.
    let without = groups.remove("");
    let others = groups.into_iter().map(|(name, rows)| (name, None, rows));
    for (name, pool, rows) in configured.into_iter().chain(others).chain(without.map(|rows| ("", None, rows)))
    {
        let rows = rows.into_values().map(|row| cells(row, view));
        table = table.group(heading(name, pool), rows, most);
    }
    table.section("machines", "Machines and nodes", "There are no machines and no nodes in pools.", out);
}

/// Groups the rows by pool name. Within a pool, the rows are sorted by the name of the machine or node.
fn grouped(status: &Status) -> BTreeMap<&str, BTreeMap<&str, Row<'_>>> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Row<'_>>> = BTreeMap::new();
    let nodes: BTreeMap<&str, &NodeStatus> =
        status.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let mut placed = BTreeSet::new();
    for machine in &status.machines {
        let node = nodes.get(machine.node.as_ref().unwrap_or(&machine.name).as_str()).copied();
        placed.extend(node.map(|node| node.name.as_str()));
        groups.entry(&machine.pool).or_default().insert(&machine.name, (Some(machine), node));
    }
    for node in status.nodes.iter().filter(|node| !placed.contains(node.name.as_str())) {
        let pool = node.pool.as_deref().unwrap_or_default();
        groups.entry(pool).or_default().insert(&node.name, (None, Some(node)));
    }
    groups
}

fn heading(name: &str, pool: Option<&PoolStatus>) -> String {
    let Some(pool) = pool else {
        return match name {
            "" => "without a pool".to_owned(),
            name => format!("{name}: not in the configuration"),
        };
    };
    let counts = [(pool.ready, "ready"), (pool.coming, "starting"), (pool.going, "leaving")];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    format!("{name}: {counts}, at most {}", pool.max)
}

fn cells((machine, node): Row<'_>, view: &View<'_>) -> Vec<Cell> {
    let of = |text: fn(&MachineStatus) -> String| machine.map(text).unwrap_or_default();
    let name = machine.map(|one| &one.name).or(node.map(|one| &one.name)).cloned();
    let vm = machine.and_then(|one| view.links.vm(&one.host, one.vmid));
    let vmid = of(MachineStatus::vmid);
    let phase = machine.map(|one| format!("{} for {}", one.phase, span(view.now.duration_since(one.since))));
    let why = [node.map(|one| one.why.clone()), machine.map(|one| one.why.clone())];
    let why: Vec<String> = why.into_iter().flatten().filter(|why| !why.is_empty()).collect();
    vec![
        name.unwrap_or_default().into(),
        vm.map_or_else(|| Cell::Text(vmid.clone()), |vm| Cell::Link(vm, vmid.clone())),
        of(|one| one.host.to_string()).into(),
        of(|one| one.address.clone()).into(),
        phase.unwrap_or_default().into(),
        percent(node.and_then(|node| node.utilization)).into(),
        node.map(|node| verdict(node, view.now)).unwrap_or_default().into(),
        why.join("; ").into(),
    ]
}

fn verdict(node: &NodeStatus, now: Timestamp) -> String {
    let verdict = verdict_text(&node.verdict);
    // The remaining time is shown only with these verdicts. With any other verdict, the node is kept for a
    // reason other than the time.
    let waits = ["Unneeded", "CoolingDown", "Unready"].contains(&node.verdict.as_str());
    match node.removable_at.map(|at| at.duration_since(now)).filter(|_| waits) {
        Some(wait) if wait > SignedDuration::ZERO => format!("{verdict}, removable in {}", span(wait)),
        _ => verdict,
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::super::view::{Asked, Links};
    use super::*;

    fn drawn(status: &Status) -> String {
        let (mut out, zone) = (String::new(), TimeZone::UTC);
        let view = View {
            now: Timestamp::UNIX_EPOCH,
            zone: &zone,
            asked: Asked::default(),
            links: Links::default(),
        };
        section(status, &view, &mut out);
        out
    }

    fn machine(name: &str, pool: &str) -> MachineStatus {
        MachineStatus { name: name.to_owned(), pool: pool.into(), ..MachineStatus::default() }
    }

    fn node(name: &str, pool: Option<&str>) -> NodeStatus {
        NodeStatus {
            name: name.to_owned(),
            pool: pool.map(Into::into),
            verdict: "Unneeded".to_owned(),
            ..NodeStatus::default()
        }
    }

    #[test]
    fn a_machine_and_its_node_are_one_row_of_their_pool() {
        let pool = PoolStatus { name: "b".to_owned(), ready: 2, max: 5, ..PoolStatus::default() };
        let page = drawn(&Status {
            pools: vec![pool],
            machines: vec![machine("b-1", "b"), machine("a-1", "a"), machine("b-2", "b")],
            nodes: vec![node("b-1", Some("b")), node("b-3", Some("b")), node("other", None)],
            ..Status::default()
        });
        let places: Vec<usize> =
            ["b: 2 ready, at most 5", ">b-1<", ">b-2<", ">b-3<", "a: not in the", ">a-1<", "without a pool"]
                .iter()
                .map(|words| page.find(words).unwrap_or_else(|| panic!("no {words} in {page}")))
                .collect();
        assert!(places.is_sorted(), "{places:?} in {page}");
        assert_eq!(page.matches(">b-1<").count(), 1, "{page}");
        assert_eq!(page.matches("unneeded").count(), 3, "{page}");
    }

    #[test]
    fn a_large_pool_leaves_room_for_the_others() {
        let mut machines: Vec<_> = (0..2000).map(|n| machine(&format!("a-{n:04}"), "a")).collect();
        machines.push(machine("b-1", "b"));
        let page = drawn(&Status { machines, ..Status::default() });
        assert!(page.contains(">b-1<") && page.contains("and 1850 more"), "{page}");
    }
}
