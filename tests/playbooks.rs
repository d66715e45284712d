//! Tests the parts of the playbooks that can run without real hosts: `access.yml` creates its folders,
//! against the embedded Proxmox VE, and `daemon.yml` puts the token on every host. The tests are skipped if
//! Ansible was not installed for them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may panic on unexpected results, and prints what it skips"
)]

#[path = "lab/bench.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod bench;
mod lab;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use bench::Bench;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The folder with `ansible-playbook`.
async fn ansible() -> Option<PathBuf> {
    let found = Command::new(format!("{ROOT}/tests/image/ansible")).arg("--cached").output().await.unwrap();
    if !found.status.success() {
        eprintln!("skipped: no Ansible: {}", String::from_utf8_lossy(&found.stderr).trim_end());
        return None;
    }
    Some(PathBuf::from(String::from_utf8(found.stdout).unwrap().trim_end()))
}

/// Runs the play with `folder/bin` at the front of `PATH`. Returns whether the play succeeded, and its
/// output.
async fn played(
    programs: &Path,
    folder: &Path,
    play: &[&str],
    hosts: Value,
    environment: &[(&str, String)],
) -> (bool, String) {
    fs::write(
        folder.join("inventory.json"),
        json!({ "all": { "children": { "proxmox": {
            "hosts": hosts,
            "vars": { "ansible_connection": "local", "ansible_python_interpreter": programs.join("python3") },
        }, "kubernetes_admin": {} } } })
        .to_string(),
    )
    .unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new(programs.join("ansible-playbook"));
    command
        .current_dir(format!("{ROOT}/ansible"))
        .arg("--inventory")
        .arg(folder.join("inventory.json"))
        .args(play)
        .env("PATH", format!("{}:{path}", folder.join("bin").display()))
        .env("ANSIBLE_HOME", folder.join("ansible"))
        .env("ANSIBLE_NOCOLOR", "1")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(std::process::Stdio::null());
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn access_makes_a_folder_that_the_service_can_pass_through() {
    let Some(programs) = ansible().await else { return };
    let mut cluster = ClusterSpec::demo();
    cluster.access.tokens.retain(|token| token.id == "root@pam!admin");
    let bench = Bench::new(cluster, KubeSpec::demo()).await;
    fs::create_dir(bench.path("bin")).unwrap();
    for name in ["pveum", "pvesh"] {
        symlink(format!("{ROOT}/tests/playbooks/proxmox"), bench.path("bin").join(name)).unwrap();
    }
    bench.write("bin/id", "#!/bin/sh\necho 0\n", 0o755);
    let hosts = json!({ "here": {
        "proxmox_access_folder": bench.path("script"),
        "proxmox_access_token_file": bench.path("etc/credentials/pve-token"),
    } });
    let environment = [
        ("PROXMOX_URL", format!("https://{}", bench.proxmox.address())),
        ("PROXMOX_CA", bench.path("ca.pem").display().to_string()),
        ("PROXMOX_TOKEN", format!("root@pam!admin={}", ClusterSpec::DEMO_ADMIN_SECRET)),
    ];
    let (well, said) = played(&programs, &bench.path(""), &["access.yml"], hosts, &environment).await;
    assert!(well, "{said}");
    for (name, wanted) in [("etc", 0o755), ("etc/credentials", 0o700), ("etc/credentials/pve-token", 0o600)] {
        let found = mode(&bench.path(name));
        assert_eq!(found, wanted, "{name}: {found:o}");
    }
}

#[tokio::test]
async fn every_host_of_the_daemon_gets_the_token_or_the_play_says_that_none_has_it() {
    let Some(programs) = ansible().await else { return };
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let tasks = format!("{ROOT}/ansible/roles/daemon/tasks/token.yml");
    let play = json!([{
        "hosts": "proxmox", "gather_facts": false,
        "tasks": [{ "ansible.builtin.import_tasks": tasks }],
        "handlers": [{ "name": "Restart pve-autoscaler", "ansible.builtin.debug": { "msg": "it is restarted" } }],
    }]);
    fs::write(at("play.yml"), play.to_string()).unwrap();
    let play = at("play.yml").display().to_string();
    let hosts = json!({ "pve1": { "daemon_token_file": at("one") }, "pve2": { "daemon_token_file": at("two") },
        "pve3": { "daemon_token_file": at("three") } });

    let role = ["daemon.yml", "--list-tasks"];
    let (_, said) = played(&programs, folder.path(), &role, hosts.clone(), &[]).await;
    assert!(said.contains("Refuse to continue without the token"), "the role contains the task: {said}");

    let (well, said) = played(&programs, folder.path(), &[&play], hosts.clone(), &[]).await;
    assert!(!well && said.contains("No host of this play has the token's secret in"), "{said}");

    // The second host has the token. The third host has a different token, which the play leaves alone.
    fs::write(at("two"), "the-secret\n").unwrap();
    fs::write(at("three"), "its-own\n").unwrap();
    let (well, said) = played(&programs, folder.path(), &[&play], hosts.clone(), &[]).await;
    assert!(well && !said.contains("the-secret") && said.matches("it is restarted").count() == 1, "{said}");
    // The third host's token differs. It may be an old token that was replaced, so the play reports the
    // difference.
    assert_eq!(said.matches("differs from the one on pve2 and is kept").count(), 1, "{said}");
    assert_eq!(fs::read_to_string(at("one")).unwrap(), "the-secret\n");
    assert_eq!(mode(&at("one")), 0o600);
    assert_eq!(fs::read_to_string(at("three")).unwrap(), "its-own\n");

    let (well, said) = played(&programs, folder.path(), &[&play], hosts, &[]).await;
    assert!(well && !said.contains("it is restarted"), "{said}");
}
