//! Properties of the planner over random small worlds.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results, and prints what it skips")]

mod worlds;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::drain::{Blocking, NodeReason};
use model::node::Node;
use model::plan::{NodeOutcome, PodOutcome};
use model::pod::{HostPort, Pod, PodAffinityTerm, PodPhase, SpreadConstraint};
use model::selector::{LabelSelector, Labels, Operator, Requirement};
use model::snapshot::{POOL_LABEL, UNNEEDED_SINCE};
use model::workload::DisruptionBudget;
use model::{Plan, Resources, Snapshot};
use planning::plan;
use proptest::prelude::*;
use settings::{self, Config, Needs};

use crate::worlds::{NOW, cases, replica_set, resources};

const OFFERED: i64 = 4000;

fn config(min: u32, max: u32) -> Config {
    let text = format!(
        "[scale_down]\ndelay_after_add = \"0s\"\nmax_parallel_drains = 100\n\
         [[pool]]\nname = \"w\"\nmin = {min}\nmax = {max}\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = {{ cpu = \"{OFFERED}m\", memory = \"8Gi\", pods = 10 }}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

fn node(number: usize, idle: bool) -> Node {
    let name = format!("n{number}");
    let mut annotations = Labels::new();
    if idle {
        annotations.insert(UNNEEDED_SINCE.to_owned(), "2026-01-15T11:00:00Z".to_owned());
    }
    Node {
        labels: Labels::from([
            (POOL_LABEL.to_owned(), "w".to_owned()),
            ("kubernetes.io/hostname".to_owned(), name.clone()),
        ]),
        name,
        annotations,
        allocatable: resources(OFFERED, 8192, 10),
        ..Node::default()
    }
}

fn pod(number: usize, app: u8, cpu: i64, memory: i64, node: Option<String>) -> Pod {
    let mut pod = worlds::pod(number, cpu, memory, node);
    pod.labels = Labels::from([("app".to_owned(), app.to_string())]);
    pod
}

/// Nodes with running pods that fit on them, pending pods, and a disruption budget for each app.
fn world() -> impl Strategy<Value = Snapshot> {
    let running = prop::collection::vec((0_usize..6, 0_u8..3, 1_i64..1500, 1_i64..2000), 0..25);
    let pending = prop::collection::vec((0_u8..3, 1_i64..5000, 1_i64..6000), 0..15);
    let idle = prop::collection::vec(any::<bool>(), 0..6);
    let allowed = prop::collection::vec(0_i64..4, 3);
    (idle, running, pending, allowed).prop_map(|(idle, running, pending, allowed)| {
        let nodes: Vec<_> =
            idle.iter().enumerate().map(|(number, idle)| Arc::new(node(number, *idle))).collect();
        let mut used: BTreeMap<usize, (i64, i64, i64)> = BTreeMap::new();
        let mut pods = Vec::new();
        for (at, app, cpu, memory) in running {
            let (used_cpu, used_memory, count) = used.entry(at).or_default();
            if at < nodes.len() && *used_cpu + cpu <= OFFERED && *used_memory + memory <= 8192 && *count < 10
            {
                (*used_cpu, *used_memory, *count) = (*used_cpu + cpu, *used_memory + memory, *count + 1);
                pods.push(Arc::new(pod(pods.len(), app, cpu, memory, Some(format!("n{at}")))));
            }
        }
        for (app, cpu, memory) in pending {
            pods.push(Arc::new(pod(pods.len(), app, cpu, memory, None)));
        }
        let budgets = (0..).zip(allowed).map(|(app, allowed)| {
            Arc::new(DisruptionBudget {
                namespace: "d".to_owned(),
                name: format!("b{app}"),
                selector: Some(select(app)),
                disruptions_allowed: allowed,
                always_allows_unhealthy: false,
                healthy: (9, 1),
            })
        });
        Snapshot {
            time: NOW.parse().unwrap(),
            nodes,
            pods,
            budgets: budgets.collect(),
            controllers: vec![replica_set()],
            ..Snapshot::default()
        }
    })
}

fn requests(snapshot: &Snapshot) -> BTreeMap<String, Resources> {
    snapshot.pods.iter().map(|pod| (pod.id(), pod.requests.clone())).collect()
}

fn fits(requests: &BTreeMap<String, Resources>, pods: impl Iterator<Item = String>) -> bool {
    let mut sum = Resources::default();
    for pod in pods {
        sum.add(&requests[&pod]);
    }
    sum.cpu_milli <= OFFERED && sum.memory <= 8192 << 20 && sum.pods <= 10
}

fn removed(plan: &Plan) -> Vec<&str> {
    plan.scale_down.iter().map(|removal| removal.node.as_str()).collect()
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn every_machine_holds_the_pods_that_are_planned_on_it(snapshot in world()) {
        let plan = plan(&snapshot, &config(0, 50));
        let requests = requests(&snapshot);
        for machine in plan.scale_up.iter().flat_map(|pool| &pool.machines) {
            prop_assert!(!machine.pods.is_empty(), "a machine without pods");
            prop_assert!(fits(&requests, machine.pods.iter().map(ToString::to_string)), "{machine:?}");
        }
        for verdict in &plan.pods {
            let small = requests[&*verdict.pod].cpu_milli <= OFFERED;
            prop_assert_eq!(verdict.verdict != PodOutcome::NoPoolFits, small, "{:?}", verdict);
        }
    }

    #[test]
    fn pods_that_are_said_to_fit_existing_nodes_fit_them_together(snapshot in world()) {
        let plan = plan(&snapshot, &config(0, 50));
        let requests = requests(&snapshot);
        for node in &snapshot.nodes {
            let running = snapshot.pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name)).map(|pod| pod.id());
            let coming =
                plan.pods.iter().filter(|pod| pod.node() == Some(&node.name)).map(|pod| pod.pod.to_string());
            prop_assert!(fits(&requests, running.chain(coming)), "{}", node.name);
        }
    }

    #[test]
    fn a_pool_stays_between_its_limits(snapshot in world(), min in 0_u32..4, more in 0_u32..6) {
        let max = min + more;
        let plan = plan(&snapshot, &config(min, max));
        let present = u32::try_from(snapshot.nodes.len()).unwrap();
        let made: usize = plan.scale_up.iter().map(|pool| pool.machines.len()).sum();
        let made = u32::try_from(made).unwrap();
        let gone = u32::try_from(plan.scale_down.len()).unwrap();
        prop_assert!(made == 0 || present + made <= max, "{present} + {made} > {max}");
        prop_assert!(gone == 0 || present - gone >= min, "{present} - {gone} < {min}");
        prop_assert!(present + made >= min);
    }

    #[test]
    fn removed_nodes_pods_find_room_on_nodes_that_stay(snapshot in world()) {
        let plan = plan(&snapshot, &config(0, 50));
        let requests = requests(&snapshot);
        let gone = removed(&plan);
        for removal in &plan.scale_down {
            let on: Vec<_> =
                snapshot.pods.iter().filter(|pod| pod.node.as_ref() == Some(&removal.node)).map(|pod| pod.id()).collect();
            let moved: Vec<_> = removal.moves.iter().map(|one| one.pod.clone()).collect();
            prop_assert_eq!(on, moved, "every pod moves");
        }
        for node in snapshot.nodes.iter().filter(|node| !gone.contains(&node.name.as_str())) {
            let running = snapshot.pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name)).map(|pod| pod.id());
            let moves = plan.scale_down.iter().flat_map(|removal| &removal.moves);
            let arriving = moves.filter(|one| one.to == node.name).map(|one| one.pod.clone());
            prop_assert!(fits(&requests, running.chain(arriving)), "{}", node.name);
        }
        for one in plan.scale_down.iter().flat_map(|removal| &removal.moves) {
            prop_assert!(!gone.contains(&one.to.as_str()), "{one:?} moves a pod to a node that is removed");
        }
    }

    #[test]
    fn no_budget_is_overspent(snapshot in world()) {
        let plan = plan(&snapshot, &config(0, 50));
        let app = |id: &str| snapshot.pods.iter().find(|pod| pod.id() == id).unwrap().labels["app"].clone();
        let mut evicted: BTreeMap<String, i64> = BTreeMap::new();
        for one in plan.scale_down.iter().flat_map(|removal| &removal.moves) {
            *evicted.entry(app(&one.pod)).or_default() += 1;
        }
        for (app, count) in evicted {
            let budget = snapshot.budgets.iter().find(|budget| budget.name == format!("b{app}")).unwrap();
            prop_assert!(count <= budget.disruptions_allowed, "{count} evictions of app {app}");
        }
    }

    #[test]
    fn the_order_of_arrival_changes_nothing(snapshot in world(), seed in any::<u64>()) {
        let mut shuffled = snapshot.clone();
        let mut random = proptest::test_runner::TestRng::from_seed(
            proptest::test_runner::RngAlgorithm::ChaCha,
            &[seed.to_le_bytes(); 4].concat(),
        );
        for at in (1..shuffled.pods.len()).rev() {
            let other = usize::try_from(random.next_u64() % (at as u64 + 1)).unwrap();
            shuffled.pods.swap(at, other);
        }
        shuffled.nodes.reverse();
        shuffled.budgets.reverse();
        prop_assert_eq!(plan(&snapshot, &config(1, 9)), plan(&shuffled, &config(1, 9)));
    }

    #[test]
    fn what_was_worked_out_for_an_earlier_decision_changes_none(snapshot in world()) {
        let first = plan(&snapshot, &config(1, 9));
        let strangers = snapshot.pods.iter().map(|pod| Arc::new(Pod::clone(pod))).collect();
        prop_assert_eq!(plan(&snapshot, &config(1, 9)), first.clone());
        prop_assert_eq!(plan(&Snapshot { pods: strangers, ..snapshot }, &config(1, 9)), first);
    }

    #[test]
    fn a_world_in_which_the_plan_was_carried_out_grows_no_further(snapshot in world()) {
        let config = config(0, 50);
        let first = plan(&snapshot, &config);
        let mut after = snapshot.clone();
        let mut place: BTreeMap<String, String> = BTreeMap::new();
        for (made, machine) in (100..).zip(first.scale_up.iter().flat_map(|pool| &pool.machines)) {
            after.nodes.push(Arc::new(node(made, false)));
            place.extend(machine.pods.iter().map(|pod| (pod.to_string(), format!("n{made}"))));
        }
        place.extend(first.pods.iter().filter_map(|pod| Some((pod.pod.to_string(), pod.node()?.to_string()))));
        for pod in &mut after.pods {
            if let Some(node) = place.get(&pod.id()) {
                let bound = Pod { node: Some(node.clone()), phase: PodPhase::Running, ..pod.as_ref().clone() };
                *pod = Arc::new(bound);
            }
        }
        let second = plan(&after, &config);
        prop_assert!(second.scale_up.is_empty(), "{:?}", second.scale_up);
        prop_assert!(second.pods.iter().all(|pod| pod.verdict == PodOutcome::NoPoolFits));
        let fresh_goes = second.nodes.iter().any(|node| node.node.len() == 4 && node.verdict == NodeOutcome::Remove);
        prop_assert!(!fresh_goes, "a node that was just created is removed");
    }
}

