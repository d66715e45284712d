//! Pod controllers, disruption budgets and priority classes.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::Fields;
use super::pod;
use super::selector::{equality, label_selector};
use model::selector::LabelSelector;
use model::workload::{Controller, DaemonSet, DisruptionBudget, PriorityClass};

/// A controller. The time of its deletion is not known, so `now` is written if the controller is being
/// deleted.
pub(super) fn controller(controller: &Controller, now: Timestamp) -> Value {
    let metadata = Fields::named(&controller.namespace, &controller.name)
        .text("uid", &controller.uid)
        .time("deletionTimestamp", controller.deleted.then_some(now));
    let selector = controller.selector.as_ref();
    let spec = match controller.kind.as_str() {
        "Job" => Fields::default().with("parallelism", controller.replicas),
        "ReplicationController" => {
            Fields::default().with("replicas", controller.replicas).some("selector", selector.map(equalities))
        }
        // Without a selector, `spec` is left out, because the API server rejects a `spec` that has no
        // selector.
        _ => selector.map_or_else(Fields::default, |selector| {
            Fields::default().with("replicas", controller.replicas).with("selector", label_selector(selector))
        }),
    };
    let spec = spec.some("template", controller.template.as_deref().map(pod::plain_template));
    Fields::object(&controller.api_version, &controller.kind)
        .part("metadata", metadata)
        .part("spec", spec)
        .into()
}

/// The selector of a ReplicationController, which contains only labels.
fn equalities(selector: &LabelSelector) -> Fields {
    let labels = selector.requirements.iter().filter_map(equality);
    labels.fold(Fields::default(), |all, (key, value)| all.with(key, value))
}

/// A DaemonSet with its pod template.
pub(super) fn daemon_set(set: &DaemonSet) -> Value {
    Fields::object("apps/v1", "DaemonSet")
        .part("metadata", Fields::named(&set.namespace, &set.name).text("uid", &set.uid))
        .with("spec", Fields::default().with("template", pod::template(&set.pod)))
        .into()
}

/// A PodDisruptionBudget.
pub(super) fn budget(budget: &DisruptionBudget) -> Value {
    let spec = Fields::default().some("selector", budget.selector.as_ref().map(label_selector)).when(
        budget.always_allows_unhealthy,
        "unhealthyPodEvictionPolicy",
        "AlwaysAllow",
    );
    let status = Fields::default()
        .with("disruptionsAllowed", budget.disruptions_allowed)
        .with("currentHealthy", budget.healthy.0)
        .with("desiredHealthy", budget.healthy.1);
    Fields::object("policy/v1", "PodDisruptionBudget")
        .part("metadata", Fields::named(&budget.namespace, &budget.name))
        .part("spec", spec)
        .part("status", status)
        .into()
}

/// A PriorityClass.
pub(super) fn priority_class(class: &PriorityClass) -> Value {
    Fields::object("scheduling.k8s.io/v1", "PriorityClass")
        .part("metadata", Fields::named("", &class.name))
        .with("value", class.value)
        .when(class.global_default, "globalDefault", true)
        .when(class.never_preempts, "preemptionPolicy", "Never")
        .into()
}
