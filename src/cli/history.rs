//! `history`: recent decisions and their outcomes.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::exit::{Failure, SUCCESS};
use super::table::plain;
use super::{Output, input, live};
use observability::{DEFAULT_SOCKET, Decision, ask};
use runtime::clock::{Clock, SystemClock};

const WHAT: &str = "\
The daemon keeps the latest 100 decisions. It stores the latest 50 in Kubernetes (ConfigMap `autoscaler-state`), where they survive
a restart and a change of leader. `journalctl -u pve-autoscaler` has all of them, for as long as the journal is kept.";

/// Arguments of `history`.
#[derive(Debug, Args)]
#[command(after_help = WHAT)]
pub(super) struct Arguments {
    /// The socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Show only decisions that name this node, machine, host or pod
    #[arg(value_name = "NAME")]
    about: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let status = live::block_on(async { ask(&arguments.socket).await.map_err(Failure::NotRunning) })?;
    let wanted = |one: &&Decision| arguments.about.as_ref().is_none_or(|about| one.what.contains(about));
    let mut found: Vec<&Decision> = status.decisions.iter().filter(wanted).collect();
    // As in a log, the latest decision is last.
    found.reverse();
    match arguments.output {
        Output::Json => input::json(&json!({ "decisions": found }))?,
        Output::Text if found.is_empty() => {
            let about = arguments.about.as_ref().map(|about| format!(" about `{}`", plain(about)));
            anstream::eprintln!("no decisions{} found", about.unwrap_or_default());
        }
        Output::Text => {
            let mut out = String::new();
            lines(found.into_iter(), SystemClock.now(), &TimeZone::system(), &mut out);
            input::text(&out)?;
        }
    }
    Ok(SUCCESS)
}

/// One line for each decision. Today's decisions are shown without the date.
pub(super) fn lines<'d>(
    decisions: impl Iterator<Item = &'d Decision>,
    now: Timestamp,
    zone: &TimeZone,
    out: &mut String,
) {
    let today = now.to_zoned(zone.clone()).date();
    for decision in decisions {
        let time = decision.time.to_zoned(zone.clone());
        let pattern = if time.date() == today { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        let _ = writeln!(out, "{}  {}", time.strftime(pattern), plain(&decision.what));
    }
}
