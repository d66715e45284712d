//! An embedded Proxmox VE with quick machines, a Kubernetes cluster, and the daemon as a process that uses
//! both.

use std::path::Path;
use std::time::Duration;

use lab::clusters::Proxmox;
use lab::{configuration, daemon};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::Instant;
use world::kubernetes::samples;
use world::proxmox::spec::{ClusterSpec, Timings};

/// The interval at which a condition is checked.
const LOOK: Duration = Duration::from_millis(20);

/// Makes the daemon decide every second.
const QUICK: &str = r#"
scan_interval = "1s"
"#;

/// One pool of small nodes, with short times for removals and failures.
pub const POOL: &str = r#"
[scale_up]
backoff_initial = "3s"
[scale_down]
unneeded_time = "2s"
unready_time = "3s"
delay_after_add = "0s"
delay_after_failure = "0s"
[limits]
agent = "4s"
[[pool]]
name = "workers"
max = 3
cores = 2
memory = "4GiB"
template = "k8s-worker-local"
vmids = "9100-9109"
addresses = "127.11.10.11-127.11.10.20"
prefix = 8
bridge = "vmbr0"
"#;

/// The demo cluster, with machines that become nodes in less than a second.
pub fn cluster() -> ClusterSpec {
    let ms = Duration::from_millis;
    let timings = Timings {
        request: ms(2),
        linked_clone: ms(60),
        config: ms(30),
        start: ms(100),
        stop: ms(50),
        shutdown: ms(200),
        destroy: ms(50),
        boot_to_agent: ms(300),
        agent_to_running: ms(100),
        join: ms(150),
        agent_call: ms(10),
        beat: Duration::from_secs(1),
        ..Timings::default()
    };
    ClusterSpec { timings, ..ClusterSpec::demo() }
}

/// `2020-01-01T00:00:00Z` in base64, as in the `data` of a Secret.
pub const LONG_AGO: &str = "MjAyMC0wMS0wMVQwMDowMDowMFo=";

/// The Kubernetes cluster of a bench.
pub trait Kubernetes: Sized + Send + Sync {
    /// The time limit of each wait. It is much longer than any step of a test takes.
    const LONG: Duration;

    /// Starts this cluster with a Proxmox VE whose guests join it, and writes the daemon's `kubeconfig` into
    /// the directory. If the cluster cannot run on this computer, prints that and returns `None`.
    async fn start(directory: &Path, cluster: ClusterSpec) -> Option<(Proxmox, Self)>;

    /// Creates an object, or updates it if it exists.
    async fn apply(&self, object: &Value);

    /// Changes the number of replicas of a Deployment in the namespace `default`.
    async fn scale(&self, name: &str, replicas: u32);

    /// Makes the API server unreachable, or reachable again.
    async fn set_away(&self, away: bool);

    /// Replaces the CA in cluster-info, and returns the previous one. A CA consists of its PEM and the hash
    /// of its public key.
    async fn replace_authority(&self, authority: (String, String)) -> (String, String);

    /// Makes the bootstrap token in the Secret with this name expire.
    async fn expire(&self, secret: &str);

    /// Returns all objects of a kind: Nodes, Pods in the namespace `default`, ConfigMaps and Leases in the
    /// daemon's namespace, or Secrets in `kube-system`. The list may be slightly out of date.
    fn list(&self, kind: &str) -> Vec<Value>;

    /// The names of Nodes that do not belong to a pool.
    fn other_nodes(&self) -> &[&str];

    /// Texts, such as tokens, that must not appear in a log.
    fn secrets(&self) -> Vec<String>;
}

/// The clusters and the daemon of one test.
pub struct Bench<K> {
    pub proxmox: Proxmox,
    pub kube: K,
    directory: TempDir,
    child: Option<Child>,
}