/// What a pending pod of [`social_world`] requires of its node besides room.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    /// Nothing.
    Plain,
    /// The pod must not share a node with another pod of its app.
    Shy,
    /// The pod uses a host port that all pods of its app use.
    Port,
    /// The pods of its app are spread over both zones, with a skew of one.
    Spread,
    /// The pod fits only nodes of the second pool.
    Picky,
}

fn select(app: u8) -> LabelSelector {
    let values = vec![app.to_string()];
    LabelSelector {
        requirements: vec![Requirement { key: "app".to_owned(), operator: Operator::In, values }],
    }
}

/// Pending pods of eight apps, and what the pods of each app require.
fn social_world() -> impl Strategy<Value = (Snapshot, Vec<Manner>)> {
    let manner =
        prop::sample::select(vec![Manner::Plain, Manner::Shy, Manner::Port, Manner::Spread, Manner::Picky]);
    let pods = prop::collection::vec((0_u8..8, 0_usize..3), 1..40);
    (prop::collection::vec(manner, 8), pods).prop_map(|(manners, pods)| {
        let sizes = [(300, 500), (900, 400), (2000, 5000)];
        let make = |(number, (app, size)): (usize, (u8, usize))| {
            let mut one = pod(number, app, sizes[size].0, sizes[size].1, None);
            match manners[usize::from(app)] {
                Manner::Plain => {}
                Manner::Shy => {
                    one.affinity.anti.push(PodAffinityTerm {
                        selector: Some(select(app)),
                        namespaces: Vec::new(),
                        namespace_selector: None,
                        topology_key: "kubernetes.io/hostname".to_owned(),
                        match_label_keys: Vec::new(),
                        mismatch_label_keys: Vec::new(),
                    });
                }
                Manner::Port => one.host_ports.push(HostPort {
                    ip: "0.0.0.0".to_owned(),
                    protocol: "TCP".to_owned(),
                    port: 8000 + i32::from(app),
                }),
                Manner::Spread => one.spread.push(SpreadConstraint {
                    max_skew: 1,
                    min_domains: 2,
                    topology_key: "zone".to_owned(),
                    hard: true,
                    selector: Some(select(app)),
                    match_label_keys: Vec::new(),
                    honor_node_affinity: true,
                    honor_node_taints: false,
                }),
                Manner::Picky => {
                    one.node_selector.insert("zone".to_owned(), "z2".to_owned());
                }
            }
            Arc::new(one)
        };
        let pods = pods.into_iter().enumerate().map(make).collect();
        (Snapshot { time: NOW.parse().unwrap(), pods, ..Snapshot::default() }, manners)
    })
}

