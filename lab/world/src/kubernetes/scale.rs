//! The `scale` subresource of workloads, and bindings by other schedulers.

use http::{Method, request::Parts};
use serde_json::{Value, json};

use super::{
    kinds::POD,
    object::{self, number, text},
    patch::{self, PatchType},
    path::{self, Query, Route},
    refusal::Refusal,
    state::State,
    store::Store,
};

impl State {
    /// Answers a call to the `scale` subresource.
    ///
    /// # Errors
    /// Returns 400, 404, 405 or 409, as the API server does.
    pub(super) fn scale(
        &mut self,
        route: &Route,
        query: &Query,
        method: &Method,
        parts: &Parts,
        body: &[u8],
    ) -> Result<Value, Refusal> {
        let kind = route.kind;
        if !matches!(kind.plural, "deployments" | "replicasets" | "statefulsets") {
            return Err(Refusal::no_such_resource());
        }
        let name = route.name.as_deref().unwrap_or("");
        let found =
            self.store.get(kind, &route.namespace, name).ok_or_else(|| Refusal::not_found(kind, name))?;
        let shown = scale_of(&found);
        let wanted: Value = match *method {
            Method::GET => return Ok(shown),
            Method::PUT => {
                serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?
            }
            _ => patch::apply(PatchType::of(path::content_type(&parts.headers))?, &shown, body)?,
        };
        Store::check_version(kind, &found, &wanted)?;
        let replicas = number(&wanted, "/spec/replicas").unwrap_or(0);
        if replicas < 0 {
            return Err(Refusal::bad_request("spec.replicas: must be greater than or equal to 0"));
        }
        if query.dry_run() {
            return Ok(wanted);
        }
        let stored = self.edit(kind, &object::key(&found), |one| one["spec"]["replicas"] = json!(replicas));
        Ok(stored.map_or(Value::Null, |stored| scale_of(&stored)))
    }

    /// Answers a binding by another scheduler.
    ///
    /// # Errors
    /// Returns 400, 404 or 409, as the API server does.
    pub(super) fn bind_by_hand(&mut self, route: &Route, body: &[u8]) -> Result<Value, Refusal> {
        let name = route.name.as_deref().unwrap_or("");
        let binding: Value =
            serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let pod =
            self.store.get(&POD, &route.namespace, name).ok_or_else(|| Refusal::not_found(&POD, name))?;
        let node = text(&pod, "/spec/nodeName");
        if !node.is_empty() {
            let message = format!(
                "Operation cannot be fulfilled on pods/binding \"{name}\": pod {name} is already assigned to node \"{node}\""
            );
            let details = json!({ "name": name, "kind": "pods/binding" });
            return Err(Refusal::new(409, "Conflict", message, details));
        }
        self.bind_pod(&object::key(&pod), text(&binding, "/target/name"), false);
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
    }
}

fn scale_of(workload: &Value) -> Value {
    let metadata = &workload["metadata"];
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": number(workload, "/spec/replicas").unwrap_or(0) },
        "status": {
            "replicas": number(workload, "/status/replicas").unwrap_or(0),
            "selector": selector_text(workload),
        },
    })
}

fn selector_text(workload: &Value) -> String {
    let labels = workload.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect::<Vec<_>>().join(",")
}
