//! Decides whether a node's pods may be evicted. The rules and their order are those of Cluster Autoscaler.
//! Each rule is in a separate file. Three details differ from Cluster Autoscaler. The rules after
//! `kube_system` also apply to old kube-system pods. Disruption budgets also apply to pods with
//! `safe-to-evict: "true"`. All pods of a node are counted against a budget together.

mod controller_not_found;
mod daemon_set;
mod disruption_budgets;
mod evictions;
mod finished;
mod kube_system;
mod local_storage;
mod mirror;
mod not_replicated;
mod not_safe_to_evict;
mod on_completion;
mod overdue;
mod terminating;
mod volumes;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::budgets::Budgets;
use model::Snapshot;
use model::drain::Blocking;
use model::pod::Pod;
use settings::ScaleDown;

pub use evictions::Evictions;
pub use volumes::volumes_that_stay;

/// What happens to a pod when its node is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The pod needs no other place: it ends by itself, or when its node is removed.
    Skip,
    /// The pod has ended, and needs no other place.
    Finished,
    /// The pod is evicted, and needs another place.
    Move,
    /// The drain waits for the pod to end.
    Await,
    /// The pod keeps its node.
    Block(Blocking),
}

/// A pod that the rules are applied to.
struct Question<'q, 'a> {
    pod: &'q Pod,
    rules: &'q Rules<'a>,
    budgets: &'q Budgets,
}

/// A rule returns what happens to the pod. `None` means that the rule does not apply, and that the next rule
/// is tried.
type Rule = fn(&Question) -> Option<Outcome>;

/// The condition under which a rule is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Always,
    /// The rule is skipped if the pod is annotated `safe-to-evict: "true"`.
    UnlessSafe,
}

/// All rules, in the order in which they are applied.
const RULES: [(Asked, Rule); 12] = [
    (Asked::Always, mirror::judge),
    (Asked::Always, overdue::judge),
    (Asked::Always, controller_not_found::judge),
    (Asked::Always, daemon_set::judge),
    (Asked::UnlessSafe, finished::judge),
    (Asked::UnlessSafe, on_completion::judge),
    (Asked::UnlessSafe, not_replicated::judge),
    (Asked::UnlessSafe, kube_system::judge),
    (Asked::UnlessSafe, not_safe_to_evict::judge),
    (Asked::UnlessSafe, local_storage::judge),
    (Asked::Always, terminating::judge),
    (Asked::Always, disruption_budgets::judge),
];

const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

impl Question<'_, '_> {
    /// The answer of the first rule that applies. A pod to which no rule applies is evicted.
    fn answer(&self) -> Outcome {
        let safe = self.annotation(SAFE_TO_EVICT) == Some("true");
        let asked = RULES.iter().filter(|(asked, _)| *asked == Asked::Always || !safe);
        asked.map(|(_, rule)| rule(self)).find_map(|outcome| outcome).unwrap_or(Outcome::Move)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.pod.annotations.get(key).map(String::as_str)
    }
}

/// The pods that are affected when a node is drained.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Pods that need another place.
    pub moves: Vec<Arc<Pod>>,
    /// Pods that are evicted and need no other place, because they are expendable.
    pub expendable: Vec<Arc<Pod>>,
    /// A pod that must finish before the node is removed (`safe-to-evict: "on-completion"`).
    pub awaited: Option<String>,
}

impl Drain {
    /// All pods whose eviction the budgets must allow.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.moves.iter().chain(&self.expendable)
    }
}

/// Why a node cannot be drained.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blocker {
    pub reason: Blocking,
    pub pod: String,
}

/// The input of the rules, apart from pods and budgets.
pub(super) struct Rules<'a> {
    settings: &'a ScaleDown,
    now: Timestamp,
    snapshot: &'a Snapshot,
    /// The kinds, namespaces and names of controllers, collected when a rule first needs them.
    controllers: OnceCell<BTreeSet<(&'a str, &'a str, &'a str)>>,
}

