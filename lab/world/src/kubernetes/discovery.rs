//! Discovery of groups and resources, the version, and the health checks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    kinds::{KINDS, Kind},
    refusal::Refusal,
};

/// The answer for a path that is not a resource.
pub(super) enum Found {
    Text(&'static str),
    Object(Value),
}

/// Whether clients may read a path without authentication.
pub(super) fn is_open(segments: &[&str]) -> bool {
    matches!(segments, ["version" | "healthz" | "readyz" | "livez", ..])
}

/// Answers a request for a path that is not a resource.
///
/// # Errors
/// Returns 404 if the path does not exist.
pub(super) fn answer(
    segments: &[&str],
    version: &str,
    served: impl Fn(&Kind) -> bool,
) -> Result<Found, Refusal> {
    let kinds: Vec<&Kind> = KINDS.into_iter().filter(|kind| served(kind)).collect();
    Ok(match segments {
        ["healthz" | "readyz" | "livez", ..] => Found::Text("ok"),
        ["version"] => Found::Object(about(version)),
        ["api"] => Found::Object(
            json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }),
        ),
        ["api", "v1"] => Found::Object(resources(&kinds, "", "v1")),
        ["apis"] => Found::Object(groups(&kinds)),
        ["apis", group] => Found::Object(
            groups(&kinds)["groups"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|found| found["name"] == *group)
                .cloned()
                .ok_or_else(Refusal::no_such_page)?,
        ),
        ["openapi", "v3"] => Found::Object(specifications(&kinds)),
        ["openapi", "v3", "api", "v1"] => Found::Object(specification(&kinds, "", "v1")),
        ["openapi", "v3", "apis", group, version] => Found::Object(specification(&kinds, group, version)),
        ["apis", group, version]
            if kinds.iter().any(|kind| kind.group == *group && kind.version == *version) =>
        {
            Found::Object(resources(&kinds, group, version))
        }
        _ => return Err(Refusal::no_such_page()),
    })
}

fn about(version: &str) -> Value {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": minor.parse::<u32>().map_or(0, |minor| minor.saturating_sub(1)).to_string(),
        "gitVersion": version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-11-20T00:00:00Z",
        "goVersion": "",
        "compiler": "gc",
        "platform": "linux/amd64",
    })
}

fn groups(kinds: &[&Kind]) -> Value {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        versions.entry(kind.group).or_default().insert(kind.version);
    }
    // `v1` sorts before `v1beta1`, and is therefore the preferred version.
    let groups: Vec<Value> = versions
        .into_iter()
        .map(|(name, versions)| {
            let version =
                |version| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
            let versions: Vec<Value> = versions.into_iter().map(version).collect();
            json!({
                "kind": "APIGroup",
                "apiVersion": "v1",
                "name": name,
                "preferredVersion": versions[0],
                "versions": versions,
            })
        })
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// The paths of the OpenAPI specifications, one for each group version.
fn specifications(kinds: &[&Kind]) -> Value {
    let mut paths = serde_json::Map::new();
    for kind in kinds {
        let place = match kind.group {
            "" => format!("api/{}", kind.version),
            group => format!("apis/{group}/{}", kind.version),
        };
        let url = format!("/openapi/v3/{place}");
        paths.insert(place, json!({ "serverRelativeURL": url }));
    }
    json!({ "paths": paths })
}

/// A specification without schemas. It tells clients that the server validates fields itself.
fn specification(kinds: &[&Kind], group: &str, version: &str) -> Value {
    let mut paths = serde_json::Map::new();
    for kind in kinds.iter().filter(|kind| kind.group == group && kind.version == version) {
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let parameters = ["dryRun", "fieldManager", "fieldValidation"]
            .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } }));
        let patch = json!({
            "parameters": parameters,
            "responses": {},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind.kind },
        });
        let path = format!("{root}/{version}{namespace}/{}/{{name}}", kind.plural);
        paths.insert(path, json!({ "patch": patch }));
    }
    json!({ "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "lab" }, "paths": paths })
}

fn resources(kinds: &[&Kind], group: &str, version: &str) -> Value {
    let mut found = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group == group && kind.version == version) {
        found.push(resource(kind));
        found.extend(subresources(kind));
    }
    let name = if group.is_empty() { version.into() } else { format!("{group}/{version}") };
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": found })
}

fn resource(kind: &Kind) -> Value {
    let reviews = kind.plural.ends_with("reviews");
    let verbs = if reviews {
        json!(["create"])
    } else {
        json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"])
    };
    json!({
        "name": kind.plural,
        "singularName": kind.kind.to_lowercase(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs,
        "shortNames": kind.short,
        "categories": if is_workload(kind) { vec!["all"] } else { Vec::new() },
    })
}

/// Whether `kubectl get all` shows the kind.
fn is_workload(kind: &Kind) -> bool {
    matches!(kind.group, "apps" | "batch") || matches!(kind.kind, "Pod" | "Service" | "ReplicationController")
}

fn subresources(kind: &Kind) -> Vec<Value> {
    let sub = |name: &str, of: &str, verbs: Value| {
        let name = format!("{}/{name}", kind.plural);
        let mut found = json!({
            "name": name,
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": of,
            "verbs": verbs,
        });
        // The subresource's kind belongs to a different API group than the resource. If a client does not
        // find `Eviction`, it deletes pods instead of evicting them.
        let group = match of {
            "Eviction" => "policy",
            "Scale" => "autoscaling",
            _ => return found,
        };
        found["group"] = json!(group);
        found["version"] = json!("v1");
        found
    };
    let mut found = Vec::new();
    if kind.status {
        found.push(sub("status", kind.kind, json!(["get", "patch", "update"])));
    }
    match kind.plural {
        "pods" => {
            found.push(sub("binding", "Binding", json!(["create"])));
            found.push(sub("eviction", "Eviction", json!(["create"])));
        }
        "deployments" | "replicasets" | "statefulsets" => {
            found.push(sub("scale", "Scale", json!(["get", "patch", "update"])));
        }
        _ => {}
    }
    found
}
