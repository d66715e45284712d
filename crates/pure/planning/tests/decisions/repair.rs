//! Nodes that have not been ready for too long, in pools at their minimum.

use model::Plan;
use model::plan::NodeOutcome;
use settings::Config;

use crate::cluster::{Cluster, inventory, machine, node_verdict, pools, removed, with_others};

/// How many machines of pool `w` are created.
fn made(plan: &Plan) -> usize {
    plan.scale_up.iter().filter(|one| one.pool == "w").map(|one| one.machines.len()).sum()
}

/// A ready node, and one that has not been ready for an hour.
fn one_of_two_is_lost() -> Cluster {
    Cluster::new().idle("w0", "w").node("w1", "w", "", "False").pod("p", "3", "w0")
}

fn said(plan: &Plan, node: &str) -> String {
    plan.nodes.iter().find(|one| one.node == node).and_then(|one| one.message.clone()).unwrap_or_default()
}

#[test]
fn a_lost_node_of_a_pool_at_its_minimum_is_replaced_before_it_goes() {
    let config = pools(2, 9, "");
    let plan = one_of_two_is_lost().plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (1, Vec::new()));
    assert_eq!(node_verdict(&plan, "w1"), NodeOutcome::AtMinimum);
    assert_eq!(
        said(&plan, "w1"),
        "the pool is at its minimum of 2; the node will be removed once its replacement is ready"
    );
    assert!(plan.nodes[1].since.is_some(), "the node's timer continues");

    // The replacement is being created.
    let machines =
        machine("w0", "Ready", true) + &machine("w1", "Ready", true) + &machine("w2", "Booting", false);
    let plan = one_of_two_is_lost().with(&inventory(&machines)).plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, Vec::new()));

    let machines = machines.replace("Booting", "Ready");
    let plan = one_of_two_is_lost().with(&inventory(&machines)).idle("w2", "w").plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, vec!["w1"]));
}

#[test]
fn a_lost_node_is_replaced_only_when_it_would_go() {
    let cases: [(&str, Config, Cluster, usize); 6] = [
        ("no minimum", pools(0, 9, ""), one_of_two_is_lost(), 0),
        ("above the minimum", pools(1, 9, ""), one_of_two_is_lost(), 0),
        (
            "`unready_time` has not passed yet",
            pools(2, 9, "[scale_down]\nunready_time = \"2h\"\n"),
            one_of_two_is_lost(),
            0,
        ),
        ("removals are off", pools(2, 9, "[scale_down]\nenabled = false\n"), one_of_two_is_lost(), 0),
        (
            "too many nodes are not ready",
            pools(2, 9, "[health]\nok_total_unready_count = 0\nmax_total_unready_percentage = 10\n"),
            one_of_two_is_lost(),
            0,
        ),
        ("the node's pod fits no other node", pools(2, 9, ""), one_of_two_is_lost().pod("q", "3", "w1"), 0),
    ];
    for (why, config, cluster, machines) in cases {
        assert_eq!(made(&cluster.plan(&config)), machines, "{why}");
    }
}

#[test]
fn a_pool_that_may_not_grow_keeps_its_lost_node_and_says_so() {
    let plan = one_of_two_is_lost().plan(&with_others(2, 2, 0, ""));
    assert_eq!((made(&plan), removed(&plan)), (0, Vec::new()));
    assert_eq!(
        said(&plan, "w1"),
        "the pool is at its minimum of 2; `max` leaves no room for the node's replacement"
    );
}

#[test]
fn a_lost_node_goes_before_an_idle_one() {
    let cluster = || Cluster::new().idle("w0", "w").idle("w1", "w").node("w2", "w", "", "False");
    assert_eq!(removed(&cluster().plan(&pools(2, 9, ""))), ["w2"]);
    assert_eq!(made(&cluster().plan(&pools(2, 9, ""))), 0);
    assert_eq!(removed(&cluster().plan(&pools(1, 9, ""))).len(), 2);
}

/// A cluster in which node `w1` of pool `w` has been unneeded for an hour, and not ready since `time`. The
/// caller's settings keep the node.
fn kept_and_silent_since(time: &str) -> Cluster {
    Cluster::new().idle("w0", "w").pod("p", "3", "w0").with(&format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: w1\n  labels: {{pve-autoscaler/pool: w, kubernetes.io/hostname: w1}}\n  \
         annotations: {{pve-autoscaler/unneeded-since: 2026-01-01T11:00:00Z}}\n\
         status:\n  allocatable: {{cpu: 4, memory: 16Gi, pods: 10}}\n  \
         conditions: [{{type: Ready, status: \"False\", lastTransitionTime: {time}}}]"
    ))
}

#[test]
fn a_node_that_its_minimum_keeps_is_lost_once_it_was_not_ready_for_long_enough() {
    let config = pools(2, 9, "[scale_down]\nunready_time = \"20m\"\n");
    for (since, machines) in
        [("2026-01-01T11:59:58Z", 0), ("2026-01-01T11:40:01Z", 0), ("2026-01-01T11:40:00Z", 1)]
    {
        assert_eq!(made(&kept_and_silent_since(since).plan(&config)), machines, "{since}");
    }
}

#[test]
fn a_node_that_a_window_keeps_is_not_taken_for_lost_as_its_kubelet_restarts() {
    let window = "[[disruption]]\nwindows = [{ start = \"0 2 * * *\", duration = \"1h\" }]\n";
    let config = pools(0, 9, &format!("[scale_down]\nunready_time = \"20m\"\n{window}"));
    for (since, goes) in [("2026-01-01T11:59:58Z", vec![]), ("2026-01-01T11:40:00Z", vec!["w1"])] {
        assert_eq!(removed(&kept_and_silent_since(since).plan(&config)), goes, "{since}");
    }
}

#[test]
fn a_lost_node_stays_lost_when_another_came_in_its_place_and_its_pod_has_no_other() {
    // The pod fits only its own node, like a pod with a volume on that node. Such a pod is not evicted while
    // the node is not ready.
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: db-0\n  namespace: d\n  \
         ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}]\n\
         spec: {nodeName: w1, nodeSelector: {kubernetes.io/hostname: w1}, \
         containers: [{name: c, resources: {requests: {cpu: 1}}}]}";
    let cluster = Cluster::new().node("w1", "w", "", "False").idle("w2", "w").with(pod);
    let plan = cluster.plan(&pools(1, 9, ""));
    assert_eq!((made(&plan), removed(&plan)), (0, Vec::new()));
    assert_eq!(node_verdict(&plan, "w1"), NodeOutcome::NoPlaceToMovePods);
    let lost = plan.nodes.iter().find(|one| one.node == "w1").unwrap();
    assert!(lost.since.is_some(), "the node's timer continues");
}
