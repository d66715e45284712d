//! Dynamic resource allocation: which devices a fresh node has, how many pods can use them, and which nodes
//! may be removed.

use model::plan::{NodeOutcome, PodOutcome};
use model::snapshot::Memory;
use model::{Plan, Vmid};
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, of_pool, pod_verdict};

/// Pool `w`.
fn pool() -> Config {
    let text = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n\
         [[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = { cpu = \"4\", memory = \"8Gi\", pods = 10 }\n";
    settings::parse("test", text, Needs::Plan).unwrap()
}

fn with_class(cluster: Cluster) -> Cluster {
    cluster.with(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\n\
         spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: 'device.driver == \"x.example.com\"'}}]}",
    )
}

/// A node of the pool, created this many minutes ago.
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

/// A pod with its own claim. If `at` and `device` are set, the pod runs on that node and its claim has that
/// device.
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
    // Free devices of existing nodes are used first.
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
    let why = &plan.pods[0].reasons()[0];
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
    // An old node without devices shows that the pool's nodes no longer have any.
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
    assert_eq!(
        tainted(&format!("{{name: gpu-0, {bad}}}")),
        0,
        "a new node's devices would have the taint too"
    );
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
    assert_eq!(goes(cluster("{name: gpu-0}")), 0, "no other device is free");
}

