//! `setup` against the embedded clusters over TLS, and the script for the Proxmox VE side: they create what
//! `check` requires, and keep what an administrator has added.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

#[path = "lab/bench.rs"]
#[expect(dead_code, reason = "other tests change its configuration")]
mod bench;
mod lab;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use bench::{Bench, no_secret_in};
use pve_autoscaler::proxmox::{Client, Settings, Trust, connect};
use secrecy::SecretString;
use tokio::process::Command;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;

/// A bench with an administrator's token, in which `setup` has not created anything yet.
async fn bare() -> Bench {
    with_roles(&[]).await
}

/// Like [`bare`], but these roles already exist with these privileges.
async fn with_roles(roles: &[(&str, &str)]) -> Bench {
    let mut cluster = ClusterSpec::demo();
    let words = |text: &str| text.split(' ').map(ToOwned::to_owned).collect();
    cluster.access.roles = roles.iter().map(|(name, text)| ((*name).to_owned(), words(text))).collect();
    cluster.access.grants.clear();
    cluster.access.tokens.retain(|token| token.id == "root@pam!admin");
    let bench = Bench::new(cluster, KubeSpec::demo()).await;
    bench.write("admin-token", ClusterSpec::DEMO_ADMIN_SECRET, 0o600);
    bench
}

impl Bench {
    async fn set_up(&self, more: &[&str]) -> (i32, String) {
        let token = self.path("admin-token").display().to_string();
        let id = if more.contains(&"--admin-token-id") {
            &[][..]
        } else {
            &["--admin-token-id", "root@pam!admin"]
        };
        self.set_up_by(&[&["--admin-token-file", &token], id].concat(), more).await
    }

    /// Runs `setup` without a token, like root on a host.
    async fn set_up_on_the_host(&self, more: &[&str]) -> (i32, String) {
        self.write("pvesh", include_str!("lab/pvesh.py"), 0o755);
        self.write("pvesh.where", &format!("{} root@pam!admin", self.proxmox.address()), 0o644);
        self.set_up_by(&["--pvesh", &self.path("pvesh").display().to_string()], more).await
    }

    /// The privileges that a role has now.
    async fn privileges(&self, role: &str) -> BTreeSet<String> {
        let trust = Trust::Authorities(fs::read_to_string(self.path("ca.pem")).unwrap());
        let settings = Settings {
            endpoints: vec![format!("https://{}", self.proxmox.address())],
            token_id: "root@pam!admin".to_owned(),
            agent_lane: 1,
            lifecycle_lane: 1,
            linked_clones: 1,
            full_clones: 1,
        };
        let limit = Duration::from_secs(20);
        let secret = SecretString::from(ClusterSpec::DEMO_ADMIN_SECRET);
        let client = Client::new(connect(&trust, limit, limit).unwrap(), settings, &secret).unwrap();
        client.roles().await.unwrap().remove(role).unwrap_or_default()
    }

