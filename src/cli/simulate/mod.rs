//! `simulate`: what configurations would have done in recorded rounds.

mod json;
mod picture;
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::exit::{Failure, SUCCESS};
use super::{Output, input};
use model::PoolName;
use recording::{Damage, Recording, RecordingError};
use replay::{Demand, Facts, Figures, Simulation, Watcher, WhatIf};
use settings::{Config, Needs};

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A folder of recorded rounds (`[record] days`; default: the first configuration's folder)
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// A configuration; repeat the option to compare several
    #[arg(long, value_name = "FILE", default_value = "/etc/pve-autoscaler/config.toml")]
    config: Vec<PathBuf>,
    /// Multiply the number of pods by this factor, e.g. `2.0` or `0.5`
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = thousandths)]
    scale: u32,
    /// Simulate without this host; repeat the option for several hosts
    #[arg(long, value_name = "HOST")]
    without_host: Vec<String>,
    /// Also write a chart of nodes and pending pods over time to this file (SVG)
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The figures for one configuration, or for the record itself.
struct Column {
    name: String,
    figures: Figures,
}

/// Everything that is printed.
struct Found {
    facts: Arc<Facts>,
    what_if: WhatIf,
    columns: Vec<Column>,
    damages: Vec<Damage>,
    /// Warnings about inputs that do not fit together.
    doubts: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let what_if = WhatIf {
        demand: arguments.scale,
        without: arguments.without_host.iter().map(|host| host.as_str().into()).collect(),
    };
    let found = simulate(arguments, what_if)?;
    for damage in &found.damages {
        anstream::eprintln!("warning: {damage}");
    }
    for doubt in &found.doubts {
        anstream::eprintln!("warning: {doubt}");
    }
    if let Some(file) = &arguments.picture {
        std::fs::write(file, picture::render(&found)).map_err(|error| {
            Failure::Output(std::io::Error::new(error.kind(), format!("{}: {error}", file.display())))
        })?;
    }
    match arguments.output {
        Output::Json => input::json(&json::render(&found))?,
        Output::Text => input::text(&text::render(&found))?,
    }
    Ok(SUCCESS)
}

/// Reads the record twice: the facts about the cluster are needed before the simulation.
fn simulate(arguments: &Arguments, what_if: WhatIf) -> Result<Found, Failure> {
    let mut configs = Vec::new();
    for path in &arguments.config {
        let config = files::load(path, Needs::Plan).map_err(Failure::Configuration)?;
        configs.push((path.display().to_string(), config));
    }
    let own = || configs.first().map(|(_, config)| config.record.directory.clone());
    let records = arguments.records.clone().or_else(own).unwrap_or_default();
    let recording = Recording::open(&records).map_err(Failure::Recording)?;
    let (mut rounds, mut watcher) = (recording.rounds(), Watcher::default());
    while rounds.next_round() {
        watcher.round(&rounds.fold().snapshot());
    }
    let facts = watcher.finish();
    let damages = rounds.damages().to_vec();
    if facts.rounds == 0 {
        let path = records;
        let nothing = damages.into_iter().next().map(RecordingError::Nothing);
        return Err(Failure::Recording(nothing.unwrap_or(RecordingError::Empty { path })));
    }
    if let Some(unknown) = what_if.without.iter().find(|host| !facts.hosts.contains(*host)) {
        let known = facts.hosts.iter().map(model::HostKey::as_str).collect::<Vec<_>>().join(", ");
        return Err(Failure::NotFound(format!("the record has no host `{unknown}`: its hosts are {known}")));
    }
    let doubts = configs.iter().filter_map(|(name, config)| doubt(name, config, &facts)).collect();
    let happened = Column { name: "recorded".to_owned(), figures: facts.happened.clone() };
    let facts = Arc::new(facts);
    let mut all: Vec<(String, Simulation)> = configs
        .into_iter()
        .map(|(name, config)| (name, Simulation::new(config, facts.clone(), what_if.clone())))
        .collect();
    let (mut rounds, mut demand) = (recording.rounds(), Demand::default());
    // The second pass ends where the first one ended, because the daemon may still be recording. It may also
    // lack the oldest rounds, if the daemon has dropped them in the meantime.
    while rounds.next_round() && rounds.fold().time() <= facts.to {
        let round = rounds.fold().snapshot();
        let events = demand.round(&round);
        for (_, simulation) in &mut all {
            simulation.round(&round, &events);
        }
    }
    let simulated = all.into_iter().map(|(name, one)| Column { name, figures: one.finish() });
    let columns = std::iter::once(happened).chain(simulated).collect();
    Ok(Found { facts, what_if, columns, damages, doubts })
}

/// Warns if a configuration lacks recorded pools, because the record may come from another cluster.
fn doubt(name: &str, config: &Config, facts: &Facts) -> Option<String> {
    let has = |pool: &&PoolName| config.pools.iter().any(|own| own.name == **pool);
    let unknown: Vec<&str> =
        facts.happened.pools.keys().filter(|pool| !has(pool)).map(PoolName::as_str).collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "{name} does not define these recorded pools: {}. The simulation leaves their machines as \
                they are. If this is the record of another cluster, select the right record with \
                `--records`",
            unknown.join(", ")
        )
    })
}

fn thousandths(text: &str) -> Result<u32, String> {
    let times: f64 = text.parse().map_err(|_| "expected a number such as 2.0".to_owned())?;
    if !(0.001..=1000.0).contains(&times) {
        return Err("expected 0.001 to 1000".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok((times * 1000.0).round() as u32)
}
