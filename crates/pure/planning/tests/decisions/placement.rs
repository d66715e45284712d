//! Which host gets the next machine, and which hosts have room.

use model::Plan;
use model::plan::PodOutcome;
use settings::{self, Config, Needs};

use crate::cluster::Cluster;

/// Pool `w` of machines with 4 cores and 8 GiB.
fn pool(top: &str, more: &str) -> Config {
    let text = format!(
        "{top}\n[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\nmemory_reserve = \"0\"\n{more}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

fn host(name: &str, memory: u32, more: &str) -> String {
    format!("{{name: {name}, cores: 16, memory: {memory}Gi{more}}}")
}

fn inventory(hosts: &str) -> String {
    format!("apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: [{hosts}]\nmachines: []")
}

/// The hosts of the plan's new machines.
fn hosts_of(plan: &Plan) -> Vec<String> {
    plan.scale_up.iter().flat_map(|one| &one.machines).map(|machine| machine.host.to_string()).collect()
}

fn loners(count: usize) -> Cluster {
    (0..count).fold(Cluster::new(), |cluster, number| cluster.pod(&format!("p{number}"), "3", ""))
}

#[test]
fn hosts_are_balanced_spread_over_or_packed() {
    let hosts = [host("a", 64, ""), host("b", 32, ""), host("c", 17, "")].join(", ");
    for (placement, expected) in
        [("balance", ["a", "a", "a", "a"]), ("spread", ["a", "b", "c", "a"]), ("pack", ["c", "c", "b", "b"])]
    {
        let config = pool("", &format!("placement = \"{placement}\""));
        let plan = loners(4).with(&inventory(&hosts)).plan(&config);
        assert_eq!(hosts_of(&plan), expected, "{placement}");
    }
}

#[test]
fn a_minimum_is_placed_as_machines_for_pods_are_also_if_labels_tell_hosts_apart() {
    let hosts = [host("a", 64, ""), host("b", 32, ""), host("c", 17, "")].join(", ");
    for (placement, expected) in
        [("balance", ["a", "a", "a", "a"]), ("spread", ["a", "b", "c", "a"]), ("pack", ["c", "c", "b", "b"])]
    {
        for labels in ["", "labels = { host = \"{{ host }}\" }"] {
            let config = pool("", &format!("min = 4\nplacement = \"{placement}\"\n{labels}"));
            let plan = Cluster::new().with(&inventory(&hosts)).plan(&config);
            assert_eq!(hosts_of(&plan), expected, "{placement}, {labels}");
        }
    }
}

#[test]
fn a_host_may_promise_more_memory_than_it_has_but_not_what_is_in_use() {
    let hosts = host("a", 32, ", memoryUsed: 8Gi, memoryAssigned: 24Gi");
    for (overcommit, machines) in [("1.0", 1), ("1.5", 3), ("9.0", 3), ("0.5", 0)] {
        let config = pool("", &format!("memory_overcommit = {overcommit}"));
        let plan = loners(5).with(&inventory(&hosts)).plan(&config);
        assert_eq!(hosts_of(&plan).len(), machines, "{overcommit}");
    }
}

#[test]
fn a_host_keeps_what_it_says_itself() {
    let hosts = host("a", 64, "");
    for (own, machines) in
        [("", 5), ("memory_reserve = \"40GiB\"", 3), ("cpu_reserve = 14", 2), ("closed = true", 0)]
    {
        let config = pool(&format!("[[host]]\nname = \"a\"\n{own}"), "");
        let plan = loners(5).with(&inventory(&hosts)).plan(&config);
        assert_eq!(hosts_of(&plan).len(), machines, "{own}");
    }
}

#[test]
fn each_host_is_named_with_what_it_lacks() {
    let hosts = [
        host("a", 4, ""),
        host("b", 64, ", online: false"),
        host("c", 64, ", maintenance: true"),
        host("d", 64, ", coresAssigned: 63"),
        host("e", 64, ""),
    ];
    let config = pool("[[host]]\nname = \"e\"\nclosed = true", "hosts = [\"a\", \"b\", \"d\", \"e\"]");
    let plan = loners(1).with(&inventory(&hosts.join(", "))).plan(&config);
    assert_eq!(plan.pods[0].verdict, PodOutcome::NoHostCapacity);
    let message = &plan.pods[0].reasons()[0].message;
    for part in [
        "a has 4Gi of memory left, but a machine needs 8Gi",
        "b is off",
        "d has 1 vCPUs left, but a machine needs 4",
        "e is closed",
    ] {
        assert!(message.contains(part), "no {part:?} in {message:?}");
    }
    assert!(!message.contains("c is"), "{message}");
}

/// A pod of an application that is spread over zones.
fn spread(cluster: Cluster, name: &str, more: &str) -> Cluster {
    cluster.with(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  labels: {{app: a}}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
         spec:\n  {more}\n  containers: [{{name: c, resources: {{requests: {{cpu: 1, memory: 1Gi}}}}}}]"
    ))
}

/// A constraint that spreads pods over at least this many zones. Without `minDomains`, kube-scheduler would
/// ignore zones that have no node yet.
fn over_zones(least: usize) -> String {
    format!(
        "topologySpreadConstraints: [{{maxSkew: 1, minDomains: {least}, topologyKey: topology.kubernetes.io/zone, \
         whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: {{app: a}}}}}}]"
    )
}

#[test]
fn pods_that_spread_over_zones_get_a_machine_in_each() {
    let hosts = [host("a", 64, ""), host("b", 48, ""), host("c", 32, "")].join(", ");
    let zones = "[[host]]\nname = \"a\"\nzone = \"left\"\n[[host]]\nname = \"b\"\nzone = \"left\"\n";
    for (label, expected) in [("{{ host }}", vec!["a", "b", "c"]), ("{{ zone }}", vec!["a", "c"])] {
        let config = pool(zones, &format!("labels = {{ \"topology.kubernetes.io/zone\" = \"{label}\" }}"));
        let cluster = (0..6).fold(Cluster::new(), |all, number| {
            spread(all, &format!("p{number}"), &over_zones(expected.len()))
        });
        let plan = cluster.with(&inventory(&hosts)).plan(&config);
        let mut got = hosts_of(&plan);
        got.sort();
        assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::NewNode), "{label}: {:?}", plan.pods);
        assert_eq!(got, expected, "{label}");
    }
}

