//! Uses a real Kubernetes as the cluster of a test's `Bench`. This process runs two control planes. Before
//! each test, the control plane that the test uses is cleared. Tests mostly wait, so running two at a time
//! halves the total time without needing more cores.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lab::clusters::{self, Proxmox};
use rig::{Admin, ControlPlane, Guests, Options, Programs};
use serde_json::Value;
use tokio::sync::{MutexGuard, OnceCell};
use tokio::task::JoinHandle;
use world::clock::WorldClock;
use world::guest::control_plane::{ControlPlane as _, JoinRequest};
use world::proxmox::spec::ClusterSpec;

use crate::shared::bench::{Kubernetes, LONG_AGO};

/// The manifest with the rights that the daemon's package grants.
pub const RBAC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/rbac.yaml");
/// The control plane's own Node.
const OWN: &str = "cp1";
/// The interval at which objects are listed.
const LOOK: Duration = Duration::from_millis(150);
/// The objects that are listed: kind and path.
const KINDS: &[(&str, &str)] = &[
    ("Node", "/api/v1/nodes"),
    ("Pod", "/api/v1/namespaces/default/pods"),
    ("ConfigMap", "/api/v1/namespaces/pve-autoscaler/configmaps"),
    ("Secret", "/api/v1/namespaces/kube-system/secrets"),
    ("Lease", "/apis/coordination.k8s.io/v1/namespaces/pve-autoscaler/leases"),
];

type Seen = Arc<Mutex<BTreeMap<&'static str, Vec<Value>>>>;

/// A control plane of this process, which is started when it is first needed, and the lock by which tests
/// take turns.
struct Place {
    site: OnceCell<Option<Site>>,
    turn: tokio::sync::Mutex<()>,
}

static PLACES: [Place; 2] = [const { Place::new() }; 2];

/// A running control plane with its folder.
struct Site {
    plane: ControlPlane,
    /// The machine of the control plane's own Node.
    _own: Arc<Guests>,
    /// Removes the folder when this process has ended.
    _janitor: Child,
}

/// A control plane during one test's turn.
pub struct Real {
    /// An administrator's access.
    pub admin: Admin,
    /// The control plane.
    pub plane: &'static ControlPlane,
    /// The daemon's token.
    token: String,
    seen: Seen,
    looking: JoinHandle<()>,
    /// Runs the guests' kubelets.
    pub guests: Arc<Guests>,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    const fn new() -> Self {
        Self { site: OnceCell::const_new(), turn: tokio::sync::Mutex::const_new(()) }
    }

    /// Waits until one of the control planes is free, and returns it together with its lock.
    async fn free() -> (&'static Self, MutexGuard<'static, ()>) {
        let [one, other] = &PLACES;
        tokio::select! {
            biased;
            turn = one.turn.lock() => (one, turn),
            turn = other.turn.lock() => (other, turn),
        }
    }

