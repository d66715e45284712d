//! Measures the CPU time that the planner's thread needs for decisions about ordinary clusters. Decisions
//! about these clusters were slow in the past.
//!
//! `cargo bench --bench worlds` prints a table. Except for adversarial worlds, each world's result is checked
//! before its time is printed. With `-- adversarial TEXT`, only the worlds of [`adversarial`] whose names
//! contain the text are measured; with `-- devices`, only those of [`devices`]; with `-- steady`, only
//! consecutive rounds.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may panic on unexpected results"
)]

#[path = "worlds/adversarial.rs"]
mod adversarial;
#[path = "worlds/clusters.rs"]
mod clusters;
#[path = "worlds/devices.rs"]
mod devices;
#[path = "worlds/inventory.rs"]
mod inventory;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clusters::{CLUSTER, Cluster, Manner};
use devices::World;

use pve_autoscaler::model::node::Node;
use pve_autoscaler::model::plan::PodOutcome;
use pve_autoscaler::model::pod::{Owner, Pod, PodPhase, Scheduling, Volume, VolumeSource};
use pve_autoscaler::model::pod_spec::PodSpec;
use pve_autoscaler::model::selector::{LabelSelector, Operator, Requirement};
use pve_autoscaler::model::snapshot::{POOL_LABEL, UNNEEDED_SINCE};
use pve_autoscaler::model::workload::{
    Controller, CsiNode, PersistentVolume, StorageClass, VolumeAttachment, VolumeClaim,
};
use pve_autoscaler::model::{Plan, Resources, Snapshot};
use pve_autoscaler::planning::{Carried, Stop, plan, plan_unless};
use pve_autoscaler::snapshot;

const DRIVER: &str = "csi.example.org";

/// The CPU time of this thread, in milliseconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e6
}

fn milliseconds(work: impl FnOnce() -> Plan) -> (f64, Plan) {
    let before = cpu();
    let plan = work();
    (cpu() - before, plan)
}

/// The CPU time of a decision: the median of an odd number of runs, the first of which begins without cached
/// results. With `-- write DIRECTORY`, there is only one run, and the world is written to the directory.
fn measure(name: &str, snapshot: &Snapshot, settings: &str) -> (f64, Plan) {
    let config = &clusters::parsed(settings);
    let (first, answer) = milliseconds(|| plan(snapshot, config));
    if let Some(directory) = written_to() {
        write_world(&directory, name, snapshot, settings);
        return (first, answer);
    }
    let runs = if first > 1000.0 { 2 } else { 6 };
    let mut all: Vec<f64> = (0..runs).map(|_| milliseconds(|| plan(snapshot, config)).0).collect();
    all.push(first);
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], answer)
}

/// The directory to which worlds are to be written, if any.
fn written_to() -> Option<PathBuf> {
    std::env::args().skip_while(|one| one != "write").nth(1).map(PathBuf::from)
}

/// Writes a world as files: the snapshot as `NN.yaml`, the settings as `NN.toml`, the name as `NN.name`.
fn write_world(directory: &Path, name: &str, snapshot: &Snapshot, settings: &str) {
    let number = std::fs::read_dir(directory).unwrap().count() / 3;
    let file = |ending: &str| directory.join(format!("{number:02}.{ending}"));
    std::fs::write(file("yaml"), snapshot::write(snapshot).unwrap()).unwrap();
    std::fs::write(file("toml"), settings).unwrap();
    std::fs::write(file("name"), name).unwrap();
}

fn settings() -> String {
    let mut text =
        "[scale_down]\ndelay_after_add = \"0s\"\nconsolidation = false\nmax_parallel_drains = 5000\n"
            .to_owned();
    for zone in 0..3 {
        let _ = write!(
            text,
            "[[pool]]\nname = \"w{zone}\"\nmax = 50000\ncores = 10\nmemory = \"10GiB\"\n\
             labels = {{ \"topology.kubernetes.io/zone\" = \"z{zone}\" }}\n\
             allocatable = {{ cpu = \"10\", memory = \"10000Mi\", pods = 110 }}\n"
        );
    }
    text
}

fn node(number: usize) -> Node {
    let (name, zone) = (format!("n{number:05}"), number % 3);
    let labels = [
        (POOL_LABEL, format!("w{zone}")),
        ("kubernetes.io/hostname", name.clone()),
        ("topology.kubernetes.io/zone", format!("z{zone}")),
    ];
    Node {
        name,
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        annotations: [(UNNEEDED_SINCE.to_owned(), "2026-01-01T00:00:00Z".to_owned())].into(),
        allocatable: Resources { cpu_milli: 10_000, memory: 10_000 << 20, pods: 110, ..Resources::default() },
        ..Node::default()
    }
}

