//! Lists, and the forms of answers that kubectl prints: tables and metadata alone.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    events,
    kinds::Kind,
    object::{self, list as elements, text},
    path::Form,
};

/// A list of objects in some form.
pub(super) fn list(kind: &Kind, items: &[Arc<Value>], metadata: Value, form: Form) -> Value {
    match form {
        Form::Plain => {
            let items: Vec<Value> = items
                .iter()
                .map(|item| {
                    let mut item = events::outgoing(kind, item);
                    if let Some(fields) = item.as_object_mut() {
                        // The elements of a typed list do not name their type.
                        fields.remove("kind");
                        fields.remove("apiVersion");
                    }
                    item
                })
                .collect();
            json!({
                "kind": format!("{}List", kind.kind),
                "apiVersion": kind.api_version(),
                "metadata": metadata,
                "items": items,
            })
        }
        Form::Metadata => {
            let items: Vec<Value> = items.iter().map(|item| metadata_only(item)).collect();
            json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": if items.is_empty() { Value::Null } else { json!(items) },
            })
        }
        Form::Table => {
            let rows: Vec<Value> = items.iter().map(|item| row(kind, item)).collect();
            table(kind, metadata, rows)
        }
    }
}

/// One object as a table.
pub(super) fn one(kind: &Kind, object: &Value) -> Value {
    let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
    table(kind, metadata, vec![row(kind, object)])
}

/// The metadata of an object alone.
pub(super) fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// Columns of a kind: name, priority, and what they show.
type Column = (&'static str, u8, fn(&Value) -> Value);

const NAME: Column = ("Name", 0, |object| object["metadata"]["name"].clone());
const AGE: Column = ("Age", 0, |object| object["metadata"]["creationTimestamp"].clone());

fn columns(kind: &Kind) -> Vec<Column> {
    let own: &[Column] = match kind.plural {
        "nodes" => &[
            ("Status", 0, |node| {
                let ready = match text(object::condition(node, "Ready").unwrap_or(&Value::Null), "/status") {
                    "True" => "Ready",
                    "False" => "NotReady",
                    _ => "Unknown",
                };
                let cordon = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
                json!(format!("{ready}{cordon}"))
            }),
            ("Roles", 0, |node| {
                let labels = node["metadata"]["labels"].as_object();
                let roles: Vec<&str> = labels
                    .into_iter()
                    .flatten()
                    .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
                    .collect();
                json!(if roles.is_empty() { "<none>".into() } else { roles.join(",") })
            }),
            ("Version", 0, |node| node["status"]["nodeInfo"]["kubeletVersion"].clone()),
            ("Internal-IP", 1, |node| {
                let found =
                    elements(node, "/status/addresses").iter().find(|one| one["type"] == "InternalIP");
                found.map_or(json!("<none>"), |one| one["address"].clone())
            }),
        ],
        "pods" => &[
            ("Ready", 0, |pod| {
                let statuses = elements(pod, "/status/containerStatuses");
                let ready = statuses.iter().filter(|one| one["ready"] == true).count();
                json!(format!("{ready}/{}", elements(pod, "/spec/containers").len()))
            }),
            ("Status", 0, |pod| {
                if object::is_terminating(pod) {
                    json!("Terminating")
                } else {
                    pod["status"]["phase"].clone()
                }
            }),
            ("Restarts", 0, |_| json!("0")),
            ("IP", 1, |pod| json!(or_none(text(pod, "/status/podIP")))),
            ("Node", 1, |pod| json!(or_none(text(pod, "/spec/nodeName")))),
        ],
        "deployments" => &[
            ("Ready", 0, |one| {
                json!(format!("{}/{}", count(one, "/status/readyReplicas"), count(one, "/spec/replicas")))
            }),
            ("Up-to-date", 0, |one| json!(count(one, "/status/updatedReplicas"))),
            ("Available", 0, |one| json!(count(one, "/status/availableReplicas"))),
        ],
        "poddisruptionbudgets" => &[
            ("Min Available", 0, |one| shown(&one["spec"]["minAvailable"])),
            ("Max Unavailable", 0, |one| shown(&one["spec"]["maxUnavailable"])),
            ("Allowed Disruptions", 0, |one| json!(count(one, "/status/disruptionsAllowed"))),
        ],
        "events" => &[
            ("Type", 0, |one| one["type"].clone()),
            ("Reason", 0, |one| one["reason"].clone()),
            ("Object", 0, |one| {
                let kind = text(one, "/involvedObject/kind").to_lowercase();
                json!(format!("{kind}/{}", text(one, "/involvedObject/name")))
            }),
            ("Message", 0, |one| one["message"].clone()),
        ],
        _ => &[],
    };
    std::iter::once(NAME).chain(own.iter().copied()).chain(std::iter::once(AGE)).collect()
}

fn count(object: &Value, pointer: &str) -> i64 {
    object::number(object, pointer).unwrap_or(0)
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn shown(value: &Value) -> Value {
    if value.is_null() { json!("N/A") } else { value.clone() }
}

fn row(kind: &Kind, object: &Value) -> Value {
    let cells: Vec<Value> = columns(kind).into_iter().map(|(_, _, cell)| cell(object)).collect();
    json!({ "cells": cells, "object": metadata_only(object) })
}

fn table(kind: &Kind, metadata: Value, rows: Vec<Value>) -> Value {
    let definitions: Vec<Value> = columns(kind)
        .into_iter()
        .map(|(name, priority, _)| {
            let (of, format) = match name {
                "Name" => ("string", "name"),
                "Age" => ("date", ""),
                _ => ("string", ""),
            };
            json!({ "name": name, "type": of, "format": format, "description": "", "priority": priority })
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}
