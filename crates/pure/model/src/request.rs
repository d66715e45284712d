//! ProvisioningRequests (`autoscaling.x-k8s.io/v1`): pods that will be created only once there is room for
//! all of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::StatusCondition;

/// The class of requests that only ask whether there is room for all of their pods now.
pub const CHECK_CAPACITY: &str = "check-capacity.autoscaling.x-k8s.io";
/// The class of requests for which machines are created, but only if the machines provide enough room for all
/// of the request's pods.
pub const ATOMIC: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";

/// The annotation with which a pod names its ProvisioningRequest, and the former key of this annotation.
pub const CONSUMES: [&str; 2] = [
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
];

/// A ProvisioningRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisioningRequest {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `spec.provisioningClassName`.
    pub class: String,
    /// `spec.podSets`: the name of a PodTemplate in the request's namespace, and the number of pods.
    pub sets: Vec<(String, i64)>,
    /// `spec.parameters`.
    pub parameters: BTreeMap<String, String>,
    /// `status.conditions`.
    pub conditions: Vec<StatusCondition>,
}

impl ProvisioningRequest {
    /// `namespace/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The condition of this type, if its status is `True`.
    pub fn is(&self, kind: &str) -> Option<&StatusCondition> {
        self.conditions.iter().find(|one| one.kind == kind && one.status == "True")
    }

    /// The number of pods that the request is for.
    pub fn pods(&self) -> i64 {
        self.sets.iter().map(|(_, count)| (*count).max(0)).fold(0, i64::saturating_add)
    }
}
