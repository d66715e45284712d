//! Converts volumes, volume claims, storage classes and volume attachments.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::selector::{label_selector, node_selector, topology_term};
use super::{ConvertError, labels, limited, text, units};
use model::workload::{
    CsiDriver, InTreeDisk, InTreeKind, PersistentVolume, StorageCapacity, StorageClass, VolumeAttachment,
    VolumeClaim,
};

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
        uid: text(meta.uid.as_ref()),
        bound: volume.is_some() && annotation("pv.kubernetes.io/bind-completed").is_some(),
        volume,
        class: annotation("volume.beta.kubernetes.io/storage-class")
            .or_else(|| spec.and_then(|spec| spec.storage_class_name.clone())),
        attributes_class: text(spec.and_then(|spec| spec.volume_attributes_class_name.as_ref())),
        request: request.map_or(Ok(0), |amount| limited("spec.resources.requests.storage", amount))?,
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
    let claim = spec.and_then(|spec| spec.claim_ref.as_ref());
    Ok(PersistentVolume {
        name: text(meta.name.as_ref()),
        labels: labels(meta.labels.as_ref()),
        class: text(class),
        attributes_class: text(spec.and_then(|spec| spec.volume_attributes_class_name.as_ref())),
        capacity: capacity.map_or(Ok(0), |amount| limited("spec.capacity.storage", amount))?,
        access_modes: spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default(),
        node_affinity: affinity,
        claim: claim.map(|claim| format!("{}/{}", text(claim.namespace.as_ref()), text(claim.name.as_ref()))),
        claim_uid: text(claim.and_then(|claim| claim.uid.as_ref())),
        available: phase == Some("Available"),
        csi: spec
            .and_then(|spec| spec.csi.as_ref())
            .map(|csi| (csi.driver.clone(), csi.volume_handle.clone())),
        in_tree: spec.and_then(in_tree),
        block: spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block"),
        deleted: meta.deletion_timestamp.is_some(),
    })
}

fn in_tree(spec: &core::PersistentVolumeSpec) -> Option<InTreeDisk> {
    let disk = |kind, identity: &str| disk(kind, identity.to_owned());
    if let Some(one) = &spec.aws_elastic_block_store {
        return Some(disk(InTreeKind::AwsElasticBlockStore, &one.volume_id));
    }
    if let Some(one) = &spec.gce_persistent_disk {
        return Some(disk(InTreeKind::GcePersistentDisk, &one.pd_name));
    }
    if let Some(one) = &spec.cinder {
        return Some(disk(InTreeKind::Cinder, &one.volume_id));
    }
    if let Some(one) = &spec.portworx_volume {
        return Some(disk(InTreeKind::PortworxVolume, &one.volume_id));
    }
    spec.azure_disk.as_ref().map(azure_disk)
}

pub(super) fn disk(kind: InTreeKind, identity: String) -> InTreeDisk {
    InTreeDisk { kind, identity, unmanaged: false }
}

/// An Azure disk. If no kind is given, the kind is `Shared`.
pub(super) fn azure_disk(disk: &core::AzureDiskVolumeSource) -> InTreeDisk {
    let managed = disk.kind.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case("Managed"));
    InTreeDisk { kind: InTreeKind::AzureDisk, identity: disk.disk_uri.clone(), unmanaged: !managed }
}

/// A CSIDriver.
pub fn csi_driver(object: &storage::CSIDriver) -> CsiDriver {
    CsiDriver {
        name: text(object.metadata.name.as_ref()),
        storage_capacity: object.spec.storage_capacity == Some(true),
        required_on_node: object.spec.prevent_pod_scheduling_if_missing == Some(true),
    }
}

/// A CSIStorageCapacity.
pub fn storage_capacity(object: &storage::CSIStorageCapacity) -> Result<StorageCapacity, ConvertError> {
    let bytes =
        |field: &str, amount: Option<&Quantity>| amount.map(|amount| units(field, amount)).transpose();
    Ok(StorageCapacity {
        namespace: text(object.metadata.namespace.as_ref()),
        name: text(object.metadata.name.as_ref()),
        class: object.storage_class_name.clone(),
        nodes: label_selector("nodeTopology", object.node_topology.as_ref())?,
        capacity: bytes("capacity", object.capacity.as_ref())?,
        maximum: bytes("maximumVolumeSize", object.maximum_volume_size.as_ref())?,
    })
}

/// Converts a StorageClass. If no binding mode is given, volumes are bound immediately.
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
