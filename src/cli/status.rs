//! `status`: what the running daemon sees, is doing and has decided.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Args;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::exit::{Failure, SUCCESS};
use super::plan_text::span;
use super::table::{Align, Table, plain};
use super::verdict_words;
use super::{Output, history, input, live, watch};
use model::plan::{BufferOutcome, NodeOutcome, PodOutcome, RequestOutcome};
use model::power::HostOutcome;
use observability::{DEFAULT_SOCKET, Status, ask, counted};
use runtime::clock::{Clock, SystemClock};

const PROBLEM: Style = AnsiColor::Red.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default();
/// At most this many nodes, pods or decisions are listed.
const LISTED: usize = 20;
const DECISIONS: usize = 10;
/// A status older than this many seconds is shown as stale.
const OLD: i64 = 60;

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Refresh every SECONDS (default: 2) until Ctrl-C; without a terminal, print line by line
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    watch: Option<u16>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    if let Some(seconds) = arguments.watch {
        return watch::run(Duration::from_secs(seconds.into()), async || show(arguments).await);
    }
    let text = live::block_on(show(arguments))?;
    input::text(&text)?;
    Ok(SUCCESS)
}

async fn show(arguments: &Arguments) -> Result<String, Failure> {
    let status = ask(&arguments.socket).await.map_err(Failure::NotRunning)?;
    match arguments.output {
        // One line for each status, because `--watch` prints many.
        Output::Json if arguments.watch.is_some() => watch::line(&status),
        Output::Json => input::json_text(&status),
        Output::Text => Ok(render(&status, SystemClock.now(), &TimeZone::system())),
    }
}

fn render(status: &Status, now: Timestamp, zone: &TimeZone) -> String {
    let mut out = String::new();
    daemon(status, now, &mut out);
    section(&pools(status), &mut out);
    for pool in &status.pools {
        if let Some(backoff) = &pool.backoff {
            let _ = writeln!(out, "pool {}: {}", plain(&pool.name), plain(backoff));
        }
    }
    for host in &status.hosts {
        if let Some(backoff) = &host.backoff {
            let _ = writeln!(out, "host {}: {}", plain(&host.name), plain(backoff));
        }
    }
    let of_pools = status.pools.iter().any(|pool| pool.backoff_until.is_some());
    if of_pools || status.hosts.iter().any(|host| host.backoff_until.is_some()) {
        out.push_str("once the cause is fixed, `pve-autoscaler retry` ends the back-off\n");
    }
    section(&hosts(status, now), &mut out);
    section(&machines(status, now), &mut out);
    section(&nodes(status, now), &mut out);
    more(status.nodes.len(), LISTED, &mut out);
    section(&pods(status), &mut out);
    more(status.pods.len(), LISTED, &mut out);
    section(&buffers(status), &mut out);
    more(status.buffers.len(), LISTED, &mut out);
    section(&orphans(status), &mut out);
    section(&requests(status), &mut out);
    more(status.requests.len(), LISTED, &mut out);
    decisions(status, now, zone, &mut out);
    out
}

fn daemon(status: &Status, now: Timestamp, out: &mut String) {
    let mode = if status.mode == "observe" { "observing only (`mode = \"observe\"`)" } else { "active" };
    let _ = match &status.paused {
        Some(_) => write!(out, "daemon on {}: {PROBLEM}paused{PROBLEM:#}, {mode}", plain(&status.instance)),
        None => write!(out, "daemon on {}: {mode}", plain(&status.instance)),
    };
    let age = now.duration_since(status.time);
    let stands_by = !status.leads && !status.leader.is_empty();
    let _ = if stands_by {
        writeln!(
            out,
            ", on standby while the daemon on {} leads: run `status` there for details",
            plain(&status.leader)
        )
    } else if status.ready {
        let old = if age.as_secs() > OLD { " (stale)" } else { "" };
        let age = span(age.max(SignedDuration::ZERO));
        let acts = if status.leads { "" } else { "; it does nothing until it holds the lease" };
        writeln!(out, ", {}, the last {age} ago{old}{acts}", counted(status.rounds, "round"))
    } else {
        // Each round resets the age of the status, even before Proxmox VE has been read. From the first
        // round on, therefore, the age no longer shows how long the daemon has been waiting.
        let after = if status.rounds == 0 { format!(" after {}", span(age)) } else { String::new() };
        writeln!(out, ", still waiting for its first look at both clusters{after}")
    };
    if let Some(pause) = &status.paused {
        let since = pause
            .since
            .map(|since| format!(" for {}", span(now.duration_since(since).max(SignedDuration::ZERO))));
        let by = if pause.by.is_empty() { String::new() } else { format!(" from {}", plain(&pause.by)) };
        let since = since.unwrap_or_default();
        let why = plain(pause.words());
        let _ = writeln!(
            out,
            "{PROBLEM}paused{PROBLEM:#}{since}{by}: {why}; nothing new is started until `pve-autoscaler resume`"
        );
    }
    for (about, what) in &status.problems {
        let _ = writeln!(out, "{PROBLEM}problem{PROBLEM:#}  {}: {}", plain(about), plain(what));
    }
    for (about, what) in &status.warnings {
        let _ = writeln!(out, "{WARNING}warning{WARNING:#}  {}: {}", plain(about), plain(what));
    }
}

