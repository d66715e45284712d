//! Tests the daemon together with the Proxmox VE cloud controller manager and the Proxmox CSI plugin.
//! Machines are created on hosts whose storage has room, and the real scheduler binds pods with claims to the
//! new nodes.
//!
//! Neither program can be built from published modules, so the test imitates both. It creates the objects
//! that the plugin's chart and sidecars (0.19.1) and the cloud controller manager (0.13.1) create, and
//! changes Nodes in the same order.

use std::time::Duration;

use serde_json::{Value, json};
use world::kubernetes::samples;

use crate::real::Real;
use crate::shared::bench::{Bench, Kubernetes as _, POOL, cluster};

const DRIVER: &str = "csi.proxmox.sinextra.dev";
const CLASS: &str = "proxmox-lvm";
/// The taint of a new Node that a cloud controller manager has not initialized yet.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The settings that `docs/guides/cloud-controller.md` recommends.
const SETTINGS: &str = r#"
provider_id = "proxmox://west/{{ vmid }}"
labels = { "topology.kubernetes.io/region" = "west", "topology.kubernetes.io/zone" = "{{ host }}" }
kubelet_args = { cloud-provider = "external" }
"#;

/// The objects that the chart installs, and the capacity that the provisioner publishes for each host.
fn installed() -> Vec<Value> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": CLASS },
        "provisioner": DRIVER, "allowVolumeExpansion": true,
        "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
        "parameters": { "storage": "local-lvm", "csi.storage.k8s.io/fstype": "ext4" },
    });
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
        "spec": {
            "attachRequired": true, "podInfoOnMount": true, "storageCapacity": true,
            "volumeLifecycleModes": ["Persistent"],
        },
    });
    let capacity = |host: &str, room: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": { "name": format!("csisc-{host}"), "namespace": "kube-system" },
            "storageClassName": CLASS, "capacity": room,
            "nodeTopology": { "matchLabels": topology(host) },
        })
    };
    vec![class, driver, capacity("pve1", "2Gi"), capacity("pve2", "200Gi"), capacity("pve3", "2Gi")]
}

fn topology(host: &str) -> Value {
    json!({ "topology.kubernetes.io/region": "west", "topology.kubernetes.io/zone": host })
}

/// A claim, and a Deployment with one pod that uses it.
fn with_claim(name: &str, size: &str) -> [Value; 2] {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "resources": { "requests": { "storage": size } },
        },
    });
    let mut deployment = samples::deployment(name, 1, "500m", "512Mi");
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]);
    pod["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    [claim, deployment]
}

/// The volume that the provisioner creates on a host for the claim.
fn volume(claim: &Value, host: &str) -> Value {
    let expression = |key: &str, value: &Value| json!({ "key": key, "operator": "In", "values": [value] });
    let terms: Vec<Value> =
        topology(host).as_object().unwrap().iter().map(|(key, value)| expression(key, value)).collect();
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": "pvc-data", "annotations": { "pv.kubernetes.io/provisioned-by": DRIVER } },
        "spec": {
            "capacity": claim["spec"]["resources"]["requests"], "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS, "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {
                "kind": "PersistentVolumeClaim", "namespace": "default",
                "name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"],
            },
            "csi": { "driver": DRIVER, "volumeHandle": format!("west/{host}/local-lvm/vm-9999-pvc-data") },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": terms }] } },
        },
    })
}

impl Real {
    async fn claim(&self, name: &str) -> Value {
        self.admin.get(&format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}")).await.unwrap()
    }

    /// Initializes a new Node like the cloud controller manager: adds labels and removes the taint.
    async fn initialize(&self, node: &str, host: &str) {
        let labels = [
            "node.kubernetes.io/instance-type=2VCPU-4GB".to_owned(),
            "failure-domain.beta.kubernetes.io/region=west".to_owned(),
            format!("failure-domain.beta.kubernetes.io/zone={host}"),
            "topology.proxmox.sinextra.dev/region=west".to_owned(),
            format!("topology.proxmox.sinextra.dev/zone={host}"),
        ];
        let words = ["label", "node", node].into_iter().chain(labels.iter().map(String::as_str));
        self.admin.kubectl(&words.collect::<Vec<_>>(), "").await.unwrap();
        self.admin.kubectl(&["taint", "node", node, &format!("{UNINITIALIZED}-")], "").await.unwrap();
    }

