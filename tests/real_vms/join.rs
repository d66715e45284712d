//! The daemon as a process, a real control plane and a real machine: from a pod that cannot be scheduled to a node that runs it, and
//! back to nothing.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pve_autoscaler::bootstrap::{self, Act, JoinEnd, Settle};
use rig::{Admin, ControlPlane, Options, Programs};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use world::proxmox::spec::ClusterSpec;

use crate::place;
use crate::stage::{BOOT, GATEWAY, Stage};

/// The only slot of the pool.
const VMID: u32 = 9111;
/// How long a Node may say nothing. Less than by default, so that the test need not wait as long.
const GRACE: Duration = Duration::from_secs(30);
/// Far more than what follows from a change takes.
const SOON: Duration = Duration::from_mins(2);

const WORKLOAD: &str = r"
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

/// Everything, up.
struct Scene {
    stage: Stage,
    admin: Admin,
    _plane: ControlPlane,
    _daemon: Child,
    log: PathBuf,
}

impl Scene {
    async fn new(image: &Path) -> Self {
        let stage = Stage::new(image).await;
        let programs = Programs::get().await.unwrap().unwrap();
        let folder = stage.folder.path().join("plane");
        std::fs::create_dir(&folder).unwrap();
        let options = Options { address: GATEWAY.parse().unwrap(), node_monitor_grace: GRACE, calls: None };
        let plane = ControlPlane::start(programs, &folder, &options).await.unwrap();
        let admin = plane.admin().unwrap();
        admin.apply(include_str!("../../packaging/rbac.yaml")).await.unwrap();
        let kubeconfig = admin.kubeconfig_for("pve-autoscaler", "pve-autoscaler").await.unwrap();
        let log = stage.folder.path().join("daemon.log");
        let daemon = daemon(&stage, &kubeconfig, &log);
        Self { stage, admin, _plane: plane, _daemon: daemon, log }
    }

