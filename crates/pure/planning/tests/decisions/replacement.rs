//! Nodes that are replaced: their settings have changed, they are too old, or their host is in maintenance.

use std::sync::Arc;

use model::plan::{NodeOutcome, RemovalReason};
use model::{Plan, Snapshot};
use planning::plan;
use settings::Config;

use crate::cluster::{Cluster, LEAVING, inventory, node_verdict, of_pool, removed};

const ON: &str = "[replace]\ndrift = true\n";
/// The settings of an old machine: its maximum number of pods differs from that of a new one.
const OLD: &str = "madeOf: {max_pods: \"50\", gone: x}";

fn machine(name: &str, more: &str) -> String {
    format!(
        "{{name: {name}, pool: w, vmid: 9101, host: pve1, cores: 4, memory: 8Gi, phase: Ready, node: {name}, {more}}},"
    )
}

/// Nodes of pool `w` on these machines (name and settings), each with a pod that fills it.
fn cluster(machines: &[(&str, &str)]) -> Cluster {
    let all: String = machines.iter().map(|(name, more)| machine(name, more)).collect();
    let cluster = Cluster::new().with(&inventory(&all).replace("32Gi", "128Gi"));
    machines
        .iter()
        .fold(cluster, |cluster, (name, _)| cluster.idle(name, "w").pod(&format!("p-{name}"), "3", name))
}

fn made(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}

fn said(plan: &Plan, node: &str) -> String {
    plan.nodes.iter().find(|one| one.node == node).and_then(|one| one.message.clone()).unwrap_or_default()
}

/// Nodes created this many hours ago.
fn aged(cluster: &Cluster, hours: i64) -> Snapshot {
    let mut snapshot = cluster.snapshot();
    let created = snapshot.time - jiff::SignedDuration::from_hours(hours);
    for node in &mut snapshot.nodes {
        std::sync::Arc::make_mut(node).created = Some(created);
    }
    snapshot
}

#[test]
fn a_node_that_has_drifted_goes_once_another_has_room_for_its_pods() {
    let config = of_pool("", ON);
    let old = cluster(&[("w0", OLD)]);
    let first = old.plan(&config);
    assert_eq!((made(&first), removed(&first)), (1, Vec::new()), "the replacement is created first");
    assert_eq!(node_verdict(&first, "w0"), NodeOutcome::NoPlaceToMovePods);
    let words = "drifted: `max_pods` was 50 and is now 110; will be removed once a node to which d/p-w0 can move is ready";
    assert_eq!(said(&first, "w0"), words);

    let coming = machine("w0", OLD) + &machine("w1", "").replace("Ready, node: w1", "Booting");
    let second = Cluster::new().with(&inventory(&coming)).idle("w0", "w").pod("p-w0", "3", "w0");
    let plan = second.plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, Vec::new()), "no second machine is created");

    let third = cluster(&[("w0", OLD)]).idle("w1", "w");
    let plan = third.plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, vec!["w0"]));
    assert_eq!(plan.scale_down[0].reason, RemovalReason::Drifted);
    assert_eq!(plan.scale_down[0].moves[0].to, "w1");

    // The pool is at its maximum both while the replacement is being created and afterwards.
    let mut full = of_pool("", ON);
    full.pools[0].max = 2;
    let words = "will be removed once a node to which d/p-w0 can move is ready";
    assert!(said(&second.plan(&full), "w0").ends_with(words), "{}", said(&second.plan(&full), "w0"));
    let there = machine("w0", OLD) + &machine("w1", "");
    let both = Cluster::new().with(&inventory(&there).replace("32Gi", "128Gi"));
    let plan = both.idle("w0", "w").pod("p-w0", "3", "w0").idle("w1", "w").plan(&full);
    assert_eq!((made(&plan), removed(&plan)), (0, vec!["w0"]));
}

#[test]
fn what_is_said_of_a_machine_decides_whether_it_has_drifted() {
    for (made_of, drifted) in [
        ("", false),
        ("madeOf: {max_pods: \"110\", vlan: as in the template}", false),
        ("madeOf: {a_setting_of_tomorrow: x}", false),
        (OLD, true),
        ("madeOf: {vlan: \"7\"}", true),
        ("madeOf: {size: 4 cores and 8Gi}", false),
        ("madeOf: {size: 2 cores and 8Gi}", true),
        ("madeOf: {template: 9000-aa}", false),
        ("madeOf: {template: 9000-bb}", true),
    ] {
        let state = "apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\npools: {w: {templates: [9000-aa, 9001-cc]}}";
        let plan = cluster(&[("w0", made_of)]).with(state).plan(&of_pool("", ON));
        assert_eq!(made(&plan) == 1, drifted, "{made_of}: {}", said(&plan, "w0"));
        let plan = cluster(&[("w0", made_of)]).with(state).plan(&of_pool("", ""));
        assert_eq!(made(&plan), 0, "off by default");
        assert_eq!(said(&plan, "w0").contains("`replace.drift` is off"), drifted, "{made_of}");
    }
    let unknown = cluster(&[("w0", "madeOf: {template: 9000-bb}")]).plan(&of_pool("", ON));
    assert_eq!(made(&unknown), 0, "templates that could not be looked at are not compared");
}

