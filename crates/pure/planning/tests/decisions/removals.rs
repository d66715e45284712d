//! Which nodes are removed, and which machines are counted.

use model::drain::{Blocking, NodeReason};
use model::plan::{NodeOutcome, PodOutcome};
use planning::{evictions, homeless};

use crate::cluster::{
    Cluster, LEAVING, inventory, machine, node_verdict, of_pool, pod_verdict, pools, removed, with_others,
};

#[test]
fn an_idle_node_of_a_pool_that_cools_down_takes_the_pods_of_others() {
    let state =
        "apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\npools: {w: {lastAdd: 2026-01-01T11:59:00Z}}";
    let cluster = Cluster::new().with(state).idle("w0", "w").idle("g0", "other").pod("p", "500m", "g0");
    let plan = cluster.plan(&pools(0, 9, ""));
    assert_eq!(removed(&plan), ["g0"]);
    assert_eq!(plan.scale_down[0].moves[0].to, "w0");
    assert_eq!(node_verdict(&plan, "w0"), NodeOutcome::CoolingDown);
}

#[test]
fn an_idle_node_of_an_unhealthy_pool_takes_the_pods_of_others() {
    let cluster = Cluster::new()
        .idle("w0", "w")
        .node("w1", "w", "{key: node.kubernetes.io/not-ready, effect: NoSchedule}", "False")
        .idle("g0", "other")
        .pod("p", "500m", "g0");
    let config = pools(0, 9, "[health]\nok_total_unready_count = 0\nmax_total_unready_percentage = 10\n");
    let plan = cluster.plan(&config);
    assert_eq!(removed(&plan), ["g0"]);
    assert_eq!(plan.scale_down[0].moves[0].to, "w0");
    assert_eq!(node_verdict(&plan, "w0"), NodeOutcome::PoolUnhealthy);
}

#[test]
fn the_idle_nodes_that_a_minimum_keeps_take_the_pods_of_others() {
    let cluster = Cluster::new().idle("w0", "w").idle("w1", "w").idle("g0", "other").pod("p", "500m", "g0");
    let plan = cluster.plan(&pools(1, 9, ""));
    assert_eq!(plan.scale_down.len(), 2, "{:?}", plan.scale_down);
    assert!(removed(&plan).contains(&"g0"));
    let kept = if removed(&plan).contains(&"w0") { "w1" } else { "w0" };
    assert_eq!(node_verdict(&plan, kept), NodeOutcome::AtMinimum);
    assert_eq!(plan.scale_down[0].moves[0].to, kept);
}

#[test]
fn a_node_that_has_never_been_ready_counts_towards_no_minimum() {
    let starting = "{key: node.kubernetes.io/not-ready, effect: NoSchedule}";
    for (phase, taint, ready, gone) in [("Registered", starting, "False", 0), ("Ready", "", "True", 1)] {
        let plan = Cluster::new()
            .idle("w0", "w")
            .idle("w1", "w")
            .node("w2", "w", taint, ready)
            .with(&inventory(&machine("w2", phase, true)))
            .plan(&pools(2, 9, ""));
        assert_eq!(removed(&plan).len(), gone, "{phase}");
    }
}

#[test]
fn a_node_whose_machine_is_not_ready_or_was_given_up_counts_towards_no_minimum() {
    for (phase, gone) in [("Joining", 0), ("Failed", 0), ("Stopping", 0), ("Ready", 1)] {
        // A machine and its Node may have different names.
        for name in ["name: w1,", "name: m1,"] {
            let machine = machine("w1", phase, true).replace("name: w1,", name);
            assert!(machine.contains(name) && machine.contains("node: w1"), "{machine}");
            let cluster = Cluster::new().idle("w0", "w").idle("w1", "w").with(&inventory(&machine));
            let plan = cluster.plan(&pools(1, 9, ""));
            assert_eq!(removed(&plan).len(), gone, "{phase}, {name} {:?}", removed(&plan));
        }
    }
}

#[test]
fn nodes_beyond_a_pools_surplus_keep_their_timers_while_none_is_due() {
    let cluster = Cluster::new().idle("w0", "w").idle("w1", "w").idle("w2", "w");
    let plan = cluster.plan(&pools(2, 9, "[scale_down]\nunneeded_time = \"2h\"\n"));
    assert!(plan.nodes.iter().all(|node| node.verdict == NodeOutcome::Unneeded && node.since.is_some()));
}

