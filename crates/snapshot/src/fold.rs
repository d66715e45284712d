//! Reassembles snapshots from the changes between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use super::changes::{Changes, Key, key};
use super::document::Document;
use super::patch;
use super::read::{Reader, SnapshotError, forget_templates};
use model::pod::Pod;
use model::{KubernetesVersion, Snapshot};

/// The kind of the document that contains the Kubernetes version, which determines how pods are read.
const CLUSTER: &str = "KubernetesCluster";

/// Why changes cannot be applied to the last snapshot.
#[derive(Debug, Error)]
pub enum FoldError {
    /// An object that is to be changed or dropped does not exist, or the change cannot be applied to it.
    #[error("the recorded change to {kind} `{name}` cannot be applied: {why}")]
    Patch {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// An object does not have the fields of its kind.
    #[error(transparent)]
    Object(#[from] SnapshotError),
}

/// The last snapshot, built from the changes that were applied.
#[derive(Debug, Default)]
pub struct Fold {
    time: Timestamp,
    version: KubernetesVersion,
    objects: BTreeMap<Key, Object>,
}

/// An object as it was recorded, and the snapshot that contains only this object.
#[derive(Debug)]
struct Object {
    value: Value,
    read: Box<Snapshot>,
}

impl Fold {
    /// Applies the changes that lead to the next snapshot.
    ///
    /// # Errors
    /// Returns an error if the changes cannot be applied to the last snapshot.
    pub fn apply(&mut self, changes: Changes) -> Result<(), FoldError> {
        let time = changes.time;
        let failed = |(kind, _, name): Key, why: &'static str| FoldError::Patch { kind, name, why };
        for key in changes.drop {
            if self.objects.remove(&key).is_none() {
                return Err(failed(key, "the object does not exist"));
            }
        }
        let mut version_changed = false;
        let mut changed: Vec<(Key, Value)> = Vec::new();
        for (key, change) in changes.patch {
            let Some(object) = self.objects.remove(&key) else {
                return Err(failed(key, "the object does not exist"));
            };
            let mut value = object.value;
            patch::apply(&mut value, change).map_err(|why| failed(key.clone(), why))?;
            changed.push((key, value));
        }
        changed.extend(changes.put.into_iter().map(|value| (key(&value), value)));
        // The document `KubernetesCluster` comes first, because all other objects are read according to it.
        changed.sort_by_key(|(key, _)| key.0 != CLUSTER);
        for (key, value) in changed {
            let read = self.read(&value)?;
            if key.0 == CLUSTER {
                version_changed |= self.version != read.kubernetes;
                self.version = read.kubernetes;
            }
            self.objects.insert(key, Object { value, read });
        }
        if version_changed {
            self.read_all()?;
        }
        self.time = time;
        Ok(())
    }

    /// The time of the snapshot.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// The pods of the last snapshot, ordered by namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.objects.iter().filter(|(key, _)| key.0 == "Pod").filter_map(|(_, pod)| pod.read.pods.first())
    }

    /// The full snapshot.
    pub fn snapshot(&self) -> Snapshot {
        let mut whole = self.without_pods();
        whole.pods = self.pods().cloned().collect();
        whole
    }

    /// The last snapshot without its pods.
    pub fn without_pods(&self) -> Snapshot {
        let mut whole = Snapshot { time: self.time, kubernetes: self.version, ..Snapshot::default() };
        for (key, object) in self.objects.iter().filter(|(key, _)| key.0 != "Pod") {
            join(&mut whole, &object.read);
            match key.0.as_str() {
                "ProxmoxInventory" => whole.proxmox = object.read.proxmox.clone(),
                "AutoscalerState" => whole.memory = object.read.memory.clone(),
                _ => {}
            }
        }
        forget_templates(&mut whole);
        whole
    }

    fn read(&self, value: &Value) -> Result<Box<Snapshot>, SnapshotError> {
        let document = Document::of(value).ok_or(SnapshotError::NoKind { number: 1 })?;
        let snapshot = Snapshot { kubernetes: self.version, ..Snapshot::default() };
        let mut reader = Reader { snapshot, templates: true, ..Reader::default() };
        reader.version(&document)?;
        reader.object(&document)?;
        Ok(Box::new(reader.snapshot))
    }

    fn read_all(&mut self) -> Result<(), SnapshotError> {
        let mut all = std::mem::take(&mut self.objects);
        for object in all.values_mut() {
            object.read = self.read(&object.value)?;
        }
        self.objects = all;
        Ok(())
    }
}

/// Appends all lists of Kubernetes objects in `part` to those in `whole`.
fn join(whole: &mut Snapshot, part: &Snapshot) {
    macro_rules! join {
        ($($list:ident),*) => { $(whole.$list.extend_from_slice(&part.$list);)* };
    }
    join!(
        nodes,
        pods,
        namespaces,
        controllers,
        daemon_sets,
        budgets,
        volumes,
        claims,
        storage_classes,
        csi_drivers,
        csi_nodes,
        storage_capacities,
        attachments,
        priority_classes,
        resource_claims,
        device_classes,
        resource_slices,
        device_taint_rules,
        buffers,
        pod_templates
    );
    if let Some(requests) = &part.requests {
        whole.requests.get_or_insert_default().extend_from_slice(requests);
    }
    if let Some(groups) = &part.pod_groups {
        whole.pod_groups.get_or_insert_default().extend_from_slice(groups);
    }
}
