//! Which machines the planner waits for. The tests cover temporary taints on starting nodes, and how long a
//! machine counts as being created.

use model::plan::PodOutcome;

use crate::cluster::{Cluster, inventory, of_pool, pod_verdict, pools};

/// A ready node of pool `w` with this creation time, these taints, and additional fields in its spec.
fn node(created: &str, taints: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: w0\n  creationTimestamp: 2026-01-01T{created}Z\n  \
         labels: {{pve-autoscaler/pool: w, kubernetes.io/hostname: w0}}\n\
         spec: {{{spec} taints: [{taints}]}}\n\
         status:\n  allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}\n  conditions: [{{type: Ready, status: \"True\"}}]"
    )
}

fn tainted(key: &str, created: &str) -> String {
    node(created, &format!("{{key: {key}, value: \"true\", effect: NoSchedule}}"), "")
}

fn waiting(node: &str, own: &str) -> PodOutcome {
    let plan = Cluster::new().with(node).pod("p", "3", "").plan(&of_pool(own, ""));
    pod_verdict(&plan, "d/p")
}

#[test]
fn taints_that_pass_by_themselves_are_waited_for_on_young_nodes() {
    use PodOutcome::{NewNode, UpcomingNode};
    for (key, expected) in [
        ("node.cloudprovider.kubernetes.io/uninitialized", UpcomingNode),
        ("node.kubernetes.io/network-unavailable", UpcomingNode),
        ("readiness.k8s.io/storage", UpcomingNode),
        ("startup-taint.cluster-autoscaler.kubernetes.io/a", UpcomingNode),
        ("ignore-taint.cluster-autoscaler.kubernetes.io/cilium-agent-not-ready", UpcomingNode),
        ("node.cilium.io/agent-not-ready", UpcomingNode),
        ("node.kubernetes.io/memory-pressure", NewNode),
        ("node.kubernetes.io/unreachable", NewNode),
        ("node.cloudprovider.kubernetes.io/shutdown", NewNode),
        ("example.com/agent", NewNode),
    ] {
        assert_eq!(waiting(&tainted(key, "11:50:00"), ""), expected, "{key}");
        assert_eq!(waiting(&tainted(key, "11:44:00"), ""), NewNode, "{key} of an old node");
    }
}

#[test]
fn a_pool_names_taints_that_pass_by_their_key_or_by_its_domain() {
    use PodOutcome::{NewNode, UpcomingNode};
    let domain = "startup_taints = [\"example.com/*\"]";
    for (own, key, expected) in [
        ("startup_taints = [\"example.com/agent:NoSchedule\"]", "example.com/agent", UpcomingNode),
        ("startup_taints = [\"example.com/agent:NoSchedule\"]", "example.com/other", NewNode),
        (domain, "example.com/agent", UpcomingNode),
        (domain, "sub.example.com/agent", NewNode),
        ("startup_taints = [\"example.com/*:NoSchedule\"]", "example.com/agent", UpcomingNode),
        ("startup_taints = [\"example.com/*:NoExecute\"]", "example.com/agent", NewNode),
    ] {
        assert_eq!(waiting(&tainted(key, "11:50:00"), own), expected, "{own} {key}");
        assert_eq!(waiting(&tainted(key, "11:44:00"), own), NewNode, "{own} {key} of an old node");
    }
}

#[test]
fn what_a_pool_puts_on_its_nodes_for_good_does_not_pass() {
    let own = "taints = [\"example.com/batch:NoSchedule\"]\nstartup_taints = [\"example.com/*\"]";
    let node = tainted("example.com/batch", "11:50:00");
    assert_eq!(waiting(&node, own), PodOutcome::NoPoolFits);
}

#[test]
fn a_taint_that_passes_refuses_no_pod_on_a_fresh_node_wherever_it_is_written() {
    let own = "taints = [\"node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule\"]";
    let plan = Cluster::new().pod("p", "3", "").plan(&of_pool(own, ""));
    assert_eq!(pod_verdict(&plan, "d/p"), PodOutcome::NewNode);
}

#[test]
fn pods_that_a_starting_node_has_already_keep_their_room() {
    let node = tainted("readiness.k8s.io/cni", "11:50:00");
    let verdict = |runs: &str| {
        let cluster = Cluster::new().with(&node).pod("runs", runs, "w0").pod("p", "3", "");
        pod_verdict(&cluster.plan(&of_pool("", "")), "d/p")
    };
    assert_eq!(verdict("1"), PodOutcome::UpcomingNode);
    assert_eq!(verdict("2"), PodOutcome::NewNode);
}

#[test]
fn a_cordon_or_another_taint_on_a_starting_node_is_a_fact() {
    let passing = "{key: readiness.k8s.io/cni, effect: NoSchedule}";
    let other = format!("{passing}, {{key: example.com/broken, effect: NoExecute}}");
    let soft = format!("{passing}, {{key: example.com/broken, effect: PreferNoSchedule}}");
    for (taints, spec, expected) in [
        (passing, "", PodOutcome::UpcomingNode),
        (soft.as_str(), "", PodOutcome::UpcomingNode),
        (other.as_str(), "", PodOutcome::NewNode),
        (passing, "unschedulable: true,", PodOutcome::NewNode),
    ] {
        assert_eq!(waiting(&node("11:50:00", taints, spec), ""), expected, "{taints} {spec}");
    }
}

/// A machine of pool `w` without a Node. `times` contains its time fields.
fn machine(phase: &str, times: &str) -> String {
    inventory(&format!(
        "{{name: w1, pool: w, vmid: 9101, host: pve1, cores: 4, memory: 8Gi, phase: {phase}, {times}}}"
    ))
}

#[test]
fn a_machine_that_is_overdue_is_not_waited_for() {
    use PodOutcome::{NewNode, UpcomingNode};
    for (phase, times, expected) in [
        ("Booting", "", UpcomingNode),
        ("Booting", "since: 2026-01-01T11:50:00Z", UpcomingNode),
        ("Booting", "since: 2026-01-01T11:44:00Z", NewNode),
        ("Configuring", "since: 2026-01-01T11:44:00Z", NewNode),
        ("Joining", "since: 2026-01-01T11:59:00Z, requested: 2026-01-01T11:44:00Z", NewNode),
        ("Joining", "since: 2026-01-01T11:59:00Z, requested: 2026-01-01T11:46:00Z", UpcomingNode),
    ] {
        let cluster = Cluster::new().with(&machine(phase, times)).pod("p", "3", "");
        assert_eq!(pod_verdict(&cluster.plan(&of_pool("", "")), "d/p"), expected, "{phase} {times}");
    }
}

#[test]
fn a_pool_gets_its_minimum_beside_a_machine_that_is_overdue() {
    for (since, expected) in [("11:50:00", 0), ("11:44:00", 1)] {
        let cluster = Cluster::new().with(&machine("Booting", &format!("since: 2026-01-01T{since}Z")));
        let plan = cluster.plan(&pools(1, 9, ""));
        let made: usize = plan.scale_up.iter().map(|pool| pool.machines.len()).sum();
        assert_eq!(made, expected, "{since}");
    }
}
