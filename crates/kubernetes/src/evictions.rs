//! Evictions, the only way in which this daemon removes pods, and the meaning of each response.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::ListParams;
use kube::core::Status;
use runtime::boxed;
use serde_json::json;

use super::cluster::Cluster;
use super::convert;
use super::error::{Error, ErrorKind};
use model::pod_spec::Specs;
use model::{KubernetesVersion, Pod};

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is being deleted.
    Evicted,
    /// A disruption budget or an overloaded API server refuses the eviction for now.
    Refused {
        /// The reason, as worded by the API server.
        message: String,
        /// How long to wait before the next attempt, if the response specifies it. If a disruption budget
        /// caused the refusal, the response usually does not.
        retry_after: Option<Duration>,
    },
    /// The pod cannot be evicted at present, e.g. because two disruption budgets select it.
    Blocked {
        /// The reason, as worded by the API server.
        message: String,
    },
    /// The pod is gone, or another pod now has its name.
    Gone,
}

impl Cluster {
    /// The pods that are bound to a node. They are read from the API server, because a watch may be outdated.
    ///
    /// # Errors
    /// Returns an error if the call fails, or a pod cannot be read.
    #[boxed]
    pub async fn pods_on(&self, node: &str) -> Result<Vec<Arc<Pod>>, Error> {
        let action = format!("list the pods of node `{node}`");
        let bound = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let api: Api<core::Pod> = Api::all(self.client.clone());
        let list = self.call(action.clone(), api.list(&bound)).await?;
        let malformed = |source: convert::ConvertError| Error::Malformed {
            action: action.clone(),
            source: Box::new(source),
        };
        // The Kubernetes version only affects how many resources a pod uses on its node, which does not
        // matter for an eviction.
        let mut specs = Specs::default();
        let mut read = |pod| convert::pod(pod, KubernetesVersion::NEWEST, &mut specs);
        list.items.iter().map(|pod| read(pod).map(Arc::new).map_err(malformed)).collect()
    }

    /// The names of the PersistentVolumes that are attached to a node, read from the API server. A volume
    /// without a PersistentVolume is listed by the name of its VolumeAttachment.
    ///
    /// # Errors
    /// Returns an error if the call fails.
    #[boxed]
    pub async fn attached(&self, node: &str) -> Result<BTreeSet<String>, Error> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let every = ListParams::default();
        let list = self.call(format!("list the volumes of node `{node}`"), api.list(&every)).await?;
        let here = list.items.into_iter().filter(|one| one.spec.node_name == node);
        Ok(here.filter_map(|one| one.spec.source.persistent_volume_name.or(one.metadata.name)).collect())
    }

    /// Requests the eviction of the pod with this uid. `grace` replaces the pod's own grace period.
    ///
    /// The uid guards against another pod with the same name. It must be current: an eviction that is refused
    /// because of a wrong uid still counts against the disruption budget.
    ///
    /// # Errors
    /// Returns an error if the call fails for a reason that is unrelated to the pod.
    #[boxed]
    pub async fn evict(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        grace: Option<Duration>,
    ) -> Result<Eviction, Error> {
        let action = format!("evict pod `{namespace}/{name}`");
        // kube's own call names the field `delete_options`, which the API server ignores.
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": namespace },
            "deleteOptions": {
                "preconditions": { "uid": uid },
                "gracePeriodSeconds": grace.map(|grace| grace.as_secs()),
            },
        });
        let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|source| Error::Malformed { action: action.clone(), source: Box::new(source) })?;
        match self.call(action, self.client.request::<Status>(request)).await {
            Ok(_) => Ok(Eviction::Evicted),
            Err(error) => outcome(error),
        }
    }
}

fn outcome(error: Error) -> Result<Eviction, Error> {
    let Some(status) = error.status() else { return Err(error) };
    match error.kind() {
        ErrorKind::NotFound => Ok(Eviction::Gone),
        ErrorKind::TooManyRequests => {
            Ok(Eviction::Refused { message: refusal_text(status), retry_after: retry_after(status) })
        }
        // The API server answers 403 if a disruption budget's `disruptionsAllowed` is negative, or if the
        // disruption controller lags behind.
        ErrorKind::Forbidden if is_of_budget(status) => {
            Ok(Eviction::Refused { message: refusal_text(status), retry_after: None })
        }
        ErrorKind::Conflict if status.message.contains("UID in") => Ok(Eviction::Gone),
        ErrorKind::Conflict => Ok(Eviction::Refused { message: refusal_text(status), retry_after: None }),
        // Of all 500 responses to an eviction, only this one is about the pod itself. Its `reason` is empty.
        ErrorKind::Unavailable if status.message.contains("more than one PodDisruptionBudget") => {
            Ok(Eviction::Blocked { message: refusal_text(status) })
        }
        _ => Err(error),
    }
}

/// Whether a budget is the reason for the refusal, rather than a missing right. API servers before 1.37 give
/// no cause, but name the budget as the forbidden object.
fn is_of_budget(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| {
        details.kind == "poddisruptionbudget"
            || details.causes.iter().any(|cause| cause.reason == "DisruptionBudget")
    })
}

/// The text of a refusal. A cause's message is preferred, because it names the budget, unlike the status's
/// own message.
fn refusal_text(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.map(|cause| &cause.message).find(|text| !text.is_empty()).unwrap_or(&status.message).clone()
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}
