//! Room that a pool keeps free, and pods for which preemption makes room.

use model::plan::{NodeOutcome, PodOutcome};

use crate::cluster::{Cluster, LEAVING, node_verdict, of_pool, pod_verdict, pools, removed};

/// Three nodes with 4 CPUs each. 3 CPUs are in use on w0, 1 CPU on w1, and none on w2.
fn three() -> Cluster {
    Cluster::new()
        .idle("w0", "w")
        .idle("w1", "w")
        .idle("w2", "w")
        .pod("busy", "3", "w0")
        .pod("little", "1", "w1")
}

#[test]
fn a_removal_leaves_the_room_that_the_pool_keeps() {
    // 8 CPUs are free, and 4 if w2 is removed. If w1 is removed too, its pod moves to w0, and none are free.
    let cases = [
        ("", 2),
        ("headroom = { cpu = 0 }", 2),
        ("headroom = { cpu = \"1m\" }", 1),
        ("headroom = { cpu = 4 }", 1),
        ("headroom = { cpu = 5 }", 0),
        ("headroom = { cpu = 99 }", 0),
        ("headroom = { memory = \"31GiB\" }", 0),
        ("headroom = { memory = \"30GiB\" }", 1),
    ];
    for (own, gone) in cases {
        let plan = three().plan(&of_pool(own, ""));
        assert_eq!(plan.scale_down.len(), gone, "{own}: {:?}", removed(&plan));
    }
    let plan = three().plan(&of_pool("headroom = { cpu = 5 }", ""));
    assert_eq!(node_verdict(&plan, "w2"), NodeOutcome::AtMinimum);
    let said = plan.nodes.iter().find(|node| node.node == "w2").and_then(|node| node.message.clone());
    assert_eq!(
        said.as_deref(),
        Some("pool `w` keeps 5 CPU and 0 free, but only 4 CPU and 30Gi would be left")
    );
}

#[test]
fn pods_that_wait_count_as_room_in_use() {
    // The pending pod goes to an existing node. This leaves 6 CPUs free, or 2 without the empty node.
    let plan = three().pod("waits", "2", "").plan(&of_pool("headroom = { cpu = 3 }", ""));
    assert_eq!(pod_verdict(&plan, "d/waits"), PodOutcome::ExistingNode);
    assert_eq!(removed(&plan), Vec::<&str>::new());
    let plan = three().pod("waits", "2", "").plan(&of_pool("headroom = { cpu = 2 }", ""));
    assert_eq!(plan.scale_down.len(), 1);
}

#[test]
fn another_pools_removal_takes_no_kept_room() {
    let cluster = Cluster::new().idle("w0", "w").idle("g0", "other").pod("p", "1", "g0").pod("q", "3", "w0");
    let mut config = pools(0, 9, "");
    assert_eq!(removed(&cluster.plan(&config)), ["g0"]);
    config.pools[0].headroom.cpu_milli = 1000;
    let plan = cluster.plan(&config);
    assert_eq!(removed(&plan), Vec::<&str>::new());
    assert_eq!(node_verdict(&plan, "g0"), NodeOutcome::AtMinimum);
}

#[test]
fn a_node_that_is_not_ready_has_no_room_to_lose() {
    let cluster = Cluster::new().idle("w0", "w").node("w1", "w", "", "False").pod("p", "3", "w0");
    let plan = cluster.plan(&of_pool("headroom = { cpu = 1 }", ""));
    assert_eq!(removed(&plan), ["w1"]);
}

