//! Clusters that are quick, and the daemon between them.

use std::time::Duration;

use lab::clusters::Clusters;
use lab::{configuration, daemon};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::Instant;
use world::guest::GuestFaults;
use world::kubernetes::samples;
use world::kubernetes::spec::{KubeSpec, KubeTimings};
use world::proxmox::spec::{ClusterSpec, Timings};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Far more than anything here takes.
pub const LONG: Duration = Duration::from_mins(1);

/// Removals after two seconds, failures after a few.
pub const QUICK: &str = r#"
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

/// A further one, of larger nodes.
pub const LARGE: &str = r#"
[[pool]]
name = "large"
max = 3
cores = 8
memory = "16GiB"
template = "k8s-worker-local"
vmids = "9200-9209"
addresses = "127.11.10.31-127.11.10.40"
prefix = 8
bridge = "vmbr0"
"#;

/// Everything that one test plays on.
pub struct Bench {
    pub clusters: Clusters,
    directory: TempDir,
    child: Option<Child>,
}

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

/// The same, with these faults inside of each clone.
pub fn faulty(faults: &GuestFaults) -> ClusterSpec {
    let mut cluster = cluster();
    for vm in &mut cluster.vms {
        vm.faults = faults.clone();
    }
    cluster
}

fn kube() -> KubeSpec {
    let ms = Duration::from_millis;
    let timings = KubeTimings {
        pod_start: ms(50),
        pod_ready: ms(50),
        pod_stop: ms(50),
        register: ms(100),
        ready: ms(100),
        lease: ms(300),
        heartbeat: ms(500),
        kubelet_restart: ms(100),
        monitor_grace: ms(2000),
        pod_gc: ms(2000),
        ..KubeTimings::default()
    };
    KubeSpec { timings, ..KubeSpec::demo() }
}

impl Bench {
    /// Clusters without a daemon.
    pub async fn idle(cluster: ClusterSpec, pools: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let clusters = Clusters::start(directory.path(), cluster, kube()).await.unwrap();
        configuration::write(directory.path(), &clusters, pools).unwrap();
        let file = directory.path().join("config.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{QUICK}{text}")).unwrap();
        Self { clusters, directory, child: None }
    }

    /// The same with the daemon.
    pub async fn new(cluster: ClusterSpec, pools: &str) -> Self {
        let mut bench = Self::idle(cluster, pools).await;
        bench.start().await;
        bench
    }

    /// Starts the daemon, and waits until it is ready.
    pub async fn start(&mut self) {
        self.launch();
        daemon::ready(self.child.as_mut().unwrap(), self.directory.path()).await.unwrap();
    }

    /// Starts the daemon.
    pub fn launch(&mut self) {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_lab"));
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
        for secret in [ClusterSpec::DEMO_SECRET, KubeSpec::DEMO_ADMIN_TOKEN] {
            assert!(!log.contains(secret), "a secret is in the log");
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

    /// Waits until something is so.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Duration {
        let started = Instant::now();
        while !is_so(self) {
            assert!(
                started.elapsed() < LONG,
                "waited {LONG:?} until {what}; the daemon said:\n{}",
                self.log()
            );
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
                "after {:?} it was no more so that {what}:\n{}",
                started.elapsed(),
                self.log()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Makes a Deployment whose pods want this much.
    pub fn deploy(&self, name: &str, replicas: u32, cpu: &str, memory: &str) {
        let mut deployment = samples::deployment(name, replicas, cpu, memory);
        // Pods of a dead node are not waited for.
        deployment["spec"]["template"]["spec"]["tolerations"] = json!([{
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 1,
        }]);
        self.clusters.kube.apply(&deployment).unwrap();
    }

    /// How many pods run and are ready.
    pub fn running(&self) -> usize {
        let pods = self.clusters.kube.list("Pod");
        let alive = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        alive.filter(|pod| pod["status"]["phase"] == "Running" && is_ready(pod)).count()
    }

    /// Names of the ready Nodes of a pool.
    pub fn nodes(&self, pool: &str) -> Vec<String> {
        let nodes = self.clusters.kube.list("Node");
        let ours = nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == pool);
        ours.filter(|node| is_ready(node)).map(|node| name(node)).collect()
    }

    /// Ids of the pools' VMs.
    pub fn vms(&self) -> Vec<u32> {
        self.clusters.pve.vmids().into_iter().filter(|vmid| (9100..9300).contains(vmid)).collect()
    }

    /// Records of machines and bootstrap tokens.
    pub fn leftovers(&self) -> Vec<String> {
        let kube = &self.clusters.kube;
        let named = |kind: &str, start: &str| -> Vec<String> {
            kube.list(kind).iter().map(|one| name(one)).filter(|name| name.starts_with(start)).collect()
        };
        [named("ConfigMap", "machine-"), named("Secret", "bootstrap-token-")].concat()
    }

    /// Whether no VM, Node, record or token of ours is left.
    pub fn is_clean(&self) -> bool {
        self.vms().is_empty() && self.leftovers().is_empty() && self.clusters.kube.list("Node").len() == 1
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
