//! Reads the recordings of a real cluster, and makes the requests that they contain.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// The folder of the recordings, if it exists.
#[expect(clippy::print_stdout, reason = "a skipped test prints why")]
pub fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/kubernetes/recordings");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no {}", folder.display());
    None
}

/// The entries of a scenario. The entries of a second part follow, numbered from 101. A watch that continues
/// in the second part is one entry.
pub fn read(folder: &Path, parts: &[&str]) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    for (part, scenario) in parts.iter().enumerate() {
        let text = fs::read(folder.join(format!("{scenario}.json"))).expect("a recording");
        let file: Value = serde_json::from_slice(&text).expect("JSON");
        for entry in file["exchanges"].as_array().expect("exchanges") {
            let mut entry = Entry(entry.clone());
            entry.0["n"] = (100 * part as u64 + entry.number()).into();
            let begun = all.iter_mut().find(|first| part > 0 && first.is_continued_by(&entry));
            match begun {
                Some(first) => first.go_on(&entry),
                None => all.push(entry),
            }
        }
    }
    all
}

/// Returns the time at which a scenario began. Timestamps are in whole seconds, so each new object gives only
/// an earliest and a latest possible time.
pub fn beginning(entries: &[Entry]) -> Timestamp {
    let made = |entry: &Entry| -> Option<Timestamp> {
        let fresh = entry.status() == 201 && entry.query("dryRun").is_empty();
        entry.body()["metadata"]["creationTimestamp"].as_str().filter(|_| fresh)?.parse().ok()
    };
    let before = |time: Timestamp, seconds: f64| time - SignedDuration::from_secs_f64(seconds);
    let earliest = entries.iter().filter_map(|entry| Some(before(made(entry)?, entry.answered()))).max();
    let latest = entries.iter().filter_map(|entry| Some(before(made(entry)?, entry.time() - 1.0))).min();
    match (earliest, latest) {
        (Some(earliest), Some(latest)) => earliest + latest.duration_since(earliest) / 2,
        // If no object was created, the time was determined from the deletions of pods.
        _ => beginnings(entries).parse().expect("a time"),
    }
}

fn beginnings(entries: &[Entry]) -> &'static str {
    let first = entries.iter().find(|entry| entry.happening().is_none());
    match first.map_or("", Entry::path) {
        "/api/v1/namespaces/lw/configmaps" => "2026-11-21T01:13:52.9Z",
        "/api/v1/namespaces/lists/configmaps" => "2026-11-21T01:25:07Z",
        _ => "2026-11-21T01:19:39.5Z",
    }
}

/// The recorded cluster's CA certificate, if a kubeconfig contains it. The signatures of tokens depend on it.
pub fn ca_pem(entries: &[Entry]) -> Option<String> {
    let kubeconfig = entries.iter().find_map(|entry| entry.body()["data"]["kubeconfig"].as_str())?;
    let (_, rest) = kubeconfig.split_once("certificate-authority-data: ")?;
    String::from_utf8(STANDARD.decode(rest.lines().next()?).ok()?).ok()
}

/// The values that a recorded cluster gave out, such as versions and uids, each with the value that the
/// embedded cluster gave out instead.
#[derive(Clone, Debug, Default)]
pub struct Given(pub BTreeMap<String, String>);