/// A pod of high priority for which the scheduler preempts other pods on this node.
fn nominated(node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: urgent\n  namespace: d\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
         spec: {{priority: 1000, containers: [{{name: c, resources: {{requests: {{cpu: 3, memory: 1Gi}}}}}}]}}\n\
         status: {{phase: Pending, nominatedNodeName: {node}, conditions: [{{type: PodScheduled, status: \"False\", reason: Unschedulable}}]}}"
    )
}

#[test]
fn a_pod_that_preemption_serves_gets_no_machine() {
    let full = Cluster::new().idle("w0", "w").pod("low", "4", "w0");
    let plan = full.with(&nominated("w0")).plan(&pools(0, 9, ""));
    assert_eq!(pod_verdict(&plan, "d/urgent"), PodOutcome::ExistingNode);
    assert!(plan.scale_up.is_empty() && plan.scale_down.is_empty());
}

#[test]
fn the_room_that_preemption_makes_is_given_to_no_other_pod() {
    let cluster = Cluster::new().idle("w0", "w").with(&nominated("w0")).pod("waits", "2", "");
    let plan = cluster.plan(&pools(0, 9, ""));
    assert_eq!(pod_verdict(&plan, "d/urgent"), PodOutcome::ExistingNode);
    assert_eq!(pod_verdict(&plan, "d/waits"), PodOutcome::NewNode);
}

#[test]
fn a_pod_nominated_to_a_node_that_goes_or_is_gone_gets_a_machine() {
    for (name, taint) in [("w0", LEAVING), ("w9", "")] {
        let taint = if taint.is_empty() { "{key: other, effect: NoSchedule}" } else { taint };
        let plan =
            Cluster::new().node("w0", "w", taint, "True").with(&nominated(name)).plan(&pools(0, 9, ""));
        assert_eq!(pod_verdict(&plan, "d/urgent"), PodOutcome::NewNode, "{name}");
    }
}

#[test]
fn placeholder_pods_make_room_ahead_and_hold_none_below_the_cut_off() {
    // The cut-off is -10. A pod at or above it triggers a new node and keeps its room until the scheduler
    // preempts it.
    for (priority, waits, other, gone) in [
        (-5, PodOutcome::NewNode, PodOutcome::NewNode, 0),
        (-10, PodOutcome::NewNode, PodOutcome::NewNode, 0),
        (-11, PodOutcome::Expendable, PodOutcome::ExistingNode, 1),
    ] {
        let placeholder = |name: &str, node: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  \
                 ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
                 spec: {{priority: {priority}, {node}containers: [{{name: c, resources: {{requests: {{cpu: 4, memory: 1Gi}}}}}}]}}"
            )
        };
        let full = || Cluster::new().idle("w0", "w").with(&placeholder("there", "nodeName: w0, "));
        let plan = full().with(&placeholder("waits", "")).pod("real", "4", "").plan(&pools(0, 9, ""));
        assert_eq!(pod_verdict(&plan, "d/waits"), waits, "{priority}");
        assert_eq!(pod_verdict(&plan, "d/real"), other, "{priority}");
        assert_eq!(full().plan(&pools(0, 9, "")).scale_down.len(), gone, "{priority}");
    }
    // The real pod that preempts the placeholder gets the placeholder's node. The placeholder then triggers
    // the next node.
    let there = "apiVersion: v1\nkind: Pod\nmetadata: {name: low, namespace: d}\nspec: {priority: -5, containers: [{name: c, resources: {requests: {cpu: 4}}}]}";
    let plan = Cluster::new().idle("w0", "w").with(&nominated("w0")).with(there).plan(&pools(0, 9, ""));
    assert_eq!(pod_verdict(&plan, "d/urgent"), PodOutcome::ExistingNode);
    assert_eq!(pod_verdict(&plan, "d/low"), PodOutcome::NewNode);
}

#[test]
fn a_pod_that_preempts_no_other_does_without_the_room_of_expendable_ones() {
    let pod = |name: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
             spec: {{{spec}, containers: [{{name: c, resources: {{requests: {{cpu: 3, memory: 1Gi}}}}}}]}}"
        )
    };
    let apart = ", affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: none}}}]}}";
    for (policy, more, expected, machines) in [
        ("PreemptLowerPriority", "", PodOutcome::ExistingNode, 0),
        ("Never", "", PodOutcome::NewNode, 1),
        // The result is the same for a pod with anti-affinity. Such pods are placed one by one.
        ("Never", apart, PodOutcome::NewNode, 1),
    ] {
        let cluster = Cluster::new().idle("n1", "w");
        let cluster = cluster.with(&pod("placeholder", "nodeName: n1, priority: -11"));
        let cluster = cluster.with(&pod("waits", &format!("preemptionPolicy: {policy}{more}")));
        let plan = cluster.plan(&pools(0, 9, ""));
        assert_eq!(pod_verdict(&plan, "d/waits"), expected, "{policy}{more}");
        assert_eq!(plan.scale_up.len(), machines, "{policy}{more}");
    }
}

#[test]
fn a_node_stays_whose_pod_would_have_to_preempt_and_does_not() {
    for (policy, gone) in [("PreemptLowerPriority", vec!["n2"]), ("Never", vec![])] {
        let pod = |name: &str, cpu: u32, spec: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  \
                 ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
                 spec: {{{spec}, containers: [{{name: c, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}]}}"
            )
        };
        let cluster = Cluster::new().idle("n1", "w").idle("n2", "w").pod("serves", "3", "n1");
        let cluster = cluster.with(&pod("placeholder", 1, "nodeName: n1, priority: -11"));
        let cluster = cluster.with(&pod("moves", 1, &format!("nodeName: n2, preemptionPolicy: {policy}")));
        let plan = cluster.plan(&pools(0, 9, ""));
        assert_eq!(removed(&plan), gone, "{policy}");
    }
}
