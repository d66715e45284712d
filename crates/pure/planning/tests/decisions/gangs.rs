//! Gangs: either machines are created for a gang's whole minimum, or none are.

use std::sync::Arc;

use jiff::SignedDuration;
use model::gang::GangReason;
use model::plan::{NodeOutcome, PodOutcome, PodVerdict};
use model::pod::Scheduling;
use model::prediction::Predictions;
use model::{Plan, Pod};
use planning::{Limits, follow, plan, plan_within};

use crate::cluster::{Cluster, inventory, node_verdict, of_pool, pod_verdict};

/// A PodGroup with a minimum of this many pods. It was created at 11:30, half an hour ago.
pub fn group(name: &str, minimum: u32) -> String {
    group_with(name, &format!("schedulingPolicy: {{gang: {{minCount: {minimum}}}}}"))
}

pub fn group_with(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\n\
         metadata: {{name: {name}, namespace: d, creationTimestamp: \"2026-01-01T11:30:00Z\"}}\nspec: {{{spec}}}"
    )
}

const SERVED: &str =
    "apiVersion: pve-autoscaler/v1\nkind: KubernetesCluster\nversion: v1.37.2\npodGroups: true";

/// A pod of a group, on a node or pending. It requests most of a node's CPU.
pub fn pod(group: &str, number: u32, node: &str, more: &str) -> String {
    let place = if node.is_empty() { String::new() } else { format!("nodeName: {node}, ") };
    let phase = if node.is_empty() { "Pending" } else { "Running" };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {group}-{number}\n  namespace: d\n  uid: {group}-{number}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
         spec: {{{place}{more}schedulingGroup: {{podGroupName: {group}}}, \
         containers: [{{name: c, resources: {{requests: {{cpu: 3, memory: 1Gi}}}}}}]}}\nstatus: {{phase: {phase}}}"
    )
}

/// An inventory with this many machines that are being created, each for one pod of the group.
fn coming(group: &str, count: u32) -> String {
    let one = |number: u32| {
        format!(
            "{{name: m{number}, pool: w, vmid: 910{number}, host: pve1, cores: 4, memory: 8Gi, phase: Cloning, \
             createdAt: 2026-01-01T11:59:00Z, pods: [d/{group}-{number}]}},"
        )
    };
    inventory(&(0..count).map(one).collect::<String>())
}

pub fn waiting(cluster: Cluster, group: &str, count: u32) -> Cluster {
    (0..count).fold(cluster, |cluster, number| cluster.with(&pod(group, number, "", "")))
}

pub fn machines(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}

pub fn verdict<'p>(plan: &'p Plan, pod: &str) -> &'p PodVerdict {
    plan.pods.iter().find(|verdict| &*verdict.pod == pod).unwrap()
}

/// Why the first pod of the gang `g` is pending.
fn why(plan: &Plan) -> (GangReason, String) {
    let verdict = verdict(plan, "d/g-0");
    assert_eq!(verdict.verdict, PodOutcome::AwaitsGang);
    (verdict.gang().unwrap().reason, verdict.why())
}

#[test]
fn machines_are_made_for_all_of_a_minimum_or_none() {
    for (pods, minimum, made, placed) in
        [(3, 3, 3, 3), (5, 3, 3, 3), (4, 4, 0, 0), (3, 1, 3, 3), (5, 4, 0, 0)]
    {
        let mut config = of_pool("", "");
        config.pools[0].max = 3;
        let plan = waiting(Cluster::new().with(&group("g", minimum)), "g", pods).plan(&config);
        assert_eq!(machines(&plan), made, "{pods} of {minimum}");
        let new = plan.pods.iter().filter(|one| one.verdict == PodOutcome::NewNode).count();
        assert_eq!(new, placed, "{pods} of {minimum}");
        let rest = if placed == 0 { PodOutcome::AwaitsGang } else { PodOutcome::PoolAtMax };
        assert!(plan.pods.iter().all(|one| one.verdict == PodOutcome::NewNode || one.verdict == rest));
    }
}

#[test]
fn what_keeps_a_gang_waiting_is_said_of_each_of_its_pods() {
    let mut config = of_pool("", "");
    config.pools[0].max = 3;
    let plan = waiting(Cluster::new().with(&group("g", 5)), "g", 5).idle("w0", "w").plan(&config);
    assert_eq!(
        why(&plan),
        (
            GangReason::NoRoom,
            "its gang needs 5 pods to run at the same time, but only 3 would fit (w: at its maximum of 3)"
                .to_owned()
        )
    );
    assert!(
        plan.pods
            .iter()
            .all(|one| one.gang() == plan.pods[0].gang() && one.reasons() == plan.pods[0].reasons())
    );
    assert_eq!(plan.pods[0].gang().unwrap().group, "d/g");
    let huge = waiting(Cluster::new().with(&group("g", 2)), "g", 1).with(&pod(
        "g",
        7,
        "",
        "nodeSelector: {no: t}, ",
    ));
    let plan = huge.plan(&of_pool("", ""));
    assert_eq!((machines(&plan), why(&plan).0), (0, GangReason::NoRoom));
    assert!(
        why(&plan).1.starts_with("its gang needs 2 pods to run at the same time, but only 1 would fit (w: "),
        "{}",
        why(&plan).1
    );
}

