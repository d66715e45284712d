//! Inputs of several commands: the configuration and a snapshot.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;

use super::exit::Failure;
use model::Snapshot;
use settings::{Config, Needs};

/// The option that names the configuration file.
#[derive(Debug, Args)]
pub(super) struct ConfigFile {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/pve-autoscaler/config.toml")]
    pub config: PathBuf,
}

impl ConfigFile {
    pub(super) fn load(&self) -> Result<Config, Failure> {
        files::load(&self.config, Needs::Plan).map_err(Failure::Configuration)
    }
}

/// Reads a snapshot from a file, or from standard input for `-`. The snapshot's time is `now` if given,
/// otherwise the time in the file, otherwise the current time.
pub(super) fn snapshot(path: &Path, now: Option<Timestamp>) -> Result<Snapshot, Failure> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Failure::File(path.display().to_string(), error))?;
    let (mut snapshot, own) = snapshot::read(&text).map_err(Failure::Snapshot)?;
    snapshot.time = now.or(own).unwrap_or_else(|| runtime::clock::Clock::now(&runtime::clock::SystemClock));
    Ok(snapshot)
}

/// Writes JSON with a final newline.
pub(super) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    std::io::stdout().lock().write_all(json_text(value)?.as_bytes()).map_err(Failure::Output)
}

/// A value as JSON text with a final newline.
pub(super) fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    Ok(text + "\n")
}

/// Writes text.
pub(super) fn text(text: &str) -> Result<(), Failure> {
    anstream::stdout().write_all(text.as_bytes()).map_err(Failure::Output)
}
