//! Small clusters with one pool, round by round.

use super::*;
use crate::demand::Demand;
use crate::facts::Watcher;
use model::Vmid;
use model::machine::Host;
use model::node::Condition;
use model::pod::{Owner, PodPhase};
use model::resources::Resources;
use model::snapshot::Inventory;
use settings::Needs;

const POOL: &str = r#"
[[pool]]
name = "w"
max = 9
cores = 4
memory = "8GiB"
vmids = "9100-9119"
"#;
const GIB: i64 = 1 << 30;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// The contents of one round.
#[derive(Default)]
struct Seen {
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    machines: Vec<Machine>,
    /// The hosts. If there are none, the round has one host with plenty of resources.
    hosts: Vec<Host>,
}

/// A host with `memory` GiB of memory, of which `others` GiB are assigned to other guests.
fn host(name: &str, memory: i64, others: i64) -> Host {
    Host {
        name: name.into(),
        cores: 64,
        memory: memory * GIB,
        memory_used: others * GIB,
        memory_assigned: others * GIB,
        cores_assigned: u32::from(others > 0),
        online: true,
        ..Host::default()
    }
}

impl Seen {
    fn at(&self, second: i64) -> Snapshot {
        let mut snapshot = Snapshot {
            time: at(second),
            nodes: self.nodes.iter().cloned().map(Arc::new).collect(),
            pods: self.pods.iter().cloned().map(Arc::new).collect(),
            ..Snapshot::default()
        };
        let first = if self.hosts.is_empty() { vec![host("pve1", 256, 1)] } else { Vec::new() };
        let hosts = Some([first, self.hosts.clone()].concat());
        snapshot.proxmox =
            Inventory { hosts, machines: Some(self.machines.clone()), ..Inventory::default() }.into();
        snapshot
    }
}

fn node(name: &str, pool: bool) -> Node {
    let amounts = Resources { cpu_milli: 4000, memory: 7 * GIB, pods: 110, ..Resources::default() };
    let ready = ("Ready".to_owned(), "True".to_owned(), Some(at(-900)));
    let mut node = Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created: Some(at(-9000)),
        capacity: amounts.clone(),
        allocatable: amounts,
        conditions: vec![Condition { kind: ready.0, status: ready.1, last_transition: ready.2 }],
        ..Node::default()
    };
    node.labels.extend(pool.then(|| (POOL_LABEL.to_owned(), "w".to_owned())));
    node
}

fn machine(name: &str, phase: Phase, since: i64) -> Machine {
    Machine {
        name: name.to_owned(),
        pool: "w".into(),
        vmid: Vmid(9100),
        host: "pve1".into(),
        cores: 4,
        memory: 8 * GIB,
        phase,
        since: Some(at(since)),
        requested: Some(at(since)),
        node: (phase >= Phase::Registered).then(|| name.to_owned()),
        ..Machine::default()
    }
}

/// A pod that needs three quarters of a node.
fn pod(name: &str, node: Option<&str>) -> Pod {
    let mut pod = Pod {
        name: name.to_owned(),
        uid: name.to_owned(),
        created: Some(at(0)),
        node: node.map(ToOwned::to_owned),
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        scheduling: if node.is_some() { Scheduling::Scheduled } else { Scheduling::Unschedulable(None) },
        ..Pod::default()
    };
    pod.namespace = "shop".to_owned();
    pod.scheduler = "default-scheduler".to_owned();
    pod.requests = Resources { cpu_milli: 3000, memory: GIB, pods: 1, ..Resources::default() };
    pod.owner = Some(Owner {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: "web".to_owned(),
        uid: "web".to_owned(),
    });
    pod
}

/// Replays the rounds. Returns the simulation after the last round.
fn play(demand: u32, rounds: &[Snapshot]) -> Simulation {
    play_with(POOL, demand, rounds)
}

fn play_with(config: &str, demand: u32, rounds: &[Snapshot]) -> Simulation {
    let config = settings::parse("test", config, Needs::Plan).unwrap();
    let mut watcher = Watcher::default();
    for round in rounds {
        watcher.round(round);
    }
    let what_if = WhatIf { demand, ..WhatIf::default() };
    let mut simulation = Simulation::new(config, Arc::new(watcher.finish()), what_if);
    let mut wanted = Demand::default();
    for round in rounds {
        simulation.round(round, &wanted.round(round));
    }
    simulation
}

