//! The CapacityBuffer type of `autoscaling.x-k8s.io/v1beta1`, which k8s-openapi lacks. It contains only the
//! fields that the daemon reads.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

/// The kind's API group and version.
pub(super) const VERSION: &str = "autoscaling.x-k8s.io/v1beta1";
/// The plural name, which is used in API paths.
pub(super) const PLURAL: &str = "capacitybuffers";

/// A CapacityBuffer.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct CapacityBuffer {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: BufferSpec,
    #[serde(default)]
    pub(super) status: BufferStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BufferSpec {
    pub provisioning_strategy: Option<String>,
    pub pod_template_ref: Option<Named>,
    pub scalable_ref: Option<ScalableRef>,
    pub replicas: Option<i64>,
    pub percentage: Option<i64>,
    pub limits: Option<BTreeMap<String, Quantity>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Named {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScalableRef {
    #[serde(default)]
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BufferStatus {
    pub pod_template_ref: Option<Named>,
    pub pod_template_generation: Option<i64>,
    pub replicas: Option<i64>,
    pub provisioning_strategy: Option<String>,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Time>,
    pub observed_generation: Option<i64>,
}

impl Resource for CapacityBuffer {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "CapacityBuffer".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "autoscaling.x-k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1beta1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
