//! An embedded Proxmox VE with quick machines, some Kubernetes, and the daemon between them as a process.

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

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Removals after two seconds, failures after a few.
const QUICK: &str = r#"
scan_interval = "1s"
"#;

/// One pool of small nodes.
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

/// The demo cluster, with machines that take less than a second.
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

/// `2020-01-01T00:00:00Z` as it is in a Secret.
pub const LONG_AGO: &str = "MjAyMC0wMS0wMVQwMDowMDowMFo=";

/// The Kubernetes of a bench.
pub trait Kubernetes: Sized + Send + Sync {
    /// Far more than anything here takes with it.
    const LONG: Duration;

    /// Starts it with a Proxmox VE whose guests join it, and writes `kubeconfig`, by which the daemon reaches
    /// it, into the directory. `None`: there is none on this machine, which was said.
    async fn start(directory: &Path, cluster: ClusterSpec) -> Option<(Proxmox, Self)>;

    /// Makes an object, or changes it to this.
    async fn apply(&self, object: &Value);

    /// Changes the replicas of a Deployment in the namespace `default`.
    async fn scale(&self, name: &str, replicas: u32);

    /// Takes the API server away, or brings it back.
    async fn set_away(&self, away: bool);

    /// Puts another CA into cluster-info, given as PEM and as the hash of its public key; returns the former
    /// ones.
    async fn replace_authority(&self, authority: (String, String)) -> (String, String);

    /// Lets a bootstrap token run out that is a Secret of this name.
    async fn expire(&self, secret: &str);

    /// All Nodes, all Pods of the namespace `default`, all ConfigMaps and Leases of the daemon's own, all
    /// Secrets of `kube-system`. It may be a moment old.
    fn list(&self, kind: &str) -> Vec<Value>;

    /// Names of Nodes that are none of the pools'.
    fn other_nodes(&self) -> &[&str];

    /// What must not appear in a log.
    fn secrets(&self) -> Vec<String>;
}

/// Everything that one test plays on.
pub struct Bench<K> {
    pub proxmox: Proxmox,
    pub kube: K,
    directory: TempDir,
    child: Option<Child>,
}

impl<K: Kubernetes> Bench<K> {
    /// Clusters without a daemon. `None`: not on this machine.
    pub async fn idle(cluster: ClusterSpec, pools: &str) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let (proxmox, kube) = K::start(directory.path(), cluster).await?;
        configuration::write(directory.path(), &proxmox, pools).unwrap();
        let file = directory.path().join("config.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{QUICK}{text}")).unwrap();
        Some(Self { proxmox, kube, directory, child: None })
    }

    /// The same with the daemon.
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

    /// Kills the daemon as SIGKILL does.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.unwrap();
        }
    }

    /// Ends the daemon as systemd does.
    pub async fn stop(&mut self) {
        if let Some(child) = self.child.take() {
            daemon::stop(child).await.unwrap();
        }
        let log = self.log();
        for secret in self.kube.secrets().into_iter().chain([ClusterSpec::DEMO_SECRET.to_owned()]) {
            assert!(!log.contains(&secret), "a secret is in the log");
        }
    }

    /// The path of a file of the daemon's.
    pub fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// What the daemon has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("daemon.log")).unwrap_or_default()
    }

    /// Warnings and errors that the daemon has logged.
    pub fn warnings(&self) -> Vec<String> {
        let log = self.log();
        log.lines()
            .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "))
            .map(String::from)
            .collect()
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Duration {
        let started = Instant::now();
        while !is_so(self) {
            if started.elapsed() > K::LONG {
                let status =
                    pve_autoscaler::observability::ask(&self.directory.path().join("control.sock")).await;
                panic!(
                    "still not true after {:?}: {what}; the daemon said:\n{}\nand shows:\n{status:#?}",
                    K::LONG,
                    self.log()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        started.elapsed()
    }

    /// Sees to it that something stays so for a time.
    pub async fn throughout(&self, what: &str, time: Duration, is_so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while started.elapsed() < time {
            assert!(
                is_so(self),
                "no longer true after {:?}: {what}; the daemon said:\n{}",
                started.elapsed(),
                self.log()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Makes a Deployment whose pods want this much; they tolerate the taint `dedicated`.
    pub async fn deploy(&self, name: &str, replicas: u32, cpu: &str, memory: &str) {
        let mut deployment = samples::deployment(name, replicas, cpu, memory);
        deployment["spec"]["template"]["spec"]["tolerations"] = json!([
            // Pods of a dead node are not waited for.
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

    /// How many pods run and are ready.
    pub fn running(&self) -> usize {
        let pods = self.kube.list("Pod");
        let alive = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        alive.filter(|pod| pod["status"]["phase"] == "Running" && is_ready(pod)).count()
    }

    /// Names of the ready Nodes of a pool.
    pub fn nodes(&self, pool: &str) -> Vec<String> {
        let nodes = self.kube.list("Node");
        let ours = nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == pool);
        ours.filter(|node| is_ready(node)).map(name).collect()
    }

    /// Ids of the pools' VMs.
    pub fn vms(&self) -> Vec<u32> {
        self.proxmox.pve.vmids().into_iter().filter(|vmid| (9100..9300).contains(vmid)).collect()
    }

    /// Our records of machines and our bootstrap tokens.
    pub fn leftovers(&self) -> Vec<String> {
        let named = |kind: &str, start: &str| -> Vec<String> {
            self.kube.list(kind).iter().map(name).filter(|name| name.starts_with(start)).collect()
        };
        [named("ConfigMap", "machine-"), named("Secret", "bootstrap-token-")].concat()
    }

    /// Whether none of our VMs, Nodes, records and tokens is left.
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
