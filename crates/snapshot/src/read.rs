//! Reads snapshot files.

use std::sync::Arc;

use jiff::Timestamp;
use thiserror::Error;

use super::autoscaler_documents::{ClusterDocument, InventoryDocument, StateDocument};
use super::document::{Document, documents};
use kubernetes::convert::{self, ConvertError};
use model::Snapshot;
use model::pod_spec::Specs;
use model::quantity::QuantityError;

/// Why a snapshot cannot be read.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The text is neither YAML nor JSON.
    #[error("the snapshot is not valid YAML or JSON")]
    Syntax(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A document is not an object with a `kind`.
    #[error(
        "document {number} of the snapshot has no `kind`: expected Kubernetes objects as `kubectl get -o yaml` prints them"
    )]
    NoKind {
        /// The document's number in the stream, starting at 1.
        number: usize,
    },
    /// An object does not have the fields of its kind.
    #[error("{kind} `{name}` in document {number} of the snapshot is malformed")]
    Shape {
        /// Its kind.
        kind: String,
        /// The object's namespace and name, as far as they can be read.
        name: String,
        /// The number of the object's document in the stream, starting at 1.
        number: usize,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A field of an object has an impossible value.
    #[error("{kind} `{name}` in document {number} of the snapshot contains an invalid value")]
    Value {
        /// Its kind.
        kind: String,
        /// The object's namespace and name, as far as they can be read.
        name: String,
        /// The number of the object's document in the stream, starting at 1.
        number: usize,
        /// What is wrong.
        #[source]
        source: ConvertError,
    },
    /// A document of this project contains a malformed quantity.
    #[error("document {number} of the snapshot, `{kind}`, contains an invalid value")]
    Own {
        /// Its kind.
        kind: String,
        /// The document's number in the stream, starting at 1.
        number: usize,
        /// What is wrong.
        #[source]
        source: QuantityError,
    },
}

/// Reads a snapshot from a YAML stream or JSON. Also returns the time of the snapshot, if its inventory
/// contains one.
pub fn read(text: &str) -> Result<(Snapshot, Option<Timestamp>), SnapshotError> {
    let documents = documents(text)?;
    let has_buffers = documents.iter().any(|one| one.kind == "CapacityBuffer");
    let mut reader = Reader { templates: has_buffers, ..Reader::default() };
    for document in &documents {
        reader.version(document)?;
    }
    for document in documents {
        reader.object(&document)?;
    }
    let Reader { mut snapshot, time, .. } = reader;
    forget_templates(&mut snapshot);
    snapshot.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    snapshot.pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok((snapshot, time))
}

/// Drops the pod templates of controllers that no CapacityBuffer refers to, because no decision reads them.
pub(super) fn forget_templates(snapshot: &mut Snapshot) {
    for controller in &mut snapshot.controllers {
        if controller.template.is_some()
            && !snapshot.buffers.iter().any(|buffer| buffer.refers_to(controller))
        {
            Arc::make_mut(controller).template = None;
        }
    }
}

#[derive(Default)]
pub(super) struct Reader {
    pub snapshot: Snapshot,
    pub time: Option<Timestamp>,
    pub specs: Specs,
    /// Whether to read the pod templates of controllers. They are only needed if CapacityBuffers may refer to
    /// the controllers.
    pub templates: bool,
}

impl Document<'_> {
    fn checked<T>(&self, result: Result<T, ConvertError>) -> Result<Arc<T>, SnapshotError> {
        result.map(Arc::new).map_err(|source| SnapshotError::Value {
            kind: self.kind.clone().into_owned(),
            name: self.title(),
            number: self.number,
            source,
        })
    }

    fn own<T>(&self, result: Result<T, QuantityError>) -> Result<T, SnapshotError> {
        let kind = self.kind.clone().into_owned();
        result.map_err(|source| SnapshotError::Own { kind, number: self.number, source })
    }
}

