//! The objects of a new cluster, as kubeadm creates them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{
    Kube,
    kinds::{CONFIG_MAP, NAMESPACE, PRIORITY_CLASS, SERVICE_ACCOUNT},
    state::State,
};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl State {
    /// Creates the initial objects in an empty cluster.
    pub(super) fn begin(&mut self) {
        for name in NAMESPACES {
            self.create(
                &NAMESPACE,
                json!({
                    "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
                    "spec": { "finalizers": ["kubernetes"] },
                    "status": { "phase": "Active" },
                }),
            );
            let account = json!({ "metadata": { "name": "default", "namespace": name } });
            self.create(&SERVICE_ACCOUNT, account);
        }
        for (name, value) in
            [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)]
        {
            self.create(
                &PRIORITY_CLASS,
                json!({ "metadata": { "name": name }, "value": value, "globalDefault": false }),
            );
        }
        let version = &self.spec.version;
        let configuration = format!(
            "apiServer: {{}}\napiVersion: kubeadm.k8s.io/v1beta4\ncontrolPlaneEndpoint: {}\nkind: ClusterConfiguration\nkubernetesVersion: {version}\n",
            self.spec.endpoint
        );
        self.create(
            &CONFIG_MAP,
            json!({
                "metadata": { "name": "kubeadm-config", "namespace": "kube-system" },
                "data": { "ClusterConfiguration": configuration },
            }),
        );
        self.create(
            &CONFIG_MAP,
            json!({
                "metadata": { "name": "kubelet-config", "namespace": "kube-system" },
                "data": { "kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" },
            }),
        );
        self.write_cluster_info();
        for node in self.spec.nodes.clone() {
            self.add_static_node(node);
        }
    }
}

impl Kube {
    /// The administrator's kubeconfig for a server at this URL.
    pub fn kubeconfig(&self, server_url: &str) -> String {
        let token = self.state().spec.admin_token.clone();
        self.kubeconfig_of("kubernetes-admin", &token, server_url)
    }

    /// Another user's kubeconfig.
    pub fn kubeconfig_of(&self, user: &str, token: &str, server_url: &str) -> String {
        let ca = STANDARD.encode(&self.state().spec.ca_pem);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: lab\n  cluster:\n    server: {server_url}\n    certificate-authority-data: {ca}\nusers:\n- name: {user}\n  user:\n    token: {token}\ncontexts:\n- name: lab\n  context:\n    cluster: lab\n    user: {user}\ncurrent-context: lab\n"
        )
    }

    /// Sets the address of the API server (`host:port`), and updates cluster-info.
    pub fn set_endpoint(&self, endpoint: &str) {
        let mut state = self.state();
        state.spec.endpoint = endpoint.into();
        state.write_cluster_info();
    }

    /// Replaces the CA in cluster-info, and the hash of the CA's public key (in the form of `caCertHashes`).
    /// Returns the former CA and hash.
    pub fn replace_authority(&self, ca_pem: String, ca_hash: String) -> (String, String) {
        let mut state = self.state();
        let former = (
            std::mem::replace(&mut state.spec.ca_pem, ca_pem),
            std::mem::replace(&mut state.spec.ca_hash, ca_hash),
        );
        state.write_cluster_info();
        state.tend_tokens();
        former
    }
}
