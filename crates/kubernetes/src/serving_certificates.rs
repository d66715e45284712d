//! Watches and approves kubelets' requests for serving certificates. These are CertificateSigningRequests for
//! the signer `kubernetes.io/kubelet-serving`, which kubelets with `serverTLSBootstrap` create. They are
//! watched separately from other kinds.
//!
//! The requester's identity comes from the API server, but the PKCS#10 request comes from the requester. This
//! file treats both as plain data and does not check them.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Object;
use kube::Api;
use kube::api::{Patch, PatchParams};
use runtime::boxed;
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::cluster::Cluster;
use super::convert::ConvertError;
use super::error::Error;
use super::object_cache::Store;
use super::wake_signals;
use super::watch_health::{Board, Problem};
use super::watch_loop::Feed;
use runtime::ordered_notify::Changed;

/// The signer of kubelets' serving certificates.
pub(super) const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The field selector that restricts lists and watches to requests for this signer.
const FIELDS: &str = "spec.signerName=kubernetes.io/kubelet-serving";
const KIND: &str = "CertificateSigningRequest";
/// The maximum size of a stored request, in bytes. A kubelet's request is smaller than a kilobyte.
const LONGEST: usize = 16 << 10;

/// One request, as it is stored in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingRequest {
    /// The object's name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// When the request was created.
    pub created: Option<Timestamp>,
    /// The requester, as authenticated by the API server.
    pub user: String,
    /// The requester's groups, as authenticated by the API server.
    pub groups: Vec<String>,
    /// The requested usages of the key.
    pub usages: Vec<String>,
    /// The PKCS#10 request as PEM. It is empty if the request has already been decided, or is larger than any
    /// kubelet's request.
    pub pem: Vec<u8>,
    /// Whether the request was approved, denied, signed, or marked as failed.
    pub decided: bool,
}

/// A watch of all requests for serving certificates, which ends when this value is dropped.
#[derive(Debug)]
pub struct ServingRequests {
    store: Store<ServingRequest>,
    board: Board,
    _stop: DropGuard,
}

impl ServingRequests {
    /// Starts watching. Must be called inside a tokio runtime.
    pub fn start(cluster: &Cluster, cancel: &CancellationToken) -> Self {
        let (store, board) = (Store::default(), Board::new(&[(KIND, false)]));
        let feed = Feed {
            kind: KIND,
            api: Api::all(cluster.client.clone()),
            fields: Some(FIELDS),
            convert: Box::new(read),
            worth: wake_signals::any,
            store: store.clone(),
            board: board.clone(),
        };
        let cancel = cancel.child_token();
        let over = cancel.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = feed.follow() => {}
            }
        });
        Self { store, board, _stop: cancel.drop_guard() }
    }

    /// The undecided requests, oldest first.
    pub fn open(&self) -> Vec<Arc<ServingRequest>> {
        let mut open: Vec<_> = self.store.all().into_iter().filter(|one| !one.decided).collect();
        open.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        open
    }

    /// A number that grows with every change.
    pub fn changed(&self) -> Changed {
        self.board.changed()
    }

    /// Why the requests, or some of them, cannot be read at the moment.
    pub fn problems(&self) -> Vec<Problem> {
        self.board.problems()
    }
}

impl Cluster {
    /// Approves a request exactly as it was read. A request that was changed or decided in the meantime is
    /// not approved.
    ///
    /// # Errors
    /// Returns [`super::ErrorKind::Conflict`] or [`super::ErrorKind::NotFound`] if the request has changed,
    /// [`super::ErrorKind::Forbidden`] if a right is missing, or another error if the call fails.
    #[boxed]
    pub async fn approve(&self, request: &ServingRequest, why: &str) -> Result<(), Error> {
        let requests: Api<Object> = Api::all(self.client.clone());
        let change = json!({
            "metadata": { "uid": request.uid, "resourceVersion": request.resource_version },
            "status": { "conditions": [{
                "type": "Approved",
                "status": "True",
                "reason": "PveAutoscalerApproved",
                "message": why,
            }] },
        });
        let action = format!("approve certificate signing request `{}`", request.name);
        let (options, change) = (PatchParams::default(), Patch::Merge(&change));
        self.call(action, requests.patch_approval(&request.name, &options, &change)).await?;
        Ok(())
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all conversions have this form")]
fn read(object: &Object) -> Result<ServingRequest, ConvertError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let status = object.status.as_ref();
    let decided = status.is_some_and(|status| {
        status.certificate.is_some() || status.conditions.as_ref().is_some_and(|all| !all.is_empty())
    });
    let keep = !decided && spec.signer_name == SERVING_SIGNER && spec.request.0.len() <= LONGEST;
    Ok(ServingRequest {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        user: spec.username.clone().unwrap_or_default(),
        groups: spec.groups.clone().unwrap_or_default(),
        usages: spec.usages.clone().unwrap_or_default(),
        pem: if keep { spec.request.0.clone() } else { Vec::new() },
        decided: decided || spec.signer_name != SERVING_SIGNER,
    })
}
