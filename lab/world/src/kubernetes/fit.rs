//! Checks whether a pod fits a node. The checks have the order and the messages of kube-scheduler's filters.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    kinds::POD,
    object::{self, list, text},
    pods::{Amounts, Facts, Usage},
    selector::{Requirement, selects},
    state::State,
};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Why a pod does not fit a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// The reasons, in the wording of kube-scheduler.
    pub reasons: Vec<String>,
    /// Whether preempting other pods could help.
    pub resolvable: bool,
}

impl Misfit {
    pub(super) fn hopeless(reason: &str) -> Self {
        Self { reasons: vec![reason.into()], resolvable: false }
    }

    fn crowded(reason: &str) -> Self {
        Self { reasons: vec![reason.into()], resolvable: true }
    }
}

/// A node as one scheduling pass sees it.
#[derive(Debug)]
pub(super) struct Place {
    pub name: String,
    pub node: std::sync::Arc<Value>,
    pub allocatable: Amounts,
}

/// The constraints that other pods and volumes impose on one pod, computed once for all nodes.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// Topology domains that anti-affinity excludes, by key and value.
    closed: BTreeSet<(String, String)>,
    /// For each affinity term: its topology key, the domains with a matching pod, and whether the pod itself
    /// matches the term.
    wanted: Vec<(String, BTreeSet<String>, bool)>,
    /// For each hard spread constraint: its topology key, the number of pods in each domain, the maximum
    /// skew, and whether the pod itself matches the constraint's selector.
    spread: Vec<(String, BTreeMap<String, i64>, i64, bool)>,
    /// Node affinities of the bound volumes.
    volumes: Vec<Value>,
    /// Whether one of the pod's volume claims waits for its first consumer but has no provisioner.
    unprovided: bool,
}

/// Whether a toleration tolerates a taint.
pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let part = |value: &Value, field: &str| text(value, field).to_owned();
    let effect = part(toleration, "/effect");
    let key = part(toleration, "/key");
    (effect.is_empty() || effect == part(taint, "/effect"))
        && (key.is_empty() || key == part(taint, "/key"))
        && match toleration["operator"].as_str().unwrap_or("Equal") {
            "Exists" => true,
            "Equal" | "" => part(toleration, "/value") == part(taint, "/value"),
            _ => false,
        }
}

/// Whether one of the terms of a node selector selects a node. A term without requirements selects none.
pub(super) fn selected_by_terms(terms: &[Value], node: &Value) -> bool {
    terms.iter().any(|term| {
        let expressions = list(term, "/matchExpressions");
        let fields = list(term, "/matchFields");
        (!expressions.is_empty() || !fields.is_empty())
            && expressions.iter().all(|one| {
                Requirement::from_expression(one).is_some_and(|one| one.matches(&node["metadata"]["labels"]))
            })
            && fields.iter().all(|one| {
                text(one, "/key") == "metadata.name"
                    && Requirement::from_expression(one).is_some_and(|requirement| {
                        requirement.matches(&serde_json::json!({ "metadata.name": object::name(node) }))
                    })
            })
    })
}

/// Whether the node selector and the required node affinity of a pod's spec select a node.
pub(super) fn selected(spec: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let plain = spec["nodeSelector"]
        .as_object()
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)));
    let terms = spec.pointer(&format!("/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"));
    plain && terms.and_then(Value::as_array).is_none_or(|terms| selected_by_terms(terms, node))
}

