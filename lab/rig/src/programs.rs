//! The programs of the control plane: built by `tests/rig/build`, which keeps them by version.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context as _, bail};
use tokio::process::Command;

/// What this machine lacks for a real control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder with the programs.
#[derive(Clone, Debug)]
pub struct Programs(PathBuf);

impl Programs {
    /// The programs, built now where they are not there yet: minutes the first time. They are of the newest
    /// release that is tested, or of the minor that `RIG_KUBERNETES` says. Without Go there are none, which
    /// is an error if the environment says `CI=true`.
    ///
    /// # Errors
    /// They cannot be built.
    pub async fn get() -> anyhow::Result<Result<Self, Missing>> {
        Self::only(&[]).await
    }

    /// The same with no other programs than these, for who needs no control plane.
    ///
    /// # Errors
    /// They cannot be built.
    pub async fn only(names: &[&str]) -> anyhow::Result<Result<Self, Missing>> {
        let output = run_build(names).await?;
        if output.status.code() == Some(NO_GO) {
            let missing = Missing("no Go to build a Kubernetes control plane with".to_owned());
            if std::env::var("CI").is_ok_and(|value| value == "true") {
                bail!("{missing}");
            }
            return Ok(Err(missing));
        }
        if !output.status.success() {
            bail!("`{BUILD}` ended with {}", output.status);
        }
        let said = String::from_utf8(output.stdout).context("the build says no path")?;
        Ok(Ok(Self(PathBuf::from(said.trim_end()))))
    }

    /// Builds one that the others do not need.
    ///
    /// # Errors
    /// It cannot be built.
    pub async fn build(&self, name: &str) -> anyhow::Result<()> {
        let output = run_build(&[name]).await?;
        if !output.status.success() {
            bail!("`{BUILD} {name}` ended with {}", output.status);
        }
        Ok(())
    }

    /// The release of Kubernetes that they are of, e.g. `v1.37.2`: their folder is called after it, and after
    /// where they are from.
    pub fn version(&self) -> String {
        let folder = self.0.file_name().unwrap_or_default().to_string_lossy();
        folder.split('-').next().unwrap_or_default().to_owned()
    }

    /// The path of a program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs one to its end, with this on its standard input; its standard output.
    ///
    /// # Errors
    /// It failed, with what it wrote to standard error.
    pub async fn run(&self, name: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        use tokio::io::AsyncWriteExt as _;
        let mut command = Command::new(self.path(name));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().with_context(|| format!("cannot run {name}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read has ended, which its status tells.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.with_context(|| format!("cannot wait for {name}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{name} {} ended with {}: {}", arguments.join(" "), output.status, said.trim_end());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Runs the script that builds them.
async fn run_build(names: &[&str]) -> anyhow::Result<Output> {
    let mut build = Command::new(BUILD);
    build.args(names).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    build.output().await.with_context(|| format!("cannot run `{BUILD}`"))
}

const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/rig/build");
/// How the script ends if Go is missing.
const NO_GO: i32 = 3;
