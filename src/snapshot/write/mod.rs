//! Writing a snapshot file.
//!
//! What is written are Kubernetes objects reduced to what decisions read, and the documents of our own: reading the
//! file back gives the same snapshot, except for what no decision reads (a Node's uid, resource version, provider id,
//! system UUID, addresses and attached volumes, and the templates found). Containers become one that requests what the pod
//! requests in all; no image, command, environment or foreign annotation ever gets here, because the model has none.

mod buffer;
mod devices;
mod fields;
mod gang;
mod node;
mod own;
mod pod;
mod selector;
mod storage;
mod workload;

use serde_json::Value;
use thiserror::Error;

use crate::model::Snapshot;

/// Why a snapshot cannot be written.
#[derive(Debug, Error)]
#[error("the snapshot cannot be written as YAML")]
pub struct WriteError(#[source] serde_saphyr::SerializeError);

/// Writes a snapshot as a YAML stream, one document an object, that [`read`](super::read()) takes back.
pub fn write(snapshot: &Snapshot) -> Result<String, WriteError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = String::new();
    for document in documents(snapshot) {
        text.push_str("---\n");
        serde_saphyr::to_fmt_writer_with_options(&mut text, &document, options.clone())
            .map_err(WriteError)?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

fn documents(snapshot: &Snapshot) -> impl Iterator<Item = Value> {
    let now = snapshot.time;
    let own = [
        own::cluster(snapshot.kubernetes, snapshot.requests.is_some(), snapshot.pod_groups.is_some()),
        own::inventory(&snapshot.proxmox, now),
        own::state(&snapshot.memory),
    ];
    own.into_iter()
        .chain(snapshot.nodes.iter().map(|one| node::node(one)))
        .chain(snapshot.namespaces.iter().map(|one| node::namespace(one)))
        .chain(snapshot.priority_classes.iter().map(|one| workload::priority_class(one)))
        .chain(snapshot.controllers.iter().map(move |one| workload::controller(one, now)))
        .chain(snapshot.daemon_sets.iter().map(|one| workload::daemon_set(one)))
        .chain(snapshot.budgets.iter().map(|one| workload::budget(one)))
        .chain(snapshot.storage_classes.iter().map(|one| storage::storage_class(one)))
        .chain(snapshot.volumes.iter().map(move |one| storage::volume(one, now)))
        .chain(snapshot.claims.iter().map(move |one| storage::claim(one, now)))
        .chain(snapshot.csi_drivers.iter().map(|one| storage::csi_driver(one)))
        .chain(snapshot.csi_nodes.iter().map(|one| node::csi_node(one)))
        .chain(snapshot.storage_capacities.iter().map(|one| storage::storage_capacity(one)))
        .chain(snapshot.attachments.iter().map(|one| storage::attachment(one)))
        .chain(snapshot.device_classes.iter().map(|one| devices::device_class(one)))
        .chain(snapshot.resource_slices.iter().map(|one| devices::resource_slice(one)))
        .chain(snapshot.device_taint_rules.iter().map(|one| devices::device_taint_rule(one)))
        .chain(snapshot.resource_claims.iter().map(move |one| devices::resource_claim(one, now)))
        .chain(snapshot.buffers.iter().map(|one| buffer::capacity_buffer(one)))
        .chain(snapshot.requests.iter().flatten().map(|one| buffer::provisioning_request(one)))
        .chain(snapshot.pod_groups.iter().flatten().map(|one| gang::pod_group(one)))
        .chain(snapshot.pod_templates.iter().map(|one| buffer::pod_template(one)))
        .chain(snapshot.pods.iter().map(|one| pod::pod(one)))
}
