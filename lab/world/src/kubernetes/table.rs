//! Lists, and the formats of answers that kubectl requests: tables, and metadata only.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    columns::{columns, type_of},
    events,
    kinds::Kind,
    path::Form,
};

/// Returns a list of objects in the requested form.
pub(super) fn list(kind: &Kind, items: &[Arc<Value>], metadata: Value, form: Form, now: Timestamp) -> Value {
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
        Form::Metadata | Form::MetadataList => {
            let items: Vec<Value> = items.iter().map(|item| metadata_only(item)).collect();
            json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": if items.is_empty() { Value::Null } else { json!(items) },
            })
        }
        Form::Table => {
            let rows: Vec<Value> = items.iter().map(|item| row(kind, item, now)).collect();
            table(kind, metadata, rows)
        }
    }
}

/// One object as a table.
pub(super) fn one(kind: &Kind, object: &Value, now: Timestamp) -> Value {
    let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
    table(kind, metadata, vec![row(kind, object, now)])
}

/// Returns only the metadata of an object.
pub(super) fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

fn row(kind: &Kind, object: &Value, now: Timestamp) -> Value {
    let cells: Vec<Value> = columns(kind).into_iter().map(|(_, _, cell)| cell(object, now)).collect();
    let mut row = json!({ "cells": cells, "object": metadata_only(object) });
    let ended = match object["status"]["phase"].as_str() {
        Some("Failed") => Some("The pod failed."),
        Some("Succeeded") => Some("The pod has completed successfully."),
        _ => None,
    };
    if let Some(message) = ended.filter(|_| kind.plural == "pods") {
        let reason = &object["status"]["phase"];
        let condition =
            json!({ "type": "Completed", "status": "True", "reason": reason, "message": message });
        row["conditions"] = json!([condition]);
    }
    row
}

fn table(kind: &Kind, metadata: Value, rows: Vec<Value>) -> Value {
    let definitions: Vec<Value> = columns(kind)
        .into_iter()
        .map(|(name, priority, _)| {
            let format = if name == "Name" { "name" } else { "" };
            let of = type_of(name);
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
