//! Volumes, claims, storage classes, CSI drivers, storage capacities and attachments.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::Fields;
use super::selector::{label_selector, node_selector};
use model::quantity;
use model::selector::NodeSelector;
use model::workload::{
    CsiDriver, InTreeDisk, InTreeKind, PersistentVolume, StorageCapacity, StorageClass, VolumeAttachment,
    VolumeClaim,
};

/// A PersistentVolumeClaim. The time of its deletion is not known, so `now` is written if the claim is being
/// deleted.
pub(super) fn claim(claim: &VolumeClaim, now: Timestamp) -> Value {
    let annotations = Fields::default()
        .when(claim.bound, "pv.kubernetes.io/bind-completed", "yes")
        .some("volume.kubernetes.io/selected-node", claim.selected_node.as_deref());
    let owner = |uid: &String| Fields::default().with("uid", uid.as_str()).with("controller", true);
    let metadata = Fields::named(&claim.namespace, &claim.name)
        .text("uid", &claim.uid)
        .part("annotations", annotations)
        .time("deletionTimestamp", claim.deleted.then_some(now))
        .list("ownerReferences", claim.owner_uid.iter().map(owner));
    let requests = Fields::default().with("storage", quantity::binary(claim.request));
    let spec = Fields::default()
        .some("volumeName", claim.volume.as_deref())
        .some("storageClassName", claim.class.as_deref())
        .text("volumeAttributesClassName", &claim.attributes_class)
        .when(claim.request != 0, "resources", Fields::default().with("requests", requests))
        .list("accessModes", claim.access_modes.iter().map(String::as_str))
        .some("selector", claim.selector.as_ref().map(label_selector))
        .when(claim.block, "volumeMode", "Block");
    let status = Fields::default().when(claim.lost, "phase", "Lost");
    Fields::object("v1", "PersistentVolumeClaim")
        .part("metadata", metadata)
        .part("spec", spec)
        .part("status", status)
        .into()
}

/// A PersistentVolume. The time of its deletion is not known, so `now` is written if the volume is being
/// deleted.
pub(super) fn volume(volume: &PersistentVolume, now: Timestamp) -> Value {
    let metadata = Fields::named("", &volume.name)
        .labels("labels", &volume.labels)
        .time("deletionTimestamp", volume.deleted.then_some(now));
    let required = |selector| Fields::default().with("required", node_selector(selector));
    let claim = volume.claim.as_deref().map(|claim| {
        let (namespace, name) = claim.split_once('/').unwrap_or(("", claim));
        Fields::named(namespace, name).text("uid", &volume.claim_uid)
    });
    let csi = |(driver, handle): &(String, String)| {
        Fields::default().with("driver", driver.as_str()).with("volumeHandle", handle.as_str())
    };
    let capacity = Fields::default().with("storage", quantity::binary(volume.capacity));
    let spec = Fields::default()
        .text("storageClassName", &volume.class)
        .text("volumeAttributesClassName", &volume.attributes_class)
        .when(volume.capacity != 0, "capacity", capacity)
        .list("accessModes", volume.access_modes.iter().map(String::as_str))
        .some("nodeAffinity", volume.node_affinity.as_ref().map(required))
        .some("claimRef", claim)
        .some("csi", volume.csi.as_ref().map(csi))
        .when(volume.block, "volumeMode", "Block");
    let spec = match &volume.in_tree {
        Some(disk) => spec.with(disk.kind.field(), in_tree(disk)),
        None => spec,
    };
    let status = Fields::default().with("phase", if volume.available { "Available" } else { "Bound" });
    Fields::object("v1", "PersistentVolume")
        .part("metadata", metadata)
        .part("spec", spec)
        .part("status", status)
        .into()
}

/// The fields that identify an in-tree disk, in the source of a volume.
pub(super) fn in_tree(disk: &InTreeDisk) -> Fields {
    let source = Fields::default().with(disk.kind.identity_field(), disk.identity.as_str());
    match disk.kind {
        InTreeKind::AzureDisk => {
            source.with("diskName", "disk").with("kind", if disk.unmanaged { "Shared" } else { "Managed" })
        }
        _ => source,
    }
}

fn topologies(selector: &NodeSelector) -> impl Iterator<Item = Fields> {
    selector.terms.iter().map(|term| {
        let expressions = term.match_expressions.iter().map(|one| {
            Fields::default()
                .with("key", one.key.as_str())
                .list("values", one.values.iter().map(String::as_str))
        });
        Fields::default().list("matchLabelExpressions", expressions)
    })
}

/// A StorageClass.
pub(super) fn storage_class(class: &StorageClass) -> Value {
    let default =
        Fields::default().when(class.default, "storageclass.kubernetes.io/is-default-class", "true");
    Fields::object("storage.k8s.io/v1", "StorageClass")
        .part("metadata", Fields::named("", &class.name).part("annotations", default))
        .with("provisioner", class.provisioner.as_str())
        .with(
            "volumeBindingMode",
            if class.waits_for_consumer { "WaitForFirstConsumer" } else { "Immediate" },
        )
        .list("allowedTopologies", class.allowed_topologies.iter().flat_map(topologies))
        .into()
}

/// A CSIDriver.
pub(super) fn csi_driver(driver: &CsiDriver) -> Value {
    let spec = Fields::default().when(driver.storage_capacity, "storageCapacity", true).when(
        driver.required_on_node,
        "preventPodSchedulingIfMissing",
        true,
    );
    Fields::object("storage.k8s.io/v1", "CSIDriver")
        .part("metadata", Fields::named("", &driver.name))
        .with("spec", spec)
        .into()
}

/// A CSIStorageCapacity.
pub(super) fn storage_capacity(capacity: &StorageCapacity) -> Value {
    Fields::object("storage.k8s.io/v1", "CSIStorageCapacity")
        .part("metadata", Fields::named(&capacity.namespace, &capacity.name))
        .with("storageClassName", capacity.class.as_str())
        .some("nodeTopology", capacity.nodes.as_ref().map(label_selector))
        .some("capacity", capacity.capacity.map(quantity::binary))
        .some("maximumVolumeSize", capacity.maximum.map(quantity::binary))
        .into()
}

/// A VolumeAttachment.
pub(super) fn attachment(attachment: &VolumeAttachment) -> Value {
    let source = Fields::default().some("persistentVolumeName", attachment.volume.as_deref());
    let spec = Fields::default()
        .with("attacher", attachment.attacher.as_str())
        .with("nodeName", attachment.node.as_str())
        .with("source", source);
    Fields::object("storage.k8s.io/v1", "VolumeAttachment")
        .part("metadata", Fields::named("", &attachment.name))
        .part("spec", spec)
        .with("status", Fields::default().with("attached", attachment.attached))
        .into()
}