    /// Runs the script as root does on a host, with stand-ins for the host's commands. Returns the output of
    /// both streams.
    async fn script(&self, more: &[&str]) -> String {
        let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/playbooks/proxmox");
        fs::create_dir_all(self.path("bin")).unwrap();
        for name in ["pveum", "pvesh"] {
            drop(symlink(stand_in, self.path("bin").join(name)));
        }
        self.write("bin/id", "#!/bin/sh\necho 0\n", 0o755);
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"umask 077; exec "$@""#, "sh", "sh", "packaging/proxmox-setup.sh"])
            .args(["--template", "9000", "--storage", "local-lvm", "--bridge", "vmbr0", "--token-file"])
            .arg(self.path("etc/credentials/pve-token"))
            .args(more)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("PATH", format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap()))
            .env("PROXMOX_URL", format!("https://{}", self.proxmox.address()))
            .env("PROXMOX_CA", self.path("ca.pem"))
            .env("PROXMOX_TOKEN", format!("root@pam!admin={}", ClusterSpec::DEMO_ADMIN_SECRET));
        let output = command.output().await.unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{said}");
        said
    }

    fn has_mode(&self, name: &str, mode: u32) {
        let found = fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{name}: {found:o}");
    }

    async fn set_up_by(&self, administrator: &[&str], more: &[&str]) -> (i32, String) {
        let file = |name: &str| self.path(name).display().to_string();
        // An administrator may have set this umask to protect a secret. It keeps other users from reading
        // new files.
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"umask 077; exec "$@""#, "sh", env!("CARGO_BIN_EXE_pve-autoscaler")])
            .args(["setup", "--proxmox", &format!("https://{}", self.proxmox.address())])
            .args(["--proxmox-ca", &file("ca.pem"), "--admin-kubeconfig", &file("kubeconfig")])
            .args(if more.contains(&"--folder") { vec![] } else { vec!["--folder".to_owned(), file("etc")] })
            .args(administrator)
            .args(more)
            .stdin(std::process::Stdio::null());
        let output = command.output().await.unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        no_secret_in(&said);
        assert!(!said.contains(ClusterSpec::DEMO_ADMIN_SECRET), "a secret is shown");
        (output.status.code().unwrap(), said)
    }
}

const ANSWERS: [&str; 6] =
    ["--template", "9000", "--addresses", "10.10.10.50-10.10.10.59", "--gateway", "10.10.10.1"];

#[tokio::test]
async fn what_is_made_from_nothing_passes_the_check_and_a_second_time_changes_nothing() {
    let bench = bare().await;
    let (code, said) = bench.set_up(&ANSWERS).await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains(" error "), "{said}");
    assert!(said.contains("created") && !said.contains("kept "), "everything is new: {said}");
    for (name, mode) in [
        ("etc", 0o755),
        ("etc/credentials", 0o700),
        ("etc/credentials/pve-token", 0o600),
        ("etc/credentials/kubeconfig", 0o600),
        ("etc/credentials/pve-root-ca", 0o600),
        ("etc/config.toml", 0o644),
    ] {
        bench.has_mode(name, mode);
    }
    let token = fs::read_to_string(bench.path("etc/credentials/pve-token")).unwrap();
    let kubeconfig = fs::read_to_string(bench.path("etc/credentials/kubeconfig")).unwrap();
    assert!(!said.contains(&token), "the token is printed");
    assert!(kubeconfig.contains("\"token\": \"account."), "the token is the service account's");
    let configuration = fs::read_to_string(bench.path("etc/config.toml")).unwrap();
    assert!(configuration.contains("vmids = \"9100-9109\""), "{configuration}");

    let (code, again) = bench.set_up(&ANSWERS).await;
    assert_eq!(code, 0, "{again}");
    let made: Vec<&str> = again.lines().filter(|line| line.trim_start().starts_with("created")).collect();
    assert_eq!(made.len(), 1, "only the Kubernetes objects are applied again: {made:?}");
    assert_eq!(fs::read_to_string(bench.path("etc/credentials/pve-token")).unwrap(), token);
    assert_eq!(fs::read_to_string(bench.path("etc/config.toml")).unwrap(), configuration);

    // An administrator may have replaced the kubeconfig, for example to use another address of the same API
    // server.
    let own = format!("{kubeconfig}\n");
    fs::write(bench.path("etc/credentials/kubeconfig"), &own).unwrap();
    let (code, again) = bench.set_up(&ANSWERS).await;
    assert_eq!(code, 0, "{again}");
    assert!(again.contains("kubeconfig`, which differs from what setup would write"), "{again}");
    assert_eq!(fs::read_to_string(bench.path("etc/credentials/kubeconfig")).unwrap(), own);
}

