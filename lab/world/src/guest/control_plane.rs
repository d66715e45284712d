//! The requests that a guest's kubeadm and kubelet make to a control plane. The Proxmox VE side makes the
//! calls, and the Kubernetes side implements them.

use std::time::Duration;

use futures::future::BoxFuture;

/// One `kubeadm join` as it arrives at the control plane.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The SMBIOS uuid of the guest's machine, which becomes the Node's `systemUUID`.
    pub system_uuid: String,
    /// `host:port` of the API server that the join configuration names.
    pub api_server: String,
    /// The bootstrap token, `id.secret`.
    pub token: String,
    /// Pinned CA public keys, `sha256:<hex>`. Empty means that the join asked to skip the verification.
    pub ca_cert_hashes: Vec<String>,
    /// The name under which the kubelet registers.
    pub node_name: String,
    /// The guest's addresses. The first one is its `InternalIP`.
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
    /// The patch that the join applies to the cluster's kubelet configuration, as a JSON object. `None` if
    /// there is no patch.
    pub kubelet_patch: Option<String>,
    /// The JoinConfiguration as kubeadm received it, for a control plane that parses it with kubeadm's own
    /// code.
    pub configuration: String,
}

/// A K3s agent's request to join its server.
#[derive(Clone, Debug)]
pub struct K3sRequest {
    /// The agent's machine. Its bootstrap token and CA hashes are empty, because only kubeadm uses them.
    pub machine: JoinRequest,
    /// The token of the server, or the token for agents.
    pub token: String,
}

/// How a join failed, as kubeadm reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinFailure {
    /// What kubeadm writes to standard error.
    pub stderr: String,
    /// Exit status: 1 in all observed cases.
    pub exit_code: i32,
    /// The time after which kubeadm gives up.
    pub after: Duration,
}

/// The control plane as a guest sees it.
pub trait ControlPlane: Send + Sync {
    /// Performs a kubelet's TLS bootstrap: checks the address, token and CA hash, and starts a kubelet for
    /// the node on success. The Node object may appear a moment after the answer.
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>>;

    /// Lets a K3s agent join: checks its address and token, and starts a kubelet for the node on success. On
    /// failure, the agent logs the error and tries again.
    fn join_k3s(&self, request: K3sRequest) -> BoxFuture<'_, Result<(), String>> {
        let server = request.machine.api_server;
        Box::pin(
            async move { Err(format!("failed to get CA certs: https://{server}/cacerts: 404 Not Found")) },
        )
    }

    /// Reports that the guest with this system uuid lost its power or was shut down. Its kubelet no longer
    /// sends anything.
    fn power_lost(&self, system_uuid: &str);

    /// Reports that the kubelet of the guest with this system uuid was restarted, on a machine with this many
    /// CPUs and bytes of memory.
    fn kubelet_restarted(&self, _system_uuid: &str, _cpus: u32, _memory: u64) {}

    /// Reports that the guest with the system uuid `_old`, which is off, will boot with the uuid `_new`. Its
    /// kubelet keeps its name.
    fn uuid_changed(&self, _old: &str, _new: &str) {}

    /// Reports that the guest with this system uuid, which had joined before, has booted again. Its kubelet
    /// keeps its name.
    fn booted_again(&self, system_uuid: &str);
}

/// A stand-in for the control plane of guests that have none, or that reach their control plane without the
/// lab's help.
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
