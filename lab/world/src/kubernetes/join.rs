//! The control plane's side of joins by kubeadm and by K3s agents. Also handles power losses and reboots of
//! the machines that have joined.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::{
    Kube,
    kinds::NODE,
    object,
    spec::NodeSpec,
    state::{State, Work},
};
use crate::guest::control_plane::{ControlPlane, JoinFailure, JoinRequest, K3sRequest};

/// The interval at which kubeadm retries a join after a temporary failure.
const ATTEMPTS: Duration = Duration::from_secs(5);
/// How long kubeadm retries before it gives up.
const PATIENCE: Duration = Duration::from_secs(302);
/// How long a join with a wrong CA hash takes to fail.
const WRONG_HASH: Duration = Duration::from_millis(1500);
/// How long a join takes to fail if a Ready Node with the same name exists.
const NAME_TAKEN: Duration = Duration::from_millis(1500);
/// The default number of pods that a kubelet accepts.
const MAX_PODS: u32 = 110;

/// Why a join cannot proceed.
enum Obstacle {
    /// Temporary: kubeadm retries. If kubeadm gives up, this text is its error.
    ForNow(String),
    /// Permanent: kubeadm fails with this error, and does not retry.
    ForGood(JoinFailure),
}

impl ControlPlane for Kube {
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>> {
        Box::pin(async move {
            let end = Instant::now() + PATIENCE;
            loop {
                let obstacle = match self.state().admit_join(&request) {
                    Ok(()) => return Ok(()),
                    Err(obstacle) => obstacle,
                };
                match obstacle {
                    Obstacle::ForGood(failure) => return Err(failure),
                    Obstacle::ForNow(why) if Instant::now() >= end => {
                        return Err(failed(&why, Duration::ZERO));
                    }
                    Obstacle::ForNow(_) => tokio::time::sleep(ATTEMPTS).await,
                }
            }
        })
    }

    fn join_k3s(&self, request: K3sRequest) -> BoxFuture<'_, Result<(), String>> {
        let answer = self.state().admit_agent(&request);
        Box::pin(async move { answer })
    }

    fn power_lost(&self, system_uuid: &str) {
        let mut state = self.state();
        let Some(name) = state.kubelet_of(system_uuid) else { return };
        if let Some(kubelet) = state.kubelets.get_mut(&name) {
            kubelet.alive = false;
        }
        for work in [Work::Register(name.clone()), Work::Beat(name.clone()), Work::NodeReady(name.clone())] {
            state.forget(&work);
        }
    }

    fn kubelet_restarted(&self, system_uuid: &str, cpus: u32, memory: u64) {
        let mut state = self.state();
        let Some(name) = state.kubelet_of(system_uuid) else { return };
        if let Some(kubelet) = state.kubelets.get_mut(&name) {
            (kubelet.machine.cpus, kubelet.machine.memory) = (cpus, memory);
        }
        let delay = state.spec.timings.kubelet_restart;
        state.wake(Work::Register(name), delay);
    }

    fn uuid_changed(&self, old: &str, new: &str) {
        let mut state = self.state();
        let Some(name) = state.kubelet_of(old) else { return };
        if let Some(kubelet) = state.kubelets.get_mut(&name) {
            new.clone_into(&mut kubelet.machine.system_uuid);
        }
    }

    fn booted_again(&self, system_uuid: &str) {
        let mut state = self.state();
        let Some(name) = state.kubelet_of(system_uuid) else { return };
        let boot_id = state.new_uid();
        if let Some(kubelet) = state.kubelets.get_mut(&name) {
            kubelet.alive = true;
            kubelet.boot_id = boot_id;
        }
        let delay = state.spec.timings.kubelet_restart;
        state.wake(Work::Register(name), delay);
    }
}

impl State {
    fn kubelet_of(&self, system_uuid: &str) -> Option<String> {
        let found = self
            .kubelets
            .iter()
            .find(|(_, kubelet)| kubelet.machine.system_uuid.eq_ignore_ascii_case(system_uuid));
        found.map(|(name, _)| name.clone())
    }

