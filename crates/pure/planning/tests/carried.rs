//! Data that is carried over from one decision to the next saves time but must not change any plan. These
//! tests let random worlds change from round to round, and compare each plan, byte for byte, with one that
//! was made without such data.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

mod worlds;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Snapshot;
use model::node::{Node, Taint, TaintEffect};
use model::pod::{Deletion, HostPort, Owner, Pod, PodAffinityTerm, PodPhase, SpreadConstraint};
use model::selector::{LabelSelector, Operator, Requirement};
use model::snapshot::{BEING_DELETED_TAINT, POOL_LABEL, UNNEEDED_SINCE};
use model::workload::{DaemonSet, DisruptionBudget, PriorityClass};
use planning::{Carried, Stop, plan, plan_unless};
use proptest::prelude::*;
use settings::{self, Config, Needs};

use crate::worlds::{NOW, cases, replica_set, resources};

const HOST: &str = "kubernetes.io/hostname";
const SETTINGS: [&str; 4] = [
    "[scale_down]\ndelay_after_add = \"0s\"\nconsolidation = false\nmax_parallel_drains = 9",
    "[scale_down]\ndelay_after_add = \"0s\"\nconsolidation = true\nmax_parallel_drains = 9",
    "[scale_down]\ndelay_after_add = \"0s\"\nignore_daemonsets_utilization = true",
    "[scale_up]\nexpendable_pods_priority_cutoff = -1000",
];

