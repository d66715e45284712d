//! How pod and node annotations affect decisions.

use model::plan::NodeOutcome;

use crate::cluster::{Cluster, node_verdict, pools, removed};

/// A pod of a ReplicaSet with these annotations, which has been running since `started`.
fn annotated(name: &str, node: &str, annotations: &str, started: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  annotations: {{{annotations}}}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
         spec: {{nodeName: {node}, containers: [{{name: c, resources: {{requests: {{cpu: 500m, memory: 64Mi}}}}}}]}}\n\
         status: {{phase: Running, {started} conditions: [{{type: Ready, status: \"True\"}}]}}"
    )
}

#[test]
fn a_pod_keeps_its_node_for_as_long_as_it_says() {
    let started = "startTime: 2026-01-01T11:50:00Z,";
    for (value, started, goes) in [
        ("true", started, false),
        ("1h", started, false),
        ("10m1s", started, false),
        ("10m", started, true),
        ("5m", started, true),
        ("5m", "", false),
        ("1d", started, true),
    ] {
        let annotation = format!("karpenter.sh/do-not-disrupt: \"{value}\"");
        let cluster = Cluster::new().idle("g0", "other").idle("w0", "w");
        let cluster = cluster.pod("stays", "3", "g0").with(&annotated("p", "w0", &annotation, started));
        let plan = cluster.plan(&pools(0, 9, ""));
        assert_eq!(removed(&plan) == ["w0"], goes, "{value} {started}: {:?}", plan.nodes);
        let ignored: Vec<&str> = plan.ignored_annotations.iter().map(|one| one.object.as_str()).collect();
        assert_eq!(ignored.is_empty(), value != "1d", "{value}: {ignored:?}");
    }
}

#[test]
fn a_node_that_must_not_be_repaired_stays_only_while_it_is_not_ready() {
    let node = |ready: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata:\n  name: w0\n  labels: {{pve-autoscaler/pool: w, kubernetes.io/hostname: w0}}\n  \
             annotations: {{pve-autoscaler/unneeded-since: 2026-01-01T11:00:00Z, karpenter.sh/do-not-repair: \"true\"}}\n\
             status:\n  allocatable: {{cpu: 4, memory: 16Gi, pods: 10}}\n  \
             conditions: [{{type: Ready, status: \"{ready}\", lastTransitionTime: 2026-01-01T11:00:00Z}}]"
        )
    };
    let verdict = |ready: &str| {
        let cluster = Cluster::new().idle("g0", "other").idle("w1", "w").idle("w2", "w");
        let plan = cluster.pod("a", "3", "w1").pod("b", "3", "w2").with(&node(ready)).plan(&pools(0, 9, ""));
        node_verdict(&plan, "w0")
    };
    assert_eq!(verdict("Unknown"), NodeOutcome::Disabled);
    assert_eq!(verdict("True"), NodeOutcome::Remove);
}

#[test]
fn nodes_whose_pods_cost_less_go_first() {
    let one_at_a_time = "[scale_down]\nmax_parallel_drains = 1\n";
    for (first, second, expected) in [
        ("", "", "w0"),
        ("karpenter.sh/disruption-cost: \"5\"", "", "w1"),
        ("controller.kubernetes.io/pod-deletion-cost: \"5\"", "", "w1"),
        ("", "karpenter.sh/disruption-cost: \"-5\"", "w1"),
        ("karpenter.sh/disruption-cost: \"5\"", "karpenter.sh/disruption-cost: \"9\"", "w0"),
    ] {
        let cluster = Cluster::new().idle("g0", "other").idle("w0", "w").idle("w1", "w").pod("s", "3", "g0");
        let cluster = cluster.with(&annotated("a", "w0", first, "")).with(&annotated("b", "w1", second, ""));
        let plan = cluster.plan(&pools(0, 9, one_at_a_time));
        assert_eq!(removed(&plan), [expected], "{first} {second}: {:?}", plan.nodes);
    }
}

#[test]
fn a_daemon_sets_pod_that_asks_for_it_is_evicted_last() {
    let daemon = |annotation: &str, tolerations: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: agent\n  namespace: d\n  annotations: {{{annotation}}}\n  \
             ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: ds, controller: true}}]\n\
             spec: {{nodeName: w0, tolerations: [{tolerations}], containers: [{{name: c}}]}}\n\
             status: {{phase: Running, conditions: [{{type: Ready, status: \"True\"}}]}}"
        )
    };
    let set = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent, namespace: d, uid: ds}\n\
               spec: {template: {spec: {containers: [{name: c}]}}}";
    let asks = "cluster-autoscaler.kubernetes.io/enable-ds-eviction: \"true\"";
    for (annotation, tolerations, expected) in [("", "", 0), (asks, "", 1), (asks, "{operator: Exists}", 0)] {
        let alone = Cluster::new().idle("w0", "w").with(set).with(&daemon(annotation, tolerations));
        let names = |cluster: &Cluster| {
            let left =
                planning::evictions(&cluster.snapshot(), &pools(0, 9, ""), "w0", |_| false, &[]).unwrap();
            (left.evict.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>(), left.later.len())
        };
        assert_eq!(names(&alone), (vec!["agent".to_owned(); expected], 0), "{annotation} {tolerations}");
        let beside = alone.pod("p", "1", "w0");
        assert_eq!(names(&beside), (vec!["p".to_owned()], expected), "{annotation} {tolerations}");
    }
}
