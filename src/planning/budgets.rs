//! PodDisruptionBudgets, counted over all evictions that a plan makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::Snapshot;
use crate::model::pod::{Pod, PodPhase};
use crate::model::workload::DisruptionBudget;
use crate::scheduling::selector::labels_match;

/// More than one budget speaks of a pod.
pub(super) const SEVERAL: &str = "SeveralPdbs";

/// What the budgets still allow.
#[derive(Debug)]
pub(super) struct Budgets {
    by_namespace: BTreeMap<String, Vec<(Arc<DisruptionBudget>, i64)>>,
}

impl Budgets {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut by_namespace: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for budget in &snapshot.budgets {
            let list = by_namespace.entry(budget.namespace.clone()).or_default();
            list.push((budget.clone(), budget.disruptions_allowed));
        }
        Self { by_namespace }
    }

    fn matching<'s>(&'s self, pod: &'s Pod) -> impl Iterator<Item = &'s (Arc<DisruptionBudget>, i64)> {
        self.by_namespace.get(&pod.namespace).into_iter().flatten().filter(|(budget, _)| matches(budget, pod))
    }

    /// Whether any budget speaks of the pod.
    pub(super) fn covers(&self, pod: &Pod) -> bool {
        self.matching(pod).next().is_some()
    }

    /// Why the pod cannot be evicted now, if so.
    pub(super) fn refusal(&self, pod: &Pod) -> Option<&'static str> {
        let full = self.matching(pod).any(|(_, left)| *left < 1);
        full.then_some("NotEnoughPdb").or_else(|| self.several(pod).then_some(SEVERAL))
    }

    /// Whether several budgets speak of the pod: the API server evicts no such pod, unless it is about to start or has ended
    /// (`canIgnorePDB`).
    pub(super) fn several(&self, pod: &Pod) -> bool {
        let asked = matches!(pod.phase, PodPhase::Running | PodPhase::Unknown);
        asked && self.matching(pod).nth(1).is_some()
    }

    /// Whether the budgets allow the eviction of all these pods together; else names the first that is one too many.
    pub(super) fn allow<'p>(&self, pods: impl Iterator<Item = &'p Arc<Pod>>) -> Result<(), String> {
        let mut used: BTreeMap<*const DisruptionBudget, i64> = BTreeMap::new();
        for pod in pods {
            for (budget, left) in self.matching(pod) {
                let used = used.entry(Arc::as_ptr(budget)).or_default();
                *used += 1;
                if *used > *left {
                    return Err(pod.id());
                }
            }
        }
        Ok(())
    }

    /// Takes the eviction of all these pods from the budgets, which allow it.
    pub(super) fn take<'p>(&mut self, pods: impl Iterator<Item = &'p Arc<Pod>>) {
        for pod in pods {
            let of_namespace = self.by_namespace.get_mut(&pod.namespace).into_iter().flatten();
            for (_, left) in of_namespace.filter(|(budget, _)| matches(budget, pod)) {
                *left -= 1;
            }
        }
    }
}

fn matches(budget: &DisruptionBudget, pod: &Pod) -> bool {
    budget.selector.as_ref().is_some_and(|selector| labels_match(selector, &pod.labels))
}
