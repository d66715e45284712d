//! Sample objects for tests and the demo, as JSON.

use serde_json::{Value, json};

/// Returns a Deployment in the namespace `default`. Each of its pods requests this much CPU and memory. The
/// pods' label `app` is the Deployment's name.
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

/// Returns a PodDisruptionBudget in the namespace `default` for the pods whose label `app` is `name`.
pub fn budget(name: &str, min_available: u32) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": name } } },
    })
}