/// A pod of one of a hundred apps, with its own volume claim. It requests `cpu` millicores and `cpu` MiB of
/// memory.
fn pod(number: usize, cpu: i64, node: Option<&str>) -> Pod {
    let app = format!("app-{:03}", number % 100);
    let name = format!("{app}-{number:06}");
    let owner = Owner {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: app.clone(),
        uid: app.clone(),
    };
    let asked = "2026-01-15T11:59:00Z".parse().unwrap();
    let claim = VolumeSource::Claim { name: format!("data-{name}"), ephemeral: false, read_only: false };
    Pod {
        uid: name.clone(),
        name,
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        scheduling: if node.is_some() {
            Scheduling::Scheduled
        } else {
            Scheduling::Unschedulable(Some(asked))
        },
        node: node.map(ToOwned::to_owned),
        ready: node.is_some(),
        spec: PodSpec {
            namespace: "default".to_owned(),
            labels: [("app".to_owned(), app)].into(),
            owner: Some(owner),
            requests: Resources { cpu_milli: cpu, memory: cpu << 20, pods: 1, ..Resources::default() },
            volumes: vec![Volume { name: "data".to_owned(), source: claim }],
            restarts_always: true,
            ..PodSpec::default()
        }
        .into(),
        ..Pod::default()
    }
}

/// Adds the pod's claim. If the pod runs, also adds the claim's volume and its attachment.
fn add_volume(all: &mut Snapshot, pod: &Pod) {
    let name = format!("data-{}", pod.name);
    let volume = format!("pv-{name}");
    all.claims.push(Arc::new(VolumeClaim {
        namespace: pod.namespace.clone(),
        name: name.clone(),
        volume: pod.node.is_some().then(|| volume.clone()),
        class: Some("fast".to_owned()),
        bound: pod.node.is_some(),
        request: 1 << 30,
        access_modes: vec!["ReadWriteOnce".to_owned()],
        ..VolumeClaim::default()
    }));
    let Some(node) = &pod.node else { return };
    all.volumes.push(Arc::new(PersistentVolume {
        name: volume.clone(),
        class: "fast".to_owned(),
        capacity: 1 << 30,
        access_modes: vec!["ReadWriteOnce".to_owned()],
        claim: Some(format!("{}/{name}", pod.namespace)),
        csi: Some((DRIVER.to_owned(), volume.clone())),
        ..PersistentVolume::default()
    }));
    all.attachments.push(Arc::new(VolumeAttachment {
        name: format!("va-{name}"),
        attacher: DRIVER.to_owned(),
        node: node.clone(),
        volume: Some(volume),
        attached: true,
    }));
}

/// `nodes` nodes with `pods` pods each, and `waiting` pending pods. Every pod has a volume claim, and each
/// node supports a hundred volumes.
fn with_claims(nodes: usize, pods: usize, cpu: i64, waiting: usize) -> Snapshot {
    let mut all = Snapshot { time: "2026-01-15T12:00:00Z".parse().unwrap(), ..Snapshot::default() };
    let class = StorageClass {
        name: "fast".to_owned(),
        provisioner: DRIVER.to_owned(),
        waits_for_consumer: true,
        ..StorageClass::default()
    };
    all.storage_classes.push(Arc::new(class));
    let mut every = Vec::new();
    for number in 0..nodes {
        let node = node(number);
        every.extend((0..pods).map(|one| pod(number * pods + one, cpu, Some(&node.name))));
        let limits = [(DRIVER.to_owned(), Some(100))].into();
        all.csi_nodes.push(Arc::new(CsiNode { name: node.name.clone(), limits, ..CsiNode::default() }));
        all.nodes.push(Arc::new(node));
    }
    every.extend((0..waiting).map(|number| pod(nodes * pods + number, 200, None)));
    for pod in &every {
        add_volume(&mut all, pod);
    }
    every.sort_by_cached_key(Pod::id);
    all.pods = every.into_iter().map(Arc::new).collect();
    all.controllers = (0..100).map(|number| Arc::new(controller(&format!("app-{number:03}")))).collect();
    inventory::list_machines(&mut all);
    all
}

