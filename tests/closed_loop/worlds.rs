//! Random clusters: pools, nodes, DaemonSets and waiting pods, with everything that influences the
//! scheduler's choices.

use pve_autoscaler::settings::{self, Needs};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Pool};

/// The machine sizes: cores, GiB of memory, and what the kubelet offers to pods (mCPU, MiB and the number of
/// pods).
const SIZES: [(u32, u32, u32, u32, u32); 3] =
    [(2, 4, 1900, 3400, 30), (4, 8, 3900, 7300, 50), (8, 16, 7900, 15_000, 110)];
const CPU: [u32; 9] = [50, 100, 200, 250, 500, 700, 1000, 1500, 1800];
const MEMORY: [u32; 9] = [64, 128, 256, 512, 700, 1024, 1500, 2048, 3000];
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// Draws random values from a seed.
pub struct Draw(pub fastrand::Rng);

impl Draw {
    /// One of these values.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.usize(..all.len())]
    }

    /// True in this percentage of cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.0.u32(..100) < percent
    }

    /// An index into a list of this length.
    pub fn index(&mut self, of: usize) -> usize {
        self.0.usize(..of)
    }

    /// Puts the list into a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        self.0.shuffle(list);
    }
}

/// Generates the cluster for this seed. All of its pods are waiting.
pub fn draw(seed: u64) -> Cluster {
    let mut draw = Draw(fastrand::Rng::with_seed(seed));
    let zones = draw.of(&[0, 0, 2, 3]);
    let pools = pools(&mut draw, zones);
    let consolidation = draw.percent(30);
    let tables: String = pools.iter().map(Pool::table).collect();
    let text = format!(
        "[scale_down]\nunneeded_time = \"0s\"\ndelay_after_add = \"0s\"\nmax_parallel_drains = 100\n\
         consolidation = {consolidation}\n{tables}"
    );
    let config = settings::parse("closed loop", &text, Needs::Plan).unwrap();
    let mut cluster =
        Cluster { pools, config, nodes: Vec::new(), pods: Vec::new(), rest: Vec::new(), made: 0 };
    cluster.rest.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "d"}}));
    for _ in 0..draw.of(&[0, 0, 1, 2, 3, 5]) {
        let pool = draw.0.usize(..cluster.pools.len());
        let name = cluster.pools[pool].name.clone();
        cluster.add(&name);
    }
    for number in 0..draw.of(&[0, 1, 1, 2]) {
        let set = daemon_set(&mut draw, number);
        cluster.rest.push(set);
    }
    // The percentage of groups with constraints varies, so that constrained pods often share a world with
    // ordinary ones.
    let odd = draw.of(&[0, 25, 50, 80]);
    for number in 0..draw.of(&[1, 2, 3, 4, 6]) {
        group(&mut draw, &mut cluster, number, odd);
    }
    draw.0.shuffle(&mut cluster.pods);
    cluster
}

fn pools(draw: &mut Draw, zones: usize) -> Vec<Pool> {
    let kinds = draw.of(&[1, 1, 2]);
    let mut pools = Vec::new();
    for kind in 0..kinds {
        let (cores, gib, cpu_milli, memory_mib, pods) = draw.of(&SIZES);
        let taint = (kind > 0 && draw.percent(40)).then(|| "dedicated".to_owned());
        for zone in 0..zones.max(1) {
            let mut labels = vec![("tier".to_owned(), format!("t{kind}"))];
            if zones > 0 {
                labels.push((ZONE.to_owned(), format!("z{zone}")));
            }
            let name = format!("k{kind}z{zone}");
            let taint = taint.clone();
            pools.push(Pool { name, cores, gib, cpu_milli, memory_mib, pods, max: 200, labels, taint });
        }
    }
    pools
}

fn container(draw: &mut Draw, cpu: u32, memory: u32) -> Value {
    // Sometimes only a limit is set instead of a request, and sometimes a pod requests little or nothing.
    match draw.0.u32(..20) {
        0 => json!({"name": "c", "image": "i"}),
        1 => {
            json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}})
        }
        _ => {
            json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}})
        }
    }
}

