//! What the demo says at its end.

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::Style;

const BOLD: Style = Style::new().bold();

/// The figures of one demo.
pub struct Summary {
    /// From the first pod that fits nowhere to the first clone request.
    pub reaction: Option<Duration>,
    /// From the first pod that fits nowhere until all run.
    pub running: Option<Duration>,
    /// What machines, Proxmox and Kubernetes take of that by themselves.
    pub best: Duration,
    /// From the moment the last nodes are no longer needed until they are gone.
    pub shrinking: Duration,
    /// The configuration's `unneeded_time` within that.
    pub unneeded: Duration,
    /// Nodes that became ready and that were removed.
    pub nodes: (usize, usize),
    /// Calls to Proxmox VE for them.
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
            ("  of that, what clone, boot and join take", span(self.best)),
            ("  of that, what the daemon added", shown(added)),
            ("nodes unneeded → machines gone", span(self.shrinking)),
            ("  of that, `unneeded_time`", span(self.unneeded)),
            ("nodes made, removed", format!("{made}, {removed}")),
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
