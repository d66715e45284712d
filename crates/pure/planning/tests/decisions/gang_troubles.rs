//! Gangs that kube-scheduler refuses, that wait for something other than room, or that a round had no time
//! for.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use model::gang::GangReason;
use model::plan::PodOutcome;
use model::pod::Scheduling;
use model::prediction::{MadeFor, Missed, Predictions, kind};
use model::workload::Backoff;
use model::{Plan, Pod, Snapshot};
use planning::{Limits, follow, plan, plan_within};
use settings::Config;

use crate::cluster::{Cluster, of_pool, pod_verdict};
use crate::gangs::{group, group_with, machines, pod, verdict, waiting};

const NOON: &str = "2026-01-01T12:00:00Z";

fn at(minutes: i64) -> Timestamp {
    NOON.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
}

/// Records in the memory that a prediction for pods like the first pending one was missed two hours ago. Its
/// back-off ends `until` minutes from now.
fn missed(snapshot: &mut Snapshot, until: i64) {
    let sample = snapshot.pods.iter().find(|pod| pod.node.is_none()).unwrap();
    let backoff = Backoff { until: at(until), reason: String::new(), seconds: 600 };
    let (kind, pool) = (kind(sample), Some("w".to_owned()));
    let one = Missed {
        kind,
        pod: sample.id(),
        pool: pool.map(Into::into),
        node: "w9".to_owned(),
        at: at(-120),
        backoff,
        ..Missed::default()
    };
    snapshot.memory.predictions.missed.push(one);
}

#[test]
fn after_a_missed_prediction_a_gang_gets_machines_for_all_of_it_or_none() {
    let config = of_pool("", "");
    let mut snapshot = waiting(Cluster::new().with(&group("g", 4)), "g", 4).snapshot();
    missed(&mut snapshot, -60);
    assert_eq!(machines(&plan(&snapshot, &config)), 4);
    // A node that is newer than the missed prediction takes one of the pods.
    let mut idle = waiting(Cluster::new().with(&group("g", 4)).idle("w0", "w"), "g", 4);
    idle = idle.replace("name: w0\n", "name: w0\n  creationTimestamp: 2026-01-01T11:00:00Z\n");
    let mut idle = idle.snapshot();
    missed(&mut idle, -60);
    assert_eq!(machines(&plan(&idle, &config)), 3);
    // The back-off is not over yet.
    let mut soon = waiting(Cluster::new().with(&group("g", 4)), "g", 4).snapshot();
    missed(&mut soon, 5);
    let decided = plan(&soon, &config);
    assert_eq!((machines(&decided), pod_verdict(&decided, "d/g-0")), (0, PodOutcome::AwaitsGang));
    // Two machines were created, but received none of the pods.
    let kinds = vec![snapshot.memory.predictions.missed[0].kind.clone()];
    for number in 0..2 {
        let (machine, pool, kinds) = (format!("m{number}"), "w".to_owned(), kinds.clone());
        snapshot.memory.predictions.made.push(MadeFor {
            machine,
            pool: pool.into(),
            kinds,
            at: at(-30),
            in_vain: true,
        });
        let decided = plan(&snapshot, &config);
        assert_eq!(machines(&decided), if number == 0 { 4 } else { 0 }, "{:?}", decided.pods);
    }
}

/// Returns the memory after half an hour in which kube-scheduler refused all pending pods, except for the
/// pods whose names begin with `unlooked`. It did not look at those.
fn refused(cluster: &Cluster, unlooked: &str, config: &Config) -> Predictions {
    let mut predictions = Predictions::default();
    for minute in 0..30 {
        let mut snapshot = cluster.snapshot();
        snapshot.time = at(minute);
        (snapshot.memory.last_round, snapshot.memory.predictions) = (Some(snapshot.time), predictions);
        for pod in snapshot.pods.iter_mut().filter(|pod| pod.node.is_none()) {
            let looked = !pod.name.starts_with(unlooked);
            let scheduling = if looked { Scheduling::Unschedulable(None) } else { Scheduling::Unprocessed };
            *pod = Arc::new(Pod { scheduling, refusal: "words".to_owned(), ..Pod::clone(pod) });
        }
        let decided = plan(&snapshot, config);
        predictions = follow(&snapshot, &decided, config);
        if !predictions.missed.is_empty() {
            break;
        }
    }
    predictions
}

#[test]
fn a_prediction_for_a_group_that_needs_no_more_pods_is_missed_like_any_other() {
    let mut config = of_pool("", "");
    config.pools[0].max = 1;
    let basic = group_with("g", "schedulingPolicy: {basic: {}}");
    let bound = Cluster::new().with(&group("g", 2)).idle("w1", "w").idle("w2", "w");
    let bound = bound.with(&pod("g", 8, "w1", "")).with(&pod("g", 9, "w2", ""));
    for cluster in [Cluster::new().with(&basic), Cluster::new().with(&group("g", 1)), bound] {
        // One of the two pods fits nowhere.
        let cluster = waiting(cluster.idle("w0", "w"), "g", 2);
        let missed = refused(&cluster, "none", &config).missed;
        assert_eq!(missed.len(), 1);
        assert_eq!(missed[0].node, "w0");
    }
}

#[test]
fn the_scheduler_is_behind_with_pods_of_a_gang_that_it_could_look_at() {
    let config = of_pool("", "");
    let cluster = Cluster::new().idle("w0", "w").idle("w1", "w").idle("w2", "w").pod("p", "1", "");
    // The scheduler has not looked at the pods of a complete gang, so it may not have looked at `p` again
    // either.
    let complete = waiting(cluster.clone().with(&group("g", 2)), "g", 2);
    assert!(refused(&complete, "g-", &config).missed.is_empty());
    // The scheduler does not look at pods of an incomplete gang.
    let incomplete = waiting(cluster.with(&group("g", 3)), "g", 2);
    assert_eq!(refused(&incomplete, "g-", &config).missed.len(), 1);
}

