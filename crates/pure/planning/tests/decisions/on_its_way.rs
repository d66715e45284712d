//! Machines that one plan creates for pods are still meant for these pods in the next plan, both while they
//! are being created and once they are ready.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::machine::{Machine, Phase};
use model::node::{Condition, Node, Taint, TaintEffect};
use model::plan::PodOutcome;
use model::pod::{HostPort, Owner, Pod, PodAffinityTerm, PodPhase, SpreadConstraint, Toleration};
use model::pod_spec::PodSpec;
use model::selector::{LabelSelector, Labels, Operator, Requirement};
use model::snapshot::POOL_LABEL;
use model::workload::DaemonSet;
use model::{Plan, Resources, Snapshot};
use planning::plan;
use proptest::prelude::*;
use settings::{self, Config, Needs};

const NOW: &str = "2026-01-15T12:00:00Z";
const LATELY: &str = "2026-01-15T11:58:00Z";

/// Three pools: `any` for any pod, `far` in another zone, and `own` for pods that tolerate its taint.
fn config() -> Config {
    let pool = |name: &str, cores: u32, own: &str| {
        format!(
            "[[pool]]\nname = \"{name}\"\nmax = 100\ncores = {cores}\nmemory = \"16GiB\"\n\
             allocatable = {{ cpu = \"{cores}\", memory = \"15Gi\", pods = 20 }}\n{own}\n"
        )
    };
    let text = [
        pool("any", 4, "labels = { zone = \"z1\" }"),
        pool("far", 4, "labels = { zone = \"z2\" }"),
        pool("own", 2, "labels = { zone = \"z1\" }\ntaints = [\"own:NoSchedule\"]"),
    ];
    settings::parse("test", &text.concat(), Needs::Plan).unwrap()
}

/// What the pods of an app require of their node besides room.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Plain,
    /// The pods select pool `far`.
    Far,
    /// The pods tolerate the taint of pool `own`, and may run on any node.
    Tolerant,
    /// The pods tolerate the taint of pool `own`, and select this pool.
    Own,
    /// No two of the pods may share a node.
    Shy,
    /// The pods all use the same host port.
    Port,
    /// The pods are spread over zones.
    Spread,
    /// The pods must run on nodes with a pod of the first DaemonSet.
    Beside,
    /// The pods must run on nodes without a pod of the second DaemonSet.
    Apart,
}

const MANNERS: [Manner; 9] = [
    Manner::Plain,
    Manner::Far,
    Manner::Tolerant,
    Manner::Own,
    Manner::Shy,
    Manner::Port,
    Manner::Spread,
    Manner::Beside,
    Manner::Apart,
];

fn select(app: &str) -> LabelSelector {
    let values = vec![app.to_owned()];
    LabelSelector {
        requirements: vec![Requirement { key: "app".to_owned(), operator: Operator::In, values }],
    }
}

