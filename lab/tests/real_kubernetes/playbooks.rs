//! Tests `ansible/access.yml` with a real API server and the embedded Proxmox VE. The access that the
//! playbook creates passes `check`, and a second run changes nothing.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lab::configuration;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use world::proxmox::spec::ClusterSpec;

use crate::real::Real;
use crate::shared::bench::{Kubernetes as _, POOL, cluster};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The time limit of a play, much longer than a play takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(5);

/// The folder with `ansible-playbook`. If Ansible is not installed for the tests, prints that the test is
/// skipped and returns `None`.
async fn ansible() -> Option<PathBuf> {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut find = Command::new(format!("{ROOT}/tests/image/ansible"));
    find.args((!is_ci).then_some("--cached")).stdin(Stdio::null()).stderr(Stdio::piped());
    let found = find.output().await.unwrap();
    if !found.status.success() {
        let said = String::from_utf8_lossy(&found.stderr);
        assert!(!is_ci, "no Ansible: {said}");
        println!("skipped: Ansible is not available: {}", said.trim_end());
        return None;
    }
    Some(PathBuf::from(String::from_utf8(found.stdout).unwrap().trim_end()))
}

/// The playbook's inventory. All hosts are this computer; the variables contain the paths of its files.
fn inventory(directory: &Path, real: &Real, programs: &Path) -> Value {
    let at = |name: &str| directory.join(name).display().to_string();
    let here = |variables: Value| {
        let mut host = variables;
        host["ansible_connection"] = json!("local");
        host["ansible_python_interpreter"] = json!(programs.join("python3"));
        json!({ "hosts": { "here": host } })
    };
    json!({ "all": { "children": {
        "proxmox": here(json!({
            "proxmox_access_folder": at("script"), "proxmox_access_token_file": at("pve-token"),
            "proxmox_access_pool": "k8s-workers", "proxmox_access_templates": ["9001", "9002", "9003"],
            "proxmox_access_storages": ["local-lvm"],
        })),
        "kubernetes_admin": here(json!({
            "kubernetes_access_admin": real.plane.directory().join("super-admin.conf"),
            "kubernetes_access_kubectl": real.plane.programs().path("kubectl"),
            "kubernetes_access_kubeconfig": at("kubeconfig"),
        })),
    }}})
}

/// Runs the playbook. Returns its output, and the summary line about the host.
async fn played(programs: &Path, directory: &Path, url: &str) -> (String, String) {
    let path = std::env::var("PATH").unwrap();
    let mut play = Command::new(programs.join("ansible-playbook"));
    play.current_dir(format!("{ROOT}/ansible"))
        .arg("--inventory")
        .arg(directory.join("inventory.json"))
        .arg("access.yml")
        .env("PATH", format!("{}:{path}", directory.join("bin").display()))
        .env("ANSIBLE_HOME", directory.join("ansible"))
        .env("ANSIBLE_NOCOLOR", "1")
        .env("PROXMOX_URL", url)
        .env("PROXMOX_CA", directory.join("pve-ca.pem"))
        .env("PROXMOX_TOKEN", format!("root@pam!admin={}", ClusterSpec::DEMO_ADMIN_SECRET))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let done = tokio::time::timeout(LIMIT, play.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    let summary = said.lines().rfind(|line| line.starts_with("here ") && line.contains("ok="));
    let summary = summary.unwrap_or_else(|| panic!("{said}")).to_owned();
    (said.into_owned(), summary)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_playbook_grants_passes_the_check_and_is_granted_once() {
    let Some(programs) = ansible().await else { return };
    let directory = TempDir::new().unwrap();
    let mut spec = cluster();
    spec.access.roles.clear();
    spec.access.grants.clear();
    spec.access.tokens.retain(|token| token.id == "root@pam!admin");
    let Some((proxmox, real)) = Real::start(directory.path(), spec).await else { return };
    for kind in ["secrets", "serviceaccounts", "roles", "rolebindings"] {
        real.admin.kubectl(&["-n", "pve-autoscaler", "delete", kind, "--all"], "").await.unwrap();
    }
    let at = |name: &str| directory.path().join(name);
    for given in ["pve-token", "kubeconfig"] {
        std::fs::remove_file(at(given)).unwrap();
    }
    std::fs::create_dir(at("bin")).unwrap();
    for name in ["pveum", "pvesh"] {
        symlink(format!("{ROOT}/tests/playbooks/proxmox"), at("bin").join(name)).unwrap();
    }
    std::fs::write(at("inventory.json"), inventory(directory.path(), &real, &programs).to_string()).unwrap();

    let (said, first) = played(&programs, directory.path(), &proxmox.url).await;
    assert!(!first.contains(" changed=0 "), "{said}");
    let (said, second) = played(&programs, directory.path(), &proxmox.url).await;
    assert!(second.contains(" changed=0 ") && second.contains(" failed=0 "), "{said}");

    configuration::write(directory.path(), &proxmox, POOL).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_lab"));
    check.args(["daemon", "--", "check", "--config"]).arg(at("config.toml"));
    let checked = check.output().await.unwrap();
    let said = String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap();
    assert!(said.contains("rights") && !said.contains(" error "), "{said}");
}
