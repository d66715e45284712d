//! Pods that the planner found to fit, but that kube-scheduler refuses.

use jiff::{SignedDuration, Timestamp};
use model::Plan;
use model::plan::PodOutcome;
use model::prediction::Predictions;
use planning::{follow, plan};
use settings::Config;

use crate::cluster::{Cluster, inventory, node_verdict, of_pool, pod_verdict, pools, removed};

const FULL: &str = "0/1 nodes are available: 1 Insufficient cpu.";
const REFUSED: &str = "0/1 nodes are available: 1 node(s) were refused by a plugin.";

/// Successive rounds, with the memory that each leaves for the next.
struct Rounds {
    config: Config,
    start: Timestamp,
    last: Option<Timestamp>,
    predictions: Predictions,
}

impl Rounds {
    fn new(config: Config) -> Self {
        let start = "2026-01-01T12:00:00Z".parse().unwrap();
        Self { config, start, last: None, predictions: Predictions::default() }
    }

    /// The round this many seconds after the start.
    fn at(&mut self, seconds: i64, cluster: &Cluster) -> Plan {
        let mut snapshot = cluster.snapshot();
        snapshot.time = self.start + SignedDuration::from_secs(seconds);
        snapshot.memory.last_round = self.last.replace(snapshot.time);
        snapshot.memory.predictions = self.predictions.clone();
        let decided = plan(&snapshot, &self.config);
        self.predictions = follow(&snapshot, &decided, &self.config);
        decided
    }

    /// Runs one round for each of these minutes, and returns the plan of the last one.
    fn minutes(&mut self, minutes: std::ops::RangeInclusive<i64>, cluster: &Cluster) -> Plan {
        minutes.map(|minute| self.at(minute * 60, cluster)).last().unwrap()
    }

    fn missed(&self) -> usize {
        self.predictions.missed.len()
    }
}

/// A pod that was pending before the first round, and what kube-scheduler reports about it.
fn waiting(cluster: Cluster, name: &str, cpu: &str, words: &str) -> Cluster {
    let condition = "type: PodScheduled, status: \"False\", reason: Unschedulable, lastTransitionTime: 2026-01-01T11:00:00Z";
    let status = if words.is_empty() {
        String::new()
    } else {
        format!("conditions: [{{{condition}, message: \"{words}\"}}]")
    };
    cluster.with(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, uid: {name}, creationTimestamp: 2026-01-01T11:00:00Z}}\n\
         spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}]}}\n\
         status: {{phase: Pending, {status}}}"
    ))
}

/// One idle node, and a pod that fits it.
fn refused(words: &str) -> Cluster {
    waiting(Cluster::new().idle("w0", "w"), "p", "1", words)
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.pods[0].reasons().iter().map(|one| one.reason).collect()
}

#[test]
fn a_pod_that_the_scheduler_refuses_again_where_it_fits_gets_no_machine_and_says_why() {
    let mut rounds = Rounds::new(of_pool("", ""));
    rounds.minutes(0..=1, &refused(FULL));
    // The scheduler has looked at the pod again. The prediction is not missed yet, because the scheduler may
    // be about to place the pod.
    let plan = rounds.minutes(2..=3, &refused(REFUSED));
    assert_eq!((pod_verdict(&plan, "d/p"), rounds.missed()), (PodOutcome::ExistingNode, 0));
    let plan = rounds.minutes(4..=5, &refused(REFUSED));
    assert_eq!((pod_verdict(&plan, "d/p"), rounds.missed()), (PodOutcome::PredictionMissed, 1));
    assert!(plan.scale_up.is_empty(), "{:?}", plan.scale_up);
    assert_eq!(reasons(&plan), ["PredictionMissed"]);
    let missed = plan.pods[0].missed().unwrap();
    assert_eq!((missed.node.as_str(), missed.theirs.as_str()), ("w0", REFUSED));
    assert_eq!(missed.ours, "at 2026-01-01T12:00:00Z, the planner predicted that the pod would fit node w0");
    assert!(plan.pods[0].reasons()[0].message.ends_with(REFUSED), "{:?}", plan.pods[0].reasons());
    // Even once the node is gone, no machine is created.
    let gone = waiting(Cluster::new(), "p", "1", REFUSED);
    let plan = rounds.minutes(6..=30, &gone);
    assert_eq!((pod_verdict(&plan, "d/p"), plan.scale_up.len()), (PodOutcome::PredictionMissed, 0));
}

