//! Prints small random worlds, one per line, as input for comparing two builds of the planner. Usage: `random
//! FIRST COUNT`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may panic on unexpected results"
)]

use std::fmt::Write;
use std::sync::Arc;

use pve_autoscaler::model::node::{Node, Taint, TaintEffect};
use pve_autoscaler::model::pod::{
    HostPort, Owner, Pod, PodAffinityTerm, PodPhase, Scheduling, SpreadConstraint, Toleration, Volume,
    VolumeSource,
};
use pve_autoscaler::model::selector::{LabelSelector, Operator, Requirement};
use pve_autoscaler::model::snapshot::{POOL_LABEL, UNNEEDED_SINCE};
use pve_autoscaler::model::workload::{
    Controller, CsiNode, DisruptionBudget, PersistentVolume, StorageClass, VolumeAttachment, VolumeClaim,
};
use pve_autoscaler::model::{Resources, Snapshot};
use pve_autoscaler::snapshot;
use serde_json::json;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const DRIVER: &str = "csi.example.org";

/// The random number generator SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to one less than `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    /// Returns true in one of `times` cases on average.
    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

fn settings(random: &mut Random) -> String {
    let mut text = "[scale_down]\ndelay_after_add = \"0s\"\nmax_parallel_drains = 50\n".to_owned();
    if random.one_in(2) {
        text += "consolidation = true\n";
    }
    for pool in 0..=random.below(3) {
        let cores = [2, 4, 8][random.below(3)];
        let (min, max) = (random.below(2), 1 + random.below(8));
        let _ = write!(
            text,
            "[[pool]]\nname = \"w{pool}\"\nmin = {min}\nmax = {max}\ncores = {cores}\nmemory = \"{}GiB\"\n\
             labels = {{ \"{ZONE}\" = \"z{}\" }}\n",
            cores * 2,
            random.below(2),
        );
    }
    text
}

fn node(number: usize, random: &mut Random) -> Node {
    let name = format!("n{number}");
    let cores = [2000, 4000, 8000][random.below(3)];
    let mut node = Node {
        allocatable: Resources { cpu_milli: cores, memory: cores << 21, pods: 8, ..Resources::default() },
        ..Node::default()
    };
    node.labels.insert(POOL_LABEL.to_owned(), format!("w{}", random.below(3)));
    node.labels.insert(ZONE.to_owned(), format!("z{}", random.below(2)));
    node.labels.insert(HOST.to_owned(), name.clone());
    if random.one_in(2) {
        node.annotations.insert(UNNEEDED_SINCE.to_owned(), "2026-01-01T00:00:00Z".to_owned());
    }
    if random.one_in(6) {
        let (key, effect) = ("own".to_owned(), TaintEffect::NoSchedule);
        node.taints.push(Taint { key, value: String::new(), effect, time_added: None });
    }
    node.unschedulable = random.one_in(10);
    node.name = name;
    node
}

fn of_app(app: usize) -> LabelSelector {
    LabelSelector {
        requirements: vec![Requirement {
            key: "app".to_owned(),
            operator: Operator::In,
            values: vec![format!("a{app}")],
        }],
    }
}

fn pod(number: usize, node: Option<String>, random: &mut Random) -> Pod {
    let app = random.below(5);
    let name = format!("p{number:02}");
    let mut pod = Pod {
        uid: name.clone(),
        name,
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        ready: node.is_some(),
        scheduling: if node.is_some() { Scheduling::Scheduled } else { Scheduling::Unschedulable(None) },
        node,
        ..Pod::default()
    };
    "d".clone_into(&mut pod.namespace);
    pod.labels.insert("app".to_owned(), format!("a{app}"));
    let (api_version, kind) = ("apps/v1".to_owned(), "ReplicaSet".to_owned());
    let owner = Owner { api_version, kind, name: format!("a{app}"), uid: format!("a{app}") };
    pod.owner = (!random.one_in(12)).then_some(owner);
    let (cpu, memory) = (100 * (1 + random.below(20)), 128 * (1 + random.below(24)));
    pod.requests = Resources {
        cpu_milli: i64::try_from(cpu).unwrap(),
        memory: i64::try_from(memory).unwrap() << 20,
        pods: 1,
        ..Resources::default()
    };
    pod.restarts_always = true;
    "default-scheduler".clone_into(&mut pod.scheduler);
    asks(&mut pod, app, random);
    pod
}