#[tokio::test]
async fn a_further_cluster_of_the_host_gets_what_the_first_one_has_not() {
    let bench = bare().await;
    let (code, said) = bench.set_up(&ANSWERS).await;
    assert_eq!(code, 0, "{said}");
    let folder = bench.path("etc/clusters/shop").display().to_string();
    let own = ["--folder", &folder, "--user", "autoscaler-shop@pve", "--resource-pool", "kubernetes-shop"];
    let answers = ["--template", "9000", "--addresses", "10.10.10.60-10.10.10.69", "--gateway", "10.10.10.1"];
    let (code, said) = bench.set_up(&[&own[..], &answers].concat()).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("created       AutoscalerGuests on /vms\n"), "{said}");
    assert!(said.contains("beside the cluster without a name"), "{said}");
    for (name, mode) in
        [("etc/clusters", 0o755), ("etc/clusters/shop", 0o755), ("etc/clusters/shop/credentials", 0o700)]
    {
        bench.has_mode(name, mode);
    }
    let written = fs::read_to_string(bench.path("etc/clusters/shop/config.toml")).unwrap();
    for line in ["cluster = \"shop\"", "vmids = \"9110-9119\"", "listen = \"127.0.0.1:9737\""] {
        assert!(written.lines().any(|one| one == line), "{line}: {written}");
    }

    // The first cluster's token was created when the host had only one cluster.
    let first = bench.path("etc/config.toml").display().to_string();
    let mut check = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    let output = check.args(["check", "--config", &first]).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("the token lacks VM.Audit on /vms") && said.contains("beside cluster `shop`"),
        "{said}"
    );

    // These addresses overlap with those of the first cluster.
    let taken =
        answers.map(|answer| if answer.contains("10.60-") { "10.10.10.55-10.10.10.64" } else { answer });
    let folder = bench.path("etc/clusters/web").display().to_string();
    let own = ["--folder", &folder, "--user", "autoscaler-web@pve", "--resource-pool", "kubernetes-web"];
    let (code, said) = bench.set_up(&[&own[..], &taken].concat()).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("both have 10.10.10.55 and 4 more addresses"), "{said}");
    assert!(said.contains("beside cluster `shop`"), "{said}");
}

/// `AutoscalerMachines` as an administrator has extended it for hardware options. It lacks one of the
/// required privileges.
const OTHER_ROLE: (&str, &str) = (
    "AutoscalerMachines",
    "Pool.Audit VM.Allocate VM.Audit VM.Config.CPU VM.Config.Memory VM.Config.Disk VM.Config.Network VM.Config.Options \
     VM.Config.HWType VM.GuestAgent.Unrestricted",
);

