//! Creating and changing objects.

use http::Method;
use serde_json::{Value, json};

use super::{
    admission, events,
    kinds::{self, Kind, NAMESPACE},
    object::{self, key},
    patch::{self, PatchType},
    path::{Query, Route},
    refusal::{Cause, Refusal},
    state::State,
    store::Store,
};

impl State {
    /// Creates an object from a request body.
    ///
    /// # Errors
    /// Returns 400, 404, 409 or 422, as the API server does.
    pub(super) fn make(&mut self, route: &Route, query: &Query, body: &[u8]) -> Result<Value, Refusal> {
        let kind = route.kind;
        let mut new = parse(kind, body)?;
        drop_unknown(kind, &mut new, query)?;
        if kind.namespaced {
            let given = object::namespace(&new);
            if !given.is_empty() && given != route.namespace {
                let text =
                    "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Refusal::bad_request(text));
            }
            if self.store.get(&NAMESPACE, "", &route.namespace).is_none() {
                return Err(Refusal::not_found(&NAMESPACE, &route.namespace));
            }
            object::set_meta(&mut new, "namespace", json!(route.namespace));
        }
        if object::name(&new).is_empty() {
            let stem = object::text(&new, "/metadata/generateName").to_owned();
            if stem.is_empty() {
                let text = "Required value: name or generateName is required";
                let cause = Cause::new("metadata.name", "FieldValueRequired", text);
                return Err(Refusal::invalid(kind, "", &[cause]));
            }
            let name = format!("{stem}{}", self.suffix());
            object::set_meta(&mut new, "name", json!(name));
        }
        if kind.status {
            admission::fresh_status(kind, &mut new);
        }
        object::drop_meta(&mut new, "deletionTimestamp");
        self.admit(kind, None, &mut new)?;
        let (namespace, name) = key(&new);
        if self.store.get(kind, &namespace, &name).is_some() {
            return Err(Refusal::already_exists(kind, &name));
        }
        self.stamp_new(kind, &mut new);
        if query.dry_run() {
            return Ok(events::outgoing(kind, &new));
        }
        let stored = self.put(kind, new);
        Ok(events::outgoing(kind, &stored))
    }

    /// Replaces an object, or its status.
    ///
    /// # Errors
    /// Returns 400, 404, 409 or 422, as the API server does.
    pub(super) fn update(&mut self, route: &Route, query: &Query, body: &[u8]) -> Result<Value, Refusal> {
        let kind = route.kind;
        let name = route.name.as_deref().unwrap_or("");
        let mut new = parse(kind, body)?;
        let given = object::name(&new);
        if !given.is_empty() && given != name {
            let text =
                format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(Refusal::bad_request(text));
        }
        object::set_meta(&mut new, "name", json!(name));
        if kind.namespaced {
            object::set_meta(&mut new, "namespace", json!(route.namespace));
        }
        let old =
            self.store.get(kind, &route.namespace, name).ok_or_else(|| Refusal::not_found(kind, name))?;
        if kind.plural == "leases" {
            admission::check_lease_times(&new)?;
        }
        if kind.plural == "leases" && object::text(&new, "/metadata/resourceVersion").is_empty() {
            let text = "Invalid value: 0: must be specified for an update";
            let cause = Cause::new("metadata.resourceVersion", "FieldValueInvalid", text);
            let mut refusal = Refusal::invalid(kind, name, &[cause]);
            // This error comes from the storage layer, which names the resource instead of the kind.
            if let super::refusal::Said::Status { message, details, .. } = &mut refusal.body {
                *message = message.replacen(&kind.qualified(), &kind.resource(), 1);
                details["kind"] = json!(kind.plural);
            }
            return Err(refusal);
        }
        let given = object::uid(&new).to_owned();
        if !given.is_empty() && given != object::uid(&old) {
            let place = if kind.namespaced { format!("{}/{name}", route.namespace) } else { name.to_owned() };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{}/{place}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {}",
                kind.plural,
                object::uid(&old)
            );
            return Err(Refusal::conflict(kind, name, &why));
        }
        Store::check_version(kind, &old, &new)?;
        self.settle(route, query, &old, new)
    }

    /// Patches an object, or its status.
    ///
    /// # Errors
    /// Returns 400, 404, 409, 415 or 422, as the API server does.
    pub(super) fn patch(
        &mut self,
        route: &Route,
        query: &Query,
        media: &str,
        body: &[u8],
    ) -> Result<Value, Refusal> {
        let kind = route.kind;
        let name = route.name.as_deref().unwrap_or("");
        let of = PatchType::of(media)?;
        if of == PatchType::Strategic && kind.is_custom() {
            return Err(PatchType::unknown());
        }
        if of == PatchType::Apply && query.get("fieldManager").is_empty() {
            let text = "Required value: is required for apply patch";
            let cause = Cause::new("fieldManager", "FieldValueRequired", text);
            return Err(Refusal::invalid_options("PatchOptions", &[cause]));
        }
        let Some(old) = self.store.get(kind, &route.namespace, name) else {
            if of == PatchType::Apply {
                let mut new = patch::apply(of, &Value::Null, body)?;
                object::set_meta(&mut new, "name", json!(name));
                return self.make(route, query, new.to_string().as_bytes());
            }
            return Err(Refusal::not_found(kind, name));
        };
        let shown = events::outgoing(kind, &old);
        let mut new = patch::apply(of, &shown, body)?;
        if !object::is_shaped(&new) {
            return Err(Refusal::bad_request("the result of the patch is not an object"));
        }
        events::incoming(kind, &mut new);
        let given = object::name(&new);
        if given != name {
            let text =
                format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(Refusal::bad_request(text));
        }
        if object::uid(&new) != object::uid(&old) {
            let text = format!("Invalid value: \"{}\": field is immutable", object::uid(&new));
            let cause = Cause::new("metadata.uid", "FieldValueInvalid", text);
            return Err(Refusal::invalid(kind, name, &[cause]));
        }
        Store::check_version(kind, &old, &new)?;
        self.settle(route, query, &old, new)
    }

    /// Writes the new version of an object after all checks.
    fn settle(
        &mut self,
        route: &Route,
        query: &Query,
        old: &Value,
        mut new: Value,
    ) -> Result<Value, Refusal> {
        let kind = route.kind;
        match route.sub.as_deref() {
            Some("status") => {
                let mut kept = old.clone();
                kept["status"] = new["status"].take();
                new = kept;
            }
            Some("approval") => new = super::serving::approved(old, &new),
            _ if kind.status => new["status"] = old["status"].clone(),
            _ => {}
        }
        if new["status"].is_null()
            && let Some(fields) = new.as_object_mut()
        {
            fields.remove("status");
        }
        new["apiVersion"] = old["apiVersion"].clone();
        new["kind"] = old["kind"].clone();
        for field in
            ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"]
        {
            match &old["metadata"][field] {
                Value::Null => object::drop_meta(&mut new, field),
                value => object::set_meta(&mut new, field, value.clone()),
            }
        }
        self.admit(kind, Some(old), &mut new)?;
        if query.dry_run() {
            return Ok(events::outgoing(kind, &new));
        }
        Ok(events::outgoing(kind, &self.replace(kind, old, new)))
    }
}