fn section(table: &Table, out: &mut String) {
    let mut text = String::new();
    table.render(&mut text);
    if !text.is_empty() {
        out.push('\n');
        out.push_str(&text);
    }
}

fn more(number: usize, listed: usize, out: &mut String) {
    if number > listed {
        let _ = writeln!(out, "… and {} more (`--output json` lists all)", number - listed);
    }
}

fn pools(status: &Status) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("pool", Left),
        ("nodes", Right),
        ("ready", Right),
        ("starting", Right),
        ("leaving", Right),
        ("min", Right),
        ("max", Right),
        ("free slots", Right),
        ("cpu used", Right),
        ("memory used", Right),
        ("next", Left),
    ]);
    for pool in &status.pools {
        let numbers = [pool.nodes, pool.ready, pool.coming, pool.going, pool.min, pool.max, pool.slots_free];
        let shares = [percent(pool.cpu_used), percent(pool.memory_used), pool.next.clone()];
        let numbers = numbers.iter().map(ToString::to_string);
        table.row([pool.name.clone()].into_iter().chain(numbers).chain(shares));
    }
    table
}

/// The hosts that may be switched off.
fn hosts(status: &Status, now: Timestamp) -> Table {
    use Align::Left;
    let mut table = Table::new(&[("host", Left), ("power", Left), ("due", Left), ("why", Left)]);
    for host in status.hosts.iter().filter(|host| !host.power.is_empty()) {
        let due = host.due.map(|due| due.duration_since(now)).filter(SignedDuration::is_positive);
        let due = due.map(|due| format!("in {}", span(due))).unwrap_or_default();
        let power =
            verdict_words::of_code(&host.power, HostOutcome::ALL, HostOutcome::code, verdict_words::of_host);
        table.row([host.name.to_string(), power, due, host.why.clone()]);
    }
    table
}

fn machines(status: &Status, now: Timestamp) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("machine", Left),
        ("vmid", Right),
        ("host", Left),
        ("address", Left),
        ("phase", Left),
        ("for", Right),
        ("node", Left),
        ("why", Left),
    ]);
    for machine in &status.machines {
        table.row([
            machine.name.clone(),
            machine.vmid(),
            machine.host.clone().into(),
            machine.address.clone(),
            machine.phase.clone(),
            span(now.duration_since(machine.since).max(SignedDuration::ZERO)),
            machine.node.clone().unwrap_or_default(),
            machine.why.clone(),
        ]);
    }
    table
}

/// VMs with this cluster's mark but no record; `pve-autoscaler orphans` shows all evidence about them.
fn orphans(status: &Status) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[("orphan", Left), ("vmid", Right), ("host", Left), ("why", Left)]);
    for orphan in status.orphans.iter().take(LISTED) {
        let why = orphan.missing.first().map_or("proven to be left over", String::as_str);
        table.row([orphan.name.clone(), orphan.vmid.to_string(), orphan.host.clone().into(), why.to_owned()]);
    }
    table
}

fn nodes(status: &Status, now: Timestamp) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("node", Left),
        ("pool", Left),
        ("used", Right),
        ("verdict", Left),
        ("removable", Left),
        ("why", Left),
    ]);
    for node in status.nodes.iter().take(LISTED) {
        let wait = node.removable_at.map(|at| at.duration_since(now));
        let may_go = match wait {
            Some(wait) if wait.is_positive() => format!("in {}", span(wait)),
            Some(_) => "now".to_owned(),
            None => String::new(),
        };
        let pool = node.pool.clone().unwrap_or_default();
        let used = percent(node.utilization);
        let verdict = verdict_words::of_code(
            &node.verdict,
            NodeOutcome::ALL,
            NodeOutcome::code,
            verdict_words::of_node,
        );
        table.row([node.name.clone(), pool.into(), used, verdict, may_go, node.why.clone()]);
    }
    table
}

fn pods(status: &Status) -> Table {
    let mut table =
        Table::new(&[("pending pod", Align::Left), ("verdict", Align::Left), ("why", Align::Left)]);
    for pod in status.pods.iter().take(LISTED) {
        let verdict =
            verdict_words::of_code(&pod.verdict, PodOutcome::ALL, PodOutcome::code, verdict_words::of_pod);
        table.row([pod.pod.clone(), verdict, pod.why.clone()]);
    }
    table
}

fn requests(status: &Status) -> Table {
    let mut table =
        Table::new(&[("provisioning request", Align::Left), ("verdict", Align::Left), ("why", Align::Left)]);
    for request in status.requests.iter().take(LISTED) {
        let (code, all) = (&request.verdict, RequestOutcome::ALL);
        let verdict = verdict_words::of_code(code, all, RequestOutcome::code, verdict_words::of_request);
        table.row([request.request.clone(), verdict, request.why.clone()]);
    }
    table
}