impl Given {
    /// Pairs each recorded value with the embedded cluster's value at the same place.
    pub fn learn(&mut self, recorded: &Value, ours: &Value) {
        match (recorded, ours) {
            (Value::Object(recorded), Value::Object(ours)) => {
                for (name, value) in recorded {
                    let Some(own) = ours.get(name) else { continue };
                    if let (Some(value), Some(own)) = (value.as_str(), own.as_str())
                        && matches!(name.as_str(), "resourceVersion" | "uid" | "continue")
                    {
                        self.0.entry(value.to_owned()).or_insert_with(|| own.to_owned());
                    }
                    self.learn(value, own);
                }
            }
            (Value::Array(recorded), Value::Array(ours)) => {
                for value in recorded {
                    let same = |own: &&Value| !name(value).is_null() && placed(own) == placed(value);
                    if let Some(own) = ours.iter().find(same) {
                        self.learn(value, own);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the embedded cluster's value for a recorded one. A version that no answer contained is treated
    /// as the latest known version before it.
    fn swap(&self, text: &str, version: bool) -> String {
        if let Some(own) = self.0.get(text) {
            return own.clone();
        }
        if let Some(token) = self.swap_token(text) {
            return token;
        }
        let Some(number) =
            text.parse::<u64>().ok().filter(|number| version && (10..10_000_000).contains(number))
        else {
            return text.to_owned();
        };
        let known = self.0.iter().filter_map(|(recorded, own)| Some((recorded.parse::<u64>().ok()?, own)));
        let before = known.filter(|(recorded, _)| *recorded <= number).max_by_key(|(recorded, _)| *recorded);
        before.map_or_else(|| text.to_owned(), |(_, own)| own.clone())
    }

    /// Replaces the version in a text that is a continue token. Returns `None` for any other text.
    fn swap_token(&self, text: &str) -> Option<String> {
        let mut token: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let version = token["rv"].as_i64().filter(|version| *version > 0)?;
        token["rv"] = self.swap(&version.to_string(), true).parse::<i64>().ok()?.into();
        Some(URL_SAFE_NO_PAD.encode(token.to_string()))
    }

    fn swap_all(&self, body: &Value, of: &str) -> Value {
        match body {
            Value::String(text) => Value::String(self.swap(text, of == "resourceVersion")),
            Value::Array(rows) => rows.iter().map(|row| self.swap_all(row, of)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.swap_all(value, name))).collect()
            }
            other => other.clone(),
        }
    }
}

fn name(object: &Value) -> &Value {
    &object["metadata"]["name"]
}

fn placed(object: &Value) -> (&Value, &Value) {
    (name(object), &object["metadata"]["namespace"])
}

/// One entry: a call with its answer, a watch, something that happened, or a command on a host or in a guest.
#[derive(Clone, Debug)]
pub struct Entry(pub Value);

impl Entry {
    pub fn number(&self) -> u64 {
        self.0["n"].as_u64().unwrap_or(0)
    }

    /// Seconds since the scenario began.
    pub fn time(&self) -> f64 {
        self.0["t"].as_f64().unwrap_or(0.0)
    }

    /// When the answer arrived, in seconds since the scenario began.
    pub fn answered(&self) -> f64 {
        self.time() + self.0["elapsed_ms"].as_f64().unwrap_or(0.0) / 1000.0
    }

    /// What happened, for an entry that is not a call.
    pub fn happening(&self) -> Option<&str> {
        self.0.get("event")?.as_str()
    }

    pub fn method(&self) -> &str {
        self.0["method"].as_str().unwrap_or_default()
    }

    /// The path of a call, or the guest of a command.
    pub fn path(&self) -> &str {
        self.0["path"].as_str().unwrap_or_default()
    }

    pub fn status(&self) -> u64 {
        self.0["status"].as_u64().unwrap_or(0)
    }

    pub fn body(&self) -> &Value {
        &self.0["body"]
    }

    /// The recorded events of a watch with their times.
    pub fn events(&self) -> Option<Vec<(f64, Value)>> {
        if let Some(events) = self.0["events"].as_array() {
            let mut past: BTreeMap<String, Value> = BTreeMap::new();
            return Some(
                events
                    .iter()
                    .map(|row| (row["t"].as_f64().unwrap_or(0.0), expanded(&mut past, &row["event"])))
                    .collect(),
            );
        }
        let watches = self.0["query"].get("watch").is_some() || self.path().contains("/watch/");
        let lines = self.body().as_str().filter(|_| watches && self.status() == 200)?.lines();
        // The recording cuts a long body off in the middle of a line. The incomplete line is left out.
        Some(lines.filter_map(|line| Some((self.answered(), serde_json::from_str(line).ok()?))).collect())
    }

    fn is_continued_by(&self, other: &Self) -> bool {
        let ended = self.0["ended"].as_str().unwrap_or_default();
        ended.starts_with("goes on") && self.path() == other.path() && self.0["t"] == other.0["t"]
    }

    fn go_on(&mut self, other: &Self) {
        let more = other.0["events"].as_array().cloned().unwrap_or_default();
        if let Some(events) = self.0["events"].as_array_mut() {
            events.extend(more);
        }
        self.0["elapsed_ms"] = other.0["elapsed_ms"].clone();
    }

    /// Whether the recording contains only the beginning of the answer.
    pub fn is_cut(&self) -> bool {
        let text = self.body().as_str().unwrap_or_default();
        self.events().is_some() && text.lines().any(|line| serde_json::from_str::<Value>(line).is_err())
    }

    pub fn query(&self, name: &str) -> &str {
        self.0["query"][name].as_str().unwrap_or_default()
    }

    /// Returns the request, with values of the recorded cluster replaced by those of the embedded one.
    pub fn request(&self, given: &Given, authorization: Option<&str>) -> Request<Bytes> {
        let pairs = self.0["query"].as_object().into_iter().flatten().map(|(name, value)| {
            let value = value.as_str().unwrap_or_default();
            let value = given.swap(value, name == "resourceVersion");
            format!("{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC))
        });
        let pairs: Vec<String> = pairs.collect();
        let mark = if pairs.is_empty() { "" } else { "?" };
        let url = format!("https://lab:6443{}{mark}{}", self.path(), pairs.join("&"));
        let mut request = Request::builder().method(self.method()).uri(url);
        let accept = self.0["accept"].as_str().unwrap_or("application/json");
        request = request.header("accept", accept);
        if let Some(media) = self.0["content_type"].as_str().filter(|media| !media.is_empty()) {
            request = request.header("content-type", media);
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let body = match &self.0["request_body"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            body => given.swap_all(body, "").to_string(),
        };
        request.body(body.into()).expect("a request")
    }
}

/// An event with the fields that the recording left out because they had not changed.
fn expanded(past: &mut BTreeMap<String, Value>, event: &Value) -> Value {
    let mut event = event.clone();
    let object = &mut event["object"];
    let key = format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
    if let Some(before) = past.get(&key) {
        fill(object, before);
    }
    past.insert(key, object.clone());
    event
}

fn fill(now: &mut Value, before: &Value) {
    if now == "=" {
        now.clone_from(before);
    } else if let Some(fields) = now.as_object_mut() {
        for (name, value) in fields {
            fill(value, before.get(name).unwrap_or(&Value::Null));
        }
    }
}
