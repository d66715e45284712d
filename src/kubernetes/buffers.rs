//! CapacityBuffers: watched where the API server serves them, and the templates that they refer to with them. Where it does not, it is
//! asked for nothing but whether it does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Api;
use kube::core::DeserializeGuard;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::board::Board;
use super::capacity_buffer::{self as api, PLURAL, VERSION};
use super::cluster::Cluster;
use super::convert;
use super::error::{Error, ErrorKind};
use super::feed::{Feed, GIVEN_UP_WAIT, Waits};
use super::signals::{self, Worth};
use super::store::Store;
use crate::causes::chain;
use crate::model::buffer::{BufferStatus, CapacityBuffer, TemplateRef};

/// The kind.
pub(super) const KIND: &str = "CapacityBuffer";

/// What buffers refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Referred {
    /// One refers to a PodTemplate.
    pub templates: bool,
    /// Kinds and keys of controllers.
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

    /// The keys of the controllers of a kind.
    pub(super) fn of_kind(&self, kind: &str) -> BTreeSet<String> {
        let all = self.controllers.iter();
        all.filter(|(other, _)| other == kind).map(|(_, key)| key.clone()).collect()
    }
}

/// Keeps the store up to date until it is dropped.
pub(super) async fn follow(cluster: Cluster, board: Board, store: Store<CapacityBuffer>) {
    let mut waits = Waits::new(KIND);
    loop {
        match cluster.serves_buffers().await {
            Ok(true) => {
                waits.reset();
                board.well_formed(KIND, VERSION);
                let api: Api<DeserializeGuard<api::CapacityBuffer>> = Api::all(cluster.client.clone());
                let feed = Feed {
                    kind: KIND,
                    api,
                    fields: None,
                    convert: Box::new(convert::capacity_buffer),
                    worth: signals::buffer,
                    store: store.clone(),
                    board: board.clone(),
                };
                tokio::select! {
                    biased;
                    () = gone(&cluster) => {}
                    () = feed.follow() => {}
                }
            }
            Ok(false) => {
                if !store.replace(BTreeMap::new()).is_empty() {
                    tracing::info!("CapacityBuffers are served no more");
                    board.bump(Worth::Round);
                }
                board.well_formed(KIND, VERSION);
                board.live(KIND);
                sleep(GIVEN_UP_WAIT).await;
            }
            // An answer came that is none: rounds can do without buffers.
            Err(error) if error.kind() == ErrorKind::Other => {
                board.malformed(KIND, VERSION, &chain(&error));
                board.live(KIND);
                sleep(GIVEN_UP_WAIT).await;
            }
            Err(error) => {
                let given_up = board.failed(KIND, Some(error.kind()), chain(&error));
                sleep(if given_up { GIVEN_UP_WAIT } else { waits.next() }).await;
            }
        }
    }
}

/// Waits until the kind is known to be served no more.
async fn gone(cluster: &Cluster) {
    loop {
        sleep(GIVEN_UP_WAIT).await;
        if matches!(cluster.serves_buffers().await, Ok(false)) {
            return;
        }
    }
}

/// Says what buffers refer to, until it is dropped.
pub(super) async fn tell_referred(
    board: Board,
    store: Store<CapacityBuffer>,
    told: watch::Sender<Arc<Referred>>,
) {
    let mut changed = board.changed();
    loop {
        let now = Referred::of(&store.all());
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
    /// Whether the API server has CapacityBuffers.
    async fn serves_buffers(&self) -> Result<bool, Error> {
        let found = self.client.list_api_group_resources(VERSION);
        match self.call("ask whether there are CapacityBuffers", found).await {
            Ok(list) => Ok(list.resources.iter().any(|one| one.name == PLURAL)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes what a buffer's status is to be over the version that was read.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] where the buffer is another one by now; else the call failed.
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
}

/// What is absent is taken out.
fn body(status: &BufferStatus) -> Value {
    let conditions = status.conditions.iter().map(|one| {
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
    });
    json!({
        "podTemplateRef": status.template.as_ref().map(|name| json!({ "name": name })),
        "podTemplateGeneration": status.template_generation,
        "replicas": status.replicas,
        "provisioningStrategy": status.strategy,
        "conditions": conditions.collect::<Vec<_>>(),
    })
}
