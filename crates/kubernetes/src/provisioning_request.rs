//! The ProvisioningRequest type of `autoscaling.x-k8s.io/v1`, which k8s-openapi lacks. It contains only the
//! fields that the daemon reads.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::capacity_buffer::{Condition, Named};

/// The kind's API group and version.
pub(super) const VERSION: &str = "autoscaling.x-k8s.io/v1";
/// The plural name, which is used in API paths.
pub(super) const PLURAL: &str = "provisioningrequests";

/// A ProvisioningRequest.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ProvisioningRequest {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: RequestSpec,
    #[serde(default)]
    pub(super) status: RequestStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RequestSpec {
    pub provisioning_class_name: String,
    pub pod_sets: Vec<PodSet>,
    pub parameters: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSet {
    pub pod_template_ref: Named,
    pub count: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RequestStatus {
    pub conditions: Vec<Condition>,
}

impl Resource for ProvisioningRequest {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ProvisioningRequest".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "autoscaling.x-k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
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
