//! Spare capacity that users request (`autoscaling.x-k8s.io/v1beta1`): CapacityBuffers, and the PodTemplates
//! that they refer to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::StatusCondition;
use super::pod::Pod;
use super::workload::Controller;

/// The default strategy of a buffer: its chunks are placed like pods, and machines are created for them.
pub const ACTIVE: &str = "buffer.x-k8s.io/active-capacity";

/// A CapacityBuffer. It consists of chunks, each of which keeps room for one pod that does not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityBuffer {
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
    /// `spec.provisioningStrategy`, [`ACTIVE`] if absent.
    pub strategy: String,
    /// The object that describes a chunk's pod. `None` if the buffer names no object.
    pub template: Option<TemplateRef>,
    /// `spec.replicas`.
    pub replicas: Option<i64>,
    /// `spec.percentage`.
    pub percentage: Option<i64>,
    /// `spec.limits` in thousandths, by resource.
    pub limits: Option<BTreeMap<String, i64>>,
    /// Its status.
    pub status: BufferStatus,
}

impl CapacityBuffer {
    /// `namespace/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the buffer's `scalableRef` names this controller. If so, the buffer's chunks look like the
    /// controller's pods.
    pub fn refers_to(&self, controller: &Controller) -> bool {
        let Some(TemplateRef::Scalable { group, kind, name }) = &self.template else { return false };
        let of = controller.api_version.split_once('/').map_or("", |(group, _)| group);
        (&self.namespace, name, kind) == (&controller.namespace, &controller.name, &controller.kind)
            && is_group(group, of)
    }
}

/// Whether `group` in a reference means the API group `of`. An empty `group` means `apps` to Karpenter, but
/// the core group to the Kubernetes API. Cluster Autoscaler calls the core group `core`.
fn is_group(group: &str, of: &str) -> bool {
    match of {
        "apps" => group == "apps" || group.is_empty(),
        "" => group.is_empty() || group == "core",
        _ => group == of,
    }
}

/// The object that describes a chunk's pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TemplateRef {
    /// `spec.podTemplateRef`: the name of a PodTemplate in the same namespace.
    PodTemplate(String),
    /// `spec.scalableRef`: a workload in the same namespace.
    Scalable {
        /// The API group, empty if absent.
        group: String,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
}

/// `status` of a CapacityBuffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferStatus {
    /// The name of the PodTemplate that was used.
    pub template: Option<String>,
    /// Its generation.
    pub template_generation: Option<i64>,
    /// The buffer's desired number of chunks.
    pub replicas: Option<i64>,
    /// The provisioning strategy that was applied.
    pub strategy: Option<String>,
    /// Conditions, set by the daemon or by other clients.
    pub conditions: Vec<StatusCondition>,
}

/// A PodTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodTemplate {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// A pod created from the template, without a node.
    pub pod: Pod,
}
