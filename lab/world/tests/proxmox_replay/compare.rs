//! What two answers must have in common: status, reason, error texts, the members of the body with their
//! types, and every value that does not depend on the moment or on chance.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::recording::expanded;

/// Members whose values depend on the moment, on chance, or on the hardware: only their types are compared.
const CHANGING: &[&str] = &[
    "pid",
    "pstart",
    "starttime",
    "endtime",
    "uptime",
    "cpu",
    "mem",
    "memhost",
    "disk",
    "netin",
    "netout",
    "diskread",
    "diskwrite",
    "maxdisk",
    "maxcpu",
    "maxmem",
    "used",
    "avail",
    "total",
    "used_fraction",
    "ctime",
    "timestamp",
    "size",
    "vmgenid",
    "smbios1",
    "meta",
    "digest",
    "upid",
    "blockstat",
    "statistics",
    "repoid",
    "running-qemu",
    "running-machine",
    "ssl_fingerprint",
    "pressurecpusome",
    "pressurecpufull",
    "pressureiosome",
    "pressureiofull",
    "nics",
    "cgroup-mode",
    "runningcpu",
];

/// Parts of a host's status that depend on its hardware.
const HARDWARE: &[&str] = &[
    ".data.cpuinfo",
    ".data.boot-info",
    ".data.current-kernel",
    ".data.loadavg",
    ".data.memory",
    ".data.rootfs",
];

/// The members that identify a row of a list.
const NAMES: &[&str] = &["volid", "vmid", "key", "iface", "id", "storage", "poolid", "sid", "node"];

/// Returns the differences between a recorded body and the embedded cluster's, one per line.
///
/// `before`: VMIDs that existed before the scenario, which the recorded lists leave out.
pub fn bodies(path: &str, before: &BTreeSet<u64>, recorded: &Value, ours: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let (mut recorded, mut ours) = (recorded.clone(), ours.clone());
    tidy(path, before, &mut recorded, &mut ours);
    let (recorded, ours) = (&recorded, &ours);
    if path.ends_with("/log") {
        logs(&recorded["data"], &ours["data"], &mut found);
    } else {
        values("", recorded, ours, &mut found);
    }
    found
}

/// Removes the differences that come only from how the recordings were made.
fn tidy(path: &str, before: &BTreeSet<u64>, recorded: &mut Value, ours: &mut Value) {
    if path.ends_with("/tasks") {
        // `total` counts the tasks of other scenarios, too.
        for body in [recorded, ours] {
            body.as_object_mut().and_then(|members| members.remove("total"));
        }
    } else if path.ends_with("/content") {
        // Ignore the image from which the recorded cluster's template was made.
        let import = |row: &Value| row["volid"].as_str().is_some_and(|volid| volid.contains(":import/"));
        keep_rows(recorded, |row| !import(row));
    } else if path == "/cluster/resources" {
        let rows = recorded["data"].as_array().cloned().unwrap_or_default();
        let members = |row: &Value| row.as_object().cloned().unwrap_or_default();
        let shown: BTreeMap<String, _> =
            rows.iter().map(|row| (row["id"].to_string(), members(row))).collect();
        let left_out = |row: &Value| before.contains(&row["vmid"].as_u64().unwrap_or(0));
        keep_rows(ours, |row| shown.contains_key(&row["id"].to_string()) || !left_out(row));
        // The recordings of two scenarios keep only some members of each row.
        let storages = || rows.iter().filter(|row| row["type"] == "storage");
        if storages().next().is_some() && storages().all(|row| row.get("plugintype").is_none()) {
            keep_rows(ours, |row| row["type"] != "pool");
            for row in ours["data"].as_array_mut().into_iter().flatten() {
                let kept = shown.get(&row["id"].to_string());
                let members = row.as_object_mut().into_iter();
                members.for_each(|row| row.retain(|key, _| kept.is_none_or(|kept| kept.contains_key(key))));
            }
        }
    }
}

fn keep_rows(body: &mut Value, keep: impl Fn(&Value) -> bool) {
    body["data"].as_array_mut().into_iter().for_each(|rows| rows.retain(&keep));
}

/// Checks that a log contains no line that the recorded log lacks, and that both end with the same line.
fn logs(recorded: &Value, ours: &Value, found: &mut Vec<String>) {
    let lines = |log: &Value| -> Vec<String> {
        log.as_array().into_iter().flatten().filter_map(|row| Some(normal(row["t"].as_str()?))).collect()
    };
    let (recorded, ours) = (lines(recorded), lines(ours));
    for line in ours.iter().filter(|line| !recorded.contains(line)) {
        found.push(format!("log: a line that was not recorded: {line}"));
    }
    if recorded.last() != ours.last() {
        found.push(format!("log: ends with {:?} instead of {:?}", ours.last(), recorded.last()));
    }
}

