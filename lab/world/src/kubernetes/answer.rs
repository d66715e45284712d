//! Handling of HTTP requests.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use super::{
    Kube,
    access::{self, Identity},
    discovery,
    hands::{CallRecord, Effect},
    path::{self, Query, Route, Target},
    protobuf,
    refusal::{Refusal, Said},
    state::State,
    watch, write,
};
use crate::{
    fault,
    serve::{Body, NoAnswer, full},
};

/// Answers one request, and applies the faults that tests have injected.
pub(super) async fn handle(kube: &Kube, request: Request<Bytes>) -> Result<Response<Body>, NoAnswer> {
    let (parts, body) = request.into_parts();
    let time = {
        let state = kube.state();
        if state.away {
            return Err(NoAnswer);
        }
        state.spec.timings.request
    };
    let effect = fault::take(&mut kube.state().faults, parts.method.as_str(), parts.uri.path());
    tokio::time::sleep(time).await;
    if kube.state().away {
        return Err(NoAnswer);
    }
    let response = match effect {
        None => Ok(respond(kube, &parts, &body)),
        Some(Effect::Delay(time)) => {
            tokio::time::sleep(time).await;
            Ok(respond(kube, &parts, &body))
        }
        Some(Effect::WorkThenDelay(time)) => {
            let response = respond(kube, &parts, &body);
            tokio::time::sleep(time).await;
            Ok(response)
        }
        Some(Effect::Answer { status, body }) => Ok(json_response(status, &body)),
        Some(Effect::WorkThenLose) => {
            respond(kube, &parts, &body);
            Err(NoAnswer)
        }
        Some(Effect::Lose) => Err(NoAnswer),
    };
    let status = response.as_ref().map_or(0, |response| response.status().as_u16());
    let mut state = kube.state();
    let record = CallRecord {
        time: state.now(),
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        status,
    };
    state.record(record);
    response
}

fn respond(kube: &Kube, parts: &Parts, body: &Bytes) -> Response<Body> {
    let mut response = match attempt(kube, parts, body) {
        Ok(response) => response,
        Err(refusal) => refused(&refusal),
    };
    // Go's HTTP server sends this header with each answer.
    let date = kube.state().now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    if let Ok(date) = HeaderValue::from_str(&date) {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}

fn attempt(kube: &Kube, parts: &Parts, body: &Bytes) -> Result<Response<Body>, Refusal> {
    let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let who = kube.state().authenticate(authorization)?;
    let route = match path::target(parts.uri.path())? {
        Target::Other(segments) => {
            let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
            let known = discovery::is_open(&segments);
            if !known && who.groups.iter().any(|group| group == "system:unauthenticated") {
                return Err(access::forbidden_path(&who, parts.uri.path()));
            }
            let state = kube.state();
            let found = discovery::answer(&segments, &state.spec.version, |kind| state.serves(kind))?;
            drop(state);
            return Ok(match found {
                discovery::Found::Text(text) => text_response(200, text),
                discovery::Found::Object(object) => json_response(200, &object),
            });
        }
        Target::Object(route) => route,
    };
    let query = Query::parse(parts.uri.query());
    let verb = route.verb(&parts.method, &query);
    who.check(&route, verb)?;
    if !kube.state().serves(route.kind) {
        return Err(Refusal::no_such_page());
    }
    if !write::takes(&route, &parts.method) {
        return Err(Refusal::method_not_allowed());
    }
    let form = path::form(&parts.headers)?;
    if verb == "watch" {
        let stream = watch::open(kube, &route, &query, form)?;
        let mut response = Response::new(stream);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return Ok(response);
    }
    let encoded = protobuf::to_json(body)?.map(|object| Bytes::from(object.to_string()));
    let body = encoded.as_ref().unwrap_or(body);
    let is_readable = encoded.is_some() || is_json(path::content_type(&parts.headers));
    if matches!(parts.method, Method::POST | Method::PUT) && !is_readable {
        let text = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        return Err(Refusal::new(415, "UnsupportedMediaType", text, Value::Null));
    }
    let call = Call { who: &who, route: &route, query: &query, parts, body };
    let (status, object) = call.perform(&mut kube.state(), form)?;
    Ok(json_response(status, &object))
}

struct Call<'a> {
    who: &'a Identity,
    route: &'a Route,
    query: &'a Query,
    parts: &'a Parts,
    body: &'a Bytes,
}

impl Call<'_> {
    fn perform(&self, state: &mut State, form: path::Form) -> Result<(u16, Value), Refusal> {
        let Self { who, route, query, parts, body } = *self;
        let named = route.name.is_some();
        match route.sub.as_deref() {
            None | Some("status") => {}
            Some("approval") if route.kind.plural == "certificatesigningrequests" => {
                state.may_approve(who, route)?;
            }
            Some("eviction") if route.kind.plural == "pods" => {
                return state.evict(route, query, body).map(|done| (201, done));
            }
            Some("binding") if route.kind.plural == "pods" => {
                return state.bind_by_hand(route, body).map(|done| (201, done));
            }
            Some("log" | "exec" | "attach" | "portforward") if route.kind.plural == "pods" => {
                let text = "this cluster's containers are simulated: they write no logs and run no commands";
                return Err(Refusal::new(501, "", text, Value::Null));
            }
            Some("scale") => {
                return state.scale(route, query, &parts.method, parts, body).map(|scale| (200, scale));
            }
            Some(_) => return Err(Refusal::no_such_resource()),
        }
        match parts.method {
            Method::GET | Method::HEAD if named => state.read(route, query, form).map(|found| (200, found)),
            Method::GET | Method::HEAD => state.list(route, query, form).map(|found| (200, found)),
            Method::POST => match route.kind.plural {
                "selfsubjectaccessreviews" => Ok((201, State::review(who, parsed(body)?))),
                "selfsubjectreviews" => Ok((201, about(who, &state.stamp()))),
                "certificatesigningrequests" => {
                    let mut request = parsed(body)?;
                    super::serving::signed_by(who, &mut request);
                    state.make(route, query, request.to_string().as_bytes()).map(|made| (201, made))
                }
                _ => state.make(route, query, body).map(|made| (201, made)),
            },
            Method::PUT => state.update(route, query, body).map(|written| (200, written)),
            Method::PATCH => {
                let media = path::content_type(&parts.headers);
                state.patch(route, query, media, body).map(|written| (200, written))
            }
            Method::DELETE if named => state.delete(route, query, body).map(|gone| (200, gone)),
            Method::DELETE => state.delete_all(route, query, body).map(|gone| (200, gone)),
            _ => Err(Refusal::method_not_allowed()),
        }
    }
}

fn is_json(media: &str) -> bool {
    media.is_empty() || media == "application/json"
}

fn parsed(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))
}

fn about(who: &Identity, now: &str) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": { "creationTimestamp": now },
        "status": { "userInfo": { "username": who.name, "groups": who.groups } },
    })
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = match &refusal.body {
        Said::Text(text) => text_response(refusal.code, text),
        Said::Status { .. } => json_response(refusal.code, &refusal.body()),
    };
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn text_response(status: u16, text: &str) -> Response<Body> {
    of_type(status, "text/plain; charset=utf-8", text.to_owned())
}

fn json_response(status: u16, value: &Value) -> Response<Body> {
    of_type(status, "application/json", value.to_string())
}

fn of_type(status: u16, media: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
