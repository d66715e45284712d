//! Evictions, and the disruption budgets that limit them.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    kinds::{BUDGET, POD},
    object::{self, Key, number, text},
    path::{Query, Route},
    refusal::Refusal,
    removal::Options,
    selector::selects,
    state::State,
};

/// The message of an eviction that a budget does not allow.
const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// Evictions are refused if `disruptedPods` contains more names than this.
const DISRUPTED_LIMIT: usize = 2000;

impl State {
    /// Answers an eviction request, as the `pods/eviction` registry of the API server does.
    ///
    /// # Errors
    /// Returns 400, 403, 404, 409, 429 or 500, as the API server does.
    pub(super) fn evict(&mut self, route: &Route, query: &Query, body: &[u8]) -> Result<Value, Refusal> {
        let name = route.name.as_deref().unwrap_or("");
        let body: Value =
            serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let mut options = Options::of(&body["deleteOptions"]);
        options.dry_run |= query.dry_run();
        let given = object::name(&body);
        if given != name {
            return Err(Refusal::bad_request("name in URL does not match name in Eviction object"));
        }
        let pod =
            self.store.get(&POD, &route.namespace, name).ok_or_else(|| Refusal::not_found(&POD, name))?;
        let key = object::key(&pod);
        let phase = text(&pod, "/status/phase");
        let free = object::is_terminating(&pod) || matches!(phase, "Succeeded" | "Failed" | "Pending");
        if !free {
            let budgets: Vec<Value> = self
                .store
                .within(&BUDGET, &route.namespace)
                .filter(|budget| selects(&budget["spec"]["selector"], &pod["metadata"]["labels"]))
                .map(|budget| (**budget).clone())
                .collect();
            match budgets.as_slice() {
                [] => {}
                [budget] => self.spend(budget, &pod, options.dry_run)?,
                _ => {
                    let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                    return Err(Refusal::new(500, "", text, Value::Null));
                }
            }
        }
        // As in Kubernetes, the preconditions are checked last. An eviction that fails this check has already
        // been counted against the budget.
        options.check(&POD, &pod)?;
        if !options.dry_run {
            self.disrupt(&key);
            self.remove(&POD, &key, &options);
        }
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
    }

    /// Uses up one of the disruptions that a budget allows.
    fn spend(&mut self, budget: &Value, pod: &Value, dry_run: bool) -> Result<(), Refusal> {
        let name = object::name(budget);
        let refuse = |text: String, retry: Option<u32>| {
            let causes = json!([{ "reason": "DisruptionBudget", "message": text }]);
            let mut refusal = Refusal::new(429, "TooManyRequests", VIOLATION, json!({ "causes": causes }));
            refusal.retry_after = retry;
            Err(refusal)
        };
        let status = &budget["status"];
        let count = |field: &str| status[field].as_i64().unwrap_or(0);
        let ready = object::holds(pod, "Ready");
        if !ready {
            let healthy = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
            if text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow" || healthy {
                return Ok(());
            }
        }
        let behind = count("observedGeneration") < number(budget, "/metadata/generation").unwrap_or(0);
        if behind {
            return refuse(
                format!("The disruption budget {name} is still being processed by the server."),
                Some(10),
            );
        }
        let allowed = count("disruptionsAllowed");
        if allowed < 0 {
            let why = "pdb disruptions allowed is negative";
            return Err(forbidden(name, why, why));
        }
        if status["disruptedPods"].as_object().map_or(0, serde_json::Map::len) > DISRUPTED_LIMIT {
            let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
            return Err(forbidden(name, why, "too many pending evictions not confirmed by PDB controller"));
        }
        if allowed == 0 {
            return refuse(no_room(budget), None);
        }
        if dry_run {
            return Ok(());
        }
        let now = self.stamp();
        let victim = object::name(pod).to_owned();
        self.edit(&BUDGET, &object::key(budget), |budget| {
            let left = number(budget, "/status/disruptionsAllowed").unwrap_or(1) - 1;
            budget["status"]["disruptionsAllowed"] = json!(left);
            budget["status"]["disruptedPods"][victim] = json!(now);
            if left == 0 {
                let generation = budget["metadata"]["generation"].clone();
                let condition = disruption_allowed(false, &generation);
                object::set_condition(budget, condition, &now);
            }
        });
        Ok(())
    }

    /// Sets the condition that states why the pod is removed.
    fn disrupt(&mut self, key: &Key) {
        let now = self.stamp();
        self.edit(&POD, key, |pod| {
            let condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "lastProbeTime": null,
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            });
            object::set_condition(pod, condition, &now);
        });
    }

    /// Whether an entry in `disruptedPods` is still valid. It expires if the pod has not been deleted within
    /// two minutes.
    pub(super) fn still_disrupted(&self, since: &Value) -> bool {
        let since: Option<Timestamp> = since.as_str().and_then(|text| text.parse().ok());
        since.is_some_and(|since| self.now().duration_since(since) < SignedDuration::from_mins(2))
    }
}

/// The 403 response for an eviction that a disruption budget does not allow. Its `causes` were added in
/// Kubernetes 1.37.
fn forbidden(name: &str, why: &str, cause: &str) -> Refusal {
    let text = format!("The disruption budget {name} does not allow evicting pods currently: {cause}");
    let details = json!({
        "name": name,
        "group": "policy",
        "kind": "poddisruptionbudget",
        "causes": [{ "reason": "DisruptionBudget", "message": text }],
    });
    Refusal::new(
        403,
        "Forbidden",
        format!("poddisruptionbudget.policy \"{name}\" is forbidden: {why}"),
        details,
    )
}

/// Explains why a budget allows no disruption.
fn no_room(budget: &Value) -> String {
    let (name, status) = (object::name(budget), &budget["status"]);
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    let (needs, has) = (count("desiredHealthy"), count("currentHealthy"));
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let told = conditions
        .find(|one| one["type"] == "DisruptionAllowed")
        .filter(|one| one["status"] == "False" && !text(one, "/message").is_empty())
        .map(|one| (text(one, "/reason"), text(one, "/message")));
    match told {
        Some(("SyncFailed", message)) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        ),
        _ if has <= needs => {
            format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently")
        }
        Some((reason, message)) => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
            )
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// The condition `DisruptionAllowed` of a budget.
pub(super) fn disruption_allowed(allowed: bool, generation: &Value) -> Value {
    let (status, reason) = if allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    json!({
        "type": "DisruptionAllowed",
        "status": status,
        "observedGeneration": generation,
        "reason": reason,
        "message": "",
    })
}