#[test]
fn members_that_run_or_fit_what_is_there_count() {
    let mut config = of_pool("", "");
    config.pools[0].max = 3;
    let base = || Cluster::new().with(&group("g", 3)).idle("w0", "w");
    // One pod fits the existing node.
    let plan = waiting(base(), "g", 3).plan(&config);
    assert_eq!((machines(&plan), pod_verdict(&plan, "d/g-0")), (2, PodOutcome::ExistingNode));
    // One pod runs on the existing node.
    let runs = |count| waiting(base().with(&pod("g", 9, "w0", "")), "g", count);
    assert_eq!(machines(&runs(2).plan(&config)), 2);
    assert_eq!(why(&runs(1).plan(&config)).0, GangReason::TooFewPods);
    // One pod has finished, so kube-scheduler no longer counts it.
    let over = pod("g", 9, "w0", "").replace("phase: Running", "phase: Succeeded");
    let plan = waiting(base().with(&over), "g", 2).plan(&config);
    assert_eq!(why(&plan).0, GangReason::TooFewPods);
    // Enough pods run to reach the minimum, so the others are placed like any pod.
    config.pools[0].max = 2;
    let full = base().idle("w1", "w").with(&pod("g", 8, "w0", "")).with(&pod("g", 9, "w1", ""));
    let plan = waiting(full.clone(), "g", 1).plan(&config);
    assert_eq!(why(&plan).0, GangReason::NoRoom);
    let enough = full.with(&group("h", 2)).with(&pod("h", 0, "", ""));
    let plan = enough.with(&pod("h", 8, "w0", "")).with(&pod("h", 9, "w1", "")).plan(&config);
    assert_eq!(pod_verdict(&plan, "d/h-0"), PodOutcome::PoolAtMax);
}

#[test]
fn a_gang_waits_until_its_group_and_its_pods_are_there() {
    let config = of_pool("", "");
    let plan = waiting(Cluster::new().with(&group("g", 3)), "g", 2).plan(&config);
    assert_eq!(
        why(&plan),
        (
            GangReason::TooFewPods,
            "its gang needs 3 pods, and kube-scheduler waits until they all exist; 2 exist now".to_owned()
        )
    );
    assert_eq!(machines(&plan), 0);
    let gated = pod("g", 5, "", "schedulingGates: [{name: held}], ");
    let plan = waiting(Cluster::new().with(&group("g", 3)).with(&gated), "g", 2).plan(&config);
    assert!(
        why(&plan).1.ends_with("2 exist now; 1 of its pods cannot be placed (Gated)"),
        "{}",
        why(&plan).1
    );
    assert_eq!(pod_verdict(&plan, "d/g-5"), PodOutcome::Gated);
    let none = waiting(Cluster::new(), "g", 1);
    let plan = none.clone().with(SERVED).plan(&config);
    assert_eq!(
        why(&plan),
        (GangReason::NoPodGroup, "kube-scheduler is waiting for the pod's PodGroup `d/g`".to_owned())
    );
    // In a cluster without PodGroups, the pod's reference to a group has no effect.
    assert_eq!(pod_verdict(&none.plan(&config), "d/g-0"), PodOutcome::NewNode);
    let basic = group_with("g", "schedulingPolicy: {basic: {}}");
    assert_eq!(
        pod_verdict(&waiting(Cluster::new().with(&basic), "g", 1).plan(&config), "d/g-0"),
        PodOutcome::NewNode
    );
}

