//! Running machines that grow in place.

use std::sync::Arc;

use model::node::Node;
use model::plan::{NodeOutcome, PodOutcome};
use model::pod::Pod;
use model::{Plan, Snapshot, dimms};
use planning::plan;
use proptest::prelude::*;
use settings::Config;

use crate::cluster::{Cluster, inventory, machine, node_verdict, of_pool, pod_verdict, removed};

const GIB: i64 = 1 << 30;

/// Machines of 4 cores and 8 GiB that may grow to 8 cores and 16 GiB.
fn growing(more: &str) -> Config {
    with(more, "")
}

fn with(own: &str, more: &str) -> Config {
    of_pool(&format!("{own}\n[pool.grow]\nmax_cores = 8\nmax_memory = \"16GiB\"\n"), more)
}

/// A ready machine that was created so that it can grow; `more` is appended inside its braces.
fn ready(name: &str, more: &str) -> String {
    let made = ", madeOf: {grow: cores up to 8 and memory}";
    machine(name, "Ready", true).replace("},", &format!("{made}{more}}},"))
}

/// A node with 4 CPUs and 7 GiB for pods, and a pod on it that requests this many CPUs and 1 GiB; `spec` is
/// the Node's spec.
fn used(cluster: Cluster, name: &str, cpu: &str, spec: &str) -> Cluster {
    let node = format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: {{pve-autoscaler/pool: w, kubernetes.io/hostname: {name}}}\n\
         spec: {{{spec}}}\n\
         status:\n  capacity: {{cpu: 4, memory: 7716Mi, pods: 10}}\n  allocatable: {{cpu: 4, memory: 7Gi, pods: 10}}\n  \
         conditions: [{{type: Ready, status: \"True\"}}]"
    );
    cluster.with(&node).pod(&format!("on-{name}"), cpu, name)
}

/// One machine that can grow, whose node has one CPU left, and pending pods that need this many CPUs each.
fn one(waiting: &[&str]) -> Cluster {
    let cluster = used(Cluster::new(), "a", "3", "").with(&inventory(&ready("a", "")));
    waiting.iter().enumerate().fold(cluster, |all, (number, cpu)| all.pod(&format!("p{number}"), cpu, ""))
}

/// Returns each machine that grows, with its new number of cores and its new memory in tenths of a GiB. Also
/// returns how many machines are created.
fn told(plan: &Plan) -> (Vec<(&str, u32, i64)>, usize) {
    let grown =
        plan.grow.iter().map(|one| (one.machine.as_str(), one.to.cores, one.to.memory_bytes * 10 / GIB));
    (grown.collect(), plan.scale_up.iter().map(|pool| pool.machines.len()).sum())
}

#[test]
fn a_pod_that_requests_more_than_can_be_counted_grows_nothing() {
    for cpu in ["9E", "9223372036854775807m"] {
        let plan = one(&[cpu]).plan(&growing(""));
        assert_eq!(told(&plan), (vec![], 0), "{cpu}");
    }
    let memory = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: d}\n\
                  spec: {containers: [{name: c, resources: {requests: {memory: 9223372036854775807}}}]}";
    assert_eq!(told(&one(&[]).with(memory).plan(&growing(""))), (vec![], 0));
}

#[test]
fn a_machine_grows_by_as_much_as_its_pods_need_before_another_is_made() {
    for (waiting, grown, made) in [
        (&[][..], vec![], 0),
        (&["1"], vec![], 0),
        (&["2"], vec![("a", 5, 80)], 0),
        (&["1500m"], vec![("a", 5, 80)], 0),
        (&["4"], vec![("a", 7, 80)], 0),
        (&["1", "1", "1"], vec![("a", 6, 80)], 0),
        (&["6"], vec![], 0),
        (&["4", "4"], vec![("a", 7, 80)], 1),
        (&["3", "3", "3"], vec![("a", 6, 80)], 2),
    ] {
        let plan = one(waiting).plan(&growing(""));
        assert_eq!(told(&plan), (grown.clone(), made), "{waiting:?}");
        let fit = plan.pods.iter().filter(|pod| pod.verdict == PodOutcome::GrownNode).count();
        assert_eq!(fit > 0, !grown.is_empty(), "{waiting:?}");
    }
    let plan = one(&["2", "2"]).plan(&growing(""));
    let one = &plan.grow[0];
    assert_eq!(
        (one.from.words(), one.to.words()),
        ("4 cores and 8Gi".to_owned(), "7 cores and 8Gi".to_owned())
    );
    assert!(
        one.reason.contains("for d/p0 and 1 more") && one.reason.contains("to at most 8 cores"),
        "{one:?}"
    );
    let verdict = plan.pods.iter().find(|pod| &*pod.pod == "d/p0").unwrap();
    assert_eq!((verdict.verdict, verdict.node()), (PodOutcome::GrownNode, Some("a")));
}

#[test]
fn memory_grows_by_whole_dimms_and_leaves_the_kernel_its_part() {
    let hungry = |gib: &str| {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: d}}\n\
             spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 100m, memory: {gib}}}}}}}]}}"
        );
        one(&[]).with(&pod).plan(&growing(""))
    };
    // 6 of 7 GiB are free.
    for (memory, tenths) in
        [("6Gi", None), ("6400Mi", Some(85)), ("6656Mi", Some(90)), ("13Gi", Some(155)), ("14Gi", None)]
    {
        let plan = hungry(memory);
        let grown = plan.grow.first().map(|one| one.to.memory_bytes * 10 / GIB);
        assert_eq!(grown, tenths, "{memory}");
        assert!(plan.grow.iter().all(|one| one.to.cores == 4 && dimms::is_size(one.to.memory_bytes)));
    }
}

