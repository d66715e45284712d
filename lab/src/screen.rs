//! The terminal: a table that is redrawn in place, or lines as things happen where there is no terminal.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use pve_autoscaler::observability::{MachineStatus, Status};
use world::kubernetes::Kube;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BUSY: Style = AnsiColor::Yellow.on_default();

/// The last decisions that stay on the screen.
const DECISIONS: usize = 6;
/// Columns of a terminal that nobody asked.
const WIDTH: usize = 110;

/// Where the demo shows itself.
pub struct Screen {
    live: bool,
    drawn: usize,
    told: usize,
}

/// Pods by what they do, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    pub waiting: usize,
    pub starting: usize,
    pub running: usize,
    pub ending: usize,
}

impl Pods {
    /// Counts the pods of all namespaces.
    pub fn of(kube: &Kube) -> Self {
        let mut counts = Self::default();
        for pod in kube.list("Pod") {
            let bound = pod["spec"]["nodeName"].is_string();
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                counts.ending += 1;
            } else if pod["status"]["phase"] == "Running" {
                counts.running += 1;
            } else if bound {
                counts.starting += 1;
            } else {
                counts.waiting += 1;
            }
        }
        counts
    }
}

impl Screen {
    pub fn new() -> Self {
        Self { live: std::io::stdout().is_terminal(), drawn: 0, told: 0 }
    }

    /// A line that stays.
    pub fn say(&mut self, text: &str) {
        self.clear();
        anstream::println!("{text}");
    }

    /// A heading that stays.
    pub fn chapter(&mut self, text: &str) {
        self.say(&format!("\n{BOLD}{text}{BOLD:#}"));
    }

    /// Shows how things are `passed` after the beginning.
    pub fn show(&mut self, passed: Duration, status: &Status, pods: Pods) {
        let mut decisions: Vec<String> = status.decisions.iter().rev().map(|one| one.what.clone()).collect();
        if !self.live {
            // The list is bounded; the demo's is never longer.
            for what in decisions.iter().skip(self.told) {
                anstream::println!("{:>6.1} s  {what}", passed.as_secs_f64());
            }
            self.told = decisions.len();
            return;
        }
        let latest = decisions.split_off(decisions.len().saturating_sub(DECISIONS));
        let text = table(passed, status, pods, &latest);
        self.clear();
        anstream::print!("{text}");
        self.drawn = text.lines().count();
    }

    /// Takes the table away.
    pub fn clear(&mut self) {
        if self.live && self.drawn > 0 {
            anstream::print!("\x1b[{}A\x1b[J", self.drawn);
        }
        self.drawn = 0;
    }
}

fn table(passed: Duration, status: &Status, pods: Pods, decisions: &[String]) -> String {
    let mut out = String::new();
    let seconds = passed.as_secs_f64();
    let ready = status.pools.iter().map(|pool| pool.ready).sum::<u32>();
    let _ = writeln!(
        out,
        "{seconds:>6.1} s   pods: {BUSY}{} waiting{BUSY:#}, {} starting, {GOOD}{} running{GOOD:#}, {} ending   nodes of the pools: {ready} ready",
        pods.waiting, pods.starting, pods.running, pods.ending
    );
    let _ = writeln!(out, "{DIM}  MACHINE         VMID  HOST  PHASE         SINCE  WHY{DIM:#}");
    for machine in &status.machines {
        let _ = writeln!(out, "{}", row(status, machine));
    }
    let _ = writeln!(out, "{DIM}  DECISIONS{DIM:#}");
    for what in decisions {
        let _ = writeln!(out, "  {}", cut(what, WIDTH - 2));
    }
    out
}

fn row(status: &Status, machine: &MachineStatus) -> String {
    let style = if machine.phase == "Ready" { GOOD } else { BUSY };
    let since = Duration::try_from(status.time.duration_since(machine.since)).unwrap_or_default();
    let node = status.nodes.iter().find(|node| Some(&node.name) == machine.node.as_ref());
    let why = match node {
        Some(node) if machine.phase == "Ready" => {
            let used = node.utilization.map_or(String::new(), |used| format!(", {:.0} % used", used * 100.0));
            format!("{}{used}", node.verdict)
        }
        _ => machine.why.clone(),
    };
    let start = format!(
        "  {:<15} {:<5} {:<5} {style}{:<12}{style:#} {:>5.1} s ",
        cut(&machine.name, 15),
        machine.vmid,
        machine.host,
        machine.phase,
        since.as_secs_f64(),
    );
    start + &cut(&why, WIDTH - 52)
}

/// At most so many characters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}