#[test]
fn a_scheduler_that_says_nothing_new_has_a_quarter_of_an_hour() {
    let mut rounds = Rounds::new(of_pool("", ""));
    rounds.minutes(0..=14, &refused(FULL));
    assert_eq!(rounds.missed(), 0);
    rounds.minutes(15..=15, &refused(FULL));
    assert_eq!(rounds.missed(), 1);
}

#[test]
fn a_scheduler_that_is_late_misses_nothing() {
    for (what, cluster) in [
        ("the scheduler has not looked at the pod", refused("")),
        ("the scheduler has not looked at another pod", waiting(refused(FULL), "q", "100", "")),
    ] {
        let mut rounds = Rounds::new(of_pool("", ""));
        rounds.minutes(0..=60, &cluster);
        assert_eq!(rounds.missed(), 0, "{what}");
    }
}

#[test]
fn no_time_counts_in_which_no_instance_watched() {
    let mut rounds = Rounds::new(of_pool("", ""));
    rounds.minutes(0..=1, &refused(FULL));
    rounds.minutes(60..=61, &refused(FULL));
    assert_eq!(rounds.missed(), 0);
}

#[test]
fn room_that_others_take_is_no_missed_prediction() {
    let mut rounds = Rounds::new(of_pool("", ""));
    rounds.minutes(0..=10, &refused(FULL));
    let plan = rounds.minutes(11..=30, &refused(FULL).pod("a", "4", "w0"));
    assert_eq!((pod_verdict(&plan, "d/p"), rounds.missed()), (PodOutcome::NewNode, 0));
    // Other pods come and go, so the room changes each time.
    let mut rounds = Rounds::new(of_pool("", ""));
    for number in 0..10 {
        let cluster = refused(FULL).pod(&format!("a{number}"), "2", "w0");
        rounds.minutes(number * 10..=number * 10 + 9, &cluster);
    }
    assert_eq!(rounds.missed(), 0);
}

