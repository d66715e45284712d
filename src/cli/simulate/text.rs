//! A simulation as text for people.

use std::fmt::Write;

use super::{Column, Found};
use crate::cli::table::{Align, Table};
use model::PoolName;
use replay::{ASSUMPTIONS, CREATION, RETIREMENT, Took, Use, WAKING, Waits};

use Align::{Left, Right};

pub(super) fn render(found: &Found) -> String {
    let mut out = String::new();
    let facts = &found.facts;
    let hours = facts.happened.hours;
    let _ = writeln!(out, "{} rounds from {:.0} to {:.0} ({hours:.1} h)", facts.rounds, facts.from, facts.to);
    let missing: f64 =
        facts.gaps.iter().map(|(from, to)| to.duration_since(*from).as_secs_f64() / 3600.0).sum();
    if !facts.gaps.is_empty() {
        let count = facts.gaps.len();
        let _ = writeln!(
            out,
            "Unknown: {missing:.1} h in {count} {} without a round; the last known state is assumed.",
            if count == 1 { "gap" } else { "gaps" }
        );
    }
    if found.what_if.demand != 1000 {
        let times = f64::from(found.what_if.demand) / 1000.0;
        let _ = writeln!(out, "What if: {times} times as many pods.");
    }
    for host in &found.what_if.without {
        let _ = writeln!(out, "What if: without the host {host}.");
    }
    out.push('\n');
    machines(found, &mut out);
    out.push_str("\nPods waiting for room, by pool\n");
    waits(found, &mut out);
    out.push_str("\nHosts, on average\n");
    hosts(found, &mut out);
    out.push_str("\nHours on and off, by host\n");
    host_hours(found, &mut out);
    refusals(found, &mut out);
    assumptions(found, &mut out);
    out
}