fn daemon_set(draw: &mut Draw, number: usize) -> Value {
    let name = format!("ds{number}");
    let (cpu, memory) = (draw.of(&[50, 100, 300]), draw.of(&[64, 200, 500]));
    let mut spec = json!({"containers": [container(draw, cpu, memory)]});
    if draw.percent(60) {
        spec["tolerations"] = json!([{"operator": "Exists"}]);
    }
    if draw.percent(20) {
        spec["nodeSelector"] = json!({"tier": "t0"});
    }
    if draw.percent(15) {
        spec["containers"][0]["ports"] = json!([{"containerPort": 9100, "hostPort": 9100}]);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "d", "name": name, "uid": name},
        "spec": {"selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })
}

/// A ReplicaSet with its pods.
fn group(draw: &mut Draw, cluster: &mut Cluster, number: usize, odd: u32) {
    let name = format!("g{number}");
    let replicas = draw.of(&[1, 2, 3, 4, 6, 8, 12, 20]);
    let (cpu, memory) = (draw.of(&CPU), draw.of(&MEMORY));
    let mut spec = json!({"containers": [container(draw, cpu, memory)], "terminationGracePeriodSeconds": 30});
    if draw.percent(odd) {
        for _ in 0..draw.of(&[1, 1, 2]) {
            constrain(draw, &mut spec, number);
        }
    }
    if draw.percent(odd / 2) {
        prefer(draw, &mut spec, number);
    }
    if draw.percent(10) {
        spec["priority"] = json!(draw.of(&[100, 1000]));
        spec["preemptionPolicy"] = json!("Never");
    }
    cluster.rest.push(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": "d", "name": name, "uid": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    }));
    for one in 0..replicas {
        let pod = format!("{name}-{one}");
        cluster.pods.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "d", "name": pod, "uid": pod, "labels": {"app": name},
                "creationTimestamp": "2026-01-15T11:00:00Z",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true}]},
            "spec": spec, "status": {"phase": "Pending"},
        }));
    }
}

fn app(number: usize) -> Value {
    json!({"matchLabels": {"app": format!("g{number}")}})
}

/// Adds a constraint on the pods' nodes, or a toleration.
fn constrain(draw: &mut Draw, spec: &mut Value, own: usize) {
    let key = draw.of(&[HOSTNAME, HOSTNAME, ZONE]);
    let other = if draw.percent(50) { own } else { draw.0.usize(..=own) };
    let term = json!([{"topologyKey": key, "labelSelector": app(other)}]);
    // Required pod affinity uses only zones, because a single node of any pool has room for only a few more
    // pods.
    let beside = json!([{"topologyKey": ZONE, "labelSelector": app(other)}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    match draw.0.u32(..10) {
        0..3 => {
            spec["topologySpreadConstraints"] = json!([{"topologyKey": key, "maxSkew": draw.of(&[1, 1, 2]),
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": app(own)}]);
        }
        3..5 => spec["affinity"]["podAntiAffinity"][required] = term,
        5 => spec["affinity"]["podAffinity"][required] = beside,
        6 => spec["nodeSelector"]["tier"] = json!(draw.of(&["t0", "t0", "t1"])),
        7 => spec["nodeSelector"][ZONE] = json!(draw.of(&["z0", "z1"])),
        8 => spec["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]),
        _ => {
            let port = draw.of(&[8080, 8081, 9100]);
            spec["containers"][0]["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        }
    }
}

/// Adds something that the scheduler prefers but does not require.
fn prefer(draw: &mut Draw, spec: &mut Value, own: usize) {
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let term = json!([{"weight": 100, "podAffinityTerm":
        {"topologyKey": draw.of(&[HOSTNAME, ZONE]), "labelSelector": app(draw.0.usize(..=own))}}]);
    match draw.0.u32(..3) {
        0 => spec["affinity"]["podAntiAffinity"][preferred] = term,
        1 => spec["affinity"]["podAffinity"][preferred] = term,
        _ => {
            spec["affinity"]["nodeAffinity"][preferred] = json!([{"weight": 50, "preference":
                {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["t0"]}]}}]);
        }
    }
}
