//! Converts Nodes, CSINodes and namespaces.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;

use super::{ConvertError, known_annotations, labels, resources, text, time};
use model::features::Features;
use model::node::{Condition, Node, Taint, TaintEffect};
use model::workload::{CsiNode, Namespace};

pub(super) fn effect(field: &str, word: &str) -> Result<TaintEffect, ConvertError> {
    Ok(match word {
        "NoSchedule" => TaintEffect::NoSchedule,
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        _ => return Err(ConvertError::Word { field: field.to_owned(), value: word.to_owned() }),
    })
}

/// Converts a Node. If `status.allocatable` is missing, `status.capacity` is used instead, which is the API
/// server's default.
pub fn node(object: &core::Node) -> Result<Node, ConvertError> {
    let meta = &object.metadata;
    let spec = object.spec.as_ref();
    let status = object.status.as_ref();
    let taints = spec
        .and_then(|spec| spec.taints.as_ref())
        .into_iter()
        .flatten()
        .map(|taint| {
            Ok(Taint {
                key: taint.key.clone(),
                value: text(taint.value.as_ref()),
                effect: effect("spec.taints[].effect", &taint.effect)?,
                time_added: time(taint.time_added.as_ref()),
            })
        })
        .collect::<Result<_, ConvertError>>()?;
    let capacity = resources("status.capacity", status.and_then(|status| status.capacity.as_ref()))?;
    let allocatable = match status.and_then(|status| status.allocatable.as_ref()) {
        Some(list) => resources("status.allocatable", Some(list))?,
        None => capacity.clone(),
    };
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let declared = status.and_then(|status| status.declared_features.as_ref()).into_iter().flatten();
    let attached = status.and_then(|status| status.volumes_attached.as_ref()).into_iter().flatten();
    Ok(Node {
        name: text(meta.name.as_ref()),
        uid: text(meta.uid.as_ref()),
        resource_version: text(meta.resource_version.as_ref()),
        labels: labels(meta.labels.as_ref()),
        annotations: known_annotations(meta),
        created: time(meta.creation_timestamp.as_ref()),
        deleted: time(meta.deletion_timestamp.as_ref()),
        unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
        taints,
        provider_id: spec.and_then(|spec| spec.provider_id.clone()),
        system_uuid: status
            .and_then(|status| status.node_info.as_ref())
            .map(|info| info.system_uuid.to_lowercase())
            .unwrap_or_default(),
        internal_ips: addresses
            .filter(|one| one.type_ == "InternalIP")
            .map(|one| one.address.clone())
            .collect(),
        capacity,
        allocatable,
        features: Features::named(declared.map(String::as_str)),
        conditions: conditions
            .map(|one| Condition {
                kind: one.type_.clone(),
                status: one.status.clone(),
                last_transition: time(one.last_transition_time.as_ref()),
            })
            .collect(),
        volumes_attached: attached.map(|one| one.name.clone()).collect(),
        replaced: None,
    })
}

/// A CSINode.
pub fn csi_node(object: &storage::CSINode) -> CsiNode {
    let limit = |driver: &storage::CSINodeDriver| {
        driver.allocatable.as_ref().and_then(|limits| limits.count).map(i64::from)
    };
    let annotations = object.metadata.annotations.as_ref();
    let migrated = annotations.and_then(|all| all.get("storage.alpha.kubernetes.io/migrated-plugins"));
    CsiNode {
        name: text(object.metadata.name.as_ref()),
        migrated: migrated
            .into_iter()
            .flat_map(|plugins| plugins.split(','))
            .filter(|plugin| !plugin.is_empty())
            .map(ToOwned::to_owned)
            .collect(),
        limits: object.spec.drivers.iter().map(|driver| (driver.name.clone(), limit(driver))).collect(),
    }
}

/// Converts a Namespace, and adds the name label that the API server adds to each namespace.
pub fn namespace(object: &core::Namespace) -> Namespace {
    let name = text(object.metadata.name.as_ref());
    let mut labels = labels(object.metadata.labels.as_ref());
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.clone());
    Namespace { name, labels }
}
