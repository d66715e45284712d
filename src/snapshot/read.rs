//! Reading a snapshot file.

use std::sync::Arc;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::own::{ClusterDocument, InventoryDocument, StateDocument};
use crate::kubernetes::convert::{self, ConvertError};
use crate::model::Snapshot;
use crate::model::quantity::QuantityError;

/// Why a snapshot cannot be read.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// It is neither YAML nor JSON.
    #[error("the snapshot is not valid YAML or JSON")]
    Syntax(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A document is no object with a `kind`.
    #[error(
        "document {number} of the snapshot has no `kind`: expected Kubernetes objects as `kubectl get -o yaml` prints them"
    )]
    NoKind {
        /// Its number in the stream, from 1.
        number: usize,
    },
    /// An object does not have the fields of its kind.
    #[error("{kind} `{name}` in document {number} of the snapshot is malformed")]
    Shape {
        /// Its kind.
        kind: String,
        /// Its namespace and name, as far as they can be read.
        name: String,
        /// The number of its document in the stream, from 1.
        number: usize,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A field of an object has an impossible value.
    #[error("{kind} `{name}` in document {number} of the snapshot has an impossible value")]
    Value {
        /// Its kind.
        kind: String,
        /// Its namespace and name, as far as they can be read.
        name: String,
        /// The number of its document in the stream, from 1.
        number: usize,
        /// What is wrong.
        #[source]
        source: ConvertError,
    },
    /// A document of our own has a quantity that is none.
    #[error("document {number} of the snapshot, `{kind}`, has an impossible value")]
    Own {
        /// Its kind.
        kind: String,
        /// Its number in the stream, from 1.
        number: usize,
        /// What is wrong.
        #[source]
        source: QuantityError,
    },
}

/// Reads a snapshot: a YAML stream or JSON. The snapshot's time is that of its inventory, where it has one.
pub fn read(text: &str) -> Result<(Snapshot, Option<Timestamp>), SnapshotError> {
    let documents = documents(text)?;
    let mut reader = Reader { templates: documents.iter().any(has_buffers), ..Reader::default() };
    for (index, document) in documents.iter().enumerate() {
        reader.version(document, index + 1)?;
    }
    for (index, document) in documents.into_iter().enumerate() {
        reader.document(document, index + 1)?;
    }
    let Reader { mut snapshot, time, .. } = reader;
    forget_templates(&mut snapshot);
    snapshot.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    snapshot.pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok((snapshot, time))
}

fn documents(text: &str) -> Result<Vec<Value>, SnapshotError> {
    // JSON is read much faster than YAML. What only begins like JSON may still be YAML in flow style.
    if text.trim_start().starts_with('{') {
        let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        if let Ok(values) = values.collect::<Result<_, _>>() {
            return Ok(values);
        }
    }
    // A large cluster is a large file: the reader's guards against hostile input are set far above it.
    let options = serde_saphyr::options! {
        // As in YAML 1.2, a pod may be called `y`.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_events: 500_000_000,
            max_nodes: 500_000_000,
            max_documents: 10_000_000,
            max_total_scalar_bytes: 4 << 30,
        },
    };
    let values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| SnapshotError::Syntax(error.to_string().into()))?;
    Ok(values.into_iter().filter(|value| !value.is_null()).collect())
}

/// Whether a document is a CapacityBuffer, or a list with one.
fn has_buffers(document: &Value) -> bool {
    let is_buffer = |one: &Value| {
        let kind = one.get("kind").and_then(Value::as_str).unwrap_or_default();
        kind.strip_suffix("List").unwrap_or(kind) == "CapacityBuffer"
    };
    let items = document.get("items").and_then(Value::as_array);
    is_buffer(document) || items.into_iter().flatten().any(is_buffer)
}

/// Only the templates that a buffer refers to are of use.
fn forget_templates(snapshot: &mut Snapshot) {
    for controller in &mut snapshot.controllers {
        if controller.template.is_some()
            && !snapshot.buffers.iter().any(|buffer| buffer.refers_to(controller))
        {
            Arc::make_mut(controller).template = None;
        }
    }
}

#[derive(Default)]
struct Reader {
    snapshot: Snapshot,
    time: Option<Timestamp>,
    /// There are buffers, which may refer to the templates of controllers.
    templates: bool,
}

