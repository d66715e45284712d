//! Applies PodDisruptionBudgets to all evictions of a plan together.
//!
//! A budget whose selector requires a label value is only checked for pods with that value, so that a
//! thousand budgets cost little more than one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use model::Snapshot;
use model::drain::Blocking;
use model::pod::{Pod, PodPhase};
use model::workload::DisruptionBudget;
use scheduling::finder::Finder;
use scheduling::numbers::Numbers;
use scheduling::selector::labels_match;

/// The evictions that the disruption budgets still allow.
#[derive(Debug)]
pub(super) struct Budgets {
    /// The budgets, each with the number of evictions that it still allows.
    all: Vec<(Arc<DisruptionBudget>, i64)>,
    /// By namespace, finds the budgets that may select a pod, as indexes in `all`.
    finders: BTreeMap<String, Finder>,
    known: RefCell<Known>,
}

/// Which budgets select the pods that were asked about so far. A decision asks several times about each pod,
/// and about many pods with the same labels.
#[derive(Debug, Default)]
struct Known {
    /// Indexes in `lists`, by [`model::digest::Digest::seen_as`]. It is equal only for pods with the same
    /// namespace and labels.
    numbers: Numbers,
    /// The budgets that select these pods, as indexes in [`Budgets::all`].
    lists: Vec<Rc<[usize]>>,
}

impl Budgets {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut finders: BTreeMap<String, Finder> = BTreeMap::new();
        for (place, budget) in snapshot.budgets.iter().enumerate() {
            finders.entry(budget.namespace.clone()).or_default().add(place, budget.selector.iter());
        }
        let all = snapshot.budgets.iter().map(|one| (one.clone(), one.disruptions_allowed)).collect();
        Self { all, finders, known: RefCell::default() }
    }

    /// The budgets that select the pod, as indexes in `all`.
    fn matching(&self, pod: &Pod) -> Rc<[usize]> {
        let mut known = self.known.borrow_mut();
        let Known { numbers, lists } = &mut *known;
        let next = lists.len();
        let number = numbers.get_or_insert(pod.digest().seen_as, next);
        if number == next {
            let finder = self.finders.get(&pod.namespace);
            let candidates = finder.into_iter().flat_map(|finder| finder.candidates(&pod.labels));
            lists.push(candidates.filter(|&place| matches(&self.all[place].0, pod)).collect());
        }
        lists[number].clone()
    }

    /// Whether any budget selects the pod.
    pub(super) fn covers(&self, pod: &Pod) -> bool {
        !self.all.is_empty() && !self.matching(pod).is_empty()
    }

    /// Why the budgets refuse the pod's eviction now, or `None` if they allow it.
    pub(super) fn refusal(&self, pod: &Pod) -> Option<Blocking> {
        if self.all.is_empty() {
            return None;
        }
        let own = self.matching(pod);
        let is_full = |place: &usize| {
            let (budget, left) = &self.all[*place];
            *left < 1 && takes_from(budget, pod)
        };
        if own.iter().any(is_full) {
            return Some(Blocking::NotEnoughPdb);
        }
        (own.len() > 1 && is_asked(pod)).then_some(Blocking::SeveralPdbs)
    }

    /// Whether the API server refuses to evict the pod because several budgets select it.
    pub(super) fn several(&self, pod: &Pod) -> bool {
        is_asked(pod) && self.matching(pod).len() > 1
    }

    /// Checks whether the budgets allow all of these pods to be evicted together. The error contains the id
    /// of the first pod whose eviction would exceed a budget.
    pub(super) fn allow<'p>(&self, pods: impl Iterator<Item = &'p Arc<Pod>>) -> Result<(), String> {
        if self.all.is_empty() {
            return Ok(());
        }
        let mut used: BTreeMap<usize, i64> = BTreeMap::new();
        for pod in pods {
            for &place in &*self.matching(pod) {
                let (budget, left) = &self.all[place];
                if takes_from(budget, pod) {
                    let used = used.entry(place).or_default();
                    *used += 1;
                    if *used > *left {
                        return Err(pod.id());
                    }
                }
            }
        }
        Ok(())
    }

    /// Subtracts the evictions of all these pods from what the budgets allow.
    pub(super) fn take<'p>(&mut self, pods: impl Iterator<Item = &'p Arc<Pod>>) {
        if self.all.is_empty() {
            return;
        }
        for pod in pods {
            for &place in &*self.matching(pod) {
                let (budget, left) = &mut self.all[place];
                *left -= i64::from(takes_from(budget, pod));
            }
        }
    }
}

/// Whether the API server checks budgets before it evicts the pod. It does not if the pod has not started
/// yet, has ended, or is being deleted (`canIgnorePDB`).
fn is_asked(pod: &Pod) -> bool {
    pod.deletion.is_none() && matches!(pod.phase, PodPhase::Running | PodPhase::Unknown)
}