#[test]
fn the_machine_that_has_to_grow_least_grows_and_of_equals_one_that_grows_anyway() {
    let cluster = || {
        let all = used(Cluster::new(), "a", "4", "");
        used(used(all, "b", "3", ""), "c", "3", "")
            .with(&inventory(&["a", "b", "c"].map(|name| ready(name, "")).concat()))
    };
    let plan = cluster().pod("p", "2", "").plan(&growing(""));
    assert_eq!(told(&plan), (vec![("b", 5, 80)], 0));
    // Two pods fit the machines as they are. One machine grows for the other two.
    let many = ["p1", "p2", "p3", "p4"].into_iter().fold(cluster(), |all, name| all.pod(name, "1", ""));
    let plan = many.plan(&growing(""));
    assert_eq!(told(&plan), (vec![("a", 6, 80)], 0));
}

#[test]
fn what_a_machine_gets_goes_to_the_pods_of_daemon_sets_first() {
    let owner =
        "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: s, uid: s, controller: true}]";
    let place = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
                 [{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}";
    let waits = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: s-a\n  namespace: d\n  {owner}\n\
         spec: {{{place}, containers: [{{name: c, resources: {{requests: {{cpu: 2}}}}}}]}}"
    );
    let cluster = |pods: &[&str]| one(pods).with(&waits).plan(&growing(""));
    assert_eq!(told(&one(&["2"]).plan(&growing(""))), (vec![("a", 5, 80)], 0));
    assert_eq!(told(&cluster(&["2"])), (vec![("a", 7, 80)], 0));
    assert_eq!(told(&cluster(&[])), (vec![], 0));
    assert_eq!(told(&cluster(&["1"])), (vec![], 0), "the pod fits the present size");
}

