//! `check` and `plan` as an operator runs them, against the embedded Proxmox VE over TLS.

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod lab;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;
use world::proxmox::spec::ClusterSpec;
use world::serve::{Serving, serve_https, tls::ServerTls};

/// A served Proxmox VE, and a folder with a configuration for it.
struct Bench {
    folder: TempDir,
    tls: ServerTls,
    serving: Serving,
}

impl Bench {
    async fn new(spec: ClusterSpec) -> Self {
        let pve = lab::pve(spec);
        let tls = ServerTls::for_loopback("Proxmox Virtual Environment").unwrap();
        let handler = move |request| {
            let pve = pve.clone();
            async move { pve.handle(request).await }
        };
        let serving = serve_https(handler, "127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
        let bench = Self { folder: TempDir::new().unwrap(), tls, serving };
        bench.write("ca.pem", &bench.tls.ca_pem, 0o644);
        bench.write("token", ClusterSpec::DEMO_SECRET, 0o600);
        bench.configure(&format!("https://{}", bench.serving.address()));
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn configure(&self, endpoint: &str) {
        let text = format!(
            "[proxmox]\nendpoints = [\"{endpoint}\"]\ntoken_id = \"{}\"\ntoken_file = \"{}\"\nca_file = \"{}\"\n\n\
             [[pool]]\nname = \"workers\"\nmax = 3\ncores = 4\nmemory = \"8GiB\"\n",
            ClusterSpec::DEMO_TOKEN,
            self.path("token").display(),
            self.path("ca.pem").display(),
        );
        self.write("config.toml", &text, 0o644);
    }

    async fn check(&self) -> (i32, String) {
        run(&["check", "--config", &self.path("config.toml").display().to_string()]).await
    }
}

async fn run(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler")).args(arguments).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains(ClusterSpec::DEMO_SECRET), "the token's secret is shown");
    (output.status.code().unwrap(), said)
}

#[tokio::test]
async fn a_good_configuration_is_good() {
    let bench = Bench::new(ClusterSpec::demo()).await;
    let (status, said) = bench.check().await;
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("PVE 9.2.11, 3 hosts"), "{said}");
    assert!(said.contains("12 of 12 privileges"), "{said}");
}

#[tokio::test]
async fn a_missing_privilege_is_named() {
    let mut spec = ClusterSpec::demo();
    for privileges in spec.access.roles.values_mut() {
        privileges.retain(|privilege| privilege != "VM.PowerMgmt");
    }
    let (status, said) = Bench::new(spec).await.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("lacks VM.PowerMgmt"), "{said}");
}

#[tokio::test]
async fn a_token_that_others_can_read_is_refused() {
    let bench = Bench::new(ClusterSpec::demo()).await;
    bench.write("token", ClusterSpec::DEMO_SECRET, 0o644);
    let (status, said) = bench.check().await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("others can read") && said.contains("chmod 0600"), "{said}");
}

#[tokio::test]
async fn a_wrong_token_is_told() {
    let bench = Bench::new(ClusterSpec::demo()).await;
    bench.write("token", "00000000-0000-0000-0000-000000000000", 0o600);
    let (status, said) = bench.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("Authentication failed!"), "{said}");
}

#[tokio::test]
async fn another_authority_is_refused() {
    let bench = Bench::new(ClusterSpec::demo()).await;
    bench.write("ca.pem", &ServerTls::for_loopback("Another").unwrap().ca_pem, 0o644);
    let (status, said) = bench.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("certificate"), "{said}");
}

#[tokio::test]
async fn a_closed_port_is_told_with_its_address() {
    let bench = Bench::new(ClusterSpec::demo()).await;
    bench.configure("https://127.0.0.1:1");
    let (status, said) = bench.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("no connection to https://127.0.0.1:1"), "{said}");
}

#[tokio::test]
async fn a_live_plan_without_the_table_it_needs_says_so() {
    let bench = Bench::new(ClusterSpec::demo()).await;
    let config = bench.path("config.toml").display().to_string();
    let (status, said) = run(&["plan", "--config", &config]).await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("no table `[kubernetes]`"), "{said}");
    assert!(Path::new(&config).exists());
}

#[tokio::test]
async fn what_is_wrong_with_a_configuration_has_its_place_in_json() {
    let bench = Bench::new(ClusterSpec::demo()).await;
    bench.write("wrong.toml", "scan_interval = \"10s\"\nbatch_max = \"0s\"\n", 0o644);
    let config = bench.path("wrong.toml").display().to_string();
    let (status, said) = run(&["check", "--offline", "--output", "json", "--config", &config]).await;
    assert_eq!(status, 2, "{said}");
    let lines: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(lines["lines"][0]["at"], serde_json::json!({"line": 2, "column": 13}), "{said}");
}