/// Whether the pod's eviction counts against the budget. A pod that is not ready is already counted as
/// disrupted. Its eviction does not count if the budget always allows the eviction of unhealthy pods, or if
/// enough other pods are healthy.
fn takes_from(budget: &DisruptionBudget, pod: &Pod) -> bool {
    let (healthy, desired) = budget.healthy;
    is_asked(pod) && (pod.ready || !(budget.always_allows_unhealthy || (desired > 0 && healthy >= desired)))
}

fn matches(budget: &DisruptionBudget, pod: &Pod) -> bool {
    budget.selector.as_ref().is_some_and(|selector| labels_match(selector, &pod.labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::pod::Deletion;
    use model::selector::{LabelSelector, Operator, Requirement};

    fn pod(phase: PodPhase, ready: bool, leaves: bool) -> Pod {
        let deletion = leaves.then_some(Deletion { at: jiff::Timestamp::UNIX_EPOCH, grace_seconds: None });
        let mut pod = Pod { deletion, phase, ready, ..Pod::default() };
        pod.namespace = "d".to_owned();
        pod
    }

    fn budgets(always: bool, healthy: (i64, i64), count: usize) -> Budgets {
        let budget = DisruptionBudget {
            namespace: "d".to_owned(),
            name: "b".to_owned(),
            selector: Some(LabelSelector::default()),
            disruptions_allowed: 0,
            always_allows_unhealthy: always,
            healthy,
        };
        let budgets = (0..count).map(|_| Arc::new(budget.clone())).collect();
        Budgets::new(&Snapshot { budgets, ..Snapshot::default() })
    }

    #[test]
    fn a_budget_without_room_refuses_what_the_eviction_subresource_refuses() {
        use PodPhase::{Failed, Pending, Running, Succeeded, Unknown};
        const FULL: Option<Blocking> = Some(Blocking::NotEnoughPdb);
        for (phase, ready, leaves, always, healthy, expected) in [
            (Running, true, false, false, (1, 1), FULL),
            (Running, true, false, true, (0, 1), FULL),
            (Running, true, true, false, (1, 1), None),
            (Pending, false, false, false, (0, 1), None),
            (Succeeded, false, false, false, (0, 1), None),
            (Failed, false, false, false, (0, 1), None),
            (Running, false, false, true, (0, 1), None),
            (Running, false, false, false, (1, 1), None),
            (Running, false, false, false, (0, 1), FULL),
            (Running, false, false, false, (0, 0), FULL),
            (Unknown, false, false, false, (0, 1), FULL),
        ] {
            let (pod, budgets) = (pod(phase, ready, leaves), budgets(always, healthy, 1));
            let said = budgets.refusal(&pod);
            assert_eq!(said, expected, "{phase:?} ready: {ready}, leaves: {leaves}, {always} {healthy:?}");
            assert_eq!(budgets.allow([&Arc::new(pod)].into_iter()).is_ok(), expected.is_none());
        }
    }

    #[test]
    fn every_budget_that_speaks_of_a_pod_is_found() {
        let requirement = |operator, values: &[&str]| {
            let values = values.iter().map(|&value| value.to_owned()).collect();
            Requirement { key: "app".to_owned(), operator, values }
        };
        let all = [
            vec![requirement(Operator::In, &["a", "b", "a"])],
            vec![requirement(Operator::Exists, &[]), requirement(Operator::In, &["b"])],
            vec![requirement(Operator::NotIn, &["a"])],
            vec![],
            vec![requirement(Operator::In, &["c"]), requirement(Operator::In, &["a"])],
        ];
        let budget = |requirements| DisruptionBudget {
            selector: Some(LabelSelector { requirements }),
            ..DisruptionBudget::clone(&budgets(true, (1, 1), 1).all[0].0)
        };
        let list = all.map(budget).map(Arc::new).to_vec();
        let found = Budgets::new(&Snapshot { budgets: list.clone(), ..Snapshot::default() });
        for app in [None, Some("a"), Some("b"), Some("c"), Some("d")] {
            let mut pod = pod(PodPhase::Running, true, false);
            pod.labels.extend(app.map(|app| ("app".to_owned(), app.to_owned())));
            let mut places = found.matching(&pod).to_vec();
            places.sort_unstable();
            let one_by_one: Vec<usize> = (0..list.len()).filter(|&at| matches(&list[at], &pod)).collect();
            assert_eq!(places, one_by_one, "{app:?}");
        }
    }

    #[test]
    fn a_pod_of_several_budgets_is_refused_unless_none_is_asked() {
        let two = budgets(true, (1, 1), 2);
        assert_eq!(two.refusal(&pod(PodPhase::Running, false, false)), Some(Blocking::SeveralPdbs));
        assert_eq!(two.refusal(&pod(PodPhase::Pending, false, false)), None);
        assert_eq!(two.refusal(&pod(PodPhase::Running, true, true)), None);
    }
}
