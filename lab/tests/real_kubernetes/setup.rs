//! Tests `setup` with a real API server. The API server accepts all objects, and the token in the service
//! account's Secret works.

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;
use world::proxmox::spec::ClusterSpec;

use crate::real::Real;
use crate::shared::bench::{Kubernetes as _, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn what_setup_makes_in_a_real_cluster_passes_the_check() {
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let mut spec = cluster();
    spec.access.roles.clear();
    spec.access.grants.clear();
    spec.access.tokens.retain(|token| token.id == "root@pam!admin");
    let Some((proxmox, real)) = Real::start(directory.path(), spec).await else { return };
    lab::clusters::write(directory.path(), "admin-token", ClusterSpec::DEMO_ADMIN_SECRET).unwrap();
    for kind in ["secrets", "serviceaccounts", "roles", "rolebindings"] {
        real.admin.kubectl(&["-n", "pve-autoscaler", "delete", kind, "--all"], "").await.unwrap();
    }
    let admin = real.plane.directory().join("super-admin.conf").display().to_string();
    for time in ["first", "second"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command
            .args(["daemon", "--", "setup", "--proxmox", &proxmox.url, "--proxmox-ca", &at("pve-ca.pem")])
            .args(["--admin-token-id", "root@pam!admin", "--admin-token-file", &at("admin-token")])
            .args(["--admin-kubeconfig", &admin, "--folder", &at("etc"), "--template", "9000"])
            .args(["--addresses", "127.11.10.50-127.11.10.59", "--prefix", "8"]);
        let output = command.output().await.unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(output.status.code(), Some(0), "the {time} run: {said}");
        assert!(said.contains("rights") && !said.contains(" error "), "the {time} run: {said}");
    }
    let account = real.admin.get("/api/v1/namespaces/pve-autoscaler/serviceaccounts/pve-autoscaler").await;
    assert_eq!(account.unwrap()["metadata"]["managedFields"][0]["manager"], json!("pve-autoscaler-setup"));
}
