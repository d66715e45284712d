//! `check`: checks whether the configuration is valid, whether both clusters answer, whether the daemon has
//! the rights it needs, and whether all objects that the pools name exist.
//!
//! All findings are reported together. A check that another problem makes impossible is skipped.

mod bare_metal;
mod built_templates;
mod cloning;
mod clusters;
mod declared_devices;
mod feature_gates;
mod findings;
mod firewall;
mod grow;
mod host_power;
mod hosts;
mod inherited;
mod kubelet;
mod memory;
mod neighbours;
mod network_boot;
mod pci;
mod pinning;
mod proxmox_view;
mod reach;
mod serving;
mod slots;
mod template;

use std::path::Path;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::Output;
use super::exit::{FINDINGS, Failure, SUCCESS, UNREACHABLE, USAGE, chain};
use super::expiry;
use super::input::{self, ConfigFile};
use super::live;
use super::plan_text::count;
use model::Node;
use runtime::clock::{Clock, SystemClock};
use settings::{Config, Needs, Report};

use findings::{Answer, Line};
use proxmox_view::Pve;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    /// Check only the configuration
    #[arg(long)]
    offline: bool,
    /// The command that the configuration is for
    #[arg(long = "for", value_enum, default_value_t)]
    purpose: Purpose,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The command that a configuration is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// The daemon.
    #[default]
    Run,
    /// `plan` and `explain`, which need fewer settings.
    Plan,
}

/// Checks this configuration file and the clusters, as `check` does for `run`.
pub(super) fn whole(file: &Path) -> Result<u8, Failure> {
    let config = ConfigFile { config: file.to_owned() };
    run(&Arguments { config, offline: false, purpose: Purpose::Run, output: Output::Text })
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let path = arguments.config.config.display().to_string();
    let needs = match arguments.purpose {
        Purpose::Run => Needs::Run,
        Purpose::Plan => Needs::Plan,
    };
    let mut answer = Answer::default();
    let mut shown = String::new();
    let config = match files::load(&arguments.config.config, needs) {
        Ok(config) => {
            answer.say(Line::good(format!("config {path}"), summary(&config)), SUCCESS);
            Some(config)
        }
        Err(report) => {
            shown = refused(&path, &report, arguments.output, &mut answer);
            // The configuration may still be sufficient to check the clusters.
            files::load(&arguments.config.config, Needs::Plan).ok()
        }
    };
    if let Some(line) = to_fill_in(&arguments.config.config) {
        answer.say(line, SUCCESS);
    }
    if let Some(config) = &config {
        neighbours::check(&arguments.config.config, config, &mut answer);
        if let Some(words) = expiry::soon(config, SystemClock.now()) {
            answer.say(Line::doubtful("credentials", words).help(expiry::WAY_OUT), SUCCESS);
        }
    }
    if let Some(config) = config.as_ref().filter(|_| !arguments.offline) {
        live::block_on(async {
            look(&arguments.config.config, config, &mut answer).await;
            Ok(())
        })?;
    }
    match arguments.output {
        Output::Json => input::json(&json!({"lines": answer.lines, "status": answer.status}))?,
        Output::Text => input::text(&format!("{shown}{}", answer.render()))?,
    }
    Ok(answer.status)
}

/// For JSON output, adds each finding with its location to the answer. For text output, returns the findings
/// with excerpts from the file, and adds a line with their number to the answer.
fn refused(path: &str, report: &Report, output: Output, answer: &mut Answer) -> String {
    if output == Output::Json {
        for finding in report.findings() {
            answer.say(Line::finding(path, finding, report), USAGE);
        }
        return String::new();
    }
    let number = report.findings().len();
    let message = format!("{}, shown above", count(number, "finding"));
    answer.say(Line::wrong(format!("config {path}"), message).counts(number), USAGE);
    format!("{}\n", report.styled())
}

/// Reports values that `migrate` left for the administrator to fill in, if the file still contains their
/// marks.
fn to_fill_in(path: &Path) -> Option<Line> {
    /// At most this many line numbers are listed.
    const NAMED: usize = 20;
    let text = std::fs::read_to_string(path).ok()?;
    let is_mark = |line: &str| {
        line.trim_start().strip_prefix('#').is_some_and(|rest| rest.trim_start().starts_with("FILL IN"))
    };
    let marked: Vec<usize> =
        text.lines().enumerate().filter(|(_, line)| is_mark(line)).map(|(at, _)| at + 1).collect();
    let lines: Vec<String> = marked.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if marked.len() > NAMED { ", …" } else { "" };
    let (places, at) = if marked.len() == 1 { ("place is", "line") } else { ("places are", "lines") };
    let marks = format!("{} {places} still marked FILL IN: {at} {}{more}", marked.len(), lines.join(", "));
    let help = "fill in each marked value, and remove its mark";
    (!marked.is_empty()).then(|| Line::doubtful(format!("config {}", path.display()), marks).help(help))
}

async fn look(file: &Path, config: &Config, answer: &mut Answer) {
    clusters::secrets(config, answer);
    let mut seen = Vec::new();
    for cluster in config.clusters() {
        let alone = config.alone(config.prefix(cluster.region.as_deref()));
        seen.push((clusters::proxmox(&alone, answer).await, alone));
    }
    let objects = clusters::kubernetes(config, answer).await;
    let nodes = objects.as_ref().map(|objects| objects.nodes.as_slice());
    clusters::token_host(config, answer).await;
    pinning::check(config, answer).await;
    for pool in &config.pools {
        bare_metal::check(pool, answer).await;
    }
    clusters::apart(&seen, answer);
    for (pve, alone) in &seen {
        if let Some(pve) = pve {
            neighbours::rights(file, pve, answer).await;
            region(pve, alone, nodes, answer).await;
        }
    }
}

/// Checks one Proxmox VE cluster for everything that its pools refer to.
async fn region(pve: &Pve, config: &Config, nodes: Option<&[Arc<Node>]>, answer: &mut Answer) {
    let configured = match slots::configured(pve).await {
        Ok(configured) => configured,
        Err(error) => {
            answer.say(Line::wrong("addresses of VMs", chain(&error)), UNREACHABLE);
            Vec::new()
        }
    };
    hosts::silent(pve, answer);
    built_templates::check(pve, config, answer).await;
    host_power::check(pve, answer).await;
    for pool in config.pools.iter().filter(|pool| !pool.is_physical()) {
        if hosts::is_unknown(pve, pool, answer) {
            continue;
        }
        let templates = template::check(pve, config, pool, answer).await;
        network_boot::check(pve, pool, answer).await;
        slots::check(pve, config, pool, nodes, &configured, answer).await;
        pci::check(pve, pool, &templates, answer);
        for line in grow::hosts(pve, pool) {
            answer.say(line, FINDINGS);
        }
        hosts::check(pve, pool, &templates, answer).await;
        firewall::check(pve, pool, answer).await;
        serving::addresses(config, pool, answer);
    }
}

fn summary(config: &Config) -> String {
    let (least, most) =
        config.pools.iter().fold((0, 0), |(least, most), pool| (least + pool.min, most + pool.max));
    format!("{}, {least} to {most} nodes", count(config.pools.len(), "pool"))
}
