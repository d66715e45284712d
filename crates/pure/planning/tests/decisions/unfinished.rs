//! Rounds that cannot look at everything continue where the last one stopped.

use std::collections::BTreeSet;

use model::Plan;
use model::plan::{NodeOutcome, PodOutcome, RequestOutcome};
use model::unfinished::{NodeTurns, PodTurns, Unfinished};
use planning::{Limits, plan, plan_within};

use crate::cluster::{Cluster, node_verdict, of_pool, pod_verdict, removed, with_others};
use crate::gangs::{group, pod};

/// A `growth` limit that is enough for one or two kinds of pods in these clusters.
const LITTLE: u64 = 60;

fn limits(growth: u64, shrinkage: u64) -> Limits {
    Limits { growth, shrinkage, ..Limits::default() }
}

/// A pending pod in this namespace; the smaller its number, the older it is.
fn waiting(cluster: Cluster, namespace: &str, number: u32, more: &str) -> Cluster {
    cluster.with(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number:02}, namespace: {namespace}, creationTimestamp: 2026-01-01T11:{number:02}:00Z}}\n\
         spec: {{{more}containers: [{{name: c, resources: {{requests: {{cpu: {}m, memory: 1Gi}}}}}}]}}",
        1000 + number,
    ))
}

/// Successive rounds. Pods that got a machine are left out of the next rounds.
struct Rounds {
    cluster: Vec<(String, Cluster)>,
    limits: Limits,
    unfinished: Unfinished,
}

impl Rounds {
    fn new(limits: Limits) -> Self {
        Self { cluster: Vec::new(), limits, unfinished: Unfinished::default() }
    }

    fn with(mut self, namespace: &str, number: u32, more: &str) -> Self {
        let document = waiting(Cluster::empty(), namespace, number, more);
        self.cluster.push((format!("{namespace}/p{number:02}"), document));
        self
    }

    /// Runs up to `most` rounds until this pod gets a machine. Returns the number of that round, counted from
    /// 0.
    fn until(&mut self, pod: &str, most: usize) -> Option<usize> {
        (0..most).find(|_| {
            self.round();
            !self.cluster.iter().any(|one| one.0 == pod)
        })
    }

    fn round(&mut self) -> Plan {
        let all = self.cluster.iter().fold(Cluster::new(), |all, (_, one)| all.and(one));
        let mut snapshot = all.snapshot();
        snapshot.memory.unfinished = self.unfinished.clone();
        let decided = plan_within(&snapshot, &of_pool("", ""), self.limits);
        self.unfinished = decided.unfinished.clone();
        let made: BTreeSet<String> = (decided.pods.iter())
            .filter(|one| one.verdict == PodOutcome::NewNode)
            .map(|one| one.pod.to_string())
            .collect();
        self.cluster.retain(|(pod, _)| !made.contains(pod));
        decided
    }
}

#[test]
fn a_round_that_looks_at_everything_leaves_nothing_over() {
    let cluster = waiting(waiting(Cluster::new(), "a", 1, ""), "b", 2, "").idle("n", "w");
    let plan = plan(&cluster.snapshot(), &of_pool("", ""));
    assert!(plan.unfinished.is_empty());
    let json = serde_json::to_value(&plan).unwrap();
    assert!(json.get("unfinished").is_none());
}

#[test]
fn rounds_go_on_until_every_pod_was_looked_at() {
    let mut rounds = (1..30).fold(Rounds::new(limits(LITTLE, u64::MAX)), |all, one| all.with("a", one, ""));
    let first = rounds.round();
    let left = first.unfinished.pods.as_ref().unwrap().left;
    let told = first.pods.iter().filter(|one| one.verdict == PodOutcome::Unfinished).count();
    assert!(left > 0 && left == told, "{left}, {told}");
    for _ in 0..60 {
        rounds.round();
    }
    assert_eq!(rounds.cluster.len(), 0);
    assert!(rounds.unfinished.is_empty());
}

