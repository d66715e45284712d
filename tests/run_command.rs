//! Tests of `run` as an operator or systemd starts it, against the embedded clusters or with a Kubernetes API
//! that cannot be reached.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

#[path = "lab/bench.rs"]
mod bench;
mod lab;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use bench::{Bench, POOL, no_secret_in};
use pve_autoscaler::observability::{Status, ask};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use world::proxmox::spec::ClusterSpec;

/// A time limit, far longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(30);

impl Bench {
    /// A bench whose kubeconfig points to a closed port, so that Kubernetes cannot be reached.
    async fn without_kubernetes() -> Self {
        let bench = Self::demo().await;
        bench.kubeconfig("127.0.0.1:1");
        bench
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

    /// The exit status and output of a daemon that is expected to exit immediately.
    async fn refused(&self) -> (i32, String) {
        let output = tokio::time::timeout(LONG, self.command().output()).await.unwrap().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        no_secret_in(&said);
        (output.status.code().unwrap(), said)
    }

    /// Waits until the daemon's status meets the condition, and returns the status.
    async fn shows(&self, is_so: impl Fn(&Status) -> bool) -> Status {
        let asking = async {
            loop {
                let status = ask(&self.path("control.sock")).await.unwrap();
                if is_so(&status) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(LONG, asking).await.unwrap()
    }

    /// Starts a daemon.
    async fn start(&self) -> Daemon {
        let mut child = self.command().spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut daemon = Daemon { child, log, said: String::new() };
        daemon.says("pve-autoscaler starts").await;
        daemon
    }
}

#[tokio::test]
async fn a_second_cluster_with_vmids_of_the_first_is_refused_while_that_runs() {
    let bench = Bench::without_kubernetes().await;
    let config = fs::read_to_string(bench.path("config.toml")).unwrap();
    let ours = |name: &str| match name {
        "" => ("etc/config.toml".to_owned(), "run/pve-autoscaler/control.sock".to_owned()),
        name => {
            (format!("etc/clusters/{name}/config.toml"), format!("run/pve-autoscaler@{name}/control.sock"))
        }
    };
    for (name, id) in [("", "first"), ("shop", "shop")] {
        let (file, socket) = ours(name);
        for place in [&file, &socket] {
            fs::create_dir_all(bench.path(place).parent().unwrap()).unwrap();
        }
        bench.write(&file, &format!("cluster = \"{id}\"\n{config}"), 0o644);
    }
    let command = |name: &str| {
        let (file, socket) = ours(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        command
            .args(["run", "--config", &bench.path(&file).display().to_string()])
            .args(["--socket", &bench.path(&socket).display().to_string()])
            .env_remove("RUST_LOG")
            .env_remove("JOURNAL_STREAM")
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    };
    let mut first = command("").spawn().unwrap();
    let log = BufReader::new(first.stderr.take().unwrap()).lines();
    let mut first = Daemon { child: first, log, said: String::new() };
    first.says("and will not start").await;
    first.says("pve-autoscaler starts").await;
    let second = tokio::time::timeout(LONG, command("shop").output()).await.unwrap().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("the daemon of the cluster without a name is running on this host"), "{said}");
    for text in ["both have VMIDs", "etc/config.toml", "clusters/shop/config.toml", "help: "] {
        assert!(said.contains(text), "{text}: {said}");
    }
    // The other cluster's configuration does not prevent the running daemon from reloading its own.
    first.signal("HUP").await;
    first.says("configuration applied").await;
    first.signal("TERM").await;
    assert_eq!(first.ends().await.0, Some(0));
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
        no_secret_in(&self.said);
        (status.code(), self.said)
    }
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_with_its_place() {
    let bench = Bench::without_kubernetes().await;
    bench.change("\"1s\"", "\"0s\"");
    bench.change("max = 3", "max = 30");
    let (status, said) = bench.refused().await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("config.toml:1:17"), "{said}");
    assert!(said.contains("10 VMIDs for 30 machines"), "all findings are reported: {said}");
}

#[tokio::test]
async fn secrets_that_cannot_be_used_are_refused_with_a_way_out() {
    let bench = Bench::without_kubernetes().await;
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
    let bench = Bench::without_kubernetes().await;
    let output = bench.command().args(["--log-level", "loud"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("expected one of off, error"));
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_does_not_end_it_and_a_signal_does() {
    let bench = Bench::without_kubernetes().await;
    for name in ["TERM", "INT"] {
        let daemon = bench.start().await;
        let socket = bench.path("control.sock").display().to_string();
        let asked = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
            .args(["status", "--socket", &socket])
            .output()
            .await
            .unwrap();
        let shown = String::from_utf8(asked.stdout).unwrap();
        assert!(shown.contains("waiting for its first look"), "{shown}");
        daemon.signal(name).await;
        let (status, said) = daemon.ends().await;
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(&format!("signal=\"SIG{name}\"")), "{said}");
        assert!(!bench.path("control.sock").exists(), "the daemon removes its socket");
    }
}

#[tokio::test]
async fn all_credentials_that_are_missing_are_named_at_once() {
    let bench = Bench::demo().await;
    for name in ["token", "ca.pem", "kubeconfig"] {
        fs::remove_file(bench.path(name)).unwrap();
    }
    bench.change(
        "[bootstrap]\n",
        "[bootstrap]\ntoken = \"ssh\"\nssh_host = \"10.10.10.2\"\nssh_key_file = \"/nonexistent/key\"\n\
         ssh_host_key = \"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqT0vUKZT3fYqDm3YQkJH0q5T7d6l1yq1cZ1mQy0f2B\"\n",
    );
    let (status, refused) = bench.refused().await;
    assert_eq!(status, 2, "{refused}");
    let config = bench.path("config.toml").display().to_string();
    let check = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args(["check", "--config", &config])
        .output()
        .await
        .unwrap();
    assert!(!check.status.success());
    for said in [refused, String::from_utf8(check.stdout).unwrap()] {
        for path in ["token", "ca.pem", "kubeconfig"].map(|name| bench.path(name).display().to_string()) {
            assert_eq!(said.matches(&format!("`{path}`")).count(), 1, "{path}: {said}");
        }
        assert!(said.contains("`/nonexistent/key`"), "{said}");
    }
}

#[tokio::test]
async fn a_killed_daemons_socket_is_replaced_and_a_living_ones_is_not() {
    let bench = Bench::without_kubernetes().await;
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
    let bench = Bench::without_kubernetes().await;
    let mut daemon = bench.start().await;
    bench.change("\"1s\"", "\"0s\"");
    daemon.signal("HUP").await;
    daemon.says("the old one stays in force").await;
    daemon.says("config.toml:1:17").await;
    let status = bench.shows(|status| status.problems.contains_key("configuration")).await;
    assert!(
        status.problems["configuration"].contains("`scan_interval` must be longer than zero"),
        "{status:#?}"
    );
    bench.configure(POOL);
    bench.change("scan_interval", "cluster = \"other\"\nscan_interval");
    bench.write("token", "00000000-0000-0000-0000-000000000000", 0o600);
    daemon.signal("HUP").await;
    daemon.says("`cluster` has changed; the old value stays in force").await;
    daemon.says("the API token has changed; the old value stays in force").await;
    daemon.says("configuration applied").await;
    let said = "a restart is needed to apply `cluster`, the API token";
    bench.shows(|status| status.problems.get("configuration").is_some_and(|it| it == said)).await;
    bench.configure(POOL);
    bench.write("token", ClusterSpec::DEMO_SECRET, 0o600);
    daemon.signal("HUP").await;
    bench.shows(|status| !status.problems.contains_key("configuration")).await;
    daemon.signal("TERM").await;
    let (status, said) = daemon.ends().await;
    assert_eq!(status, Some(0), "{said}");
}

#[tokio::test]
async fn with_both_clusters_its_rounds_begin_and_a_reload_reaches_them() {
    let bench = Bench::demo().await;
    let mut daemon = bench.start().await;
    daemon.says("starting rounds").await;
    let status = bench.shows(|status| !status.pools.is_empty()).await;
    assert!(status.ready && status.problems.is_empty(), "{status:#?}");
    assert_eq!((status.mode.as_str(), status.pools[0].max, status.pools[0].slots_free), ("active", 3, 10));
    bench.change("max = 3", "max = 7");
    daemon.signal("HUP").await;
    bench.shows(|status| status.pools.iter().any(|pool| pool.max == 7)).await;
    daemon.signal("TERM").await;
    let (status, said) = daemon.ends().await;
    assert_eq!(status, Some(0), "{said}");
}

#[tokio::test]
async fn a_killed_daemon_leads_again_as_soon_as_it_is_back() {
    let bench = Bench::demo().await;
    for _ in 0..3 {
        let mut daemon = bench.start().await;
        let started = tokio::time::Instant::now();
        daemon.says("starting rounds").await;
        // Even on a busy machine, this takes far less time than a lease lasts.
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        daemon.signal("KILL").await;
        daemon.ends().await;
    }
}

#[tokio::test]
async fn everything_is_stopped_over_a_restart_until_it_is_resumed() {
    let bench = Bench::demo().await;
    let socket = bench.path("control.sock").display().to_string();
    let give = async |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        let output = command.args(arguments).args(["--socket", &socket]).output().await.unwrap();
        (output.status.code().unwrap(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    assert_eq!(give(&["pause"]).await.0, 6, "no daemon answers");
    let mut daemon = bench.start().await;
    daemon.says("starting rounds").await;
    let (code, said) = give(&["pause", "--reason", "storage is moved"]).await;
    assert_eq!((code, said.as_str()), (0, "paused: starting nothing new until `pve-autoscaler resume`\n"));
    daemon.says("paused: starting nothing new").await;
    bench.shows(|status| status.paused.is_some()).await;
    daemon.signal("KILL").await;
    daemon.ends().await;
    let daemon = bench.start().await;
    let status = bench.shows(|status| status.paused.is_some()).await;
    assert_eq!(status.paused.unwrap().reason, "storage is moved");
    let (_, said) = give(&["status"]).await;
    assert!(said.contains("storage is moved; nothing new is started until"), "{said}");
    assert_eq!(give(&["resume"]).await, (0, "resumed\n".to_owned()));
    bench.shows(|status| status.paused.is_none()).await;
    daemon.signal("TERM").await;
    assert_eq!(daemon.ends().await.0, Some(0));
}

#[tokio::test]
async fn a_pause_that_cannot_be_stored_says_so_and_names_another_way() {
    let bench = Bench::without_kubernetes().await;
    let daemon = bench.start().await;
    let socket = bench.path("control.sock").display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    let output = command.args(["pause", "--socket", &socket]).output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the daemon refused") && said.contains("systemctl stop"), "{said}");
    daemon.signal("TERM").await;
    assert_eq!(daemon.ends().await.0, Some(0));
}

#[tokio::test]
async fn systemd_is_told_of_the_start_the_reload_and_the_end() {
    let bench = Bench::without_kubernetes().await;
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
        assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
    };
    send("HUP").await;
    let reloaded = until(&systemd, "READY=1").await;
    assert!(reloaded.contains("RELOADING=1") && reloaded.contains("MONOTONIC_USEC="), "{reloaded}");
    send("TERM").await;
    until(&systemd, "STOPPING=1").await;
    assert!(child.wait().await.unwrap().success());
}

/// Returns what the daemon reports to systemd, up to and including this text.
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
