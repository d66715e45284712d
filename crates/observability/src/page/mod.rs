//! The status page: what `status` shows, drawn for a browser. One page without scripts, images or anything
//! else to fetch; it reloads itself every few seconds.

mod chart;
mod hosts;
mod html;
mod tables;

use std::fmt::Write;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::timeline::Sample;
use super::{Status, counted};
use html::{escaped, span};

/// What a browser may do with the page: show it, with the styles that are in it.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const STYLE: &str = include_str!("style.css");
/// A status that is older than this says so.
const OLD: SignedDuration = SignedDuration::from_secs(60);

/// The page, as of `now`.
pub(super) fn render(status: &Status, timeline: &[Sample], now: Timestamp, zone: &TimeZone) -> String {
    let mut out = String::with_capacity(64 << 10);
    out.push_str(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"10\"><meta name=\"color-scheme\" content=\"light dark\">",
    );
    let _ = write!(out, "<title>pve-autoscaler on {}</title><style>", escaped(&status.instance));
    out.push_str(STYLE);
    out.push_str("</style></head><body>");
    head(status, now, &mut out);
    out.push_str("<main>");
    tables::pools(status, &mut out);
    hosts::section(status, &mut out);
    chart::section(status, timeline, now, zone, &mut out);
    tables::pods(status, &mut out);
    tables::buffers(status, &mut out);
    tables::machines(status, now, &mut out);
    tables::nodes(status, now, &mut out);
    tables::decisions(status, now, zone, &mut out);
    out.push_str("</main></body></html>\n");
    out
}

fn head(status: &Status, now: Timestamp, out: &mut String) {
    let _ = write!(out, "<header><h1>pve-autoscaler</h1><p>on <b>{}</b>, ", escaped(&status.instance));
    let age = now.duration_since(status.time).max(SignedDuration::ZERO);
    let mode = if status.mode == "observe" { "only observes" } else { "active" };
    if !status.ready {
        out.push_str("waits for its first look at both clusters");
    } else if status.leads {
        let _ = write!(out, "{mode}, {}, the last {} ago", counted(status.rounds, "round"), span(age));
    } else {
        let leader = if status.leader.is_empty() { "none yet" } else { &status.leader };
        let _ = write!(out, "stands by: <b>{}</b> leads, and its page shows more", escaped(leader));
    }
    out.push_str("</p></header>");
    let mut warn = |text: String| {
        let _ = write!(out, "<p class=\"warn\" role=\"alert\">{text}</p>");
    };
    if status.ready && age > OLD {
        warn(format!("The last round was {} ago.", span(age)));
    }
    if let Some(pause) = &status.paused {
        warn(format!("<b>Paused</b>: {}. Nothing new is begun.", escaped(pause.words())));
    }
    for (about, what) in status.problems.iter().chain(&status.warnings) {
        warn(format!("<b>{}</b>: {}", escaped(about), escaped(what)));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Decision, HostStatus, MachineStatus, NodeStatus, PodStatus, PoolStatus};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_795_262_400 + seconds).unwrap()
    }

    fn sample() -> Status {
        let machine = |name: &str, host: &str, phase: &str| MachineStatus {
            name: name.to_owned(),
            pool: "workers".to_owned(),
            vmid: 9100,
            host: host.to_owned(),
            cores: 4,
            memory: 8 << 30,
            phase: phase.to_owned(),
            since: at(-60),
            ..MachineStatus::default()
        };
        Status {
            time: at(0),
            instance: "pve1".to_owned(),
            ready: true,
            leads: true,
            rounds: 7,
            hosts: vec![HostStatus {
                name: "pve1".to_owned(),
                online: true,
                cores: 16,
                memory: 64 << 30,
                memory_assigned: 32 << 30,
                ..HostStatus::default()
            }],
            pools: vec![PoolStatus {
                name: "workers".to_owned(),
                nodes: 1,
                ready: 1,
                max: 3,
                ..PoolStatus::default()
            }],
            machines: vec![machine("workers-a", "pve1", "Ready"), machine("workers-b", "pve1", "Booting")],
            nodes: vec![NodeStatus {
                name: "workers-a".to_owned(),
                verdict: "Blocked".to_owned(),
                why: "NotReplicated: default/<script>alert(1)</script>".to_owned(),
                ..NodeStatus::default()
            }],
            pods: vec![PodStatus {
                pod: "ml/train-0".to_owned(),
                verdict: "NoPoolFits".to_owned(),
                why: "workers: insufficient nvidia.com/gpu".to_owned(),
            }],
            decisions: vec![Decision {
                time: at(-30),
                what: "+ workers-b on pve1: for ml/train-0".to_owned(),
            }],
            ..Status::default()
        }
    }

    #[test]
    fn everything_that_the_status_has_is_on_the_page() {
        let samples = [Sample { time: at(-60), ready: 1, coming: 0, waiting: 2 }];
        let page = render(&sample(), &samples, at(3), &TimeZone::UTC);
        for words in [
            "pve1",
            "workers-a",
            "workers-b",
            "Booting",
            "ml/train-0",
            "insufficient nvidia.com/gpu",
            "7 rounds",
            "<svg",
        ] {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn what_others_have_named_cannot_become_part_of_the_page() {
        let page = render(&sample(), &[], at(3), &TimeZone::UTC);
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn nothing_is_fetched_from_anywhere() {
        let page = render(&sample(), &[], at(3), &TimeZone::UTC);
        for way in ["http://", "https://", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(way), "{way}");
        }
    }

    #[test]
    fn a_daemon_that_has_seen_nothing_or_stands_by_has_a_page_too() {
        let page = render(&Status::default(), &[], at(0), &TimeZone::UTC);
        assert!(page.contains("waits for its first look"));
        let by = Status { ready: true, leader: "pve2".to_owned(), time: at(0), ..Status::default() };
        assert!(render(&by, &[], at(0), &TimeZone::UTC).contains("<b>pve2</b> leads"));
    }

    #[test]
    fn a_large_cluster_makes_no_endless_page() {
        let one = sample();
        let many = Status {
            pods: vec![one.pods[0].clone(); 500],
            nodes: vec![one.nodes[0].clone(); 5000],
            machines: vec![one.machines[0].clone(); 1000],
            ..one
        };
        let page = render(&many, &[], at(3), &TimeZone::UTC);
        assert!(page.len() < 512 << 10, "{}", page.len());
        assert!(page.contains("more"));
    }
}