fn config(own: &str) -> Config {
    let text = format!(
        "{own}\n[[pool]]\nname = \"w\"\nmin = 1\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = {{ cpu = \"4\", memory = \"8Gi\", pods = 10 }}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

fn of_app(app: &str) -> LabelSelector {
    let (key, operator, values) = ("app".to_owned(), Operator::In, vec![app.to_owned()]);
    LabelSelector { requirements: vec![Requirement { key, operator, values }] }
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

fn spread(app: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        min_domains: 1,
        topology_key: HOST.to_owned(),
        hard: true,
        selector: Some(of_app(app)),
        match_label_keys: Vec::new(),
        honor_node_affinity: true,
        honor_node_taints: false,
    }
}

/// A pod on node `n0` to `n6`, or without a node if `node` is 7. Node `n6` never exists. The bits of `traits`
/// set the pod's other properties.
fn pod(number: usize, traits: u16, node: usize) -> Arc<Pod> {
    let has = |bit: u16| traits & (1 << bit) != 0;
    let app = (number % 3).to_string();
    let size = 100 + i64::from(traits >> 10) * 50;
    let mut pod = worlds::pod(number, size, size, (node < 7).then(|| format!("n{node}")));
    pod.labels.insert("app".to_owned(), app.clone());
    if has(0) {
        let (api_version, kind) = ("apps/v1".to_owned(), "DaemonSet".to_owned());
        pod.owner = Some(Owner { api_version, kind, name: "ds".to_owned(), uid: "ds".to_owned() });
    }
    if has(1) {
        pod.annotations.insert("kubernetes.io/config.mirror".to_owned(), "x".to_owned());
    }
    if has(2) {
        pod.annotations.insert("karpenter.sh/disruption-cost".to_owned(), app.clone() + "x");
    }
    match traits >> 3 & 7 {
        0 => pod.affinity.anti.push(apart(&app)),
        1 => pod.spread.push(spread(&app)),
        2 => "low".clone_into(&mut pod.priority_class),
        3 => pod.phase = PodPhase::Succeeded,
        4 => {
            let at = if has(6) { "2026-01-15T11:00:00Z" } else { "2026-01-15T12:00:05Z" };
            pod.deletion = Some(Deletion { at: at.parse().unwrap(), grace_seconds: None });
        }
        5 => pod.host_ports.push(HostPort { ip: "0.0.0.0".to_owned(), protocol: "TCP".to_owned(), port: 80 }),
        _ => {}
    }
    Arc::new(pod)
}

fn node(number: usize, traits: u16) -> Arc<Node> {
    let name = format!("n{number}");
    let mut node = Node { name: name.clone(), allocatable: resources(4000, 8192, 10), ..Node::default() };
    node.labels.extend([(POOL_LABEL.to_owned(), "w".to_owned()), (HOST.to_owned(), name)]);
    if traits & 1 == 0 {
        node.annotations.insert(UNNEEDED_SINCE.to_owned(), "2026-01-15T11:00:00Z".to_owned());
    }
    if traits & 0b1110 == 0 {
        let (key, effect) = (BEING_DELETED_TAINT.to_owned(), TaintEffect::NoSchedule);
        node.taints.push(Taint { key, value: String::new(), effect, time_added: None });
    }
    Arc::new(node)
}

/// A change between two rounds: its kind, the number of a pod, new traits, and the number of a node.
type Change = (u8, usize, u16, usize);

/// A world that changes.
#[derive(Default)]
struct Changing {
    pods: BTreeMap<usize, Arc<Pod>>,
    nodes: BTreeMap<usize, Arc<Node>>,
    allowed: i64,
    low: i32,
    settings: usize,
    is_reversed: bool,
    seconds: i64,
}

impl Changing {
    fn change(&mut self, (what, number, traits, node_number): Change) {
        match what {
            0..=5 => drop(self.pods.insert(number, pod(number, traits, node_number))),
            6 => drop(self.pods.remove(&number)),
            7 | 8 => drop(self.nodes.insert(node_number % 6, node(node_number % 6, traits))),
            9 => drop(self.nodes.remove(&node_number)),
            10 => self.allowed = i64::from(traits % 4),
            11 => self.low = if traits.is_multiple_of(2) { -100 } else { 0 },
            12 => self.settings = usize::from(traits) % SETTINGS.len(),
            13 => self.is_reversed = traits.is_multiple_of(2),
            _ => self.seconds += i64::from(traits),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut pods: Vec<Arc<Pod>> = self.pods.values().cloned().collect();
        if self.is_reversed {
            pods.reverse();
        }
        let budget = DisruptionBudget {
            namespace: "d".to_owned(),
            name: "b".to_owned(),
            selector: Some(of_app("1")),
            disruptions_allowed: self.allowed,
            always_allows_unhealthy: false,
            healthy: (9, 1),
        };
        let (name, value) = ("low".to_owned(), self.low);
        let class = PriorityClass { name, value, global_default: false, never_preempts: false };
        let daemon = worlds::pod(0, 200, 200, None);
        let daemon_set =
            DaemonSet { namespace: "d".to_owned(), name: "ds".to_owned(), uid: "ds".to_owned(), pod: daemon };
        let start: jiff::Timestamp = NOW.parse().unwrap();
        Snapshot {
            time: start + jiff::SignedDuration::from_secs(self.seconds),
            nodes: self.nodes.values().cloned().collect(),
            pods,
            budgets: vec![Arc::new(budget)],
            controllers: vec![replica_set()],
            priority_classes: vec![Arc::new(class)],
            daemon_sets: vec![Arc::new(daemon_set)],
            ..Snapshot::default()
        }
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn what_is_carried_over_changes_no_plan(
        rounds in prop::collection::vec(
            prop::collection::vec((0_u8..15, 0_usize..24, any::<u16>(), 0_usize..8), 1..25),
            2..6,
        )
    ) {
        let (mut world, mut carried) = (Changing::default(), Carried::default());
        world.nodes = (0..4).map(|number| (number, node(number, 2))).collect();
        let all = SETTINGS.map(config);
        for (number, changes) in rounds.into_iter().enumerate() {
            for change in changes {
                world.change(change);
            }
            let (snapshot, config) = (world.snapshot(), &all[world.settings]);
            let after_others = plan_unless(&Stop::default(), &snapshot, config, &mut carried).unwrap();
            let alone = plan(&snapshot, config);
            prop_assert_eq!(&after_others, &alone, "round {}", number);
            let text = |plan| serde_json::to_string(plan).unwrap();
            prop_assert_eq!(text(&after_others), text(&alone), "round {}", number);
        }
    }
}
