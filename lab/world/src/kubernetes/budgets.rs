//! The disruption controller, which maintains the status of disruption budgets (`pkg/controller/disruption`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    eviction::disruption_allowed,
    kinds::{self, BUDGET, POD},
    object::{self, Key, number},
    selector::selects,
    state::{State, Work},
};

/// The time after which the controller rechecks a budget that has `disruptedPods`.
const AGAIN: std::time::Duration = std::time::Duration::from_mins(2);

impl State {
    /// Updates the status of each disruption budget in a namespace.
    pub(super) fn tend_budgets(&mut self, namespace: &str) {
        let budgets: Vec<Value> = self.store.within(&BUDGET, namespace).map(|one| (**one).clone()).collect();
        for budget in budgets {
            self.tend_budget(&budget);
        }
    }

    fn tend_budget(&mut self, budget: &Value) {
        let key = object::key(budget);
        let pods: Vec<Value> = self
            .store
            .within(&POD, &key.0)
            .filter(|pod| selects(&budget["spec"]["selector"], &pod["metadata"]["labels"]))
            .filter(|pod| !matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed"))
            .map(|pod| (**pod).clone())
            .collect();
        let (expected, desired) = self.wanted_pods(budget, &pods);
        let mut disrupted = Map::new();
        for (name, since) in budget["status"]["disruptedPods"].as_object().into_iter().flatten() {
            let waits = pods.iter().any(|pod| object::name(pod) == name && !object::is_terminating(pod));
            if waits && self.still_disrupted(since) {
                disrupted.insert(name.clone(), since.clone());
            }
        }
        let healthy = pods
            .iter()
            .filter(|pod| !object::is_terminating(pod) && object::holds(pod, "Ready"))
            .filter(|pod| !disrupted.contains_key(object::name(pod)))
            .count();
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
        if !disrupted.is_empty() {
            self.wake(Work::Budgets(key.0.clone()), AGAIN);
        }
        // The real controller first updates the counts. That change triggers another sync, which drops the
        // pod from `disruptedPods`.
        if budget["status"]["currentHealthy"] != healthy
            && let Some(known) = budget["status"]["disruptedPods"].as_object()
        {
            disrupted.clone_from(known);
        }
        let now = self.stamp();
        self.edit(&BUDGET, &key, |budget| {
            let generation = budget["metadata"]["generation"].clone();
            let status = &mut budget["status"];
            status["disruptionsAllowed"] = json!(allowed);
            status["currentHealthy"] = json!(healthy);
            status["desiredHealthy"] = json!(desired);
            status["expectedPods"] = json!(expected);
            status["observedGeneration"] = generation.clone();
            if disrupted.is_empty() {
                if let Some(fields) = status.as_object_mut() {
                    fields.remove("disruptedPods");
                }
            } else {
                status["disruptedPods"] = Value::Object(disrupted);
            }
            object::set_condition(budget, disruption_allowed(allowed > 0, &generation), &now);
        });
    }

    /// The expected number of pods, and how many of them must be healthy.
    fn wanted_pods(&self, budget: &Value, pods: &[Value]) -> (i64, i64) {
        let present = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        let (min, max) = (&budget["spec"]["minAvailable"], &budget["spec"]["maxUnavailable"]);
        if let Some(min) = min.as_i64() {
            return (present, min);
        }
        let Some(expected) = self.scale_of(pods) else { return (0, 0) };
        if !max.is_null() {
            return (expected, (expected - share(max, expected)).max(0));
        }
        (expected, share(min, expected))
    }

    /// The total number of replicas of the workloads that the pods belong to. `None` if one of the pods
    /// belongs to no workload.
    fn scale_of(&self, pods: &[Value]) -> Option<i64> {
        let mut replicas: BTreeMap<String, i64> = BTreeMap::new();
        for pod in pods {
            let (kind, name, uid) = object::controller(pod)?;
            let kind = kinds::by_kind(kind)?;
            let owner = self.store.get(kind, object::namespace(pod), name)?;
            if object::uid(&owner) != uid {
                return None;
            }
            let top = object::controller(&owner).and_then(|(kind, name, _)| {
                let key: Key = (object::namespace(pod).to_owned(), name.to_owned());
                self.store.get(kinds::by_kind(kind)?, &key.0, &key.1)
            });
            let scaled = top.unwrap_or(owner);
            replicas.insert(object::uid(&scaled).to_owned(), number(&scaled, "/spec/replicas")?);
        }
        Some(replicas.values().sum())
    }
}

/// Converts a number, or a percentage of `whole`, to a number of pods. Percentages are rounded up, as in the
/// controller.
fn share(value: &Value, whole: i64) -> i64 {
    match value.as_str().and_then(|text| text.strip_suffix('%')) {
        Some(percent) => {
            let percent: i64 = percent.parse().unwrap_or(0);
            (whole * percent + 99) / 100
        }
        None => value.as_i64().unwrap_or(0),
    }
}
