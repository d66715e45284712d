//! Reading single objects and lists of objects.

use std::{collections::BTreeMap, sync::Arc};

use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    events,
    kinds::Kind,
    object::{self, Key},
    path::{Form, Query, Route},
    refusal::{Cause, Refusal},
    selector::Selection,
    state::State,
    table,
};

/// The error message for a resource version that does not exist yet.
const TOO_LARGE: &str = "Too large resource version";

/// Continue tokens are encoded as in Go's `RawURLEncoding`, whose decoder ignores trailing bits.
const TOKENS: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The part of a list that a request selects: an exact version, the object after which the page starts, and
/// the maximum number of objects.
struct Wanted {
    exact: Option<u64>,
    after: Option<Key>,
    limit: usize,
}

impl State {
    /// Reads one object.
    ///
    /// # Errors
    /// Returns 404 if the object does not exist, or 504 if the version is in the future.
    pub(super) fn read(&self, route: &Route, query: &Query, form: Form) -> Result<Value, Refusal> {
        let name = route.name.as_deref().unwrap_or("");
        if let Some(version) = query.version()? {
            self.check_future(version)?;
        }
        let found = self
            .store
            .get(route.kind, &route.namespace, name)
            .ok_or_else(|| Refusal::not_found(route.kind, name))?;
        Ok(shaped(route.kind, &found, form, self.now()))
    }

    /// A list of objects.
    ///
    /// # Errors
    /// Returns 400, 406, 410, 422 or 504, as the API server does.
    pub(super) fn list(&mut self, route: &Route, query: &Query, form: Form) -> Result<Value, Refusal> {
        if form == Form::Metadata {
            let text = format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
                if route.kind.group.is_empty() { "core" } else { route.kind.version },
                route.kind.kind
            );
            return Err(Refusal::new(406, "NotAcceptable", text, Value::Null));
        }
        let selection = selection(route, query)?;
        let wanted = self.wanted(&route.namespace, query)?;
        let current = self.store.revision();
        let revision = wanted.exact.unwrap_or(current);
        let past: Option<BTreeMap<Key, Arc<Value>>> = match wanted.exact {
            Some(revision) if revision != current => {
                let found = self.store.collection(route.kind).at(revision);
                if found.is_none() {
                    return Err(expired(&route.namespace, &wanted));
                }
                found
            }
            _ => None,
        };
        let objects = match &past {
            Some(past) => past,
            None => &self.store.collection(route.kind).objects,
        };
        let inside = |key: &Key| route.namespace.is_empty() || key.0 == route.namespace;
        let first = wanted.after.clone().unwrap_or_else(|| (route.namespace.clone(), String::new()));
        let mut rest = objects
            .range(first..)
            .filter(|(key, _)| inside(key) && wanted.after.as_ref() != Some(key))
            .filter(|(_, object)| selection.matches(object));
        let page: Vec<(&Key, &Arc<Value>)> = rest.by_ref().take(wanted.limit).collect();
        let left = rest.count();
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if left > 0
            && let Some((key, _)) = page.last()
        {
            let revision = i64::try_from(revision).unwrap_or(i64::MAX);
            metadata["continue"] = json!(token_text(revision, &route.namespace, key));
            if selection.is_empty() {
                metadata["remainingItemCount"] = json!(left);
            }
        }
        let items: Vec<Arc<Value>> = page.into_iter().map(|(_, object)| object.clone()).collect();
        Ok(table::list(route.kind, &items, metadata, form, self.now()))
    }

    fn check_future(&self, version: u64) -> Result<(), Refusal> {
        let current = self.store.revision();
        if version <= current {
            return Ok(());
        }
        let message = format!("Timeout: {TOO_LARGE}: {version}, current: {current}");
        let causes = json!([{ "reason": "ResourceVersionTooLarge", "message": TOO_LARGE }]);
        let mut refusal = Refusal::new(504, "Timeout", message, json!({ "causes": causes }));
        refusal.retry_after = Some(1);
        Err(refusal)
    }

    fn wanted(&self, namespace: &str, query: &Query) -> Result<Wanted, Refusal> {
        let limit = query.get("limit");
        let limit: usize = if limit.is_empty() {
            0
        } else {
            limit.parse().map_err(|_| {
                Refusal::bad_request(format!("strconv.ParseInt: parsing \"{limit}\": invalid syntax"))
            })?
        };
        let version = query.version()?;
        let rule = query.get("resourceVersionMatch");
        let forbidden = |text: String| {
            let message = format!("Forbidden: {text}");
            let cause = Cause::new("resourceVersionMatch", "FieldValueForbidden", message);
            Refusal::invalid_options("ListOptions", &[cause])
        };
        if !rule.is_empty() && version.is_none() {
            return Err(forbidden(
                "resourceVersionMatch is forbidden unless resourceVersion is provided".into(),
            ));
        }
        if rule == "Exact" && version == Some(0) {
            let text = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            return Err(forbidden(text.into()));
        }
        let token = query.get("continue");
        if !token.is_empty() {
            let (revision, after) = read_token(namespace, token)?;
            let limit = if limit == 0 { usize::MAX } else { limit };
            return Ok(Wanted { exact: u64::try_from(revision).ok(), after: Some(after), limit });
        }
        if let Some(version) = version {
            self.check_future(version)?;
        }
        let exact = match version {
            None | Some(0) => None,
            Some(version) if rule == "Exact" || (rule.is_empty() && limit > 0) => Some(version),
            Some(_) => None,
        };
        let unlimited = limit == 0 || version == Some(0);
        Ok(Wanted { exact, after: None, limit: if unlimited { usize::MAX } else { limit } })
    }
}