#[test]
fn a_pod_whose_volume_is_being_made_is_not_refused_at_once() {
    let volume = |words| {
        refused("").with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: db, namespace: d, uid: db, creationTimestamp: 2026-01-01T11:00:00Z}}\n\
             spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}], volumes: [{{name: v, persistentVolumeClaim: {{claimName: c}}}}]}}\n\
             status: {{phase: Pending, conditions: [{{type: PodScheduled, status: \"False\", reason: Unschedulable, message: \"{words}\"}}]}}"
        )).with("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c, namespace: d}\nspec: {storageClassName: s}\nstatus: {phase: Pending}")
          .with("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: s}\nprovisioner: p\nvolumeBindingMode: WaitForFirstConsumer")
    };
    let mut rounds = Rounds::new(of_pool("", ""));
    let plan = rounds.minutes(0..=1, &volume(FULL));
    assert_eq!(pod_verdict(&plan, "d/db"), PodOutcome::ExistingNode);
    rounds.minutes(2..=14, &volume(REFUSED));
    assert_eq!(rounds.missed(), 0);
}

#[test]
fn another_pool_is_tried_unless_it_has_a_node_that_should_have_taken_the_pod() {
    for (cluster, expected) in [(refused(FULL), "other"), (refused(FULL).idle("g0", "other"), "")] {
        let mut rounds = Rounds::new(pools(0, 9, ""));
        rounds.minutes(0..=15, &cluster);
        let plan = rounds.minutes(16..=16, &cluster);
        let made: Vec<&str> = plan.scale_up.iter().map(|one| one.pool.as_str()).collect();
        assert_eq!(made.join(" "), expected, "{:?}", plan.pods);
    }
}

#[test]
fn a_node_of_no_pool_that_refuses_what_fits_keeps_no_pool_from_growing() {
    let mut rounds = Rounds::new(of_pool("", ""));
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n0}\nstatus:\n  allocatable: {cpu: 4, memory: 16Gi, pods: 10}\n  conditions: [{type: Ready, status: \"True\"}]";
    let cluster = waiting(Cluster::new().with(node), "p", "1", FULL);
    let plan = rounds.minutes(0..=15, &cluster);
    assert_eq!(pod_verdict(&plan, "d/p"), PodOutcome::ExistingNode);
    let plan = rounds.minutes(16..=16, &cluster);
    assert_eq!(pod_verdict(&plan, "d/p"), PodOutcome::NewNode);
    // Even if no pool could take the pod, the verdict names the node on which the pod was expected.
    let mut rounds = Rounds::new(of_pool("", ""));
    let large = cluster.with("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus:\n  allocatable: {cpu: 9, memory: 16Gi, pods: 10}\n  conditions: [{type: Ready, status: \"True\"}]");
    let large = waiting(large, "q", "8", FULL);
    let plan = rounds.minutes(0..=16, &large);
    let verdict = plan.pods.iter().find(|one| &*one.pod == "d/q").unwrap();
    assert_eq!(verdict.verdict, PodOutcome::PredictionMissed);
    assert_eq!(verdict.missed().unwrap().node, "n1");
}

#[test]
fn what_matters_lets_a_machine_be_made_at_once() {
    let gone = || waiting(Cluster::new(), "p", "1", REFUSED);
    let daemons = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a, namespace: d}\nspec: {selector: {matchLabels: {a: a}}, template: {metadata: {labels: {a: a}}, spec: {containers: [{name: c}]}}}";
    let landed = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: d, uid: p}\nspec: {nodeName: w1, containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]}";
    let other = of_pool("labels = { \"example.com/a\" = \"b\" }\n", "");
    let same = of_pool("", "");
    for (what, config, cluster, made) in [
        ("nothing has changed", &same, gone(), 0),
        ("the pool's settings have changed", &other, gone(), 1),
        ("the DaemonSets have changed", &same, gone().with(daemons), 1),
        ("the pod has changed", &same, waiting(Cluster::new(), "p", "2", REFUSED), 1),
        (
            "a pod of the kind was scheduled in the pool",
            &same,
            waiting(Cluster::new().idle("w1", "w").with(landed).pod("a", "3", "w1"), "p2", "1", FULL),
            1,
        ),
    ] {
        let mut rounds = Rounds::new(same.clone());
        rounds.minutes(0..=15, &refused(FULL));
        assert_eq!(rounds.missed(), 1);
        rounds.config = config.clone();
        rounds.minutes(16..=16, &cluster);
        let plan = rounds.minutes(17..=17, &cluster);
        assert_eq!(plan.scale_up.len(), made, "{what}: {:?}", plan.pods);
    }
}

#[test]
fn it_is_tried_again_after_a_time_that_doubles_and_never_on_the_node_that_was_refused() {
    let mut rounds = Rounds::new(of_pool("", ""));
    let plan = rounds.minutes(0..=44, &refused(FULL));
    assert_eq!((rounds.missed(), plan.scale_up.len()), (1, 0));
    // The node that was refused still exists and is idle. A machine is created nevertheless, because the new
    // node may be different.
    let plan = rounds.minutes(45..=45, &refused(FULL));
    assert_eq!((pod_verdict(&plan, "d/p"), plan.scale_up.len()), (PodOutcome::NewNode, 1));
    let fresh = "apiVersion: v1\nkind: Node\nmetadata: {name: w1, labels: {pve-autoscaler/pool: w}, creationTimestamp: 2026-01-01T12:46:00Z}\n\
                 status:\n  allocatable: {cpu: 4, memory: 8Gi, pods: 10}\n  conditions: [{type: Ready, status: \"True\"}]";
    let both = refused(FULL).with(fresh);
    let plan = rounds.minutes(46..=60, &both);
    assert_eq!((plan.pods[0].node(), rounds.missed()), (Some("w1"), 1));
    rounds.minutes(61..=61, &both);
    let missed = &rounds.predictions.missed;
    assert_eq!((missed.len(), missed[0].backoff.seconds, missed[0].node.as_str()), (1, 3600, "w1"));
}

