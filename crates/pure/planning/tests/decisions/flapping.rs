//! A removal must not cause a new machine to be created immediately.

use model::Plan;
use model::plan::NodeOutcome;

use crate::cluster::{Cluster, node_verdict, pools, removed};

/// w0 has 2 of 4 CPUs free. On w1, `on_w1` of 4 CPUs are in use. w2 has pods of 1.5, 1 and 1 CPUs. The search
/// for removable nodes fills w1 first if it is the fuller node. Scaling up fills nodes in order of their
/// names, so w0 comes first. One pod of 1 CPU then finds no room, unless w1 has 2 CPUs free.
fn three(on_w1: &str) -> Cluster {
    Cluster::new()
        .idle("w0", "w")
        .idle("w1", "w")
        .sized("w2", "w", "8", "", "True")
        .pod("a", "2", "w0")
        .pod("b", on_w1, "w1")
        .pod("c", "1500m", "w2")
        .pod("d", "1", "w2")
        .pod("e", "1", "w2")
}

/// Why the node stays, in words.
fn kept<'p>(plan: &'p Plan, node: &str) -> &'p str {
    assert_eq!(node_verdict(plan, node), NodeOutcome::NoPlaceToMovePods);
    let verdict = plan.nodes.iter().find(|one| one.node == node).unwrap();
    verdict.message.as_deref().unwrap()
}

#[test]
fn a_node_without_which_a_machine_would_be_asked_for_stays() {
    let config = pools(0, 9, "[scale_down]\nutilization_threshold = 0.45\n");
    assert_eq!(removed(&three("1500m").plan(&config)), ["w2"]);
    let plan = three("2500m").plan(&config);
    assert_eq!(removed(&plan), Vec::<&str>::new());
    assert_eq!(kept(&plan, "w2"), "without this node, a new machine would be needed");
}

#[test]
fn a_node_stays_whose_pods_fit_only_if_kube_scheduler_places_them_so() {
    let config = pools(0, 9, "[scale_down]\nutilization_threshold = 0.45\n");
    // One pod of 1 CPU on each of the other two nodes leaves no room for the pod of 1.5 CPUs.
    let plan = three("2").plan(&config);
    assert_eq!(removed(&plan), Vec::<&str>::new());
    assert_eq!(
        kept(&plan, "w2"),
        "its pods fit elsewhere only if kube-scheduler happens to place them as the planner expects"
    );
}

/// 2 CPUs are free on w0 and 4 on w1. Only w1 has room for the larger pod of w2, so the smaller one must not
/// be placed there. It goes to w0, where relatively more is free, unless it prefers w1.
#[test]
fn a_node_stays_whose_pods_fit_only_if_kube_scheduler_does_not_heed_what_they_prefer() {
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let config = pools(0, 9, "[scale_down]\nutilization_threshold = 0.45\n");
    let cluster = |affinity: &str| {
        let small = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: small\n  namespace: d\n  labels: {{app: small}}\n  \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
             spec: {{nodeName: w2, affinity: {{{affinity}}}, containers: [{{name: c, resources: {{requests: {{cpu: 1, memory: 1Gi}}}}}}]}}\n\
             status: {{phase: Running, conditions: [{{type: Ready, status: \"True\"}}]}}"
        );
        let nodes = Cluster::new()
            .idle("w0", "w")
            .sized("w1", "w", "16", "", "True")
            .sized("w2", "w", "16", "", "True");
        nodes.pod("a", "2", "w0").pod("b", "12", "w1").pod("large", "3500m", "w2").with(&small)
    };
    let host = "matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [w1]}]";
    let node = format!("nodeAffinity: {{{PREFERRED}: [{{weight: 1, preference: {{{host}}}}}]}}");
    // The term selects pods without the label `app`, which are all pods except this one.
    let term = "podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}";
    let away = format!("podAntiAffinity: {{{PREFERRED}: [{{weight: 100, {term}}}]}}");
    assert_eq!(removed(&cluster("").plan(&config)), ["w2"]);
    assert_eq!(removed(&cluster(&away).plan(&config)), ["w2"], "w0 and w1 have one pod each");
    let plan = cluster(&node).plan(&config);
    assert_eq!(removed(&plan), Vec::<&str>::new());
    assert_eq!(
        kept(&plan, "w2"),
        "its pods fit elsewhere only if kube-scheduler happens to place them as the planner expects"
    );
    let more = cluster(&away).pod("c", "0", "w0");
    assert_eq!(removed(&more.plan(&config)), Vec::<&str>::new(), "the pod avoids w0, which has two pods");
}

#[test]
fn a_lost_node_goes_though_its_pods_fit_only_by_luck() {
    let config = pools(0, 9, "[scale_down]\nutilization_threshold = 0.45\n");
    let lost = "apiVersion: v1\nkind: Node\nmetadata: {name: w2, labels: {pve-autoscaler/pool: w}, \
                annotations: {pve-autoscaler/unneeded-since: 2026-01-01T11:00:00Z}}\n\
                status: {allocatable: {cpu: 8, memory: 16Gi, pods: 10}, conditions: [{type: Ready, status: \"False\"}]}";
    let cluster = Cluster::new().idle("w0", "w").idle("w1", "w").with(lost);
    let cluster = cluster.pod("a", "2", "w0").pod("b", "2", "w1").pod("c", "1500m", "w2").pod("d", "1", "w2");
    assert_eq!(removed(&cluster.pod("e", "1", "w2").plan(&config)), ["w2"]);
}

/// Two nodes with 4 CPUs, and a third, unmanaged node with `left` thousandths of a core free. The pods of the
/// first two nodes fill one of them completely if `web-0` is placed on the third node. kube-scheduler does
/// not place it there, because the third node has the least room.
fn to_the_last(left: u32) -> Cluster {
    let third = "apiVersion: v1\nkind: Node\nmetadata: {name: third}\n\
                 status: {allocatable: {cpu: 2, memory: 16Gi, pods: 10}, conditions: [{type: Ready, status: \"True\"}]}";
    Cluster::new()
        .idle("w0", "w")
        .idle("w1", "w")
        .with(third)
        .pod("agent-0", "100m", "w0")
        .pod("api-0", "1600m", "w0")
        .pod("api-1", "1600m", "w1")
        .pod("db-0", "700m", "w0")
        .pod("web-0", "200m", "w1")
        .pod("web-1", &format!("{}m", 2000 - left), "third")
}

#[test]
fn consolidation_takes_no_node_for_whose_pods_a_machine_would_be_made_again() {
    let config = pools(0, 9, "[scale_down]\nconsolidation = true\nutilization_threshold = 0.1\n");
    let plan = to_the_last(200).plan(&config);
    assert_eq!(removed(&plan), Vec::<&str>::new(), "{:?}", plan.nodes);
    assert!(plan.scale_up.is_empty());
    assert_eq!(removed(&to_the_last(1900).plan(&config)).len(), 1);
}

#[test]
fn a_node_that_is_needed_holds_up_no_other() {
    let config = pools(0, 9, "[scale_down]\nutilization_threshold = 0.45\n");
    let elsewhere = "{key: dedicated, effect: NoSchedule}";
    let plan = three("2500m")
        .node("g0", "other", elsewhere, "True")
        .node("g1", "other", elsewhere, "True")
        .plan(&config);
    assert_eq!(removed(&plan), ["g0", "g1"]);
    assert_eq!(node_verdict(&plan, "w2"), NodeOutcome::NoPlaceToMovePods);
}
