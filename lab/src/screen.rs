//! The terminal output: a table that is redrawn in place, or single lines if the output is not a terminal.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use pve_autoscaler::cli::terminal;
use pve_autoscaler::observability::{MachineStatus, Status};
use world::kubernetes::Kube;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BUSY: Style = AnsiColor::Yellow.on_default();

/// The number of latest decisions that are shown.
const DECISIONS: usize = 6;

/// The demo's output.
pub struct Screen {
    live: bool,
    drawn: usize,
    told: usize,
}

/// The number of pods in each state.
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

    /// Prints a line that is not overwritten by the table.
    ///
    /// # Errors
    /// Returns an error if the terminal, or the reader of the output, is gone.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.clear()?;
        write(&format!("{text}\n"))
    }

    /// Prints a heading that is not overwritten by the table.
    ///
    /// # Errors
    /// Returns the errors of [`Screen::say`].
    pub fn chapter(&mut self, text: &str) -> io::Result<()> {
        self.say(&format!("\n{BOLD}{text}{BOLD:#}"))
    }

    /// Shows the state at the time `passed` after the start.
    ///
    /// # Errors
    /// Returns the errors of [`Screen::say`].
    pub fn show(&mut self, passed: Duration, status: &Status, pods: Pods) -> io::Result<()> {
        let mut decisions: Vec<String> = status.decisions.iter().rev().map(|one| one.what.clone()).collect();
        if !self.live {
            // The daemon keeps only the latest decisions, but the demo never reaches that limit.
            for what in decisions.iter().skip(self.told) {
                write(&format!("{:>6.1} s  {what}\n", passed.as_secs_f64()))?;
            }
            self.told = decisions.len();
            return Ok(());
        }
        let latest = decisions.split_off(decisions.len().saturating_sub(DECISIONS));
        let (columns, lines) = terminal::size();
        let text = fitted(&table(passed, status, pods, &latest), columns, lines);
        self.clear()?;
        self.drawn = text.lines().count();
        write(&text)
    }

    /// Removes the table.
    ///
    /// # Errors
    /// Returns the errors of [`Screen::say`].
    pub fn clear(&mut self) -> io::Result<()> {
        let drawn = std::mem::take(&mut self.drawn);
        if self.live && drawn > 0 { write(&format!("\x1b[{drawn}A\x1b[J")) } else { Ok(()) }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Shortens a text so that it fits the terminal without wrapping or scrolling. There is room for the cursor
/// on the line below the text.
fn fitted(text: &str, columns: usize, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let room = lines.saturating_sub(1);
    let shown = if all.len() > room { room.saturating_sub(1) } else { all.len() };
    let mut out = String::new();
    for line in &all[..shown] {
        let _ = writeln!(out, "{}\x1b[0m", terminal::cut(line, columns));
    }
    if shown < all.len() {
        let more = format!("… {} more lines", all.len() - shown);
        let _ = writeln!(out, "{}", terminal::cut(&more, columns));
    }
    out
}

fn table(passed: Duration, status: &Status, pods: Pods, decisions: &[String]) -> String {
    let mut out = String::new();
    let seconds = passed.as_secs_f64();
    let ready = status.pools.iter().map(|pool| pool.ready).sum::<u32>();
    let _ = writeln!(
        out,
        "{seconds:>6.1} s  pods: {BUSY}{} waiting{BUSY:#}, {} starting, {GOOD}{} running{GOOD:#}, {} ending; {ready} nodes ready",
        pods.waiting, pods.starting, pods.running, pods.ending
    );
    let _ = writeln!(out, "{DIM}  MACHINE         VMID  HOST  PHASE         SINCE  WHY{DIM:#}");
    for machine in &status.machines {
        let _ = writeln!(out, "{}", row(status, machine));
    }
    let _ = writeln!(out, "{DIM}  DECISIONS{DIM:#}");
    for what in decisions {
        let _ = writeln!(out, "  {what}");
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
        terminal::cut(&machine.name, 15),
        machine.vmid,
        machine.host,
        machine.phase,
        since.as_secs_f64(),
    );
    start + &why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_broken_and_nothing_scrolls_away() {
        let all: Vec<String> = (0..30).map(|line| format!("{BUSY}{line:>90}{BUSY:#}")).collect();
        let text = all.join("\n");
        for (columns, lines) in [(80, 24), (40, 10), (200, 60)] {
            let shown = fitted(&text, columns, lines);
            assert!(shown.lines().count() < lines, "{columns} x {lines}");
            for line in shown.lines() {
                let plain = anstream::adapter::strip_str(line).to_string();
                assert!(plain.chars().count() <= columns, "{plain:?}");
            }
            assert_eq!(shown.contains("more lines"), lines < 31, "{columns} x {lines}");
        }
    }
}