    /// Waits until something is so, and returns it.
    async fn until<T>(&self, what: &str, limit: Duration, look: impl AsyncFn() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(
                started.elapsed() < limit,
                "waited {limit:?} until {what}; the daemon said:\n{}\nthe machine's console:\n{}",
                self.said(),
                self.stage.hardware.console(VMID)
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The Nodes of the pool: the control plane may have one of its own.
    async fn nodes(&self) -> Vec<Value> {
        let mut nodes = self.list("/api/v1/nodes").await;
        nodes.retain(|node| node["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("real-")));
        nodes
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        self.admin.list(path).await.unwrap()
    }

    /// The pool's Node, where its readiness is this.
    async fn node(&self, ready: bool) -> Option<Value> {
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

    async fn pod_runs(&self) -> Option<()> {
        let pods = self.list("/api/v1/namespaces/default/pods").await;
        pods.iter().any(|pod| pod["status"]["phase"] == "Running").then_some(())
    }
}

fn daemon(stage: &Stage, kubeconfig: &str, log: &Path) -> Child {
    let at = |name: &str| stage.folder.path().join(name).display().to_string();
    let secret = |name: &str, text: &str| {
        use std::io::Write as _;
        let mut file =
            File::options().create(true).write(true).truncate(true).mode(0o600).open(at(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    secret("kubeconfig", kubeconfig);
    secret("pve-token", ClusterSpec::DEMO_SECRET);
    secret("pve-ca.pem", &stage.tls.ca_pem);
    let config = format!(
        r#"cluster = "real"

[proxmox]
endpoints = ["{url}"]
token_id = "{token}"
token_file = "{token_file}"
ca_file = "{ca}"
resource_pool = "k8s-workers"

[kubernetes]
kubeconfig_file = "{kubeconfig}"

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
template = "k8s-worker-drive"
vmids = "{VMID}"
addresses = "10.77.0.21"
prefix = 24
gateway = "{GATEWAY}"
bridge = "vmbr0"
"#,
        url = stage.url,
        token = ClusterSpec::DEMO_TOKEN,
        token_file = at("pve-token"),
        ca = at("pve-ca.pem"),
        kubeconfig = at("kubeconfig"),
    );
    secret("config.toml", &config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    command.args(["run", "--config", &at("config.toml"), "--socket", &at("control.sock")]);
    command.env_remove("RUST_LOG").env_remove("JOURNAL_STREAM").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(log).unwrap()).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "in a namespace of its own only"]
async fn a_pod_gets_a_real_node_and_the_node_goes_with_it() {
    let Some(image) = place::image() else { return };
    let scene = Scene::new(&image).await;
    scene.admin.apply(WORKLOAD).await.unwrap();
    let node = scene.until("a real machine is a ready Node", BOOT * 2, async || scene.node(true).await).await;
    let config = scene.stage.pve.vm(VMID).unwrap().config;
    let uuid = config["smbios1"].trim_start_matches("uuid=").to_lowercase();
    let seen = node["status"]["nodeInfo"]["systemUUID"].as_str().unwrap().to_lowercase();
    assert_eq!(seen, uuid, "by this the daemon knows which VM a Node is");
    assert_eq!(node["metadata"]["name"], *config["name"]);
    scene.until("the pod runs on it", SOON, async || scene.pod_runs().await).await;
    let cloud = scene.stage.run(VMID, "cat /run/cloud-init/cloud-id").await.stdout;
    assert_eq!(cloud.trim(), "configdrive", "the other layout of the drive works, too");
    a_guest_that_has_joined_does_not_join_again(&scene).await;
    a_killed_machine_is_not_ready_until_it_runs_again(&scene).await;
    everything_goes_with_the_workload(&scene).await;
}

async fn a_guest_that_has_joined_does_not_join_again(scene: &Scene) {
    let configuration = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    \
                         apiServerEndpoint: 10.77.0.1:6443\n    token: abcdef.0123456789abcdef\n    unsafeSkipCAVerification: true\n";
    let started = Instant::now();
    let join = ["/bin/sh", "-c", "kubeadm join --config /dev/stdin"];
    let again = scene.stage.exec(VMID, &join, Some(configuration)).await;
    assert_eq!(again.exit_code, Some(1), "{again:?}");
    let said = again.stdout + &again.stderr;
    assert!(said.contains("/etc/kubernetes/kubelet.conf already exists"), "{said}");
    assert!(started.elapsed() < Duration::from_mins(1), "it is refused before anybody is asked");
    // What the daemon runs looks first.
    let settle = Settle {
        settle: Duration::from_mins(1),
        join: Duration::from_mins(1),
        accept_degraded: true,
        clock: None,
    };
    let command = bootstrap::command("another", &settle, &Act::Kubeadm);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let end = scene.stage.exec(VMID, &words, Some(configuration)).await;
    let read = bootstrap::read(&Act::Kubeadm, None, &end);
    assert_eq!(read, JoinEnd::Joined { degraded: false });
}

/// The Node object of a machine that lost its power stays, and says so after the grace period.
async fn a_killed_machine_is_not_ready_until_it_runs_again(scene: &Scene) {
    let before = scene.node(true).await.unwrap()["metadata"]["uid"].clone();
    scene.stage.hardware.kill(VMID);
    scene.until("its VM is off", SOON, async || (!scene.stage.pve.vm(VMID)?.running).then_some(())).await;
    let lost = scene.until("its Node is not ready", SOON, async || scene.node(false).await).await;
    let taints = lost["spec"]["taints"].to_string();
    assert!(taints.contains("node.kubernetes.io/unreachable"), "{taints}");
    scene.stage.pve.start_by_hand(VMID);
    let back = scene.until("its Node is ready again", BOOT, async || scene.node(true).await).await;
    assert_eq!(back["metadata"]["uid"], before, "it is the same Node");
}

async fn everything_goes_with_the_workload(scene: &Scene) {
    scene.admin.kubectl(&["delete", "deployment", "web"], "").await.unwrap();
    let gone = async || {
        let nodes = scene.nodes().await;
        (nodes.is_empty() && scene.stage.pve.vm(VMID).is_none()).then_some(())
    };
    scene.until("the Node and its VM are gone", SOON * 3, gone).await;
    let left = async || {
        let maps = scene.list("/api/v1/namespaces/pve-autoscaler/configmaps").await;
        let secrets = scene.list("/api/v1/namespaces/kube-system/secrets").await;
        let ours = |one: &Value| {
            let name = one["metadata"]["name"].as_str().unwrap_or_default();
            let described = one["data"].get("description").is_some();
            name.starts_with("machine-") || name.starts_with("bootstrap-token-") && described
        };
        (!maps.iter().chain(&secrets).any(ours)).then_some(())
    };
    scene.until("its record and its token are gone", SOON, left).await;
    let exits = scene.stage.pve.task_exits();
    let shut_down = exits.iter().filter(|(upid, _)| upid.contains(":qmshutdown:"));
    assert!(
        shut_down.clone().count() > 0 && shut_down.clone().all(|(_, exit)| exit.as_deref() == Some("OK")),
        "{exits:?}"
    );
    assert_eq!(scene.stage.pve.volumes_of(VMID), Vec::<String>::new());
    let said = scene.said();
    assert!(!said.contains(ClusterSpec::DEMO_SECRET), "the log keeps the token to itself");
}
