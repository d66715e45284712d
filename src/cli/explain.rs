//! `explain`: which nodes and pools could take a pod, or why a node is kept.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::exit::{Failure, SUCCESS};
use super::input;
use super::{Output, live, plan_text};
use model::drain::Blocking;
use model::plan::{NodeVerdict, PodVerdict};
use model::{Plan, Snapshot};
use planning::{PoolAnswer, Prospects, Removal, Treatment};
use scheduling::Explanation;
use settings::{Config, Needs};

/// The default path of the configuration.
const CONFIG: &str = "/etc/pve-autoscaler/config.toml";

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct Arguments {
    /// The configuration [default: /etc/pve-autoscaler/config.toml]; with `--snapshot` and a pod, pools are
    /// shown only if this option is given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file of Kubernetes objects as kubectl prints them, or `-` for standard input (default: the live
    /// cluster)
    #[arg(long)]
    snapshot: Option<PathBuf>,
    /// The time of the decision, in RFC 3339 (default: the snapshot's time, else the current time)
    #[arg(long)]
    now: Option<Timestamp>,
    /// Explain this pod
    #[arg(long, group = "what", value_name = "NAMESPACE/NAME")]
    pod: Option<String>,
    /// Explain every pod without a node
    #[arg(long, group = "what")]
    all_pods: bool,
    /// Explain this node
    #[arg(long, group = "what", value_name = "NAME")]
    node: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Everything that is printed about a pod.
#[derive(Serialize)]
struct Story<'a> {
    #[serde(flatten)]
    explanation: &'a Explanation,
    /// The plan's verdict on the pod, if the pod is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'a PodVerdict>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    prospects: Option<&'a Prospects>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let file = arguments.config.as_deref();
    let config =
        || files::load(file.unwrap_or(Path::new(CONFIG)), Needs::Plan).map_err(Failure::Configuration);
    let (snapshot, place) = match &arguments.snapshot {
        Some(file) => (input::snapshot(file, arguments.now)?, "snapshot"),
        None => (live::snapshot(&config()?, arguments.now)?, "cluster"),
    };
    if let Some(name) = &arguments.node {
        return node(name, &planning::plan(&snapshot, &config()?), place, arguments.output);
    }
    let explanations = scheduling::explain(&snapshot, arguments.pod.as_deref());
    if let (Some(pod), true) = (&arguments.pod, explanations.is_empty()) {
        return Err(Failure::NotFound(format!("the {place} has no pod `{pod}`")));
    }
    let decided = match (&arguments.snapshot, file) {
        (Some(_), None) => None,
        _ => Some(Decided::of(&snapshot, &config()?, &explanations)),
    };
    let stories = explanations.iter().map(|one| story(one, decided.as_ref()));
    if arguments.output == Output::Json {
        input::json(&json!({"pods": stories.collect::<Vec<_>>()}))?;
    } else {
        let all: String =
            stories.map(|one| render(&one, decided.as_ref().map(|decided| &decided.plan))).collect();
        input::text(&all)?;
    }
    Ok(SUCCESS)
}

fn node(name: &str, plan: &Plan, place: &str, output: Output) -> Result<u8, Failure> {
    let verdict = verdict_of(plan, name);
    let verdict = verdict.ok_or_else(|| Failure::NotFound(format!("the {place} has no node `{name}`")))?;
    if output == Output::Json {
        input::json(&json!({"nodes": [verdict]}))?;
    } else {
        let line = plan_text::node(verdict, plan.time);
        input::text(&format!("{name}   {line}\n"))?;
    }
    Ok(SUCCESS)
}

fn verdict_of<'p>(plan: &'p Plan, node: &str) -> Option<&'p NodeVerdict> {
    plan.nodes.iter().find(|verdict| verdict.node == node)
}

/// The plan for a snapshot and a configuration.
struct Decided {
    plan: Plan,
    /// The index of each pod's verdict in the plan.
    verdicts: BTreeMap<String, usize>,
    prospects: BTreeMap<String, Prospects>,
}

impl Decided {
    fn of(snapshot: &Snapshot, config: &Config, explanations: &[Explanation]) -> Self {
        let ids = explanations.iter().map(|one| one.pod.as_str());
        let prospects = planning::prospects(snapshot, config, ids);
        let plan = planning::plan(snapshot, config);
        let verdicts = plan.pods.iter().enumerate().map(|(at, one)| (one.pod.to_string(), at)).collect();
        Self { plan, verdicts, prospects }
    }
}

