//! The wire format of answers: the `data` envelope, errors with their reason phrase, and empty answers.

use std::collections::BTreeMap;

use http::{HeaderValue, Response, StatusCode, header};
use hyper::ext::ReasonPhrase;
use serde_json::{Value, json};

use crate::serve::{Body, full};

/// The result of a call: the value of `data`, and the other members of the envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The `data` member.
    pub data: Value,
    /// The `total` member, for lists that are returned in pages.
    pub total: Option<u64>,
}

impl From<Value> for Answer {
    fn from(data: Value) -> Self {
        Self { data, total: None }
    }
}

/// An error response, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 400 `Parameter verification failed.` with the text for each parameter.
    Parameters(BTreeMap<String, String>),
    /// 401 with an empty body, after three seconds.
    Unauthenticated(&'static str),
    /// 403.
    Forbidden(String),
    /// 500: every other error of the API.
    Failed(String),
    /// A status with a plain-text or empty body, such as 595 and 596.
    Bare(u16, String),
    /// A status with this text as the body, and its first line as the reason phrase.
    Plain(u16, String),
    /// 501 for an unknown path.
    NotImplemented(String),
}

impl Refusal {
    /// A 400 about one parameter.
    pub fn parameter(name: &str, text: impl Into<String>) -> Self {
        Self::Parameters(BTreeMap::from([(name.to_owned(), text.into())]))
    }

    /// A 500.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// A 403 for missing privileges.
    pub fn privilege(path: &str, privileges: &str) -> Self {
        Self::Forbidden(format!("Permission check failed ({path}, {privileges})"))
    }

    /// The text that a task reports as its exit status.
    pub fn task_text(&self) -> String {
        match self {
            Self::Parameters(errors) => {
                let lines: Vec<String> =
                    errors.iter().map(|(name, text)| format!("{name}: {text}")).collect();
                format!("400 Parameter verification failed. {}", lines.join(" "))
            }
            Self::Forbidden(text) => format!("403 {text}"),
            Self::Failed(text) | Self::Bare(_, text) | Self::Plain(_, text) | Self::NotImplemented(text) => {
                text.clone()
            }
            Self::Unauthenticated(text) => (*text).to_owned(),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Parameters(_) => 400,
            Self::Unauthenticated(_) => 401,
            Self::Forbidden(_) => 403,
            Self::Failed(_) => 500,
            Self::Bare(status, _) | Self::Plain(status, _) => *status,
            Self::NotImplemented(_) => 501,
        }
    }
}

/// Converts the result of a call to a response.
pub fn respond(result: Result<Answer, Refusal>) -> Response<Body> {
    match result {
        Ok(Answer { data, total }) => {
            // `json!` would make a copy of the data.
            let mut body = serde_json::Map::new();
            body.insert("data".to_owned(), data);
            if let Some(total) = total {
                body.insert("total".to_owned(), total.into());
            }
            json_response(200, "OK", &Value::Object(body))
        }
        Err(refusal) => refuse(&refusal),
    }
}

fn refuse(refusal: &Refusal) -> Response<Body> {
    let status = refusal.status();
    match refusal {
        Refusal::Parameters(errors) => {
            let reason = "Parameter verification failed.";
            let body = json!({ "data": null, "errors": errors, "message": format!("{reason}\n") });
            json_response(status, reason, &body)
        }
        Refusal::Unauthenticated(reason) => bare(status, reason, ""),
        Refusal::Bare(_, reason) => bare(status, reason, ""),
        Refusal::Plain(_, text) => bare(status, text.lines().next().unwrap_or_default(), text),
        Refusal::Forbidden(text) | Refusal::Failed(text) => {
            let first = text.lines().next().unwrap_or_default();
            json_response(status, first, &json!({ "data": null, "message": format!("{text}\n") }))
        }
        Refusal::NotImplemented(text) => {
            json_response(status, text, &json!({ "data": null, "message": text }))
        }
    }
}

fn json_response(status: u16, reason: &str, body: &Value) -> Response<Body> {
    let mut response = bare(status, reason, &body.to_string());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json;charset=UTF-8"));
    response
}

/// A response with this body, unchanged.
pub fn bare(status: u16, reason: &str, body: &str) -> Response<Body> {
    let mut response = Response::new(full(body.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
    response.headers_mut().insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    let keep = if status >= 400 { "close" } else { "Keep-Alive" };
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static(keep));
    // A reason phrase may contain only printable ASCII characters. The real server drops all others, too.
    let printable: String = reason.chars().filter(|c| c.is_ascii() && !c.is_ascii_control()).collect();
    if let Ok(phrase) = ReasonPhrase::try_from(printable) {
        response.extensions_mut().insert(phrase);
    }
    response
}
