//! Creates clusters with any number of nodes, pods, apps and pending pods, so that decisions about them can
//! be measured.

use std::fmt::Write;
use std::sync::Arc;

use pve_autoscaler::model::node::Node;
use pve_autoscaler::model::pod::{Owner, Pod, PodAffinityTerm, PodPhase, Scheduling, SpreadConstraint};
use pve_autoscaler::model::pod_spec::{PodSpec, Specs};
use pve_autoscaler::model::selector::{LabelSelector, Operator, Requirement};
use pve_autoscaler::model::snapshot::{POOL_LABEL, UNNEEDED_SINCE};
use pve_autoscaler::model::workload::{Controller, DisruptionBudget};
use pve_autoscaler::model::{Resources, Snapshot};
use pve_autoscaler::settings::{self, Config, Needs};

use crate::inventory;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// What pods require of other pods.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Nothing.
    Plain,
    /// Pods of one app do not share a host.
    Apart,
    /// Like [`Self::Apart`], and pods of one app are also spread over zones.
    Spread,
}

/// A cluster of nodes with 10 CPUs each, in three zones with one pool each.
#[derive(Clone, Copy)]
pub struct Cluster {
    pub nodes: usize,
    /// How many pods run on each node.
    pub pods: usize,
    pub apps: usize,
    /// What each running pod requests: this many millicores of CPU, and this many MiB of memory.
    pub size: i64,
    pub manner: Manner,
    /// Whether the nodes have been unneeded for a long time.
    pub idle: bool,
    /// The number of pending pods, which belong to the same apps.
    pub waiting: usize,
    /// Whether the nodes' machines are in the inventory.
    pub machines: bool,
    pub budgets: usize,
}

pub const CLUSTER: Cluster = Cluster {
    nodes: 1000,
    pods: 20,
    apps: 2000,
    size: 250,
    manner: Manner::Plain,
    idle: false,
    waiting: 0,
    machines: true,
    budgets: 0,
};

fn of_app(app: &str) -> LabelSelector {
    let values = vec![app.to_owned()];
    LabelSelector {
        requirements: vec![Requirement { key: "app".to_owned(), operator: Operator::In, values }],
    }
}

fn apart(app: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(of_app(app)),
        namespaces: Vec::new(),
        namespace_selector: None,
        topology_key: HOST.to_owned(),
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

fn over_zones(app: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        min_domains: 1,
        topology_key: ZONE.to_owned(),
        hard: true,
        selector: Some(of_app(app)),
        match_label_keys: Vec::new(),
        honor_node_affinity: true,
        honor_node_taints: false,
    }
}

fn node(number: usize, idle: bool) -> Node {
    let (name, zone) = (format!("n{number:05}"), number % 3);
    let labels = [(POOL_LABEL, format!("w{zone}")), (HOST, name.clone()), (ZONE, format!("z{zone}"))];
    let since = idle.then(|| (UNNEEDED_SINCE.to_owned(), "2026-01-01T00:00:00Z".to_owned()));
    Node {
        name,
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        annotations: since.into_iter().collect(),
        allocatable: Resources { cpu_milli: 10_000, memory: 10_000 << 20, pods: 110, ..Resources::default() },
        ..Node::default()
    }
}

/// A pod of an app, with its requirements for other pods of the app.
pub fn pod(number: usize, app: &str, (cpu, mib): (i64, i64), manner: Manner, node: Option<&str>) -> Pod {
    let owner = Owner {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: app.to_owned(),
        uid: app.to_owned(),
    };
    let asked = "2026-01-15T11:59:00Z".parse().unwrap();
    let name = format!("{app}-{number:06}");
    let mut pod = Pod {
        uid: name.clone(),
        name,
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        scheduling: node.map_or(Scheduling::Unschedulable(Some(asked)), |_| Scheduling::Scheduled),
        node: node.map(ToOwned::to_owned),
        ready: node.is_some(),
        spec: PodSpec {
            namespace: "default".to_owned(),
            labels: [("app".to_owned(), app.to_owned())].into(),
            owner: Some(owner),
            requests: Resources { cpu_milli: cpu, memory: mib << 20, pods: 1, ..Resources::default() },
            restarts_always: true,
            ..PodSpec::default()
        }
        .into(),
        ..Pod::default()
    };
    if manner != Manner::Plain {
        pod.affinity.anti.push(apart(app));
    }
    if manner == Manner::Spread {
        pod.spread.push(over_zones(app));
    }
    pod
}

/// A snapshot with only these pods. Pods with equal specs share one, as in the watches.
pub fn waiting(mut pods: Vec<Pod>) -> Snapshot {
    pods.sort_by_cached_key(Pod::id);
    let mut specs = Specs::default();
    for pod in &mut pods {
        specs.share(pod);
    }
    let pods = pods.into_iter().map(Arc::new).collect();
    Snapshot { time: "2026-01-15T12:00:00Z".parse().unwrap(), pods, ..Snapshot::default() }
}

impl Cluster {
    pub fn snapshot(self) -> Snapshot {
        let app = |number: usize| format!("app-{:05}", number % self.apps);
        let (size, manner) = ((self.size, self.size), self.manner);
        let (mut nodes, mut pods) = (Vec::new(), Vec::new());
        for number in 0..self.nodes {
            let node = node(number, self.idle);
            let own = (0..self.pods).map(|one| number * self.pods + one);
            pods.extend(own.map(|number| pod(number, &app(number), size, manner, Some(&node.name))));
            nodes.push(Arc::new(node));
        }
        let waits = self.nodes * self.pods..self.nodes * self.pods + self.waiting;
        pods.extend(waits.map(|number| pod(number, &app(number), (200, 200), manner, None)));
        let mut all = waiting(pods);
        all.nodes = nodes;
        all.controllers = (0..self.apps).map(|number| Arc::new(controller(&app(number)))).collect();
        all.budgets = (0..self.budgets).map(|number| Arc::new(budget(&app(number)))).collect();
        if self.machines {
            inventory::list_machines(&mut all);
        }
        all
    }
}

fn controller(app: &str) -> Controller {
    Controller {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        namespace: "default".to_owned(),
        name: app.to_owned(),
        uid: app.to_owned(),
        replicas: 1000,
        selector: Some(of_app(app)),
        deleted: false,
        template: None,
    }
}

fn budget(app: &str) -> DisruptionBudget {
    DisruptionBudget {
        namespace: "default".to_owned(),
        name: app.to_owned(),
        selector: Some(of_app(app)),
        disruptions_allowed: 100_000,
        always_allows_unhealthy: false,
        healthy: (1000, 1),
    }
}

/// The settings of `count` pools: for each number of cores, one pool in each of three zones.
pub fn pools(count: usize) -> String {
    let mut text =
        "[scale_down]\ndelay_after_add = \"0s\"\nconsolidation = false\nmax_parallel_drains = 5000\n"
            .to_owned();
    for number in 0..count {
        let (zone, cores) = (number % 3, 10 + number / 3 % 400);
        let _ = write!(
            text,
            "[[pool]]\nname = \"w{number}\"\nmax = 50000\ncores = {cores}\nmemory = \"{cores}GiB\"\n\
             labels = {{ \"{ZONE}\" = \"z{zone}\" }}\n\
             allocatable = {{ cpu = \"{cores}\", memory = \"{cores}000Mi\", pods = 110 }}\n"
        );
    }
    text
}

/// Parses settings for planning.
pub fn parsed(settings: &str) -> Config {
    settings::parse("bench", settings, Needs::Plan).unwrap()
}