fn story<'a>(explanation: &'a Explanation, decided: Option<&'a Decided>) -> Story<'a> {
    let verdict = decided.and_then(|all| all.plan.pods.get(*all.verdicts.get(explanation.pod.as_str())?));
    let prospects = decided.and_then(|all| all.prospects.get(&explanation.pod));
    Story { explanation, verdict, prospects }
}

fn render(story: &Story, plan: Option<&Plan>) -> String {
    let Explanation { pod, nodes, scheduler, missed } = story.explanation;
    let mut text = format!("{pod}\n");
    let pools = story.prospects.map(|prospects| prospects.pools.as_slice()).unwrap_or_default();
    let removal = story.prospects.and_then(|prospects| prospects.removal.as_ref());
    let named: Vec<String> = pools.iter().map(|one| format!("pool {}", one.pool)).collect();
    let names = nodes.iter().map(|one| one.node.as_str()).chain(named.iter().map(String::as_str));
    let width = names.map(str::len).max().unwrap_or(0);
    for one in nodes {
        let said = match (one.filter, &one.message) {
            _ if removal.is_some_and(|removal| removal.node == one.node) => "runs here".to_owned(),
            (Some(filter), Some(message)) => format!("{filter}: {message}"),
            _ => "fits".to_owned(),
        };
        let _ = writeln!(text, "  {:width$}  {said}", one.node);
    }
    for (name, pool) in named.iter().zip(pools) {
        let _ = writeln!(text, "  {name:width$}  {}", of_pool(pool));
    }
    if let Some(verdict) = story.verdict {
        let _ = writeln!(text, "  decided: {}", plan_text::pod(verdict));
    }
    if let Some(removal) = removal {
        if let Some((plan, verdict)) = plan.and_then(|plan| Some((plan, verdict_of(plan, &removal.node)?))) {
            let _ = writeln!(text, "  its node: {}", plan_text::node(verdict, plan.time));
        }
        let _ = writeln!(text, "  if its node is removed: {}", on_removal(story.explanation, pools, removal));
    }
    if let Some(words) = scheduler {
        let _ = writeln!(text, "  kube-scheduler reports: {words}");
    }
    for one in missed {
        let place = one.pool.as_deref().map_or_else(|| one.node.clone(), |pool| format!("pool {pool}"));
        let _ =
            writeln!(text, "  missed prediction for {place}, in effect until {}: {}", one.until, one.words());
    }
    text
}

fn of_pool(pool: &PoolAnswer) -> String {
    let message = pool.message.as_deref().unwrap_or_default();
    match (pool.filter, pool.reason) {
        (Some(filter), _) => format!("{filter}: {message}"),
        (None, Some(reason)) => {
            format!("a new machine would fit, but none can be created ({reason}): {message}")
        }
        (None, None) => "fits a new machine".to_owned(),
    }
}

/// Describes what would happen to this pod if its node were removed. The node's other pods, which would also
/// need room elsewhere, are not considered.
fn on_removal(explanation: &Explanation, pools: &[PoolAnswer], removal: &Removal) -> String {
    let message = removal.message.as_deref().unwrap_or_default();
    match removal.treatment {
        Treatment::EndsWithNode => "the pod ends with the node".to_owned(),
        Treatment::Expendable => "the pod is evicted and needs no other node: it is expendable".to_owned(),
        Treatment::Awaited => "the removal waits until the pod has ended".to_owned(),
        Treatment::KeepsNode => {
            format!(
                "the node is kept for this pod ({}): {message}",
                removal.reason.map_or("", Blocking::code)
            )
        }
        Treatment::Evicted => {
            let takes = |one: &&scheduling::NodeAnswer| one.fits && one.node != removal.node;
            let node = explanation.nodes.iter().find(takes).map(|one| format!("fits node {}", one.node));
            let pool = || {
                pools
                    .iter()
                    .find(|one| one.fits)
                    .map(|one| format!("fits a new machine of pool {}", one.pool))
            };
            let place = node.or_else(pool);
            place.map_or_else(
                || "the node is kept: the pod fits nowhere else".to_owned(),
                |place| format!("the pod is evicted and {place}"),
            )
        }
    }
}
