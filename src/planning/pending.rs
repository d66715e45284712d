//! Which pods wait for a node, and which of them may cause one.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use super::View;
use crate::config::Config;
use crate::model::Snapshot;
use crate::model::plan::PodOutcome;
use crate::model::pod::{Pod, PodPhase, Scheduling};
use crate::model::workload::PriorityClass;

/// Priorities of pods, by themselves or by their class.
pub(super) struct Priorities<'a> {
    classes: BTreeMap<&'a str, &'a PriorityClass>,
    default: Option<i32>,
    cutoff: i32,
}

impl<'a> Priorities<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, config: &Config) -> Self {
        let classes: BTreeMap<_, _> =
            snapshot.priority_classes.iter().map(|class| (class.name.as_str(), class.as_ref())).collect();
        let default = classes.values().filter(|class| class.global_default).map(|class| class.value).max();
        Self { classes, default, cutoff: config.scale_up.expendable_pods_priority_cutoff }
    }

    fn given(&self, pod: &Pod) -> Option<i32> {
        let by_class = self.classes.get(pod.priority_class.as_str()).map(|class| class.value);
        pod.priority.or(by_class).or(self.default)
    }

    /// The pod's priority, 0 where nothing gives it one.
    pub(super) fn of(&self, pod: &Pod) -> i32 {
        self.given(pod).unwrap_or(0)
    }

    /// Below the cut-off; a pod without a priority never is (Cluster Autoscaler's rule).
    pub(super) fn expendable(&self, pod: &Pod) -> bool {
        self.given(pod).is_some_and(|priority| priority < self.cutoff)
    }
}

/// A pod that waits.
pub(super) struct Waiting<'a> {
    pub pod: &'a Arc<Pod>,
    pub priority: i32,
    /// Decided already, without looking for room.
    pub settled: Option<PodOutcome>,
    /// It gets a verdict. Pods that will have to leave a node on its way out are placed too, but not listed.
    pub listed: bool,
}

/// The pods that wait for a node, in the snapshot's order, then those that will lose theirs.
pub(super) fn waiting<'a>(view: &View<'a>) -> Vec<Waiting<'a>> {
    let priorities = Priorities::new(view.snapshot, view.config);
    let mut all: Vec<_> = view
        .pods
        .iter()
        .filter(|pod| waits(pod))
        .map(|pod| Waiting {
            pod,
            priority: priorities.of(pod),
            settled: settled(pod, &priorities, view),
            listed: true,
        })
        .collect();
    for (at, pods) in view.bound.iter().enumerate() {
        if view.world.node(at).open {
            continue;
        }
        for pod in pods.iter().filter(|pod| will_be_made_again(pod)) {
            let priority = priorities.of(pod);
            all.push(Waiting { pod, priority, settled: None, listed: false });
        }
    }
    all
}

fn waits(pod: &Pod) -> bool {
    pod.node.is_none()
        && pod.deletion.is_none()
        && !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
}

/// A pod of a node on its way out needs a place when its controller makes another one.
fn will_be_made_again(pod: &Pod) -> bool {
    let finished = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
    pod.owner.is_some() && !finished && pod.deletion.is_none() && !is_daemon(pod) && !is_mirror(pod)
}

fn settled(pod: &Pod, priorities: &Priorities, view: &View) -> Option<PodOutcome> {
    if pod.scheduling == Scheduling::Gated {
        return Some(PodOutcome::Gated);
    }
    if is_daemon(pod) {
        return Some(PodOutcome::DaemonSet);
    }
    if priorities.expendable(pod) {
        return Some(PodOutcome::Expendable);
    }
    let configured =
        SignedDuration::try_from(view.config.scale_up.new_pod_delay).unwrap_or(SignedDuration::MAX);
    let own = pod
        .annotations
        .get("cluster-autoscaler.kubernetes.io/pod-scale-up-delay")
        .and_then(|text| text.parse::<SignedDuration>().ok());
    let delay = own.map_or(configured, |own| own.max(configured));
    let young = pod.created.is_some_and(|created| view.snapshot.time.duration_since(created) < delay);
    young.then_some(PodOutcome::TooYoung)
}

/// A pod of a DaemonSet, or one that says it should be treated like one.
pub(super) fn is_daemon(pod: &Pod) -> bool {
    let marked = pod.annotations.get("cluster-autoscaler.kubernetes.io/daemonset-pod");
    pod.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet")
        || marked.is_some_and(|value| value == "true")
}

/// A static pod's mirror in the API.
pub(super) fn is_mirror(pod: &Pod) -> bool {
    pod.annotations.contains_key("kubernetes.io/config.mirror")
}