#[test]
fn no_pod_moves_to_a_node_that_is_not_ready() {
    let cluster = Cluster::new().node("w0", "w", "", "False").idle("g0", "other").pod("p", "500m", "g0");
    let plan = cluster.plan(&pools(0, 9, "[scale_down]\nunready_time = \"2h\"\n"));
    assert_eq!(removed(&plan), Vec::<&str>::new());
    assert_eq!(node_verdict(&plan, "g0"), NodeOutcome::NoPlaceToMovePods);
    assert_eq!(node_verdict(&plan, "w0"), NodeOutcome::Unready);
}

#[test]
fn a_node_on_its_way_out_counts_towards_the_maximum_as_long_as_its_vm_exists() {
    let made = |machines: &str| {
        let nodes = Cluster::new().idle("w0", "w").node("w1", "w", LEAVING, "True").pod("full", "4", "w0");
        let config = with_others(0, 2, 0, "");
        let plan = nodes.pod("waits", "4", "").with(&inventory(machines)).plan(&config);
        let of_pool = plan.scale_up.iter().filter(|one| one.pool == "w");
        of_pool.map(|one| one.machines.len()).sum::<usize>()
    };
    let both = |phase| machine("w0", "Ready", true) + &machine("w1", phase, true);
    assert_eq!((made(&both("Stopping")), made(&both("Deleting")), made(&both("Clearing"))), (0, 0, 1));
    assert_eq!(made(&machine("w0", "Ready", true)), 1);
}

#[test]
fn a_machine_that_is_being_deleted_does_not_fill_the_minimum() {
    let plan = Cluster::new().with(&inventory(&machine("w0", "Deleting", false))).plan(&pools(1, 2, ""));
    assert_eq!(plan.scale_up[0].machines.len(), 1);
}

#[test]
fn memory_that_booting_machines_will_use_is_not_given_away() {
    let booting: String = ["w0", "w1", "w2"].map(|name| machine(name, "Booting", false)).concat();
    let mut cluster = Cluster::new().with(&inventory(&booting));
    for name in ["a", "b", "c", "d"] {
        cluster = cluster.pod(name, "3", "");
    }
    let plan = cluster.plan(&pools(0, 9, ""));
    assert_eq!(pod_verdict(&plan, "d/c"), PodOutcome::UpcomingNode);
    assert_eq!(pod_verdict(&plan, "d/d"), PodOutcome::NoHostCapacity, "{:?}", plan.scale_up);
}

/// The `efficiency` scenario from Cluster Autoscaler's benchmarks. Cluster Autoscaler itself reaches a
/// utilization of either 100 % or 54.5 %, depending on chance.
#[test]
fn what_can_be_consolidated_completely_is() {
    let sizes = [("a", 1), ("b", 1), ("c", 4), ("d", 4), ("e", 4), ("f", 9)];
    let mut nodes: Vec<(String, i64, Vec<String>)> =
        sizes.iter().map(|(name, cpu)| ((*name).to_owned(), *cpu, vec![format!("p-{name}")])).collect();
    let config = pools(
        0,
        9,
        "[scale_down]\nutilization_threshold = 0.75\nunneeded_time = \"0s\"\nmax_parallel_drains = 1\n",
    );
    for _ in 0..10 {
        let mut cluster = Cluster::new();
        for (name, cpu, pods) in &nodes {
            cluster = cluster.sized(name, "w", &cpu.to_string(), "", "True");
            for pod in pods {
                cluster = cluster.pod(pod, "1", name);
            }
        }
        let plan = cluster.plan(&config);
        if plan.scale_down.is_empty() {
            break;
        }
        for removal in &plan.scale_down {
            nodes.retain(|node| node.0 != removal.node);
            for one in &removal.moves {
                let to = nodes.iter_mut().find(|node| node.0 == one.to).unwrap();
                to.2.push(one.pod.trim_start_matches("d/").to_owned());
            }
        }
    }
    assert_eq!(nodes.iter().map(|node| node.1).sum::<i64>(), 6, "6 pods of 1 CPU each: {nodes:?}");
}

