//! `run` as an operator and systemd run it: against the embedded Proxmox VE, and a Kubernetes API that cannot be reached.

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod lab;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use world::proxmox::spec::ClusterSpec;
use world::serve::{Serving, serve_https, tls::ServerTls};

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// A folder with everything that a daemon needs; Kubernetes is a closed port.
struct Bench {
    folder: TempDir,
    _serving: Serving,
    endpoint: String,
}

impl Bench {
    async fn new() -> Self {
        let pve = lab::pve(ClusterSpec::demo());
        let tls = ServerTls::for_loopback("Proxmox Virtual Environment").unwrap();
        let handler = move |request| {
            let pve = pve.clone();
            async move { pve.handle(request).await }
        };
        let serving = serve_https(handler, "127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
        let endpoint = format!("https://{}", serving.address());
        let bench = Self { folder: TempDir::new().unwrap(), _serving: serving, endpoint };
        bench.write("ca.pem", &tls.ca_pem, 0o644);
        bench.write("token", ClusterSpec::DEMO_SECRET, 0o600);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1",
                                                    "certificate-authority": bench.path("ca.pem")}}],
            "users": [{"name": "u", "user": {"token": "kubernetes-secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        bench.write("kubeconfig", &kubeconfig.to_string(), 0o600);
        bench.configure("scan_interval = \"10s\"", 3);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn configure(&self, first: &str, max: u32) {
        let text = format!(
            "{first}\n[proxmox]\nendpoints = [\"{}\"]\ntoken_id = \"{}\"\ntoken_file = \"{}\"\nca_file = \"{}\"\n\
             [kubernetes]\nkubeconfig_file = \"{}\"\n[bootstrap]\n\
             [[pool]]\nname = \"workers\"\nmax = {max}\ncores = 4\nmemory = \"8GiB\"\ntemplate = 9000\nvmids = \"9100-9109\"\n\
             addresses = \"10.10.10.11-10.10.10.20\"\nprefix = 24\n",
            self.endpoint,
            ClusterSpec::DEMO_TOKEN,
            self.path("token").display(),
            self.path("ca.pem").display(),
            self.path("kubeconfig").display(),
        );
        self.write("config.toml", &text, 0o644);
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        command
            .args(["run", "--config", &self.path("config.toml").display().to_string()])
            .args(["--socket", &self.path("control.sock").display().to_string()])
            .env_remove("RUST_LOG")
            .env_remove("JOURNAL_STREAM")
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// A daemon that should end by itself at once.
    async fn refused(&self) -> (i32, String) {
        let output = tokio::time::timeout(LONG, self.command().output()).await.unwrap().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains(ClusterSpec::DEMO_SECRET) && !said.contains("kubernetes-secret"), "{said}");
        (output.status.code().unwrap(), said)
    }

    /// A daemon that runs.
    async fn start(&self) -> Daemon {
        let mut child = self.command().spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut daemon = Daemon { child, log, said: String::new() };
        daemon.says("pve-autoscaler starts").await;
        daemon
    }
}

struct Daemon {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    said: String,
}

impl Daemon {
    /// Reads the log up to a line with this text.
    async fn says(&mut self, text: &str) {
        let reading = async {
            while let Some(line) = self.log.next_line().await.unwrap() {
                self.said.push_str(&line);
                self.said.push('\n');
                if line.contains(text) {
                    return true;
                }
            }
            false
        };
        let said = tokio::time::timeout(LONG, reading).await;
        assert!(said == Ok(true), "never said `{text}`:\n{}", self.said);
    }

    async fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
    }

    async fn ends(mut self) -> (Option<i32>, String) {
        let status = tokio::time::timeout(LONG, self.child.wait()).await.unwrap().unwrap();
        while let Some(line) = self.log.next_line().await.unwrap() {
            self.said.push_str(&line);
        }
        assert!(!self.said.contains(ClusterSpec::DEMO_SECRET), "{}", self.said);
        assert!(!self.said.contains("kubernetes-secret"), "{}", self.said);
        (status.code(), self.said)
    }
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_with_its_place() {
    let bench = Bench::new().await;
    bench.configure("scan_interval = \"0s\"", 30);
    let (status, said) = bench.refused().await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("config.toml:1:17"), "{said}");
    assert!(said.contains("10 VMIDs for 30 machines"), "all findings are there: {said}");
}

#[tokio::test]
async fn secrets_that_cannot_be_used_are_refused_with_a_way_out() {
    let bench = Bench::new().await;
    bench.write("token", ClusterSpec::DEMO_SECRET, 0o644);
    let (status, said) = bench.refused().await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("the API token: others can read") && said.contains("chmod 0600"), "{said}");
    bench.write("token", ClusterSpec::DEMO_SECRET, 0o600);
    fs::remove_file(bench.path("kubeconfig")).unwrap();
    let (status, said) = bench.refused().await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("the kubeconfig: cannot read"), "{said}");
}