fn names(simulation: &Simulation) -> Vec<&str> {
    simulation.members.values().map(|member| member.pod.name.as_str()).collect()
}

#[test]
fn pods_on_nodes_of_no_pool_are_not_multiplied() {
    let nodes = || vec![node("cp", false)];
    let settled = Seen { nodes: nodes(), pods: vec![pod("a", Some("cp"))], ..Seen::default() };
    for demand in [100, 1000, 3000] {
        assert_eq!(names(&play(demand, &[settled.at(0), settled.at(10)])), ["a"], "{demand}");
    }
    // A pod that is pending at first is multiplied or left out, depending on the demand. Once the pod gets a
    // node outside all pools in the record, the simulation contains the pod exactly once.
    let waits = Seen { nodes: nodes(), pods: vec![pod("a", None)], ..Seen::default() };
    for demand in [100, 3000] {
        let played = play(demand, &[waits.at(0), settled.at(10)]);
        assert_eq!(names(&played), ["a"], "{demand}");
        assert_eq!(played.members[&(1, 0)].pod.node.as_deref(), Some("cp"));
    }
}

#[test]
fn copies_of_pods_that_ran_from_the_beginning_do_not_count_as_waiting() {
    let seen = Seen {
        nodes: vec![node("w-1", true)],
        machines: vec![machine("w-1", Phase::Ready, -900)],
        pods: vec![pod("a", Some("w-1"))],
        ..Seen::default()
    };
    let figures = play(3000, &[seen.at(0), seen.at(300)]).finish();
    assert_eq!((figures.pools["w"].made, figures.pools["w"].pods), (2, 2));
    assert_eq!((figures.waits().count(), figures.waiting), (0, 0));
}

#[test]
fn pods_that_never_get_a_node_count_with_how_long_they_waited() {
    let waits = |names: &[&str]| {
        let mut pods: Vec<Pod> = names.iter().map(|name| pod(name, None)).collect();
        for pod in &mut pods {
            pod.requests.cpu_milli = 100_000;
        }
        Seen { pods, ..Seen::default() }
    };
    let rounds = [waits(&["a", "b"]).at(5), waits(&["a", "b"]).at(50), waits(&["b"]).at(100)];
    let played = play(1000, &rounds);
    let happened = played.facts.happened.clone();
    for figures in [played.finish(), happened] {
        let waits = figures.waits();
        assert_eq!((figures.without.count(), figures.still.count(), waits.count()), (1, 1, 2));
        assert_eq!((figures.without.percentile(100), waits.percentile(100)), (Some(100), Some(100)));
    }
}

#[test]
fn a_pod_does_not_wait_while_a_gate_holds_it() {
    let gated = |held: bool| {
        let mut pod = pod("a", None);
        if held {
            pod.scheduling = Scheduling::Gated;
        }
        Seen {
            nodes: vec![node("w-1", true)],
            machines: vec![machine("w-1", Phase::Ready, -900)],
            pods: vec![pod],
            ..Seen::default()
        }
    };
    let figures = play(1000, &[gated(true).at(0), gated(true).at(60), gated(false).at(120)]).finish();
    assert_eq!((figures.pools["w"].pods, figures.waits().count(), figures.waiting), (1, 0, 0));
}

#[test]
fn a_machine_on_its_way_comes_in_the_time_that_is_left() {
    let mut coming = machine("w-1", Phase::Joining, -5);
    coming.requested = Some(at(-50));
    let seen = Seen { machines: vec![coming], ..Seen::default() };
    // Creation takes a minute in total (the default), because the record does not contain a complete
    // creation.
    assert_eq!(play(1000, &[seen.at(0), seen.at(9)]).nodes.len(), 0);
    assert_eq!(play(1000, &[seen.at(0), seen.at(11)]).nodes.len(), 1);
}

#[test]
fn nodes_of_the_first_round_are_cordoned_as_in_the_record_and_do_not_fail() {
    let seen = |cordoned: bool, ready: &str| {
        let mut node = Node { unschedulable: cordoned, ..node("w-1", true) };
        ready.clone_into(&mut node.conditions[0].status);
        Seen {
            nodes: vec![node],
            machines: vec![machine("w-1", Phase::Ready, -900)],
            pods: vec![pod("a", None)],
            ..Seen::default()
        }
    };
    let on = |rounds: &[Snapshot]| play(1000, rounds).members[&(1, 0)].pod.node.clone();
    let cordoned = seen(true, "True");
    assert_eq!(on(&[cordoned.at(0), cordoned.at(10)]), None);
    assert_eq!(on(&[cordoned.at(0), seen(false, "True").at(10)]).as_deref(), Some("w-1"));
    let silent = seen(false, "Unknown");
    assert_eq!(on(&[silent.at(0), silent.at(10)]).as_deref(), Some("w-1"));
}