fn buffers(status: &Status) -> Table {
    let mut table =
        Table::new(&[("capacity buffer", Align::Left), ("verdict", Align::Left), ("chunks", Align::Left)]);
    for buffer in status.buffers.iter().take(LISTED) {
        let (code, all) = (&buffer.verdict, BufferOutcome::ALL);
        let verdict = verdict_words::of_code(code, all, BufferOutcome::code, verdict_words::of_buffer);
        table.row([buffer.buffer.clone(), verdict, buffer.why.clone()]);
    }
    table
}

fn decisions(status: &Status, now: Timestamp, zone: &TimeZone, out: &mut String) {
    if status.decisions.is_empty() {
        return;
    }
    out.push_str("\nlast decisions\n");
    history::lines(status.decisions.iter().take(DECISIONS), now, zone, out);
    if status.decisions.len() > DECISIONS {
        let _ = writeln!(out, "… and {} more (`history` lists them)", status.decisions.len() - DECISIONS);
    }
}

fn percent(share: Option<f64>) -> String {
    share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use model::Vmid;

    use super::*;
    use observability::{Decision, MachineStatus, NodeStatus, PodStatus, PoolStatus};

    fn text(status: &Status) -> String {
        let now = "2026-11-21T12:05:00Z".parse().unwrap();
        anstream::adapter::strip_str(&render(status, now, &TimeZone::UTC)).to_string()
    }

    #[test]
    fn a_daemon_that_has_seen_nothing_yet_says_so() {
        let status = Status {
            instance: "pve1".to_owned(),
            time: "2026-11-21T12:04:20Z".parse().unwrap(),
            problems: [("kubernetes".to_owned(), "no connection".to_owned())].into(),
            ..Status::default()
        };
        assert_eq!(
            text(&status),
            "daemon on pve1: active, still waiting for its first look at both clusters after 40 s\n\
             problem  kubernetes: no connection\n"
        );
    }

    #[test]
    fn a_standby_names_the_leader() {
        let status = Status {
            instance: "pve2".to_owned(),
            leader: "pve1".to_owned(),
            ready: true,
            ..Status::default()
        };
        assert_eq!(
            text(&status),
            "daemon on pve2: active, on standby while the daemon on pve1 leads: run `status` there for details\n"
        );
    }

    #[test]
    fn everything_is_in_its_table() {
        let status = Status {
            time: "2026-11-21T12:04:57Z".parse().unwrap(),
            instance: "pve1".to_owned(),
            mode: "observe".to_owned(),
            ready: true,
            leads: true,
            rounds: 7,
            pools: vec![PoolStatus {
                name: "workers".to_owned(),
                nodes: 14,
                ready: 13,
                coming: 1,
                min: 2,
                max: 40,
                cpu_used: Some(0.614),
                slots_free: 26,
                backoff: Some("left alone for 3 min: clone failed".to_owned()),
                next: "workers-k may go in 2 min".to_owned(),
                ..PoolStatus::default()
            }],
            machines: vec![MachineStatus {
                name: "workers-m".to_owned(),
                vmid: Vmid(9107),
                host: "pve1".into(),
                address: "10.10.10.18".to_owned(),
                phase: "Joining".to_owned(),
                since: "2026-11-21T12:04:19Z".parse().unwrap(),
                why: "made for ml/train-0".to_owned(),
                ..MachineStatus::default()
            }],
            nodes: vec![NodeStatus {
                name: "workers-k".to_owned(),
                pool: Some("workers".into()),
                verdict: "Unneeded".to_owned(),
                utilization: Some(0.09),
                removable_at: Some("2026-11-21T12:07:00Z".parse().unwrap()),
                ..NodeStatus::default()
            }],
            pods: vec![PodStatus {
                pod: "ml/train-0".to_owned(),
                verdict: "UpcomingNode".to_owned(),
                why: "workers-m".to_owned(),
            }],
            decisions: vec![
                Decision {
                    time: "2026-11-21T12:04:15Z".parse().unwrap(),
                    what: "+ workers-m on pve1".to_owned(),
                },
                Decision {
                    time: "2026-11-20T23:00:00Z".parse().unwrap(),
                    what: "workers-z is gone".to_owned(),
                },
            ],
            ..Status::default()
        };
        let expected = "\
daemon on pve1: observing only (`mode = \"observe\"`), 7 rounds, the last 3 s ago

pool      nodes   ready   starting   leaving   min   max   free slots   cpu used   memory used   next
workers      14      13          1         0     2    40           26       61 %             –   workers-k may go in 2 min
pool workers: left alone for 3 min: clone failed

machine     vmid   host   address       phase      for   node   why
workers-m   9107   pve1   10.10.10.18   Joining   41 s   –      made for ml/train-0

node        pool      used   verdict    removable   why
workers-k   workers    9 %   unneeded   in 2 min    –

pending pod   verdict                        why
ml/train-0    fits a machine being created   workers-m

last decisions
12:04:15  + workers-m on pve1
2026-11-20 23:00:00  workers-z is gone
";
        assert_eq!(text(&status), expected);
    }
}