#[tokio::test]
async fn a_log_level_that_is_none_is_a_wrong_command_line() {
    let bench = Bench::new().await;
    let output = bench.command().args(["--log-level", "loud"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("expected one of off, error"));
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_does_not_end_it_and_a_signal_does() {
    let bench = Bench::new().await;
    for name in ["TERM", "INT"] {
        let daemon = bench.start().await;
        let socket = bench.path("control.sock").display().to_string();
        let asked = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
            .args(["status", "--socket", &socket])
            .output()
            .await
            .unwrap();
        let shown = String::from_utf8(asked.stdout).unwrap();
        assert!(shown.contains("waits for its first look"), "{shown}");
        daemon.signal(name).await;
        let (status, said) = daemon.ends().await;
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(&format!("signal=\"SIG{name}\"")), "{said}");
        assert!(!bench.path("control.sock").exists(), "the socket goes with its daemon");
    }
}

#[tokio::test]
async fn a_killed_daemons_socket_is_replaced_and_a_living_ones_is_not() {
    let bench = Bench::new().await;
    let killed = bench.start().await;
    killed.signal("KILL").await;
    assert_eq!(killed.ends().await.0, None);
    assert!(bench.path("control.sock").exists());
    let living = bench.start().await;
    let (status, said) = bench.refused().await;
    assert_eq!(status, 7, "{said}");
    assert!(said.contains("another daemon already answers") && said.contains("--socket"), "{said}");
    living.signal("TERM").await;
    assert_eq!(living.ends().await.0, Some(0));
}

#[tokio::test]
async fn a_broken_configuration_is_not_taken_up_and_a_good_one_is() {
    let bench = Bench::new().await;
    let mut daemon = bench.start().await;
    bench.configure("scan_interval = \"0s\"", 3);
    daemon.signal("HUP").await;
    daemon.says("the old one stays in force").await;
    daemon.says("config.toml:1:17").await;
    bench.configure("cluster = \"other\"", 4);
    bench.write("token", "00000000-0000-0000-0000-000000000000", 0o600);
    daemon.signal("HUP").await;
    daemon.says("`cluster` has changed, which needs a restart").await;
    daemon.says("the API token has changed, which needs a restart").await;
    daemon.says("the configuration is taken up").await;
    daemon.signal("TERM").await;
    let (status, said) = daemon.ends().await;
    assert_eq!(status, Some(0), "{said}");
}

#[tokio::test]
async fn systemd_is_told_of_the_start_the_reload_and_the_end() {
    let bench = Bench::new().await;
    let path = bench.path("notify.sock");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(LONG)).unwrap();
    let mut command = bench.command();
    let mut child = command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "300000")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = until(&systemd, "WATCHDOG=1").await;
    assert!(started.contains("READY=1") && started.contains("STATUS="), "{started}");
    let id = child.id().unwrap().to_string();
    let send = async |name: &str| {
        assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success())
    };
    send("HUP").await;
    let reloaded = until(&systemd, "READY=1").await;
    assert!(reloaded.contains("RELOADING=1") && reloaded.contains("MONOTONIC_USEC="), "{reloaded}");
    send("TERM").await;
    until(&systemd, "STOPPING=1").await;
    assert!(child.wait().await.unwrap().success());
}

/// What systemd is told, up to this text.
async fn until(systemd: &UnixDatagram, text: &'static str) -> String {
    let systemd = systemd.try_clone().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut told = String::new();
        while !told.contains(text) {
            let mut message = [0; 4096];
            let length = systemd.recv(&mut message).unwrap();
            told.push_str(std::str::from_utf8(&message[..length]).unwrap());
        }
        told
    });
    reading.await.unwrap()
}
