//! The daemon, run as its users run it: a separate process with its own command line.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

/// How long the daemon may take to become ready, and to stop.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs `pve-autoscaler` in this process. To run the daemon as a separate process, the demo starts its own
/// program again.
pub fn become_it(arguments: Vec<OsString>) -> ExitCode {
    let name = OsString::from("pve-autoscaler");
    pve_autoscaler::cli::Arguments::read(std::iter::once(name).chain(arguments)).execute()
}

/// Starts the daemon with the files in a directory, through the `daemon` command of this program. The
/// daemon's log is written to `daemon.log` in the directory.
///
/// # Errors
/// Returns an error if the daemon cannot be started.
pub fn launch(program: &Path, directory: &Path) -> anyhow::Result<Child> {
    start(Command::new(program), directory)
}

/// Like [`launch`], but with this host name. Requires the right to create a UTS namespace.
///
/// # Errors
/// Returns an error if the daemon cannot be started.
pub fn launch_as(program: &Path, directory: &Path, host: &str) -> anyhow::Result<Child> {
    let mut command = Command::new("unshare");
    // `exec` replaces the started process with the daemon, so signals reach the daemon directly.
    command.args(["--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", host]).arg(program);
    start(command, directory)
}

fn start(mut command: Command, directory: &Path) -> anyhow::Result<Child> {
    let log = log(directory);
    let file = File::options().create(true).append(true).open(&log);
    let file = file.with_context(|| format!("cannot write `{}`", log.display()))?;
    command
        .args(["daemon", "--", "run", "--log-level", "debug", "--config"])
        .arg(directory.join("config.toml"))
        .arg("--socket")
        .arg(directory.join("control.sock"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the daemon")
}

/// Waits until the daemon runs its rounds.
///
/// # Errors
/// Returns an error with the daemon's output if the daemon ends or takes too long.
pub async fn ready(child: &mut Child, directory: &Path) -> anyhow::Result<()> {
    let socket = directory.join("control.sock");
    let shown = async {
        loop {
            if let Ok(status) = pve_autoscaler::observability::ask(&socket).await
                && status.ready
            {
                return Ok(());
            }
            if let Some(ended) = child.try_wait()? {
                let said = std::fs::read_to_string(log(directory)).unwrap_or_default();
                bail!("the daemon exited unexpectedly ({ended}):\n{said}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(LIMIT, shown).await {
        Ok(shown) => shown,
        Err(_) => bail!("the daemon was not ready within {LIMIT:?}: see `{}`", log(directory).display()),
    }
}

fn log(directory: &Path) -> PathBuf {
    directory.join("daemon.log")
}

/// Stops the daemon as systemd does.
///
/// # Errors
/// Returns an error if the daemon does not end.
pub async fn stop(mut child: Child) -> anyhow::Result<()> {
    if let Some(id) = child.id() {
        let sent = Command::new("kill").arg("-TERM").arg(id.to_string()).status().await;
        if !sent.is_ok_and(|status| status.success()) {
            child.start_kill()?;
        }
    }
    tokio::time::timeout(LIMIT, child.wait()).await.context("the daemon did not stop in time")??;
    Ok(())
}
