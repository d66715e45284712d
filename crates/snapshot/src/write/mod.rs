//! Writes snapshot files.
//!
//! The file contains Kubernetes objects, reduced to what decisions read, and documents of this project.
//! Reading the file gives the same snapshot, except for data that no decision reads. Examples are a Node's
//! uid, resource version, provider id, system UUID, addresses and attached volumes, the templates in Proxmox
//! VE, and past decisions. A pod's containers are combined into one with the pod's total requests. More
//! containers are only written if several request the same extended resource. Images, commands, environments
//! and foreign annotations are never included, because the model does not have them.

mod autoscaler_documents;
mod buffer;
mod devices;
mod fields;
mod gang;
mod node;
mod pod;
mod selector;
mod storage;
mod workload;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use model::Snapshot;

/// Why a snapshot cannot be written.
#[derive(Debug, Error)]
#[error("the snapshot cannot be written as YAML")]
pub struct WriteError(#[source] serde_saphyr::SerializeError);

/// Writes a snapshot as a YAML stream with one document per object, which [`read`](super::read()) reads back.
pub fn write(snapshot: &Snapshot) -> Result<String, WriteError> {
    let mut written = Yaml { snapshot, text: String::new(), failed: None };
    for document in own_documents(snapshot) {
        written.document(&document);
    }
    each_list(&mut written);
    written.failed.map_or(Ok(written.text), |error| Err(WriteError(error)))
}

struct Yaml<'s> {
    snapshot: &'s Snapshot,
    text: String,
    failed: Option<serde_saphyr::SerializeError>,
}

impl Yaml<'_> {
    fn document(&mut self, document: &Value) {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        self.text.push_str("---\n");
        let written = serde_saphyr::to_fmt_writer_with_options(&mut self.text, document, options);
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

impl Lists for Yaml<'_> {
    fn list<T: PartialEq>(
        &mut self,
        of: impl Fn(&Snapshot) -> &[Arc<T>],
        write: impl Fn(&T, Timestamp) -> Value,
    ) {
        let snapshot = self.snapshot;
        for one in of(snapshot) {
            self.document(&write(one, snapshot.time));
        }
    }
}

/// The documents for the parts of a snapshot that are not Kubernetes objects.
pub(super) fn own_documents(snapshot: &Snapshot) -> [Value; 3] {
    [
        autoscaler_documents::cluster(
            snapshot.kubernetes,
            snapshot.requests.is_some(),
            snapshot.pod_groups.is_some(),
        ),
        autoscaler_documents::inventory(&snapshot.proxmox, snapshot.time),
        autoscaler_documents::state(&snapshot.memory),
    ]
}

/// Receives every list of Kubernetes objects in a snapshot.
pub(super) trait Lists {
    /// Receives one list. `of` returns the list from a snapshot, and `write` returns the JSON of an object in
    /// the list at a given time.
    fn list<T: PartialEq>(
        &mut self,
        of: impl Fn(&Snapshot) -> &[Arc<T>],
        write: impl Fn(&T, Timestamp) -> Value,
    );
}

/// Passes every list of Kubernetes objects to the receiver, in the order of the file.
pub(super) fn each_list(to: &mut impl Lists) {
    to.list(|all| &all.nodes, |one, _| node::node(one));
    to.list(|all| &all.namespaces, |one, _| node::namespace(one));
    to.list(|all| &all.priority_classes, |one, _| workload::priority_class(one));
    to.list(|all| &all.controllers, workload::controller);
    to.list(|all| &all.daemon_sets, |one, _| workload::daemon_set(one));
    to.list(|all| &all.budgets, |one, _| workload::budget(one));
    to.list(|all| &all.storage_classes, |one, _| storage::storage_class(one));
    to.list(|all| &all.volumes, storage::volume);
    to.list(|all| &all.claims, storage::claim);
    to.list(|all| &all.csi_drivers, |one, _| storage::csi_driver(one));
    to.list(|all| &all.csi_nodes, |one, _| node::csi_node(one));
    to.list(|all| &all.storage_capacities, |one, _| storage::storage_capacity(one));
    to.list(|all| &all.attachments, |one, _| storage::attachment(one));
    to.list(|all| &all.device_classes, |one, _| devices::device_class(one));
    to.list(|all| &all.resource_slices, |one, _| devices::resource_slice(one));
    to.list(|all| &all.device_taint_rules, |one, _| devices::device_taint_rule(one));
    to.list(|all| &all.resource_claims, devices::resource_claim);
    to.list(|all| &all.buffers, |one, _| buffer::capacity_buffer(one));
    to.list(|all| all.requests.as_deref().unwrap_or_default(), |one, _| buffer::provisioning_request(one));
    to.list(|all| all.pod_groups.as_deref().unwrap_or_default(), |one, _| gang::pod_group(one));
    to.list(|all| &all.pod_templates, |one, _| buffer::pod_template(one));
    to.list(|all| &all.pods, |one, _| pod::pod(one));
}
