//! Devices that are allocated dynamically: which a fresh node has, how many pods it takes, and which nodes may go.

use pve_autoscaler::config::{self, Config, Needs};
use pve_autoscaler::model::Plan;
use pve_autoscaler::model::plan::{NodeOutcome, PodOutcome};
use pve_autoscaler::model::snapshot::Memory;
use pve_autoscaler::planning;

use crate::cluster::{Cluster, pod_verdict};

/// Pool `w`.
fn pool() -> Config {
    let text = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n\
         [[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = { cpu = \"4\", memory = \"8Gi\", pods = 10 }\n";
    config::parse("test", text, Needs::Plan).unwrap()
}

fn with_class(cluster: Cluster) -> Cluster {
    cluster.with(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\n\
         spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: 'device.driver == \"x.example.com\"'}}]}",
    )
}

/// A node of the pool, made so many minutes ago.
fn node(cluster: Cluster, name: &str, minutes: i64) -> Cluster {
    let now: jiff::Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let created = now - jiff::SignedDuration::from_mins(minutes);
    cluster.with(&format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, creationTimestamp: \"{created}\", \
         annotations: {{pve-autoscaler/unneeded-since: 2026-01-01T10:00:00Z}}, \
         labels: {{pve-autoscaler/pool: w, kubernetes.io/hostname: {name}}}}}\n\
         status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}"
    ))
}

/// What a driver publishes for a node.
fn slice(cluster: Cluster, node: &str, devices: &str) -> Cluster {
    cluster.with(&format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: {node}-x}}\n\
         spec: {{driver: x.example.com, nodeName: {node}, devices: [{devices}],\n\
         pool: {{name: {node}, generation: 1, resourceSliceCount: 1}}}}"
    ))
}

const TWO: &str = "{name: gpu-0}, {name: gpu-1}";

/// A pod with a claim of its own, on a node and with this device if they are named.
fn pod(cluster: Cluster, name: &str, at: &str, device: &str) -> Cluster {
    let node = if at.is_empty() { String::new() } else { format!("nodeName: {at}, ") };
    let allocated = if device.is_empty() {
        String::new()
    } else {
        format!(
            "\nstatus: {{allocation: {{devices: {{results: [{{request: r, driver: x.example.com, pool: {at}, device: {device}}}]}}, \
             nodeSelector: {{nodeSelectorTerms: [{{matchFields: [{{key: metadata.name, operator: In, values: [{at}]}}]}}]}}}}, \
             reservedFor: [{{resource: pods, name: {name}, uid: {name}}}]}}"
        )
    };
    let phase =
        if at.is_empty() { "" } else { "phase: Running, conditions: [{type: Ready, status: \"True\"}], " };
    cluster
        .with(&format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n\
             metadata: {{name: {name}-g, namespace: d, ownerReferences: [{{apiVersion: v1, kind: Pod, name: {name}, uid: {name}, controller: true}}]}}\n\
             spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu}}}}]}}}}{allocated}"
        ))
        .with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  uid: {name}\n  \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
             spec: {{{node}containers: [{{name: c, resources: {{requests: {{cpu: 100m}}}}}}], \
             resourceClaims: [{{name: g, resourceClaimTemplateName: gpu}}]}}\n\
             status: {{{phase}resourceClaimStatuses: [{{name: g, resourceClaimName: {name}-g}}]}}"
        ))
}

fn machines(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}

/// A node whose devices are all in use.
fn full() -> Cluster {
    let cluster = slice(node(with_class(Cluster::new()), "a", 99), "a", TWO);
    pod(pod(cluster, "one", "a", "gpu-0"), "two", "a", "gpu-1")
}

#[test]
fn a_fresh_node_takes_as_many_pods_with_claims_as_the_pools_nodes_have_devices() {
    let three = ["x", "y", "z"].into_iter().fold(full(), |all, name| pod(all, name, "", ""));
    let plan = three.plan(&pool());
    assert_eq!(pod_verdict(&plan, "d/z"), PodOutcome::NewNode);
    assert_eq!(machines(&plan), 2, "two devices each");
    // Devices that are free are taken first.
    let one_free = pod(slice(node(with_class(Cluster::new()), "a", 99), "a", TWO), "one", "a", "gpu-0");
    let two = pod(pod(one_free, "x", "", ""), "y", "", "");
    let plan = two.plan(&pool());
    assert_eq!(machines(&plan), 1);
    assert_eq!(pod_verdict(&plan, "d/x"), PodOutcome::ExistingNode);
}