#[test]
fn what_may_not_grow_is_left_alone() {
    let usual = ready("a", "");
    let state = "apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\n\
                 pools: {w: {growBackoff: {until: 2026-01-01T12:05:00Z, reason: \"it failed\", seconds: 300}}}";
    for (what, cluster) in [
        (
            "the node is cordoned",
            used(Cluster::new(), "a", "3", "unschedulable: true").with(&inventory(&usual)),
        ),
        (
            "the machine was created before growing was configured",
            used(Cluster::new(), "a", "3", "")
                .with(&inventory(&usual.replace("cores up to 8 and memory", "\"\""))),
        ),
        (
            "the machine may grow only to 6 cores",
            used(Cluster::new(), "a", "3", "").with(&inventory(&usual.replace("up to 8", "up to 6"))),
        ),
        ("the node has no machine", used(Cluster::new(), "a", "3", "")),
        (
            "the machine is being drained",
            used(Cluster::new(), "a", "3", "").with(&inventory(&usual.replace("Ready", "Draining"))),
        ),
        ("growing failed lately", one(&[]).with(state)),
        (
            "the host is in maintenance",
            used(Cluster::new(), "a", "3", "")
                .with(&inventory(&usual).replace("online: true", "online: true, maintenance: true")),
        ),
        (
            "the host has no vCPU left",
            used(Cluster::new(), "a", "3", "").with(&inventory(&usual).replace("cores: 64", "cores: 1")),
        ),
    ] {
        let plan = cluster.pod("p", "2", "").plan(&growing(""));
        assert_eq!(plan.grow, [], "{what}");
    }
}

#[test]
fn limits_of_pools_and_of_the_cluster_hold_for_what_grows() {
    for (own, more, cores) in [
        ("", "", Some(7)),
        ("max_cores = 7", "", Some(7)),
        ("max_cores = 6", "", None),
        ("", "[scale_up]\nmax_cores_total = 7\n", Some(7)),
        ("", "[scale_up]\nmax_cores_total = 6\n", None),
        // In these cases, only the number of cores grows, so limits on memory do not apply.
        ("max_memory = \"8GiB\"", "", Some(7)),
        ("", "[scale_up]\nmax_memory_total = \"8GiB\"\n", Some(7)),
    ] {
        let plan = one(&["4"]).plan(&with(own, more));
        assert_eq!(plan.grow.first().map(|one| one.to.cores), cores, "{own} {more}");
    }
}

#[test]
fn hosts_get_no_machine_that_they_could_not_start_for_what_it_may_become() {
    let small = Cluster::new().with(&inventory("").replace("cores: 64", "cores: 6")).pod("p", "3", "");
    let plan = small.plan(&growing("cpu_overcommit = 2.0"));
    assert_eq!(plan.scale_up, []);
    let why = &plan.pods[0].reasons()[0].message;
    assert!(why.contains("has 6 threads, but a machine may grow to 8 cores"), "{why}");
}

/// A machine that grows from 4 cores and 8 GiB to 6 cores and 9 GiB, which its Node does not report yet.
fn under_way() -> String {
    let before = format!(
        ", growing: {{cores: 4, memory: {}, nodeCpuMilli: 4000, nodeMemory: {}, since: 2026-01-01T12:00:00Z}}",
        8 * GIB,
        7716_i64 << 20
    );
    ready("a", &before).replace("cores: 4, memory: 8Gi", "cores: 6, memory: 9Gi")
}

#[test]
fn a_machine_that_grows_is_room_to_come_and_it_is_not_taken_back() {
    let cluster = |pods: &[&str]| {
        let all = used(Cluster::new(), "a", "3", "").with(&inventory(&under_way()));
        pods.iter().enumerate().fold(all, |all, (number, cpu)| all.pod(&format!("p{number}"), cpu, ""))
    };
    let plan = cluster(&["3"]).plan(&growing(""));
    assert_eq!(told(&plan), (vec![], 0));
    assert_eq!(pod_verdict(&plan, "d/p0"), PodOutcome::GrownNode);
    // A pod that fits the present size does not wait for the growth.
    assert_eq!(pod_verdict(&cluster(&["1"]).plan(&growing("")), "d/p0"), PodOutcome::ExistingNode);
    // Pods do not wait for a machine that takes too long to grow.
    let late = under_way().replace("2026-01-01T12:00:00Z", "2026-01-01T11:00:00Z");
    let late = used(Cluster::new(), "a", "3", "").with(&inventory(&late)).pod("p", "3", "");
    assert_eq!(told(&late.plan(&growing(""))), (vec![], 1));
    // The machine does not grow again until it has finished growing.
    assert_eq!(told(&cluster(&["3", "2"]).plan(&growing(""))), (vec![], 1));
    // Both nodes are empty and have long been unneeded.
    let idle = |machine: String| {
        Cluster::new().idle("a", "w").idle("b", "w").with(&inventory(&(machine + &ready("b", ""))))
    };
    let plan = idle(under_way()).plan(&growing(""));
    assert_eq!(node_verdict(&plan, "a"), NodeOutcome::Utilized);
    assert_eq!(removed(&plan), ["b"]);
    assert_eq!(removed(&idle(ready("a", "")).plan(&growing(""))), ["a", "b"]);
}

