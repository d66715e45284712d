//! PodDisruptionBudgets, counted over all evictions that a plan makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::Snapshot;
use crate::model::pod::Pod;
use crate::model::workload::DisruptionBudget;
use crate::scheduling::selector::labels_match;

/// What the budgets still allow.
#[derive(Clone, Debug)]
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
        self.matching(pod).any(|(_, left)| *left < 1).then_some("NotEnoughPdb")
    }

    /// Takes the eviction of all these pods from the budgets, or names the first pod that is one too many.
    pub(super) fn take(&mut self, pods: &[Arc<Pod>]) -> Result<(), String> {
        let mut after = self.clone();
        for pod in pods {
            for (_, left) in after
                .by_namespace
                .get_mut(&pod.namespace)
                .into_iter()
                .flatten()
                .filter(|(budget, _)| matches(budget, pod))
            {
                *left -= 1;
                if *left < 0 {
                    return Err(pod.id());
                }
            }
        }
        *self = after;
        Ok(())
    }
}

fn matches(budget: &DisruptionBudget, pod: &Pod) -> bool {
    budget.selector.as_ref().is_some_and(|selector| labels_match(selector, &pod.labels))
}
