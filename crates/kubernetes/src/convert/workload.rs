//! Converts pod controllers, disruption budgets and priority classes.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::scheduling::v1 as scheduling;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector as MetaSelector, ObjectMeta};

use super::pod::{pod_of_daemon_set, pod_of_template};
use super::selector::{equals, label_selector};
use super::{ConvertError, text};
use model::selector::LabelSelector;
use model::workload::{Controller, DaemonSet, DisruptionBudget, PriorityClass};

fn controller(api_version: &str, kind: &str, meta: &ObjectMeta, replicas: Option<i32>) -> Controller {
    Controller {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: text(meta.namespace.as_ref()),
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
        replicas: i64::from(replicas.unwrap_or(1)),
        selector: None,
        deleted: meta.deletion_timestamp.is_some(),
        template: None,
    }
}

/// Adds a selector to the controller. The API server refuses an empty selector, but an object in a file may
/// lack one.
fn selecting(controller: Controller, selector: &MetaSelector) -> Result<Controller, ConvertError> {
    let selector = Some(selector).filter(|selector| **selector != MetaSelector::default());
    Ok(Controller { selector: label_selector("spec.selector", selector)?, ..controller })
}

/// Converts a ReplicaSet, including its pod template if `template` is true.
pub fn replica_set(object: &apps::ReplicaSet, template: bool) -> Result<Controller, ConvertError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let base = selecting(controller("apps/v1", "ReplicaSet", meta, spec.replicas), &spec.selector)?;
    with_template(base, meta, spec.template.as_ref().filter(|_| template))
}

/// Converts a StatefulSet, including its pod template if `template` is true.
pub fn stateful_set(object: &apps::StatefulSet, template: bool) -> Result<Controller, ConvertError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let base = selecting(controller("apps/v1", "StatefulSet", meta, spec.replicas), &spec.selector)?;
    with_template(base, meta, template.then_some(&spec.template))
}

/// Converts a Deployment, including its pod template if `template` is true.
pub fn deployment(object: &apps::Deployment, template: bool) -> Result<Controller, ConvertError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let base = selecting(controller("apps/v1", "Deployment", meta, spec.replicas), &spec.selector)?;
    with_template(base, meta, template.then_some(&spec.template))
}

/// Converts a ReplicationController, including its pod template if `template` is true.
pub fn replication_controller(
    object: &core::ReplicationController,
    template: bool,
) -> Result<Controller, ConvertError> {
    let spec = object.spec.as_ref();
    let base =
        controller("v1", "ReplicationController", &object.metadata, spec.and_then(|spec| spec.replicas));
    let labels = spec.and_then(|spec| spec.selector.as_ref());
    let selector = labels.map(|labels| LabelSelector {
        requirements: labels.iter().map(|(key, value)| equals(key, value)).collect(),
    });
    let own = spec.and_then(|spec| spec.template.as_ref()).filter(|_| template);
    with_template(Controller { selector, ..base }, &object.metadata, own)
}

/// Converts a Job, including its pod template if `template` is true.
pub fn job(object: &batch::Job, template: bool) -> Result<Controller, ConvertError> {
    let spec = object.spec.as_ref();
    let base = controller("batch/v1", "Job", &object.metadata, spec.and_then(|spec| spec.parallelism));
    with_template(base, &object.metadata, spec.map(|spec| &spec.template).filter(|_| template))
}

/// Sets the controller's template to a pod that is built from `template`, if there is one.
fn with_template(
    controller: Controller,
    meta: &ObjectMeta,
    template: Option<&core::PodTemplateSpec>,
) -> Result<Controller, ConvertError> {
    let pod = template.map(|template| pod_of_template(meta, template)).transpose()?.flatten();
    Ok(Controller { template: pod.map(Box::new), ..controller })
}

/// Converts a DaemonSet, including the pod that its controller would create on a node.
pub fn daemon_set(object: &apps::DaemonSet) -> Result<DaemonSet, ConvertError> {
    Ok(DaemonSet {
        namespace: text(object.metadata.namespace.as_ref()),
        name: text(object.metadata.name.as_ref()),
        uid: text(object.metadata.uid.as_ref()),
        pod: pod_of_daemon_set(object)?,
    })
}

/// A PodDisruptionBudget.
pub fn budget(object: &policy::PodDisruptionBudget) -> Result<DisruptionBudget, ConvertError> {
    let spec = object.spec.as_ref();
    let status = object.status.as_ref();
    Ok(DisruptionBudget {
        namespace: text(object.metadata.namespace.as_ref()),
        name: text(object.metadata.name.as_ref()),
        selector: label_selector("spec.selector", spec.and_then(|spec| spec.selector.as_ref()))?,
        disruptions_allowed: status
            .and_then(|status| status.disruptions_allowed)
            .filter(|_| is_settled(object))
            .map_or(0, i64::from),
        always_allows_unhealthy: spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref())
            == Some("AlwaysAllow"),
        healthy: (
            status.and_then(|status| status.current_healthy).map_or(0, i64::from),
            status.and_then(|status| status.desired_healthy).map_or(0, i64::from),
        ),
    })
}

/// Whether the budget can be used: its controller has observed its current spec and is keeping up with
/// evictions (`checkAndDecrement`).
fn is_settled(object: &policy::PodDisruptionBudget) -> bool {
    const MOST_DISRUPTED: usize = 2000;
    let status = object.status.as_ref();
    let seen = status.and_then(|status| status.observed_generation).unwrap_or(0);
    let disrupted = status.and_then(|status| status.disrupted_pods.as_ref()).map_or(0, BTreeMap::len);
    seen >= object.metadata.generation.unwrap_or(0) && disrupted <= MOST_DISRUPTED
}

/// A PriorityClass.
pub fn priority_class(object: &scheduling::PriorityClass) -> PriorityClass {
    PriorityClass {
        name: text(object.metadata.name.as_ref()),
        value: object.value.unwrap_or(0),
        global_default: object.global_default.unwrap_or(false),
        never_preempts: object.preemption_policy.as_deref() == Some("Never"),
    }
}