#[test]
fn a_namespace_with_many_pods_holds_up_no_other() {
    let rounds = (1..40).fold(Rounds::new(limits(LITTLE, u64::MAX)), |all, one| all.with("a", one, ""));
    let mut rounds = rounds.with("z", 50, "");
    let mut count = 0;
    while rounds.cluster.iter().any(|one| one.0 == "z/p50") {
        rounds.round();
        count += 1;
        assert!(count < 10, "the pod of z is still pending");
    }
    // The pod got its machine before many others, although it is the youngest and the last by name and by
    // size.
    assert!(rounds.cluster.len() > 20, "{} are left", rounds.cluster.len());
}

#[test]
fn pods_that_fit_nowhere_do_not_hold_up_those_after_them() {
    let nowhere = |number: u32| format!("nodeSelector: {{none: \"{number}\"}}, ");
    let rounds = Rounds::new(limits(LITTLE, u64::MAX));
    let rounds = (1..20).fold(rounds, |all, one| all.with("a", one, &nowhere(one)));
    let mut rounds = rounds.with("a", 30, "");
    let mut count = 0;
    while rounds.cluster.iter().any(|one| one.0 == "a/p30") {
        rounds.round();
        count += 1;
        assert!(count < 60, "the last pod is still pending");
    }
}

#[test]
fn pods_of_high_priority_come_first() {
    let class = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000";
    let rounds = (1..20).fold(Rounds::new(limits(LITTLE, u64::MAX)), |all, one| all.with("a", one, ""));
    let mut rounds = rounds.with("a", 30, "priorityClassName: high, priority: 1000, ");
    rounds.cluster.push((String::new(), Cluster::empty().with(class)));
    // This is the state after a round that was not finished.
    rounds.unfinished.pods = Some(PodTurns { most: 2, ..PodTurns::default() });
    let plan = rounds.round();
    assert_eq!(pod_verdict(&plan, "a/p30"), PodOutcome::NewNode);
    assert_eq!(pod_verdict(&plan, "a/p19"), PodOutcome::Unfinished);
}

#[test]
fn nodes_are_looked_at_one_after_the_other() {
    let quick =
        "[scale_down]\ndelay_after_add = \"0s\"\ndelay_after_delete = \"0s\"\nmax_parallel_drains = 50\n";
    let config = with_others(0, 50, 9, quick);
    let mut there: Vec<u32> = (0..12).collect();
    let mut unfinished = Unfinished::default();
    let mut first = true;
    for _ in 0..60 {
        let mut cluster = Cluster::new().sized("stays", "w", "64", "", "True").pod("big", "40", "stays");
        for number in &there {
            let node = format!("n{number:02}");
            cluster =
                cluster.idle(&node, "w").pod(&format!("p{number:02}"), &format!("{}m", 100 + number), &node);
        }
        let mut snapshot = cluster.snapshot();
        snapshot.memory.unfinished = unfinished;
        let decided = plan_within(&snapshot, &config, limits(u64::MAX, 1500));
        if std::mem::take(&mut first) {
            let left = decided.unfinished.nodes.as_ref().unwrap().left;
            assert!(left > 0, "{:?}", decided.unfinished);
            assert!(
                there
                    .iter()
                    .any(|one| node_verdict(&decided, &format!("n{one:02}")) == NodeOutcome::Unneeded)
            );
        }
        let gone: BTreeSet<&str> = removed(&decided).into_iter().collect();
        there.retain(|number| !gone.contains(format!("n{number:02}").as_str()));
        unfinished = decided.unfinished.clone();
    }
    assert_eq!(there, Vec::<u32>::new());
}

/// A required node affinity with this many expressions, all of which match every node.
fn heavy(count: usize) -> String {
    let one = |at: usize| format!("{{key: example.com/k{at}, operator: DoesNotExist}}");
    let all: Vec<String> = (0..count).map(one).collect();
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{}]}}]}}}}}}, ",
        all.join(", ")
    )
}