#[tokio::test]
async fn a_role_gets_what_it_lacks_and_keeps_what_an_administrator_gave_it() {
    let bench = with_roles(&[OTHER_ROLE]).await;
    let (code, said) = bench.set_up(&[&ANSWERS[..], &["--dry-run"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("would create  missing privileges of role AutoscalerMachines: VM.PowerMgmt\n"),
        "{said}"
    );
    assert!(!bench.privileges("AutoscalerMachines").await.contains("VM.PowerMgmt"));

    let (code, said) = bench.set_up(&ANSWERS).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("created       missing privileges of role AutoscalerMachines: VM.PowerMgmt\n"),
        "{said}"
    );
    let found = bench.privileges("AutoscalerMachines").await;
    assert!(found.contains("VM.Config.HWType") && found.contains("VM.PowerMgmt"), "{found:?}");
    assert_eq!(found.len(), 11, "{found:?}");

    let (_, again) = bench.set_up(&ANSWERS).await;
    assert!(again.contains("kept          role AutoscalerMachines\n"), "{again}");
    assert_eq!(bench.privileges("AutoscalerMachines").await, found);
}

#[tokio::test]
async fn the_script_takes_nothing_away_and_opens_the_folder_that_the_service_passes_through() {
    if Command::new("python3").arg("--version").output().await.is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let bench = with_roles(&[OTHER_ROLE]).await;
    bench.script(&[]).await;
    let found = bench.privileges("AutoscalerMachines").await;
    assert!(found.contains("VM.Config.HWType") && found.contains("VM.PowerMgmt"), "{found:?}");
    for (name, mode) in [("etc", 0o755), ("etc/credentials", 0o700), ("etc/credentials/pve-token", 0o600)] {
        bench.has_mode(name, mode);
    }
    // An administrator has restricted the folder.
    fs::set_permissions(bench.path("etc"), fs::Permissions::from_mode(0o750)).unwrap();
    bench.script(&["--token", "second"]).await;
    bench.has_mode("etc", 0o750);
    assert_eq!(bench.privileges("AutoscalerMachines").await, found);
}

#[tokio::test]
async fn as_root_on_a_host_no_token_of_an_administrator_is_needed() {
    if Command::new("python3").arg("--version").output().await.is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let bench = bare().await;
    let (code, said) = bench.set_up_on_the_host(&[&ANSWERS[..], &["--dry-run"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("would create  role AutoscalerMachines") && said.contains("[[pool]]"), "{said}");
    let asked = fs::read_to_string(bench.path("pvesh.log")).unwrap();
    assert!(asked.lines().all(|line| line.starts_with("get ")), "a dry run only reads: {asked}");

    let (code, said) = bench.set_up_on_the_host(&ANSWERS).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("created       token autoscaler@pve!agent") && !said.contains(" error "), "{said}");
    let token = fs::read_to_string(bench.path("etc/credentials/pve-token")).unwrap();
    let asked = fs::read_to_string(bench.path("pvesh.log")).unwrap();
    assert!(token.len() > 10 && !asked.contains(&token) && !said.contains(&token), "{asked}");
    assert!(
        asked.contains("create /access/users/autoscaler@pve/token/agent --output-format json --privsep 1"),
        "{asked}"
    );

    let (code, again) = bench.set_up_on_the_host(&ANSWERS).await;
    assert_eq!(code, 0, "{again}");
    assert_eq!(fs::read_to_string(bench.path("etc/credentials/pve-token")).unwrap(), token);
    let (code, said) = bench.set_up_by(&["--pvesh", "/nowhere/pvesh"], &ANSWERS).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("run this as root on a Proxmox VE host, or give `--admin-token-file`"), "{said}");
}

#[tokio::test]
async fn a_dry_run_says_everything_and_makes_nothing() {
    let bench = bare().await;
    let (code, said) = bench.set_up(&[&ANSWERS[..], &["--dry-run"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    for words in [
        "would create  role AutoscalerMachines",
        "would create  user autoscaler@pve",
        "[[pool]]",
        "/vms/9000",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!bench.path("etc").exists());
    let (_, again) = bench.set_up(&[&ANSWERS[..], &["--dry-run"]].concat()).await;
    assert!(!again.contains("kept"), "{again}");
}

#[tokio::test]
async fn a_configuration_of_the_administrators_own_is_kept() {
    let bench = bare().await;
    fs::create_dir(bench.path("etc")).unwrap();
    bench.write("etc/config.toml", "cluster = \"mine\"\n", 0o644);
    let (_, said) = bench.set_up(&ANSWERS).await;
    assert!(said.contains("config.toml.proposed"), "{said}");
    assert_eq!(fs::read_to_string(bench.path("etc/config.toml")).unwrap(), "cluster = \"mine\"\n");
    assert!(fs::read_to_string(bench.path("etc/config.toml.proposed")).unwrap().contains("[[pool]]"));
    bench.has_mode("etc/config.toml.proposed", 0o644);
}

#[tokio::test]
async fn a_configuration_that_is_as_the_package_installed_it_is_replaced() {
    let bench = bare().await;
    fs::create_dir(bench.path("etc")).unwrap();
    for untouched in ["packaging/config.minimal.toml", "config.example.toml"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(untouched)).unwrap();
        bench.write("etc/config.toml", &text, 0o644);
        let (code, said) = bench.set_up(&ANSWERS).await;
        assert!(code == 0 && !said.contains(".proposed"), "{untouched}: {said}");
        let made = fs::read_to_string(bench.path("etc/config.toml")).unwrap();
        assert_ne!(made, text, "{untouched}");
        assert_eq!(made.lines().next(), Some(pve_autoscaler::SCHEMA_LINE));
    }
}

#[tokio::test]
async fn a_folder_that_is_there_keeps_its_mode() {
    let bench = bare().await;
    fs::create_dir(bench.path("etc")).unwrap();
    fs::set_permissions(bench.path("etc"), fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(bench.set_up(&ANSWERS).await.0, 0);
    bench.has_mode("etc", 0o750);
    bench.has_mode("etc/credentials", 0o700);
}

#[tokio::test]
async fn what_an_earlier_set_up_closed_to_the_service_is_opened_or_named() {
    let bench = bare().await;
    assert_eq!(bench.set_up(&ANSWERS).await.0, 0);
    let close = |name: &str, mode| {
        fs::set_permissions(bench.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    close("etc", 0o700);
    close("etc/config.toml", 0o600);
    let (code, said) = bench.set_up(&ANSWERS).await;
    assert_eq!(code, 0, "{said}");
    bench.has_mode("etc/config.toml", 0o644);
    let opened = format!("changed       `{}`: mode 0644", bench.path("etc/config.toml").display());
    assert!(said.contains(&opened), "{said}");
    // `setup` does not know who owns the folder and what else is in it, so it only names the command.
    bench.has_mode("etc", 0o700);
    let folder = format!("run `chmod 0755 {}`\n", bench.path("etc").display());
    assert!(said.contains(&folder), "{said}");
    bench.has_mode("etc/credentials", 0o700);
    for secret in ["pve-token", "kubeconfig", "pve-root-ca"] {
        bench.has_mode(&format!("etc/credentials/{secret}"), 0o600);
    }

    close("etc", 0o755);
    let (_, said) = bench.set_up(&ANSWERS).await;
    assert!(!said.contains("chmod") && !said.contains("mode 0644"), "{said}");

    // The configuration is the administrator's own.
    bench.write("etc/config.toml", "cluster = \"mine\"\n", 0o600);
    close("etc/config.toml", 0o600);
    let (_, said) = bench.set_up(&ANSWERS).await;
    let file = format!("run `chmod 0644 {}`\n", bench.path("etc/config.toml").display());
    assert!(said.contains(&file), "{said}");
    bench.has_mode("etc/config.toml", 0o600);
}

#[tokio::test]
async fn a_token_whose_secret_is_lost_is_not_made_again_behind_an_administrators_back() {
    let bench = bare().await;
    assert_eq!(bench.set_up(&ANSWERS).await.0, 0);
    fs::remove_file(bench.path("etc/credentials/pve-token")).unwrap();
    let (code, said) = bench.set_up(&ANSWERS).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("pveum user token remove autoscaler@pve agent"), "{said}");
    let (code, said) = bench.set_up(&[&ANSWERS[..], &["--token", "second"]].concat()).await;
    assert!(said.contains("created       token autoscaler@pve!second"), "{code}: {said}");
}

#[tokio::test]
async fn what_cannot_be_asked_is_named_with_a_proposal() {
    let bench = bare().await;
    let (code, said) = bench.set_up(&["--template", "9000"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("pass `--addresses`"), "{said}");
    let (_, said) = bench.set_up(&["--template", "nothing"]).await;
    assert!(
        said.contains("there is no template `nothing`; the templates are ") && said.contains("9000 ("),
        "{said}"
    );
    assert!(!bench.path("etc").exists());
}

#[tokio::test]
async fn an_administrator_with_too_few_rights_is_told_what_is_refused() {
    let bench = Bench::demo().await;
    bench.write("admin-token", ClusterSpec::DEMO_SECRET, 0o600);
    let more = [&ANSWERS[..], &["--admin-token-id", ClusterSpec::DEMO_TOKEN]].concat();
    let (code, said) = bench.set_up(&more).await;
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("Sys.Modify"), "{said}");
}