/// What an error message says about an object.
struct Object {
    kind: String,
    name: String,
    number: usize,
}

impl Object {
    fn parse<T: DeserializeOwned>(&self, value: Value) -> Result<T, SnapshotError> {
        serde_json::from_value(value).map_err(|source| SnapshotError::Shape {
            kind: self.kind.clone(),
            name: self.name.clone(),
            number: self.number,
            source,
        })
    }

    fn checked<T>(&self, result: Result<T, ConvertError>) -> Result<Arc<T>, SnapshotError> {
        result.map(Arc::new).map_err(|source| SnapshotError::Value {
            kind: self.kind.clone(),
            name: self.name.clone(),
            number: self.number,
            source,
        })
    }

    fn own<T>(&self, result: Result<T, QuantityError>) -> Result<T, SnapshotError> {
        result.map_err(|source| SnapshotError::Own { kind: self.kind.clone(), number: self.number, source })
    }
}

/// Whether an object is of this version.
fn is(object: &Value, version: &str) -> bool {
    object.get("apiVersion").and_then(Value::as_str) == Some(version)
}

impl Reader {
    /// What pods take depends on the version, and the document that says it may come last. That the API server has ProvisioningRequests
    /// is said there, too: a list of none says nothing.
    fn version(&mut self, value: &Value, number: usize) -> Result<(), SnapshotError> {
        let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        if field("kind") == "KubernetesCluster" && field("apiVersion").starts_with("pve-autoscaler/") {
            let it = Object { kind: field("kind").to_owned(), name: String::new(), number };
            let cluster: ClusterDocument = it.parse(value.clone())?;
            self.snapshot.kubernetes = cluster.version;
            if cluster.provisioning_requests {
                self.snapshot.requests.get_or_insert_default();
            }
        }
        Ok(())
    }

    fn document(&mut self, mut value: Value, number: usize) -> Result<(), SnapshotError> {
        let Some(kind) = value.get("kind").and_then(Value::as_str).map(ToOwned::to_owned) else {
            return Err(SnapshotError::NoKind { number });
        };
        if let (true, Some(items)) = (kind.ends_with("List"), value.get_mut("items").map(Value::take)) {
            let item_kind = kind.strip_suffix("List").unwrap_or_default();
            if let Value::Array(items) = items {
                let version = value.get("apiVersion").cloned().unwrap_or_default();
                for mut item in items {
                    if let (Some(object), false) = (item.as_object_mut(), item_kind.is_empty()) {
                        object.entry("kind").or_insert_with(|| Value::String(item_kind.to_owned()));
                        object.entry("apiVersion").or_insert_with(|| version.clone());
                    }
                    self.document(item, number)?;
                }
            }
            return Ok(());
        }
        self.object(kind, value, number)
    }

