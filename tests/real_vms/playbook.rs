//! The playbook that creates templates, run over SSH against a guest that was built with the same role.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use model::Vmid;
use tokio::process::Command;

use crate::place;
use crate::stage::Stage;

/// The limit is long because every task runs as a separate Python program in an emulated guest.
const LIMIT: Duration = Duration::from_mins(15);

/// Creates a key with which Ansible logs in; returns its public part.
pub async fn key(stage: &Stage) -> String {
    let path = stage.folder.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "ansible", "-f"])
        .arg(&path)
        .status()
        .await;
    assert!(made.unwrap().success());
    std::fs::read_to_string(path.with_extension("pub")).unwrap().trim().to_owned()
}

/// The playbook leaves correct files alone and restores missing ones. `changed` counts the restored file and
/// its handler.
pub async fn mends_what_is_missing_and_no_more(stage: &Stage, vmid: Vmid, address: &str, user: &str) {
    let Some(programs) = place::ansible() else { return };
    let image = place::image().unwrap();
    stage.run(vmid, "rm /etc/sysctl.d/90-kubernetes.conf").await;
    let folder = stage.folder.path();
    let inventory = format!(
        "[workers]\n{address} ansible_user={user} ansible_become=true ansible_ssh_private_key_file={} \
         ansible_ssh_common_args='-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'\n",
        folder.join("key").display()
    );
    std::fs::write(folder.join("inventory"), inventory).unwrap();
    let files = image.with_extension("d");
    let mut play = Command::new(Path::new(&programs).join("ansible-playbook"));
    play.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("ansible"))
        .arg("--inventory")
        .arg(folder.join("inventory"))
        .args(["worker.yml", "--extra-vars"])
        .arg(format!("worker_install=files worker_files={}", files.display()))
        .env("ANSIBLE_HOME", folder.join("ansible"))
        .env("ANSIBLE_NOCOLOR", "1")
        .env("ANSIBLE_SSH_CONTROL_PATH_DIR", folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let played = tokio::time::timeout(LIMIT, play.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&played.stdout);
    assert!(played.status.success(), "{said}\n{}", String::from_utf8_lossy(&played.stderr));
    let recap =
        said.lines().find(|line| line.starts_with(address) && line.contains("ok=")).unwrap_or_default();
    assert!(recap.contains(" changed=2 ") && recap.contains(" failed=0 "), "{said}");
    let back = stage.run(vmid, "cat /proc/sys/net/ipv4/ip_forward /etc/sysctl.d/90-kubernetes.conf").await;
    assert!(back.stdout.starts_with("1\nnet.ipv4.ip_forward = 1"), "{back:?}");
}