#[test]
fn a_pool_whose_nodes_have_no_such_device_gets_no_machine() {
    let plan = pod(node(with_class(Cluster::new()), "a", 99), "x", "", "").plan(&pool());
    assert_eq!((machines(&plan), pod_verdict(&plan, "d/x")), (0, PodOutcome::NoPoolFits));
    let why = &plan.pods[0].reasons[0];
    assert_eq!(why.message, "d/x-g, request r: wants 1 device of class gpu, none match here");
}

#[test]
fn devices_of_nodes_that_are_gone_are_remembered() {
    let mut memory = Memory::default();
    assert!(planning::learn(&mut memory, &full().snapshot(), &pool()));
    assert_eq!(memory.pools["w"].device_slices.len(), 1);
    assert!(!planning::learn(&mut memory, &full().snapshot(), &pool()), "nothing new");
    let three =
        ["x", "y", "z"].into_iter().fold(with_class(Cluster::new()), |all, name| pod(all, name, "", ""));
    let mut snapshot = three.snapshot();
    assert_eq!(machines(&planning::plan(&snapshot, &pool())), 0);
    snapshot.memory = memory.clone();
    assert_eq!(machines(&planning::plan(&snapshot, &pool())), 2);
    // An old node without any says that the pool's nodes have none by now.
    let without = node(with_class(Cluster::new()), "b", 99).snapshot();
    assert!(planning::learn(&mut memory, &without, &pool()));
    assert!(memory.pools["w"].device_slices.is_empty());
}

#[test]
fn a_young_node_is_waited_for_until_its_driver_has_published() {
    let waiting = |minutes| pod(node(full(), "b", minutes), "x", "", "");
    let plan = waiting(2).plan(&pool());
    assert_eq!((machines(&plan), pod_verdict(&plan, "d/x")), (0, PodOutcome::ExistingNode));
    assert_eq!(machines(&waiting(99).plan(&pool())), 1);
}

#[test]
fn what_is_wrong_with_one_device_is_not_expected_of_others() {
    let tainted = |devices: &str| {
        let cluster = slice(node(with_class(Cluster::new()), "a", 99), "a", devices);
        machines(&pod(cluster, "x", "", "").plan(&pool()))
    };
    let bad = "taints: [{key: broken, effect: NoSchedule}]";
    // The other device is taken by nobody, but too small a node would be no reason for a machine.
    assert_eq!(tainted(&format!("{{name: gpu-0, {bad}}}")), 0, "all have the taint: the driver means it");
    let one_left = slice(
        node(with_class(Cluster::new()), "a", 99),
        "a",
        &format!("{{name: gpu-0}}, {{name: gpu-1, {bad}}}"),
    );
    let two = ["x", "y", "z"]
        .into_iter()
        .fold(pod(one_left, "one", "a", "gpu-0"), |all, name| pod(all, name, "", ""));
    assert_eq!(machines(&two.plan(&pool())), 2);
}

#[test]
fn a_node_goes_only_if_claims_of_its_pods_can_be_allocated_elsewhere() {
    let cluster = |free: &str| {
        let cluster = slice(node(with_class(Cluster::new()), "a", 99), "a", "{name: gpu-0}");
        let cluster = slice(node(cluster, "b", 99), "b", free);
        pod(pod(cluster, "one", "a", "gpu-0"), "two", "b", "gpu-0")
    };
    let goes = |cluster: Cluster| {
        let plan = cluster.plan(&pool());
        plan.nodes.iter().filter(|one| one.verdict == NodeOutcome::Remove).count()
    };
    assert_eq!(goes(cluster("{name: gpu-0}, {name: gpu-1}")), 1);
    assert_eq!(goes(cluster("{name: gpu-0}")), 0, "there is no other device");
}

#[test]
fn extended_resources_are_served_by_devices_of_a_fresh_node() {
    let asks = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  namespace: d\n  uid: x\n  \
         ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}]\n\
         spec: {containers: [{name: c, resources: {requests: {example.com/gpu: 2}, limits: {example.com/gpu: 2}}}]}";
    assert_eq!(machines(&full().with(asks).plan(&pool())), 1);
    let three = asks.replace("gpu: 2", "gpu: 3");
    assert_eq!(machines(&full().with(&three).plan(&pool())), 0);
}
