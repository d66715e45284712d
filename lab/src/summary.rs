//! The summary that the demo prints at its end.

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::Style;

const BOLD: Style = Style::new().bold();

/// The figures of one run of the demo.
pub struct Summary {
    /// The time from the first pod that fits nowhere to the first clone request.
    pub reaction: Option<Duration>,
    /// The time from the first pod that fits nowhere until all pods run.
    pub running: Option<Duration>,
    /// The part of `running` that Proxmox VE, the machines and Kubernetes need in any case.
    pub best: Duration,
    /// The time from the moment at which most nodes are no longer needed until only one node is left.
    pub shrinking: Duration,
    /// The part of `shrinking` that is the configuration's `unneeded_time`.
    pub unneeded: Duration,
    /// The number of nodes that became ready, and the number of nodes that were removed.
    pub nodes: (usize, usize),
    /// The number of calls to Proxmox VE for all nodes.
    pub calls: usize,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut lines = String::new();
        let shown = |time: Option<Duration>| time.map_or("?".to_owned(), span);
        let added = self.running.map(|running| running.saturating_sub(self.best));
        let (made, removed) = self.nodes;
        let each = if made == 0 { 0.0 } else { to_f64(self.calls) / to_f64(made) };
        let rows = [
            ("pod unschedulable → clone requested", shown(self.reaction)),
            ("pod unschedulable → all pods running", shown(self.running)),
            ("  of that, clone, boot and join", span(self.best)),
            ("  of that, added by the daemon", shown(added)),
            ("nodes unneeded → machines gone", span(self.shrinking)),
            ("  of that, `unneeded_time`", span(self.unneeded)),
            ("nodes created, removed", format!("{made}, {removed}")),
            ("calls to Proxmox VE for a node's entire life", format!("{each:.1}")),
        ];
        for (what, value) in rows {
            let _ = writeln!(lines, "  {what:<46} {value:>9}");
        }
        write!(f, "{BOLD}Summary{BOLD:#}\n{lines}")
    }
}

fn to_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn span(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