fn controller(app: &str) -> Controller {
    let key = "app".to_owned();
    let of_app = Requirement { key, operator: Operator::In, values: vec![app.to_owned()] };
    Controller {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        namespace: "default".to_owned(),
        name: app.to_owned(),
        uid: app.to_owned(),
        replicas: 1000,
        selector: Some(LabelSelector { requirements: vec![of_app] }),
        deleted: false,
        template: None,
    }
}

/// Prints a line of the table.
fn line(world: &str, cost: f64, most: f64, answer: &str) {
    let met = if cost <= most { "" } else { " (missed)" };
    println!("| {world} | {cost:.1} ms | ≤ {most} ms{met} | {answer} |");
}

/// Measures decisions about nodes on which pods use a fifth of the capacity. All pods would fit on a fifth of
/// the nodes, but kube-scheduler may scatter them, so a few more nodes are kept.
fn shrinks(nodes: usize, pods: usize, most: f64) -> f64 {
    let cpu = 2000 / i64::try_from(pods).unwrap();
    let name = format!("{nodes} nodes × {pods} pods with a claim each, nodes 20 % utilized");
    let (cost, plan) = measure(&name, &with_claims(nodes, pods, cpu, 0), &settings());
    let gone = plan.scale_down.len();
    assert!(gone >= nodes * 7 / 10 && gone <= nodes * 8 / 10, "{gone} of {nodes} nodes are removed");
    line(&name, cost, most, &format!("{gone} go"));
    cost
}

fn exponent(costs: &[(usize, f64)]) -> f64 {
    let ((least, first), (most, last)) = (costs[0], costs[costs.len() - 1]);
    #[expect(clippy::cast_precision_loss, reason = "the number of nodes is small")]
    let ratio = most as f64 / least as f64;
    (last / first).ln() / ratio.ln()
}

/// Prints a cost as a multiple of a plain decision's cost, which was measured just before.
fn ratio(world: &str, cost: f64, plain: f64, most: f64, answer: &str) {
    let times = cost / plain;
    let met = if times <= most { "" } else { " (missed)" };
    println!("| {world} | {cost:.1} ms, {times:.1} × plain ({plain:.1} ms) | ≤ {most} ×{met} | {answer} |");
}

fn cost_of(name: &str, cluster: Cluster) -> (f64, Plan) {
    measure(name, &cluster.snapshot(), &clusters::pools(3))
}

/// Measures decisions about clusters whose pods repel each other and are spread, compared with clusters of
/// plain pods.
fn social_nodes() {
    let apart = |cluster: Cluster| Cluster { manner: Manner::Spread, ..cluster };
    let idle = Cluster { size: 100, idle: true, ..CLUSTER };
    let (plain, plan) = cost_of("1000 idle nodes × 20 plain pods", idle);
    assert_eq!(plan.scale_down.len(), 800);
    let name = "1000 idle nodes × 20 pods that repel each other and are spread";
    let (cost, plan) = cost_of(name, apart(idle));
    let gone = plan.scale_down.len();
    assert!((790..=800).contains(&gone), "{gone} nodes go");
    ratio(name, cost, plain, 10.0, &format!("{gone} go"));

    let half = Cluster { nodes: 2000, ..CLUSTER };
    let (plain, plan) = cost_of("2000 nodes × 20 plain pods, nodes half utilized, nothing to do", half);
    assert!(plan.scale_down.is_empty());
    let name =
        "2000 nodes × 20 pods that repel each other and are spread, nodes half utilized, nothing to do";
    let (cost, plan) = cost_of(name, apart(half));
    assert!(plan.scale_down.is_empty() && plan.scale_up.is_empty());
    ratio(name, cost, plain, 5.0, "none removed");

    let name = "5000 such nodes, and 300 pending pods";
    let (cost, plan) = cost_of(name, apart(Cluster { nodes: 5000, waiting: 300, ..CLUSTER }));
    assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::ExistingNode));
    line(name, cost, 3000.0, "all fit");
}

fn machines_of(plan: &Plan) -> usize {
    assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::NewNode));
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}

/// Measures a decision about pending pods that are all different.
fn distinct(count: usize, pools: usize, manner: Manner, most: f64) {
    let size = |number: usize| {
        let number = i64::try_from(number).unwrap();
        (100 + number % 700, 256 + number % 9000)
    };
    let one = |number| clusters::pod(number, "app", size(number), manner, None);
    let world = clusters::waiting((0..count).map(one).collect());
    let what = if manner == Manner::Plain { "" } else { " that repel each other" };
    let name = format!("{count} pods, each of a different size{what}, {pools} pools");
    let (cost, plan) = measure(&name, &world, &clusters::pools(pools));
    let machines = machines_of(&plan);
    if manner != Manner::Plain {
        assert_eq!(machines, count);
    }
    line(&name, cost, most, &format!("{machines} machines"));
}