/// The machine for the pod `large` makes kube-scheduler count zone `b`, but has no room for the other pods.
#[test]
fn pods_that_spread_know_of_zones_that_the_same_plan_opens() {
    let hosts = [host("a", 64, ""), host("b", 48, "")].join(", ");
    let config = pool("", "labels = { \"topology.kubernetes.io/zone\" = \"{{ host }}\" }");
    let cluster =
        (0..4).fold(Cluster::new(), |all, number| spread(all, &format!("p{number}"), &over_zones(1)));
    let large = "apiVersion: v1\nkind: Pod\nmetadata: {name: large, namespace: d}\n\
                 spec: {nodeSelector: {topology.kubernetes.io/zone: b}, containers: [{name: c, resources: {requests: {cpu: 3500m}}}]}";
    let plan = cluster.with(large).with(&inventory(&hosts)).plan(&config);
    let machines = plan.scale_up.iter().flat_map(|pool| &pool.machines);
    let mut by_zone = std::collections::BTreeMap::<&str, usize>::new();
    for machine in machines {
        let spread = machine.pods.iter().filter(|pod| pod.starts_with("d/p")).count();
        *by_zone.entry(machine.host.as_str()).or_default() += spread;
    }
    assert_eq!(by_zone.into_iter().collect::<Vec<_>>(), [("a", 2), ("b", 2)], "{:?}", plan.scale_up);
}

#[test]
fn a_pod_that_selects_a_zone_gets_a_machine_there_or_is_told_why_not() {
    let hosts = [host("a", 64, ""), host("b", 32, ""), host("c", 4, "")].join(", ");
    let config = pool("", "labels = { \"topology.kubernetes.io/zone\" = \"{{ host }}\" }");
    let wants = |zone: &str| format!("nodeSelector: {{topology.kubernetes.io/zone: {zone}}}");
    let plan = spread(Cluster::new(), "p", &wants("b")).with(&inventory(&hosts)).plan(&config);
    assert_eq!(hosts_of(&plan), ["b"]);
    let plan = spread(Cluster::new(), "p", &wants("c")).with(&inventory(&hosts)).plan(&config);
    assert_eq!(plan.pods[0].verdict, PodOutcome::NoHostCapacity, "{:?}", plan.pods[0]);
    let plan = spread(Cluster::new(), "p", &wants("x")).with(&inventory(&hosts)).plan(&config);
    assert_eq!(plan.pods[0].verdict, PodOutcome::NoPoolFits);
}

#[test]
fn a_host_on_which_the_pool_failed_lately_is_its_last_choice() {
    let hosts = [host("a", 64, ""), host("b", 18, "")].join(", ");
    let failed_on = |until: &str| {
        let state = "apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\nlastRound: 2026-01-01T11:59:50Z";
        let state = format!("{state}\npools: {{w: {{failedOn: {{a: \"{until}\"}}}}}}");
        hosts_of(&loners(3).with(&inventory(&hosts)).with(&state).plan(&pool("", "")))
    };
    assert_eq!(failed_on("2026-01-01T12:00:01Z"), ["b", "b", "a"], "b first, though a has more room");
    assert_eq!(failed_on("2026-01-01T12:00:00Z"), ["a", "a", "a"]);
}