#[test]
fn a_machine_that_failed_to_grow_rests_by_itself() {
    let both = |more: &str| {
        let machines = inventory(&(ready("a", more) + &ready("b", "")));
        let cluster = used(used(Cluster::new(), "a", "3", ""), "b", "3", "").with(&machines);
        told_of(&cluster.pod("p", "3", "").plan(&growing("")))
    };
    assert_eq!(both(""), (vec!["a".to_owned()], 0));
    let rests = ", growBackoff: {until: 2026-01-01T12:04:00Z, reason: x, seconds: 300}";
    assert_eq!(both(rests), (vec!["b".to_owned()], 0));
    let over = ", growBackoff: {until: 2026-01-01T11:59:00Z, reason: x, seconds: 300}";
    assert_eq!(both(over), (vec!["a".to_owned()], 0));
}

/// Returns the names of the machines that grow, and the number of machines that are created.
fn told_of(plan: &Plan) -> (Vec<String>, usize) {
    let (grown, made) = told(plan);
    (grown.into_iter().map(|(name, ..)| name.to_owned()).collect(), made)
}

#[test]
fn a_guest_that_has_taken_no_cpus_gets_no_more_of_them_nor_do_those_of_its_template() {
    let of =
        |name: &str, template: &str| ready(name, "").replace("}}", &format!(", template: {template}}}}}"));
    let kept = of("a", "t1").replace("cores: 4, memory: 8Gi", "cores: 5, memory: 8Gi");
    let deaf = kept.replace("cores: 5,", "takesNoCpus: true, cores: 5,");
    let plan = |first: &str, other: &str| {
        let machines = inventory(&(first.to_owned() + &of("b", other)));
        let cluster = used(used(Cluster::new(), "a", "4", ""), "b", "3", "").with(&machines);
        told_of(&cluster.pod("p", "2", "").plan(&growing("")))
    };
    assert_eq!(plan(&deaf, "t1"), (vec![], 1), "a new machine is created instead");
    assert_eq!(plan(&deaf, "t2"), (vec!["b".to_owned()], 0), "a machine of another template may grow");
    assert_eq!(plan(&kept, "t1"), (vec!["b".to_owned()], 0), "no guest is known to ignore new CPUs");
    let alone = |more: &str| {
        let machine = kept.replace("cores: 5,", &format!("cores: 5{more},"));
        told_of(
            &used(Cluster::new(), "a", "4", "")
                .with(&inventory(&machine))
                .pod("p", "2", "")
                .plan(&growing("")),
        )
    };
    assert_eq!(alone(""), (vec!["a".to_owned()], 0));
    let failed = ", growBackoff: {until: 2026-01-01T11:59:00Z, reason: x, seconds: 300}";
    assert_eq!(alone(failed), (vec![], 1), "the machine failed to grow, so it does not grow further");
}

#[test]
fn a_machine_that_has_grown_has_not_drifted_and_serves_on() {
    let grown =
        ready("a", ", size: 4 cores and 8Gi").replace("cores: 4, memory: 8Gi", "cores: 8, memory: 16Gi");
    let plan = used(Cluster::new(), "a", "3", "").with(&inventory(&grown)).plan(&growing(""));
    assert_eq!((told(&plan), removed(&plan)), ((vec![], 0), vec![]));
    assert!(plan.nodes[0].message.is_none(), "{:?}", plan.nodes[0]);
}

