//! Sample objects for tests and the demo, as JSON.

use serde_json::{Value, json};

/// A Deployment in the namespace `default`. Its pods request this much CPU and memory, and have the label
/// `app: name`.
pub fn deployment(name: &str, replicas: u32, cpu: &str, memory: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": { "requests": { "cpu": cpu, "memory": memory } },
                }]},
            },
        },
    })
}

/// Like [`deployment`], but a StatefulSet.
pub fn stateful_set(name: &str, replicas: u32, cpu: &str, memory: &str) -> Value {
    let mut object = deployment(name, replicas, cpu, memory);
    object["kind"] = json!("StatefulSet");
    object["spec"]["serviceName"] = json!(name);
    object
}

/// A PodDisruptionBudget in the namespace `default` over the pods labelled `app: name`.
pub fn budget(name: &str, min_available: u32) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": name } } },
    })
}