#[test]
fn nodes_are_replaced_one_after_another() {
    let all = [("w0", OLD), ("w1", OLD), ("w2", OLD)];
    let plan = cluster(&all).plan(&of_pool("", ON));
    assert_eq!(made(&plan), 1);
    let words = "not replaced now: only 1 of its pool's nodes may be replaced at a time \
         (`replace.max_parallel`)";
    assert!(said(&plan, "w1").ends_with(words));
    assert_eq!(node_verdict(&plan, "w1"), NodeOutcome::Utilized);
    let plan = cluster(&all).plan(&of_pool("", &format!("{ON}max_parallel = 2\n")));
    assert_eq!(made(&plan), 2);
    // Another node is still being removed.
    let plan = cluster(&all[..2]).node("w9", "w", LEAVING, "True").plan(&of_pool("", ON));
    assert_eq!((made(&plan), removed(&plan)), (0, Vec::new()));
}

#[test]
fn what_holds_a_node_holds_its_replacement() {
    let state = |pool: &str| {
        format!("apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\npools: {{w: {{{pool}}}}}")
    };
    let naked = "apiVersion: v1\nkind: Pod\nmetadata: {name: alone, namespace: d}\nspec: {nodeName: w0, containers: [{name: c}]}";
    let config = |more: &str| of_pool("", &format!("{ON}{more}"));
    let old = || cluster(&[("w0", OLD)]);
    let cases: [(&str, Cluster, Config); 6] = [
        ("switched off", old(), config("[scale_down]\nenabled = false\n")),
        ("alone keeps it (NotReplicated)", old().with(naked), config("")),
        (
            "left alone after a failure",
            old().with(&state("backoff: {until: 2026-01-01T13:00:00Z, reason: x}")),
            config(""),
        ),
        (
            "after a failed removal",
            old().with(&state("lastRemovalFailure: 2026-01-01T11:59:00Z")),
            config(""),
        ),
        (
            "too many of the pool's nodes",
            old().node("w5", "w", "", "False"),
            config("[health]\nok_total_unready_count = 0\n"),
        ),
        ("`max` of 1 leaves no room", old(), {
            let mut config = config("");
            config.pools[0].max = 1;
            config
        }),
    ];
    for (why, cluster, config) in cases {
        let plan = cluster.plan(&config);
        assert_eq!((made(&plan), removed(&plan)), (0, Vec::new()), "{why}");
        assert!(said(&plan, "w0").contains(why), "{why}: {}", said(&plan, "w0"));
    }
}

#[test]
fn a_pool_at_its_minimum_gets_the_new_node_first() {
    let mut config = of_pool("", ON);
    config.pools[0].min = 1;
    let empty = Cluster::new().with(&inventory(&machine("w0", OLD))).idle("w0", "w");
    let plan = empty.plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (1, Vec::new()));
    assert_eq!(node_verdict(&plan, "w0"), NodeOutcome::AtMinimum);
    let plan =
        Cluster::new().with(&inventory(&machine("w0", OLD))).idle("w0", "w").idle("w1", "w").plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, vec!["w0"]));
}

#[test]
fn nodes_that_were_made_together_expire_one_after_another() {
    let config = of_pool("max_node_age = \"100h\"\n", "[replace]\nmax_parallel = 9\n");
    let all: Vec<String> = (0..9).map(|number| format!("w{number}")).collect();
    let nodes: Vec<(&str, &str)> = all.iter().map(|name| (name.as_str(), "")).collect();
    let young = plan(&aged(&cluster(&nodes), 89), &config);
    assert_eq!(made(&young), 0);
    let expired = |hours: i64, words: &str| {
        let plan = plan(&aged(&cluster(&nodes), hours), &config);
        let words = format!("{words} its pool's `max_node_age` of 4 days");
        plan.nodes.iter().filter(|one| said(&plan, &one.node).starts_with(&words)).count()
    };
    let early = expired(95, "almost as old as");
    assert!((1..9).contains(&early), "{early}");
    assert_eq!((expired(95, "older than"), expired(100, "older than")), (0, 9));
}