fn two_zones() -> Config {
    let pool = |name: &str, zone: &str| {
        format!(
            "[[pool]]\nname = \"{name}\"\nmax = 100\ncores = 4\nmemory = \"8GiB\"\nlabels = {{ zone = \"{zone}\" }}\n\
             allocatable = {{ cpu = \"{OFFERED}m\", memory = \"8Gi\", pods = 10 }}\n"
        )
    };
    settings::parse("test", &(pool("one", "z1") + &pool("two", "z2")), Needs::Plan).unwrap()
}

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn what_pods_ask_of_their_nodes_holds_on_new_machines(world in social_world()) {
        let (snapshot, manners) = world;
        let plan = plan(&snapshot, &two_zones());
        let requests = requests(&snapshot);
        let app: BTreeMap<String, u8> =
            snapshot.pods.iter().map(|pod| (pod.id(), pod.labels["app"].parse().unwrap())).collect();
        let mut in_zone: BTreeMap<(u8, &str), i64> = BTreeMap::new();
        let mut placed = 0;
        for pool in &plan.scale_up {
            for machine in &pool.machines {
                prop_assert!(fits(&requests, machine.pods.iter().map(ToString::to_string)), "{machine:?}");
                placed += machine.pods.len();
                let mut on: BTreeMap<u8, i64> = BTreeMap::new();
                for pod in &machine.pods {
                    *on.entry(app[&**pod]).or_default() += 1;
                    *in_zone.entry((app[&**pod], pool.pool.as_str())).or_default() += 1;
                }
                for (app, count) in on {
                    let manner = manners[usize::from(app)];
                    let alone = matches!(manner, Manner::Shy | Manner::Port);
                    prop_assert!(!alone || count == 1, "{count} pods of {manner:?} app {app} on one machine");
                    prop_assert!(manner != Manner::Picky || pool.pool == "two", "app {app} in the wrong zone");
                }
            }
        }
        prop_assert_eq!(placed, snapshot.pods.len(), "every pod has a machine: {:?}", plan.pods);
        for (app, manner) in (0_u8..).zip(&manners) {
            let count = |pool: &'static str| in_zone.get(&(app, pool)).copied().unwrap_or(0);
            let skew = (count("one") - count("two")).abs();
            prop_assert!(*manner != Manner::Spread || skew <= 1, "app {app}: {skew}");
        }
    }

    #[test]
    fn the_order_of_arrival_changes_nothing_for_social_pods(world in social_world()) {
        let (snapshot, _) = world;
        let mut reversed = snapshot.clone();
        reversed.pods.reverse();
        prop_assert_eq!(plan(&snapshot, &two_zones()), plan(&reversed, &two_zones()));
    }
}

