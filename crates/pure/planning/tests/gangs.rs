//! Properties of gangs in small random worlds: a gang gets room for its minimum or no room at all, and no
//! machine is created without a pod.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results, and prints what it skips")]

mod worlds;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::gang::PodGroup;
use model::machine::{Machine, Phase};
use model::node::Node;
use model::plan::PodOutcome;
use model::pod::{Pod, PodAffinityTerm, PodPhase, Scheduling};
use model::selector::{LabelSelector, Labels, Operator, Requirement};
use model::snapshot::POOL_LABEL;
use model::{Plan, Snapshot, Vmid};
use planning::{Limits, plan, plan_within};
use proptest::prelude::*;
use settings::{self, Config, Needs};

use crate::worlds::{NOW, cases, replica_set, resources};

const OFFERED: i64 = 4000;

/// A configuration with a pool `w` of at most `max` machines.
fn config(max: u32) -> Config {
    let text = format!(
        "[scale_down]\nenabled = false\n[[pool]]\nname = \"w\"\nmax = {max}\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = {{ cpu = \"{OFFERED}m\", memory = \"8Gi\", pods = 10 }}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

fn node(name: String) -> Arc<Node> {
    let labels =
        [(POOL_LABEL.to_owned(), "w".to_owned()), ("kubernetes.io/hostname".to_owned(), name.clone())];
    let labels = Labels::from(labels);
    Arc::new(Node { labels, name, allocatable: resources(OFFERED, 8192, 10), ..Node::default() })
}

/// Anti-affinity that keeps a pod away from nodes with pods of the given app.
fn apart(app: u8) -> PodAffinityTerm {
    let values = vec![app.to_string()];
    let requirements = vec![Requirement { key: "app".to_owned(), operator: Operator::In, values }];
    PodAffinityTerm {
        selector: Some(LabelSelector { requirements }),
        namespaces: Vec::new(),
        namespace_selector: None,
        topology_key: "kubernetes.io/hostname".to_owned(),
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

/// Up to four gangs, some of whose pods already run, and pods without a gang. `repelling` is the percentage
/// of pending pods that have anti-affinity.
fn world(repelling: f64) -> impl Strategy<Value = Snapshot> {
    let pod = (0_u8..6, 0_u8..2, 1_i64..4500, 1_i64..6000, prop::bool::weighted(repelling / 100.0));
    let waiting = prop::collection::vec(pod, 1..18);
    let running = prop::collection::vec((0_usize..3, 0_u8..6, 1_i64..1500), 0..6);
    let minima = prop::collection::vec(1_i64..6, 4);
    (waiting, running, minima, 0_usize..4).prop_map(|(waiting, running, minima, nodes)| {
        let group = |gang: u8| (gang < 4).then(|| format!("g{gang}"));
        let mut pods: Vec<Arc<Pod>> = Vec::new();
        for (at, gang, cpu) in running.into_iter().filter(|one| one.0 < nodes) {
            let mut bound = worlds::pod(pods.len(), cpu, 1, Some(format!("n{at}")));
            bound.scheduling_group = group(gang);
            pods.push(Arc::new(bound));
        }
        for (gang, app, cpu, memory, alone) in waiting {
            let mut pod = worlds::pod(pods.len(), cpu, memory, None);
            pod.scheduling_group = group(gang);
            pod.labels.insert("app".to_owned(), app.to_string());
            pod.affinity.anti.extend(alone.then(|| apart(app)));
            pod.scheduling = Scheduling::Unschedulable(None);
            pods.push(Arc::new(pod));
        }
        let groups = (0..4).zip(minima).map(|(gang, minimum)| {
            let (namespace, name) = ("d".to_owned(), format!("g{gang}"));
            Arc::new(PodGroup { namespace, name, minimum: Some(minimum), ..PodGroup::default() })
        });
        Snapshot {
            time: NOW.parse().unwrap(),
            nodes: (0..nodes).map(|number| node(format!("n{number}"))).collect(),
            pods,
            pod_groups: Some(groups.collect()),
            controllers: vec![replica_set()],
            ..Snapshot::default()
        }
    })
}

fn is_placed(outcome: PodOutcome) -> bool {
    matches!(outcome, PodOutcome::NewNode | PodOutcome::ExistingNode | PodOutcome::UpcomingNode)
}

/// Returns, for each gang, the number of its pods that run or were placed by the plan, and the number that
/// the plan placed.
fn placed(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<String, (i64, i64)> {
    let verdicts: BTreeMap<&str, PodOutcome> = plan.pods.iter().map(|one| (&*one.pod, one.verdict)).collect();
    let mut all: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for pod in &snapshot.pods {
        let Some(group) = &pod.scheduling_group else { continue };
        let count = all.entry(group.clone()).or_default();
        let new = verdicts.get(&*pod.id()).copied().is_some_and(is_placed);
        count.0 += i64::from(pod.node.is_some() || new);
        count.1 += i64::from(new);
    }
    all
}

fn minimum(snapshot: &Snapshot, gang: &str) -> i64 {
    let groups = snapshot.pod_groups.iter().flatten();
    groups.filter(|group| group.name == gang).find_map(|group| group.minimum).unwrap()
}

/// The machines that the plan creates, in the state that they have while they are being created.
fn coming(first: &Plan) -> Vec<Machine> {
    let made = first.scale_up.iter().flat_map(|pool| &pool.machines);
    let machine = |(number, made): (u32, &model::plan::NewMachine)| Machine {
        name: format!("m{number}"),
        pool: "w".into(),
        vmid: Vmid(9000 + number),
        host: "pve".into(),
        cores: 4,
        memory: 8 << 30,
        phase: Phase::Cloning,
        requested: Some(NOW.parse().unwrap()),
        pods: made.pods.iter().map(ToString::to_string).collect(),
        ..Machine::default()
    };
    (0..).zip(made).map(machine).collect()
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn a_gang_has_its_minimum_or_nothing(snapshot in world(10.0), max in 0_u32..9) {
        let plan = plan(&snapshot, &config(max));
        for (gang, (all, new)) in placed(&snapshot, &plan) {
            let minimum = minimum(&snapshot, &gang);
            prop_assert!(new == 0 || all >= minimum, "{gang}: {all} pods have a place ({new} in this plan), but the minimum is {minimum}");
        }
        for machine in plan.scale_up.iter().flat_map(|pool| &pool.machines) {
            prop_assert!(!machine.pods.is_empty(), "a machine without a pod");
        }
        for verdict in &plan.pods {
            prop_assert_eq!(verdict.gang().is_some(), verdict.verdict == PodOutcome::AwaitsGang);
        }
    }

    #[test]
    fn a_gang_has_its_minimum_or_nothing_however_little_was_looked_at(
        snapshot in world(10.0), max in 0_u32..9, growth in 0_u64..20_000,
    ) {
        let plan = plan_within(&snapshot, &config(max), Limits { growth, ..Limits::default() });
        for (gang, (all, new)) in placed(&snapshot, &plan) {
            let minimum = minimum(&snapshot, &gang);
            prop_assert!(new == 0 || all >= minimum, "{gang}: {all} pods have a place ({new} in this plan), but the minimum is {minimum}");
        }
        let made = || plan.scale_up.iter().flat_map(|pool| &pool.machines);
        prop_assert!(made().all(|machine| !machine.pods.is_empty()));
        let new = plan.pods.iter().filter(|one| one.verdict == PodOutcome::NewNode).count();
        prop_assert_eq!(made().map(|machine| machine.pods.len()).sum::<usize>(), new, "a pod is placed on a machine that is not created");
    }

    // No pod in this test has anti-affinity, because the second plan may place pods with anti-affinity on
    // different nodes than the first plan did.
    #[test]
    fn with_its_machines_on_their_way_a_plan_makes_no_more(snapshot in world(0.0), max in 0_u32..9) {
        let config = config(max);
        let first = plan(&snapshot, &config);
        let mut after = snapshot.clone();
        Arc::make_mut(&mut after.proxmox).machines = Some(coming(&first));
        let second = plan(&after, &config);
        // A gang that found no room in the first plan may find room in the second plan, which may arrange the
        // pods on the same machines differently.
        if first.pods.iter().all(|pod| pod.verdict != PodOutcome::AwaitsGang) {
            prop_assert!(second.scale_up.is_empty(), "{:?} after {:?}", second.scale_up, first.scale_up);
        }
        // Pods that find no room in the first plan may get the room that the first plan intended for other
        // pods.
        if first.pods.iter().all(|pod| is_placed(pod.verdict)) {
            prop_assert!(second.pods.iter().all(|pod| is_placed(pod.verdict)), "{:?}", second.pods);
        }
    }

    #[test]
    fn a_world_in_which_the_plan_was_carried_out_grows_no_further(snapshot in world(10.0), max in 0_u32..9) {
        let config = config(max);
        let first = plan(&snapshot, &config);
        let mut after = snapshot.clone();
        let mut place: BTreeMap<String, String> = BTreeMap::new();
        for (number, machine) in first.scale_up.iter().flat_map(|pool| &pool.machines).enumerate() {
            after.nodes.push(node(format!("new{number}")));
            place.extend(machine.pods.iter().map(|pod| (pod.to_string(), format!("new{number}"))));
        }
        place.extend(first.pods.iter().filter_map(|pod| Some((pod.pod.to_string(), pod.node()?.to_string()))));
        for pod in &mut after.pods {
            if let Some(node) = place.get(&pod.id()) {
                *pod = Arc::new(Pod { node: Some(node.clone()), phase: PodPhase::Running, ..Pod::clone(pod) });
            }
        }
        let second = plan(&after, &config);
        prop_assert!(second.scale_up.is_empty(), "{:?} after {:?}", second.scale_up, first.scale_up);
    }

    #[test]
    fn the_order_of_arrival_changes_nothing(snapshot in world(10.0), max in 0_u32..9) {
        let mut reversed = snapshot.clone();
        reversed.pods.reverse();
        reversed.nodes.reverse();
        reversed.pod_groups.as_mut().unwrap().reverse();
        prop_assert_eq!(plan(&snapshot, &config(max)), plan(&reversed, &config(max)));
    }

    #[test]
    fn room_without_end_serves_every_gang_that_is_complete(snapshot in world(10.0)) {
        let plan = plan(&snapshot, &config(60));
        for verdict in plan.pods.iter().filter(|one| one.verdict == PodOutcome::AwaitsGang) {
            let gang = verdict.gang().unwrap();
            let name = gang.group.strip_prefix("d/").unwrap();
            let own = || snapshot.pods.iter().filter(|pod| pod.scheduling_group.as_deref() == Some(name));
            let possible = own().filter(|pod| pod.node.is_some() || pod.requests.cpu_milli <= OFFERED).count();
            let possible = i64::try_from(possible).unwrap();
            prop_assert!(possible < minimum(&snapshot, name), "{:?}: {} could be placed", gang, possible);
        }
    }
}
