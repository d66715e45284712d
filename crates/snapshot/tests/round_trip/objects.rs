//! Random nodes, controllers, budgets and storage objects.

use model::Resources;
use model::node::{Condition, Node, Taint};
use model::selector::{LabelSelector, NodeSelector, NodeSelectorTerm, Operator, Requirement};
use model::workload::{
    Controller, CsiDriver, DisruptionBudget, InTreeDisk, InTreeKind, PersistentVolume, StorageCapacity,
    StorageClass, VolumeClaim,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::parts::{
    annotations, bytes, effect, features, labels, name, node_selector, resources, selector, text, time,
};

pub fn node() -> impl Strategy<Value = Node> {
    let taint = (text(), option::of(text()), effect(), option::of(time())).prop_map(
        |(key, value, effect, time_added)| Taint {
            key,
            value: value.unwrap_or_default(),
            effect,
            time_added,
        },
    );
    let condition = (text(), text(), option::of(time()))
        .prop_map(|(kind, status, last_transition)| Condition { kind, status, last_transition });
    let offer = || prop_oneof![resources(0..200_i64, 0), Just(Resources::default())];
    let offers = prop_oneof![(offer(), offer()), offer().prop_map(|both| (both.clone(), both))];
    let times = (option::of(time()), option::of(time()), any::<bool>());
    let states = (times, features());
    (name(), labels(), annotations(), states, vec(taint, 0..3), offers, vec(condition, 0..3)).prop_map(
        |(
            name,
            labels,
            annotations,
            ((created, deleted, unschedulable), features),
            taints,
            offers,
            conditions,
        )| Node {
            name,
            labels,
            annotations,
            created,
            deleted,
            unschedulable,
            taints,
            capacity: offers.0,
            allocatable: offers.1,
            features,
            conditions,
            ..Node::default()
        },
    )
}

pub fn controller() -> impl Strategy<Value = Controller> {
    let kinds = [
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "Deployment"),
        ("v1", "ReplicationController"),
        ("batch/v1", "Job"),
    ];
    let parts = (name(), name(), text(), 0..50_i64, any::<bool>());
    (prop::sample::select(kinds.to_vec()), parts, option::of(selector()), labels()).prop_map(
        |((api_version, kind), (namespace, name, uid, replicas, deleted), selector, labels)| {
            let equal = |(key, value): (String, String)| Requirement {
                key,
                operator: Operator::In,
                values: vec![value],
            };
            let (selector, replicas) = match (kind, selector) {
                ("ReplicationController", Some(_)) if !labels.is_empty() => {
                    (Some(LabelSelector { requirements: labels.into_iter().map(equal).collect() }), replicas)
                }
                ("Job" | "ReplicationController", _) => (None, replicas),
                (_, Some(selector)) if !selector.requirements.is_empty() => (Some(selector), replicas),
                // The API server rejects an empty selector.
                _ => (None, 1),
            };
            Controller {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                namespace,
                name,
                uid,
                replicas,
                selector,
                deleted,
                // Only controllers that a buffer refers to have a template: see [`crate::buffers`].
                template: None,
            }
        },
    )
}

pub fn budget() -> impl Strategy<Value = DisruptionBudget> {
    (name(), name(), option::of(selector()), (0..9_i64, 0..9_i64, 0..9_i64), any::<bool>()).prop_map(
        |(namespace, name, selector, (disruptions_allowed, current, desired), always_allows_unhealthy)| {
            DisruptionBudget {
                namespace,
                name,
                selector,
                disruptions_allowed,
                always_allows_unhealthy,
                healthy: (current, desired),
            }
        },
    )
}

pub fn claim() -> impl Strategy<Value = VolumeClaim> {
    let texts = (name(), name(), option::of(name()), option::of(prop_oneof![name(), Just(String::new())]));
    let more = (option::of(name()), option::of(text()), option::of(selector()), vec(text(), 0..3));
    let further = (maybe(), maybe());
    (texts, more, further, bytes(), any::<[bool; 4]>()).prop_map(
        |(
            (namespace, name, volume, class),
            (selected_node, owner_uid, selector, access_modes),
            (uid, attributes_class),
            request,
            [bound, block, deleted, lost],
        )| VolumeClaim {
            namespace,
            name,
            uid,
            bound: bound && volume.is_some(),
            volume,
            class,
            attributes_class,
            request,
            access_modes,
            selected_node,
            selector,
            block,
            deleted,
            lost,
            owner_uid,
        },
    )
}

pub fn persistent_volume() -> impl Strategy<Value = PersistentVolume> {
    let parts = (name(), labels(), option::of(name()), bytes(), vec(text(), 0..3));
    let bound = (option::of(node_selector()), option::of((name(), name())), option::of((text(), text())));
    let further = (maybe(), maybe(), option::of(in_tree_disk()));
    (parts, bound, further, any::<[bool; 3]>()).prop_map(
        |(
            (name, labels, class, capacity, access_modes),
            (node_affinity, claim, csi),
            (attributes_class, claim_uid, in_tree),
            [available, block, deleted],
        )| {
            PersistentVolume {
                name,
                labels,
                class: class.unwrap_or_default(),
                attributes_class,
                capacity,
                access_modes,
                node_affinity,
                claim_uid: if claim.is_some() { claim_uid } else { String::new() },
                claim: claim.map(|(namespace, name)| format!("{namespace}/{name}")),
                available,
                csi,
                in_tree,
                block,
                deleted,
            }
        },
    )
}

/// A string that may be empty.
fn maybe() -> impl Strategy<Value = String> {
    prop_oneof![name(), Just(String::new())]
}

pub fn in_tree_disk() -> impl Strategy<Value = InTreeDisk> {
    (prop::sample::select(InTreeKind::ALL.to_vec()), text(), any::<bool>()).prop_map(
        |(kind, identity, unmanaged)| InTreeDisk {
            kind,
            identity,
            unmanaged: unmanaged && kind == InTreeKind::AzureDisk,
        },
    )
}

pub fn csi_driver() -> impl Strategy<Value = CsiDriver> {
    (name(), any::<[bool; 2]>()).prop_map(|(name, [storage_capacity, required_on_node])| CsiDriver {
        name,
        storage_capacity,
        required_on_node,
    })
}

pub fn storage_capacity() -> impl Strategy<Value = StorageCapacity> {
    let texts = (name(), name(), text());
    (texts, option::of(selector()), option::of(bytes()), option::of(bytes())).prop_map(
        |((namespace, name, class), nodes, capacity, maximum)| StorageCapacity {
            namespace,
            name,
            class,
            nodes,
            capacity,
            maximum,
        },
    )
}

pub fn storage_class() -> impl Strategy<Value = StorageClass> {
    let one = (text(), vec(text(), 0..3)).prop_map(|(key, values)| Requirement {
        key,
        operator: Operator::In,
        values,
    });
    let topology = vec(one, 0..3).prop_map(|match_expressions| NodeSelector {
        terms: vec![NodeSelectorTerm { match_expressions, match_fields: Vec::new() }],
    });
    (name(), text(), any::<[bool; 2]>(), vec(topology, 0..3)).prop_map(
        |(name, provisioner, [waits_for_consumer, default], allowed_topologies)| StorageClass {
            name,
            provisioner,
            waits_for_consumer,
            allowed_topologies,
            default,
        },
    )
}
