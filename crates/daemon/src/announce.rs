//! Reports the daemon's decisions as Kubernetes events, and limits how often a warning is repeated.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::Daemon;
use super::execute::why;
use kubernetes::{EventKind, Recorder, Saying};
use model::drain::NodeReason;
use model::plan::{NodeOutcome, NodeVerdict, Plan, PodOutcome, PodVerdict};
use model::{Node, Pod, Snapshot};

/// A round sends at most this many events about what was done, and as many about what was not done. The next
/// round sends the remaining events if they still apply.
const EVENTS_A_ROUND: usize = 50;
/// The same warning is not repeated before this time has passed.
const AGAIN: Duration = Duration::from_mins(10);
/// The reasons of events about what was not done.
const NOT_DONE: [&str; 4] = ["NotTriggerScaleUp", "NoScaleDown", IGNORED, MISSED];
/// The reason of the event for an unreadable annotation.
const IGNORED: &str = "AnnotationIgnored";
/// The reason of the event for a pod that kube-scheduler did not place on the node that the planner had
/// chosen.
const MISSED: &str = "PredictionMissed";
/// The maximum number of warnings that are remembered.
const REMEMBERED: usize = 1024;

/// Remembers recent warnings, so that none is repeated too soon.
#[derive(Debug, Default)]
pub(super) struct RateLimitedLog(BTreeMap<String, Instant>);

impl RateLimitedLog {
    /// Logs a message unless it was logged recently.
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

/// The object of an event.
enum About {
    Pod(Arc<Pod>),
    Node(Arc<Node>),
}

/// The events of one round.
#[derive(Default)]
struct Batch {
    /// Events about what was done. They are sent first, because later rounds do not report them.
    done: Vec<(About, Saying)>,
    /// Events about what was not done, and why. Later rounds can still report them.
    rest: Vec<(About, Saying)>,
}

impl Batch {
    /// Adds an event, unless the batch is full or the event was sent recently.
    fn take(&mut self, recorder: &Recorder, about: About, saying: &Words, note: impl FnOnce() -> String) {
        let Words { reason, action, code } = saying;
        let list = if NOT_DONE.contains(reason) { &mut self.rest } else { &mut self.done };
        let uid = match &about {
            About::Pod(pod) => &pod.uid,
            About::Node(node) => &node.uid,
        };
        if list.len() < EVENTS_A_ROUND && !recorder.has_said(uid, reason, code) {
            let (code, note) = (code.clone(), note());
            let kind =
                if [IGNORED, MISSED].contains(reason) { EventKind::Warning } else { EventKind::Normal };
            list.push((about, Saying { kind, reason, action, code, note }));
        }
    }

    /// Sends all events. If the API server refuses one, the next is still tried. If the API server does not
    /// answer, the remaining events are dropped: the next round sends those that still apply.
    async fn say(self, recorder: Recorder) {
        for (about, saying) in self.done.into_iter().chain(self.rest) {
            let said = match &about {
                About::Pod(pod) => recorder.event_on_pod(pod, &saying).await,
                About::Node(node) => recorder.event_on_node(node, &saying).await,
            };
            if let Err(error) = said {
                tracing::debug!(%error, "an event could not be sent");
                if !error.was_answered() {
                    return;
                }
            }
        }
    }
}

/// The reason, action and code of an event, without its note.
struct Words {
    reason: &'static str,
    action: &'static str,
    code: String,
}

impl Daemon {
    /// Sends events about pods and nodes, concurrently with the round. Nothing depends on their success.
    pub(super) fn speak(&self, snapshot: &Snapshot, plan: &Plan) {
        let mut batch = Batch::default();
        let pods: BTreeMap<String, &Arc<Pod>> =
            snapshot.pods.iter().filter(|pod| pod.node.is_none()).map(|pod| (pod.id(), pod)).collect();
        let told = plan.pods.iter().filter(|verdict| {
            // If the machine is already growing, the event was sent when the growth began.
            let begins = || plan.grow.iter().any(|grown| Some(grown.node.as_str()) == verdict.node());
            verdict.verdict != PodOutcome::GrownNode || begins()
        });
        for verdict in told {
            if let (Some(words), Some(pod)) = (of_pod(verdict), pods.get(&*verdict.pod)) {
                let about = About::Pod(Arc::clone(pod));
                batch.take(&self.recorder, about, &words, || note_on_pod(verdict));
            }
        }
        let nodes: BTreeMap<&str, &Arc<Node>> =
            snapshot.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        for verdict in &plan.nodes {
            if let (Some((words, note)), Some(node)) =
                (of_node(verdict, plan), nodes.get(verdict.node.as_str()))
            {
                batch.take(&self.recorder, About::Node(Arc::clone(node)), &words, || note);
            }
        }
        self.name_ignored(&mut batch, snapshot, plan);
        if !(batch.done.is_empty() && batch.rest.is_empty()) {
            self.spawn(batch.say(self.recorder.clone()));
        }
    }

