//! CapacityBuffers, ProvisioningRequests and PodTemplates. A buffer's status is left out, because no
//! decision reads it.

use serde_json::Value;

use super::fields::Fields;
use super::pod;
use model::buffer::{ACTIVE, CapacityBuffer, PodTemplate, TemplateRef};
use model::quantity;
use model::request::ProvisioningRequest;

/// A CapacityBuffer.
pub(super) fn capacity_buffer(buffer: &CapacityBuffer) -> Value {
    let metadata = Fields::named(&buffer.namespace, &buffer.name)
        .text("uid", &buffer.uid)
        .when(buffer.generation != 0, "generation", buffer.generation)
        .time("creationTimestamp", buffer.created);
    let named = |name: &str| Fields::default().with("name", name);
    let limits = buffer.limits.as_ref().map(|limits| {
        let all = limits.iter();
        all.fold(Fields::default(), |all, (name, milli)| all.with(name, quantity::from_milli(*milli)))
    });
    let spec = Fields::default()
        .when(buffer.strategy != ACTIVE, "provisioningStrategy", buffer.strategy.as_str())
        .some("replicas", buffer.replicas)
        .some("percentage", buffer.percentage)
        .some("limits", limits);
    let spec = match &buffer.template {
        None => spec,
        Some(TemplateRef::PodTemplate(name)) => spec.with("podTemplateRef", named(name)),
        Some(TemplateRef::Scalable { group, kind, name }) => {
            spec.with("scalableRef", named(name).text("apiGroup", group).with("kind", kind.as_str()))
        }
    };
    Fields::object("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
        .part("metadata", metadata)
        .part("spec", spec)
        .into()
}

/// A ProvisioningRequest with its conditions, which determine whether its pods may be created.
pub(super) fn provisioning_request(request: &ProvisioningRequest) -> Value {
    let metadata = Fields::named(&request.namespace, &request.name)
        .text("uid", &request.uid)
        .when(request.generation != 0, "generation", request.generation)
        .time("creationTimestamp", request.created);
    let sets = request.sets.iter().map(|(template, count)| {
        let template = Fields::default().with("name", template.as_str());
        Fields::default().with("podTemplateRef", template).with("count", *count)
    });
    let spec = Fields::default()
        .with("provisioningClassName", request.class.as_str())
        .list("podSets", sets)
        .labels("parameters", &request.parameters);
    let conditions = request.conditions.iter().map(|one| {
        Fields::default()
            .with("type", one.kind.as_str())
            .with("status", one.status.as_str())
            .text("reason", &one.reason)
            .text("message", &one.message)
            .time("lastTransitionTime", one.since)
            .some("observedGeneration", one.generation)
    });
    Fields::object("autoscaling.x-k8s.io/v1", "ProvisioningRequest")
        .part("metadata", metadata)
        .part("spec", spec)
        .part("status", Fields::default().list("conditions", conditions))
        .into()
}

/// A PodTemplate.
pub(super) fn pod_template(template: &PodTemplate) -> Value {
    let metadata = Fields::named(&template.namespace, &template.name).when(
        template.generation != 0,
        "generation",
        template.generation,
    );
    Fields::object("v1", "PodTemplate")
        .part("metadata", metadata)
        .with("template", pod::plain_template(&template.pod))
        .into()
}
