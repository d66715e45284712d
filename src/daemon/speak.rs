//! What the daemon says about its decisions in Kubernetes, and each warning once in a while.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::Daemon;
use super::act::why;
use crate::kubernetes::{EventKind, Recorder, Saying};
use crate::model::plan::{NodeOutcome, NodeVerdict, Plan, PodOutcome, PodVerdict};
use crate::model::{Node, Pod, Snapshot};

/// Events that one round sends at most: the next one goes on where they still hold.
const EVENTS_A_ROUND: usize = 50;
/// The same warning is not given again before this has passed.
const AGAIN: Duration = Duration::from_mins(10);
/// Warnings that are remembered at most.
const REMEMBERED: usize = 1024;

/// What was said lately.
#[derive(Debug, Default)]
pub(super) struct Said(BTreeMap<String, Instant>);

impl Said {
    /// Says something unless it was said a moment ago.
    pub fn once(&mut self, what: &str, say: impl FnOnce()) {
        if self.0.get(what).is_some_and(|last| last.elapsed() < AGAIN) {
            return;
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(what.to_owned(), Instant::now());
        say();
    }
}

impl Daemon {
    /// Events on pods and nodes. They are sent beside the round, and nothing depends on them.
    pub(super) fn speak(&self, snapshot: &Snapshot, plan: &Plan) {
        let pods: BTreeMap<String, &Arc<Pod>> =
            snapshot.pods.iter().filter(|pod| pod.node.is_none()).map(|pod| (pod.id(), pod)).collect();
        let about_pods: Vec<(Arc<Pod>, Saying)> = plan
            .pods
            .iter()
            .filter(|verdict| {
                // Of a machine that grows already it was said when that began.
                let begins =
                    || plan.grow.iter().any(|grown| Some(grown.node.as_str()) == verdict.node.as_deref());
                verdict.verdict != PodOutcome::GrownNode || begins()
            })
            .filter_map(|verdict| Some(((*pods.get(&*verdict.pod)?).clone(), of_pod(verdict)?)))
            .take(EVENTS_A_ROUND)
            .collect();
        let nodes: BTreeMap<&str, &Arc<Node>> =
            snapshot.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let about_nodes: Vec<(Arc<Node>, Saying)> = plan
            .nodes
            .iter()
            .filter_map(|verdict| {
                Some(((*nodes.get(verdict.node.as_str())?).clone(), of_node(verdict, plan)?))
            })
            .take(EVENTS_A_ROUND)
            .collect();
        if about_pods.is_empty() && about_nodes.is_empty() {
            return;
        }
        let recorder: Recorder = self.recorder.clone();
        self.spawn(async move {
            for (pod, saying) in about_pods {
                if let Err(error) = recorder.event_on_pod(&pod, &saying).await {
                    tracing::debug!(%error, pod = pod.id(), "an event could not be sent");
                    return;
                }
            }
            for (node, saying) in about_nodes {
                if let Err(error) = recorder.event_on_node(&node, &saying).await {
                    tracing::debug!(%error, node = node.name, "an event could not be sent");
                    return;
                }
            }
        });
    }
}

/// What is said of a node: that it goes, or what keeps it although it would be unneeded.
fn of_node(verdict: &NodeVerdict, plan: &Plan) -> Option<Saying> {
    let says = |reason, code, note| {
        Some(Saying { kind: EventKind::Normal, reason, action: "ScaleDown", code, note })
    };
    let stays = match verdict.verdict {
        NodeOutcome::Remove => {
            let removal = plan.scale_down.iter().find(|removal| removal.node == verdict.node)?;
            let note = format!("The node is removed: {}", why(removal));
            return says("ScaleDown", format!("{:?}", removal.reason), note);
        }
        NodeOutcome::Blocked => match &verdict.pod {
            Some(pod) => format!("of pod {pod} ({})", verdict.reason.unwrap_or("it cannot be moved")),
            None => verdict.message.clone()?,
        },
        NodeOutcome::NoPlaceToMovePods => "its pods fit on no other node".to_owned(),
        _ => return None,
    };
    let code = format!("{:?} {}", verdict.verdict, verdict.reason.unwrap_or_default());
    says("NoScaleDown", code, format!("The node is little used, and stays because {stays}"))
}

/// What is said of a pod. The names are Cluster Autoscaler's: people and dashboards know them.
fn of_pod(verdict: &PodVerdict) -> Option<Saying> {
    let pool = || verdict.pool.as_deref().unwrap_or("?");
    let node = || verdict.node.as_deref().unwrap_or("?");
    let (reason, note) = match verdict.verdict {
        PodOutcome::NewNode => ("TriggeredScaleUp", format!("Pool {} gets a machine for this pod", pool())),
        PodOutcome::GrownNode => {
            ("TriggeredScaleUp", format!("The machine of {} grows for this pod", node()))
        }
        PodOutcome::NoPoolFits => ("NotTriggerScaleUp", format!("No pool can take it: {}", reasons(verdict))),
        PodOutcome::PoolAtMax | PodOutcome::NoHostCapacity | PodOutcome::BackingOff => {
            ("NotTriggerScaleUp", format!("No machine can be made now: {}", reasons(verdict)))
        }
        _ => return None,
    };
    let place = verdict.pool.as_deref().or(verdict.node.as_deref()).unwrap_or_default();
    let pools: Vec<String> =
        verdict.reasons.iter().map(|one| format!("{}: {}", one.pool, one.reason)).collect();
    let code = format!("{:?} {place} {}", verdict.verdict, pools.join(" "));
    Some(Saying { kind: EventKind::Normal, reason, action: "ScaleUp", code, note })
}

/// Why the pools do not take a pod, in words.
fn reasons(verdict: &PodVerdict) -> String {
    let reasons: Vec<_> =
        verdict.reasons.iter().map(|one| format!("{}: {}", one.pool, one.message)).collect();
    reasons.join("; ")
}
