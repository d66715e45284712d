//! Runs the daemon as a process, and reads its resource usage from `/proc`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::Instant;

/// The time limit for the daemon to become ready, far longer than it needs.
const LIMIT: Duration = Duration::from_mins(3);

/// The environment variables that the package's systemd unit sets.
fn environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    let unit = include_str!("../../../systemd/pve-autoscaler.service");
    unit.lines().filter_map(|line| line.strip_prefix("Environment=")?.split_once('='))
}

/// The daemon.
pub struct Daemon {
    child: Child,
    folder: PathBuf,
    since: Instant,
}

/// The resources that a process has used.
pub struct Usage {
    /// The CPU time of all threads.
    pub cpu: Duration,
    /// The resident memory, in megabytes.
    pub resident: u64,
    /// The part of `resident` that is not backed by files, in megabytes.
    pub own: u64,
    /// The maximum resident memory so far, in megabytes.
    pub peak: u64,
}

impl Daemon {
    /// Starts the daemon with the configuration in this folder.
    pub fn start(folder: &Path) -> Self {
        let mut command = if let Some(program) = std::env::var_os("DAEMON") {
            Command::new(program)
        } else {
            let mut own = Command::new(env!("CARGO_BIN_EXE_lab"));
            own.args(["daemon", "--"]);
            own
        };
        let at = |name: &str| folder.join(name);
        command.arg("run").arg("--config").arg(at("config.toml")).arg("--socket").arg(at("control.sock"));
        command.envs(environment()).env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null());
        let log = File::create(at("daemon.log")).unwrap();
        let child = command.stderr(log).kill_on_drop(true).spawn().unwrap();
        Self { child, folder: folder.to_owned(), since: Instant::now() }
    }

    /// Waits until the daemon runs its rounds. Returns the time since its start.
    pub async fn ready(&mut self) -> Duration {
        loop {
            let status = pve_autoscaler::observability::ask(&self.folder.join("control.sock")).await;
            if status.is_ok_and(|status| status.ready) {
                return self.since.elapsed();
            }
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || self.since.elapsed() > LIMIT {
                let said = fs::read_to_string(self.folder.join("daemon.log")).unwrap_or_default();
                panic!("the daemon is not ready ({ended:?}):\n{said}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many times the daemon lost leadership, according to its log.
    pub fn lost_terms(&self) -> usize {
        let said = fs::read_to_string(self.folder.join("daemon.log")).unwrap();
        said.matches("lost leadership").count()
    }

    /// The resources that the daemon has used so far.
    pub fn usage(&self) -> Usage {
        let folder = format!("/proc/{}", self.child.id().unwrap());
        let stat = fs::read_to_string(format!("{folder}/stat")).unwrap();
        // The process name, in parentheses, may contain anything, so the fields after it are counted. Fields
        // 14 and 15 of the line are utime and stime, in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        let megabytes = |name: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024 / 1_000_000
        };
        Usage {
            cpu: Duration::from_millis(ticks * 10),
            resident: megabytes("VmRSS:"),
            own: megabytes("RssAnon:"),
            peak: megabytes("VmHWM:"),
        }
    }

    /// Stops the daemon as systemd does.
    pub async fn stop(self) {
        lab::daemon::stop(self.child).await.unwrap();
    }
}
