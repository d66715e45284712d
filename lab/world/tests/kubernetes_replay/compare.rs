//! Finds the differences between two answers, except for values that differ between any two clusters.

use std::collections::BTreeSet;

use serde_json::Value;

/// Fields whose values change from cluster to cluster or from moment to moment. Only their types are
/// compared, and for times also the format.
const CHANGING: &[&str] = &[
    "resourceVersion",
    "uid",
    "continue",
    "selfLink",
    "podIP",
    "hostIP",
    "ip",
    "containerID",
    "imageID",
    "podCIDR",
    "bootID",
    "machineID",
    "systemUUID",
    "kernelVersion",
    "osImage",
    "gitCommit",
    "goVersion",
    "buildDate",
    "reportingInstance",
    "host",
    "image",
];

/// Path endings of fields that only the recorded cluster has, because its kubelet and container runtime
/// filled them in.
const SURROUNDINGS: &[&str] = &[
    ".status.images",
    ".status.declaredFeatures",
    ".status.runtimeHandlers",
    ".status.features",
    ".status.capacity",
    ".status.allocatable",
    ".status.nodeInfo.swap",
    ".status.nodeInfo.containerRuntimeVersion",
    ".status.daemonEndpoints",
    ".status.volumesInUse",
    ".main.containerID",
    ".main.resources",
    ".main.user",
    ".main.started",
    ".main.allocatedResources",
    ".status.allocatedResources",
    ".status.resources",
    ".terminated.containerID",
    ".terminated.startedAt",
    ".spec.podCIDRs",
    ".spec.providerID",
    ".annotations.volumes.kubernetes.io/controller-managed-attach-detach",
];

/// The fields that identify a row of a list.
const NAMES: &[&[&str]] =
    &[&["type", "status"], &["type"], &["key", "effect", "value"], &["key", "effect"], &["name"]];

/// The differences between two bodies.
pub fn bodies(recorded: &Value, ours: &Value) -> Vec<String> {
    let (mut recorded, mut ours) = (recorded.clone(), ours.clone());
    tidy(&mut recorded);
    tidy(&mut ours);
    let mut found = Vec::new();
    values("", &recorded, &ours, &mut found);
    found
}

/// Whether an object is one that the recorded cluster creates in every namespace for its own use.
pub fn is_furniture(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().or(object["object"]["metadata"]["name"].as_str());
    matches!(name, Some("kube-root-ca.crt" | "openshift-service-ca.crt"))
}

fn tidy(body: &mut Value) {
    for list in ["items", "rows"] {
        if let Some(rows) = body.get_mut(list).and_then(Value::as_array_mut) {
            rows.retain(|row| !is_furniture(row));
        }
    }
    for row in body.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        for cell in row["cells"].as_array_mut().into_iter().flatten() {
            let text = cell.as_str().unwrap_or_default();
            let age = text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(['s', 'm', 'h', 'd']);
            if age || text.parse::<std::net::IpAddr>().is_ok() {
                *cell = "(age or address)".into();
            }
        }
    }
    for column in body.get_mut("columnDefinitions").and_then(Value::as_array_mut).into_iter().flatten() {
        // Descriptions of columns are long texts, and are not compared.
        column["description"] = "".into();
    }
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("remainingItemCount");
    }
}

fn values(at: &str, recorded: &Value, ours: &Value, found: &mut Vec<String>) {
    if SURROUNDINGS.iter().any(|place| at.ends_with(place)) {
        return;
    }
    let name = name_of(at);
    match (recorded, ours) {
        (Value::Object(recorded), Value::Object(ours)) => {
            let passed = |key: &str| SURROUNDINGS.iter().any(|place| format!("{at}.{key}").ends_with(place));
            for key in recorded.keys().filter(|key| !ours.contains_key(*key) && !passed(key)) {
                found.push(format!("{at}.{key} is missing: {}", short(&recorded[key])));
            }
            for key in ours.keys().filter(|key| !recorded.contains_key(*key) && !passed(key)) {
                found.push(format!("{at}.{key} was not recorded: {}", short(&ours[key])));
            }
            for (key, value) in recorded {
                if let Some(own) = ours.get(key) {
                    values(&format!("{at}.{key}"), value, own, found);
                }
            }
        }
        (Value::Array(recorded), Value::Array(ours)) => lists(at, recorded, ours, found),
        (Value::String(_), Value::String(_)) if CHANGING.contains(&name) => {}
        (Value::String(recorded), Value::String(ours)) if normal(recorded) != normal(ours) => {
            found.push(format!("{at} is {ours:?} instead of {recorded:?}"));
        }
        (Value::String(_), Value::String(_)) => {}
        _ if recorded != ours => {
            found.push(format!("{at} is {} instead of {}", short(ours), short(recorded)));
        }
        _ => {}
    }
}