fn near(app: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(select(app)),
        namespaces: Vec::new(),
        namespace_selector: None,
        topology_key: "kubernetes.io/hostname".to_owned(),
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

fn tolerates() -> Toleration {
    Toleration { key: "own".to_owned(), exists: true, value: String::new(), effect: None }
}

fn port(number: i32) -> HostPort {
    HostPort { ip: "0.0.0.0".to_owned(), protocol: "TCP".to_owned(), port: number }
}

fn bare(name: &str, app: &str, cpu: i64, owner: &str) -> Pod {
    Pod {
        name: name.to_owned(),
        uid: name.to_owned(),
        spec: PodSpec {
            namespace: "d".to_owned(),
            labels: Labels::from([("app".to_owned(), app.to_owned())]),
            owner: Some(Owner {
                api_version: "apps/v1".to_owned(),
                kind: owner.to_owned(),
                name: app.to_owned(),
                uid: app.to_owned(),
            }),
            requests: Resources { cpu_milli: cpu, memory: cpu << 20, pods: 1, ..Resources::default() },
            restarts_always: true,
            grace_seconds: 30,
            ..PodSpec::default()
        }
        .into(),
        ..Pod::default()
    }
}

fn waiting(number: usize, app: usize, manner: Manner, cpu: i64) -> Pod {
    let name = format!("app{app}");
    let mut pod = bare(&format!("p{number:03}"), &name, cpu, "ReplicaSet");
    match manner {
        Manner::Plain => {}
        Manner::Far => drop(pod.node_selector.insert("zone".to_owned(), "z2".to_owned())),
        Manner::Tolerant => pod.tolerations.push(tolerates()),
        Manner::Own => {
            pod.tolerations.push(tolerates());
            pod.node_selector.insert(POOL_LABEL.to_owned(), "own".to_owned());
        }
        Manner::Shy => pod.affinity.anti.push(near(&name)),
        Manner::Port => pod.host_ports.push(port(8000)),
        Manner::Spread => pod.spread.push(SpreadConstraint {
            max_skew: 1,
            min_domains: 1,
            topology_key: "zone".to_owned(),
            hard: true,
            selector: Some(select(&name)),
            match_label_keys: Vec::new(),
            honor_node_affinity: true,
            honor_node_taints: true,
        }),
        Manner::Beside => pod.affinity.pods.push(near("ds0")),
        Manner::Apart => pod.affinity.anti.push(near("ds1")),
    }
    pod
}

/// The DaemonSet with this number. DaemonSet 0 has no requirements, 1 selects a zone, 2 uses a host port, and
/// the others keep the pods of the first app away.
fn daemon_set(number: usize) -> Arc<DaemonSet> {
    let name = format!("ds{number}");
    let mut pod = bare(&name, &name, 100, "DaemonSet");
    match number {
        0 => {}
        1 => drop(pod.node_selector.insert("zone".to_owned(), "z1".to_owned())),
        2 => pod.host_ports.push(port(8000)),
        _ => pod.affinity.anti.push(near("app0")),
    }
    Arc::new(DaemonSet { namespace: "d".to_owned(), name: name.clone(), uid: name, pod })
}

/// A random cluster: pending pods and how many of them are added later, what the pods of each app require,
/// the DaemonSets, the phase of each machine in the next plan, and how many nodes exist.
#[derive(Clone, Debug)]
struct World {
    pods: Vec<(usize, i64)>,
    later: usize,
    manners: Vec<usize>,
    sets: BTreeSet<usize>,
    phases: Vec<usize>,
    nodes: usize,
}

fn world() -> impl Strategy<Value = World> {
    let pods =
        prop::collection::vec((0_usize..5, prop::sample::select(vec![100_i64, 300, 700, 1100, 1900])), 1..40);
    let manners = prop::collection::vec(0..MANNERS.len(), 5);
    let sets = prop::collection::btree_set(0_usize..4, 0..4);
    (pods, 0_usize..10, manners, sets, prop::collection::vec(0_usize..5, 40), 0_usize..3).prop_map(
        |(pods, later, manners, sets, phases, nodes)| World { pods, later, manners, sets, phases, nodes },
    )
}

fn node(name: &str, pool: &str, ready: bool, created: &str) -> Node {
    let zone = if pool == "far" { "z2" } else { "z1" };
    let cores = if pool == "own" { 2000 } else { 4000 };
    let labels = [(POOL_LABEL, pool), ("kubernetes.io/hostname", name), ("zone", zone)];
    let status = if ready { "True" } else { "False" };
    Node {
        name: name.to_owned(),
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        taints: if pool == "own" { vec![taint("own")] } else { Vec::new() },
        allocatable: Resources { cpu_milli: cores, memory: 15 << 30, pods: 20, ..Resources::default() },
        conditions: vec![Condition {
            kind: "Ready".to_owned(),
            status: status.to_owned(),
            last_transition: None,
        }],
        created: Some(created.parse().unwrap()),
        ..Node::default()
    }
}

fn bound(pod: Pod, node: &str) -> Pod {
    Pod { node: Some(node.to_owned()), phase: PodPhase::Running, ..pod }
}

fn taint(key: &str) -> Taint {
    Taint { key: key.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule, time_added: None }
}

impl World {
    /// The cluster before anything was created, with this many of the pods. Both zones have a full node, so
    /// no new machine adds a zone.
    fn snapshot(&self, pods: usize) -> Snapshot {
        let all = self.pods.iter().take(pods).enumerate();
        let mut pods: Vec<Pod> = all
            .map(|(number, (app, cpu))| waiting(number, *app, MANNERS[self.manners[*app]], *cpu))
            .collect();
        let old = |name: &str, pool: &str| node(name, pool, true, "2026-01-01T00:00:00Z");
        let mut nodes = vec![old("full", "any"), old("gull", "far")];
        pods.extend(
            nodes.iter().map(|node| bound(bare(&node.name, "fills", 4000, "ReplicaSet"), &node.name)),
        );
        nodes.extend((0..self.nodes).map(|number| old(&format!("old{number}"), "any")));
        let mut snapshot = Snapshot {
            time: NOW.parse().unwrap(),
            nodes: nodes.into_iter().map(Arc::new).collect(),
            pods: pods.into_iter().map(Arc::new).collect(),
            daemon_sets: self.sets.iter().map(|number| daemon_set(*number)).collect(),
            ..Snapshot::default()
        };
        Arc::make_mut(&mut snapshot.proxmox).machines = Some(Vec::new());
        snapshot
    }

    /// The cluster while the plan's machines are being created, or just after they have become ready.
    /// kube-scheduler has placed the pods that fit existing nodes. The machines' pods are still pending.
    fn carried_out(&self, plan: &Plan) -> Snapshot {
        let mut after = self.snapshot(self.pods.len());
        for pod in &mut after.pods {
            let verdict = plan.pods.iter().find(|one| *one.pod == pod.id());
            if let Some(node) = verdict.and_then(|one| one.node()) {
                *pod = Arc::new(bound(pod.as_ref().clone(), node));
            }
        }
        let made = plan.scale_up.iter().flat_map(|pool| pool.machines.iter().map(|one| (&pool.pool, one)));
        for (number, (pool, one)) in made.enumerate() {
            // These names make some new nodes sort before the existing ones, and others after them.
            let name = format!("{}{number}", if number % 2 == 0 { "a" } else { "z" });
            let phase = [Phase::Cloning, Phase::Booting, Phase::Joining, Phase::Registered, Phase::Ready]
                [self.phases[number % self.phases.len()]];
            if phase >= Phase::Registered {
                let mut node = node(&name, pool, phase == Phase::Ready, LATELY);
                if phase == Phase::Registered {
                    node.taints.push(taint("node.kubernetes.io/not-ready"));
                }
                after.nodes.push(Arc::new(node));
            }
            Arc::make_mut(&mut after.proxmox).machines.as_mut().unwrap().push(Machine {
                node: (phase >= Phase::Registered).then(|| name.clone()),
                name,
                pool: pool.clone(),
                host: one.host.clone(),
                cores: one.cores,
                memory: one.memory_bytes,
                phase,
                since: Some(LATELY.parse().unwrap()),
                pods: one.pods.iter().map(ToString::to_string).collect(),
                ..Machine::default()
            });
        }
        after
    }
}

fn with(plan: &Plan, outcomes: &[PodOutcome]) -> BTreeSet<String> {
    let pods = plan.pods.iter().filter(|pod| outcomes.contains(&pod.verdict));
    pods.map(|pod| pod.pod.to_string()).collect()
}

const THERE: [PodOutcome; 2] = [PodOutcome::ExistingNode, PodOutcome::UpcomingNode];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_plan_that_is_being_carried_out_asks_for_nothing_more(world in world()) {
        let config = config();
        let first = plan(&world.snapshot(world.pods.len()), &config);
        let second = plan(&world.carried_out(&first), &config);
        prop_assert!(second.scale_up.is_empty(), "{:?} after {:?}", second.scale_up, first.scale_up);
        let planned = with(&first, &[PodOutcome::NewNode]);
        prop_assert!(planned.is_subset(&with(&second, &THERE)), "{planned:?}: {:?}", second.pods);
    }

    #[test]
    fn pods_that_come_later_take_no_machine_from_those_it_was_made_for(world in world()) {
        let config = config();
        let before = world.pods.len().saturating_sub(world.later);
        let first = plan(&world.snapshot(before), &config);
        let second = plan(&world.carried_out(&first), &config);
        let planned = with(&first, &[PodOutcome::NewNode]);
        let there = with(&second, &THERE);
        let lost: Vec<&String> = planned.difference(&there).collect();
        prop_assert!(lost.is_empty(), "{lost:?}: {:?} after {:?}", second.scale_up, first.scale_up);
    }
}
