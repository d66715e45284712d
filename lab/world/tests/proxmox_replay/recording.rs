//! Reads the recordings of a real cluster, and makes the requests that they contain.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http::Request;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

/// The folder of the recordings, if it exists.
#[expect(clippy::print_stdout, reason = "a skipped test prints why")]
pub fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pve/recordings");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no {}", folder.display());
    None
}

/// The entries of a scenario.
pub fn read(folder: &Path, scenario: &str) -> Vec<Entry> {
    let text = fs::read(folder.join(format!("{scenario}.json"))).expect("a recording");
    let file: Value = serde_json::from_slice(&text).expect("JSON");
    let entries = file["exchanges"].as_array().expect("exchanges").iter();
    entries.map(|entry| Entry(entry.clone())).collect()
}

/// One entry: a call with its answer, something that happened, or a command on a host.
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

    pub fn event(&self) -> Option<&str> {
        self.0.get("event")?.as_str()
    }

    pub fn command(&self) -> Option<&str> {
        self.0.get("command")?.as_str()
    }

    /// Whether the entry records raw bytes on the wire instead of a call.
    pub fn is_raw(&self) -> bool {
        self.0.get("raw_request").is_some() || self.0["status"] == 0
    }

    pub fn method(&self) -> &str {
        self.0["method"].as_str().unwrap_or("GET")
    }

    pub fn path(&self) -> &str {
        self.0["path"].as_str().unwrap_or_default()
    }

    pub fn token(&self) -> &str {
        self.0["as"].as_str().unwrap_or_default()
    }

    pub fn status(&self) -> u64 {
        self.0["status"].as_u64().unwrap_or(0)
    }

    pub fn reason(&self) -> &str {
        self.0["reason"].as_str().unwrap_or_default()
    }

    /// The node in the call's path.
    pub fn node(&self) -> Option<&str> {
        self.path().strip_prefix("/nodes/")?.split('/').next()
    }

    /// The node and the VM in the call's path.
    pub fn vm(&self) -> Option<(&str, u32)> {
        let mut parts = self.path().strip_prefix("/nodes/")?.split('/');
        let (node, kind, vmid) = (parts.next()?, parts.next()?, parts.next()?);
        (kind == "qemu").then_some((node, vmid.parse().ok()?))
    }

    /// Returns the value of a parameter that was sent once.
    pub fn parameter(&self, name: &str) -> Value {
        match &self.0["params"] {
            Value::Array(pairs) => {
                let pair = pairs.iter().find(|pair| pair[0] == name);
                pair.map_or(Value::Null, |pair| pair[1].clone())
            }
            params => params[name].clone(),
        }
    }

    pub fn body(&self) -> &Value {
        &self.0["body"]
    }

    /// The method and the path, with each host name and id replaced by `*`.
    pub fn template(&self) -> String {
        let path = percent_decode_str(self.path()).decode_utf8_lossy().into_owned();
        let parts = path.split('/').map(|part| {
            let host = part.strip_prefix("pve").is_some_and(|rest| rest.parse::<u8>().is_ok());
            let id = part.parse::<u64>().is_ok() || part.starts_with("UPID:") || part.contains("vm:");
            if host || id { "*" } else { part }
        });
        format!("{} {}", self.method(), parts.collect::<Vec<_>>().join("/"))
    }

    /// Returns the request, with ids of the recorded cluster replaced by those of the embedded one.
    pub fn request(&self, given: &BTreeMap<String, String>, authorization: Option<&str>) -> Request<Bytes> {
        let swap = |text: &str| given.get(text).cloned().unwrap_or_else(|| text.to_owned());
        let segments = self.path().split('/').map(|part| {
            let plain = percent_decode_str(part).decode_utf8_lossy().into_owned();
            if given.contains_key(&plain) { encode(&swap(&plain)) } else { part.to_owned() }
        });
        let mut url = format!("https://pve1:8006/api2/json{}", segments.collect::<Vec<_>>().join("/"));
        let pairs: Vec<(String, Value)> = match &self.0["params"] {
            Value::Object(members) => members.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            Value::Array(pairs) => pairs.iter().map(|pair| (text(&pair[0]), pair[1].clone())).collect(),
            _ => Vec::new(),
        };
        let form = || {
            let pairs = pairs.iter().flat_map(|(key, value)| {
                let values = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                values.into_iter().map(move |value| (key, text(&value)))
            });
            pairs
                .map(|(key, value)| format!("{}={}", encode(key), encode(&swap(&value))))
                .collect::<Vec<_>>()
                .join("&")
        };
        let encoding = self.0["encoding"].as_str().unwrap_or_default();
        let (mut body, mut kind) = (String::new(), None);
        match (encoding, self.0.get("raw_body").and_then(Value::as_str)) {
            (kind_of_raw, Some(raw)) => (body, kind) = (raw.to_owned(), Some(kind_of_raw.to_owned())),
            ("json", _) => {
                let members: serde_json::Map<_, _> = pairs.iter().cloned().collect();
                (body, kind) = (Value::Object(members).to_string(), Some("application/json".to_owned()));
            }
            ("multipart", _) => return self.upload(&url, authorization),
            _ if pairs.is_empty() => {}
            ("query", _) => url = format!("{url}?{}", form()),
            _ if self.method() == "GET" || self.method() == "DELETE" => url = format!("{url}?{}", form()),
            _ => (body, kind) = (form(), Some("application/x-www-form-urlencoded".to_owned())),
        }
        let mut request = Request::builder().method(self.method()).uri(url);
        if let Some(kind) = kind.filter(|kind| !kind.is_empty()) {
            request = request.header("content-type", kind);
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        // In a recorded raw body, the characters U+0000 to U+00FF stand for the bytes 0 to 255.
        let raw = self.0.get("raw_body").is_some();
        let bytes = body.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>();
        let body = bytes.filter(|_| raw).map_or_else(|| Bytes::from(body), Bytes::from);
        request.body(body).expect("a request")
    }
}

impl Entry {
    /// Builds the request of an upload. The recording contains only the beginning and the length of the
    /// upload. The rest of the file is filled with zeroes.
    fn upload(&self, url: &str, authorization: Option<&str>) -> Request<Bytes> {
        let recorded = text(&self.parameter("multipart"));
        let boundary = recorded.trim_start_matches('-').split("\r\n").next().unwrap_or_default().to_owned();
        let file = recorded.rfind("\r\n\r\n").map_or(0, |at| at + 4);
        let end = format!("\r\n--{boundary}--\r\n");
        let length =
            self.parameter("bytes").as_u64().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let mut body = recorded.as_bytes()[..file].to_vec();
        body.resize(length.saturating_sub(end.len()), 0);
        body.extend(end.bytes());
        let mut request = Request::builder().method("POST").uri(url);
        request = request.header("content-type", format!("multipart/form-data; boundary={boundary}"));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        request.body(Bytes::from(body)).expect("a request")
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => expanded(text),
        value => value.to_string(),
    }
}

/// Expands very long values, which the recordings write as `(8193 x a)`.
pub fn expanded(text: &str) -> String {
    let short = || {
        let (count, what) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(" x ")?;
        Some(what.repeat(count.parse().ok()?))
    };
    short().unwrap_or_else(|| text.to_owned())
}
