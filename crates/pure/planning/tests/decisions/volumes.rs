//! Volumes: how many a fresh node takes, which CSI drivers it has, and on which hosts there is room for new
//! ones.

use std::fmt::Write;

use model::Plan;
use model::plan::PodOutcome;
use model::snapshot::Memory;
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, pod_verdict};

/// Pool `w` with the additional settings in `own`.
fn pool(own: &str) -> Config {
    let text = format!(
        "[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = {{ cpu = \"4\", memory = \"8Gi\", pods = 10 }}\n{own}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// The StorageClass `block`, and its CSIDriver with these fields.
fn with_driver(cluster: Cluster, driver: &str) -> Cluster {
    let class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: block}\n\
         provisioner: x.csi\nvolumeBindingMode: WaitForFirstConsumer";
    let driver = format!(
        "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {{name: x.csi}}\nspec: {{{driver}}}"
    );
    cluster.with(class).with(&driver)
}

/// The CSINode of this node, with these drivers.
fn csi_node(cluster: Cluster, node: &str, drivers: &str) -> Cluster {
    cluster.with(&format!(
        "apiVersion: storage.k8s.io/v1\nkind: CSINode\nmetadata: {{name: {node}}}\nspec: {{drivers: [{drivers}]}}"
    ))
}

const TWO: &str = "{name: x.csi, nodeID: n, allocatable: {count: 2}}";
const ANY: &str = "{name: x.csi, nodeID: n}";

/// A node of the pool with this many CPUs, created this many minutes ago.
fn node(cluster: Cluster, name: &str, cpu: &str, minutes: i64) -> Cluster {
    let now: jiff::Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let created = now - jiff::SignedDuration::from_mins(minutes);
    cluster.with(&format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, creationTimestamp: \"{created}\", \
         labels: {{pve-autoscaler/pool: w, kubernetes.io/hostname: {name}}}}}\n\
         status: {{allocatable: {{cpu: {cpu}, memory: 8Gi, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}"
    ))
}

/// Adds a pending pod and this many claims that only this pod uses.
fn pod(cluster: Cluster, name: &str, claims: usize, bytes: &str) -> Cluster {
    let mut volumes = String::new();
    let mut cluster = cluster;
    for number in 0..claims {
        let claim = format!("{name}-{number}");
        cluster = cluster.with(&format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {claim}, namespace: d, uid: {claim}}}\n\
             spec: {{accessModes: [ReadWriteOnce], storageClassName: block, resources: {{requests: {{storage: {bytes}}}}}}}"
        ));
        let _ = write!(volumes, "{{name: v{number}, persistentVolumeClaim: {{claimName: {claim}}}}},");
    }
    cluster.with(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
         spec: {{volumes: [{volumes}], containers: [{{name: c, resources: {{requests: {{cpu: 100m}}}}}}]}}"
    ))
}

fn machines(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}

#[test]
fn a_fresh_node_takes_as_many_volumes_as_the_pools_nodes_do() {
    let full = || csi_node(node(with_driver(Cluster::new(), ""), "a", "0", 99), "a", TWO);
    let three = pod(full(), "p", 3, "1Gi");
    assert_eq!(pod_verdict(&three.plan(&pool("")), "d/p"), PodOutcome::NoPoolFits);
    assert_eq!(machines(&pod(full(), "p", 2, "1Gi").plan(&pool(""))), 1);
    // The pool's setting takes precedence over the limit of its nodes.
    assert_eq!(machines(&three.plan(&pool("csi_volumes = { \"x.csi\" = 3 }"))), 1);
    // Each pod has one volume, so each machine gets as many pods as it takes volumes.
    let five = (0..5).fold(full(), |cluster, number| pod(cluster, &format!("p{number}"), 1, "1Gi"));
    assert_eq!(machines(&five.plan(&pool(""))), 3);
    assert_eq!(machines(&five.plan(&pool("csi_volumes = { \"x.csi\" = 4 }"))), 2);
}