#[test]
fn a_reason_that_may_not_be_acted_on_hides_none_that_may() {
    let old = "max_node_age = \"100h\"";
    let rule = |reasons: &str| format!("{ON}[[disruption]]\nreasons = [{reasons}]\nmax_nodes = 0\n");
    let mut nodes = aged(&cluster(&[("w0", OLD)]).idle("w1", "w"), 101);
    let young = nodes.nodes.iter_mut().find(|node| node.name == "w1").unwrap();
    std::sync::Arc::make_mut(young).created = Some(nodes.time);
    for (settings, reason) in [
        (String::new(), RemovalReason::Expired),
        (rule("\"drifted\""), RemovalReason::Expired),
        (rule("\"expired\""), RemovalReason::Drifted),
    ] {
        let plan = plan(&nodes, &of_pool(old, &settings));
        assert_eq!(removed(&plan), ["w0"], "{settings}: {}", said(&plan, "w0"));
        assert_eq!(plan.scale_down[0].reason, reason, "{settings}");
    }
    let plan = plan(&nodes, &of_pool(old, &rule("\"drifted\", \"expired\"")));
    assert!(!removed(&plan).contains(&"w0"));
    assert!(said(&plan, "w0").contains("`[[disruption]]` allows none"), "{}", said(&plan, "w0"));
}

#[test]
fn a_node_whose_host_is_in_maintenance_is_replaced() {
    let maintenance = |cluster: &Cluster| {
        let mut snapshot = cluster.snapshot();
        let mut other = snapshot.proxmox.hosts.clone().unwrap().remove(0);
        other.name = "pve2".into();
        let hosts = Arc::make_mut(&mut snapshot.proxmox).hosts.as_mut().unwrap();
        hosts[0].maintenance = true;
        hosts.push(other);
        snapshot
    };
    let snapshot = maintenance(&cluster(&[("w0", "")]));
    let first = plan(&snapshot, &of_pool("", ""));
    assert_eq!(made(&first), 1);
    assert_eq!(first.scale_up[0].machines[0].host, "pve2");
    assert!(
        said(&first, "w0").starts_with("its host pve1 is in maintenance; will be removed once"),
        "{}",
        said(&first, "w0")
    );
    let off = plan(&snapshot, &of_pool("", "[replace]\nmaintenance = false\n"));
    assert_eq!(made(&off), 0);
    let ready = plan(&maintenance(&cluster(&[("w0", "")]).idle("w1", "w")), &of_pool("", ""));
    assert_eq!(removed(&ready), ["w0"]);
    assert_eq!(ready.scale_down[0].reason, RemovalReason::Maintenance);
}

/// Nodes that have not been ready for an hour.
fn silent(names: &[&str], among: usize) -> Snapshot {
    let mut cluster = Cluster::new();
    for number in 0..among {
        let name = format!("w{number}");
        let ready = if names.contains(&name.as_str()) { "False" } else { "True" };
        cluster = cluster.node(&name, "w", "", ready).pod(&format!("p-{name}"), "3", &name);
    }
    let mut snapshot = cluster.snapshot();
    let since = snapshot.time - jiff::SignedDuration::from_hours(1);
    for node in &mut snapshot.nodes {
        std::sync::Arc::make_mut(node).conditions[0].last_transition = Some(since);
    }
    snapshot
}

#[test]
fn a_node_that_stays_unready_is_replaced_however_full_it_is() {
    let repairing = |after: &str| of_pool("", &format!("[replace]\nunready_after = \"{after}\"\n"));
    let first = plan(&silent(&["w1"], 2), &repairing("30m"));
    assert_eq!((made(&first), removed(&first)), (1, Vec::new()), "the replacement is created first");
    assert!(said(&first, "w1").starts_with("not ready since 2026-01-01T11:00:00Z; will be removed once"));
    for (why, config, snapshot) in [
        ("`unready_after` has not passed yet", repairing("2h"), silent(&["w1"], 2)),
        ("`unready_after` is not set", of_pool("", ""), silent(&["w1"], 2)),
        ("too many nodes are not ready", repairing("30m"), silent(&["w0", "w1", "w2", "w3"], 6)),
    ] {
        assert_eq!(made(&plan(&snapshot, &config)), 0, "{why}");
    }
    let several = plan(&silent(&["w0", "w1", "w2"], 8), &repairing("30m"));
    assert_eq!(made(&several), 1, "nodes are replaced one by one");
}

#[test]
fn two_that_have_drifted_in_a_full_pool_do_not_wait_for_each_other() {
    let mut config = of_pool("", &format!("{ON}max_parallel = 2\n"));
    (config.pools[0].min, config.pools[0].max) = (1, 2);
    let machines = machine("w0", OLD) + &machine("w1", OLD);
    let both = Cluster::new().with(&inventory(&machines)).idle("w0", "w").idle("w1", "w");
    let plan = both.plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, vec!["w0"]), "{:?}", plan.nodes);
    assert!(said(&plan, "w1").contains("`max` of 2 leaves no room for its replacement"));

    // One replacement already exists, and one of the two old nodes can be removed.
    (config.pools[0].min, config.pools[0].max) = (2, 3);
    let machines = machines + &machine("w2", "");
    let three = Cluster::new().with(&inventory(&machines)).idle("w0", "w").idle("w1", "w").idle("w2", "w");
    assert_eq!(removed(&three.plan(&config)), ["w0"]);
}