/// Reads the selectors of a list or a watch from its query.
pub(super) fn selection(route: &Route, query: &Query) -> Result<Selection, Refusal> {
    Selection::parse(route.kind, query.get("labelSelector"), query.get("fieldSelector"))
}

/// Converts an object to the requested form.
pub(super) fn shaped(kind: &Kind, object: &Value, form: Form, now: Timestamp) -> Value {
    match form {
        Form::Plain => events::outgoing(kind, object),
        Form::Metadata | Form::MetadataList => table::metadata_only(object),
        Form::Table => table::one(kind, object, now),
    }
}

fn expired(namespace: &str, wanted: &Wanted) -> Refusal {
    match &wanted.after {
        None => {
            let text = "The resourceVersion for the provided list is too old.";
            Refusal::new(410, "Expired", text, Value::Null)
        }
        Some(after) => {
            let text = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
            let mut refusal = Refusal::new(410, "Expired", text, Value::Null);
            if let super::refusal::Said::Status { metadata, .. } = &mut refusal.body {
                *metadata = json!({ "continue": token_text(-1, namespace, after) });
            }
            refusal
        }
    }
}

/// A continue token. It names the last object by namespace and name, or by name alone if one namespace is
/// listed.
fn token_text(revision: i64, namespace: &str, key: &Key) -> String {
    let start = if namespace.is_empty() { format!("{}/{}\0", key.0, key.1) } else { format!("/{}\0", key.1) };
    TOKENS.encode(json!({ "v": "meta.k8s.io/v1", "rv": revision, "start": start }).to_string())
}

fn read_token(namespace: &str, token: &str) -> Result<(i64, Key), Refusal> {
    let wrong =
        |why: &str| Refusal::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = TOKENS.decode(token).map_err(|_| wrong("illegal base64 data"))?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|_| wrong("invalid character '\\u0081' looking for beginning of value"))?;
    let start = object::text(&value, "/start").trim_end_matches('\0').trim_start_matches('/');
    let (home, name) = start.split_once('/').unwrap_or((namespace, start));
    Ok((value["rv"].as_i64().unwrap_or(-1), (home.into(), name.into())))
}