#[test]
fn the_limit_is_remembered_once_the_nodes_are_gone() {
    let mut memory = Memory::default();
    let seen = csi_node(node(with_driver(Cluster::new(), ""), "a", "0", 99), "a", TWO).snapshot();
    assert!(planning::learn(&mut memory, &seen, &pool("")));
    assert!(!planning::learn(&mut memory, &seen, &pool("")), "the same snapshot adds nothing new");
    let mut empty = pod(with_driver(Cluster::new(), ""), "p", 3, "1Gi").snapshot();
    assert_eq!(pod_verdict(&planning::plan(&empty, &pool("")), "d/p"), PodOutcome::NewNode);
    empty.memory = memory.clone();
    assert_eq!(pod_verdict(&planning::plan(&empty, &pool("")), "d/p"), PodOutcome::NoPoolFits);
    // A driver that the pool's nodes no longer have is forgotten.
    let without = csi_node(node(with_driver(Cluster::new(), ""), "a", "0", 99), "a", "").snapshot();
    assert!(planning::learn(&mut memory, &without, &pool("")));
    assert!(memory.pools["w"].csi_limits.is_empty());
}

#[test]
fn a_pool_without_nodes_is_taken_to_have_the_drivers_of_other_nodes() {
    let other = "apiVersion: v1\nkind: Node\nmetadata: {name: o}\nstatus: {allocatable: {cpu: 0}}";
    let cluster =
        || csi_node(with_driver(Cluster::new().with(other), "preventPodSchedulingIfMissing: true"), "o", TWO);
    assert_eq!(machines(&pod(cluster(), "p", 2, "1Gi").plan(&pool(""))), 1);
    let three = pod(cluster(), "p", 3, "1Gi").plan(&pool(""));
    assert_eq!(pod_verdict(&three, "d/p"), PodOutcome::NoPoolFits);
}

#[test]
fn a_driver_that_pods_must_not_go_without_is_awaited_on_young_nodes_only() {
    let required = "preventPodSchedulingIfMissing: true";
    let with = |minutes: i64, others: &str| {
        let cluster = with_driver(Cluster::new(), required);
        let cluster = csi_node(node(cluster, "old", "0", 99), "old", others);
        let cluster = csi_node(node(cluster, "new", "4", minutes), "new", "");
        pod_verdict(&pod(cluster, "p", 1, "1Gi").plan(&pool("")), "d/p")
    };
    assert_eq!(with(2, ANY), PodOutcome::ExistingNode, "the driver may still register");
    assert_eq!(with(99, ANY), PodOutcome::NewNode, "the driver has not registered in time");
    assert_eq!(with(99, ""), PodOutcome::NoPoolFits, "no node of the pool has the driver");
    let optional = with_driver(Cluster::new(), "");
    let optional = csi_node(node(optional, "new", "4", 99), "new", "");
    assert_eq!(pod_verdict(&pod(optional, "p", 1, "1Gi").plan(&pool("")), "d/p"), PodOutcome::ExistingNode);
}

/// Hosts `a` and `b`, each in its own zone, and the capacity of the storage in each zone.
fn with_room(a: &str, b: &str) -> Cluster {
    let cluster = with_driver(Cluster::new(), "storageCapacity: true").with(
        "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts:\n- {name: a, cores: 64, memory: 512Gi}\n\
         - {name: b, cores: 64, memory: 256Gi}",
    );
    [("a", a), ("b", b)].into_iter().fold(cluster, |cluster, (zone, capacity)| {
        cluster.with(&format!(
            "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nmetadata: {{name: c-{zone}, namespace: csi}}\n\
             storageClassName: block\nnodeTopology: {{matchLabels: {{topology.kubernetes.io/zone: {zone}}}}}\n{capacity}"
        ))
    })
}

#[test]
fn a_machine_is_made_on_a_host_whose_storage_has_room_for_the_volume() {
    let zoned = pool("labels = { \"topology.kubernetes.io/zone\" = \"{{ host }}\" }");
    let host = |a: &str, b: &str| {
        let plan = pod(with_room(a, b), "p", 1, "10Gi").plan(&zoned);
        let machine = plan.scale_up.first().and_then(|pool| pool.machines.first());
        machine.map_or_else(|| format!("{:?}", pod_verdict(&plan, "d/p")), |machine| machine.host.to_string())
    };
    assert_eq!(host("capacity: 50Gi", "capacity: 50Gi"), "a", "host `a` has the most memory");
    assert_eq!(host("capacity: 5Gi", "capacity: 50Gi"), "b");
    assert_eq!(host("capacity: 50Gi\nmaximumVolumeSize: 5Gi", "capacity: 50Gi"), "b");
    assert_eq!(host("", "capacity: 10Gi"), "b");
    assert_eq!(host("capacity: 5Gi", "capacity: 5Gi"), "NoPoolFits");
}

