//! The initial state of a cluster, and how long its operations take.

use std::time::Duration;

use serde_json::Value;

/// The initial state of a cluster.
#[derive(Clone, Debug)]
pub struct KubeSpec {
    /// CA certificate as PEM.
    pub ca_pem: String,
    /// The CA's public key as kubeadm pins it: `sha256:<hex>`.
    pub ca_hash: String,
    /// Bearer token of the administrator.
    pub admin_token: String,
    /// The API server's address as `host:port`. cluster-info contains it, and a join must use it.
    pub endpoint: String,
    /// The token of a K3s server. `None` if kubeadm has set up the control plane.
    pub k3s_token: Option<String>,
    /// Such as `v1.36.2`.
    pub version: String,
    /// How long simulated operations take.
    pub timings: KubeTimings,
    /// Nodes that exist from the start, with running kubelets.
    pub nodes: Vec<NodeSpec>,
    /// Whether PodGroups are supported: the feature gate `GenericWorkload` is on, and
    /// `scheduling.k8s.io/v1beta1` is served.
    pub pod_groups: bool,
    /// Additional users with bearer tokens and restricted rights. Bindings of Roles and ClusterRoles extend
    /// these rights.
    pub service_accounts: Vec<ServiceAccountSpec>,
    /// Other objects that exist from the start, such as CustomResourceDefinitions.
    pub objects: Vec<Value>,
}

/// A node and its machine.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// SMBIOS uuid of its machine.
    pub system_uuid: String,
    /// Its `InternalIP`.
    pub address: String,
    /// CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Size of its root file system in bytes.
    pub disk: u64,
    /// Labels in addition to those that the kubelet sets.
    pub labels: Vec<(String, String)>,
    /// Taints as `key=value:Effect`.
    pub taints: Vec<String>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
}

/// A user with restricted rights.
#[derive(Clone, Debug)]
pub struct ServiceAccountSpec {
    /// The user's name, such as `system:serviceaccount:kube-system:autoscaler`.
    pub name: String,
    /// The bearer token.
    pub token: String,
    /// What the user may do.
    pub rules: Vec<Rule>,
}

/// One RBAC rule. In the verbs, the groups and the resources, `*` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Such as `get`.
    pub verbs: Vec<String>,
    /// API groups. The core group is the empty string.
    pub groups: Vec<String>,
    /// Resources, such as `nodes` or `pods/eviction`.
    pub resources: Vec<String>,
    /// The namespace to which the rule is limited. `None` if the rule applies everywhere.
    pub namespace: Option<String>,
    /// The names of the objects to which the rule applies. If empty, it applies to all objects.
    pub names: Vec<String>,
}

impl Rule {
    /// A rule from lists of words, e.g. `Rule::new("get list", "", "nodes pods", None)`.
    pub fn new(verbs: &str, group: &str, resources: &str, namespace: Option<&str>) -> Self {
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        Self {
            verbs: words(verbs),
            groups: vec![group.into()],
            resources: words(resources),
            namespace: namespace.map(String::from),
            names: Vec::new(),
        }
    }
}

/// How long simulated operations take.
#[derive(Clone, Debug)]
pub struct KubeTimings {
    /// How long a plain request takes.
    pub request: Duration,
    /// The time from a change that affects the scheduler to the scheduler's next pass.
    pub scheduler: Duration,
    /// The time from a change to the reaction of the workload controllers.
    pub controller: Duration,
    /// The time from a change to the status update of the disruption budgets in the same namespace.
    pub budget: Duration,
    /// The time from a change to a Node to the update of its taints.
    pub node_taints: Duration,
    /// The time from a change to the token Secrets to the update of the signatures in cluster-info.
    pub signer: Duration,
    /// The time from the binding of a pod to the start of its containers.
    pub pod_start: Duration,
    /// The time from the start of a pod's containers until the pod is Ready.
    pub pod_ready: Duration,
    /// How long a pod's containers take to end. The pod's grace period is the upper limit.
    pub pod_stop: Duration,
    /// How long the containers of a Job's pod run.
    pub job_run: Duration,
    /// The time from a successful join to the registration of the Node.
    pub register: Duration,
    /// The time from the registration of a Node until it is Ready.
    pub ready: Duration,
    /// The time from the registration of a Node to the creation of its Lease.
    pub lease: Duration,
    /// The interval of a kubelet's heartbeats.
    pub heartbeat: Duration,
    /// The time from a kubelet's restart, such as after a reboot of its machine, to its first report.
    pub kubelet_restart: Duration,
    /// How long a kubelet may be silent before its Node becomes `Unknown`.
    pub monitor_grace: Duration,
    /// How long pods outlive their Node.
    pub pod_gc: Duration,
}

impl Default for KubeTimings {
    /// The durations that were recorded with Kubernetes 1.36.2. Pods start as fast as on real hardware.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            request: ms(2),
            scheduler: ms(5),
            controller: ms(5),
            budget: ms(2),
            node_taints: ms(7),
            signer: ms(10),
            pod_start: ms(1200),
            pod_ready: ms(300),
            pod_stop: ms(700),
            job_run: ms(5000),
            register: ms(900),
            ready: ms(300),
            lease: ms(9000),
            heartbeat: ms(10_000),
            kubelet_restart: ms(1600),
            monitor_grace: ms(47_000),
            pod_gc: ms(44_000),
        }
    }
}

impl KubeSpec {
    /// The demo cluster's administrator token.
    pub const DEMO_ADMIN_TOKEN: &str = "demo-admin-token";

    /// Returns the spec of a cluster with a single control-plane node. The CA is empty. Set it to the CA of
    /// the server that serves the cluster.
    pub fn demo() -> Self {
        Self {
            ca_pem: String::new(),
            ca_hash: format!("sha256:{}", "0".repeat(64)),
            admin_token: Self::DEMO_ADMIN_TOKEN.into(),
            endpoint: "127.0.0.1:6443".into(),
            k3s_token: None,
            version: "v1.36.2".into(),
            timings: KubeTimings::default(),
            nodes: vec![NodeSpec::control_plane("cp1")],
            pod_groups: false,
            service_accounts: Vec::new(),
            objects: Vec::new(),
        }
    }
}

impl NodeSpec {
    const GIB: u64 = 1 << 30;

    /// Returns a worker with this many CPUs and this much memory in GiB.
    pub fn worker(name: &str, cpus: u32, memory_gib: u64) -> Self {
        let digits: u64 = name.bytes().map(u64::from).sum();
        Self {
            name: name.into(),
            system_uuid: format!("00000000-0000-4000-9000-{digits:012}"),
            address: format!("10.10.10.{}", 200 + digits % 50),
            cpus,
            memory: memory_gib * Self::GIB,
            disk: 20 * Self::GIB,
            labels: Vec::new(),
            taints: Vec::new(),
            provider_id: None,
        }
    }

    /// A control-plane node with its label and taint.
    pub fn control_plane(name: &str) -> Self {
        let mut node = Self::worker(name, 4, 8);
        node.labels = vec![("node-role.kubernetes.io/control-plane".into(), String::new())];
        node.taints = vec!["node-role.kubernetes.io/control-plane=:NoSchedule".into()];
        node
    }
}
