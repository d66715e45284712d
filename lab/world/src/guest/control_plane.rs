//! What a guest's kubeadm and kubelet ask of a control plane. The Proxmox side calls it, the Kubernetes side
//! answers.

use std::time::Duration;

use futures::future::BoxFuture;

/// One `kubeadm join` as it arrives at the control plane.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The guest's machine: its SMBIOS uuid, which becomes the Node's `systemUUID`.
    pub system_uuid: String,
    /// `host:port` of the API server that the join configuration names.
    pub api_server: String,
    /// The bootstrap token, `id.secret`.
    pub token: String,
    /// Pinned CA public keys, `sha256:<hex>`. Empty means that the join asked to skip the verification.
    pub ca_cert_hashes: Vec<String>,
    /// The name under which the kubelet registers.
    pub node_name: String,
    /// The guest's addresses, the first is its `InternalIP`.
    pub addresses: Vec<String>,
    /// vCPUs of the machine.
    pub cpus: u32,
    /// Memory of the machine in bytes, as the guest's kernel sees it.
    pub memory: u64,
    /// Size of the guest's root file system in bytes.
    pub disk: u64,
    /// `--node-labels` of the kubelet, already split.
    pub node_labels: Vec<(String, String)>,
    /// Taints of the join configuration as `key=value:Effect`.
    pub taints: Vec<String>,
    /// `--provider-id`, if given.
    pub provider_id: Option<String>,
    /// `--max-pods`, if given.
    pub max_pods: Option<u32>,
    /// What the join lays over the cluster's configuration of kubelets: a JSON object, if there is any.
    pub kubelet_patch: Option<String>,
    /// The JoinConfiguration as kubeadm got it, for a control plane that reads it with kubeadm's own code.
    pub configuration: String,
}

/// An agent of K3s at its server's door.
#[derive(Clone, Debug)]
pub struct K3sRequest {
    /// Its machine; the bootstrap token and the CA's hash are kubeadm's, and empty.
    pub machine: JoinRequest,
    /// The server's token, or the one for agents.
    pub token: String,
}

/// How a join ended, in kubeadm's own terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinFailure {
    /// What kubeadm writes to standard error.
    pub stderr: String,
    /// Exit status, 1 in all cases that were seen.
    pub exit_code: i32,
    /// How long kubeadm takes until it gives up.
    pub after: Duration,
}

/// The control plane as a guest sees it.
pub trait ControlPlane: Send + Sync {
    /// TLS bootstrap of a kubelet: checks address, token, and CA hash, and starts a kubelet for the node on
    /// success. The Node object may appear a moment after the answer.
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>>;

    /// An agent of K3s asks to be let in: checks address and token, and starts a kubelet for the node on
    /// success. What is said otherwise stands in the agent's log, and it asks again.
    fn join_k3s(&self, request: K3sRequest) -> BoxFuture<'_, Result<(), String>> {
        let server = request.machine.api_server;
        Box::pin(
            async move { Err(format!("failed to get CA certs: https://{server}/cacerts: 404 Not Found")) },
        )
    }

    /// The guest with this system uuid lost its power (or was shut down): its kubelet reports nothing more.
    fn power_lost(&self, system_uuid: &str);

    /// The kubelet of the guest with this system uuid was started again, on a machine with this many CPUs and
    /// bytes of memory.
    fn kubelet_restarted(&self, _system_uuid: &str, _cpus: u32, _memory: u64) {}

    /// The guest with the first of these system uuids, which is off, will boot with the other one: its
    /// kubelet has the same name.
    fn uuid_changed(&self, _old: &str, _new: &str) {}

    /// The guest with this system uuid booted again after it had joined: its kubelet goes on under its old
    /// name.
    fn booted_again(&self, system_uuid: &str);
}

/// The control plane of guests that have none, or that reach theirs by themselves.
#[derive(Clone, Copy, Debug)]
pub struct NoControlPlane;

impl ControlPlane for NoControlPlane {
    fn join(&self, _: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>> {
        let stderr = "error execution phase preflight: couldn't validate the identity of the API Server\n";
        let failure = JoinFailure { stderr: stderr.to_owned(), exit_code: 1, after: Duration::from_mins(5) };
        Box::pin(async move { Err(failure) })
    }

    fn power_lost(&self, _: &str) {}

    fn booted_again(&self, _: &str) {}
}
