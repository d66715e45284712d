//! `plan` reads exactly what `snapshot` writes: nothing that a decision reads is lost or changed in between.

#![expect(clippy::unwrap_used, reason = "a test may fail this way")]

mod buffers;
mod devices;
mod gangs;
mod objects;
mod own;
mod parts;
mod pods;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::node::Node;
use model::snapshot::Inventory;
use model::workload::{CsiNode, Namespace, PriorityClass, VolumeAttachment};
use model::{KubernetesVersion, Snapshot};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use buffers::{capacity_buffer, pod_template, requests};
use devices::{device_class, device_taint_rule, resource_claim, resource_slice};
use gangs::pod_groups;
use objects::{
    budget, claim, controller, csi_driver, node, persistent_volume, storage_capacity, storage_class,
};
use own::{host, machine, memory, power_facts};
use parts::{labels, name, text, time};
use pods::{daemon_set, pod};

/// The snapshot after it was written and read back.
fn returned(written: &Snapshot) -> Snapshot {
    let text = snapshot::write(written).unwrap();
    match snapshot::read(&text) {
        Ok((read, time)) => Snapshot { time: time.unwrap(), ..read },
        Err(error) => {
            panic!("{error}: {:?}\n{text}", std::error::Error::source(&error).map(ToString::to_string))
        }
    }
}

fn some<T: std::fmt::Debug>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<Arc<T>>> {
    vec(one.prop_map(Arc::new), 0..3)
}

fn world() -> impl Strategy<Value = Snapshot> {
    let csi_node = (name(), btree_map(text(), option::of(0..100_i64), 0..3), vec(name(), 0..3))
        .prop_map(|(name, limits, migrated)| CsiNode { name, limits, migrated });
    let attachment = (name(), text(), name(), option::of(name()), any::<bool>()).prop_map(
        |(name, attacher, node, volume, attached)| VolumeAttachment {
            name,
            attacher,
            node,
            volume,
            attached,
        },
    );
    let class = (name(), any::<i32>(), any::<[bool; 2]>()).prop_map(
        |(name, value, [global_default, never_preempts])| PriorityClass {
            name,
            value,
            global_default,
            never_preempts,
        },
    );
    let namespace = (name(), labels()).prop_map(|(name, mut labels)| {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.clone());
        Namespace { name, labels }
    });
    let inventory =
        (option::of(vec(host(), 0..3)), option::of(vec(machine(), 0..3)), option::of(power_facts()))
            .prop_map(|(hosts, machines, power)| Inventory { hosts, machines, templates: Vec::new(), power });
    let workloads = (some(pod()), some(controller()), some(daemon_set()), some(budget()), some(class));
    let storage = (some(persistent_volume()), some(claim()), some(storage_class()), some(attachment));
    let storage = (storage, some(csi_driver()), some(storage_capacity()));
    let devices =
        (some(resource_claim()), some(device_class()), some(resource_slice()), some(device_taint_rule()));
    let version = (30_u32..40).prop_map(|minor| KubernetesVersion { major: 1, minor });
    (
        (time(), version),
        (some(node()), some(csi_node), some(namespace)),
        workloads,
        (storage, devices),
        (inventory, memory(), some(capacity_buffer()), (requests(), pod_groups()), some(pod_template())),
    )
        .prop_map(
            |(
                (time, kubernetes),
                (mut nodes, csi_nodes, namespaces),
                (mut pods, controllers, daemon_sets, budgets, priority_classes),
                (((volumes, claims, storage_classes, attachments), csi_drivers, storage_capacities), devices),
                (proxmox, memory, buffers, (requests, pod_groups), pod_templates),
            )| {
                nodes.sort_by(|a, b| a.name.cmp(&b.name));
                pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
                let (resource_claims, device_classes, resource_slices, device_taint_rules) = devices;
                Snapshot {
                    time,
                    kubernetes,
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
                    requests,
                    pod_groups,
                    pod_templates,
                    proxmox: proxmox.into(),
                    memory,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_snapshot_comes_back_as_it_was(written in world()) {
        prop_assert_eq!(returned(&written), written);
    }
}

/// The Node without the fields that `snapshot` does not write, because no decision reads them.
fn essential(node: &Node) -> Arc<Node> {
    Arc::new(Node {
        uid: String::new(),
        resource_version: String::new(),
        provider_id: None,
        system_uuid: String::new(),
        internal_ips: Vec::new(),
        volumes_attached: Vec::new(),
        ..node.clone()
    })
}

fn fixtures() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.ends_with("cluster.yaml") {
            found.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
        }
    }
    found
}

#[test]
fn every_fixture_comes_back_as_it_was() {
    let fixtures = fixtures();
    assert!(fixtures.len() > 100, "only {} fixtures", fixtures.len());
    for (path, text) in fixtures {
        // Fixtures whose snapshot cannot be read are skipped.
        let Ok((mut read, time)) = snapshot::read(&text) else { continue };
        read.time = time.unwrap_or_default();
        read.nodes = read.nodes.iter().map(|node| essential(node)).collect();
        assert_eq!(returned(&read), read, "{}", path.display());
    }
}

#[test]
fn what_no_decision_reads_is_not_written() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: d, annotations: {note: private-a}}\n\
        spec:\n  containers:\n  - {name: private-b, image: private-c, command: [private-d], env: [{name: A, value: private-e}]}\n\
        ---\napiVersion: v1\nkind: Node\nmetadata: {name: n, resourceVersion: private-1, uid: private-2}\n\
        spec: {providerID: private-3}\nstatus: {addresses: [{type: InternalIP, address: private-4}]}\n";
    let (read, _) = snapshot::read(text).unwrap();
    let written = snapshot::write(&read).unwrap();
    assert!(written.contains("name: p") && written.contains("kind: Node"), "{written}");
    assert!(!written.contains("private"), "{written}");
}
