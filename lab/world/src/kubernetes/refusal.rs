//! Error responses of the API server.

use serde_json::{Value, json};

use super::kinds::Kind;

/// An error response: a `Status`, or plain text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub code: u16,
    pub body: Said,
    /// Seconds of `Retry-After`.
    pub retry_after: Option<u32>,
}

/// The body of an error response.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// A `Status` object.
    Status { reason: &'static str, message: String, details: Value, metadata: Value },
    /// Plain text.
    Text(String),
}

impl Refusal {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>, details: Value) -> Self {
        let body = Said::Status { reason, message: message.into(), details, metadata: json!({}) };
        Self { code, body, retry_after: None }
    }

    pub fn text(code: u16, text: impl Into<String>) -> Self {
        Self { code, body: Said::Text(text.into()), retry_after: None }
    }

    /// 400 without details.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, Value::Null)
    }

    /// The 404 for an object that does not exist.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.resource()), named(kind, name))
    }

    /// The 404 for an unknown resource type in a group that is served.
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource", json!({}))
    }

    /// The 404 for an unknown path.
    pub fn no_such_page() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let text = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", text, json!({}))
    }

    /// The 409 for a name that is taken.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(409, "AlreadyExists", message, named(kind, name))
    }

    /// The 409 for a conflicting update.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(409, "Conflict", message, named(kind, name))
    }

    /// The 409 for an update of an outdated version.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// The 409 for a violated precondition. It names the kind, not the resource.
    pub fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::new(409, "Conflict", message, json!({ "name": name, "kind": kind.kind, "group": group(kind) }))
    }

    /// The 422 response for an invalid object. It lists each violated rule with its field, reason and
    /// message.
    pub fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let qualified = kind.qualified();
        let mut refusal = Self::invalid_as(&qualified, name, causes);
        if let Said::Status { details, .. } = &mut refusal.body {
            let mut new = json!({ "name": name, "kind": kind.kind, "group": group(kind) });
            new["causes"] = details["causes"].take();
            *details = new;
        }
        refusal
    }

    /// The 422 for invalid options, such as `ListOptions`.
    pub fn invalid_options(options: &'static str, causes: &[Cause]) -> Self {
        let mut refusal = Self::invalid_as(&format!("{options}.meta.k8s.io"), "", causes);
        if let Said::Status { details, .. } = &mut refusal.body {
            let causes = details["causes"].take();
            *details = json!({ "group": "meta.k8s.io", "kind": options, "causes": causes });
        }
        refusal
    }

    fn invalid_as(what: &str, name: &str, causes: &[Cause]) -> Self {
        let mut texts: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        texts.dedup();
        let text = if texts.len() == 1 { texts.join("") } else { format!("[{}]", texts.join(", ")) };
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
            .collect();
        Self::new(
            422,
            "Invalid",
            format!("{what} \"{name}\" is invalid: {text}"),
            json!({ "causes": causes }),
        )
    }

    /// The body.
    pub fn body(&self) -> Value {
        match &self.body {
            Said::Text(text) => Value::String(text.clone()),
            Said::Status { reason, message, details, metadata } => {
                let mut status = json!({
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": metadata,
                    "status": "Failure",
                    "message": message,
                    "code": self.code,
                });
                if !reason.is_empty() {
                    status["reason"] = json!(reason);
                }
                let mut details = details.clone();
                if let Some(seconds) = self.retry_after {
                    details["retryAfterSeconds"] = json!(seconds);
                }
                if let Some(fields) = details.as_object_mut() {
                    fields.retain(|_, value| !value.is_null() && value != "");
                }
                if !details.is_null() {
                    status["details"] = details;
                }
                status
            }
        }
    }
}

/// One violated rule in a 422 response.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub field: String,
    pub reason: &'static str,
    pub message: String,
}

impl Cause {
    pub fn new(field: impl Into<String>, reason: &'static str, message: impl Into<String>) -> Self {
        Self { field: field.into(), reason, message: message.into() }
    }
}

fn named(kind: &Kind, name: &str) -> Value {
    json!({ "name": name, "group": group(kind), "kind": kind.plural })
}

fn group(kind: &Kind) -> Value {
    if kind.group.is_empty() { Value::Null } else { json!(kind.group) }
}
