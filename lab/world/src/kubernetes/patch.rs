//! The four types of patches.

use serde_json::{Map, Value, json};

use super::{object::text, refusal::Refusal};

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge patch: lists are merged by key.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// Returns the patch type for a media type.
    ///
    /// # Errors
    /// Returns 415 if the media type does not denote a patch.
    pub fn of(media: &str) -> Result<Self, Refusal> {
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(Self::unknown()),
        }
    }

    /// The 415 for an unknown patch type, or for a strategic merge patch of a custom object.
    pub fn unknown() -> Refusal {
        let text = "415: Unsupported Media Type";
        Refusal::new(415, "UnsupportedMediaType", text, json!({}))
    }
}

/// Applies a patch.
///
/// # Errors
/// Returns 400 if the patch cannot be read, or 422 if it cannot be applied to the object.
pub(super) fn apply(kind: PatchType, object: &Value, patch: &[u8]) -> Result<Value, Refusal> {
    let mut new = object.clone();
    match kind {
        PatchType::Json => {
            let operations: Value = read(patch)?;
            let Some(operations) = operations.as_array() else {
                let text = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
                return Err(Refusal::bad_request(text));
            };
            for operation in operations {
                step(&mut new, operation).ok_or_else(|| {
                    let text = "the server rejected our request due to an error in our request";
                    Refusal::new(422, "Invalid", text, json!({}))
                })?;
            }
        }
        PatchType::Merge => merge(&mut new, &read(patch)?),
        PatchType::Strategic => strategic(&mut new, &read(patch)?, ""),
        PatchType::Apply => {
            let text = String::from_utf8_lossy(patch);
            let applied: Value = serde_saphyr::from_str(&text)
                .map_err(|error| Refusal::bad_request(format!("error decoding YAML: {error}")))?;
            strategic(&mut new, &applied, "");
        }
    }
    Ok(new)
}

fn read(patch: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(patch).map_err(|error| {
        let why = if error.is_eof() { "unexpected end of JSON input".into() } else { error.to_string() };
        Refusal::bad_request(format!("error decoding patch: {why}"))
    })
}

/// A merge patch.
pub(super) fn merge(object: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let Some(fields) = object.as_object_mut() else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

/// The field that identifies the elements of a list. `None` if the list is replaced as a whole.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "conditions" | "addresses" => Some("type"),
        "containers" | "initContainers" | "ephemeralContainers" | "env" | "volumes" | "imagePullSecrets" => {
            Some("name")
        }
        "ports" => Some("containerPort"),
        "volumeMounts" => Some("mountPath"),
        "ownerReferences" => Some("uid"),
        "topologySpreadConstraints" => Some("topologyKey"),
        "hostAliases" => Some("ip"),
        _ => None,
    }
}

/// Applies a strategic merge patch. It replaces a Node's `taints` and a pod's `tolerations` as a whole.
fn strategic(object: &mut Value, patch: &Value, field: &str) {
    match patch {
        Value::Object(changes) => strategic_map(object, changes),
        Value::Array(elements) => strategic_list(object, elements, field),
        other => *object = other.clone(),
    }
}

fn strategic_map(object: &mut Value, changes: &Map<String, Value>) {
    let plain = |name: &str| !name.starts_with('$');
    if changes.get("$patch").is_some_and(|word| word == "replace") || !object.is_object() {
        *object = json!({});
    }
    let Some(fields) = object.as_object_mut() else { return };
    for (name, change) in changes {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let Some(found) = fields.get_mut(list).and_then(Value::as_array_mut) {
                found.retain(|one| !change.as_array().is_some_and(|gone| gone.contains(one)));
            }
        } else if plain(name) {
            if change.is_null() || change["$patch"] == "delete" {
                fields.remove(name);
            } else {
                strategic(fields.entry(name.clone()).or_insert(Value::Null), change, name);
            }
        }
    }
}