    async fn site(&'static self) -> Option<&'static Site> {
        self.site.get_or_init(Site::start).await.as_ref()
    }
}

impl Site {
    /// Starts a control plane. If its programs are not available, prints that the test is skipped and returns
    /// `None`.
    async fn start() -> Option<Self> {
        let programs = match Programs::get().await.unwrap() {
            Ok(programs) => programs,
            Err(missing) => {
                println!("skipped: {missing}");
                return None;
            }
        };
        // The folder contains the kubelets' sockets, whose paths may be at most 108 bytes long.
        let folder = tempfile::Builder::new().prefix("rig-").tempdir_in("/tmp").unwrap().keep();
        let janitor = janitor(&folder);
        // By default, a silent Node becomes unready after 50 s, which is too long for a test. Kubelets report
        // every 10 s.
        let options =
            Options { node_monitor_grace: Duration::from_secs(20), pod_groups: true, ..Options::default() };
        let plane = ControlPlane::start(programs, &folder, &options).await;
        let plane = plane.unwrap_or_else(|error| {
            keep(&folder);
            panic!("{error:#}")
        });
        let own = Guests::new(plane.programs().clone(), folder.join("own"));
        let joined = own_node(&plane, &own).await;
        joined.unwrap_or_else(|error| {
            keep(&folder);
            panic!("{error:#}")
        });
        Some(Self { plane, _own: own, _janitor: janitor })
    }
}

/// Lets the Node `cp1` join, because every cluster has a Node for its control plane. If all Nodes of a
/// cluster are silent, the node controller assumes that it cannot reach them, and evicts nothing.
async fn own_node(plane: &ControlPlane, guests: &Guests) -> anyhow::Result<()> {
    let admin = plane.admin()?;
    let token = admin.token().await?;
    let taint = "{ key: node-role.kubernetes.io/control-plane, effect: NoSchedule }";
    let configuration = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n\
         discovery: {{ bootstrapToken: {{ apiServerEndpoint: \"{}\", token: {token}, unsafeSkipCAVerification: true }} }}\n\
         nodeRegistration: {{ name: {OWN}, taints: [{taint}] }}\n",
        plane.endpoint()
    );
    let request = JoinRequest {
        system_uuid: "00000000-0000-4000-8000-000000000001".to_owned(),
        api_server: plane.endpoint().to_owned(),
        token,
        ca_cert_hashes: Vec::new(),
        node_name: OWN.to_owned(),
        addresses: Vec::new(),
        cpus: 4,
        memory: 8 << 30,
        disk: 20 << 30,
        node_labels: Vec::new(),
        taints: Vec::new(),
        provider_id: None,
        max_pods: None,
        kubelet_patch: None,
        configuration,
    };
    guests.join(request).await.map_err(|failure| anyhow::anyhow!("cp1 cannot join: {}", failure.stderr))?;
    admin.kubectl(&["wait", "--for=create", "--timeout=60s", &format!("node/{OWN}")], "").await?;
    admin.kubectl(&["label", "node", OWN, "node-role.kubernetes.io/control-plane="], "").await?;
    admin.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", &format!("node/{OWN}")], "").await?;
    Ok(())
}

/// A shell that removes the folder once this process has ended, unless a test has failed.
fn janitor(folder: &Path) -> Child {
    let script = "read _; sleep 1; [ -e \"$0/keep\" ] || rm -rf \"$0\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().unwrap()
}

fn keep(folder: &Path) {
    // The error is ignored, because the test has failed already.
    let _ = fs::write(folder.join("keep"), "");
    println!("logs of the control plane and of the kubelets: {}", folder.display());
}

impl Real {
    /// Waits for a free control plane, and removes what the previous test left behind. Returns `None` if no
    /// control plane can run on this computer.
    pub async fn turn(cluster: ClusterSpec, directory: &Path) -> Option<(Proxmox, Self)> {
        let (place, turn) = Place::free().await;
        let site = place.site().await?;
        let plane = &site.plane;
        let admin = plane.admin().unwrap();
        // If a test has failed, the API server may still be stopped.
        plane.start_api_server().await.unwrap();
        clear(&admin).await;
        admin.kubectl(&["apply", "-f", RBAC], "").await.unwrap();
        let kubeconfig = admin.kubeconfig_for("pve-autoscaler", "pve-autoscaler").await.unwrap();
        let token =
            kubeconfig.split_once("token: ").and_then(|(_, rest)| rest.split_once(' ')).unwrap().0.to_owned();
        let disks = tempfile::Builder::new().prefix("m").tempdir_in(plane.directory()).unwrap().keep();
        let guests = Guests::new(plane.programs().clone(), disks);
        let clock = WorldClock::starting_at(clusters::now());
        let proxmox = Proxmox::start(directory, cluster, clock, guests.clone()).await.unwrap();
        clusters::write(directory, "kubeconfig", &kubeconfig).unwrap();
        let seen = Seen::default();
        look(&admin, &seen).await.unwrap();
        let looking = tokio::spawn(keep_looking(admin.clone(), seen.clone()));
        Some((proxmox, Self { admin, plane, token, seen, looking, guests, _turn: turn }))
    }
}

impl Real {
    /// Replaces an object.
    pub async fn replace(&self, object: &Value) {
        self.admin.kubectl(&["replace", "-f", "-"], &object.to_string()).await.unwrap();
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.looking.abort();
        if std::thread::panicking() {
            keep(self.plane.directory());
        }
    }
}

impl Kubernetes for Real {
    const LONG: Duration = Duration::from_mins(3);

    async fn start(directory: &Path, cluster: ClusterSpec) -> Option<(Proxmox, Self)> {
        Self::turn(cluster, directory).await
    }

    async fn apply(&self, object: &Value) {
        self.admin.apply(&object.to_string()).await.unwrap();
        look(&self.admin, &self.seen).await.unwrap();
    }

    async fn scale(&self, name: &str, replicas: u32) {
        let replicas = format!("--replicas={replicas}");
        self.admin.kubectl(&["-n", "default", "scale", "deployment", name, &replicas], "").await.unwrap();
    }

    async fn set_away(&self, away: bool) {
        if away {
            self.plane.kill_api_server();
        } else {
            self.plane.start_api_server().await.unwrap();
        }
    }

    async fn replace_authority(&self, (pem, _): (String, String)) -> (String, String) {
        let map = "/api/v1/namespaces/kube-public/configmaps";
        let maps = self.admin.list(map).await.unwrap();
        let info = maps.iter().find(|map| map["metadata"]["name"] == "cluster-info").unwrap();
        let text = info["data"]["kubeconfig"].as_str().unwrap();
        let (before, rest) = text.split_once("certificate-authority-data: ").unwrap();
        let (former, after) = rest.split_once('\n').unwrap();
        let changed = format!("{before}certificate-authority-data: {}\n{after}", STANDARD.encode(pem));
        let patch = serde_json::json!({ "data": { "kubeconfig": changed } }).to_string();
        let name = ["-n", "kube-public", "patch", "configmap", "cluster-info", "-p", &patch];
        self.admin.kubectl(&name, "").await.unwrap();
        // The returned hash is empty, because kubeadm calculates the hash from the CA.
        (String::from_utf8(STANDARD.decode(former.trim()).unwrap()).unwrap(), String::new())
    }

    async fn expire(&self, secret: &str) {
        let patch = format!("{{\"data\":{{\"expiration\":\"{LONG_AGO}\"}}}}");
        self.admin
            .kubectl(&["-n", "kube-system", "patch", "secret", secret, "-p", &patch], "")
            .await
            .unwrap();
    }

    fn list(&self, kind: &str) -> Vec<Value> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[kind].clone()
    }

    fn other_nodes(&self) -> &[&str] {
        &[OWN]
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.token.clone()]
    }
}

async fn keep_looking(admin: Admin, seen: Seen) {
    loop {
        tokio::time::sleep(LOOK).await;
        // The error is ignored: the next read may succeed, and every wait has a time limit.
        let _ = look(&admin, &seen).await;
    }
}

async fn look(admin: &Admin, seen: &Seen) -> anyhow::Result<()> {
    let mut now = BTreeMap::new();
    for (kind, path) in KINDS {
        now.insert(*kind, admin.list(path).await?);
    }
    *seen.lock().unwrap_or_else(PoisonError::into_inner) = now;
    Ok(())
}

/// Removes all objects that a test may have left. The test's machines are already gone.
async fn clear(admin: &Admin) {
    let all = |namespace: &'static str, kinds: &'static str| {
        ["-n", namespace, "delete", kinds, "--all", "--wait=false", "--ignore-not-found"]
    };
    let by_force =
        ["-n", "default", "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false"];
    let tokens =
        ["-n", "kube-system", "delete", "secrets", "--field-selector=type=bootstrap.kubernetes.io/token"];
    let ours = ["-n", "pve-autoscaler", "delete", "configmaps,leases", "--all", "--ignore-not-found"];
    let names = ["capacitybuffers.autoscaling.x-k8s.io", "provisioningrequests.autoscaling.x-k8s.io"];
    let definition = [&["delete", "crd", "--ignore-not-found"], &names[..]].concat();
    admin.kubectl(&definition, "").await.unwrap();
    let groups = all("default", "podgroups.v1beta1.scheduling.k8s.io");
    if admin.get("/apis/scheduling.k8s.io/v1beta1").await.is_ok() {
        admin.kubectl(&groups, "").await.unwrap();
    }
    for _ in 0..20 {
        admin.kubectl(&all("default", "deployments,statefulsets,poddisruptionbudgets"), "").await.unwrap();
        admin.kubectl(&["delete", "nodes", "-l", "pve-autoscaler/pool", "--wait=false"], "").await.unwrap();
        admin.kubectl(&by_force, "").await.unwrap();
        admin.kubectl(&tokens, "").await.unwrap();
        admin.kubectl(&ours, "").await.unwrap();
        let pods = admin.list("/api/v1/namespaces/default/pods").await.unwrap();
        let sets = admin.list("/apis/apps/v1/namespaces/default/replicasets").await.unwrap();
        let nodes = admin.list("/api/v1/nodes?labelSelector=pve-autoscaler%2Fpool").await.unwrap();
        if pods.is_empty() && sets.is_empty() && nodes.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("the cluster cannot be cleared");
}