#[test]
fn a_kind_that_is_too_much_for_a_round_holds_up_no_others() {
    let rounds = Rounds::new(limits(1000, u64::MAX)).with("a", 1, &heavy(500));
    let mut rounds = rounds.with("a", 2, "").with("b", 3, "").with("z", 4, "");
    for pod in ["a/p02", "b/p03", "z/p04"] {
        assert!(rounds.until(pod, 20).is_some(), "{pod} still waits: {:?}", rounds.unfinished);
    }
    assert!(rounds.unfinished.pods.as_ref().unwrap().heavy.contains("a/p01"));
}

#[test]
fn pods_that_are_gone_leave_room_for_other_kinds_that_are_too_much() {
    let mut rounds = Rounds::new(limits(1000, u64::MAX)).with("a", 1, &heavy(500));
    let gone = (0..100).map(|number| format!("a/gone-{number}")).collect();
    rounds.unfinished.pods = Some(PodTurns { most: 1, heavy: gone, ..PodTurns::default() });
    let decided = rounds.round();
    assert_eq!(decided.unfinished.pods.unwrap().heavy, BTreeSet::from(["a/p01".to_owned()]));
}

#[test]
fn namespaces_have_their_turns_one_after_the_other() {
    let mut rounds = Rounds::new(limits(u64::MAX, u64::MAX));
    for (number, namespace) in ["a", "a", "b", "b", "c", "c"].into_iter().enumerate() {
        rounds = rounds.with(namespace, u32::try_from(number).unwrap(), "");
    }
    let mut first = PodTurns { most: 1, ..PodTurns::default() };
    let mut order = Vec::new();
    for _ in 0..4 {
        rounds.unfinished.pods = Some(first.clone());
        let decided = rounds.round();
        let made = decided.pods.iter().find(|one| one.verdict == PodOutcome::NewNode).unwrap();
        order.push(made.pod.to_string());
        first = PodTurns { most: 1, ..decided.unfinished.pods.unwrap() };
    }
    assert_eq!(order, ["a/p00", "b/p02", "c/p04", "a/p01"]);
}

#[test]
fn a_gang_of_many_kinds_is_not_postponed_forever() {
    let mut config = of_pool("", "");
    config.pools[0].max = 30;
    let member =
        |number: u32| pod("g", number, "", "").replace("cpu: 3,", &format!("cpu: {}m,", 3000 + number));
    let gang = (0..20).fold(Cluster::new().with(&group("g", 20)), |all, number| all.with(&member(number)));
    let all = waiting(waiting(gang, "a", 1, ""), "z", 2, "");
    let mut turns = PodTurns::default();
    let is_decided = |_: &u32| {
        let mut snapshot = all.snapshot();
        // Each round gets only as far as one kind.
        snapshot.memory.unfinished.pods = Some(PodTurns { most: 1, ..turns.clone() });
        let decided = plan(&snapshot, &config);
        turns = decided.unfinished.pods.clone().unwrap();
        let verdicts = (0..20).map(|number| pod_verdict(&decided, &format!("d/g-{number}")));
        let verdicts: BTreeSet<PodOutcome> = verdicts.collect();
        assert_eq!(verdicts.len(), 1, "{verdicts:?}");
        verdicts.contains(&PodOutcome::NewNode)
    };
    assert!((0..25).find(is_decided).is_some(), "the gang is pending after 25 rounds");
}