/// Measures decisions about large numbers of apps, machines and budgets.
fn many() {
    let app = |number| format!("app-{number:05}");
    let own = |number| clusters::pod(number, &app(number), (200, 200), Manner::Apart, None);
    let name = "10,000 pending pods, each of an app whose pods repel each other";
    let (cost, plan) = measure(name, &clusters::waiting((0..10_000).map(own).collect()), &clusters::pools(3));
    assert_eq!(machines_of(&plan), 200);
    line(name, cost, 100.0, "200 machines");

    let known = Cluster { nodes: 10_000, pods: 10, apps: 100, machines: false, ..CLUSTER };
    let (plain, _) = cost_of("10,000 nodes × 10 pods without their machines", known);
    let name = "10,000 nodes × 10 pods with their machines";
    let (cost, plan) = cost_of(name, Cluster { machines: true, ..known });
    assert!(plan.scale_up.is_empty());
    ratio(name, cost, plain, 1.15, "");

    for (count, pools, most) in
        [(5000, 20, 300.0), (10_000, 20, 1000.0), (10_000, 3, 500.0), (1000, 1200, 300.0)]
    {
        distinct(count, pools, Manner::Plain, most);
    }
    distinct(2000, 3, Manner::Apart, 100.0);
    distinct(5000, 3, Manner::Apart, 500.0);

    let idle = Cluster { size: 100, idle: true, ..CLUSTER };
    let (plain, _) = cost_of("1000 idle nodes × 20 pods without budgets", idle);
    let (cost, plan) = cost_of("2000 budgets over 1000 idle nodes", Cluster { budgets: 2000, ..idle });
    assert_eq!(plan.scale_down.len(), 800);
    line("2000 budgets over 1000 idle nodes: added by the budgets", cost - plain, 20.0, "800 go");
}

/// Measures consecutive rounds, between which ten pods change.
fn steady() {
    let name = "1000 nodes × 30 pods, ten pods change from round to round";
    let config = clusters::parsed(&clusters::pools(3));
    let mut snapshot = Cluster { pods: 30, ..CLUSTER }.snapshot();
    let mut carried = Carried::default();
    let mut round = |snapshot: &Snapshot| {
        let (cost, plan) =
            milliseconds(|| plan_unless(&Stop::default(), snapshot, &config, &mut carried).unwrap());
        assert!(plan.scale_up.is_empty() && plan.scale_down.is_empty());
        cost
    };
    // The first round looks at every pod.
    let first = round(&snapshot);
    let mut all = 0.0;
    for number in 0..200 {
        for change in 0..10 {
            let at = (number * 7001 + change * 2999) % snapshot.pods.len();
            let pod = &snapshot.pods[at];
            snapshot.pods[at] = Arc::new(Pod { ready: !pod.ready, ..Pod::clone(pod) });
        }
        all += round(&snapshot);
    }
    // The mean is printed, because one round is shorter than the resolution of the CPU time.
    line(name, all / 200.0, 2.0, &format!("nothing to do; the first round took {first:.1} ms"));
}

/// Measures decisions about pods with device claims.
fn with_devices() {
    let world = World { nodes: 400, devices: 64, pods: 0, waiting: 0, idle: false };
    let three = clusters::pools(3);
    let name = "20,000 pending pods that each need a device, on 400 nodes × 64";
    let (cost, plan) = measure(name, &World { waiting: 20_000, ..world }.snapshot(), &three);
    assert!(plan.pods.len() == 20_000 && plan.pods.iter().all(|pod| pod.verdict == PodOutcome::ExistingNode));
    line(name, cost, 1000.0, "all fit");
    let name = "the same on 400 nodes × 25, and the other pods on new nodes";
    let (cost, plan) = measure(name, &World { waiting: 20_000, devices: 25, ..world }.snapshot(), &three);
    assert_eq!(devices::machines(&plan), 400);
    line(name, cost, 1000.0, "400 machines");
    let name = "20,000 pods with a device each on 400 nodes × 64";
    let (cost, plan) = measure(name, &World { pods: 50, ..world }.snapshot(), &three);
    assert!(plan.scale_down.is_empty() && plan.scale_up.is_empty());
    line(name, cost, 1000.0, "none removed");
    let name = "20,000 pods with a device each on 400 idle nodes × 128";
    let (cost, plan) =
        measure(name, &World { pods: 50, devices: 128, idle: true, ..world }.snapshot(), &three);
    let gone = plan.scale_down.len();
    assert!((190..=218).contains(&gone), "{gone} nodes go");
    line(name, cost, 1000.0, &format!("{gone} go"));
    let none = devices::serving(World { nodes: 0, waiting: 20_000, ..world }.snapshot(), 0);
    let name = "20,000 pending pods that each need a declared device, no node";
    let (cost, plan) = measure(name, &none, &devices::declaring(50));
    assert_eq!(devices::machines(&plan), 400);
    line(name, cost, 1000.0, "400 machines");
}