fn strategic_list(object: &mut Value, elements: &[Value], field: &str) {
    let Some(old) = object.as_array_mut().filter(|_| merge_key(field).is_some() || field == "finalizers")
    else {
        let directive = |one: &&Value| one.get("$patch").is_none();
        *object = elements.iter().filter(directive).cloned().collect();
        return;
    };
    let Some(key) = merge_key(field) else {
        // Finalizers form a set: each is listed only once.
        for one in elements {
            if !old.contains(one) {
                old.push(one.clone());
            }
        }
        return;
    };
    if elements.iter().any(|one| one["$patch"] == "replace") {
        *old = elements.iter().filter(|one| one.get("$patch").is_none()).cloned().collect();
        return;
    }
    for one in elements {
        let same = |other: &Value| other[key] == one[key];
        if one["$patch"] == "delete" {
            old.retain(|other| !same(other));
        } else if let Some(found) = old.iter_mut().find(|other| same(other)) {
            strategic(found, one, "");
        } else {
            old.push(one.clone());
        }
    }
}

/// Applies one operation of a JSON patch. `None` if it cannot be applied.
fn step(object: &mut Value, operation: &Value) -> Option<()> {
    let path = text(operation, "/path");
    let value = || operation.get("value").cloned();
    match text(operation, "/op") {
        "test" => (object.pointer(path).unwrap_or(&Value::Null) == operation.get("value")?).then_some(()),
        "add" => add(object, path, value()?),
        "replace" => {
            *object.pointer_mut(path)? = value()?;
            Some(())
        }
        "remove" => take(object, path).map(|_| ()),
        "move" => {
            let taken = take(object, text(operation, "/from"))?;
            add(object, path, taken)
        }
        "copy" => {
            let copied = object.pointer(text(operation, "/from"))?.clone();
            add(object, path, copied)
        }
        _ => None,
    }
}

fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (above, last) = path.rsplit_once('/')?;
    Some((object.pointer_mut(above)?, last.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    let (place, last) = parent(object, path)?;
    match place {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(elements) => {
            let at = if last == "-" { elements.len() } else { last.parse().ok()? };
            if at > elements.len() {
                return None;
            }
            elements.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(object: &mut Value, path: &str) -> Option<Value> {
    let (place, last) = parent(object, path)?;
    match place {
        Value::Object(fields) => fields.remove(&last),
        Value::Array(elements) => {
            let at: usize = last.parse().ok()?;
            (at < elements.len()).then(|| elements.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PatchType, apply};

    fn patched(kind: PatchType, object: Value, patch: Value) -> Result<Value, u16> {
        apply(kind, &object, patch.to_string().as_bytes()).map_err(|refusal| refusal.code)
    }

    #[test]
    fn taints_are_atomic_and_conditions_are_merged_by_type_in_a_strategic_patch() {
        let node = json!({
            "spec": { "taints": [{ "key": "a" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "x" }, { "type": "Other" }] },
        });
        let patch = json!({
            "spec": { "taints": [{ "key": "b" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "False" }] },
        });
        let new = patched(PatchType::Strategic, node, patch).expect("patched");
        assert_eq!(new["spec"]["taints"], json!([{ "key": "b" }]));
        let expected = json!([{ "type": "Ready", "status": "False", "reason": "x" }, { "type": "Other" }]);
        assert_eq!(new["status"]["conditions"], expected);
    }

    #[test]
    fn a_json_patch_whose_test_fails_is_refused_whole() {
        let node = json!({ "spec": { "taints": [1, 2] } });
        let table = [
            (
                json!([{ "op": "test", "path": "/spec/taints/0", "value": 1 }, { "op": "remove", "path": "/spec/taints/0" }]),
                Ok(json!([2])),
            ),
            (json!([{ "op": "test", "path": "/spec/taints/0", "value": 2 }]), Err(422)),
            (json!([{ "op": "add", "path": "/spec/taints/-", "value": 3 }]), Ok(json!([1, 2, 3]))),
            (json!([{ "op": "remove", "path": "/spec/none" }]), Err(422)),
            (json!({ "a": 1 }), Err(400)),
        ];
        for (patch, expected) in table {
            let found = patched(PatchType::Json, node.clone(), patch.clone())
                .map(|new| new["spec"]["taints"].clone());
            assert_eq!(found, expected, "{patch}");
        }
    }

    #[test]
    fn a_merge_patch_removes_with_null() {
        let new =
            patched(PatchType::Merge, json!({ "a": { "b": 1, "c": 2 } }), json!({ "a": { "b": null } }));
        assert_eq!(new, Ok(json!({ "a": { "c": 2 } })));
    }
}