#[test]
fn nodes_that_were_refused_are_not_kept_for_the_pod() {
    let mut rounds = Rounds::new(of_pool("", ""));
    assert!(removed(&rounds.minutes(0..=15, &refused(FULL))).is_empty());
    let plan = rounds.minutes(16..=16, &refused(FULL));
    assert_eq!(removed(&plan), ["w0"], "{:?}", node_verdict(&plan, "w0"));
}

/// Machines of a pool whose fresh nodes are expected to offer more than they do. Each machine takes no pod
/// and is removed.
#[test]
fn of_machines_that_take_none_of_their_pods_there_are_two() {
    machines_that_take_no_pod(["w1", "w2"]);
}

#[test]
fn of_machines_whose_nodes_have_other_names_there_are_two_as_well() {
    machines_that_take_no_pod(["node-of-w1", "node-of-w2"]);
}

fn machines_that_take_no_pod(on: [&str; 2]) {
    let machine = |name: &str, phase: &str| {
        let node = on[usize::from(name == "w2")];
        format!(
            "{{name: {name}, pool: w, vmid: 9101, host: pve1, cores: 4, memory: 8Gi, phase: {phase}, node: {node}, pods: [d/p]}},"
        )
    };
    // The pod needs everything that a fresh node is expected to offer, but these nodes offer less.
    let cluster = |nodes: &[&str], machines: &str| {
        let nodes = nodes.iter().fold(Cluster::new(), |all, name| all.sized(name, "w", "3", "", "True"));
        waiting(nodes.with(&inventory(machines)), "p", "4", FULL)
    };
    let mut rounds = Rounds::new(of_pool("", ""));
    let asked = |plan: &Plan| plan.scale_up.iter().map(|one| one.machines.len()).sum::<usize>();
    assert_eq!(asked(&rounds.at(0, &cluster(&[], ""))), 1);
    assert_eq!(asked(&rounds.at(60, &cluster(&[], &machine("w1", "Booting")))), 0);
    assert_eq!(asked(&rounds.at(120, &cluster(&on[..1], &machine("w1", "Ready")))), 1);
    let second = [machine("w1", "Ready"), machine("w2", "Booting")].concat();
    assert_eq!(asked(&rounds.at(180, &cluster(&on[..1], &second))), 0);
    let both = [machine("w1", "Ready"), machine("w2", "Ready")].concat();
    let plan = rounds.at(240, &cluster(&on, &both));
    assert_eq!((asked(&plan), pod_verdict(&plan, "d/p")), (0, PodOutcome::PredictionMissed));
    let message = &plan.pods[0].reasons()[0].message;
    assert!(
        message.contains("w1 and w2 were created for such pods, but none was scheduled on them"),
        "{message}"
    );
    // Even once the nodes are gone, no machine is created within the hour, however short the back-off is.
    rounds.at(300, &cluster(&on, &both));
    assert_eq!(rounds.missed(), 1);
    for minute in 6..=59 {
        assert_eq!(asked(&rounds.at(minute * 60, &cluster(&[], ""))), 0, "{minute}");
    }
    // One of the machines runs another pod, so it does not count towards the limit of two machines.
    let mut rounds = Rounds::new(of_pool("", ""));
    let coming = [machine("w1", "Booting"), machine("w2", "Booting")].concat();
    rounds.at(60, &cluster(&[], &coming));
    let plan = rounds.at(120, &cluster(&on, &both).pod("a", "1", on[0]));
    assert_eq!(asked(&plan), 1);
}