    /// Adds an event for each object with an unreadable annotation.
    fn name_ignored(&self, batch: &mut Batch, snapshot: &Snapshot, plan: &Plan) {
        if plan.ignored_annotations.is_empty() {
            return;
        }
        let annotated = snapshot.pods.iter().filter(|pod| !pod.annotations.is_empty());
        let pods: BTreeMap<String, &Arc<Pod>> =
            annotated.map(|pod| (format!("pod {}", pod.id()), pod)).collect();
        let nodes: BTreeMap<String, &Arc<Node>> =
            snapshot.nodes.iter().map(|node| (format!("node {}", node.name), node)).collect();
        for one in &plan.ignored_annotations {
            let pod = pods.get(&one.object).map(|pod| About::Pod(Arc::clone(pod)));
            let node = nodes.get(&one.object).map(|node| About::Node(Arc::clone(node)));
            let Some(about) = pod.or(node) else { continue };
            let words = Words { reason: IGNORED, action: "Plan", code: one.annotation.clone() };
            let note =
                || format!("The annotation {}={:?} is ignored: {}", one.annotation, one.value, one.why);
            batch.take(&self.recorder, about, &words, note);
        }
    }
}

/// The event for a node that is underutilized, unready or due for replacement. It reports that the node is
/// removed, or why it stays.
fn of_node(verdict: &NodeVerdict, plan: &Plan) -> Option<(Words, String)> {
    let action = "ScaleDown";
    let stays = match verdict.verdict {
        NodeOutcome::Remove => {
            let removal = plan.scale_down.iter().find(|removal| removal.node == verdict.node)?;
            let words = Words { reason: "ScaleDown", action, code: removal.reason.code().to_owned() };
            return Some((words, format!("Removing the node: {}", why(removal))));
        }
        NodeOutcome::Blocked => match &verdict.pod {
            Some(pod) => {
                let why = verdict.reason.map_or("it cannot be moved", NodeReason::code);
                format!("pod {pod} keeps it ({why})")
            }
            None => verdict.message.clone()?,
        },
        NodeOutcome::NoPlaceToMovePods => {
            verdict.message.clone().unwrap_or_else(|| "its pods fit on no other node".to_owned())
        }
        _ => return None,
    };
    let code = format!("{} {}", verdict.verdict.code(), verdict.reason.map_or("", NodeReason::code));
    let words = Words { reason: "NoScaleDown", action, code };
    Some((words, format!("The node is not removed now: {stays}")))
}

/// The event for a pod. If Cluster Autoscaler has the same reason, its name for the reason is used, because
/// people and dashboards know that name.
fn of_pod(verdict: &PodVerdict) -> Option<Words> {
    let reason = match verdict.verdict {
        PodOutcome::NewNode | PodOutcome::GrownNode => "TriggeredScaleUp",
        PodOutcome::NoPoolFits
        | PodOutcome::PoolAtMax
        | PodOutcome::NoHostCapacity
        | PodOutcome::BackingOff => "NotTriggerScaleUp",
        PodOutcome::PredictionMissed => MISSED,
        // No event is sent for a gang whose pods or PodGroup are still being created.
        PodOutcome::AwaitsGang if verdict.gang().is_some_and(|gang| gang.reason.lasts()) => {
            "NotTriggerScaleUp"
        }
        _ => return None,
    };
    let place = verdict.pool().or(verdict.node()).unwrap_or_default();
    let pools: Vec<String> =
        verdict.reasons().iter().map(|one| format!("{}: {}", one.pool, one.reason)).collect();
    let gang = verdict.gang().map(|gang| format!(" {}", gang.reason.code())).unwrap_or_default();
    let code = format!("{}{gang} {place} {}", verdict.verdict.code(), pools.join(" "));
    Some(Words { reason, action: "ScaleUp", code })
}

/// The event's note, with figures.
fn note_on_pod(verdict: &PodVerdict) -> String {
    let reasons: Vec<_> =
        verdict.reasons().iter().map(|one| format!("{}: {}", one.pool, one.message)).collect();
    let reasons = reasons.join("; ");
    match verdict.verdict {
        PodOutcome::GrownNode => {
            format!("The machine of node {} is growing for this pod", verdict.node().unwrap_or("?"))
        }
        PodOutcome::NoPoolFits => format!("No pool can take this pod: {reasons}"),
        PodOutcome::PoolAtMax | PodOutcome::NoHostCapacity | PodOutcome::BackingOff => {
            format!("No machine can be created now: {reasons}")
        }
        PodOutcome::AwaitsGang => format!("No machine is created: {}", verdict.why()),
        PodOutcome::PredictionMissed => match verdict.missed() {
            Some(missed) => format!("No machine is created now: {}", missed.words()),
            None => format!("No machine is created now: {reasons}"),
        },
        _ => format!("Pool {} gets a machine for this pod", verdict.pool().unwrap_or("?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_gives_the_reason_why_a_node_stays() {
        let due = "drifted: `max_pods` was 50 and is now 110; will be removed once w1, to which d/p moves, is ready";
        for (verdict, pod, message, expected) in [
            (NodeOutcome::Blocked, Some("d/p"), None, Some("pod d/p keeps it (it cannot be moved)")),
            (NodeOutcome::NoPlaceToMovePods, None, None, Some("its pods fit on no other node")),
            (NodeOutcome::NoPlaceToMovePods, None, Some(due), Some(due)),
            (NodeOutcome::Utilized, None, None, None),
        ] {
            let verdict = NodeVerdict {
                node: "w0".to_owned(),
                pool: None,
                utilization: None,
                verdict,
                reason: None,
                pod: pod.map(Into::into),
                message: message.map(Into::into),
                since: None,
                removable_at: None,
            };
            let note = of_node(&verdict, &Plan::default()).map(|(_, note)| note);
            assert_eq!(note, expected.map(|why| format!("The node is not removed now: {why}")));
        }
    }
}