impl<'a> Rules<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, settings: &'a ScaleDown) -> Self {
        Self { settings, now: snapshot.time, snapshot, controllers: OnceCell::new() }
    }

    /// Whether a controller of this kind, namespace and name exists.
    fn has_controller(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let Snapshot { controllers, daemon_sets, .. } = self.snapshot;
        let listed = || {
            let all = controllers.iter().map(|one| (one.kind.as_str(), &*one.namespace, &*one.name));
            let daemons = daemon_sets.iter().map(|one| ("DaemonSet", &*one.namespace, &*one.name));
            all.chain(daemons).collect()
        };
        self.controllers.get_or_init(listed).contains(&(kind, namespace, name))
    }

    fn judge(&self, pod: &Pod, budgets: &Budgets) -> Outcome {
        Question { pod, rules: self, budgets }.answer()
    }

    /// Determines which pods are affected if a node with these pods is drained, or why the node cannot be
    /// drained.
    pub(super) fn drain<'p>(
        &self,
        pods: impl IntoIterator<Item = &'p Arc<Pod>>,
        budgets: &Budgets,
    ) -> Result<Drain, Blocker> {
        let mut drain = Drain::default();
        for pod in pods {
            match self.judge(pod, budgets) {
                Outcome::Skip | Outcome::Finished => {}
                Outcome::Await => {
                    drain.awaited.get_or_insert_with(|| pod.id());
                }
                Outcome::Move => drain.moves.push(pod.clone()),
                Outcome::Block(reason) => return Err(Blocker { reason, pod: pod.id() }),
            }
        }
        Ok(drain)
    }
}

#[cfg(test)]
mod tests {
    pub(super) use model::pod::{PodPhase, Volume};
    pub(super) use model::workload::DisruptionBudget;

    pub(super) use super::*;
    use model::pod::{Deletion, Owner};
    use model::pod_spec::PodSpec;
    use model::selector::LabelSelector;

    /// Applies one rule to a pod, with default settings. It is noon, and the cluster contains no controllers.
    pub(super) fn ask(rule: Rule, pod: &Pod) -> Option<Outcome> {
        ask_with(rule, pod, &defaults(), Vec::new())
    }

    /// Like [`ask`], with these settings and budgets.
    pub(super) fn ask_with(
        rule: Rule,
        pod: &Pod,
        settings: &ScaleDown,
        budgets: Vec<DisruptionBudget>,
    ) -> Option<Outcome> {
        let budgets = budgets.into_iter().map(Arc::new).collect();
        let snapshot = Snapshot { time: time("12:00:00"), budgets, ..Snapshot::default() };
        let (rules, budgets) = (Rules::new(&snapshot, settings), Budgets::new(&snapshot));
        rule(&Question { pod, rules: &rules, budgets: &budgets })
    }

    pub(super) fn defaults() -> ScaleDown {
        settings::parse("config.toml", "", settings::Needs::Plan).unwrap().scale_down
    }

    pub(super) fn time(of_day: &str) -> Timestamp {
        format!("2026-01-01T{of_day}Z").parse().unwrap()
    }

    /// A pod of a ReplicaSet.
    pub(super) fn replica() -> Pod {
        owned("apps/v1", "ReplicaSet")
    }

    pub(super) fn owned(api_version: &str, kind: &str) -> Pod {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        let owner = Owner { api_version, kind, name: "x".to_owned(), uid: String::new() };
        let spec = PodSpec { owner: Some(owner), ..PodSpec::default() };
        Pod { spec: Arc::new(spec), ..Pod::default() }
    }

    pub(super) fn annotated(key: &str, value: &str) -> Pod {
        let mut pod = replica();
        pod.annotations.insert(key.to_owned(), value.to_owned());
        pod
    }

    /// A pod whose grace period ends at this time.
    pub(super) fn ending(at: &str) -> Pod {
        Pod { deletion: Some(Deletion { at: time(at), grace_seconds: None }), ..replica() }
    }

    /// A budget that selects all pods of the empty namespace.
    pub(super) fn budget(disruptions_allowed: i64) -> DisruptionBudget {
        DisruptionBudget {
            namespace: String::new(),
            name: "b".to_owned(),
            selector: Some(LabelSelector::default()),
            disruptions_allowed,
            always_allows_unhealthy: false,
            healthy: (1, 1),
        }
    }
}
