//! The daemon, run as its users run it: a process of its own, with its own command line.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use tokio::process::{Child, Command};

/// How long the daemon may take to show itself, and to end.
const LIMIT: Duration = Duration::from_secs(20);

/// Becomes `pve-autoscaler`: what the demo starts this program for.
pub fn become_it(arguments: Vec<OsString>) -> ExitCode {
    let name = OsString::from("pve-autoscaler");
    pve_autoscaler::cli::Arguments::parse_from(std::iter::once(name).chain(arguments)).execute()
}

/// Starts it on the files of a directory; what it logs goes to `daemon.log` there.
///
/// # Errors
/// It cannot be started, or ends at once: with what it said.
pub async fn start(directory: &Path) -> anyhow::Result<Child> {
    let log = directory.join("daemon.log");
    let file = File::create(&log).with_context(|| format!("cannot write `{}`", log.display()))?;
    let socket = directory.join("control.sock");
    let mut child = Command::new(std::env::current_exe().context("cannot find this program")?)
        .args(["daemon", "--", "run", "--log-level", "debug", "--config"])
        .arg(directory.join("config.toml"))
        .arg("--socket")
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the daemon")?;
    let shown = async {
        loop {
            if let Ok(status) = pve_autoscaler::observability::ask(&socket).await
                && status.ready
            {
                return anyhow::Ok(());
            }
            if let Some(ended) = child.try_wait()? {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                bail!("the daemon has ended with {ended}:\n{said}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(LIMIT, shown).await {
        Ok(shown) => shown.map(|()| child),
        Err(_) => bail!("the daemon was not ready within {LIMIT:?}: see `{}`", log.display()),
    }
}

/// Ends it as systemd does.
///
/// # Errors
/// It does not end.
pub async fn stop(mut child: Child) -> anyhow::Result<()> {
    if let Some(id) = child.id() {
        let sent = Command::new("kill").arg("-TERM").arg(id.to_string()).status().await;
        if !sent.is_ok_and(|status| status.success()) {
            child.start_kill()?;
        }
    }
    tokio::time::timeout(LIMIT, child.wait()).await.context("the daemon does not end")??;
    Ok(())
}