impl<K: Kubernetes> Bench<K> {
    /// Starts the clusters without a daemon. Returns `None` if the Kubernetes cluster cannot run on this
    /// computer.
    pub async fn idle(cluster: ClusterSpec, pools: &str) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let (proxmox, kube) = K::start(directory.path(), cluster).await?;
        configuration::write(directory.path(), &proxmox, pools).unwrap();
        let file = directory.path().join("config.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{QUICK}{text}")).unwrap();
        Some(Self { proxmox, kube, directory, child: None })
    }

    /// Starts the clusters and the daemon. Returns `None` if the Kubernetes cluster cannot run on this
    /// computer.
    pub async fn new(cluster: ClusterSpec, pools: &str) -> Option<Self> {
        let mut bench = Self::idle(cluster, pools).await?;
        bench.start().await;
        Some(bench)
    }

    /// Starts the daemon, and waits until it is ready.
    pub async fn start(&mut self) {
        self.launch();
        daemon::ready(self.child.as_mut().unwrap(), self.directory.path()).await.unwrap();
    }

    /// Starts the daemon.
    pub fn launch(&mut self) {
        let program = Path::new(env!("CARGO_BIN_EXE_lab"));
        self.child = Some(daemon::launch(program, self.directory.path()).unwrap());
    }

    /// Kills the daemon with SIGKILL.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.unwrap();
        }
    }

    /// Stops the daemon as systemd does.
    pub async fn stop(&mut self) {
        if let Some(child) = self.child.take() {
            daemon::stop(child).await.unwrap();
        }
        let log = self.log();
        for secret in self.kube.secrets().into_iter().chain([ClusterSpec::DEMO_SECRET.to_owned()]) {
            assert!(!log.contains(&secret), "the log contains a secret");
        }
    }

    /// The path of a file in the daemon's directory.
    pub fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The daemon's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("daemon.log")).unwrap_or_default()
    }

    /// The warnings and errors in the daemon's log.
    pub fn warnings(&self) -> Vec<String> {
        let log = self.log();
        log.lines()
            .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "))
            .map(String::from)
            .collect()
    }

    /// Waits until the condition is met. Returns how long it took.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Duration {
        let started = Instant::now();
        while !is_so(self) {
            if started.elapsed() > K::LONG {
                let status =
                    pve_autoscaler::observability::ask(&self.directory.path().join("control.sock")).await;
                panic!(
                    "still not true after {:?}: {what}; the daemon's log:\n{}\nits status:\n{status:#?}",
                    K::LONG,
                    self.log()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        started.elapsed()
    }

    /// Checks that the condition stays true for this time.
    pub async fn throughout(&self, what: &str, time: Duration, is_so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while started.elapsed() < time {
            assert!(
                is_so(self),
                "no longer true after {:?}: {what}; the daemon's log:\n{}",
                started.elapsed(),
                self.log()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Creates a Deployment whose pods request this much CPU and memory and tolerate the taint `dedicated`.
    pub async fn deploy(&self, name: &str, replicas: u32, cpu: &str, memory: &str) {
        let mut deployment = samples::deployment(name, replicas, cpu, memory);
        deployment["spec"]["template"]["spec"]["tolerations"] = json!([
            // Pods on a dead node are evicted after one second.
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 1,
            },
            { "key": "dedicated", "operator": "Exists" },
        ]);
        self.kube.apply(&deployment).await;
    }

    /// The number of pods that run and are ready.
    pub fn running(&self) -> usize {
        let pods = self.kube.list("Pod");
        let alive = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        alive.filter(|pod| pod["status"]["phase"] == "Running" && is_ready(pod)).count()
    }

    /// The names of the ready Nodes of a pool.
    pub fn nodes(&self, pool: &str) -> Vec<String> {
        let nodes = self.kube.list("Node");
        let ours = nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == pool);
        ours.filter(|node| is_ready(node)).map(name).collect()
    }

    /// The VMIDs of the pools' VMs.
    pub fn vms(&self) -> Vec<u32> {
        self.proxmox.pve.vmids().into_iter().filter(|vmid| (9100..9300).contains(vmid)).collect()
    }

    /// The names of the daemon's machine records and bootstrap tokens.
    pub fn leftovers(&self) -> Vec<String> {
        let named = |kind: &str, start: &str| -> Vec<String> {
            self.kube.list(kind).iter().map(name).filter(|name| name.starts_with(start)).collect()
        };
        [named("ConfigMap", "machine-"), named("Secret", "bootstrap-token-")].concat()
    }

    /// Whether none of the daemon's VMs, Nodes, records and tokens is left.
    pub fn is_clean(&self) -> bool {
        let nodes: Vec<String> = self.kube.list("Node").iter().map(name).collect();
        self.vms().is_empty() && self.leftovers().is_empty() && nodes == self.kube.other_nodes()
    }
}

pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