#[test]
fn a_node_that_still_starts_is_not_removed_while_a_pod_waits_for_it() {
    let node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: w0\n  creationTimestamp: 2026-01-01T11:50:00Z\n  \
                labels: {pve-autoscaler/pool: w, kubernetes.io/hostname: w0}\n  \
                annotations: {pve-autoscaler/unneeded-since: 2026-01-01T11:51:00Z}\n\
                spec: {taints: [{key: example.com/agent, effect: NoSchedule}]}\n\
                status:\n  allocatable: {cpu: 4, memory: 8Gi, pods: 10}\n  conditions: [{type: Ready, status: \"True\"}]";
    let config = of_pool(
        "startup_taints = [\"example.com/agent:NoSchedule\"]",
        "[scale_down]\nunneeded_time = \"5m\"\n",
    );
    let waiting = Cluster::new().with(node).pod("p", "500m", "").plan(&config);
    assert_eq!(pod_verdict(&waiting, "d/p"), PodOutcome::UpcomingNode);
    assert_eq!(removed(&waiting), Vec::<&str>::new(), "{:?}", waiting.nodes);
    let idle = Cluster::new().with(node).plan(&config);
    assert_eq!(removed(&idle), ["w0"], "{:?}", idle.nodes);
}

#[test]
fn the_pods_of_a_node_on_its_way_out_have_a_place_or_are_named() {
    let leaving = "{key: pve-autoscaler/being-deleted, effect: NoSchedule}";
    // Each case contains the CPU of another pending pod, the CPU of a pod on the node that stays, and the pod
    // for which no place is found.
    let cases = [
        ("", "", None),
        ("", "3", Some("d/p")),
        ("", "2", None),
        ("1500m", "1", Some("d/p")),
        ("1500m", "", None),
        // The pending pod fits on no node, so it uses up no room.
        ("9", "1", None),
    ];
    for (waits, stays, expected) in cases {
        let mut cluster =
            Cluster::new().node("g0", "other", leaving, "True").idle("w0", "w").pod("p", "2", "g0");
        if !waits.is_empty() {
            cluster = cluster.pod("waits", waits, "");
        }
        if !stays.is_empty() {
            cluster = cluster.pod("stays", stays, "w0");
        }
        let found = homeless(&cluster.snapshot(), &pools(0, 9, ""), "g0");
        assert_eq!(found.as_deref(), expected, "pending pod: {waits:?}, pod that stays: {stays:?}");
    }
}

#[test]
fn a_node_whose_machine_goes_is_no_place_before_its_taint_is_seen() {
    for (phase, expected) in [("Ready", None), ("Draining", Some("d/p")), ("Stopping", Some("d/p"))] {
        let machines = inventory(&machine("w0", phase, true));
        let cluster = Cluster::new().with(&machines).idle("g0", "other").idle("w0", "w").pod("p", "2", "g0");
        let found = homeless(&cluster.snapshot(), &pools(0, 9, ""), "g0");
        assert_eq!(found.as_deref(), expected, "{phase}");
    }
}

#[test]
fn a_node_that_is_not_ready_or_on_its_way_out_is_no_place() {
    let taint = "{key: pve-autoscaler/being-deleted, effect: NoSchedule}";
    for (taint, ready, expected) in
        [("", "True", None), ("", "False", Some("d/p")), (taint, "True", Some("d/p"))]
    {
        let cluster = Cluster::new().idle("g0", "other").node("w0", "w", taint, ready).pod("p", "2", "g0");
        assert_eq!(
            homeless(&cluster.snapshot(), &pools(0, 9, ""), "g0").as_deref(),
            expected,
            "{taint} {ready}"
        );
    }
}

/// A pod of a ReplicaSet with additions to its metadata, its spec and its status.
fn pod_with(name: &str, node: &str, metadata: &str, spec: &str, status: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  {metadata}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
         spec: {{nodeName: {node}, {spec} containers: [{{name: c, resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}}}]}}\n\
         status: {{{status}}}"
    )
}

#[test]
fn pods_that_a_dead_kubelet_does_not_end_hold_up_no_drain_elsewhere() {
    let drained = |since: &str| {
        let ends = format!("deletionTimestamp: {since}\n  deletionGracePeriodSeconds: 30");
        let mut cluster =
            Cluster::new().idle("w0", "w").idle("w1", "w").pod("p", "500m", "w0").pod("q", "2", "w1");
        for at in 0..4 {
            let node = format!("g{at}");
            cluster = cluster.node(&node, "other", LEAVING, "Unknown");
            cluster = cluster.with(&pod_with(&format!("p{at}"), &node, &ends, "", "phase: Running"));
        }
        let config = pools(0, 9, "[health]\nmax_total_unready_percentage = 100\n");
        removed(&cluster.plan(&config)).len()
    };
    assert_eq!(drained("2026-01-01T11:50:00Z"), 1);
    assert_eq!(drained("2026-01-01T11:59:50Z"), 0, "drains wait for pods until their grace period ends");
}