fn lists(at: &str, recorded: &[Value], ours: &[Value], found: &mut Vec<String>) {
    let by = NAMES.iter().find(|names| {
        let whole = |row: &Value| names.iter().all(|name| row.get(name).is_some_and(Value::is_string));
        let keys = |rows: &[Value]| rows.iter().map(|row| key(row, names)).collect::<BTreeSet<_>>().len();
        let all = recorded.iter().chain(ours).all(whole);
        all && keys(recorded) == recorded.len() && keys(ours) == ours.len()
    });
    let (Some(names), false) = (by, name_of(at) == "items" || recorded.is_empty()) else {
        if recorded.len() != ours.len() {
            let shown =
                |rows: &[Value]| rows.iter().map(|row| short(title(row))).collect::<Vec<_>>().join(" ");
            found.push(format!(
                "{at} has {} rows ({}) instead of {} ({})",
                ours.len(),
                shown(ours),
                recorded.len(),
                shown(recorded)
            ));
        }
        for (number, (recorded, ours)) in recorded.iter().zip(ours).enumerate() {
            values(&format!("{at}.{number}"), recorded, ours, found);
        }
        return;
    };
    for row in recorded {
        let own = ours.iter().find(|own| key(own, names) == key(row, names));
        match own {
            Some(own) => values(&format!("{at}.{}", key(row, names)), row, own, found),
            None => found.push(format!("{at}: a row is missing: {}", short(row))),
        }
    }
    for own in ours.iter().filter(|own| !recorded.iter().any(|row| key(row, names) == key(own, names))) {
        found.push(format!("{at}: a row was not recorded: {}", short(own)));
    }
}

/// The last part of the path `at`.
fn name_of(at: &str) -> &str {
    at.rsplit('.').next().unwrap_or_default()
}

fn title(row: &Value) -> &Value {
    row["metadata"].get("name").unwrap_or(row)
}

fn key(row: &Value, names: &[&str]) -> String {
    names.iter().map(|name| row[*name].as_str().unwrap_or_default()).collect::<Vec<_>>().join("/")
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

/// Returns a text without the parts that differ in each run: uuids, times, long numbers, and random suffixes
/// of names.
pub fn normal(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let versions = ["resource version", "ResourceVersion"].iter().any(|words| text.contains(words));
    while let Some(first) = rest.chars().next() {
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || ":-.".contains(c))).unwrap_or(rest.len());
        if end == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let word = &rest[..end];
        let is_version = versions && word.trim_end_matches(':').chars().all(|c| c.is_ascii_digit());
        out.push_str(&if is_version { "(version)".to_owned() } else { without_chance(word) });
        rest = &rest[end..];
    }
    out
}

fn without_chance(word: &str) -> String {
    let dashes: Vec<_> = word.split('-').collect();
    let hex = |part: &str, size: usize| part.len() == size && part.chars().all(|c| c.is_ascii_hexdigit());
    if dashes.len() == 5 && dashes.iter().zip([8, 4, 4, 4, 12]).all(|(part, size)| hex(part, size)) {
        return "(uuid)".to_owned();
    }
    if word.len() >= 20 && word.ends_with('Z') && word.parse::<jiff::Timestamp>().is_ok() {
        return format!("(time of {} characters)", word.len());
    }
    let event = word.rsplit_once('.').filter(|(_, end)| end.len() == 16 && hex(end, 16));
    if let Some((name, _)) = event {
        return format!("{}.(event)", without_chance(name));
    }
    // The random suffixes of pod names. The API server uses an alphabet without vowels for them.
    let random = |end: &str| end.len() == 5 && end.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c));
    if let Some((name, _)) = word.rsplit_once('-').filter(|(_, end)| random(end)) {
        return format!("{name}-(chance)");
    }
    word.to_owned()
}