/// A running pod whose claim, made from this template, holds these devices of the node. If `moves` is false,
/// the pod has no controller and therefore keeps its node.
fn holding(
    cluster: Cluster,
    name: &str,
    at: &str,
    (template, devices): (&str, &[&str]),
    moves: bool,
) -> Cluster {
    let results: Vec<String> = devices
        .iter()
        .map(|device| format!("{{request: r, driver: x.example.com, pool: {at}, device: {device}}}"))
        .collect();
    let owner =
        "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}]";
    let owner = if moves { owner } else { "labels: {}" };
    cluster
        .with(&format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n\
             metadata: {{name: {name}-g, namespace: d, ownerReferences: [{{apiVersion: v1, kind: Pod, name: {name}, uid: {name}, controller: true}}]}}\n\
             spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu, count: {}}}}}]}}}}\n\
             status: {{allocation: {{devices: {{results: [{}]}}, nodeSelector: {{nodeSelectorTerms: [{{matchFields: [{{key: metadata.name, operator: In, values: [{at}]}}]}}]}}}}, \
             reservedFor: [{{resource: pods, name: {name}, uid: {name}}}]}}",
            devices.len(),
            results.join(", ")
        ))
        .with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  uid: {name}\n  {owner}\n\
             spec: {{nodeName: {at}, containers: [{{name: c, resources: {{requests: {{cpu: 100m}}}}}}], \
             resourceClaims: [{{name: g, resourceClaimTemplateName: {template}}}]}}\n\
             status: {{phase: Running, conditions: [{{type: Ready, status: \"True\"}}], resourceClaimStatuses: [{{name: g, resourceClaimName: {name}-g}}]}}"
        ))
}

#[test]
fn a_pod_that_needs_more_devices_hides_no_room_from_one_that_needs_fewer() {
    let three = "{name: gpu-0}, {name: gpu-1}, {name: gpu-2}";
    let mut cluster = with_class(Cluster::new());
    for (name, devices) in [("a", TWO), ("b", three), ("c", three)] {
        cluster = slice(node(cluster, name, 99), name, devices);
    }
    // Nodes `a` and `b` stay. Node `a` has one free device, and `b` has two.
    let cluster = holding(cluster, "one", "a", ("gpu", &["gpu-0"]), false);
    let cluster = holding(cluster, "two", "b", ("gpu", &["gpu-0"]), false);
    let goes = |cluster: Cluster| {
        let plan = cluster.plan(&pool());
        plan.nodes.iter().any(|one| one.node == "c" && one.verdict == NodeOutcome::Remove)
    };
    let pair = holding(cluster, "pair", "c", ("pair", &["gpu-0", "gpu-1"]), true);
    assert!(goes(holding(pair.clone(), "single", "c", ("gpu", &["gpu-2"]), true)));
    // There is no room for two pods that need two devices each.
    let slice_of_four = three.to_owned() + ", {name: gpu-3}";
    let two = slice(pair, "c", &slice_of_four);
    assert!(!goes(holding(two, "pair2", "c", ("pair", &["gpu-2", "gpu-3"]), true)));
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

/// Pool `w`, which declares these devices.
fn declaring(lines: &str) -> Config {
    of_pool(lines, "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"")
}

const DECLARED: &str = "[[pool.device]]\ndriver = \"x.example.com\"\ncount = 2\n\
     attributes = { model = \"a\", ver = { version = \"2.1.0\" } }\ncapacity = { mem = \"80Gi\" }\n";

/// A cluster without nodes, and with this many pending pods that each need a device.
fn waiting(pods: usize) -> Cluster {
    (0..pods).fold(with_class(Cluster::new()), |all, number| pod(all, &format!("p{number}"), "", ""))
}

#[test]
fn declared_devices_make_the_first_node() {
    for (pods, expected) in [(1, 1), (2, 1), (3, 2), (5, 3)] {
        assert_eq!(machines(&waiting(pods).plan(&declaring(DECLARED))), expected, "{pods} pods");
    }
    let plan = waiting(1).plan(&declaring(""));
    assert_eq!((machines(&plan), pod_verdict(&plan, "d/p0")), (0, PodOutcome::NoPoolFits));
    // Without a device class, no pod can request a device.
    let plan = pod(Cluster::new(), "x", "", "").plan(&declaring(DECLARED));
    assert_eq!(machines(&plan), 0);
}

#[test]
fn selectors_see_what_is_declared_of_devices() {
    let asks = |count: i64, selector: &str| {
        let request = format!(
            "exactly: {{deviceClassName: gpu, count: {count}, selectors: [{{cel: {{expression: '{selector}'}}}}]}}"
        );
        waiting(1).replace("exactly: {deviceClassName: gpu}", &request).plan(&declaring(DECLARED))
    };
    for (selector, fits) in [
        (r#"device.attributes["x.example.com"].model == "a""#, true),
        (r#"device.attributes["x.example.com"].model == "b""#, false),
        (r#"device.attributes["x.example.com"].ver.isGreaterThan(semver("2.0.9"))"#, true),
        (r#"device.attributes["x.example.com"].ver.isGreaterThan(semver("2.1.0"))"#, false),
        (r#"device.capacity["x.example.com"].mem.compareTo(quantity("80Gi")) >= 0"#, true),
        (r#"device.capacity["x.example.com"].mem.isGreaterThan(quantity("80Gi"))"#, false),
        (r#"device.driver == "y.example.com""#, false),
    ] {
        let plan = asks(2, selector);
        assert_eq!(machines(&plan) == 1, fits, "{selector}: {:?}", plan.pods[0]);
    }
    let plan = asks(3, "true");
    assert_eq!(pod_verdict(&plan, "d/p0"), PodOutcome::NoPoolFits);
    let why = &plan.pods[0].reasons()[0].message;
    assert_eq!(why, "d/p0-g, request r: wants 3 devices of class gpu with `true`, 2 match, 2 free");
}

#[test]
fn hosts_free_devices_limit_machines_with_declared_ones() {
    let config = declaring(
        "placement = \"spread\"\n[[pool.device]]\ndriver = \"x.example.com\"\npci = \"gpu\"\n\
         [[pool.pci]]\nmapping = \"gpu\"\n",
    );
    let host = |name: &str, held: &str| {
        format!(
            "{{name: {name}, cores: 64, memory: 512Gi, pci: {{mappings: {{gpu: [\"0000:01:00\", \"0000:41:00\"]}}, held: [{held}]}}}}"
        )
    };
    let inventory = format!(
        "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: [{}, {}]\nmachines: []",
        host("a", ""),
        host("b", "{vmid: 300, mapping: gpu}")
    );
    let plan = waiting(5).with(&inventory).plan(&config);
    assert_eq!(machines(&plan), 3);
    let left = plan.pods.iter().filter(|pod| pod.verdict == PodOutcome::NoHostCapacity);
    let left: Vec<&str> = left.map(|pod| pod.reasons()[0].message.as_str()).collect();
    assert_eq!(left.len(), 2);
    assert!(left[0].contains("a has 0 of 2 devices of `gpu` left, but a machine needs 1"), "{}", left[0]);
}

#[test]
fn extended_resources_are_served_by_declared_devices() {
    let asks = |count: i64| {
        with_class(Cluster::new()).with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  namespace: d\n  uid: x\n  \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
             spec: {{containers: [{{name: c, resources: {{requests: {{example.com/gpu: {count}}}, limits: {{example.com/gpu: {count}}}}}}}]}}"
        ))
    };
    assert_eq!(machines(&asks(2).plan(&declaring(DECLARED))), 1);
    assert_eq!(machines(&asks(3).plan(&declaring(DECLARED))), 0);
    assert_eq!(machines(&asks(2).plan(&declaring(""))), 0);
}

#[test]
fn what_nodes_have_counts_and_not_what_is_declared() {
    let config = declaring(DECLARED);
    // The node has one device, although two are declared.
    let three =
        |cluster: Cluster| ["x", "y", "z"].into_iter().fold(cluster, |all, name| pod(all, name, "", ""));
    let one =
        pod(slice(node(with_class(Cluster::new()), "a", 99), "a", "{name: gpu-0}"), "one", "a", "gpu-0");
    assert_eq!(machines(&three(one.clone()).plan(&config)), 3);
    // The node still has no devices long after it became ready, so the next node is expected to have none.
    let without = three(node(with_class(Cluster::new()), "a", 99));
    assert_eq!(machines(&without.plan(&config)), 0);
    // A young node is still expected to get its devices: two of the pods wait for it.
    let young = three(node(with_class(Cluster::new()), "a", 2)).plan(&config);
    assert_eq!((machines(&young), pod_verdict(&young, "d/y")), (1, PodOutcome::ExistingNode));
    // Remembered devices take precedence over declared ones, until the declaration changes.
    let mut memory = Memory::default();
    assert!(planning::learn(&mut memory, &one.snapshot(), &config));
    let with_memory = |config: &Config| {
        let mut snapshot = three(with_class(Cluster::new())).snapshot();
        snapshot.memory = memory.clone();
        machines(&planning::plan(&snapshot, config))
    };
    assert_eq!((with_memory(&config), with_memory(&declaring(""))), (3, 0));
    assert_eq!(with_memory(&declaring(&DECLARED.replace("count = 2", "count = 3"))), 1);
    // Devices that are only declared are not remembered.
    let mut nothing = Memory::default();
    planning::learn(&mut nothing, &young_node().snapshot(), &config);
    assert!(
        nothing.pools.values().all(|own| own.device_slices.is_empty() && own.declared_devices.is_empty())
    );
}

fn young_node() -> Cluster {
    node(with_class(Cluster::new()), "a", 2)
}

#[test]
fn nodes_that_were_given_other_devices_of_the_host_teach_nothing() {
    let config = declaring(&format!("{DECLARED}pci = \"gpu\"\n[[pool.pci]]\nmapping = \"gpu\"\n"));
    let given = config.pools[0].made_of().remove("pci").unwrap();
    let plan = |pci: &str| {
        let machine = format!(
            "{{name: a, node: a, pool: w, vmid: 9101, host: pve1, cores: 4, memory: 8Gi, phase: Ready, madeOf: {{pci: \"{pci}\"}}}}"
        );
        let inventory = format!(
            "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nmachines: [{machine}]\n\
             hosts: [{{name: pve1, cores: 64, memory: 512Gi, pci: {{mappings: {{gpu: [\"0000:01:00\", \"0000:41:00\"]}}}}}}]"
        );
        machines(&pod(node(with_class(Cluster::new()), "a", 99), "x", "", "").with(&inventory).plan(&config))
    };
    assert_eq!((plan(""), plan(&given)), (1, 0));
    // A young node whose machine has different PCI devices is not expected to get the devices that new nodes
    // get.
    let young = |pci: &str| {
        let machine = |name: &str, vmid: Vmid, pci: &str| {
            format!(
                "{{name: {name}, node: {name}, pool: w, vmid: {vmid}, host: pve1, cores: 4, memory: 8Gi, phase: Ready, madeOf: {{pci: \"{pci}\"}}}}"
            )
        };
        let inventory = format!(
            "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nmachines: [{}, {}]\n\
             hosts: [{{name: pve1, cores: 64, memory: 512Gi, pci: {{mappings: {{gpu: [\"0000:01:00\", \"0000:41:00\"]}}}}}}]",
            machine("a", Vmid(9101), pci),
            machine("b", Vmid(9102), &given),
        );
        let taken =
            pod(slice(node(with_class(Cluster::new()), "b", 99), "b", "{name: gpu-0}"), "one", "b", "gpu-0");
        machines(&pod(node(taken, "a", 2), "x", "", "").with(&inventory).plan(&config))
    };
    assert_eq!((young(""), young(&given)), (1, 0));
}

#[test]
fn a_taint_on_the_devices_of_one_node_is_not_expected_of_others() {
    let rule = "apiVersion: resource.k8s.io/v1beta2\nkind: DeviceTaintRule\nmetadata: {name: a}\n\
         spec: {deviceSelector: {driver: x.example.com, pool: a}, taint: {key: broken, effect: NoSchedule}}";
    assert_eq!(machines(&pod(full(), "x", "", "").with(rule).plan(&pool())), 1);
}

#[test]
fn a_difference_to_what_is_declared_is_said() {
    let config = declaring(DECLARED);
    let said = |cluster: &Cluster| planning::unlike_declared(&cluster.snapshot(), &config).remove("w");
    let seen = |devices: &str| slice(node(with_class(Cluster::new()), "a", 99), "a", devices);
    let device = |name: &str, model: &str, more: &str| {
        format!(
            "{{name: {name}, attributes: {{model: {{string: {model}}}, x.example.com/ver: {{version: 2.1.0}}{more}}}, \
             capacity: {{mem: {{value: 80Gi}}}}}}"
        )
    };
    let alike = format!("{}, {}", device("a", "a", ""), device("b", "a", ", uuid: {string: u}"));
    let unlike = format!("{}, {}", device("a", "a", ""), device("b", "c", ""));
    for (cluster, expected) in [
        (seen(&alike), None),
        (young_node(), None),
        (with_class(Cluster::new()), None),
        (
            node(with_class(Cluster::new()), "a", 99),
            Some("the pool declares 2 devices of x.example.com, but its nodes have none"),
        ),
        (seen(&device("a", "a", "")), Some("the pool declares 2 devices of x.example.com, but node a has 1")),
        (
            seen(&unlike),
            Some(
                "the pool declares a device of x.example.com with model = \"a\", but no remaining device of node a matches it",
            ),
        ),
        (
            seen(&alike.replace("80Gi", "40Gi")),
            Some(
                "the pool declares a device of x.example.com with mem = 80Gi, but no remaining device of node a matches it",
            ),
        ),
    ] {
        assert_eq!(said(&cluster).as_deref(), expected);
    }
}