    fn object(&mut self, kind: String, value: Value, number: usize) -> Result<(), SnapshotError> {
        let field = |name: &str| value.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (field("/metadata/namespace"), field("/metadata/name"));
        let group =
            field("/apiVersion").split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
        let name = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        let it = Object { kind, name, number };
        let all = &mut self.snapshot;
        match (group.as_str(), it.kind.as_str()) {
            ("", "Node") => all.nodes.push(it.checked(convert::node(&it.parse(value)?))?),
            ("", "Pod") => all.pods.push(it.checked(convert::pod(&it.parse(value)?, all.kubernetes))?),
            ("", "Namespace") => all.namespaces.push(Arc::new(convert::namespace(&it.parse(value)?))),
            ("", "PersistentVolume") => all.volumes.push(it.checked(convert::volume(&it.parse(value)?))?),
            ("", "PersistentVolumeClaim") => all.claims.push(it.checked(convert::claim(&it.parse(value)?))?),
            ("", "PodTemplate") => {
                all.pod_templates.push(it.checked(convert::pod_template(&it.parse(value)?))?);
            }
            ("", "ReplicationController")
            | ("apps", "ReplicaSet" | "StatefulSet" | "Deployment")
            | ("batch", "Job") => {
                self.controller(&it, value)?;
            }
            ("apps", "DaemonSet") => {
                all.daemon_sets.push(it.checked(convert::daemon_set(&it.parse(value)?))?);
            }
            ("policy", "PodDisruptionBudget") => {
                all.budgets.push(it.checked(convert::budget(&it.parse(value)?))?);
            }
            ("storage.k8s.io", "StorageClass") => {
                all.storage_classes.push(Arc::new(convert::storage_class(&it.parse(value)?)));
            }
            ("storage.k8s.io", "CSIDriver") => {
                all.csi_drivers.push(Arc::new(convert::csi_driver(&it.parse(value)?)));
            }
            ("storage.k8s.io", "CSIStorageCapacity") => {
                all.storage_capacities.push(it.checked(convert::storage_capacity(&it.parse(value)?))?);
            }
            ("storage.k8s.io", "CSINode") => {
                all.csi_nodes.push(Arc::new(convert::csi_node(&it.parse(value)?)));
            }
            ("storage.k8s.io", "VolumeAttachment") => {
                all.attachments.push(Arc::new(convert::attachment(&it.parse(value)?)));
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                all.priority_classes.push(Arc::new(convert::priority_class(&it.parse(value)?)));
            }
            ("resource.k8s.io", _) => self.devices(&it, value)?,
            ("autoscaling.x-k8s.io", "CapacityBuffer") if is(&value, "autoscaling.x-k8s.io/v1beta1") => {
                all.buffers.push(it.checked(convert::capacity_buffer(&it.parse(value)?))?);
            }
            ("autoscaling.x-k8s.io", "ProvisioningRequest") if is(&value, "autoscaling.x-k8s.io/v1") => {
                let request = it.checked(convert::provisioning_request(&it.parse(value)?))?;
                all.requests.get_or_insert_default().push(request);
            }
            ("pve-autoscaler", "ProxmoxInventory") => {
                let document: InventoryDocument = it.parse(value)?;
                self.time = document.time.or(self.time);
                all.proxmox = it.own(document.into_model())?;
            }
            ("pve-autoscaler", "AutoscalerState") => {
                let document: StateDocument = it.parse(value)?;
                all.memory = it.own(document.into_model())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A controller of pods, with its template where a buffer may refer to that.
    fn controller(&mut self, it: &Object, value: Value) -> Result<(), SnapshotError> {
        let templates = self.templates;
        let controller = match it.kind.as_str() {
            "ReplicaSet" => it.checked(convert::replica_set(&it.parse(value)?, templates)),
            "StatefulSet" => it.checked(convert::stateful_set(&it.parse(value)?, templates)),
            "Deployment" => it.checked(convert::deployment(&it.parse(value)?, templates)),
            "Job" => it.checked(convert::job(&it.parse(value)?, templates)),
            _ => it.checked(convert::replication_controller(&it.parse(value)?, templates)),
        };
        self.snapshot.controllers.push(controller?);
        Ok(())
    }

    /// What `resource.k8s.io` says of devices. Other versions than the one that is read have other fields.
    fn devices(&mut self, it: &Object, value: Value) -> Result<(), SnapshotError> {
        let all = &mut self.snapshot;
        if !is(&value, "resource.k8s.io/v1") {
            return Ok(());
        }
        match it.kind.as_str() {
            "ResourceClaim" => {
                all.resource_claims.push(it.checked(convert::resource_claim(&it.parse(value)?))?);
            }
            "DeviceClass" => all.device_classes.push(Arc::new(convert::device_class(&it.parse(value)?))),
            "ResourceSlice" => {
                all.resource_slices.push(it.checked(convert::resource_slice(&it.parse(value)?))?);
            }
            "DeviceTaintRule" => {
                all.device_taint_rules.push(Arc::new(convert::device_taint_rule(&it.parse(value)?)));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KubernetesVersion;

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
        assert_eq!(snapshot.proxmox.hosts.unwrap()[0].memory, 16 << 30);
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
                "Node `n` in document 1 of the snapshot has an impossible value",
            ),
            (
                "apiVersion: pve-autoscaler/v1\nkind: KubernetesCluster\nversion: newest",
                "KubernetesCluster `` in document 1 of the snapshot is malformed",
            ),
            (
                "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: [{name: h, cores: 1, memory: 1GB}]",
                "`ProxmoxInventory`, has an impossible value",
            ),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
