//! Compares what two watches reported: for each object, both must report the same changes in the same order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::{is_furniture, normal};

/// Components whose events are compared. Events from kubelets and container runtimes are not compared.
const TELLERS: &[&str] = &[
    "default-scheduler",
    "node-controller",
    "taint-eviction-controller",
    "controllermanager",
    "pod-garbage-collector",
];

/// Returns the differences between the recorded events of a watch and the embedded cluster's.
///
/// If only the beginning was recorded, the rest of the embedded cluster's answer is ignored.
pub fn stories(recorded: &[(f64, Value)], ours: &[(f64, Value)], is_cut: bool) -> Vec<(String, String)> {
    let (recorded, ours) = (told(recorded), told(ours));
    let mut found = Vec::new();
    for (object, story) in &recorded {
        let own = ours.get(object).map_or(&[][..], Vec::as_slice);
        let own = if is_cut { own.get(..story.len()).unwrap_or(own) } else { own };
        if own != story.as_slice() {
            found.push((object.clone(), difference(object, story, own)));
        }
    }
    for (object, own) in ours.iter().filter(|(object, _)| !is_cut && !recorded.contains_key(*object)) {
        found.push((object.clone(), format!("{object} was not recorded: {}", own.join(" | "))));
    }
    found
}

fn difference(object: &str, story: &[String], own: &[String]) -> String {
    let alike = story.iter().zip(own).take_while(|(recorded, ours)| recorded == ours).count();
    let rest = |steps: &[String]| match steps.get(alike..) {
        None | Some([]) => "nothing".to_owned(),
        Some(steps) => steps.join("\n          "),
    };
    format!("{object} after {alike} steps:\n      is   {}\n      not  {}", rest(own), rest(story))
}

fn told(events: &[(f64, Value)]) -> BTreeMap<String, Vec<String>> {
    let mut stories: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut casts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut ready: BTreeSet<String> = BTreeSet::new();
    for (_, event) in events {
        let object = &event["object"];
        if is_furniture(object) || is_hearsay(object) {
            continue;
        }
        let name = match object["kind"].as_str() {
            Some("Event") => format!("events of {}", text(&object["involvedObject"]["name"])),
            _ => text(&object["metadata"]["name"]).to_owned(),
        };
        // Generated names differ, so the n-th object of a kind is compared with the n-th object of that kind
        // that the other watch reported.
        let cast = casts.entry(normal(&name)).or_default();
        let place = cast.iter().position(|known| *known == name).unwrap_or(cast.len());
        if place == cast.len() {
            cast.push(name.clone());
        }
        let title = format!("{} {}", normal(&name), place + 1);
        let what = step(object, &title, &mut ready);
        let of = text(&event["type"]);
        let steps = stories.entry(title).or_default();
        let line = format!("{of} {what}");
        // The scheduler's later attempts are not compared, because their number depends on the scheduler's
        // queue.
        let again = line.contains("Unschedulable 0/") || line.contains("FailedScheduling 0/");
        if again && steps.last().is_some_and(|last| last.contains(" 0/")) {
            continue;
        }
        // A heartbeat, or a change of a field that is not compared, does not count as a step.
        if steps
            .last()
            .is_some_and(|last| *last == line || (of == "MODIFIED" && *last == format!("ADDED {what}")))
        {
            continue;
        }
        steps.push(line);
    }
    stories
}

fn is_hearsay(object: &Value) -> bool {
    let teller = object["reportingComponent"].as_str().filter(|name| !name.is_empty());
    let teller = teller.or(object["source"]["component"].as_str()).unwrap_or_default();
    object["kind"] == "Event" && !TELLERS.contains(&teller)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Describes a pod's state, without the intermediate steps of its kubelet and containers.
fn stage(pod: &Value, title: &str, ready: &mut BTreeSet<String>) -> String {
    let phase = text(&pod["status"]["phase"]);
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions.clone().any(|one| one["type"] == "Ready" && one["status"] == "True");
    let node = text(&pod["spec"]["nodeName"]);
    let told = conditions.filter(|one| matches!(text(&one["type"]), "PodScheduled" | "DisruptionTarget"));
    let told = told.map(|one| format!("{} {} {}", text(&one["type"]), text(&one["status"]), said(one)));
    let mut told: Vec<String> = told.collect();
    told.sort();
    let state = match phase {
        "Pending" | "Running" if node.is_empty() => "waits",
        "Running" if is_ready => {
            ready.insert(title.to_owned());
            "runs"
        }
        "Pending" | "Running" if ready.contains(title) => "runs, is not ready",
        "Pending" | "Running" => "starts",
        ended => ended,
    };
    format!("{state} on {node:?} {}", told.join(" "))
}

fn said(condition: &Value) -> String {
    format!("{} {}", text(&condition["reason"]), normal(text(&condition["message"])))
}

/// Describes the part of an object whose changes count as steps.
fn step(object: &Value, title: &str, ready: &mut BTreeSet<String>) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut parts = Vec::new();
    if let Some(grace) = object["metadata"]["deletionGracePeriodSeconds"].as_i64() {
        parts.push(format!("going in {grace} s"));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten().map(|one| {
        let message =
            if one["type"] == "PodScheduled" { normal(text(&one["message"])) } else { String::new() };
        format!("{}={}/{}{message}", text(&one["type"]), text(&one["status"]), text(&one["reason"]))
    });
    let mut conditions: Vec<String> = conditions.collect();
    conditions.sort();
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => {
            parts.push(stage(object, title, ready));
            if let Some(node) = status["nominatedNodeName"].as_str() {
                parts.push(format!("nominated for {node}"));
            }
        }
        "Node" => {
            let taints = spec["taints"].as_array().into_iter().flatten();
            let mut taints: Vec<String> =
                taints.map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]))).collect();
            taints.sort();
            parts.push(format!("taints [{}]", taints.join(" ")));
            parts.push(format!("cordoned {}", spec["unschedulable"] == true));
            parts.push(conditions.join(" "));
        }
        "PodDisruptionBudget" => {
            let mut status = status.clone();
            if let Some(fields) = status.as_object_mut() {
                fields.remove("conditions");
            }
            parts.push(format!("{} {}", normal(&status.to_string()), conditions.join(" ")));
        }
        "Lease" => {
            parts.push(format!("held by {} after {}", spec["holderIdentity"], spec["leaseTransitions"]));
        }
        "ConfigMap" | "Secret" => {
            let keys = object["data"].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
            parts.push(keys.collect::<Vec<_>>().join(" "));
            parts.push(object["metadata"]["labels"].to_string());
        }
        "Event" => {
            let message = normal(text(&object["message"]));
            parts.push(format!("{} {} {message}", text(&object["type"]), text(&object["reason"])));
        }
        "Status" => parts.push(normal(text(&object["message"]))),
        _ => parts.push(conditions.join(" ")),
    }
    parts.join(", ")
}
