//! Nodes that are removed or replaced because fewer or smaller machines are enough.

use model::Plan;
use model::plan::{NodeOutcome, RemovalReason};
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, node_verdict, removed};

const ON: &str = "consolidation = true";

/// Machines of 2, 4 and 16 cores with 4 GiB for each core.
fn sizes(scale_down: &str, pool: &str) -> Config {
    let text = format!(
        "[scale_down]\n{scale_down}\n[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"16GiB\"\n\
         sizes = [{{ cores = 16, memory = \"64GiB\" }}, {{ cores = 2, memory = \"8GiB\" }}]\n{pool}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// A cluster with one node per entry. Each entry contains the node's number of cores and the CPU requests of
/// its pods, in thousandths of a core.
fn cluster(nodes: &[(u32, &[u32])]) -> Cluster {
    cluster_and(nodes, None)
}

/// Like [`cluster`], but optionally with a machine that is not a node yet.
fn cluster_and(nodes: &[(u32, &[u32])], coming: Option<&str>) -> Cluster {
    let machine = |(number, (cores, _)): (usize, &(u32, &[u32]))| {
        let memory = cores * 4;
        format!(
            "{{name: n{number}, pool: w, vmid: 910{number}, host: pve1, cores: {cores}, memory: {memory}Gi, phase: Ready, node: n{number}}}"
        )
    };
    let machines = nodes.iter().enumerate().map(machine).chain(coming.map(ToOwned::to_owned));
    let machines: Vec<String> = machines.collect();
    let inventory = format!(
        "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\n\
         hosts: [{{name: pve1, online: true, cores: 64, memory: 512Gi, memoryUsed: 4Gi}}]\nmachines: [{}]",
        machines.join(", ")
    );
    let mut cluster = Cluster::new().with(&inventory);
    for (number, (cores, pods)) in nodes.iter().enumerate() {
        let name = format!("n{number}");
        cluster = cluster.large(&name, *cores);
        for (count, cpu) in pods.iter().enumerate() {
            cluster = cluster.pod(&format!("p{number}-{count}"), &format!("{cpu}m"), &name);
        }
    }
    cluster
}

/// The cores of the machines that are created.
fn made(plan: &Plan) -> Vec<u32> {
    let mut cores: Vec<u32> =
        plan.scale_up.iter().flat_map(|one| &one.machines).map(|machine| machine.cores).collect();
    cores.sort_unstable();
    cores
}

#[test]
fn nodes_are_replaced_by_fewer_or_smaller_machines() {
    type Case<'a> = (&'a str, &'a [(u32, &'a [u32])], &'a [u32]);
    let cases: [Case; 7] = [
        ("a large node that is hardly used", &[(16, &[1500])], &[2]),
        ("a large node whose pods need it", &[(16, &[1500, 9000])], &[]),
        ("a node of the smallest size", &[(2, &[300])], &[]),
        ("two nodes whose pods fit one", &[(4, &[1900]), (4, &[2000, 100])], &[]),
        (
            "nodes whose pods fit one large node",
            &[(4, &[2500]), (4, &[2500]), (4, &[2500]), (4, &[2500]), (4, &[2500])],
            &[16],
        ),
        ("a node that could only be replaced by several", &[(4, &[1900, 1900])], &[]),
        ("two large nodes whose pods fit one", &[(16, &[3500]), (16, &[9000])], &[]),
    ];
    for (what, nodes, machines) in cases {
        let plan = cluster(nodes).plan(&sizes(ON, ""));
        assert_eq!(made(&plan), machines, "{what}: {:?}", plan.nodes);
        assert!(machines.is_empty() || removed(&plan).is_empty(), "{what}: the replacement is created first");
        let off = cluster(nodes).plan(&sizes("", ""));
        assert!(off.scale_up.is_empty(), "{what}, without consolidation");
    }
}

#[test]
fn a_node_above_the_threshold_goes_where_its_pods_fit_elsewhere() {
    let nodes: &[(u32, &[u32])] = &[(16, &[4000, 5000]), (16, &[2000, 2000, 3500])];
    let plan = cluster(nodes).plan(&sizes("", ""));
    assert_eq!(removed(&plan), Vec::<&str>::new());
    assert_eq!(node_verdict(&plan, "n1"), NodeOutcome::NoPlaceToMovePods);
    let nodes: &[(u32, &[u32])] = &[(16, &[1000, 8500]), (16, &[2000, 2000]), (4, &[1000, 1200])];
    let plan = cluster(nodes).plan(&sizes(&format!("{ON}\nutilization_threshold = 0.1"), ""));
    assert!(!removed(&plan).is_empty(), "{:?}", plan.nodes);
    assert!(plan.scale_down.iter().all(|one| one.reason == RemovalReason::Consolidation));
    assert_eq!(node_verdict(&plan, "n0"), NodeOutcome::Utilized);
}

#[test]
fn nothing_is_replaced_before_its_time_and_the_time_is_counted() {
    let plan = cluster(&[(16, &[1500])]).plan(&sizes(&format!("{ON}\nunneeded_time = \"2h\""), ""));
    assert_eq!(made(&plan), Vec::<u32>::new());
    let node = &plan.nodes[0];
    assert_eq!((node.verdict, node.since.is_some()), (NodeOutcome::Unneeded, true));
    assert_eq!(
        node.message.as_deref(),
        Some("could be replaced by a machine with 2 cores and 8Gi of memory")
    );
}

#[test]
fn pools_that_may_not_are_not_replaced() {
    for (scale_down, pool) in [
        (ON, "headroom = { cpu = 1 }"),
        ("consolidation = true\nenabled = false", ""),
        ("consolidation = true\nunneeded_time = \"2h\"", ""),
    ] {
        assert_eq!(
            made(&cluster(&[(16, &[1500])]).plan(&sizes(scale_down, pool))),
            Vec::<u32>::new(),
            "{pool}"
        );
    }
    // The pool's minimum does not prevent the replacement, but its maximum does.
    let mut config = sizes(ON, "min = 1");
    assert_eq!(made(&cluster(&[(16, &[1500])]).plan(&config)), [2]);
    config.pools[0].max = 1;
    assert_eq!(made(&cluster(&[(16, &[1500])]).plan(&config)), Vec::<u32>::new());
}

#[test]
fn a_nodes_time_goes_on_while_the_machine_in_its_place_is_made() {
    let config = sizes(&format!("{ON}\nutilization_threshold = 0.1"), "min = 1");
    let coming = "{name: w-new, pool: w, vmid: 9109, host: pve1, cores: 2, memory: 8Gi, phase: Booting}";
    let plan = cluster_and(&[(16, &[1800])], Some(coming)).plan(&config);
    let node = &plan.nodes[0];
    assert_eq!(node.verdict, NodeOutcome::AtMinimum);
    assert_eq!(node.since.map(|since| since.to_string()).as_deref(), Some("2026-01-01T11:00:00Z"));
    // Once both machines are nodes, `n0` is removed, although the other node is empty.
    let both = cluster(&[(16, &[1800]), (2, &[])]).plan(&config);
    assert_eq!(removed(&both), ["n0"]);
}

#[test]
fn nothing_is_replaced_while_machines_are_on_their_way_or_pods_wait_for_them() {
    let plan = cluster(&[(16, &[1500])]).pod("waits", "15", "").plan(&sizes(ON, ""));
    assert_eq!(made(&plan), [16]);
    assert_eq!(node_verdict(&plan, "n0"), NodeOutcome::NoPlaceToMovePods);
}