#[test]
fn a_node_that_no_capacity_covers_is_made_for_no_pod() {
    let plan = pod(with_room("capacity: 50Gi", "capacity: 50Gi"), "p", 1, "10Gi").plan(&pool(""));
    assert_eq!(pod_verdict(&plan, "d/p"), PodOutcome::NoPoolFits);
}

/// The driver's provisioner reports nothing about a zone in which no node runs the driver.
#[test]
fn a_machine_is_made_in_a_zone_whose_room_is_unknown() {
    let zoned = pool("labels = { \"topology.kubernetes.io/zone\" = \"{{ host }}\" }");
    let outcome = |nodes: &[(&str, &str)]| {
        let cluster = with_driver(Cluster::new(), "storageCapacity: true").with(
            "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts:\n\
             - {name: a, cores: 64, memory: 512Gi}\n- {name: b, cores: 64, memory: 256Gi}",
        );
        let cluster = cluster.with(
            "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nmetadata: {name: a, namespace: csi}\n\
             storageClassName: block\nnodeTopology: {matchLabels: {topology.kubernetes.io/zone: a}}\ncapacity: 5Gi",
        );
        let full = |cluster: Cluster, (name, zone): &(&str, &str)| {
            let node = format!(
                "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, creationTimestamp: \"2026-01-01T00:00:00Z\", \
                 labels: {{topology.kubernetes.io/zone: {zone}, kubernetes.io/hostname: {name}}}}}\n\
                 status: {{allocatable: {{cpu: 0, memory: 8Gi, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}"
            );
            csi_node(cluster.with(&node), name, ANY)
        };
        let plan = pod(nodes.iter().fold(cluster, full), "p", 1, "10Gi").plan(&zoned);
        let machine = plan.scale_up.first().and_then(|pool| pool.machines.first());
        machine.map_or_else(|| format!("{:?}", pod_verdict(&plan, "d/p")), |machine| machine.host.to_string())
    };
    assert_eq!(outcome(&[("n1", "a")]), "b", "no node in zone b has the driver yet");
    assert_eq!(
        outcome(&[("n1", "a"), ("n2", "b")]),
        "NoPoolFits",
        "a node in zone b has the driver, which would have reported any room"
    );
}

/// A cluster with one pending pod for each entry of `claims`, and a node whose local disk is enough for one
/// claim. Entries with the same name share a claim.
fn with_local_disk(claims: &[&str]) -> Cluster {
    let cluster = Cluster::new().with(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: block}\n\
         provisioner: kubernetes.io/no-provisioner\nvolumeBindingMode: WaitForFirstConsumer",
    );
    let mut cluster = node(cluster, "n1", "4", 60).with(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\n\
         spec: {capacity: {storage: 10Gi}, accessModes: [ReadWriteOnce], storageClassName: block, local: {path: /a}, \
         nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}}\n\
         status: {phase: Available}",
    );
    for claim in claims.iter().collect::<std::collections::BTreeSet<_>>() {
        cluster = cluster.with(&format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {claim}, namespace: d, uid: {claim}}}\n\
             spec: {{accessModes: [ReadWriteOnce], storageClassName: block, resources: {{requests: {{storage: 1Gi}}}}}}"
        ));
    }
    for (number, claim) in claims.iter().enumerate() {
        cluster = cluster.with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p{number}\n  namespace: d\n  \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
             spec: {{volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}], containers: [{{name: c, resources: {{requests: {{cpu: 100m}}}}}}]}}"
        ));
    }
    cluster
}

#[test]
fn a_volume_is_promised_to_one_claim_and_to_all_pods_with_this_claim() {
    let outcomes = |claims: &[&str]| {
        let plan = with_local_disk(claims).plan(&pool(""));
        let found = plan.pods.iter().filter(|one| one.verdict == PodOutcome::ExistingNode).count();
        let nowhere = plan.pods.iter().filter(|one| one.verdict == PodOutcome::NoPoolFits).count();
        (found, nowhere)
    };
    assert_eq!(outcomes(&["a"]), (1, 0));
    assert_eq!(outcomes(&["a", "b"]), (1, 1));
    assert_eq!(outcomes(&["a", "a"]), (2, 0));
    assert_eq!(outcomes(&["b", "a", "b"]), (2, 1));
}
