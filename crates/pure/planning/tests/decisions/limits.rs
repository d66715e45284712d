//! Limits on CPU and memory, for a pool and for the cluster. A pool grows until the next machine would exceed
//! a limit.

use model::Plan;
use model::plan::PodOutcome;

use crate::cluster::{Cluster, inventory, machine, of_pool, pod_verdict, pools};

/// The plan for five pods that each need a machine with 4 CPUs and 8 GiB. The cluster already has one machine
/// of pool `w` and one unmanaged node.
fn asked(settings: &str, of_pools: &str) -> Plan {
    let foreign = "apiVersion: v1\nkind: Node\nmetadata: {name: cp1}\nspec: {unschedulable: true}\n\
        status: {capacity: {cpu: 2, memory: 4Gi, pods: 10}, allocatable: {cpu: 1900m, memory: 3Gi, pods: 10}}";
    let mut cluster = Cluster::new()
        .idle("w0", "w")
        .pod("full", "4", "w0")
        .with(foreign)
        .with(&inventory(&machine("w0", "Ready", true)).replace("memory: 32Gi", "memory: 320Gi"));
    for name in ["a", "b", "c", "d", "e"] {
        cluster = cluster.pod(name, "3", "");
    }
    cluster.plan(&of_pool(of_pools, settings))
}

fn made(plan: &Plan, pool: &str) -> usize {
    plan.scale_up.iter().filter(|one| one.pool == pool).map(|one| one.machines.len()).sum()
}

#[test]
fn growth_stops_at_each_limit_and_no_earlier() {
    // The existing machine has 4 cores and 8 GiB, the unmanaged node 2 cores and 4 GiB.
    let cases = [
        ("", "", 5, ""),
        (
            "",
            "max_cores = 12",
            2,
            "one more machine would exceed the pool's maximum of 12 cores; the pool has 12",
        ),
        (
            "",
            "max_cores = 15",
            2,
            "one more machine would exceed the pool's maximum of 15 cores; the pool has 12",
        ),
        (
            "",
            "max_memory = \"32GiB\"",
            3,
            "one more machine would exceed the pool's maximum of 32Gi of memory; the pool has 32Gi",
        ),
        (
            "",
            "max_memory = \"39GiB\"",
            3,
            "one more machine would exceed the pool's maximum of 39Gi of memory; the pool has 32Gi",
        ),
        (
            "[scale_up]\nmax_cores_total = 14",
            "",
            2,
            "one more machine would exceed the cluster's maximum of 14 cores; the cluster has 14",
        ),
        (
            "[scale_up]\nmax_cores_total = 13",
            "",
            1,
            "one more machine would exceed the cluster's maximum of 13 cores; the cluster has 10",
        ),
        (
            "[scale_up]\nmax_memory_total = \"28GiB\"",
            "",
            2,
            "one more machine would exceed the cluster's maximum of 28Gi of memory; the cluster has 28Gi",
        ),
        ("[scale_up]\nmax_nodes_total = 5", "", 3, "the cluster is at its `max_nodes_total` of 5"),
        ("[scale_up]\nmax_cores_total = 0\nmax_memory_total = \"0\"", "", 5, ""),
    ];
    for (settings, of_pools, machines, message) in cases {
        let plan = asked(settings, of_pools);
        assert_eq!(made(&plan, "w"), machines, "{settings} {of_pools}");
        let left: Vec<_> = plan.pods.iter().filter(|pod| pod.verdict != PodOutcome::NewNode).collect();
        assert_eq!(left.len(), 5 - machines, "{settings} {of_pools}");
        for pod in left {
            assert_eq!(pod.verdict, PodOutcome::PoolAtMax);
            assert_eq!((pod.reasons()[0].reason, pod.reasons()[0].message.as_str()), ("PoolAtMax", message));
        }
    }
}

#[test]
fn what_one_pool_may_not_another_does() {
    let mut cluster = Cluster::new();
    for name in ["a", "b", "c"] {
        cluster = cluster.pod(name, "3", "");
    }
    let mut config = pools(0, 9, "");
    config.pools[0].max_cores = Some(4);
    let plan = cluster.plan(&config);
    assert_eq!((made(&plan, "w"), made(&plan, "other")), (1, 2));
    assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::NewNode));
}

#[test]
fn a_minimum_is_not_reached_beyond_a_limit_of_the_cluster() {
    let plan = Cluster::new().pod("a", "3", "").plan(&pools(3, 9, "[scale_up]\nmax_cores_total = 8"));
    assert_eq!(made(&plan, "w"), 2);
    assert_eq!(pod_verdict(&plan, "d/a"), PodOutcome::NewNode);
    let short: Vec<_> = plan.below_minimum.iter().map(|one| (one.pool.as_str(), one.reason)).collect();
    assert_eq!(short, [("w", "PoolAtMax")]);
    assert!(Cluster::new().plan(&pools(2, 9, "[scale_up]\nmax_cores_total = 8")).below_minimum.is_empty());
}

#[test]
fn a_node_that_has_lost_its_pools_label_counts_for_the_pool_that_its_machine_is_of() {
    let bare = "apiVersion: v1\nkind: Node\nmetadata: {name: w-1}\n\
        status: {allocatable: {cpu: 4, memory: 16Gi, pods: 10}, conditions: [{type: Ready, status: \"True\"}]}";
    let there = inventory(&machine("w-1", "Ready", true));
    let cluster = Cluster::new().with(bare).with(&there).pod("a", "3", "w-1").pod("b", "3", "");
    let mut config = of_pool("", "");
    for (max, machines) in [(1, 0), (2, 1)] {
        config.pools[0].max = max;
        assert_eq!(made(&cluster.plan(&config), "w"), machines, "of {max}");
    }
}

#[test]
fn machines_whose_guests_have_the_same_name_all_count() {
    let namesake = machine("w-2", "Ready", true).replace("node: w-2", "node: w-1");
    assert!(namesake.contains("node: w-1"), "{namesake}");
    let there = inventory(&format!("{}{namesake}", machine("w-1", "Ready", true)));
    let cluster = Cluster::new().idle("w-1", "w").with(&there).pod("a", "3", "w-1").pod("b", "3", "");
    let mut config = of_pool("", "");
    for (max, machines) in [(2, 0), (3, 1)] {
        config.pools[0].max = max;
        assert_eq!(made(&cluster.plan(&config), "w"), machines, "of {max}");
    }
}
