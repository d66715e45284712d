//! CapacityBuffers and ProvisioningRequests: how they are watched, what they refer to, and how their status
//! is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Api;
use runtime::boxed;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::capacity_buffer as api;
use super::cluster::Cluster;
use super::convert;
use super::error::Error;
#[cfg(doc)]
use super::error::ErrorKind;
use super::object_cache::Store;
use super::optional_kinds::Custom;
use super::provisioning_request as requests;
use super::wake_signals;
use super::watch_health::Board;
use model::buffer::{BufferStatus, CapacityBuffer, TemplateRef};
use model::condition::StatusCondition;
use model::request::ProvisioningRequest;

pub(super) const KIND: &str = "CapacityBuffer";
pub(super) const REQUEST: &str = "ProvisioningRequest";

/// The objects that buffers and requests refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Referred {
    /// Whether a buffer or request refers to a PodTemplate.
    pub templates: bool,
    /// The kinds and keys (`namespace/name`) of the controllers that buffers refer to.
    controllers: BTreeSet<(String, String)>,
}

impl Referred {
    fn of(buffers: &[Arc<CapacityBuffer>]) -> Self {
        let mut all = Self::default();
        for buffer in buffers {
            match &buffer.template {
                Some(TemplateRef::PodTemplate(_)) => all.templates = true,
                Some(TemplateRef::Scalable { kind, name, .. }) => {
                    all.controllers.insert((kind.clone(), format!("{}/{name}", buffer.namespace)));
                }
                None => {}
            }
        }
        all
    }

    /// The keys of the controllers of this kind that buffers refer to.
    pub(super) fn of_kind(&self, kind: &str) -> BTreeSet<String> {
        let all = self.controllers.iter();
        all.filter(|(other, _)| other == kind).map(|(_, key)| key.clone()).collect()
    }
}

/// The settings for watching CapacityBuffers.
pub(super) const BUFFERS: Custom<api::CapacityBuffer, CapacityBuffer> = Custom {
    kind: KIND,
    version: api::VERSION,
    plural: api::PLURAL,
    convert: convert::capacity_buffer,
    worth: wake_signals::buffer,
};

/// The settings for watching ProvisioningRequests.
pub(super) const REQUESTS: Custom<requests::ProvisioningRequest, ProvisioningRequest> = Custom {
    kind: REQUEST,
    version: requests::VERSION,
    plural: requests::PLURAL,
    convert: convert::provisioning_request,
    worth: wake_signals::request,
};

/// Publishes the objects that buffers and requests refer to, until the future is dropped.
pub(super) async fn tell_referred(
    board: Board,
    store: Store<CapacityBuffer>,
    requests: Store<ProvisioningRequest>,
    told: watch::Sender<Arc<Referred>>,
) {
    let mut changed = board.changed();
    loop {
        let mut now = Referred::of(&store.all());
        now.templates |= !requests.all().is_empty();
        told.send_if_modified(|before| {
            let differs = **before != now;
            if differs {
                *before = Arc::new(now);
            }
            differs
        });
        changed.changed().await;
    }
}

impl Cluster {
    /// Writes a buffer's status, but only if the buffer still has the version that was read.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Conflict`] if the buffer has been replaced or changed, or another error if the
    /// call fails.
    #[boxed]
    pub async fn write_buffer_status(
        &self,
        buffer: &CapacityBuffer,
        status: &BufferStatus,
    ) -> Result<(), Error> {
        let buffers: Api<api::CapacityBuffer> = Api::namespaced(self.client.clone(), &buffer.namespace);
        let patch = json!({
            "metadata": { "resourceVersion": buffer.resource_version },
            "status": body(status),
        });
        let action = format!("write the status of CapacityBuffer `{}`", buffer.id());
        let (options, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(&patch));
        self.call(action, buffers.patch_status(&buffer.name, &options, &patch)).await?;
        Ok(())
    }

    /// Writes a request's conditions, but only if the request still has the version that was read.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Conflict`] if the request has been replaced or changed, or another error if the
    /// call fails.
    #[boxed]
    pub async fn write_request_conditions(
        &self,
        request: &ProvisioningRequest,
        conditions: &[StatusCondition],
    ) -> Result<(), Error> {
        let all: Api<requests::ProvisioningRequest> =
            Api::namespaced(self.client.clone(), &request.namespace);
        let patch = json!({
            "metadata": { "resourceVersion": request.resource_version },
            "status": { "conditions": conditions.iter().map(condition).collect::<Vec<_>>() },
        });
        let action = format!("write the status of ProvisioningRequest `{}`", request.id());
        let (options, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(&patch));
        self.call(action, all.patch_status(&request.name, &options, &patch)).await?;
        Ok(())
    }
}

/// Returns the status as a merge patch. A field without a value becomes null, which makes the API server
/// remove the field.
fn body(status: &BufferStatus) -> Value {
    json!({
        "podTemplateRef": status.template.as_ref().map(|name| json!({ "name": name })),
        "podTemplateGeneration": status.template_generation,
        "replicas": status.replicas,
        "provisioningStrategy": status.strategy,
        "conditions": status.conditions.iter().map(condition).collect::<Vec<_>>(),
    })
}

fn condition(one: &StatusCondition) -> Value {
    let mut condition = json!({
        "type": one.kind,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "lastTransitionTime": one.since.map(|since| since.to_string()),
    });
    if let Some(generation) = one.generation {
        condition["observedGeneration"] = json!(generation);
    }
    condition
}