fn two_pools(min: u32) -> Config {
    let pool = |name: &str, min: u32| {
        format!("[[pool]]\nname = \"{name}\"\nmin = {min}\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n")
    };
    let text = format!("[scale_down]\ndelay_after_add = \"0s\"\n{}{}", pool("w", min), pool("other", 0));
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// An idle node of pool `w`, and one of pool `other` with a single pod that only the first node has room for.
fn keeper_and_guest(on_keeper: Vec<Pod>, allowed: i64) -> Snapshot {
    let mut guest = node(1, true);
    guest.labels.insert(POOL_LABEL.to_owned(), "other".to_owned());
    let mut pods = on_keeper;
    pods.push(pod(9, 1, 500, 500, Some("n1".to_owned())));
    Snapshot {
        time: NOW.parse().unwrap(),
        nodes: vec![Arc::new(node(0, true)), Arc::new(guest)],
        pods: pods.into_iter().map(Arc::new).collect(),
        controllers: vec![replica_set()],
        budgets: vec![Arc::new(DisruptionBudget {
            namespace: "d".to_owned(),
            name: "b".to_owned(),
            selector: Some(select(0)),
            disruptions_allowed: allowed,
            always_allows_unhealthy: false,
            healthy: (9, 1),
        })],
        ..Snapshot::default()
    }
}

#[test]
fn a_node_that_its_pools_minimum_keeps_takes_the_pods_of_others() {
    let plan = plan(&keeper_and_guest(Vec::new(), 0), &two_pools(1));
    assert_eq!(removed(&plan), ["n1"]);
    assert_eq!(plan.nodes[0].verdict, NodeOutcome::AtMinimum);
}

#[test]
fn a_node_whose_pods_overspend_a_budget_together_takes_the_pods_of_others() {
    let pods = (0..2).map(|number| pod(number, 0, 100, 100, Some("n0".to_owned()))).collect();
    let plan = plan(&keeper_and_guest(pods, 1), &two_pools(0));
    assert_eq!(removed(&plan), ["n1"]);
    assert_eq!(plan.nodes[0].reason, Some(NodeReason::Pod(Blocking::NotEnoughPdb)));
}