const SWITCHED: &str = r#"
[power]
idle_for = "10m"
[[host]]
name = "pve3"
power = "wake-on-lan"
"#;

/// Three hosts, of which only the third has free resources, and the given pods.
fn three_hosts(others: i64, pods: Vec<Pod>) -> Seen {
    let hosts = vec![host("pve1", 8, 8), host("pve2", 8, 8), host("pve3", 32, others)];
    Seen { pods, hosts, ..Seen::default() }
}

#[test]
fn a_host_that_may_be_switched_is_off_while_nothing_needs_it() {
    let config = format!("{SWITCHED}{POOL}");
    let none = || three_hosts(0, Vec::new());
    let wanted = || three_hosts(0, vec![Pod { created: Some(at(3600)), ..pod("a", None) }]);
    let rounds = [none().at(0), wanted().at(3600), wanted().at(7200)];
    let figures = play_with(&config, 1000, &rounds).finish();
    // The host is shut down after ten idle minutes, and the shutdown takes one more minute. The host is on
    // again three minutes after the pod is created.
    let pve3 = figures.hosts["pve3"];
    let off = pve3.off.unwrap() * 60.0;
    assert!((50.0..53.0).contains(&off), "{off} min");
    assert!((pve3.on * 60.0 + off - 120.0).abs() < 0.1, "{pve3:?}");
    assert_eq!(figures.hosts["pve1"].off, None);
    let waited = figures.pools["w"].waits.percentile(100).unwrap();
    assert!((240..260).contains(&waited), "{waited}");
    // If there is no pod, the host stays off. If the host has no `power` setting, it stays on.
    let rounds = [none().at(0), none().at(3600), none().at(7200)];
    let off = play_with(&config, 1000, &rounds).finish().hosts["pve3"].off.unwrap();
    assert!((1.75..1.85).contains(&off), "{off}");
    let pve3 = play(1000, &rounds).finish().hosts["pve3"];
    assert!(pve3.off.is_none() && pve3.on > 1.99 && pve3.empty.unwrap() > 1.99, "{pve3:?}");
    // Other guests keep the host on.
    let rounds = [0, 3600].map(|second| three_hosts(4, Vec::new()).at(second));
    assert_eq!(play_with(&config, 1000, &rounds).finish().hosts["pve3"].off, Some(0.0));
}

#[test]
fn a_host_that_the_daemon_had_switched_off_is_there_for_another_configuration() {
    let off = |second: i64, pods: Vec<Pod>| {
        let mut seen = three_hosts(0, pods);
        let room = seen.hosts[2].clone();
        seen.hosts[2].online = false;
        let mut round = seen.at(second);
        let power = model::power::PowerMemory {
            step: model::power::PowerStep::Off,
            since: at(-900),
            room: Some(room),
            ..model::power::PowerMemory::default()
        };
        let memory =
            model::snapshot::HostMemory { power: Some(power), ..model::snapshot::HostMemory::default() };
        round.memory.hosts.insert("pve3".into(), memory);
        round
    };
    let wanted = || vec![Pod { created: Some(at(60)), ..pod("a", None) }];
    let rounds = [off(0, Vec::new()), off(60, wanted()), off(660, wanted())];
    let played = play(1000, &rounds);
    assert_eq!(played.facts.happened.hosts["pve3"].off, Some(660.0 / 3600.0));
    let figures = played.finish();
    assert_eq!((figures.pools["w"].made, figures.pools["w"].waits.percentile(100)), (1, Some(60)));
    assert_eq!(figures.hosts["pve3"].off, None);
    // If the simulated configuration also has the `power` setting, the host is off at first and is then
    // woken.
    let figures = play_with(&format!("{SWITCHED}{POOL}"), 1000, &rounds).finish();
    assert_eq!((figures.pools["w"].made, figures.pools["w"].waits.percentile(100)), (1, Some(240)));
    assert!((figures.hosts["pve3"].off.unwrap() - 240.0 / 3600.0).abs() < 0.01);
}