#[test]
fn a_node_in_whose_place_none_can_be_made_holds_no_others() {
    // The host is full until `w1`, on which nothing runs, is gone. Pool `w` has a minimum of one node.
    let all = machine("w0", OLD) + &machine("w1", "").replace("pool: w,", "pool: other,");
    let there = inventory(&all)
        .replace("cores: 64, memory: 32Gi, memoryUsed: 4Gi", "cores: 8, memory: 24Gi, memoryUsed: 20Gi");
    let old = Cluster::new().with(&there).idle("w0", "w").pod("p-w0", "3", "w0").idle("w1", "other");
    let mut config = of_pool("min = 1", ON);
    let mut other = config.pools[0].clone();
    (other.name, other.min) = ("other".into(), 0);
    config.pools.push(other);
    let plan = old.plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, vec!["w1"]), "{:?}", plan.nodes);
    let words =
        "drifted: `max_pods` was 50 and is now 110; not replaced now: there is no room for its replacement";
    assert_eq!(said(&plan, "w0"), words);
    // Once `w1` is gone, there is room.
    let there = inventory(&machine("w0", OLD)).replace("cores: 64, memory: 32Gi", "cores: 8, memory: 24Gi");
    let alone = Cluster::new().with(&there).idle("w0", "w").pod("p-w0", "3", "w0");
    assert_eq!((made(&alone.plan(&config)), removed(&alone.plan(&config))), (1, Vec::new()));
}

#[test]
fn a_node_whose_machine_is_given_up_stands_in_for_none() {
    for (phase, goes) in [("Ready", vec!["w0"]), ("Failed", Vec::new())] {
        let all = machine("w0", OLD) + &machine("w1", "").replace("Ready", phase);
        let cluster = Cluster::new().with(&inventory(&all).replace("32Gi", "128Gi"));
        let plan = cluster.idle("w0", "w").idle("w1", "w").plan(&of_pool("min = 1", ON));
        assert_eq!(removed(&plan), goes, "{phase}");
    }
}

#[test]
fn nothing_is_made_for_a_node_of_which_one_pod_has_no_place() {
    let pinned = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: pinned\n  namespace: d\n  \
                  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}]\n\
                  spec: {nodeName: w0, nodeSelector: {disk: fast}, containers: [{name: c, resources: {}}]}";
    let config = of_pool("", ON);
    let plan = cluster(&[("w0", OLD)]).with(pinned).plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, Vec::new()), "{:?}", plan.nodes);
    let words = "drifted: `max_pods` was 50 and is now 110; not replaced now: d/pinned would find no room, even with new \
                 machines for the node's other pods";
    assert_eq!(said(&plan, "w0"), words);
    // `w0`, which cannot be replaced, does not delay the replacement of `w1`.
    let plan = cluster(&[("w0", OLD), ("w1", OLD)]).with(pinned).plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (1, Vec::new()), "{:?}", plan.nodes);
    assert!(
        said(&plan, "w1").contains("will be removed once a node to which d/p-w1 can move is ready"),
        "{}",
        said(&plan, "w1")
    );
}

#[test]
fn nothing_is_made_of_another_pool_for_a_node_that_its_own_pool_needs() {
    // The host has room for a small machine, but not for a replacement of `w0`.
    let there = inventory(&machine("w0", OLD)).replace("32Gi, memoryUsed: 4Gi", "28Gi, memoryUsed: 20Gi");
    let old = Cluster::new().with(&there).idle("w0", "w").pod("p-w0", "1", "w0");
    let mut config = of_pool("min = 1", ON);
    let mut small = config.pools[0].clone();
    (small.name, small.min) = ("small".into(), 0);
    small.sizes.iter_mut().for_each(|size| (size.cores, size.memory) = (2, 4 << 30));
    config.pools.push(small);
    let plan = old.plan(&config);
    assert_eq!((made(&plan), removed(&plan)), (0, Vec::new()), "{:?} {:?}", plan.scale_up, plan.nodes);
    let words = "drifted: `max_pods` was 50 and is now 110; not replaced now: its pool would be below its minimum, and its \
                 replacement cannot be created";
    assert!(said(&plan, "w0").starts_with(words), "{}", said(&plan, "w0"));
    // With a minimum of 0, the pool does not need the node.
    config.pools[0].min = 0;
    assert_eq!(made(&old.plan(&config)), 1);
}