#[test]
fn a_node_that_was_not_looked_at_has_no_timer_begun() {
    let plain = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{pve-autoscaler/pool: w}}}}\n\
             status: {{allocatable: {{cpu: 4, memory: 16Gi, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}"
        )
    };
    let cluster = Cluster::new().with(&plain("n1")).with(&plain("n2")).idle("n3", "w");
    let mut snapshot = cluster.snapshot();
    let turns = NodeTurns { left: 2, most: 1, after: Some("n3".to_owned()) };
    snapshot.memory.unfinished.nodes = Some(turns);
    let decided = plan(&snapshot, &of_pool("", ""));
    let since = |name: &str| decided.nodes.iter().find(|one| one.node == name).unwrap().since;
    assert!(since("n1").is_some(), "it is the node's turn");
    assert_eq!(since("n2"), None);
    assert!(since("n3").is_some(), "the node's timer continues");
}

/// A PodTemplate of this name, for pods that request this many CPUs.
fn template(name: &str, cpu: u32) -> String {
    format!(
        "apiVersion: v1\nkind: PodTemplate\nmetadata: {{name: {name}, namespace: d}}\n\
         template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}]}}}}"
    )
}

fn request(class: &str) -> String {
    format!(
        "apiVersion: autoscaling.x-k8s.io/v1\nkind: ProvisioningRequest\n\
         metadata: {{name: r, namespace: d, uid: r, creationTimestamp: \"2026-01-01T11:30:00Z\"}}\n\
         spec: {{provisioningClassName: {class}, podSets: [{{podTemplateRef: {{name: t3}}, count: 1}}]}}"
    )
}

#[test]
fn no_request_is_answered_while_pods_were_not_looked_at() {
    let request = request("check-capacity.autoscaling.x-k8s.io");
    let cluster = Cluster::new().idle("n", "w").with(&template("t3", 3)).with(&request);
    let cluster = waiting(waiting(cluster, "a", 1, ""), "z", 2, "");
    let mut snapshot = cluster.snapshot();
    let outcome = |plan: &Plan| plan.requests[0].verdict;
    snapshot.memory.unfinished.pods = Some(PodTurns { most: 1, ..PodTurns::default() });
    let decided = plan(&snapshot, &of_pool("", ""));
    assert_eq!(pod_verdict(&decided, "z/p02"), PodOutcome::Unfinished);
    assert_eq!(outcome(&decided), RequestOutcome::Unfinished);
    snapshot.memory.unfinished.pods = None;
    assert_ne!(outcome(&plan(&snapshot, &of_pool("", ""))), RequestOutcome::Unfinished);
}

#[test]
fn no_machine_is_made_for_room_that_is_there_however_little_was_looked_at() {
    let buffer = |name: &str, cpu: u32| {
        format!(
            "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {{name: {name}, namespace: d}}\n\
             spec: {{replicas: 1, podTemplateRef: {{name: t{cpu}}}}}"
        )
    };
    let nodes = (0..20).fold(Cluster::new(), |all, number| all.idle(&format!("n{number:02}"), "w"));
    let all = nodes.with(&template("t1", 1)).with(&template("t2", 2)).with(&template("t3", 3));
    let all = all.with(&buffer("b1", 1)).with(&buffer("b2", 2));
    let all = all.with(&request("best-effort-atomic-scale-up.autoscaling.x-k8s.io"));
    let all = waiting(all, "b", 3, "nodeSelector: {none: \"1\"}, ");
    let snapshot = waiting(waiting(all, "a", 1, ""), "z", 2, "").snapshot();
    let mut unfinished = 0;
    for growth in (1..1500).step_by(9) {
        let decided = plan_within(&snapshot, &of_pool("", ""), limits(growth, u64::MAX));
        assert!(decided.scale_up.is_empty(), "{growth}: {:?}", decided.scale_up);
        unfinished += u32::from(!decided.unfinished.is_empty());
        let put_off = decided.pods.iter().any(|pod| pod.verdict == PodOutcome::Unfinished);
        assert_eq!(
            put_off,
            decided.unfinished.pods.is_some(),
            "{growth}: pods are postponed if and only if a later round continues with them"
        );
    }
    assert!(unfinished > 3, "{unfinished}");
}
