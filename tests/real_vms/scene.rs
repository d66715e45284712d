//! The daemon as a process between a real control plane and the machines of a [`Stage`].

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use model::Vmid;
use rig::{Admin, ControlPlane, Options, Programs};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use world::proxmox::spec::ClusterSpec;

use crate::stage::{Firmware, GATEWAY, Stage};

/// The VMID of the pool's only slot.
pub const VMID: Vmid = Vmid(9111);
/// Its address.
pub const ADDRESS: &str = "10.77.0.21";
/// How long a Node may be silent. This is shorter than the default, so that the test does not have to wait as
/// long.
const GRACE: Duration = Duration::from_secs(30);
/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(200);
/// A time limit, far longer than any change takes to have its effect.
pub const SOON: Duration = Duration::from_mins(2);

/// One pod that fits only a new node.
pub const WORKLOAD: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: default }
spec:
  replicas: 1
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 2
      containers:
        - name: web
          image: registry.k8s.io/pause:3.10.2
          resources: { requests: { cpu: 500m, memory: 64Mi } }
";

/// All processes, running.
pub struct Scene {
    pub stage: Stage,
    pub admin: Admin,
    _plane: ControlPlane,
    daemon: Child,
    log: PathBuf,
}

impl Scene {
    /// `pool`: settings of the pool, appended to the end of the configuration, which already contains the
    /// pool's size, slot and network.
    pub async fn new(image: &Path, firmware: Firmware, pool: &str) -> Self {
        let stage = Stage::new(image, firmware).await;
        let programs = Programs::get().await.unwrap().unwrap();
        let folder = stage.folder.path().join("plane");
        std::fs::create_dir(&folder).unwrap();
        let address = GATEWAY.parse().unwrap();
        let options = Options { address, node_monitor_grace: GRACE, ..Options::default() };
        let plane = ControlPlane::start(programs, &folder, &options).await.unwrap();
        let admin = plane.admin().unwrap();
        admin.apply(include_str!("../../packaging/rbac.yaml")).await.unwrap();
        admin.apply(include_str!("../../packaging/rbac-serving.yaml")).await.unwrap();
        let kubeconfig = admin.kubeconfig_for("pve-autoscaler", "pve-autoscaler").await.unwrap();
        let log = stage.folder.path().join("daemon.log");
        secret(&stage, "kubeconfig", &kubeconfig);
        let daemon = daemon(&stage, pool, &log);
        Self { stage, admin, _plane: plane, daemon, log }
    }

    /// Writes a configuration with these pool settings, and makes the daemon reload it.
    pub fn reload(&self, pool: &str) {
        secret(&self.stage, "config.toml", &configuration(&self.stage, pool));
        let pid = self.daemon.id().unwrap().to_string();
        let sent = std::process::Command::new("kill").args(["-HUP", &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until `look` finds something, and returns it.
    pub async fn until<T>(&self, what: &str, limit: Duration, look: impl AsyncFn() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(
                started.elapsed() < limit,
                "still not true after {limit:?}: {what}; the daemon said:\n{}\nand shows:\n{}\n\
                 the machine's console:\n{}",
                self.said(),
                self.shown(),
                self.stage.hardware.console(VMID.0)
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The output of `status`, or its error.
    fn shown(&self) -> String {
        let mut status = std::process::Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        let asked = status.args(["status", "--socket", &at(&self.stage, "control.sock")]).output().unwrap();
        String::from_utf8_lossy(&asked.stdout).into_owned() + &String::from_utf8_lossy(&asked.stderr)
    }

    /// The pool's Nodes, without the control plane's Node.
    pub async fn nodes(&self) -> Vec<Value> {
        let mut nodes = self.list("/api/v1/nodes").await;
        nodes.retain(|node| node["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("real-")));
        nodes
    }

    pub async fn list(&self, path: &str) -> Vec<Value> {
        self.admin.list(path).await.unwrap()
    }

    /// Returns the pool's Node if its readiness matches `ready`.
    pub async fn node(&self, ready: bool) -> Option<Value> {
        let nodes = self.nodes().await;
        let is = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|one| one["type"] == "Ready" && (one["status"] == "True") == ready)
        };
        nodes.into_iter().find(is)
    }

    pub async fn pod_runs(&self) -> Option<()> {
        let pods = self.list("/api/v1/namespaces/default/pods").await;
        pods.iter().any(|pod| pod["status"]["phase"] == "Running").then_some(())
    }
}

fn at(stage: &Stage, name: &str) -> String {
    stage.folder.path().join(name).display().to_string()
}

fn secret(stage: &Stage, name: &str, text: &str) {
    use std::io::Write as _;
    let path = at(stage, name);
    let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn configuration(stage: &Stage, pool: &str) -> String {
    format!(
        r#"cluster = "real"

[proxmox]
endpoints = ["{url}"]
token_id = "{token}"
token_file = "{token_file}"
ca_file = "{ca}"
resource_pool = "k8s-workers"

[kubernetes]
kubeconfig_file = "{kubeconfig}"
approve_serving_certificates = true

[metrics]
enabled = false

[bootstrap]
method = "kubeadm"
probe_port = 22

[scale_down]
unneeded_time = "3s"
delay_after_add = "1s"

[[pool]]
name = "real"
max = 1
cores = 2
memory = "2GiB"
vmids = "{VMID}"
addresses = "{ADDRESS}"
prefix = 24
gateway = "{GATEWAY}"
bridge = "vmbr0"
{pool}"#,
        url = stage.url,
        token = ClusterSpec::DEMO_TOKEN,
        token_file = at(stage, "pve-token"),
        ca = at(stage, "pve-ca.pem"),
        kubeconfig = at(stage, "kubeconfig"),
    )
}

fn daemon(stage: &Stage, pool: &str, log: &Path) -> Child {
    secret(stage, "pve-token", ClusterSpec::DEMO_SECRET);
    secret(stage, "pve-ca.pem", &stage.tls.ca_pem);
    secret(stage, "config.toml", &configuration(stage, pool));
    let (config, socket) = (at(stage, "config.toml"), at(stage, "control.sock"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    command.args(["run", "--config", &config, "--socket", &socket]);
    command.env_remove("RUST_LOG").env_remove("JOURNAL_STREAM").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(log).unwrap()).kill_on_drop(true).spawn().unwrap()
}
