//! `explain`: which nodes could take a pod, or why a node stays.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::exit::{Failure, SUCCESS};
use super::input;
use super::{Output, live, plan_text};
use crate::config::{self, Needs};
use crate::planning;
use crate::scheduling::{self, Explanation};

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct Arguments {
    /// The configuration; not needed for pods of a snapshot
    #[arg(long, value_name = "FILE", default_value = "/etc/pve-autoscaler/config.toml")]
    config: PathBuf,
    /// A file of Kubernetes objects as kubectl prints them; `-` is standard input; without it the live cluster
    #[arg(long)]
    snapshot: Option<PathBuf>,
    /// The time of the decision (RFC 3339); without it the snapshot's own, else the clock's
    #[arg(long)]
    now: Option<Timestamp>,
    /// The pod
    #[arg(long, group = "what", value_name = "NAMESPACE/NAME")]
    pod: Option<String>,
    /// Every pod without a node
    #[arg(long, group = "what")]
    all_pods: bool,
    /// The node
    #[arg(long, group = "what", value_name = "NAME")]
    node: Option<String>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let config = || config::load(&arguments.config, Needs::Plan).map_err(Failure::Configuration);
    let (snapshot, place) = match &arguments.snapshot {
        Some(file) => (input::snapshot(file, arguments.now)?, "snapshot"),
        None => (live::snapshot(&config()?, arguments.now)?, "cluster"),
    };
    if let Some(name) = &arguments.node {
        let config = config()?;
        let plan = planning::plan(&snapshot, &config);
        let verdict = plan.nodes.iter().find(|verdict| verdict.node == *name);
        let verdict =
            verdict.ok_or_else(|| Failure::NotFound(format!("the {place} has no node `{name}`")))?;
        if arguments.output == Output::Json {
            input::json(&json!({"nodes": [verdict]}))?;
        } else {
            let line = plan_text::node(verdict, plan.time);
            input::text(&format!("{name}   {line}\n"))?;
        }
        return Ok(SUCCESS);
    }
    let explanations = scheduling::explain(&snapshot, arguments.pod.as_deref());
    if let (Some(pod), true) = (&arguments.pod, explanations.is_empty()) {
        return Err(Failure::NotFound(format!("the {place} has no pod `{pod}`")));
    }
    if arguments.output == Output::Json {
        input::json(&json!({"pods": explanations}))?;
    } else {
        let mut all = String::new();
        for explanation in &explanations {
            all.push_str(&render(explanation));
        }
        input::text(&all)?;
    }
    Ok(SUCCESS)
}

fn render(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", explanation.pod);
    let width = explanation.nodes.iter().map(|one| one.node.len()).max().unwrap_or(0);
    for one in &explanation.nodes {
        let said = match (one.filter, &one.message) {
            (Some(filter), Some(message)) => format!("{filter}: {message}"),
            _ => "fits".to_owned(),
        };
        let _ = writeln!(text, "  {:width$}  {said}", one.node);
    }
    if let Some(words) = &explanation.scheduler {
        let _ = writeln!(text, "  kube-scheduler says: {words}");
    }
    for one in &explanation.missed {
        let place = one.pool.as_deref().map_or_else(|| one.node.clone(), |pool| format!("pool {pool}"));
        let _ = writeln!(text, "  prediction missed, {place} until {}: {}", one.until, one.words());
    }
    text
}