#[test]
fn a_pod_of_two_budgets_that_runs_keeps_its_node() {
    let budget = |name: &str| {
        format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}, namespace: d}}\n\
             spec: {{selector: {{matchLabels: {{app: a}}}}}}\nstatus: {{disruptionsAllowed: 1}}"
        )
    };
    let plan = |phase: &str, second: &str| {
        let pod = pod_with("p", "g0", "labels: {app: a}", "", &format!("phase: {phase}"));
        let cluster = Cluster::new().idle("w0", "w").idle("g0", "other").pod("q", "1", "w0").with(&pod);
        cluster.with(&budget("one")).with(&budget(second)).plan(&pools(1, 9, ""))
    };
    let held = plan("Running", "two");
    assert_eq!((removed(&held), node_verdict(&held, "g0")), (Vec::new(), NodeOutcome::Blocked));
    let verdict = held.nodes.iter().find(|node| node.node == "g0").unwrap();
    assert_eq!(
        (verdict.reason, verdict.pod.as_deref()),
        (Some(NodeReason::Pod(Blocking::SeveralPdbs)), Some("d/p"))
    );
    assert_eq!(removed(&plan("Pending", "two")), ["g0"], "the API server checks no budget for a pending pod");
}

#[test]
fn an_expendable_pod_that_must_stay_keeps_its_node() {
    let plan = |volume: &str| {
        let spec = format!("priority: -11, volumes: [{{name: v, {volume}}}],");
        let pod = pod_with("p", "w0", "labels: {app: a}", &spec, "phase: Running");
        Cluster::new().idle("w0", "w").with(&pod).plan(&pools(0, 9, ""))
    };
    let held = plan("emptyDir: {}");
    assert_eq!((removed(&held), node_verdict(&held, "w0")), (Vec::new(), NodeOutcome::Blocked));
    assert_eq!(held.nodes[0].reason, Some(NodeReason::Pod(Blocking::LocalStorageRequested)));
    let goes = plan("emptyDir: {medium: Memory}");
    assert_eq!(removed(&goes), ["w0"], "the expendable pod needs no other place");
    assert!(goes.scale_down[0].moves.is_empty());
}

#[test]
fn a_pod_that_is_deleted_with_its_controller_ends_no_drain() {
    let left = |metadata: &str| {
        let pod =
            pod_with("p", "w0", metadata, "", "phase: Running").replace("name: rs, uid", "name: gone, uid");
        let snapshot = Cluster::new().idle("w0", "w").with(&pod).snapshot();
        evictions(&snapshot, &pools(0, 9, ""), "w0", |_| false, &[])
            .map(|all| (all.evict.len(), all.leaving.len()))
    };
    let deleted = "deletionTimestamp: 2026-01-01T11:59:50Z\n  deletionGracePeriodSeconds: 30";
    assert_eq!(left(deleted), Ok((0, 1)));
    assert_eq!(left("labels: {}"), Err("d/p (ControllerNotFound)".to_owned()));
}

#[test]
fn a_budget_counts_the_expendable_pods_of_a_node_together() {
    let plan = |allowed: u32| {
        let pod = |name| pod_with(name, "w0", "labels: {app: a}", "priority: -11,", "phase: Running");
        let budget = format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: b, namespace: d}}\n\
             spec: {{selector: {{matchLabels: {{app: a}}}}}}\nstatus: {{disruptionsAllowed: {allowed}}}"
        );
        Cluster::new().idle("w0", "w").with(&pod("p")).with(&pod("q")).with(&budget).plan(&pools(0, 9, ""))
    };
    let held = plan(1);
    assert_eq!((removed(&held), node_verdict(&held, "w0")), (Vec::new(), NodeOutcome::Blocked));
    assert_eq!(held.nodes[0].reason, Some(NodeReason::Pod(Blocking::NotEnoughPdb)));
    assert_eq!(removed(&plan(2)), ["w0"]);
}