    /// Makes one attempt to join, with the same checks as kubeadm and in the same order.
    fn admit_join(&mut self, request: &JoinRequest) -> Result<(), Obstacle> {
        const IDENTITY: &str =
            "error execution phase preflight: couldn't validate the identity of the API Server";
        if self.away || request.api_server != self.spec.endpoint {
            return Err(Obstacle::ForNow(format!(
                "{IDENTITY}: failed to request the cluster-info ConfigMap: Get \"https://{}/api/v1/namespaces/kube-public/configmaps/cluster-info?timeout=10s\": dial tcp {}: connect: connection refused",
                request.api_server, request.api_server
            )));
        }
        let (id, secret) = request.token.split_once('.').unwrap_or((&request.token, ""));
        if !self.is_signed(id, secret) {
            return Err(Obstacle::ForNow(format!(
                "{IDENTITY}: could not find a JWS signature in the cluster-info ConfigMap for token ID \"{id}\""
            )));
        }
        let pinned = &request.ca_cert_hashes;
        if !pinned.is_empty() && !pinned.contains(&self.spec.ca_hash) {
            let why = format!(
                "{IDENTITY}: cluster CA found in cluster-info ConfigMap is invalid: none of the public keys \"{}\" are pinned",
                self.spec.ca_hash
            );
            return Err(Obstacle::ForGood(failed(&why, WRONG_HASH)));
        }
        if self.bootstrap_identity(&request.token).is_none() {
            let why = "error execution phase preflight: unable to fetch the kubeadm-config ConfigMap: failed to get config map: Unauthorized";
            return Err(Obstacle::ForNow(why.into()));
        }
        let taken =
            self.store.get(&NODE, "", &request.node_name).is_some_and(|node| object::holds(&node, "Ready"));
        if taken {
            let why = format!(
                "error execution phase kubelet-start: a Node with name \"{}\" and status \"Ready\" already exists in the cluster. You must delete the existing Node or change the name of this new joining Node",
                request.node_name
            );
            return Err(Obstacle::ForGood(failed(&why, NAME_TAKEN)));
        }
        self.start_kubelet(request);
        Ok(())
    }

    /// Makes one join attempt for a K3s agent.
    fn admit_agent(&mut self, request: &K3sRequest) -> Result<(), String> {
        let server = &request.machine.api_server;
        if self.away || *server != self.spec.endpoint {
            return Err(format!(
                "failed to get CA certs: Get \"https://{server}/cacerts\": dial tcp {server}: connect: connection refused"
            ));
        }
        if self.spec.k3s_token.as_ref() != Some(&request.token) {
            return Err(format!(
                "Waiting to retrieve agent configuration; server is not ready: https://{server}/v1-k3s/serving-kubelet.crt: 401 Unauthorized"
            ));
        }
        self.start_kubelet(&request.machine);
        Ok(())
    }

    fn start_kubelet(&mut self, request: &JoinRequest) {
        let machine = NodeSpec {
            name: request.node_name.clone(),
            system_uuid: request.system_uuid.clone(),
            address: request.addresses.first().cloned().unwrap_or_default(),
            cpus: request.cpus,
            memory: request.memory,
            disk: request.disk,
            labels: request.node_labels.clone(),
            taints: request.taints.clone(),
            provider_id: request.provider_id.clone(),
        };
        self.add_kubelet(machine, request.max_pods.unwrap_or(MAX_PODS));
        if let Some(kubelet) = self.kubelets.get_mut(&request.node_name) {
            let patch = request.kubelet_patch.as_deref().unwrap_or("null");
            // The patch is valid, because the guest's kubeadm has already parsed it.
            kubelet.settings = serde_json::from_str(patch).unwrap_or_default();
        }
        let delay = self.spec.timings.register;
        self.wake(Work::Register(request.node_name.clone()), delay);
    }
}

fn failed(why: &str, after: Duration) -> JoinFailure {
    let stderr = format!("error: {why}\nTo see the stack trace of this error execute with --v=5 or higher");
    JoinFailure { stderr, exit_code: 1, after }
}