#[test]
fn a_round_that_leaves_gangs_to_a_later_one_places_no_pod_on_their_machines() {
    let mut config = of_pool("", "");
    config.pools[0].max = 60;
    // One pod of the first gang fits nowhere. Checking the others is slow: each needs a separate host.
    let alone = |number: u32| {
        let affinity = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
             [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: g}}}]}}, ";
        let labels = format!("  labels: {{app: g, number: n{number}}}\n  uid:");
        pod("g", number, "", affinity).replace("  uid:", &labels)
    };
    let mut cluster =
        (0..8).fold(Cluster::new().with(&group("g", 9)), |all, number| all.with(&alone(number)));
    cluster = cluster.with(&pod("g", 8, "", "nodeSelector: {no: t}, "));
    cluster = (0..20).fold(cluster, |all, number| all.sized(&format!("w{number}"), "w", "500m", "", "True"));
    // The other gangs fit partly beside the pods of the first gang, and partly on their own machines.
    for name in ["a", "b"] {
        let own = |number, cpu: &str| pod(name, number, "", "").replace("cpu: 3,", &format!("cpu: {cpu},"));
        cluster =
            cluster.with(&group(name, 2).replace("11:30", "11:40")).with(&own(0, "1")).with(&own(1, "4"));
    }
    let snapshot = cluster.snapshot();
    for growth in (0..20_000).step_by(13) {
        let plan = plan_within(&snapshot, &config, Limits { growth, ..Limits::default() });
        is_made_of_its_pods(&plan, growth);
    }
}

/// Checks that the new machines list exactly as many pods as the plan places on new nodes.
fn is_made_of_its_pods(plan: &Plan, growth: u64) {
    let made = plan.scale_up.iter().flat_map(|pool| &pool.machines);
    let on: usize = made.map(|machine| machine.pods.len()).sum();
    let new = plan.pods.iter().filter(|one| one.verdict == PodOutcome::NewNode).count();
    assert_eq!(on, new, "{growth}");
}

#[test]
fn pods_of_a_group_that_disagree_about_preemption_make_no_machine() {
    let never = "preemptionPolicy: Never, ";
    let two = |spec: &str, second: &str| {
        let spec = format!("schedulingPolicy: {{gang: {{minCount: 2}}}}{spec}");
        let group = Cluster::new().with(&group_with("g", &spec)).with(&pod("g", 0, "", never));
        group.with(&pod("g", 1, "", second)).plan(&of_pool("", ""))
    };
    for (spec, second, words) in [
        ("", "", Some("pods `g-0` and `g-1` have different preemptionPolicies")),
        ("", never, None),
        (", preemptionPolicy: Never", never, None),
        (
            ", preemptionPolicy: PreemptLowerPriority",
            never,
            Some("pod `g-0` has a different preemptionPolicy from its PodGroup"),
        ),
    ] {
        let plan = two(spec, second);
        assert_eq!(machines(&plan), if words.is_some() { 0 } else { 2 }, "{spec}");
        let shown = verdict(&plan, "d/g-0");
        assert_eq!(shown.gang().map(|gang| gang.reason), words.map(|_| GangReason::Mismatch));
        assert!(shown.why().ends_with(words.unwrap_or_default()), "{}", shown.why());
    }
}

#[test]
fn gangs_whose_volumes_are_in_other_places_are_not_alike() {
    let mut config = of_pool("", "");
    config.pools[0].max = 1;
    // The volumes of the first gang are in a zone that no pool has.
    let claims = |group: &str, zone: &str, number: u32| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data-{group}-{number}, namespace: d, annotations: {{pv.kubernetes.io/bind-completed: \"yes\"}}}}\n\
             spec: {{volumeName: v-{group}-{number}, accessModes: [ReadWriteOnce]}}\nstatus: {{phase: Bound}}\n---\n\
             apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: v-{group}-{number}}}\nspec:\n  \
             accessModes: [ReadWriteOnce]\n  claimRef: {{name: data-{group}-{number}, namespace: d}}\n  \
             nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: zone, operator: {zone}}}]}}]}}}}"
        )
    };
    let own = |group: &str, number| {
        let claim = format!(
            "volumes: [{{name: data, persistentVolumeClaim: {{claimName: data-{group}-{number}}}}}], "
        );
        pod(group, number, "", &claim).replace("cpu: 3,", "cpu: 1,")
    };
    let mut cluster = Cluster::new().with(&group("a", 2)).with(&group("g", 2).replace("11:30", "11:40"));
    for (name, zone) in [("a", "Exists"), ("g", "DoesNotExist")] {
        for number in 0..2 {
            cluster = cluster.with(&own(name, number)).with(&claims(name, zone, number));
        }
    }
    // If all pods are placed together, gang `z` takes the room but stays incomplete. The gangs are then tried
    // one by one.
    let large = waiting(cluster.with(&group("z", 2).replace("11:30", "11:20")), "z", 2);
    let plan = large.plan(&config);
    let shown = ["d/a-0", "d/g-0", "d/z-0"].map(|pod| pod_verdict(&plan, pod));
    assert_eq!(
        shown,
        [PodOutcome::AwaitsGang, PodOutcome::NewNode, PodOutcome::AwaitsGang],
        "{:?}",
        plan.pods
    );
}
