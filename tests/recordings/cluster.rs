//! A cluster of any size whose pods come and go.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pve_autoscaler::model::Snapshot;
use pve_autoscaler::model::pod::Pod;
use pve_autoscaler::snapshot;
use serde_json::{Value, json};

const GIB: i64 = 1 << 30;

/// A cluster, and its current time.
pub struct Cluster {
    now: Snapshot,
    /// The time of the next round.
    pub time: Timestamp,
    made: usize,
    random: fastrand::Rng,
}

impl Cluster {
    /// A cluster with this many nodes and pods.
    pub fn new(nodes: usize, pods: usize) -> Self {
        let mut objects = vec![
            json!({"apiVersion": "pve-autoscaler/v1", "kind": "KubernetesCluster", "version": "1.37"}),
            inventory(nodes),
        ];
        objects.extend((0..nodes).map(node));
        objects.extend((0..pods).map(|number| pod(number, number % nodes)));
        let text: String = objects.iter().fold(String::new(), |text, one| text + &one.to_string() + "\n");
        let (now, _) = snapshot::read(&text).unwrap();
        let time = "2026-11-21T00:00:00Z".parse().unwrap();
        Self { now, time, made: pods, random: fastrand::Rng::with_seed(7) }
    }

    /// The cluster ten seconds later: one pod has been replaced by a new one, one has become ready or
    /// unready, and the hosts report other figures.
    pub fn next_round(&mut self) -> Snapshot {
        self.now.time = self.time;
        self.now.memory.name_seed = self.random.u64(..);
        self.now.memory.last_round = self.time.checked_sub(SignedDuration::from_secs(10)).ok();
        for host in Arc::make_mut(&mut self.now.proxmox).hosts.iter_mut().flatten() {
            host.memory_used = host.memory / 2 + self.random.i64(0..GIB);
            for storage in host.storage.values_mut() {
                storage.used += self.random.i64(0..1 << 20);
            }
        }
        let gone = self.random.usize(..self.now.pods.len());
        let node = self.random.usize(..self.now.nodes.len());
        self.now.pods[gone] = read(&pod(self.made, node));
        self.made += 1;
        let touched = self.random.usize(..self.now.pods.len());
        Arc::make_mut(&mut self.now.pods[touched]).ready ^= true;
        self.time += SignedDuration::from_secs(10);
        self.now.clone()
    }
}

fn read(pod: &Value) -> Arc<Pod> {
    snapshot::read(&pod.to_string()).unwrap().0.pods.remove(0)
}

fn inventory(nodes: usize) -> Value {
    let hosts = (0..5).map(|number| {
        json!({"name": format!("pve{number}"), "cores": 64, "memory": "512Gi",
            "storage": {"local-lvm": {"total": 2_000_000_000_000_i64, "used": 1_000_000_000_000_i64}}})
    });
    let machines = (0..nodes).map(|number| {
        json!({"name": format!("workers-{number}"), "pool": "workers", "vmid": 9100 + number,
            "host": format!("pve{}", number % 5), "cores": 8, "memory": "32Gi", "phase": "Ready",
            "since": "2026-11-20T00:00:00Z", "node": format!("workers-{number}")})
    });
    json!({"apiVersion": "pve-autoscaler/v1", "kind": "ProxmoxInventory",
        "hosts": hosts.collect::<Vec<_>>(), "machines": machines.collect::<Vec<_>>()})
}

fn node(number: usize) -> Value {
    let name = format!("workers-{number}");
    let amounts = json!({"cpu": "8", "memory": "31Gi", "pods": "110", "ephemeral-storage": "40Gi"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "pve-autoscaler/pool": "workers", "kubernetes.io/os": "linux"}},
        "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn pod(number: usize, node: usize) -> Value {
    let (app, uid) = (number % 40, fastrand::Rng::with_seed(number as u64).u128(..));
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": format!("app-{app}-{:x}", uid >> 100), "uid": format!("{uid:032x}"),
            "labels": {"app": format!("app-{app}"), "pod-template-hash": format!("{:x}", app * 77_777)},
            "creationTimestamp": "2026-11-21T00:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("app-{app}"),
                "uid": format!("{app:08}-0000-4000-8000-000000000000"), "controller": true}]},
        "spec": {"nodeName": format!("workers-{node}"),
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": format!("app-{app}")}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "True"}]}})
}
