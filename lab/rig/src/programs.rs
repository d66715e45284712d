//! The control plane's programs, which `tests/rig/build` builds and keeps by version.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context as _, bail};
use tokio::process::Command;

/// What this machine lacks to run a real control plane.
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
    /// The programs, built from the newest tested release, or from the minor version in `RIG_KUBERNETES`.
    /// Programs that do not exist yet are built first, which takes minutes. If Go is not installed, returns
    /// [`Missing`], or an error if the environment contains `CI=true`.
    ///
    /// # Errors
    /// Returns an error if the programs cannot be built.
    pub async fn get() -> anyhow::Result<Result<Self, Missing>> {
        Self::only(&[]).await
    }

    /// Like [`get`](Self::get), but builds only these programs, for callers that need no control plane.
    ///
    /// # Errors
    /// Returns an error if the programs cannot be built.
    pub async fn only(names: &[&str]) -> anyhow::Result<Result<Self, Missing>> {
        let output = run_build(names).await?;
        if output.status.code() == Some(NO_GO) {
            let missing = Missing("Go is needed to build a Kubernetes control plane".to_owned());
            if std::env::var("CI").is_ok_and(|value| value == "true") {
                bail!("{missing}");
            }
            return Ok(Err(missing));
        }
        if !output.status.success() {
            bail!("`{BUILD}` ended with {}", output.status);
        }
        let said = String::from_utf8(output.stdout).context("the build printed no valid path")?;
        Ok(Ok(Self(PathBuf::from(said.trim_end()))))
    }

    /// Builds an additional program, which the control plane does not need.
    ///
    /// # Errors
    /// Returns an error if the program cannot be built.
    pub async fn build(&self, name: &str) -> anyhow::Result<()> {
        let output = run_build(&[name]).await?;
        if !output.status.success() {
            bail!("`{BUILD} {name}` ended with {}", output.status);
        }
        Ok(())
    }

    /// The Kubernetes release of the programs, e.g. `v1.37.2`. The name of their folder begins with it.
    pub fn version(&self) -> String {
        let folder = self.0.file_name().unwrap_or_default().to_string_lossy();
        folder.split('-').next().unwrap_or_default().to_owned()
    }

    /// The path of a program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs a program to its end, with the given standard input. Returns its standard output.
    ///
    /// # Errors
    /// Returns an error with the program's standard error if it fails.
    pub async fn run(&self, name: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        use tokio::io::AsyncWriteExt as _;
        let mut command = Command::new(self.path(name));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().with_context(|| format!("cannot run {name}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // The write fails if the program has already ended. Its exit status then says why.
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

/// Runs the script that builds the programs.
async fn run_build(names: &[&str]) -> anyhow::Result<Output> {
    let mut build = Command::new(BUILD);
    build.args(names).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    build.output().await.with_context(|| format!("cannot run `{BUILD}`"))
}

const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/rig/build");
/// The exit code of the script if Go is missing.
const NO_GO: i32 = 3;
