//! Volumes, claims, classes and attachments.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;

use super::selector::{label_selector, node_selector, topology_term};
use super::{ConvertError, labels, text, units};
use crate::model::workload::{PersistentVolume, StorageClass, VolumeAttachment, VolumeClaim};

/// A PersistentVolumeClaim.
pub fn claim(object: &core::PersistentVolumeClaim) -> Result<VolumeClaim, ConvertError> {
    let meta = &object.metadata;
    let spec = object.spec.as_ref();
    let annotation =
        |key: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(key)).cloned();
    let request = spec
        .and_then(|spec| spec.resources.as_ref())
        .and_then(|resources| resources.requests.as_ref())
        .and_then(|requests| requests.get("storage"));
    let volume = spec.and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
    Ok(VolumeClaim {
        namespace: text(meta.namespace.as_ref()),
        name: text(meta.name.as_ref()),
        bound: volume.is_some() && annotation("pv.kubernetes.io/bind-completed").is_some(),
        volume,
        class: annotation("volume.beta.kubernetes.io/storage-class")
            .or_else(|| spec.and_then(|spec| spec.storage_class_name.clone())),
        request: request.map_or(Ok(0), |amount| units("spec.resources.requests.storage", amount))?,
        access_modes: spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default(),
        selected_node: annotation("volume.kubernetes.io/selected-node"),
        selector: label_selector("spec.selector", spec.and_then(|spec| spec.selector.as_ref()))?,
        block: spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block"),
        deleted: meta.deletion_timestamp.is_some(),
        lost: object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
        owner_uid: meta
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.clone()),
    })
}

/// A PersistentVolume.
pub fn volume(object: &core::PersistentVolume) -> Result<PersistentVolume, ConvertError> {
    let meta = &object.metadata;
    let spec = object.spec.as_ref();
    let capacity = spec.and_then(|spec| spec.capacity.as_ref()).and_then(|list| list.get("storage"));
    let affinity = spec
        .and_then(|spec| spec.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref())
        .map(|required| node_selector("spec.nodeAffinity.required", required))
        .transpose()?;
    let class = meta
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class"))
        .or_else(|| spec.and_then(|spec| spec.storage_class_name.as_ref()));
    let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
    Ok(PersistentVolume {
        name: text(meta.name.as_ref()),
        labels: labels(meta.labels.as_ref()),
        class: text(class),
        capacity: capacity.map_or(Ok(0), |amount| units("spec.capacity.storage", amount))?,
        access_modes: spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default(),
        node_affinity: affinity,
        claim: spec
            .and_then(|spec| spec.claim_ref.as_ref())
            .map(|claim| format!("{}/{}", text(claim.namespace.as_ref()), text(claim.name.as_ref()))),
        available: matches!(phase, None | Some("Available" | "Pending")),
        csi: spec
            .and_then(|spec| spec.csi.as_ref())
            .map(|csi| (csi.driver.clone(), csi.volume_handle.clone())),
        block: spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block"),
        deleted: meta.deletion_timestamp.is_some(),
    })
}

/// A StorageClass; without a binding mode it binds at once.
pub fn storage_class(object: &storage::StorageClass) -> StorageClass {
    let default = object
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("storageclass.kubernetes.io/is-default-class"));
    StorageClass {
        name: text(object.metadata.name.as_ref()),
        provisioner: object.provisioner.clone(),
        waits_for_consumer: object.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        allowed_topologies: object.allowed_topologies.iter().flatten().map(topology_term).collect(),
        default: default.is_some_and(|value| value == "true"),
    }
}

/// A VolumeAttachment.
pub fn attachment(object: &storage::VolumeAttachment) -> VolumeAttachment {
    VolumeAttachment {
        name: text(object.metadata.name.as_ref()),
        attacher: object.spec.attacher.clone(),
        node: object.spec.node_name.clone(),
        volume: object.spec.source.persistent_volume_name.clone(),
        attached: object.status.as_ref().is_some_and(|status| status.attached),
    }
}
