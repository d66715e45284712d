//! The status page: the output of `status`, for a browser. It is a single page without scripts, images or
//! other external resources, and it reloads itself every few seconds.

mod chart;
mod hosts;
mod html;
mod machines;
mod tables;
mod view;

use std::fmt::Write;

use jiff::SignedDuration;

use super::timeline::Sample;
use super::{Status, counted};
use html::{escaped, span};
pub(super) use view::{Asked, Links, View};

/// The Content-Security-Policy header. The browser may only show the page itself, with its inline styles.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const STYLE: &str = include_str!("style.css");
/// How often the page reloads itself, in seconds.
const RELOAD: u32 = 10;
/// The page shows a warning if the status is older than this.
const OLD: SignedDuration = SignedDuration::from_secs(60);

/// Renders the page that was requested.
pub(super) fn render(status: &Status, timeline: &[Sample], view: &View<'_>) -> String {
    let mut out = String::with_capacity(64 << 10);
    out.push_str(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">",
    );
    if !view.asked.still {
        let _ = write!(out, "<meta http-equiv=\"refresh\" content=\"{RELOAD}\">");
    }
    let _ = write!(out, "<title>pve-autoscaler on {}</title><style>", escaped(&status.instance));
    out.push_str(STYLE);
    out.push_str("</style></head><body>");
    head(status, view, &mut out);
    out.push_str("<main>");
    tables::decisions(status, view, &mut out);
    tables::pods(status, &mut out);
    tables::pools(status, &mut out);
    hosts::section(status, &mut out);
    chart::section(status, timeline, view, &mut out);
    tables::buffers(status, &mut out);
    machines::section(status, view, &mut out);
    tables::earlier(status, view, &mut out);
    out.push_str("</main></body></html>\n");
    out
}

fn head(status: &Status, view: &View<'_>, out: &mut String) {
    let _ = write!(out, "<header><h1>pve-autoscaler</h1><p>on <b>{}</b>, ", escaped(&status.instance));
    let age = view.now.duration_since(status.time).max(SignedDuration::ZERO);
    let mode = if status.mode == "observe" { "observing only" } else { "active" };
    if !status.ready {
        out.push_str("waiting until both clusters have been read");
    } else if status.leads {
        let _ = write!(out, "{mode}, {}, the last {} ago", counted(status.rounds, "round"), span(age));
    } else if status.leader.is_empty() {
        out.push_str("on standby: no instance leads yet");
    } else {
        let leader = escaped(&status.leader);
        let _ = write!(out, "on standby: <b>{leader}</b> leads, and its status page shows more");
    }
    let other = Asked { still: !view.asked.still, ..view.asked }.address();
    let words = if view.asked.still {
        format!("Does not reload. <a href=\"{other}\">Reload every {RELOAD} s</a>")
    } else {
        format!("Reloads every {RELOAD} s. <a href=\"{other}\">Stop reloading</a>")
    };
    let _ = write!(out, "</p><p class=\"reload\">{words}</p></header>");
    let mut warn = |text: String| {
        let _ = write!(out, "<p class=\"warn\" role=\"alert\">{text}</p>");
    };
    if status.ready && age > OLD {
        warn(format!("The last round was {} ago.", span(age)));
    }
    if let Some(pause) = &status.paused {
        warn(format!("<b>Paused</b>: {}. Nothing new is started.", escaped(pause.words())));
    }
    for (about, what) in status.problems.iter().chain(&status.warnings) {
        warn(format!("<b>{}</b>: {}", escaped(about), escaped(what)));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use model::Vmid;

    use jiff::Timestamp;
    use jiff::tz::TimeZone;

    use super::*;
    use crate::{Decision, HostStatus, MachineStatus, NodeStatus, PodStatus, PoolStatus};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_795_262_400 + seconds).unwrap()
    }

    fn drawn(status: &Status, timeline: &[Sample], query: &str) -> String {
        let zone = TimeZone::UTC;
        let (asked, links) = (Asked::read(query), Links::default());
        render(status, timeline, &View { now: at(3), zone: &zone, asked, links })
    }

    fn sample() -> Status {
        let machine = |name: &str, host: &str, phase: &str| MachineStatus {
            name: name.to_owned(),
            pool: "workers".into(),
            vmid: Vmid(9100),
            host: host.into(),
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
                name: "pve1".into(),
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
        let page = drawn(&sample(), &samples, "");
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
        let page = drawn(&sample(), &[], "span=<script>");
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn nothing_is_fetched_from_anywhere() {
        let page = drawn(&sample(), &[], "span=<script>");
        for way in ["http://", "https://", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(way), "{way}");
        }
    }

    #[test]
    fn decisions_come_first_and_the_page_stays_as_it_is_if_that_is_asked_for() {
        let page = drawn(&sample(), &[], "span=24h");
        let place = |words: &str| page.find(words).unwrap_or_else(|| panic!("no {words} in {page}"));
        assert!(
            place("id=\"decisions\"") < place("id=\"pods\"") && place("id=\"pods\"") < place("id=\"pools\"")
        );
        assert!(page.contains("http-equiv=\"refresh\"") && page.contains("?span=24h&amp;reload=no"));
        let page = drawn(&sample(), &[], "span=24h&reload=no");
        assert!(!page.contains("http-equiv") && page.contains("href=\"?span=24h\""), "{page}");
    }

    #[test]
    fn a_daemon_that_has_seen_nothing_or_stands_by_has_a_page_too() {
        let page = drawn(&Status::default(), &[], "");
        assert!(page.contains("waiting until both clusters"));
        let by = Status { ready: true, leader: "pve2".to_owned(), time: at(0), ..Status::default() };
        assert!(drawn(&by, &[], "").contains("<b>pve2</b> leads"));
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
        let page = drawn(&many, &[], "");
        assert!(page.len() < 512 << 10, "{}", page.len());
        assert!(page.contains("more"));
    }
}
