//! Paths, queries, and media types of requests.

use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;

use super::{
    kinds::{self, KINDS, Kind},
    refusal::Refusal,
};

/// What the path of a request refers to.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Object(Route),
    /// The segments of a path that refers to discovery, health or the version.
    Other(Vec<String>),
}

/// An object, a collection of objects, or a subresource of an object.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub kind: &'static Kind,
    /// The namespace. Empty for all namespaces and for cluster-wide objects.
    pub namespace: String,
    pub name: Option<String>,
    pub sub: Option<String>,
    /// Whether the path is a watch in the deprecated form, such as `/api/v1/watch/pods`.
    pub watch: bool,
}

impl Route {
    /// The verb of a request, as access rules name it.
    pub fn verb(&self, method: &Method, query: &Query) -> &'static str {
        match (method.as_str(), &self.name) {
            ("GET" | "HEAD", None) if self.watch || query.flag("watch") => "watch",
            ("GET" | "HEAD", None) => "list",
            ("GET" | "HEAD", Some(_)) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", None) => "deletecollection",
            ("DELETE", Some(_)) => "delete",
            _ => "other",
        }
    }
}

/// Reads a path.
///
/// # Errors
/// Returns 404 if the path is unknown.
pub(super) fn target(path: &str) -> Result<Target, Refusal> {
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Target::Other(segments)),
    };
    if !KINDS.iter().any(|kind| kind.group == group && kind.version == version) {
        return Err(Refusal::no_such_page());
    }
    let (watch, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, sub) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(*name), None),
        [plural, name, sub] => (plural, Some(*name), Some(*sub)),
        _ => return Err(Refusal::no_such_resource()),
    };
    let kind = kinds::by_plural(group, plural).ok_or_else(Refusal::no_such_resource)?;
    if kind.namespaced == namespace.is_empty() && (name.is_some() || !kind.namespaced) {
        return Err(Refusal::no_such_resource());
    }
    Ok(Target::Object(Route {
        kind,
        namespace: namespace.into(),
        name: name.map(String::from),
        sub: sub.map(String::from),
        watch,
    }))
}

/// Query parameters.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query of a URI.
    pub fn parse(query: Option<&str>) -> Self {
        let decode =
            |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = query.unwrap_or("").split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        )
    }

    /// The value of a query parameter. Empty if the parameter is missing.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value.as_str())
    }

    /// Whether a query parameter is set to one of the accepted spellings of `true`.
    pub fn flag(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|(found, value)| found == name && matches!(value.as_str(), "1" | "true" | "t" | "True"))
    }

    /// Whether a write is a dry run.
    pub fn dry_run(&self) -> bool {
        self.get("dryRun") == "All"
    }

    /// The parameter `resourceVersion`.
    ///
    /// # Errors
    /// Returns 400 if the version is not a number.
    pub fn version(&self) -> Result<Option<u64>, Refusal> {
        let text = self.get("resourceVersion");
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            Refusal::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
            ))
        })
    }
}

/// The form in which a client wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Table,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
}

/// Reads `Accept`.
///
/// # Errors
/// Returns 406 if none of the accepted forms can be served.
pub(super) fn form(headers: &HeaderMap) -> Result<Form, Refusal> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    for part in accept.split(',') {
        let mut words = part.split(';').map(str::trim);
        let media = words.next().unwrap_or("");
        let wanted = words.find_map(|word| word.strip_prefix("as="));
        match (media, wanted) {
            ("application/json" | "*/*" | "application/*" | "", None) => return Ok(Form::Plain),
            ("application/json", Some("Table")) => return Ok(Form::Table),
            ("application/json", Some("PartialObjectMetadata")) => return Ok(Form::Metadata),
            ("application/json", Some("PartialObjectMetadataList")) => return Ok(Form::MetadataList),
            _ => {}
        }
    }
    let text = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    Err(Refusal::new(406, "NotAcceptable", text, serde_json::json!({})))
}

/// Returns a body's media type without its parameters.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let found = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    found.unwrap_or("").split(';').next().unwrap_or("").trim()
}