fn values(at: &str, recorded: &Value, ours: &Value, found: &mut Vec<String>) {
    let name = at.rsplit('.').next().unwrap_or_default();
    match (recorded, ours) {
        (Value::Object(recorded), Value::Object(ours)) => {
            // Long bodies are truncated in the recordings.
            let cut = recorded.contains_key("...") || recorded.contains_key("…");
            for key in recorded
                .keys()
                .filter(|key| !["...", "…"].contains(&key.as_str()) && !ours.contains_key(*key))
            {
                found.push(format!("{at}.{key} is missing"));
            }
            for key in ours.keys().filter(|key| !cut && !recorded.contains_key(*key)) {
                found.push(format!("{at}.{key} was not recorded"));
            }
            for (key, value) in recorded {
                if let Some(own) = ours.get(key) {
                    values(&format!("{at}.{key}"), value, own, found);
                }
            }
        }
        (Value::Array(recorded), Value::Array(ours)) => lists(at, recorded, ours, found),
        _ if kind(recorded) != kind(ours) => {
            found.push(format!("{at} is {ours} instead of {recorded}"));
        }
        _ if CHANGING.contains(&name) || HARDWARE.iter().any(|part| at.starts_with(part)) => {}
        (Value::String(recorded), Value::String(ours)) => {
            let (recorded, ours) = match name {
                "content" => (sorted(recorded), sorted(ours)),
                _ => (normal(&expanded(recorded)), normal(ours)),
            };
            if recorded != ours {
                found.push(format!("{at} is {ours:?} instead of {recorded:?}"));
            }
        }
        _ if recorded != ours => found.push(format!("{at} is {ours} instead of {recorded}")),
        _ => {}
    }
}

fn lists(at: &str, recorded: &[Value], ours: &[Value], found: &mut Vec<String>) {
    // The recorded lists contain tasks of other scenarios, so only the members of the rows and their types
    // are compared.
    if recorded.iter().chain(ours).any(|row| row.get("upid").is_some()) {
        let shapes = |rows: &[Value]| rows.iter().map(shape).collect::<BTreeSet<_>>();
        for shape in shapes(ours).difference(&shapes(recorded)) {
            found.push(format!("{at}: a row with {shape} was not recorded"));
        }
        return;
    }
    let both = recorded.iter().chain(ours);
    if at.rsplit('.').next() == Some("nodes") {
        let names = |rows: &[Value]| rows.iter().map(Value::to_string).collect::<BTreeSet<_>>();
        if names(recorded) != names(ours) {
            found.push(format!("{at} is {:?} instead of {:?}", names(ours), names(recorded)));
        }
        return;
    }
    let name =
        NAMES.iter().find(|name| !recorded.is_empty() && both.clone().all(|row| row.get(**name).is_some()));
    let Some(name) = name else {
        if recorded.len() != ours.len() {
            found.push(format!("{at} has {} rows instead of {}", ours.len(), recorded.len()));
        }
        for (number, (recorded, ours)) in recorded.iter().zip(ours).enumerate() {
            values(&format!("{at}.{number}"), recorded, ours, found);
        }
        return;
    };
    let by_name = |rows: &[Value]| -> BTreeMap<String, Value> {
        rows.iter().map(|row| (row[*name].to_string(), row.clone())).collect()
    };
    let (recorded, ours) = (by_name(recorded), by_name(ours));
    for row in recorded.keys().filter(|row| !ours.contains_key(*row)) {
        found.push(format!("{at}: row {row} is missing"));
    }
    for row in ours.keys().filter(|row| !recorded.contains_key(*row)) {
        found.push(format!("{at}: row {row} was not recorded"));
    }
    for (row, recorded) in &recorded {
        let Some(ours) = ours.get(row) else { continue };
        // Whether the statistics contain a VM depends on when pvestatd last reported.
        let lags = |row: &Value| row["status"] == "unknown";
        if lags(recorded) != lags(ours) {
            continue;
        }
        let (mut recorded, mut ours) = (recorded.clone(), ours.clone());
        if recorded["type"] == "qemu" && recorded.get("id").is_some() {
            for row in [&mut recorded, &mut ours] {
                for key in ["status", "name"] {
                    if let Some(value) = row.get_mut(key) {
                        *value = "(lags)".into();
                    }
                }
            }
        }
        values(&format!("{at}.{row}"), &recorded, &ours, found);
    }
}

fn shape(row: &Value) -> String {
    let members = row.as_object().into_iter().flatten();
    members.map(|(key, value)| format!("{key}:{}", kind(value))).collect::<Vec<_>>().join(" ")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

fn sorted(text: &str) -> String {
    text.split(',').collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",")
}

/// Returns a text without the ids that differ in each run: MAC addresses, uuids, digests, process ids, task
/// ids.
pub fn normal(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || ":-.@!".contains(c))).unwrap_or(rest.len());
        if word == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        out.push_str(&without_chance(&rest[..word]));
        rest = &rest[word..];
    }
    out
}

fn without_chance(word: &str) -> String {
    let hex = |part: &str, most: usize| part.len() == most && part.chars().all(|c| c.is_ascii_hexdigit());
    let colons: Vec<_> = word.split(':').collect();
    if colons.first() == Some(&"UPID") && colons.len() > 7 {
        return format!("UPID:{}:…:{}", colons[1], colons[5..].join(":"));
    }
    if colons.len() == 6 && colons.iter().all(|part| hex(part, 2)) {
        return "(MAC)".to_owned();
    }
    let dashes: Vec<_> = word.split('-').collect();
    if dashes.len() == 5 && dashes.iter().zip([8, 4, 4, 4, 12]).all(|(part, most)| hex(part, most)) {
        return "(uuid)".to_owned();
    }
    if hex(word, 40) {
        return "(digest)".to_owned();
    }
    match word.split_once(".conf.tmp.") {
        Some((before, _)) => format!("{before}.conf.tmp.…"),
        None => word.to_owned(),
    }
}
