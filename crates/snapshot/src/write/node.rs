//! Nodes, CSINodes and namespaces.

use serde_json::Value;

use super::fields::{Fields, amounts};
use model::features::Feature;
use model::node::{Condition, Node, Taint, TaintEffect};
use model::workload::{CsiNode, Namespace};

/// The name of a taint's effect in the Kubernetes API.
pub(super) fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

fn taint(taint: &Taint) -> Fields {
    Fields::default()
        .with("key", taint.key.as_str())
        .text("value", &taint.value)
        .with("effect", effect(taint.effect))
        .time("timeAdded", taint.time_added)
}

fn condition(condition: &Condition) -> Fields {
    Fields::default()
        .with("type", condition.kind.as_str())
        .with("status", condition.status.as_str())
        .time("lastTransitionTime", condition.last_transition)
}

/// A Node. If `allocatable` is missing, the reader uses the capacity, so `allocatable` is only written if the
/// two differ.
pub(super) fn node(node: &Node) -> Value {
    let metadata = Fields::named("", &node.name)
        .labels("labels", &node.labels)
        .labels("annotations", &node.annotations)
        .time("creationTimestamp", node.created)
        .time("deletionTimestamp", node.deleted);
    let spec = Fields::default()
        .when(node.unschedulable, "unschedulable", true)
        .list("taints", node.taints.iter().map(taint));
    let status = Fields::default()
        .part("capacity", amounts(&node.capacity))
        .when(node.allocatable != node.capacity, "allocatable", amounts(&node.allocatable))
        .list("declaredFeatures", node.features.iter().map(Feature::name))
        .list("conditions", node.conditions.iter().map(condition));
    Fields::object("v1", "Node").part("metadata", metadata).part("spec", spec).part("status", status).into()
}

/// A CSINode.
pub(super) fn csi_node(node: &CsiNode) -> Value {
    let drivers = node.limits.iter().map(|(driver, limit)| {
        let limit = limit.map(|count| Fields::default().with("count", count));
        Fields::default().with("name", driver.as_str()).some("allocatable", limit)
    });
    let migrated =
        Fields::default().text("storage.alpha.kubernetes.io/migrated-plugins", &node.migrated.join(","));
    Fields::object("storage.k8s.io/v1", "CSINode")
        .part("metadata", Fields::named("", &node.name).part("annotations", migrated))
        .with("spec", Fields::default().with("drivers", drivers.map(Value::from).collect::<Vec<_>>()))
        .into()
}

/// A Namespace.
pub(super) fn namespace(namespace: &Namespace) -> Value {
    let metadata = Fields::named("", &namespace.name).labels("labels", &namespace.labels);
    Fields::object("v1", "Namespace").part("metadata", metadata).into()
}