#[test]
fn no_further_node_of_a_pool_goes_while_the_pods_of_one_that_went_do_not_run() {
    let two = || {
        Cluster::new()
            .pod("a", "1", "w0")
            .idle("w0", "w")
            .idle("w1", "w")
            .idle("w2", "w")
            .pod("b", "2500m", "w1")
    };
    let leaving = Cluster::new()
        .pod("a", "1", "w0")
        .node("w0", "w", crate::cluster::LEAVING, "True")
        .idle("w1", "w")
        .idle("w2", "w")
        .pod("b", "2500m", "w1");
    let mut rounds =
        Rounds::new(of_pool("", "[scale_down]\nutilization_threshold = 0.3\nmax_parallel_drains = 1\n"));
    let plan = rounds.at(0, &two());
    assert!(removed(&plan).contains(&"w0"), "{:?}", plan.nodes);
    assert_eq!(rounds.predictions.moved.len(), 1);
    rounds.at(30, &leaving);
    let left = |words: &str| {
        let rest = Cluster::new().idle("w1", "w").idle("w2", "w").pod("b", "2500m", "w1");
        rest.with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a2, namespace: d, creationTimestamp: 2026-01-01T12:01:00Z}}\n\
             spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1, memory: 1Gi}}}}}}]}}\n\
             status: {{phase: Pending, conditions: [{{type: PodScheduled, status: \"False\", reason: Unschedulable, message: \"{words}\"}}]}}"
        ))
    };
    rounds.minutes(2..=4, &left(REFUSED));
    let missed = rounds.predictions.moved[0].missed.as_ref().unwrap();
    assert!(missed.contains("d/a2") && missed.ends_with(REFUSED), "{missed}");
    let plan = rounds.minutes(5..=40, &left(REFUSED));
    assert!(removed(&plan).is_empty(), "{:?}", plan.scale_down);
    let message = plan.nodes.iter().find(|one| one.node == "w2").unwrap().message.clone();
    assert!(message.is_some_and(|message| message.contains("the removed node w0")), "{:?}", plan.nodes);
    // The pod runs.
    let runs = Cluster::new().idle("w1", "w").idle("w2", "w").pod("b", "2500m", "w1").pod("a2", "500m", "w1");
    let plan = rounds.minutes(41..=42, &runs);
    assert_eq!(removed(&plan), ["w2"]);
}

/// A StorageClass, a claim of this class, and a pending pod with the claim.
fn with_volume(cluster: Cluster, class: &str, claim: &str) -> Cluster {
    cluster
        .with(&format!("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: block}}\nprovisioner: x.csi\n{class}"))
        .with(&format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data, namespace: d, uid: data{claim}}}\n\
             spec: {{accessModes: [ReadWriteOnce], storageClassName: block, resources: {{requests: {{storage: 1Gi}}}}}}"
        ))
        .with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: d, uid: p, creationTimestamp: 2026-01-01T11:00:00Z}}\n\
             spec: {{volumes: [{{name: v, persistentVolumeClaim: {{claimName: data}}}}], containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}\n\
             status: {{phase: Pending, conditions: [{{type: PodScheduled, status: \"False\", reason: Unschedulable, message: \"{FULL}\"}}]}}"
        ))
}

#[test]
fn a_change_of_what_the_pods_volumes_depend_on_lets_a_machine_be_made_at_once() {
    const WAITS: &str = "volumeBindingMode: WaitForFirstConsumer";
    let other = "volumeBindingMode: WaitForFirstConsumer\nallowedTopologies: [{matchLabelExpressions: [{key: pve-autoscaler/pool, values: [w]}]}]";
    let chosen = ", annotations: {volume.kubernetes.io/selected-node: w9}";
    for (what, class, claim, held) in [
        ("nothing has changed", WAITS, "", true),
        ("the StorageClass has changed", other, "", false),
        ("the claim was created again", WAITS, "2", false),
        ("the scheduler has tried another node", WAITS, chosen, true),
    ] {
        let mut rounds = Rounds::new(of_pool("", ""));
        rounds.minutes(0..=15, &with_volume(Cluster::new().idle("w0", "w"), WAITS, ""));
        assert_eq!(rounds.missed(), 1, "{what}");
        rounds.minutes(16..=16, &with_volume(Cluster::new(), class, claim));
        assert_eq!(rounds.missed(), usize::from(held), "{what}");
    }
}

#[test]
fn no_node_goes_whose_pods_would_have_to_run_where_the_scheduler_refuses_such_pods() {
    // `w0` has room for one more pod, but kube-scheduler has refused such a pod there.
    let full = refused(FULL).pod("large", "3", "w0");
    let alike = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: q\n  namespace: d\n  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}]\n\
                 spec: {nodeName: w1, containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]}\n\
                 status: {phase: Running, conditions: [{type: Ready, status: \"True\"}]}";
    let both = full.clone().idle("w1", "w").with(alike);
    let mut rounds = Rounds::new(of_pool("", ""));
    // The pending pod gets the room on w0.
    assert!(removed(&rounds.minutes(0..=0, &both)).is_empty());
    let mut rounds = Rounds::new(of_pool("", ""));
    rounds.minutes(0..=15, &full);
    assert_eq!(rounds.missed(), 1);
    let plan = rounds.minutes(16..=16, &both);
    assert!(removed(&plan).is_empty(), "{:?}", plan.scale_down);
}

#[test]
fn a_buffer_has_no_machine_after_the_other_made_that_takes_none_of_its_chunks() {
    let chunk = "d/b (chunk 1 of a CapacityBuffer)";
    let machine = |name: &str, phase: &str| {
        format!(
            "{{name: {name}, pool: w, vmid: 9100, host: pve1, cores: 4, memory: 8Gi, phase: {phase}, node: {name}, pods: [\"{chunk}\"]}},"
        )
    };
    // The chunk needs everything that a fresh node is expected to offer, but these nodes offer less.
    let cluster = |nodes: &[&str], machines: &str| {
        let nodes = nodes.iter().fold(Cluster::new(), |all, name| all.sized(name, "w", "3", "", "True"));
        nodes
            .with(&inventory(machines))
            .with(
                "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: t, namespace: d}\n\
                 template: {spec: {containers: [{name: c, resources: {requests: {cpu: 4, memory: 1Gi}}}]}}",
            )
            .with(
                "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {name: b, namespace: d, uid: b}\n\
                 spec: {replicas: 1, podTemplateRef: {name: t}}",
            )
    };
    let mut rounds = Rounds::new(of_pool("", ""));
    let asked = |plan: &Plan| plan.scale_up.iter().map(|one| one.machines.len()).sum::<usize>();
    let first = rounds.at(0, &cluster(&[], ""));
    assert_eq!((asked(&first), &*first.scale_up[0].machines[0].pods[0]), (1, chunk));
    assert_eq!(asked(&rounds.at(60, &cluster(&[], &machine("w1", "Booting")))), 0);
    assert_eq!(asked(&rounds.at(120, &cluster(&["w1"], &machine("w1", "Ready")))), 1);
    let second = [machine("w1", "Ready"), machine("w2", "Booting")].concat();
    assert_eq!(asked(&rounds.at(180, &cluster(&["w1"], &second))), 0);
    let both = [machine("w1", "Ready"), machine("w2", "Ready")].concat();
    let plan = rounds.at(240, &cluster(&["w1", "w2"], &both));
    assert_eq!(asked(&plan), 0, "{:?}", plan.buffers);
    // Even once these nodes are gone, no machine is created within the hour.
    rounds.at(300, &cluster(&["w1", "w2"], &both));
    for minute in 6..=59 {
        assert_eq!(asked(&rounds.at(minute * 60, &cluster(&[], ""))), 0, "{minute}");
    }
    assert_eq!(asked(&rounds.at(70 * 60, &cluster(&[], ""))), 1);
}