#[test]
fn of_two_gangs_that_take_each_others_room_one_is_whole() {
    let mut config = of_pool("", "");
    config.pools[0].max = 5;
    let two = Cluster::new().with(&group("g", 3)).with(&group("a", 3).replace("11:30", "11:40"));
    let two = waiting(waiting(two, "a", 3), "g", 3);
    let plan = two.plan(&config);
    assert_eq!(machines(&plan), 3);
    assert_eq!(
        (pod_verdict(&plan, "d/g-2"), pod_verdict(&plan, "d/a-0")),
        (PodOutcome::NewNode, PodOutcome::AwaitsGang)
    );
    // Each gang takes a part of each node's room. If all pods were placed together, both gangs would be
    // incomplete.
    let small =
        |group: &str, number, cpu| pod(group, number, "", "").replace("cpu: 3,", &format!("cpu: {cpu},"));
    config.pools[0].max = 2;
    let mixed = [("g", 0, "3"), ("a", 0, "3"), ("g", 1, "2"), ("a", 1, "2"), ("b", 0, "1"), ("b", 1, "1")];
    let base = Cluster::new().with(&group("g", 2)).with(&group("a", 2)).with(&group("b", 2));
    let plan = mixed
        .iter()
        .fold(base, |all, (name, number, cpu)| all.with(&small(name, *number, cpu)))
        .plan(&config);
    let whole: Vec<&str> = ["a", "b", "g"]
        .into_iter()
        .filter(|name| pod_verdict(&plan, &format!("d/{name}-0")) == PodOutcome::NewNode)
        .collect();
    assert_eq!((machines(&plan), whole), (2, vec!["a", "b"]));
    // Another pod gets the room that the gang cannot use.
    config.pools[0].max = 2;
    let beside = waiting(Cluster::new().with(&group("g", 3)), "g", 3).pod("p", "3", "");
    let plan = beside.plan(&config);
    assert_eq!(
        (machines(&plan), pod_verdict(&plan, "d/p"), why(&plan).0),
        (1, PodOutcome::NewNode, GangReason::NoRoom)
    );
}

#[test]
fn gangs_that_are_alike_wait_for_the_same() {
    let mut config = of_pool("", "");
    config.pools[0].max = 4;
    let names: Vec<String> = (0..8).map(|number| format!("g{number}")).collect();
    let all = names.iter().fold(Cluster::new(), |all, name| waiting(all.with(&group(name, 3)), name, 3));
    let plan = all.plan(&config);
    assert_eq!((machines(&plan), pod_verdict(&plan, "d/g0-2")), (3, PodOutcome::NewNode));
    for name in &names[1..] {
        let shown = verdict(&plan, &format!("d/{name}-1"));
        assert_eq!(
            shown.why(),
            "its gang needs 3 pods to run at the same time, but only 1 would fit (w: at its maximum of 4)"
        );
        assert_eq!(shown.gang().unwrap().group, format!("d/{name}"));
    }
}

#[test]
fn the_more_important_gang_comes_first() {
    let mut config = of_pool("", "");
    config.pools[0].max = 3;
    let spec = "schedulingPolicy: {gang: {minCount: 2}}, priority: 10";
    let late = group_with("z", spec).replace("11:30", "11:50");
    let base = Cluster::new().with(&group("g", 2)).with(&late);
    let all = waiting(base, "g", 2).with(&pod("z", 0, "", "priority: 10, ")).with(&pod(
        "z",
        1,
        "",
        "priority: 10, ",
    ));
    let plan = all.plan(&config);
    assert_eq!((pod_verdict(&plan, "d/z-0"), why(&plan).0), (PodOutcome::NewNode, GangReason::NoRoom));
}

#[test]
fn what_is_not_planned_for_or_never_placed_makes_no_machine() {
    let gang = "schedulingPolicy: {gang: {minCount: 1}}";
    let cases = [
        (
            "schedulingConstraints: {topology: [{key: rack}]}",
            "",
            GangReason::NotSupported,
            "the label `rack`",
        ),
        ("parentCompositePodGroupName: p", "", GangReason::NotSupported, "part of CompositePodGroup `p`"),
        ("resourceClaims: [{name: c, resourceClaimName: x}]", "", GangReason::NotSupported, "ResourceClaims"),
        ("priority: 5", "", GangReason::Mismatch, "pod `g-0` has priority 0, but its PodGroup has 5"),
    ];
    for (spec, more, reason, words) in cases {
        let cluster =
            Cluster::new().with(&group_with("g", &format!("{gang}, {spec}"))).with(&pod("g", 0, "", more));
        let plan = cluster.plan(&of_pool("", ""));
        assert_eq!((machines(&plan), why(&plan).0), (0, reason), "{spec}");
        assert!(why(&plan).1.contains(words), "{}", why(&plan).1);
    }
    let two = Cluster::new().with(&group("g", 1)).with(&pod("g", 0, "", "")).with(&pod(
        "g",
        1,
        "",
        "schedulerName: s, ",
    ));
    assert_eq!(why(&two.plan(&of_pool("", ""))).0, GangReason::Mismatch);
}

#[test]
fn machines_on_their_way_count_and_nothing_is_made_twice() {
    let mut config = of_pool("", "");
    config.pools[0].max = 3;
    let waits = || waiting(Cluster::new().with(&group("g", 3)), "g", 3);
    let plan = waits().with(&coming("g", 3)).plan(&config);
    assert_eq!(machines(&plan), 0);
    assert!(plan.pods.iter().all(|one| one.verdict == PodOutcome::UpcomingNode), "{:?}", plan.pods);
    assert_eq!(machines(&waits().with(&coming("g", 2)).plan(&config)), 1);
    config.pools[0].max = 2;
    let plan = waits().with(&coming("g", 2)).plan(&config);
    assert_eq!((machines(&plan), why(&plan).0), (0, GangReason::NoRoom));
}