/// Nodes of the growing pool, each with one pod, and pending pods. All sizes are random.
fn world() -> impl Strategy<Value = Snapshot> {
    let running = prop::collection::vec(1_i64..40, 1..5);
    let waiting = prop::collection::vec((1_i64..90, 1_i64..150), 0..12);
    (running, waiting).prop_map(|(running, waiting)| {
        let names: Vec<String> = (0..running.len()).map(|number| format!("n{number}")).collect();
        let machines: String = names.iter().map(|name| ready(name, "")).collect();
        let hosts = inventory(&machines).replace("memory: 32Gi", "memory: 90Gi");
        let nodes = names.iter().zip(&running);
        let all =
            nodes.fold(Cluster::new(), |all, (name, tenths)| used(all, name, &format!("{tenths}00m"), ""));
        let mut snapshot = all.with(&hosts).snapshot();
        for (number, (cpu, memory)) in waiting.into_iter().enumerate() {
            let mut pod = Pod::clone(&one(&["1"]).snapshot().pods[1]);
            pod.name = format!("p{number}");
            (pod.requests.cpu_milli, pod.requests.memory) = (cpu * 100, memory * GIB / 10);
            snapshot.pods.push(Arc::new(pod));
        }
        snapshot
    })
}

/// The snapshot after the machines have grown as planned.
fn carried_out(before: &Snapshot, plan: &Plan) -> Snapshot {
    let mut after = before.clone();
    for grown in &plan.grow {
        let node = after.nodes.iter_mut().find(|node| node.name == grown.node).unwrap();
        let node: &mut Node = Arc::make_mut(node);
        for amounts in [&mut node.allocatable, &mut node.capacity] {
            amounts.cpu_milli += i64::from(grown.to.cores - grown.from.cores) * 1000;
            amounts.memory += grown.to.memory_bytes - grown.from.memory_bytes;
        }
        let machines = Arc::make_mut(&mut after.proxmox).machines.as_mut().unwrap();
        let machine = machines.iter_mut().find(|machine| machine.name == grown.machine).unwrap();
        (machine.cores, machine.memory) = (grown.to.cores, grown.to.memory_bytes);
    }
    for verdict in &plan.pods {
        let Some(node) = verdict.node() else { continue };
        let pod = after.pods.iter_mut().find(|pod| pod.id() == *verdict.pod).unwrap();
        *pod = Arc::new(Pod { node: Some(node.to_string()), ..Pod::clone(pod) });
    }
    after.pods.retain(|pod| pod.node.is_some());
    after
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_grows_above_its_maximum_or_without_pods_and_what_has_grown_holds_its_pods(snapshot in world()) {
        let config = growing("");
        let first = plan(&snapshot, &config);
        for grown in &first.grow {
            prop_assert!(grown.to.cores <= 8 && grown.to.memory_bytes <= 16 * GIB, "{grown:?}");
            prop_assert!(grown.to.cores >= grown.from.cores && grown.to.memory_bytes >= grown.from.memory_bytes);
            prop_assert!(grown.to != grown.from && !grown.pods.is_empty(), "{grown:?}");
        }
        let after = carried_out(&snapshot, &first);
        for node in &after.nodes {
            let mut sum = model::Resources::default();
            for pod in after.pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name)) {
                sum.add(&pod.requests);
            }
            let fits = sum.cpu_milli <= node.allocatable.cpu_milli && sum.memory <= node.allocatable.memory;
            prop_assert!(fits, "{}: {sum:?} of {:?}", node.name, node.allocatable);
        }
        let second = plan(&after, &config);
        prop_assert!(second.grow.is_empty() && second.scale_up.is_empty(), "{:?}", second.grow);
    }
}
