//! The benchmark's Kubernetes cluster, and the embedded Proxmox VE.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::clusters::{self, Proxmox};
use lab::configuration;
use rig::{Admin, ControlPlane, Guests, Hollow, Options, Programs};
use serde_json::{Value, json};
use tokio::time::Instant;
use world::clock::WorldClock;
use world::proxmox::spec::{ClusterSpec, Timings};

/// The time limit for filling the cluster, which is far longer than even a busy computer needs.
const LIMIT: Duration = Duration::from_mins(30);
/// The maximum number of calls per second for the controllers and for the scheduler. It is high so that the
/// cluster fills quickly.
const CALLS: u32 = 2000;

/// A control plane with its nodes and pods.
pub struct Cluster {
    /// An administrator's access.
    pub admin: Admin,
    /// The clock of the embedded Proxmox VE.
    pub clock: WorldClock,
    folder: PathBuf,
    plane: ControlPlane,
    _hollow: Hollow,
}

impl Cluster {
    /// Starts a cluster with this many nodes and running pods. Returns `None`, after printing the reason, if
    /// this computer cannot run it.
    pub async fn filled(folder: &Path, nodes: usize, pods: usize) -> Option<Self> {
        let programs = match Programs::get().await.unwrap() {
            Ok(programs) => programs,
            Err(missing) => {
                println!("skipped: {missing}");
                return None;
            }
        };
        let started = Instant::now();
        // On a busy computer, a node's lease may expire while the cluster is being filled. With the default
        // grace period, all pods of that node would count as lost.
        let options =
            Options { calls: Some(CALLS), node_monitor_grace: Duration::from_mins(15), ..Options::default() };
        let plane = ControlPlane::start(programs.clone(), folder, &options).await.unwrap();
        let admin = plane.admin().unwrap();
        let hollow = Hollow::start(&programs, folder, nodes).await.unwrap();
        let clock = WorldClock::starting_at(clusters::now());
        let cluster = Self { admin, clock, folder: folder.to_owned(), plane, _hollow: hollow };
        cluster.until("all nodes exist", nodes, async || cluster.nodes().await).await;
        println!("{nodes} nodes after {:.0?}", started.elapsed());
        let all: Vec<Value> = (0..nodes).map(|node| workload(node, share(pods, nodes, node))).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": all }).to_string();
        cluster.admin.kubectl(&["create", "--validate=false", "-f", "-"], &list).await.unwrap();
        cluster.until("all pods run", pods, async || cluster.pods().await).await;
        println!("{pods} running pods after {:.0?}", started.elapsed());
        Some(cluster)
    }

    /// Starts an embedded Proxmox VE whose machines do not finish booting during the benchmark. Writes the
    /// daemon's configuration for both clusters, with a pool of at most this many machines.
    pub async fn proxmox(&self, machines: usize) -> Proxmox {
        let timings = Timings { boot_to_agent: Duration::from_hours(24), ..Timings::default() };
        let spec = ClusterSpec { timings, ..ClusterSpec::demo() };
        let disks = self.folder.join("m");
        let guests = Guests::new(self.plane.programs().clone(), disks);
        let proxmox = Proxmox::start(&self.folder, spec, self.clock.clone(), guests).await.unwrap();
        let manifest = include_str!("../../../packaging/rbac.yaml");
        self.admin.apply(manifest).await.unwrap();
        let kubeconfig = self.admin.kubeconfig_for("pve-autoscaler", "pve-autoscaler").await.unwrap();
        clusters::write(&self.folder, "kubeconfig", &kubeconfig).unwrap();
        configuration::write(&self.folder, &proxmox, &pool(machines)).unwrap();
        proxmox
    }

    /// The number of ready nodes, which are those without taints.
    async fn nodes(&self) -> usize {
        let nodes = self.admin.list("/api/v1/nodes").await.unwrap();
        let untainted = nodes.iter().filter(|node| node["spec"]["taints"].is_null());
        untainted.count()
    }

    /// The number of ready pods.
    async fn pods(&self) -> usize {
        let sets = self.admin.list("/apis/apps/v1/namespaces/default/deployments").await.unwrap();
        let ready = sets.iter().filter_map(|set| set["status"]["readyReplicas"].as_u64());
        usize::try_from(ready.sum::<u64>()).unwrap()
    }

    async fn until(&self, what: &str, wanted: usize, count: impl AsyncFn() -> usize) {
        let end = Instant::now() + LIMIT;
        loop {
            let now = count().await;
            if now >= wanted {
                return;
            }
            assert!(Instant::now() < end, "still not true after {LIMIT:?}: {what} ({now} of {wanted})");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// The number of pods on one node.
fn share(pods: usize, nodes: usize, node: usize) -> usize {
    pods / nodes + usize::from(node < pods % nodes)
}

/// The Deployment for one node. Its pods leave a quarter of the node's CPU free. The pods name their node,
/// because the scheduler would take many times as long to place each of them among a thousand nodes. For
/// clients of the API server, this makes no difference.
fn workload(node: usize, replicas: usize) -> Value {
    let name = format!("app-{node}");
    let labels = json!({ "app": name });
    let container = json!({
        "name": "app", "image": "registry.example/app:1",
        "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
        "env": [{ "name": "LOG_LEVEL", "value": "info" }],
        "ports": [{ "name": "http", "containerPort": 8080 }],
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "http" } },
    });
    let spec = json!({ "nodeName": format!("hollow-{node:04}"), "containers": [container] });
    let template = json!({ "metadata": { "labels": labels }, "spec": spec });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": template },
    })
}

/// A pool that only the measured pods fit.
fn pool(machines: usize) -> String {
    format!(
        r#"
[limits]
agent = "15m"
max_parallel_creates = 200
[[pool]]
name = "workers"
max = {machines}
cores = 1
memory = "1GiB"
template = "k8s-worker-local"
vmids = "9100-9299"
addresses = "127.11.10.11-127.11.10.210"
prefix = 8
bridge = "vmbr0"
labels = {{ "example.com/for" = "reaction" }}
"#
    )
}