/// Adds the pod's requirements for its node and for other pods.
fn asks(pod: &mut Pod, app: usize, random: &mut Random) {
    let term = |key: &str, app: usize| PodAffinityTerm {
        selector: Some(of_app(app)),
        namespaces: Vec::new(),
        namespace_selector: None,
        topology_key: key.to_owned(),
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    };
    match random.below(12) {
        0 => pod.affinity.anti.push(term(HOST, app)),
        1 => pod.affinity.anti.push(term(ZONE, (app + 1) % 5)),
        2 => pod.affinity.pods.push(term(ZONE, app)),
        3 => pod.affinity.pods.push(term(HOST, (app + 2) % 5)),
        4 => pod.spread.push(SpreadConstraint {
            max_skew: 1,
            min_domains: 1,
            topology_key: [ZONE, HOST][random.below(2)].to_owned(),
            hard: true,
            selector: Some(of_app(app)),
            match_label_keys: Vec::new(),
            honor_node_affinity: true,
            honor_node_taints: false,
        }),
        5 => drop(pod.node_selector.insert(ZONE.to_owned(), format!("z{}", random.below(2)))),
        6 => pod.host_ports.push(HostPort { ip: "0.0.0.0".to_owned(), protocol: "TCP".to_owned(), port: 80 }),
        7 => pod.tolerations.push(Toleration {
            key: "own".to_owned(),
            exists: true,
            value: String::new(),
            effect: None,
        }),
        8 => {
            let source =
                VolumeSource::Claim { name: format!("c-{}", pod.name), ephemeral: false, read_only: false };
            pod.volumes.push(Volume { name: "data".to_owned(), source });
        }
        _ => {}
    }
}

fn world(random: &mut Random) -> Snapshot {
    let mut all = Snapshot { time: "2026-01-15T12:00:00Z".parse().unwrap(), ..Snapshot::default() };
    let nodes: Vec<Node> = (0..random.below(8)).map(|number| node(number, random)).collect();
    let mut pods = Vec::new();
    for node in &nodes {
        let mut free = node.allocatable.clone();
        for _ in 0..random.below(6) {
            let one = pod(pods.len(), Some(node.name.clone()), random);
            if free.cpu_milli >= one.requests.cpu_milli && free.memory >= one.requests.memory {
                free.subtract(&one.requests);
                pods.push(one);
            }
        }
    }
    for _ in 0..random.below(14) {
        pods.push(pod(pods.len(), None, random));
    }
    volumes(&mut all, &nodes, &pods);
    all.controllers = (0..5).map(|app| Arc::new(controller(app))).collect();
    for app in 0..random.below(4) {
        all.budgets.push(Arc::new(DisruptionBudget {
            namespace: "d".to_owned(),
            name: format!("b{app}"),
            selector: Some(of_app(app)),
            disruptions_allowed: i64::try_from(random.below(3)).unwrap(),
            always_allows_unhealthy: false,
            healthy: (9, 1),
        }));
    }
    all.nodes = nodes.into_iter().map(Arc::new).collect();
    all.pods = pods.into_iter().map(Arc::new).collect();
    all
}

fn controller(app: usize) -> Controller {
    Controller {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        namespace: "d".to_owned(),
        name: format!("a{app}"),
        uid: format!("a{app}"),
        replicas: 50,
        selector: Some(of_app(app)),
        deleted: false,
        template: None,
    }
}

/// Adds a claim for each pod with a volume. If the pod runs, also adds the claim's volume and its attachment.
fn volumes(all: &mut Snapshot, nodes: &[Node], pods: &[Pod]) {
    let name = "fast".to_owned();
    let class = StorageClass {
        name,
        provisioner: DRIVER.to_owned(),
        waits_for_consumer: true,
        ..StorageClass::default()
    };
    all.storage_classes.push(Arc::new(class));
    for node in nodes {
        let limits = [(DRIVER.to_owned(), Some(2))].into();
        all.csi_nodes.push(Arc::new(CsiNode { name: node.name.clone(), limits, ..CsiNode::default() }));
    }
    for pod in pods.iter().filter(|pod| !pod.volumes.is_empty()) {
        let (claim, volume) = (format!("c-{}", pod.name), format!("v-{}", pod.name));
        let bound = pod.node.is_some();
        all.claims.push(Arc::new(VolumeClaim {
            namespace: "d".to_owned(),
            name: claim.clone(),
            volume: bound.then(|| volume.clone()),
            class: Some("fast".to_owned()),
            bound,
            request: 1 << 30,
            access_modes: vec!["ReadWriteOnce".to_owned()],
            ..VolumeClaim::default()
        }));
        let Some(node) = &pod.node else { continue };
        all.volumes.push(Arc::new(PersistentVolume {
            name: volume.clone(),
            claim: Some(format!("d/{claim}")),
            class: "fast".to_owned(),
            csi: Some((DRIVER.to_owned(), volume.clone())),
            capacity: 1 << 30,
            access_modes: vec!["ReadWriteOnce".to_owned()],
            ..PersistentVolume::default()
        }));
        all.attachments.push(Arc::new(VolumeAttachment {
            name: format!("va-{}", pod.name),
            attacher: DRIVER.to_owned(),
            node: node.clone(),
            volume: Some(volume),
            attached: true,
        }));
    }
}

fn main() {
    let number = |at: usize| std::env::args().nth(at).unwrap().parse::<u64>().unwrap();
    for seed in number(1)..number(1) + number(2) {
        let mut random = Random(seed);
        let settings = settings(&mut random);
        let snapshot = snapshot::write(&world(&mut random)).unwrap();
        println!("{}", json!({ "settings": settings, "snapshot": snapshot }));
    }
}
