//! What a fresh node is expected to offer, and what runs on it before the pods that it is created for.

use model::plan::PodOutcome;
use model::snapshot::Memory;
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, inventory, machine, pod_verdict};

/// Pool `w` with 4 cores, 8 GiB, and the additional settings in `own`.
fn learning(own: &str) -> Config {
    let text = format!("[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n{own}\n");
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// A DaemonSet whose template requests 100m of CPU and mounts these volumes.
fn daemon_set(volumes: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: agent, namespace: d, uid: ds}}\n\
         spec: {{template: {{metadata: {{labels: {{app: agent}}}}, spec: {{volumes: [{volumes}], \
         containers: [{{name: c, resources: {{requests: {{cpu: 100m}}}}}}]}}}}}}"
    )
}

/// The DaemonSet's pod on node `a`, with requests that differ from the template's.
fn its_pod(name: &str, cpu: &str, created: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  creationTimestamp: {created}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: ds, controller: true}}]\n\
         spec: {{nodeName: a, containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}\nstatus: {{phase: Running}}"
    )
}

/// A static pod on node `a` that requests 400m of CPU.
const STATIC: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: proxy-a\n  namespace: kube-system\n  \
     annotations: {kubernetes.io/config.mirror: x, kubernetes.io/config.source: file}\n  \
     ownerReferences: [{apiVersion: v1, kind: Node, name: a, uid: a, controller: true}]\n\
     spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 400m}}}]}\nstatus: {phase: Running}";

/// A cluster whose only node, in pool `w`, is full.
fn with_a_full_node() -> Cluster {
    Cluster::new().node("a", "w", "", "True").pod("fills", "3", "a")
}

fn fits(cluster: Cluster, cpu: &str, config: &Config) -> bool {
    match pod_verdict(&cluster.pod("p", cpu, "").plan(config), "d/p") {
        PodOutcome::NewNode => true,
        PodOutcome::NoPoolFits => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_daemon_sets_take_of_a_fresh_node_is_what_their_pods_ask_for() {
    let claim = "{name: v, persistentVolumeClaim: {claimName: missing}}";
    let ephemeral = "{name: v, ephemeral: {volumeClaimTemplate: {spec: {}}}}";
    for volumes in ["", claim, ephemeral] {
        let cluster = || with_a_full_node().with(&daemon_set(volumes));
        assert!(fits(cluster(), "3900m", &learning("")), "{volumes}");
        assert!(!fits(cluster(), "3901m", &learning("")), "{volumes}");
        // The newest pod of the DaemonSet requests more than the template, as with an injected sidecar.
        let older = its_pod("agent-1", "900m", "2026-01-01T10:00:00Z");
        let newest = its_pod("agent-2", "300m", "2026-01-01T11:00:00Z");
        for pods in [[&older, &newest], [&newest, &older]] {
            let live = || cluster().with(pods[0]).with(pods[1]);
            assert!(fits(live(), "3700m", &learning("")), "{volumes}");
            assert!(!fits(live(), "3701m", &learning("")), "{volumes}");
        }
    }
}

#[test]
fn what_static_pods_take_of_a_node_they_take_of_each() {
    let cluster = || with_a_full_node().with(STATIC);
    assert!(fits(cluster(), "3600m", &learning("")));
    assert!(!fits(cluster(), "3601m", &learning("")));
    // The requests of static pods are remembered after the node is gone.
    let mut memory = Memory::default();
    let seen = cluster().with(&inventory(&machine("a", "Ready", true))).snapshot();
    assert!(planning::learn(&mut memory, &seen, &learning("")));
    for (cpu, expected) in [("3600m", PodOutcome::NewNode), ("3601m", PodOutcome::NoPoolFits)] {
        let mut empty = Cluster::new().pod("p", cpu, "").snapshot();
        empty.memory = memory.clone();
        let plan = planning::plan(&empty, &learning(""));
        assert_eq!(pod_verdict(&plan, "d/p"), expected, "{cpu}");
    }
}

#[test]
fn a_pool_that_never_had_a_node_takes_pods_that_want_disk() {
    let wants = |gib: u32| {
        Cluster::new().with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  namespace: d\n  \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
             spec: {{containers: [{{name: c, resources: {{requests: {{ephemeral-storage: {gib}Gi}}}}}}]}}"
        ))
    };
    for (own, gib, expected) in [
        ("disk = \"20GiB\"", 17, PodOutcome::NewNode),
        ("disk = \"20GiB\"", 18, PodOutcome::NoPoolFits),
        // The size of the template's disk is learned from the first node.
        ("", 500, PodOutcome::NewNode),
    ] {
        assert_eq!(pod_verdict(&wants(gib).plan(&learning(own)), "d/p"), expected, "{own} {gib}");
    }
}