/// Checks that a pod fits a node.
pub(super) fn fits(
    pod: &Value,
    facts: &Facts,
    company: &Company,
    place: &Place,
    usage: Option<&Usage>,
) -> Result<(), Misfit> {
    let node = &*place.node;
    let spec = &pod["spec"];
    let tolerations = list(spec, "/tolerations");
    if node["spec"]["unschedulable"] == true {
        let taint = serde_json::json!({ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" });
        if !tolerations.iter().any(|one| tolerates(one, &taint)) {
            return Err(Misfit::hopeless("node(s) were unschedulable"));
        }
    }
    let untolerated = list(node, "/spec/taints")
        .iter()
        .filter(|taint| taint["effect"] != "PreferNoSchedule")
        .any(|taint| !tolerations.iter().any(|one| tolerates(one, taint)));
    if untolerated {
        return Err(Misfit::hopeless("node(s) had untolerated taint(s)"));
    }
    if !selected(spec, node) {
        return Err(Misfit::hopeless("node(s) didn't match Pod's node affinity/selector"));
    }
    if facts.ports.iter().any(|port| usage.is_some_and(|usage| usage.ports.contains_key(port))) {
        return Err(Misfit::crowded("node(s) didn't have free ports for the requested pod ports"));
    }
    room(facts, place, usage)?;
    if company.unprovided {
        return Err(Misfit::hopeless("node(s) didn't find available persistent volumes to bind"));
    }
    let elsewhere = |terms: &Value| terms.as_array().is_some_and(|terms| !selected_by_terms(terms, node));
    if company.volumes.iter().any(elsewhere) {
        return Err(Misfit::hopeless("node(s) didn't match PersistentVolume's node affinity"));
    }
    alongside(company, node)
}

/// Checks that the node has room for the pod.
fn room(facts: &Facts, place: &Place, usage: Option<&Usage>) -> Result<(), Misfit> {
    let mut reasons = Vec::new();
    let mut resolvable = true;
    let has = |resource: &str| place.allocatable.get(resource).copied().unwrap_or(0);
    if usage.map_or(0, |usage| usage.count) + 1 > has("pods") / 1000 {
        reasons.push("Too many pods".to_owned());
    }
    for (resource, amount) in facts.requests.iter().filter(|(_, amount)| **amount > 0) {
        let taken = usage.and_then(|usage| usage.requests.get(resource)).copied().unwrap_or(0);
        if *amount > has(resource) - taken {
            reasons.push(format!("Insufficient {resource}"));
            resolvable &= *amount <= has(resource);
        }
    }
    if reasons.is_empty() { Ok(()) } else { Err(Misfit { reasons, resolvable }) }
}

/// Checks spread constraints and pod (anti-)affinity.
fn alongside(company: &Company, node: &Value) -> Result<(), Misfit> {
    let labels = &node["metadata"]["labels"];
    let domain = |key: &str| labels.get(key).and_then(Value::as_str);
    for (key, counts, skew, own) in &company.spread {
        let Some(value) = domain(key) else {
            let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
            return Err(Misfit::hopeless(reason));
        };
        let least = counts.values().min().copied().unwrap_or(0);
        if counts.get(value).copied().unwrap_or(0) + i64::from(*own) - least > *skew {
            return Err(Misfit::crowded("node(s) didn't match pod topology spread constraints"));
        }
    }
    for (key, values, first) in &company.wanted {
        let here = domain(key);
        let matched = here.is_some_and(|here| values.contains(here));
        if !(matched || *first && values.is_empty() && here.is_some()) {
            return Err(Misfit::hopeless("node(s) didn't match pod affinity rules"));
        }
    }
    let closed = company.closed.iter().any(|(key, value)| domain(key) == Some(value));
    if closed {
        return Err(Misfit::crowded("node(s) didn't match pod anti-affinity rules"));
    }
    Ok(())
}

/// Whether a pod (anti-)affinity term matches another pod. `home` is the namespace of the pod with the term.
fn means(term: &Value, home: &str, other: &Value) -> bool {
    let namespaces = list(term, "/namespaces");
    let there = object::namespace(other);
    let in_namespace = if term["namespaceSelector"].is_object() {
        true
    } else if namespaces.is_empty() {
        there == home
    } else {
        namespaces.iter().any(|one| one == there)
    };
    in_namespace && selects(&term["labelSelector"], &other["metadata"]["labels"])
}

impl State {
    /// The constraints that other pods and volumes impose on a pod.
    pub(super) fn company(&self, pod: &Value, places: &[Place]) -> Company {
        let home = object::namespace(pod);
        let mut company = Company::default();
        let labels: BTreeMap<&str, &Value> =
            places.iter().map(|place| (place.name.as_str(), &place.node["metadata"]["labels"])).collect();
        let domain = |node: &str, key: &str| {
            labels.get(node).and_then(|labels| labels.get(key)).and_then(Value::as_str).map(String::from)
        };
        let bound = || {
            self.store.all(&POD).filter(|other| {
                !text(other, "/spec/nodeName").is_empty()
                    && !matches!(text(other, "/status/phase"), "Succeeded" | "Failed")
            })
        };
        for term in list(pod, &format!("/spec/affinity/podAntiAffinity/{REQUIRED}")) {
            let key = text(term, "/topologyKey");
            for other in bound().filter(|other| means(term, home, other)) {
                if let Some(value) = domain(text(other, "/spec/nodeName"), key) {
                    company.closed.insert((key.into(), value));
                }
            }
        }
        for other in self.pods.shy().filter_map(|key| self.store.get(&POD, &key.0, &key.1)) {
            for term in list(&other, &format!("/spec/affinity/podAntiAffinity/{REQUIRED}")) {
                let key = text(term, "/topologyKey");
                if means(term, object::namespace(&other), pod)
                    && let Some(value) = domain(text(&other, "/spec/nodeName"), key)
                {
                    company.closed.insert((key.into(), value));
                }
            }
        }
        for term in list(pod, &format!("/spec/affinity/podAffinity/{REQUIRED}")) {
            let key = text(term, "/topologyKey");
            let values = bound()
                .filter(|other| means(term, home, other))
                .filter_map(|other| domain(text(other, "/spec/nodeName"), key))
                .collect();
            company.wanted.push((key.into(), values, means(term, home, pod)));
        }
        let hard =
            |one: &&Value| one["whenUnsatisfiable"].as_str().unwrap_or("DoNotSchedule") == "DoNotSchedule";
        for constraint in list(pod, "/spec/topologySpreadConstraints").iter().filter(hard) {
            let key = text(constraint, "/topologyKey");
            let mut counts: BTreeMap<String, i64> = places
                .iter()
                .filter(|place| {
                    constraint["nodeAffinityPolicy"] == "Ignore" || selected(&pod["spec"], &place.node)
                })
                .filter_map(|place| Some((domain(&place.name, key)?, 0)))
                .collect();
            let selector = &constraint["labelSelector"];
            for other in bound().filter(|other| {
                object::namespace(other) == home
                    && !object::is_terminating(other)
                    && selects(selector, &other["metadata"]["labels"])
            }) {
                if let Some(count) =
                    domain(text(other, "/spec/nodeName"), key).and_then(|value| counts.get_mut(&value))
                {
                    *count += 1;
                }
            }
            let own = selects(selector, &pod["metadata"]["labels"]);
            let skew = constraint["maxSkew"].as_i64().unwrap_or(1);
            company.spread.push((key.into(), counts, skew, own));
        }
        self.volumes_of(pod, &mut company.volumes, &mut company.unprovided);
        company
    }
}