impl Reader {
    /// Reads the Kubernetes version before anything else, because the rules for reading pods depend on it,
    /// and the document that contains it may come last. The document also states whether the API server
    /// serves ProvisioningRequests or PodGroups, which an empty list cannot show.
    pub(super) fn version(&mut self, it: &Document) -> Result<(), SnapshotError> {
        if it.kind == "KubernetesCluster" && it.group() == "pve-autoscaler" {
            let cluster: ClusterDocument = it.parse()?;
            self.snapshot.kubernetes = cluster.version;
            if cluster.provisioning_requests {
                self.snapshot.requests.get_or_insert_default();
            }
            if cluster.pod_groups {
                self.snapshot.pod_groups.get_or_insert_default();
            }
        }
        Ok(())
    }

    pub(super) fn object(&mut self, it: &Document) -> Result<(), SnapshotError> {
        let all = &mut self.snapshot;
        match (it.group(), it.kind.as_ref()) {
            ("", "Node") => all.nodes.push(it.checked(convert::node(&it.parse()?))?),
            ("", "Pod") => {
                all.pods.push(it.checked(convert::pod(&it.parse()?, all.kubernetes, &mut self.specs))?);
            }
            ("", "Namespace") => all.namespaces.push(Arc::new(convert::namespace(&it.parse()?))),
            ("", "PersistentVolume") => all.volumes.push(it.checked(convert::volume(&it.parse()?))?),
            ("", "PersistentVolumeClaim") => all.claims.push(it.checked(convert::claim(&it.parse()?))?),
            ("", "PodTemplate") => {
                all.pod_templates.push(it.checked(convert::pod_template(&it.parse()?))?);
            }
            ("", "ReplicationController")
            | ("apps", "ReplicaSet" | "StatefulSet" | "Deployment")
            | ("batch", "Job") => {
                self.controller(it)?;
            }
            ("apps", "DaemonSet") => {
                all.daemon_sets.push(it.checked(convert::daemon_set(&it.parse()?))?);
            }
            ("policy", "PodDisruptionBudget") => {
                all.budgets.push(it.checked(convert::budget(&it.parse()?))?);
            }
            ("storage.k8s.io", "StorageClass") => {
                all.storage_classes.push(Arc::new(convert::storage_class(&it.parse()?)));
            }
            ("storage.k8s.io", "CSIDriver") => {
                all.csi_drivers.push(Arc::new(convert::csi_driver(&it.parse()?)));
            }
            ("storage.k8s.io", "CSIStorageCapacity") => {
                all.storage_capacities.push(it.checked(convert::storage_capacity(&it.parse()?))?);
            }
            ("storage.k8s.io", "CSINode") => {
                all.csi_nodes.push(Arc::new(convert::csi_node(&it.parse()?)));
            }
            ("storage.k8s.io", "VolumeAttachment") => {
                all.attachments.push(Arc::new(convert::attachment(&it.parse()?)));
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                all.priority_classes.push(Arc::new(convert::priority_class(&it.parse()?)));
            }
            ("scheduling.k8s.io", "PodGroup") if it.is("scheduling.k8s.io/v1beta1") => {
                let group = it.checked(convert::pod_group(&it.parse()?))?;
                all.pod_groups.get_or_insert_default().push(group);
            }
            ("resource.k8s.io", _) => self.devices(it)?,
            ("autoscaling.x-k8s.io", "CapacityBuffer") if it.is("autoscaling.x-k8s.io/v1beta1") => {
                all.buffers.push(it.checked(convert::capacity_buffer(&it.parse()?))?);
            }
            ("autoscaling.x-k8s.io", "ProvisioningRequest") if it.is("autoscaling.x-k8s.io/v1") => {
                let request = it.checked(convert::provisioning_request(&it.parse()?))?;
                all.requests.get_or_insert_default().push(request);
            }
            ("pve-autoscaler", "ProxmoxInventory") => {
                let document: InventoryDocument = it.parse()?;
                self.time = document.time.or(self.time);
                all.proxmox = Arc::new(it.own(document.into_model())?);
            }
            ("pve-autoscaler", "AutoscalerState") => {
                let document: StateDocument = it.parse()?;
                all.memory = it.own(document.into_model())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a controller, with its pod template if a CapacityBuffer may refer to the controller.
    fn controller(&mut self, it: &Document) -> Result<(), SnapshotError> {
        let templates = self.templates;
        let controller = match it.kind.as_ref() {
            "ReplicaSet" => it.checked(convert::replica_set(&it.parse()?, templates)),
            "StatefulSet" => it.checked(convert::stateful_set(&it.parse()?, templates)),
            "Deployment" => it.checked(convert::deployment(&it.parse()?, templates)),
            "Job" => it.checked(convert::job(&it.parse()?, templates)),
            _ => it.checked(convert::replication_controller(&it.parse()?, templates)),
        };
        self.snapshot.controllers.push(controller?);
        Ok(())
    }

    /// Reads the device objects of `resource.k8s.io`. Only the supported version is read, because other
    /// versions have different fields.
    fn devices(&mut self, it: &Document) -> Result<(), SnapshotError> {
        let all = &mut self.snapshot;
        if !it.is("resource.k8s.io/v1") {
            return Ok(());
        }
        match it.kind.as_ref() {
            "ResourceClaim" => {
                all.resource_claims.push(it.checked(convert::resource_claim(&it.parse()?))?);
            }
            "DeviceClass" => all.device_classes.push(Arc::new(convert::device_class(&it.parse()?))),
            "ResourceSlice" => {
                all.resource_slices.push(it.checked(convert::resource_slice(&it.parse()?))?);
            }
            "DeviceTaintRule" => {
                all.device_taint_rules.push(Arc::new(convert::device_taint_rule(&it.parse()?)));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::KubernetesVersion;

    #[test]
    fn documents_lists_and_json_mix() {
        let yaml = "apiVersion: v1\nkind: Node\nmetadata: {name: b}\n---\napiVersion: v1\nkind: List\nitems:\n\
            - {apiVersion: v1, kind: Node, metadata: {name: a}}\n- {apiVersion: v1, kind: Service, metadata: {name: s}}\n\
            ---\n---\napiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\ntime: 2026-01-01T00:00:00Z\n\
            hosts:\n- {name: pve1, cores: 8, memory: 16Gi}\n";
        let (snapshot, time) = read(yaml).unwrap();
        let names: Vec<_> = snapshot.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(time, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(snapshot.proxmox.hosts.as_ref().unwrap()[0].memory, 16 << 30);
        let flow = "{apiVersion: v1, kind: Node, metadata: {name: n}}\n---\n{\"kind\": \"Service\"}\n";
        assert_eq!(read(flow).unwrap().0.nodes.len(), 1);
        let json = r#"{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"n"}}]}"#;
        assert_eq!(read(json).unwrap().0.nodes.len(), 1);
    }

    #[test]
    fn a_file_says_the_version_of_the_control_plane_or_the_newest_is_meant() {
        let own = "apiVersion: pve-autoscaler/v1\nkind: KubernetesCluster\nversion: v1.36.2\n";
        for (text, expected) in [(own, KubernetesVersion::V1_36), ("", KubernetesVersion::NEWEST)] {
            assert_eq!(read(text).unwrap().0.kubernetes, expected, "{text}");
        }
    }

    #[test]
    fn a_file_says_that_there_could_be_requests_and_older_ones_only_by_those_that_there_are() {
        let own = "apiVersion: pve-autoscaler/v1\nkind: KubernetesCluster\nversion: v1.37.0\n";
        let one =
            "---\napiVersion: autoscaling.x-k8s.io/v1\nkind: ProvisioningRequest\nmetadata: {name: r}\n";
        let served = format!("{own}provisioningRequests: true\n");
        let cases = [
            (own.to_owned(), None),
            (served.clone(), Some(0)),
            (format!("{own}{one}"), Some(1)),
            (format!("{served}{one}"), Some(1)),
        ];
        for (text, expected) in cases {
            let requests = read(&text).unwrap().0.requests;
            assert_eq!(requests.map(|all| all.len()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_object() {
        let cases = [
            ("a: [", "not valid YAML"),
            ("{\"a\": ", "not valid YAML"),
            ("just text", "document 1 of the snapshot has no `kind`"),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: d}\nspec: 7",
                "Pod `d/p` in document 1",
            ),
            (
                "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {capacity: {cpu: lots}}",
                "Node `n` in document 1 of the snapshot contains an invalid value",
            ),
            (
                "apiVersion: pve-autoscaler/v1\nkind: KubernetesCluster\nversion: newest",
                "KubernetesCluster `` in document 1 of the snapshot is malformed",
            ),
            (
                "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: [{name: h, cores: 1, memory: 1GB}]",
                "`ProxmoxInventory`, contains an invalid value",
            ),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