/// Parses the object in a request body.
fn parse(kind: &'static Kind, body: &[u8]) -> Result<Value, Refusal> {
    let mut new: Value = serde_json::from_slice(body).map_err(|error| {
        let text = String::from_utf8_lossy(body);
        let shown = if body.is_empty() { "<empty>".into() } else { text };
        let why = if error.is_eof() { "unexpected end of JSON input".into() } else { error.to_string() };
        Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why} ({shown})",
            kind.kind
        ))
    })?;
    if !object::is_shaped(&new) {
        let text = format!(
            "{} in version \"{}\" cannot be handled as a {0}: json: cannot unmarshal",
            kind.kind, kind.version
        );
        return Err(Refusal::bad_request(text));
    }
    if let Some(given) = new["kind"].as_str().filter(|given| *given != kind.kind) {
        let from = kinds::by_kind(given).map_or("", |found| found.version);
        let family = if kind.group.is_empty() { "core" } else { kind.group };
        return Err(Refusal::bad_request(format!(
            "{given} in version \"{from}\" cannot be handled as a {}: converting ({from}.{given}) to ({family}.{}): unknown conversion",
            kind.kind, kind.kind
        )));
    }
    if new["metadata"].is_null() {
        new["metadata"] = json!({});
    }
    events::incoming(kind, &mut new);
    new["apiVersion"] = json!(kind.api_version());
    new["kind"] = json!(kind.kind);
    Ok(new)
}

/// Drops the fields that are unknown for an object's kind. Without a schema, only the top-level fields are
/// checked.
fn drop_unknown(kind: &Kind, new: &mut Value, query: &Query) -> Result<(), Refusal> {
    let own: &[&str] = match kind.plural {
        "configmaps" => &["data", "binaryData", "immutable"],
        "secrets" => &["data", "stringData", "type", "immutable"],
        "nodes" | "pods" | "deployments" | "leases" | "poddisruptionbudgets" => &["spec", "status"],
        _ => return Ok(()),
    };
    let known = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata") || own.contains(&name);
    let Some(fields) = new.as_object_mut() else { return Ok(()) };
    let unknown: Vec<String> =
        fields.keys().filter(|name| !known(name)).map(|name| format!("unknown field \"{name}\"")).collect();
    if !unknown.is_empty() && query.get("fieldValidation") == "Strict" {
        return Err(Refusal::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {0}: strict decoding error: {}",
            kind.kind,
            kind.version,
            unknown.join(", ")
        )));
    }
    fields.retain(|name, _| known(name));
    Ok(())
}

/// Whether a path accepts a method.
pub(super) fn takes(route: &Route, method: &Method) -> bool {
    match (&route.name, &route.sub) {
        (None, _) => matches!(*method, Method::GET | Method::POST | Method::DELETE | Method::HEAD),
        (Some(_), None) => {
            matches!(*method, Method::GET | Method::PUT | Method::PATCH | Method::DELETE | Method::HEAD)
        }
        (Some(_), Some(sub)) => match sub.as_str() {
            "eviction" | "binding" => *method == Method::POST,
            "exec" | "attach" | "portforward" => matches!(*method, Method::GET | Method::POST),
            _ => matches!(*method, Method::GET | Method::PUT | Method::PATCH),
        },
    }
}