/// Seconds in a readable form.
fn time(seconds: Option<i64>) -> String {
    match seconds {
        None => String::new(),
        Some(seconds) if seconds < 120 => format!("{seconds} s"),
        Some(seconds) if seconds < 7200 => format!("{:.1} min", f(seconds) / 60.0),
        Some(seconds) => format!("{:.1} h", f(seconds) / 3600.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn f(number: i64) -> f64 {
    number as f64
}

fn percentiles(waits: &Waits) -> [String; 4] {
    [
        waits.count().to_string(),
        time(waits.percentile(50)),
        time(waits.percentile(95)),
        time(waits.percentile(100)),
    ]
}

fn machines(found: &Found, out: &mut String) {
    let mut table = Table::new(&[
        ("configuration", Left),
        ("created", Right),
        ("removed", Right),
        ("node-hours", Right),
        ("max nodes", Right),
        ("pods waited", Right),
        ("p50", Right),
        ("p95", Right),
        ("worst", Right),
        ("went without", Right),
        ("still pending", Right),
    ]);
    for Column { name, figures } in &found.columns {
        let sum =
            |of: fn(&replay::PoolFigures) -> u64| figures.pools.values().map(of).sum::<u64>().to_string();
        let node_hours = figures.pools.values().fold(0.0, |sum, pool| sum + pool.node_hours);
        let most = figures.series.points.iter().map(|point| point.0).max().unwrap_or(0);
        let cells = [
            name.clone(),
            sum(|pool| pool.made),
            sum(|pool| pool.removed),
            format!("{node_hours:.1}"),
            most.to_string(),
        ];
        let cells = cells.into_iter().chain(percentiles(&figures.waits()));
        table.row(cells.chain([figures.without.count().to_string(), figures.waiting.to_string()]));
    }
    table.render(out);
}

fn waits(found: &Found, out: &mut String) {
    let mut table = Table::new(&[
        ("configuration", Left),
        ("pool", Left),
        ("created", Right),
        ("removed", Right),
        ("node-hours", Right),
        ("pods", Right),
        ("waited", Right),
        ("p50", Right),
        ("p95", Right),
        ("worst", Right),
    ]);
    for Column { name, figures } in &found.columns {
        for (pool, own) in &figures.pools {
            let hours = format!("{:.1}", own.node_hours);
            let cells = [
                name.clone(),
                pool.clone().into(),
                own.made.to_string(),
                own.removed.to_string(),
                hours,
                own.pods.to_string(),
            ];
            table.row(cells.into_iter().chain(percentiles(&own.waits)));
        }
    }
    table.render(out);
}

/// The hosts' resources and their use, averaged over time.
fn hosts(found: &Found, out: &mut String) {
    let mut table = Table::new(&[
        ("configuration", Left),
        ("", Left),
        ("hosts have", Right),
        ("others take", Right),
        ("machines take", Right),
        ("pods request", Right),
        ("nodes free", Right),
        ("hosts free", Right),
    ]);
    for Column { name, figures } in &found.columns {
        let used = &figures.used;
        let of = |one: fn(&Use) -> f64| {
            let average = |of: &Use| if figures.hours > 0.0 { one(of) / figures.hours } else { 0.0 };
            let (hosts, others, machines) =
                (average(&used.hosts), average(&used.others), average(&used.machines));
            let (requested, offered) = (average(&used.requested), average(&used.offered));
            [hosts, others, machines, requested, offered - requested, hosts - others - machines]
        };
        for (unit, figures) in [("GiB", of(|one| one.memory)), ("cores", of(|one| one.cores))] {
            let cells = figures.into_iter().map(|one| format!("{one:.1}"));
            table.row([name.clone(), unit.to_owned()].into_iter().chain(cells));
        }
    }
    table.render(out);
}

/// For each host, the hours in which it was on, off, or on and empty.
fn host_hours(found: &Found, out: &mut String) {
    let mut table = Table::new(&[
        ("configuration", Left),
        ("host", Left),
        ("on", Right),
        ("off", Right),
        ("on and empty", Right),
    ]);
    let hours = |hours: Option<f64>, none: &str| hours.map_or(none.to_owned(), |hours| format!("{hours:.1}"));
    for Column { name, figures } in &found.columns {
        for (host, own) in &figures.hosts {
            let on = hours(Some(own.on), "");
            table.row([name.clone(), host.clone(), on, hours(own.off, "-"), hours(own.empty, "unknown")]);
        }
    }
    table.render(out);
    out.push_str(
        "off: the planner decides when hosts with `power` are off. Any other host could have been off \
            for at most the hours in which it was on and empty; other reasons to stay on are not \
            considered.\n",
    );
}

fn refusals(found: &Found, out: &mut String) {
    let mut table = Table::new(&[("configuration", Left), ("verdict", Left), ("pods", Right)]);
    for Column { name, figures } in found.columns.iter().skip(1) {
        for (verdict, pods) in &figures.refusals {
            table.row([name.clone(), verdict.clone(), pods.to_string()]);
        }
    }
    let mut text = String::new();
    table.render(&mut text);
    if !text.is_empty() {
        let _ = write!(out, "\nPods that were denied a machine, by verdict\n{text}");
    }
}

fn assumptions(found: &Found, out: &mut String) {
    out.push_str("\nAssumptions\n");
    for line in ASSUMPTIONS {
        let _ = writeln!(out, "* {line}");
    }
    let facts = &found.facts;
    let mut said = Vec::new();
    for (what, all) in
        [("is created", &facts.creation), ("is woken", &facts.waking), ("is removed", &facts.retirement)]
    {
        let told = |(pool, took): (&PoolName, &Took)| {
            Some(format!(
                "a machine of {pool} {what} in {} (median of {})",
                time(took.median()),
                took.count()
            ))
            .filter(|_| took.count() > 0)
        };
        said.extend(all.iter().filter_map(told));
    }
    let said = if said.is_empty() { "no recorded times".to_owned() } else { said.join(", ") };
    let _ = writeln!(
        out,
        "* Machines: {said}; if no time was recorded, a machine is assumed to be created in {} s, woken \
            in {} s and removed in {} s.",
        CREATION.as_secs(),
        WAKING.as_secs(),
        RETIREMENT.as_secs()
    );
}
