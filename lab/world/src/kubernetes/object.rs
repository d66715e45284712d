//! Functions that read and change objects as JSON. The objects have passed [`is_shaped`].

use jiff::Timestamp;
use serde_json::{Value, json};

/// Namespace and name; the namespace of a cluster-wide object is empty.
pub(super) type Key = (String, String);

/// The text at a JSON pointer, or an empty text if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// The number at a JSON pointer.
pub(super) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// `metadata.name`.
pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `metadata.namespace`.
pub(super) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// `metadata.uid`.
pub(super) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Namespace and name.
pub(super) fn key(object: &Value) -> Key {
    (namespace(object).to_owned(), name(object).to_owned())
}

/// Whether the object is being deleted.
pub(super) fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The elements of the list at a JSON pointer. Empty if there is no list.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Sets one field of `metadata`.
pub(super) fn set_meta(object: &mut Value, field: &str, value: Value) {
    object["metadata"][field] = value;
}

/// Removes one field of `metadata`.
pub(super) fn drop_meta(object: &mut Value, field: &str) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove(field);
    }
}

/// The owner that controls the object: kind, name and uid.
pub(super) fn controller(object: &Value) -> Option<(&str, &str, &str)> {
    let owner = list(object, "/metadata/ownerReferences").iter().find(|one| one["controller"] == true)?;
    Some((text(owner, "/kind"), text(owner, "/name"), text(owner, "/uid")))
}

/// The condition of this type.
pub(super) fn condition<'a>(object: &'a Value, of: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|one| one["type"] == of)
}

/// Whether the condition of this type is `True`.
pub(super) fn holds(object: &Value, of: &str) -> bool {
    condition(object, of).is_some_and(|one| one["status"] == "True")
}

/// Sets a condition. Its `lastTransitionTime` changes only if its status changes.
pub(super) fn set_condition(object: &mut Value, mut new: Value, now: &str) {
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let old = conditions.iter_mut().find(|one| one["type"] == new["type"]);
    let since = match &old {
        Some(old) if old["status"] == new["status"] => old["lastTransitionTime"].clone(),
        _ => json!(now),
    };
    new["lastTransitionTime"] = since;
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// Formats a time in whole seconds, as in most fields.
pub(super) fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time with exactly six decimal places, as in Leases and events.
pub(super) fn micro_stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Returns an owner reference that makes `owner` the controller of another object.
pub(super) fn owner_reference(api_version: &str, owner: &Value) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Whether an object is a map, and each of its main parts is either a map or missing.
pub(super) fn is_shaped(object: &Value) -> bool {
    let map = |value: &Value| value.is_object() || value.is_null();
    object.is_object() && ["metadata", "spec", "status"].iter().all(|part| map(&object[*part]))
}
