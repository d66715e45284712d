//! Several Kubernetes clusters whose nodes are VMs of one Proxmox VE.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use world::guest::control_plane::{ControlPlane, JoinFailure, JoinRequest, K3sRequest};
use world::kubernetes::Kube;

/// The control planes of all clusters. A guest joins the control plane that has its token. Clones of this
/// value share the control planes.
#[derive(Clone, Debug, Default)]
pub struct Kubes(Arc<Mutex<Vec<Kube>>>);

impl Kubes {
    /// Adds a control plane.
    pub fn add(&self, kube: &Kube) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(kube.clone());
    }

    fn all(&self) -> Vec<Kube> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The control plane that has this bootstrap token. If none has it, returns the first one, which then
    /// reports what is wrong with the token.
    fn of_token(&self, token: &str) -> Option<Kube> {
        let secret = format!("bootstrap-token-{}", token.split('.').next().unwrap_or_default());
        let all = self.all();
        let has = |kube: &&Kube| {
            all.len() > 1 && kube.list("Secret").iter().any(|one| one["metadata"]["name"] == secret.as_str())
        };
        all.iter().find(has).or(all.first()).cloned()
    }
}

impl ControlPlane for Kubes {
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>> {
        match self.of_token(&request.token) {
            Some(kube) => Box::pin(async move { kube.join(request).await }),
            None => world::guest::control_plane::NoControlPlane.join(request),
        }
    }

    fn join_k3s(&self, request: K3sRequest) -> BoxFuture<'_, Result<(), String>> {
        match self.all().first().cloned() {
            Some(kube) => Box::pin(async move { kube.join_k3s(request).await }),
            None => world::guest::control_plane::NoControlPlane.join_k3s(request),
        }
    }

    fn power_lost(&self, system_uuid: &str) {
        self.all().iter().for_each(|kube| kube.power_lost(system_uuid));
    }

    fn kubelet_restarted(&self, system_uuid: &str, cpus: u32, memory: u64) {
        self.all().iter().for_each(|kube| kube.kubelet_restarted(system_uuid, cpus, memory));
    }

    fn uuid_changed(&self, old: &str, new: &str) {
        self.all().iter().for_each(|kube| kube.uuid_changed(old, new));
    }

    fn booted_again(&self, system_uuid: &str) {
        self.all().iter().for_each(|kube| kube.booted_again(system_uuid));
    }
}