#[test]
fn machines_on_their_way_stay_a_gangs_beside_an_older_one_that_is_too_large() {
    let mut config = of_pool("", "");
    config.pools[0].max = 3;
    let groups = Cluster::new().with(&group("g", 5)).with(&group("a", 3).replace("11:30", "11:40"));
    let all = waiting(waiting(groups.with(&coming("a", 3)), "g", 5), "a", 3).pod("p", "4", "");
    let plan = all.plan(&config);
    assert_eq!(
        (machines(&plan), pod_verdict(&plan, "d/p"), why(&plan).0),
        (0, PodOutcome::PoolAtMax, GangReason::NoRoom)
    );
    assert!((0..3).all(|number| pod_verdict(&plan, &format!("d/a-{number}")) == PodOutcome::UpcomingNode));
}

#[test]
fn a_node_that_waits_for_the_rest_of_a_gang_stays() {
    let waits = waiting(Cluster::new().with(&group("g", 3)), "g", 3).idle("w0", "w");
    let mut config = of_pool("", "");
    let plan = waits.plan(&config);
    assert_ne!(node_verdict(&plan, "w0"), NodeOutcome::Remove);
    // There is no room for the rest of the gang, so the node does not need to stay for it.
    config.pools[0].max = 2;
    assert_eq!(node_verdict(&waits.plan(&config), "w0"), NodeOutcome::Remove);
}

#[test]
fn a_node_goes_only_if_the_pods_of_its_gang_fit_elsewhere() {
    let mut config = of_pool("", "[scale_down]\nutilization_threshold = 0.9");
    config.pools[0].max = 3;
    let small = |number, node: &str| pod("g", number, node, "").replace("cpu: 3,", "cpu: 1,");
    let runs = |third: &str| {
        let all = Cluster::new().with(&group("g", 2)).idle("w0", "w").idle("w1", "w");
        all.with(&small(0, "w0")).with(&small(1, "w1")).pod("busy", third, "w1")
    };
    let plan = runs("1").plan(&config);
    assert_eq!(node_verdict(&plan, "w0"), NodeOutcome::Remove);
    let plan = runs("2500m").plan(&config);
    assert_eq!(node_verdict(&plan, "w0"), NodeOutcome::NoPlaceToMovePods);
}

#[test]
fn a_round_that_cannot_look_at_all_of_a_gang_leaves_it_to_a_later_one() {
    let gang = waiting(Cluster::new().with(&group("g", 3)), "g", 3);
    let mut config = of_pool("", "");
    config.pools[0].max = 2;
    let snapshot = gang.snapshot();
    for growth in 0..2000 {
        let plan = plan_within(&snapshot, &config, Limits { growth, ..Limits::default() });
        assert_eq!(machines(&plan), 0, "{growth}");
        let known = [PodOutcome::Unfinished, PodOutcome::AwaitsGang];
        assert!(plan.pods.iter().all(|one| known.contains(&one.verdict)), "{growth}: {:?}", plan.pods);
    }
    config.pools[0].max = 3;
    for growth in 0..2000 {
        let plan = plan_within(&snapshot, &config, Limits { growth, ..Limits::default() });
        assert!([0, 3].contains(&machines(&plan)), "{growth}: {}", machines(&plan));
    }
}

#[test]
fn no_prediction_is_missed_while_a_gang_waits_for_its_last_machine() {
    let config = of_pool("", "");
    let waits = waiting(Cluster::new().with(&group("g", 2)).idle("w0", "w"), "g", 2).snapshot();
    let mut predictions = Predictions::default();
    for minute in 0..30 {
        let mut snapshot = waits.clone();
        snapshot.time = snapshot.time.saturating_add(SignedDuration::from_mins(minute)).unwrap();
        (snapshot.memory.last_round, snapshot.memory.predictions) = (Some(snapshot.time), predictions);
        for pod in &mut snapshot.pods {
            // kube-scheduler refuses the pod again every three minutes.
            let refusal = format!("words {}", minute / 3);
            let refused = Pod { scheduling: Scheduling::Unschedulable(None), refusal, ..Pod::clone(pod) };
            *pod = Arc::new(refused);
        }
        let decided = plan(&snapshot, &config);
        let verdicts = (pod_verdict(&decided, "d/g-0"), pod_verdict(&decided, "d/g-1"));
        assert_eq!(verdicts, (PodOutcome::ExistingNode, PodOutcome::NewNode));
        predictions = follow(&snapshot, &decided, &config);
        assert!(predictions.missed.is_empty() && predictions.awaited.is_empty(), "{predictions:?}");
    }
}