/// Measures the cost of decisions about plain pods in a cluster with a device class, compared with a cluster
/// without one. The two clusters are measured alternately, so that other load on the computer affects both
/// equally.
fn beside_devices() {
    for (what, cluster) in [
        ("1000 idle nodes × 20 pods", Cluster { size: 100, idle: true, ..CLUSTER }),
        ("2000 nodes × 20 pods, half used", Cluster { nodes: 2000, ..CLUSTER }),
        ("1000 nodes × 20 pods, 10,000 pending pods", Cluster { waiting: 10_000, ..CLUSTER }),
    ] {
        let plain = cluster.snapshot();
        for (devices, served) in
            [(0, "with a class and empty slices"), (8, "with a class and 8 devices on each node")]
        {
            let served_too = devices::serving(plain.clone(), devices);
            let config = clusters::parsed(&clusters::pools(3));
            let mut costs: Vec<(f64, f64)> = (0..15)
                .map(|_| {
                    let (alone, answer) = milliseconds(|| plan(&plain, &config));
                    let (beside, same) = milliseconds(|| plan(&served_too, &config));
                    assert_eq!(answer, same, "both decisions are the same");
                    (alone, beside)
                })
                .collect();
            costs.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
            let (alone, beside) = costs[costs.len() / 2];
            let times = beside / alone;
            let met = if times <= 1.03 { "" } else { " (missed)" };
            println!(
                "| {what}, {served} | {beside:.1} ms, {times:.3} × without ({alone:.1} ms) | ≤ 1.03 ×{met} | the same |"
            );
        }
    }
}

/// Measures the cost of a round in worlds with which a tenant could slow down the daemon.
fn adversarial(wanted: &str) {
    println!("| World | CPU time | Pods with a verdict | Removed nodes |\n|---|---|---|---|");
    for (name, world) in adversarial::WORLDS.iter().filter(|(name, _)| name.contains(wanted)) {
        let (snapshot, settings) = world();
        let config = clusters::parsed(&settings);
        let (cost, plan) = milliseconds(|| plan(&snapshot, &config));
        println!("| {name} | {cost:.0} ms | {} | {} |", plan.pods.len(), plan.scale_down.len());
    }
}

fn main() {
    if let Some(wanted) = std::env::args().skip_while(|one| one != "adversarial").nth(1) {
        return adversarial(&wanted);
    }
    println!("| World | CPU time | Target | Answer |\n|---|---|---|---|");
    if std::env::args().any(|one| one == "devices") {
        with_devices();
        return beside_devices();
    }
    if std::env::args().any(|one| one == "steady") {
        return steady();
    }
    let costs =
        [(200, 60.0), (400, 60.0), (1000, 250.0)].map(|(nodes, most)| (nodes, shrinks(nodes, 2, most)));
    println!("| the same, exponent between 200 and 1000 nodes | {:.2} | ≤ 1.3 | |", exponent(&costs));
    let name = "1000 pending pods with a claim each, on 1000 nodes × 30 such pods";
    let (cost, plan) = measure(name, &with_claims(1000, 30, 250, 1000), &settings());
    assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::ExistingNode));
    line(name, cost, 150.0, "all fit");
    shrinks(40, 20, 50.0);
    shrinks(250, 20, 1000.0);
    social_nodes();
    many();
    // Only a single snapshot can be written, not consecutive rounds.
    if written_to().is_none() {
        steady();
    }
    // Written worlds are read by other commits, which may not support devices.
    if written_to().is_none() {
        with_devices();
        beside_devices();
    }
}
