//! Converts CapacityBuffers and the templates that they refer to.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::pod::pod_of_template;
use super::{ConvertError, text, time};
use crate::capacity_buffer::{self as api, BufferSpec};
use crate::provisioning_request as requests;
use model::buffer::{ACTIVE, BufferStatus, CapacityBuffer, PodTemplate, TemplateRef};
use model::condition::StatusCondition;
use model::quantity;
use model::request::ProvisioningRequest;

/// A CapacityBuffer.
pub fn capacity_buffer(object: &api::CapacityBuffer) -> Result<CapacityBuffer, ConvertError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let limits = spec.limits.iter().flatten().map(|(name, amount)| {
        let milli = quantity::milli(&amount.0)
            .map_err(|source| ConvertError::Quantity { field: format!("spec.limits.{name}"), source })?;
        Ok((name.clone(), milli))
    });
    let limits = limits.collect::<Result<_, ConvertError>>()?;
    Ok(CapacityBuffer {
        namespace: meta.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
        resource_version: text(meta.resource_version.as_ref()),
        generation: meta.generation.unwrap_or(0),
        created: time(meta.creation_timestamp.as_ref()),
        strategy: spec
            .provisioning_strategy
            .clone()
            .filter(|strategy| !strategy.is_empty())
            .unwrap_or_else(|| ACTIVE.to_owned()),
        template: reference(spec),
        replicas: spec.replicas,
        percentage: spec.percentage,
        limits: spec.limits.is_some().then_some(limits),
        status: status(&object.status),
    })
}

/// The object that the buffer refers to: a PodTemplate or a controller. The API server refuses a buffer that
/// refers to both.
fn reference(spec: &BufferSpec) -> Option<TemplateRef> {
    let template = spec.pod_template_ref.as_ref().map(|one| TemplateRef::PodTemplate(one.name.clone()));
    template.or_else(|| {
        spec.scalable_ref.as_ref().map(|one| TemplateRef::Scalable {
            group: one.api_group.clone(),
            kind: one.kind.clone(),
            name: one.name.clone(),
        })
    })
}

fn status(status: &api::BufferStatus) -> BufferStatus {
    BufferStatus {
        template: status.pod_template_ref.as_ref().map(|one| one.name.clone()),
        template_generation: status.pod_template_generation,
        replicas: status.replicas,
        strategy: status.provisioning_strategy.clone(),
        conditions: status.conditions.iter().map(condition).collect(),
    }
}

fn condition(one: &api::Condition) -> StatusCondition {
    StatusCondition {
        kind: one.kind.clone(),
        status: one.status.clone(),
        reason: one.reason.clone(),
        message: one.message.clone(),
        since: time(one.last_transition_time.as_ref()),
        generation: one.observed_generation,
    }
}

/// A ProvisioningRequest.
pub fn provisioning_request(
    object: &requests::ProvisioningRequest,
) -> Result<ProvisioningRequest, ConvertError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let sets = spec.pod_sets.iter().map(|set| (set.pod_template_ref.name.clone(), set.count));
    Ok(ProvisioningRequest {
        namespace: meta.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
        resource_version: text(meta.resource_version.as_ref()),
        generation: meta.generation.unwrap_or(0),
        created: time(meta.creation_timestamp.as_ref()),
        class: spec.provisioning_class_name.clone(),
        sets: sets.collect(),
        parameters: spec.parameters.clone(),
        conditions: object.status.conditions.iter().map(condition).collect(),
    })
}

/// A PodTemplate.
pub fn pod_template(object: &core::PodTemplate) -> Result<PodTemplate, ConvertError> {
    let meta = ObjectMeta {
        namespace: Some(object.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned())),
        ..object.metadata.clone()
    };
    let template = object.template.clone().unwrap_or_default();
    Ok(PodTemplate {
        namespace: text(meta.namespace.as_ref()),
        name: text(meta.name.as_ref()),
        generation: meta.generation.unwrap_or(0),
        pod: pod_of_template(&meta, &template)?.unwrap_or_default(),
    })
}