    /// Creates the CSINode that the kubelet writes once the plugin's pod has registered on the node.
    async fn register_driver(&self, node: &Value, vmid: u32) {
        let name = node["metadata"]["name"].as_str().unwrap();
        let driver = json!({
            "name": DRIVER, "nodeID": format!("{name}/{vmid}"), "allocatable": { "count": 24 },
            "topologyKeys": ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"],
        });
        let owner =
            json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"] });
        self.apply(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": { "name": name, "ownerReferences": [owner] },
            "spec": { "drivers": [driver] },
        }))
        .await;
    }

    /// Imitates the provisioner: creates the claim's volume once the scheduler has chosen this node.
    async fn provision(&self, name: &str, node: &str, host: &str) {
        let chosen =
            format!("--for=jsonpath={{.metadata.annotations.volume\\.kubernetes\\.io/selected-node}}={node}");
        let words = ["-n", "default", "wait", "pvc", name, &chosen, "--timeout=90s"];
        self.admin.kubectl(&words, "").await.unwrap();
        self.apply(&volume(&self.claim(name).await, host)).await;
    }

    /// Removes all objects of this test that `clear` does not remove.
    async fn forget_volumes(&self) {
        let all = [
            "pvc/data -n default",
            "pvc/huge -n default",
            "pv/pvc-data",
            &format!("sc/{CLASS}"),
            &format!("csidriver/{DRIVER}"),
            "csistoragecapacities --all -n kube-system",
            "volumeattachments --all",
        ];
        for one in all {
            let words = ["delete", "--ignore-not-found", "--wait=false"].into_iter().chain(one.split(' '));
            self.admin.kubectl(&words.collect::<Vec<_>>(), "").await.unwrap();
        }
    }
}

/// The node that a Deployment's pod is bound to.
fn bound(bench: &Bench<Real>, name: &str) -> Option<String> {
    let pods = bench.kube.list("Pod");
    let of = pods.iter().find(|pod| pod["metadata"]["labels"]["app"] == name);
    of.and_then(|pod| pod["spec"]["nodeName"].as_str()).map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_brings_a_machine_where_the_storage_has_room() {
    let Some(mut bench) = Bench::<Real>::idle(cluster(), &format!("{POOL}{SETTINGS}")).await else { return };
    for object in installed() {
        bench.kube.apply(&object).await;
    }
    bench.start().await;
    for object in with_claim("huge", "1Ti") {
        bench.kube.apply(&object).await;
    }
    let none = |bench: &Bench<Real>| bench.vms().is_empty();
    bench
        .throughout(
            "no machine is created for a claim that no host has room for",
            Duration::from_secs(5),
            none,
        )
        .await;

    for object in with_claim("data", "10Gi") {
        bench.kube.apply(&object).await;
    }
    bench.until("a node is ready", |bench| bench.nodes("workers").len() == 1).await;
    assert_eq!(bench.proxmox.pve.vm(9100).unwrap().node, "pve2", "only this host's storage has room");
    let name = bench.nodes("workers").remove(0);
    let nodes = bench.kube.list("Node");
    let node = nodes.iter().find(|node| node["metadata"]["name"] == *name).unwrap();
    assert_eq!(node["spec"]["providerID"], "proxmox://west/9100");
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "pve2");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    assert!(taints.iter().any(|taint| taint["key"] == UNINITIALIZED), "{taints:?}");
    let waiting = |bench: &Bench<Real>| bench.vms().len() == 1 && bound(bench, "data").is_none();
    bench
        .throughout("the pod waits for the one node to be initialized", Duration::from_secs(5), waiting)
        .await;

    bench.kube.initialize(&name, "pve2").await;
    bench.kube.register_driver(node, 9100).await;
    bench.kube.provision("data", &name, "pve2").await;
    bench.until("the pod is bound", |bench| bound(bench, "data").as_ref() == Some(&name)).await;
    assert_eq!(bench.vms(), [9100], "one machine was enough");
    bench.kube.scale("data", 0).await;
    bench.kube.scale("huge", 0).await;
    // No attacher runs in this test to detach the volume, and the daemon would wait for the detachment before
    // it stops the VM. Therefore, the attachment is deleted here, once the pod is gone.
    bench.until("the pod is gone", |bench| bound(bench, "data").is_none()).await;
    bench.kube.forget_volumes().await;
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
}
